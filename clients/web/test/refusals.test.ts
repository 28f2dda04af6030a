import assert from 'node:assert/strict';
import { test } from 'node:test';
import { asSentence, explain } from '../src/ui/refusals';

const ALREADY_EXISTS = 6;
const INVALID_ARGUMENT = 3;
const FAILED_PRECONDITION = 9;

test('a refusal is a sentence that says what to do, with the own words of the server at hand', () => {
  const { sentence, detail } = explain(ALREADY_EXISTS, 'attach.tool: "probe" is operated');
  assert.equal(sentence, 'Somebody else holds this instrument. Take another one, or wait until it is free.');
  assert.equal(detail, 'ALREADY_EXISTS: attach.tool: "probe" is operated');
});

test('one code means several things', () => {
  const failed = explain(FAILED_PRECONDITION, 'the scene has failed and needs a reset: NaN').sentence;
  const playing = explain(FAILED_PRECONDITION, 'the scene plays; pause it before stepping').sentence;
  assert.match(failed, /Reset the scene/);
  assert.match(playing, /Pause it first/);
});

test('what nobody foresaw is told in the words of the server, without the names of fields', () => {
  assert.equal(explain(INVALID_ARGUMENT, 'edits[0].carve.radius_m: 3 is outside [0.0005, 0.2]').sentence, '3 is outside [0.0005, 0.2].');
  assert.equal(explain(FAILED_PRECONDITION, 'the pump leaks').sentence, 'The pump leaks.');
});

test('every code says something, whatever the message', () => {
  for (const code of [undefined, ...Array(20).keys()]) {
    for (const message of ['', 'x', 'a.b[3]: ', 'Why? ']) {
      const { sentence } = explain(code, message);
      assert.match(sentence, /^\S.*[.!?…]$/, `${code} '${message}'`);
      assert.doesNotMatch(sentence, /[A-Z]+_[A-Z]+|\w\.\w+:/, 'codes and fields are for those who look closer');
    }
  }
});

test('sentences begin with a capital and end', () => {
  assert.equal(asSentence('no tissue is near'), 'No tissue is near.');
  assert.equal(asSentence('  Done!'), 'Done!');
  assert.equal(asSentence(''), '');
});

test('who holds an instrument is named, if he gave a name', () => {
  const held = (station: string) => explain(ALREADY_EXISTS, `attach.tool: "probe" is operated by station "${station}"`).sentence;
  assert.equal(held('Ada'), 'Ada holds this instrument. Take another one, or wait until it is free.');
  assert.match(held('viewer'), /^Somebody else holds/);
  assert.match(held(''), /^Somebody else holds/);
});

test('a message of the server that no sentence is known for keeps its code, in small print', () => {
  assert.equal(explain(INVALID_ARGUMENT, 'count: 0 is outside [1, 100000]').small, 'INVALID_ARGUMENT');
  assert.equal(explain(ALREADY_EXISTS, 'whatever').small, '');
});

test('what the server says today is understood: as in its sources', () => {
  const RESOURCE_EXHAUSTED = 8;
  const ABORTED = 10;
  const UNAVAILABLE = 14;
  const known: [number | undefined, string, RegExp][] = [
    [FAILED_PRECONDITION, 'the scene has failed and must be reset', /stopped with an error/],
    [FAILED_PRECONDITION, 'attach: this browser operates a tool already; release it first', /Release it first/],
    [FAILED_PRECONDITION, 'pose: no tool is attached', /Take it again/],
    [FAILED_PRECONDITION, 'body liver is pre-computed: its mesh cannot change; a body that is to be cut is hybrid or dynamic', /cannot be cut/],
    [FAILED_PRECONDITION, 'edits: the scene replays a recording; branch off from it to change something', /nothing can be changed/],
    [FAILED_PRECONDITION, 'scene_id: scene "liver" has no past: the server keeps no state (--state-dir), and it is no replay', /keeps no past/],
    [11, 'the recording is at its end', /Branch from here/],
    [RESOURCE_EXHAUSTED, "the scene's state cannot be kept, so nothing is changed now: no space left on device", /disk may be full/],
    [RESOURCE_EXHAUSTED, 'the edits were performed, but are not kept: no space left on device', /was done, but.*disk may be full/],
    [INVALID_ARGUMENT, 'body bone is not deformable: only tissue can be edited', /rigid/],
    [INVALID_ARGUMENT, 'tool hook has no jaws', /Take forceps/],
    [5, 'scene_id: there is no scene "liver"', /Choose another one/],
    [5, 'edits[0].body: the scene has no body "liver 3"', /gone/],
    [5, 'edits[0].grasp.tool: the scene has no tool "forceps"', /no such instrument/],
    [RESOURCE_EXHAUSTED, 'scene "liver" has 1024 requests waiting', /Wait a moment/],
    [RESOURCE_EXHAUSTED, '64 requests of this browser wait for an answer; wait for one', /Wait a moment/],
    [RESOURCE_EXHAUSTED, 'too many wrong tokens from this address; try again in a minute', /in a minute/],
    [RESOURCE_EXHAUSTED, 'the server takes 64 viewers (web.max_connections)', /as many viewers/],
    [ABORTED, 'the scene was set to play', /played or paused/],
    [ABORTED, 'scene "liver" was deleted', /removed/],
    [UNAVAILABLE, 'scene "liver" is still being built', /still being built/],
    [16, 'this server wants its token', /token/],
    [7, "this server does not answer to the host name 'x'; if it is one of its names, start it with --allowed-host x", /address/],
    [undefined, 'more than 8000 tets would be needed', /finer mesh/],
    [undefined, 'the budget of tets stopped the blade', /finer mesh/],
    [undefined, 'forceps holds nothing: the nearest surface, of liver, is 5.2 mm from its tip and its reach is 3.0 mm; bring the tip nearer, or grasp with a radius_m of at least 0.0052',
      /nearest body is 5\.2 mm away/],
    [undefined, 'an edit leads from version 3, but here is 2; asking for a new keyframe', /loaded anew/],
    [undefined, 'the server is away', /comes back by itself/],
  ];
  for (const [code, message, sentence] of known) {
    const told = explain(code, message);
    assert.match(told.sentence, sentence, message);
    assert.equal(told.small, '', message);
    assert.notEqual(told.sentence, asSentence(message), 'not the words of the server');
  }
});
