import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ByteRate } from '../src/net/byte_rate';
import { hintFor, type HintState } from '../src/ui/hint';
import { AutoQuality } from '../src/view/auto_quality';

test('hints tell what the hand can do next', () => {
  const idle: HintState = { hasFailed: false, isReplay: false, mode: 'hand', byFinger: false, held: undefined, canTake: false };
  assert.equal(hintFor(idle), '');
  assert.match(hintFor({ ...idle, canTake: true }), /Click an instrument/);
  assert.match(hintFor({ ...idle, canTake: true, byFinger: true }), /Tap an instrument/);
  const held = { hasJaws: true, hasPedal: false };
  assert.match(hintFor({ ...idle, held }), /G<\/b> closes the jaws.*T<\/b> releases/);
  assert.doesNotMatch(hintFor({ ...idle, held }), /pedal/);
  assert.match(hintFor({ ...idle, held, mode: 'incise' }), /line of the incision/, 'the mode comes before the tool');
  assert.match(hintFor({ ...idle, held, mode: 'carve', hasFailed: true }), /Reset/, 'and a failure before all');
  assert.match(hintFor({ ...idle, isReplay: true, canTake: true }), /time line.*cannot be changed: <b>Branch/);
});

test('a slow machine gets a plainer picture, step by step, and pauses are not slowness', () => {
  const quality = new AutoQuality();
  const after = (count: number, elapsed_ms: number, from: 'high' | 'medium' | 'low') => {
    for (let i = 0; i < count; ++i) {
      const next = quality.next(elapsed_ms, from);
      if (next !== from) return `${next} after ${i + 1}`;
    }
    return from;
  };
  assert.equal(after(100, 16, 'high'), 'high');
  assert.equal(after(100, 5000, 'high'), 'high');
  assert.equal(after(100, 60, 'high'), 'medium after 20');
  assert.equal(after(19, 60, 'medium'), 'medium');
  assert.equal(after(10, 16, 'medium'), 'medium');
  assert.equal(after(19, 60, 'medium'), 'medium', 'quick pictures have made up for it');
  assert.equal(after(1, 60, 'medium'), 'low after 1');
  assert.equal(after(100, 60, 'low'), 'low');
});

test('bytes are counted over the last second or so', () => {
  const rate = new ByteRate();
  assert.equal(rate.perSecond(0, 1000), 0);
  assert.equal(rate.perSecond(20, 1500), 0, 'too short to tell');
  assert.equal(rate.perSecond(1000, 6000), 5000);
  for (let t_ms = 1100; t_ms <= 5000; t_ms += 100) rate.perSecond(t_ms, 6000);
  assert.equal(rate.perSecond(5100, 6000), 0, 'what was long ago does not count');
});
