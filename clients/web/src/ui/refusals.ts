import { REPLAY_IS_FIXED } from '../past/words';
import { codeName } from './notices';

/** What a person is told of a refusal: what it means and what to do, and the server's own words for whoever looks closer. */
export interface Refusal {
  sentence: string;
  /** The code, where the sentence is the server's own; else empty. */
  small: string;
  /** Code and message as they came. */
  detail: string;
}

interface Known {
  /** Absent: of the page itself, or the note of an edit that was not done, or not wholly; they carry no code. */
  code?: string;
  says?: RegExp;
  sentence: string | ((found: RegExpMatchArray) => string);
}

const STOPPED = 'The simulation of this scene has stopped with an error. Reset the scene (R) to go on.';
const AWAY = 'The server is away. This page comes back by itself when it is there again.';
const TAKE_ANOTHER = 'Take another one, or wait until it is free.';
/** What stations of people who gave no name are called. */
const NOBODY = ['', 'viewer'];

/** By code, and where that is not enough by what the message says. The first that fits counts. */
const KNOWN: Known[] = [
  { code: 'ALREADY_EXISTS', says: /operated by station "(.*)"/, sentence: ([, who]) => `${NOBODY.includes(who!) ? 'Somebody else' : who} holds this instrument. ${TAKE_ANOTHER}` },
  { code: 'ALREADY_EXISTS', sentence: `Somebody else holds this instrument. ${TAKE_ANOTHER}` },
  { code: 'FAILED_PRECONDITION', says: /scene has failed|must be reset/, sentence: STOPPED },
  { code: 'FAILED_PRECONDITION', says: /pause it/, sentence: 'The scene is playing. Pause it first, then go step by step.' },
  { code: 'FAILED_PRECONDITION', says: /no tool is attached/, sentence: 'You have no instrument in the hand any more. Take it again (T).' },
  { code: 'FAILED_PRECONDITION', says: /operates a tool already/, sentence: 'You hold an instrument already. Release it first (T).' },
  { code: 'FAILED_PRECONDITION', says: /topology_version/, sentence: 'Somebody else has cut the tissue meanwhile. Look at it again and repeat what you did.' },
  { code: 'FAILED_PRECONDITION', says: /replays a recording/, sentence: REPLAY_IS_FIXED },
  { code: 'FAILED_PRECONDITION', says: /has no past/, sentence: 'This scene keeps no past. Whoever runs the server can start it with a folder of state.' },
  { code: 'OUT_OF_RANGE', says: /at its end/, sentence: 'The recording is at its end. Branch from here to go on.' },
  { code: 'FAILED_PRECONDITION', says: /pre-computed/, sentence: 'This tissue is pre-computed and cannot be cut. Choose a scene whose tissue can.' },
  { code: 'INVALID_ARGUMENT', says: /not deformable/, sentence: 'This is no tissue: it is rigid, and cannot be cut or grasped.' },
  { code: 'INVALID_ARGUMENT', says: /not a manifold/, sentence: 'The mesh of this tissue does not allow cuts.' },
  { code: 'INVALID_ARGUMENT', says: /has no jaws/, sentence: 'This instrument has no jaws. Take forceps to grasp.' },
  { code: 'ABORTED', says: /reset/, sentence: 'The scene was set back to its start meanwhile, so this was not done.' },
  { code: 'ABORTED', says: /deleted/, sentence: 'This scene was removed from the server.' },
  { code: 'ABORTED', says: /set to play|paused/, sentence: 'Somebody else played or paused the scene meanwhile, so not all steps were done.' },
  { code: 'NOT_FOUND', says: /^scene_id/, sentence: 'This scene is not on the server any more. Choose another one at the top.' },
  { code: 'NOT_FOUND', says: /tool/, sentence: 'This scene has no such instrument any more.' },
  { code: 'NOT_FOUND', says: /body/, sentence: 'This piece of tissue is gone.' },
  { code: 'RESOURCE_EXHAUSTED', says: /wrong tokens/, sentence: 'Too many wrong tokens came from this address. Try again in a minute.' },
  { code: 'RESOURCE_EXHAUSTED', says: /takes \d+ viewers/, sentence: 'The server has as many viewers as it takes. Try again later, or ask who runs it.' },
  { code: 'RESOURCE_EXHAUSTED', says: /waiting|wait for/, sentence: 'More is asked of this scene than it can do. Wait a moment and try again.' },
  { code: 'RESOURCE_EXHAUSTED', says: /message longer/, sentence: 'This was too much at once. Do it in shorter strokes.' },
  { code: 'RESOURCE_EXHAUSTED', says: /state cannot be kept/,
    sentence: 'The server cannot save this scene now, so nothing is changed in it: its disk may be full. Ask who runs it.' },
  { code: 'RESOURCE_EXHAUSTED', says: /performed, but are not kept/,
    sentence: 'This was done, but the server cannot save it now: its disk may be full. Ask who runs it.' },
  { code: 'RESOURCE_EXHAUSTED', sentence: 'The server has no room for this. Wait a moment, or ask who runs it.' },
  { code: 'CANCELLED', sentence: 'This was called off before it was done.' },
  { code: 'DEADLINE_EXCEEDED', sentence: 'The server took too long to answer. Try again.' },
  { code: 'DATA_LOSS', sentence: STOPPED },
  { code: 'UNAUTHENTICATED', sentence: 'The server wants its access token. Load this page anew to enter it.' },
  { code: 'PERMISSION_DENIED', sentence: 'The server does not let this page do that. Open it at the address that the server names.' },
  { code: 'UNAVAILABLE', says: /still being built/, sentence: 'This scene is still being built. Try again in a moment.' },
  { code: 'UNAVAILABLE', sentence: 'The server is stopping or away. This page comes back by itself when it is there again.' },
  { code: 'UNIMPLEMENTED', sentence: 'This server cannot do that yet. It is older than this page: load the page anew.' },
  { code: 'INTERNAL', sentence: 'Something went wrong in the server. Its log says more.' },
  { says: /tets would be needed|budget/, sentence: 'This cut would need a finer mesh than the server allows. Make it smaller, or cut elsewhere.' },
  { says: /holds nothing: the nearest surface.*? is ([\d.]+ mm)/, sentence: ([, far]) => `There is nothing between the jaws: the nearest body is ${far} away. Press on the body itself, or set a larger reach.` },
  { says: /holds nothing/, sentence: 'There is nothing to hold in this scene.' },
  { says: /asking for a new keyframe/, sentence: 'The picture of the tissue was not complete. It is being loaded anew.' },
  { says: /not what its hash says/, sentence: 'The picture does not agree with the server. Load the page anew.' },
  { says: /^the server is away|connection to the server ended/, sentence: AWAY },
  { says: /takes \d+ viewers/, sentence: 'It has as many viewers as it takes.' },
  { says: /^no answer$/, sentence: 'It does not answer.' },
];

/** Fields of the interface, as in "edits[0].carve.radius_m: ", mean nothing to who uses a mouse. */
const FIELD = /^[\w.[\]]+: /;

/** With a capital, and an end. */
export function asSentence(text: string): string {
  const words = text.trim();
  if (words === '') return '';
  return words[0]!.toUpperCase() + words.slice(1) + (/[.!?…]$/.test(words) ? '' : '.');
}

/** Never empty; what no sentence is known for is said as the server said it. `code`: undefined where the page itself, or the note of an edit, speaks. */
export function explain(code: number | undefined, message: string): Refusal {
  const name = code === undefined ? undefined : codeName(code);
  const detail = name === undefined ? message : `${name}: ${message}`;
  for (const { code: ofCode, says, sentence } of KNOWN) {
    const found = ofCode === name ? message.match(says ?? /^/) : null;
    if (found) return { sentence: typeof sentence === 'string' ? sentence : sentence(found), small: '', detail };
  }
  return { sentence: asSentence(message.replace(FIELD, '')) || 'The server refused this without saying why.', small: name ?? '', detail };
}
