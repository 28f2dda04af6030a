import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { TimelineSchema } from '../generated/palpate/v1/record_pb';
import { TimeAxis } from '../src/past/time_axis';
import { clockWords, divergenceWords, formatSeconds, nameProblem, placeWords, tickWords } from '../src/past/words';

const axisOf = (timeline: MessageInitShape<typeof TimelineSchema>, end?: number) => new TimeAxis(create(TimelineSchema, { dtS: 0.05, ...timeline }), end);
const event = (kind: string, position: bigint, step: bigint, label = '') => ({ kind, position, step, label });

test('places count on over resets, steps and time begin anew with each', () => {
  const axis = axisOf({ begin: 0n, end: 100n, events: [event('edit', 10n, 10n), event('reset', 40n, 0n), event('edit', 50n, 10n), event('reset', 60n, 20n)] });
  assert.deepEqual([0, 39, 40, 50, 60, 100].map((place) => axis.stepAt(place)), [0, 39, 0, 10, 0, 40]);
  assert.equal(axis.timeAt(55), 15 * 0.05);
  assert.equal(axis.offsetAt(45), 40);
  assert.equal(placeWords(axis, 39), '1.95 s · step 39');
});

test('where only the newest past is kept its events tell the step', () => {
  const kept = axisOf({ begin: 5000n, end: 9000n, events: [event('state', 6000n, 1500n), event('reset', 8000n, 0n)] });
  assert.deepEqual([5000, 6000, 8000, 9000].map((place) => kept.stepAt(place)), [500, 1500, 0, 1000]);
  // The reset that began it is out of the list.
  const cut = axisOf({ begin: 0n, end: 9000n, events: [event('edit', 6000n, 10n)] });
  assert.deepEqual([6000, 6050].map((place) => cut.stepAt(place)), [10, 60]);
});

test('shares of the line and places are each other\'s inverse, within the line', () => {
  const axis = axisOf({ begin: 200n, end: 400n });
  for (const place of [200, 201, 333, 400]) assert.equal(axis.positionAt(axis.shareOf(place)), place);
  assert.deepEqual([axis.positionAt(-1), axis.positionAt(2), axis.clamp(33), axis.clamp(300.4)], [200, 400, 200, 300]);
  assert.equal(axis.shareOf(1000), 1);
  assert.equal(axisOf({ begin: 7n, end: 7n }).shareOf(7), 1, 'a line of one place shows it at its end');
  assert.equal(axisOf({ begin: 0n, end: 10n }, 20).shareOf(10), 0.5, 'the scene has gone on');
});

test('events that lie close share a tick, which leads to what matters most of them', () => {
  const axis = axisOf({
    begin: 0n, end: 1000n,
    events: [event('state', 100n, 100n), event('edit', 101n, 101n, 'carve'), event('bookmark', 102n, 102n, 'here'), event('edit', 103n, 103n, 'carve'),
      event('edit', 900n, 900n), event('comet', 950n, 950n)],
  });
  const ticks = axis.ticks(600, 6);
  assert.deepEqual(ticks.map(({ kind, position }) => [kind, position]), [['bookmark', 102], ['edit', 900]]);
  assert.deepEqual(tickWords(ticks[0]!), ['Bookmark: here', 'Saved state', 'Edit: carve (2 times)']);
  assert.equal(axis.ticks(60000, 6).length, 5, 'there is room for each');
  assert.equal(axis.bookmarkAt(102), 'here');
  assert.equal(axis.bookmarkAt(101), undefined);
});

test('many things at once are told in a few lines', () => {
  const events = Array.from({ length: 9 }, (_, i) => event('edit', 5n, 5n, `kind ${i}`));
  const [tick] = axisOf({ begin: 0n, end: 10n, events }).ticks(100, 6);
  assert.deepEqual(tickWords(tick!), ['Edit: kind 0', 'Edit: kind 1', 'Edit: kind 2', 'and 6 more']);
});

test('from event to event, and to the ends', () => {
  const axis = axisOf({ begin: 0n, end: 100n, events: [event('edit', 10n, 10n), event('state', 20n, 20n), event('bookmark', 30n, 30n)] });
  assert.deepEqual([axis.eventBeside(10, 1), axis.eventBeside(30, 1), axis.eventBeside(30, -1), axis.eventBeside(10, -1)], [30, 100, 10, 0]);
});

test('places and differences in words', () => {
  assert.equal(formatSeconds(59.987), '59.99 s');
  assert.equal(formatSeconds(61.5), '1 min 01.50 s');
  const axis = axisOf({ begin: 0n, end: 5000n });
  assert.equal(placeWords(axis, 2000), '1 min 40.00 s · step 2,000');
  assert.equal(divergenceWords(axis, 0, undefined), '');
  assert.equal(divergenceWords(axis, 1, 20), '1 step differs from the recording, first at 1.00 s · step 20');
  assert.equal(divergenceWords(axis, 1200, undefined), '1,200 steps differ from the recording');
  assert.equal(clockWords(0n), '');
  assert.match(clockWords(1_700_000_000_000_000n), /\d/);
});

test('what the server would not take as the name of a bookmark', () => {
  assert.equal(nameProblem('before the cut'), undefined);
  assert.match(nameProblem('  ') ?? '', /needs a name/);
  assert.match(nameProblem('ä'.repeat(33)) ?? '', /64 bytes, this one has 66/);
  assert.match(nameProblem('a\u0007b') ?? '', /control/);
});
