import { codeName } from './notices';

/** What a person is told of a refusal: what it means and what to do, and the server's own words for whoever looks closer. */
export interface Refusal {
  sentence: string;
  /** Code and message as they came. */
  detail: string;
}

/** By code, and where that is not enough by what the message says. The first that fits counts. */
const SENTENCES: { code: string; says?: RegExp; sentence: string }[] = [
  { code: 'ALREADY_EXISTS', sentence: 'Somebody else holds this instrument. Take another one, or wait until it is free.' },
  { code: 'FAILED_PRECONDITION', says: /scene has failed|must be reset/, sentence: 'The simulation of this scene has stopped with an error. Reset the scene (R) to go on.' },
  { code: 'FAILED_PRECONDITION', says: /pause it/, sentence: 'The scene is playing. Pause it first, then go step by step.' },
  { code: 'FAILED_PRECONDITION', says: /no tool is attached/, sentence: 'You have no instrument in the hand any more. Take it again (T).' },
  { code: 'FAILED_PRECONDITION', says: /topology_version/, sentence: 'Somebody else has cut the tissue meanwhile. Look at it again and repeat what you did.' },
  { code: 'ABORTED', says: /reset/, sentence: 'The scene was set back to its start meanwhile, so this was not done.' },
  { code: 'ABORTED', says: /deleted/, sentence: 'This scene was removed from the server.' },
  { code: 'NOT_FOUND', says: /^scene_id/, sentence: 'This scene is not on the server any more. Choose another one at the top.' },
  { code: 'NOT_FOUND', says: /tool/, sentence: 'This scene has no such instrument any more.' },
  { code: 'NOT_FOUND', says: /body/, sentence: 'This piece of tissue is gone.' },
  { code: 'RESOURCE_EXHAUSTED', says: /waiting/, sentence: 'More is asked of this scene than it can do. Wait a moment and try again.' },
  { code: 'RESOURCE_EXHAUSTED', sentence: 'The server has no room for this. Wait a moment, or ask who runs it.' },
  { code: 'CANCELLED', sentence: 'This was called off before it was done.' },
  { code: 'DEADLINE_EXCEEDED', sentence: 'The server took too long to answer. Try again.' },
  { code: 'DATA_LOSS', sentence: 'The simulation of this scene has stopped with an error. Reset the scene (R) to go on.' },
  { code: 'UNAUTHENTICATED', sentence: 'The server wants its access token. Load this page anew to enter it.' },
  { code: 'PERMISSION_DENIED', sentence: 'The server does not let this page do that. Open it at the address that the server names.' },
  { code: 'UNAVAILABLE', sentence: 'The server is stopping or away. This page comes back by itself when it is there again.' },
  { code: 'UNIMPLEMENTED', sentence: 'This server cannot do that yet. It is older than this page: load the page anew.' },
  { code: 'INTERNAL', sentence: 'Something went wrong in the server. Its log says more.' },
];

/** Fields of the interface, as in "edits[0].carve.radius_m: ", mean nothing to who uses a mouse. */
const FIELD = /^[\w.[\]]+: /;

/** With a capital, and an end. */
export function asSentence(text: string): string {
  const words = text.trim();
  if (words === '') return '';
  return words[0]!.toUpperCase() + words.slice(1) + (/[.!?…]$/.test(words) ? '' : '.');
}

/** Never empty; what no sentence is known for is said as the server said it. */
export function explain(code: number, message: string): Refusal {
  const name = codeName(code);
  const known = SENTENCES.find((one) => one.code === name && (one.says?.test(message) ?? true));
  const own = asSentence(message.replace(FIELD, ''));
  return { sentence: known?.sentence ?? (own || 'The server refused this without saying why.'), detail: `${name}: ${message}` };
}
