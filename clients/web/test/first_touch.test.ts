import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FirstTouch } from '../src/ui/first_touch';

/** Time that passes on request. */
class HandClock {
  private run: (() => void) | undefined;
  setTimeout(run: () => void): unknown {
    this.run = run;
    return run;
  }
  clearTimeout(handle: unknown): void {
    if (handle === this.run) this.run = undefined;
  }
  pass(): void {
    this.run?.();
    this.run = undefined;
  }
}

function onTissue() {
  const clock = new HandClock();
  const touch = new FirstTouch(clock);
  const begun: number[] = [];
  touch.down(7, 100, 100, () => begun.push(7));
  return { clock, touch, begun };
}

test('a second finger makes two for the camera: nothing is cut, not later either', () => {
  const { clock, touch, begun } = onTissue();
  touch.move(7, 103, 102);
  touch.forget();
  clock.pass();
  touch.move(7, 300, 100);
  touch.up(7);
  assert.deepEqual(begun, []);
});

test('a finger that moves, stays or is lifted means it, once', () => {
  for (const means of ['move', 'stay', 'lift'] as const) {
    const { clock, touch, begun } = onTissue();
    assert.ok(touch.isWaiting);
    if (means === 'move') touch.move(7, 100, 109);
    if (means === 'stay') clock.pass();
    if (means === 'lift') touch.up(7);
    assert.deepEqual(begun, [7], means);
    assert.ok(!touch.isWaiting);
    clock.pass();
    touch.move(7, 200, 200);
    touch.up(7);
    assert.deepEqual(begun, [7], means);
  }
});

test('another finger does not speak for the first', () => {
  const { touch, begun } = onTissue();
  touch.move(8, 300, 300);
  touch.up(8);
  assert.deepEqual(begun, []);
  assert.ok(touch.isWaiting);
});
