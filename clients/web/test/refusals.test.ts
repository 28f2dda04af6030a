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
  for (let code = 0; code < 20; ++code) {
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
