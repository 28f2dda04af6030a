import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ResetWatch, visitorName } from '../src/session/visitor';

function memory() {
  const items = new Map<string, string>();
  return { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) };
}

test('a name is given once and remembered, until another one is given', () => {
  const storage = memory();
  const visit = (address: string) => visitorName(new URLSearchParams(address), storage);
  assert.equal(visit(''), '');
  assert.equal(visit('name=Ada'), 'Ada');
  assert.equal(visit('scene=liver'), 'Ada');
  assert.equal(visit('name=Grace%20H.'), 'Grace H.');
  assert.equal(visit(''), 'Grace H.');
  assert.equal(visit('name='), '', 'given back');
  assert.equal(visit(''), '');
});

test('names fit what the server takes: 64 bytes, no control characters', () => {
  for (const given of ['x'.repeat(200), '語'.repeat(200), `${'x'.repeat(20)}🫀🫀`, '🫀'.repeat(99), 'a\u0000b\nc\u007fd\u0085']) {
    const name = visitorName(new URLSearchParams({ name: given }), memory());
    assert.ok(new TextEncoder().encode(name).length <= 64, name);
    assert.doesNotMatch(name, /[\u0000-\u001f\u007f-\u009f]/);
    assert.equal(new TextDecoder().decode(new TextEncoder().encode(name)), name, 'whole characters');
    assert.ok(name.length >= 4);
  }
});

const info = (resets: number, resetBy = 'Ada', sceneId = 'liver') => ({ sceneId, resets: BigInt(resets), resetBy });

test('a reset of somebody else is told, once', () => {
  const watch = new ResetWatch();
  assert.equal(watch.look(info(3)), undefined, 'before one came');
  assert.equal(watch.look(info(3)), undefined);
  assert.equal(watch.look(info(4)), 'Ada');
  assert.equal(watch.look(info(4)), undefined);
  assert.equal(watch.look(info(5, '')), 'Somebody');
  assert.equal(watch.look(info(7, 'Ada', 'kidney')), undefined, 'another scene');
  assert.equal(watch.look(info(0)), undefined, 'the server has started anew');
  assert.equal(watch.look(info(1)), 'Ada');
});

test('who resets is not told so, whatever comes first', () => {
  const watch = new ResetWatch();
  watch.look(info(0, ''));
  watch.begin();
  assert.equal(watch.look(info(1, 'me')), undefined, 'the keyframe comes before the answer');
  watch.end(info(1, 'me'));
  assert.equal(watch.look(info(1, 'me')), undefined);
  watch.begin();
  watch.end(undefined);  // refused
  assert.equal(watch.look(info(2)), 'Ada');
});
