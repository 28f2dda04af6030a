import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { RunState, SceneInfoSchema, type SceneInfo } from '../generated/palpate/v1/control_pb';
import { ReplaySceneResponseSchema, TimelineSchema } from '../generated/palpate/v1/record_pb';
import { FrameSchema } from '../generated/palpate/v1/stream_pb';
import type { ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { Past } from '../src/past/past';

const settle = () => new Promise((resolve) => setImmediate(resolve));
const live = (more = {}) => create(SceneInfoSchema, { sceneId: 'liver', hasPast: true, ...more });
const replay = (more = {}) => create(SceneInfoSchema, { sceneId: 'liver-replay', hasPast: true, isReplay: true, ...more });
const timelineOf = (more = {}) => create(TimelineSchema, { end: 200n, position: 200n, dtS: 0.05, ...more });
const ofReplay = (more = {}) => timelineOf({ isReplay: true, position: 0n, source: 'liver', ...more });
const scene = (value: SceneInfo): ViewerUpdate['update'] => ({ case: 'scene', value });
const replayOf = (info: SceneInfo, timeline = ofReplay()): ViewerUpdate['update'] =>
  ({ case: 'replay', value: create(ReplaySceneResponseSchema, { scene: info, timeline }) });
const timeline = (value = timelineOf()): ViewerUpdate['update'] => ({ case: 'timeline', value });

/** A page that watches the scene 'liver', which is at step 200. */
function harness() {
  const log: string[] = [];
  const calls: { request: { case?: string; value?: unknown }; resolve: (answer: ViewerUpdate['update']) => void; reject: (error: Error) => void }[] = [];
  const stream = { sceneId: 'liver', runState: RunState.PLAYING, frame: create(FrameSchema, { step: 200n }) };
  const session = {
    scenes: [live()],
    watch: (sceneId: string) => {
      log.push(`watch ${sceneId}`);
      if (sceneId !== stream.sceneId) past.forget();
      stream.sceneId = sceneId;
    },
    open: (info: SceneInfo) => {
      session.scenes = [...session.scenes, info];
      session.watch(info.sceneId);
    },
    refresh: async () => void log.push('refresh'),
  };
  const past = new Past({ call: (request) => new Promise((resolve, reject) => calls.push({ request, resolve, reject })) }, stream, session, {
    onLeave: () => log.push('leave'),
    onScene: ({ sceneId }) => log.push(`scene ${sceneId}`),
    onRefused: (what, error) => log.push(`${what}: ${(error as Error).message}`),
  });
  return {
    past, stream, session, calls,
    /** Cases and scenes of the requests so far. */
    asked: () => calls.map(({ request }) => `${request.case} ${(request.value as { sceneId: string }).sceneId}`),
    value: (index: number) => calls.at(index)!.request.value as Record<string, unknown>,
    answer: async (answer: ViewerUpdate['update']) => {
      calls.at(-1)!.resolve(answer);
      await settle();
    },
    show: (step: bigint) => (stream.frame = create(FrameSchema, { step })),
    happened: () => log.splice(0),
  };
}

async function inReplay() {
  const page = harness();
  page.past.note(live());
  await page.answer(timeline());
  page.past.scrub(50);
  await page.answer(replayOf(replay()));
  await page.answer(scene(replay({ step: 50n })));
  page.show(50n);
  page.stream.runState = RunState.PAUSED;
  page.happened();
  page.calls.length = 0;
  return page;
}

test('a scene without a past has no time line, and nothing is asked', async () => {
  const { past, asked } = harness();
  past.note(live({ hasPast: false }));
  past.scrub(10);
  await past.refresh();
  assert.equal(past.axis, undefined);
  assert.deepEqual(asked(), []);
});

test('the line of a scene that lives grows with its frames, over resets too', async () => {
  const { past, answer, show } = harness();
  past.note(live());
  await answer(timeline());
  assert.deepEqual([past.axis!.end, past.position], [200, 200]);
  show(230n);
  assert.deepEqual([past.axis!.end, past.position], [230, 230]);
  show(3n);
  assert.equal(past.axis!.end, 200, 'a reset that the server has not told of');
  void past.refresh();
  await answer(timeline(timelineOf({ end: 232n, position: 232n, events: [{ kind: 'reset', position: 230n }] })));
  show(7n);
  assert.deepEqual([past.axis!.end, past.axis!.stepAt(past.position)], [237, 7]);
});

test('going back opens a replay beside the scene, and watches it at that place', async () => {
  const { past, answer, asked, happened, value, show } = harness();
  past.note(live());
  await answer(timeline());
  past.scrub(50);
  assert.deepEqual([past.position, past.isReplay], [50, false]);
  assert.equal(value(-1).temporary, true, 'a page that is closed leaves nothing behind');
  await answer(replayOf(replay()));
  assert.deepEqual(happened(), ['leave', 'watch liver-replay']);
  assert.ok(past.isReplay && past.isGoing);
  assert.deepEqual(asked(), ['timeline liver', 'replay liver', 'seek liver-replay']);
  assert.deepEqual(value(-1).target, { case: 'position', value: 50n });
  await answer(scene(replay({ step: 50n })));
  assert.ok(!past.isGoing);
  assert.equal(past.position, 50, 'the stream still shows another one');
  show(51n);
  assert.equal(past.position, 51);
});

test('one place is on its way at a time, and the newest wish follows', async () => {
  const { past, answer, asked, value, show } = await inReplay();
  past.scrub(60);
  for (const place of [70, 80, 90]) past.scrub(place);
  assert.deepEqual(asked(), ['seek liver-replay']);
  assert.equal(past.position, 90);
  await answer(scene(replay({ step: 60n })));
  assert.equal(asked().length, 2);
  assert.deepEqual(value(-1).target, { case: 'position', value: 90n });
  await answer(scene(replay({ step: 90n })));
  show(90n);
  assert.deepEqual([past.position, past.isGoing, asked().length], [90, false, 2]);
});

test('places before and after a recorded reset are told apart by the answer', async () => {
  const { past, answer, show } = await inReplay();
  void past.refresh();
  await answer(timeline(ofReplay({ position: 50n, events: [{ kind: 'reset', position: 100n }] })));
  past.scrub(130);
  await answer(scene(replay({ step: 30n })));
  show(30n);
  assert.equal(past.position, 130);
  show(34n);
  assert.equal(past.position, 134, 'it plays on');
  past.scrub(20);
  await answer(scene(replay({ step: 20n })));
  show(20n);
  assert.equal(past.position, 20);
});

test('a replay that plays is paused once before it is taken elsewhere', async () => {
  const { past, stream, answer, asked } = await inReplay();
  stream.runState = RunState.PLAYING;
  past.scrub(60);
  await answer(scene(replay({ state: RunState.PAUSED })));
  assert.deepEqual(asked(), ['pause liver-replay', 'seek liver-replay']);
  past.scrub(70);
  await answer(scene(replay({ step: 60n })));
  assert.deepEqual(asked().slice(2), ['seek liver-replay']);
});

test('a refusal ends the way, and the next wish is tried again', async () => {
  const { past, calls, asked, happened } = await inReplay();
  past.scrub(60);
  past.scrub(70);
  calls.at(-1)!.reject(new Error('no such place'));
  await settle();
  assert.deepEqual(happened(), ['Time line: no such place']);
  assert.deepEqual([past.isGoing, past.position], [false, 50]);
  past.scrub(80);
  assert.equal(asked().length, 2);
});

test('another scene that is chosen meanwhile is not left again', async () => {
  const { past, session, answer, happened, asked } = harness();
  past.note(live());
  await answer(timeline());
  past.scrub(50);
  session.watch('kidney');
  happened();
  await answer(replayOf(replay()));
  assert.deepEqual(happened(), []);
  assert.deepEqual(asked(), ['timeline liver', 'replay liver']);
  assert.equal(past.axis, undefined);
});

test('back to the scene that lives; its replay goes, and the next one is of all that has been since', async () => {
  const { past, answer, asked, calls, happened } = await inReplay();
  assert.equal(past.source, 'liver');
  void past.backToLive();
  await settle();
  assert.deepEqual(happened(), ['watch liver']);
  assert.deepEqual(asked(), ['delete liver-replay']);
  await answer({ case: 'deleted', value: { $typeName: 'palpate.v1.DeleteSceneResponse' } });
  assert.deepEqual(happened(), ['refresh']);
  calls.length = 0;
  past.note(live());
  await answer(timeline());
  past.scrub(10);
  assert.deepEqual(asked(), ['timeline liver', 'replay liver']);
});

test('a replay that is there is used again as far as it goes', async () => {
  const { past, session, stream, answer, asked, calls, happened, show } = await inReplay();
  session.watch('liver');
  show(260n);
  past.note(live());
  await answer(timeline(timelineOf({ end: 260n, position: 260n })));
  calls.length = 0;
  past.scrub(150);
  await settle();
  assert.equal(stream.sceneId, 'liver-replay');
  assert.deepEqual(asked(), ['timeline liver-replay', 'seek liver-replay']);
  calls[0]!.resolve(timeline(ofReplay()));
  await answer(scene(replay({ step: 150n })));
  await answer(timeline());
  session.watch('liver');
  past.note(live());
  await answer(timeline(timelineOf({ end: 260n, position: 260n })));
  calls.length = 0;
  happened();
  past.scrub(250);
  assert.deepEqual(asked(), ['delete liver-replay'], 'this one ends before');
  await answer({ case: 'deleted', value: { $typeName: 'palpate.v1.DeleteSceneResponse' } });
  assert.deepEqual(asked(), ['delete liver-replay', 'replay liver']);
});

test('the newest place of a scene that lives is no past', async () => {
  const { past, answer, asked } = harness();
  past.note(live());
  await answer(timeline());
  past.scrub(200);
  past.scrub(1000);
  assert.deepEqual(asked(), ['timeline liver']);
});

test('a branch is made once the replay has arrived, and is watched', async () => {
  const { past, answer, asked, happened, value } = await inReplay();
  past.scrub(60);
  void past.branch();
  await settle();
  assert.deepEqual(asked(), ['seek liver-replay']);
  await answer(scene(replay({ step: 60n })));
  assert.deepEqual(asked(), ['seek liver-replay', 'branch liver-replay']);
  assert.equal(value(-1).play, false);
  happened();
  await answer(scene(live({ sceneId: 'liver-branch' })));
  assert.deepEqual(happened(), ['watch liver-branch']);
});

test('a bookmark in a replay is one of the scene, which stays; the replay shows what the scene has', async () => {
  const { past, answer, asked, value, calls } = await inReplay();
  const before = { kind: 'bookmark', position: 50n, step: 50n, label: 'before' };
  const later = { kind: 'bookmark', position: 300n, step: 300n, label: 'of what the replay does not reach' };
  void past.bookmark('before', 50);
  await answer(timeline(timelineOf({ end: 300n, position: 300n, events: [before, later] })));
  assert.deepEqual(asked(), ['bookmark liver']);
  assert.equal(value(0).position, 50n);
  assert.equal(past.axis!.bookmarkAt(50), 'before');
  assert.deepEqual(past.axis!.ticks(600, 6).length, 1);
  calls.length = 0;
  void past.refresh();
  await answer(timeline(ofReplay({ position: 50n, events: [{ kind: 'edit', position: 70n, step: 70n }] })));
  assert.equal(past.axis!.bookmarkAt(50), 'before', 'none is lost meanwhile');
  await answer(timeline(timelineOf({ events: [{ ...before, label: 'renamed' }] })));
  assert.deepEqual(asked(), ['timeline liver-replay', 'timeline liver']);
  assert.equal(past.axis!.bookmarkAt(50), 'renamed');
  assert.deepEqual(past.timeline!.events.map(({ kind }) => kind), ['bookmark', 'edit']);
  void past.removeBookmark('renamed');
  await answer(timeline());
  assert.deepEqual([value(-1).name, value(-1).remove], ['renamed', true]);
  assert.equal(past.axis!.bookmarkAt(50), undefined);
});

test('a bookmark of a scene that lives is of that alone', async () => {
  const { past, answer, asked, value } = harness();
  past.note(live());
  await answer(timeline());
  void past.bookmark('here', 200);
  await answer(timeline(timelineOf({ end: 230n, position: 230n })));
  assert.deepEqual(asked(), ['timeline liver', 'bookmark liver']);
  assert.deepEqual([value(-1).name, value(-1).position], ['here', 200n]);
  assert.equal(past.axis!.end, 230);
});

test('a time line that does not come is told once', async () => {
  const { past, calls, happened } = harness();
  past.note(live());
  for (let i = 0; i < 3; ++i) {
    calls.at(-1)!.reject(new Error('the disk is gone'));
    await settle();
    void past.refresh();
  }
  assert.deepEqual(happened(), ['Time line: the disk is gone']);
});

test('a recording whose scene is not here has nothing to go back to', async () => {
  const { past, session, stream, answer } = harness();
  session.scenes = [replay({ sceneId: 'morning' })];
  stream.sceneId = 'morning';
  past.note(replay({ sceneId: 'morning', durability: 'the disk is full' }));
  await answer(timeline(ofReplay({ source: 'morning.recording' })));
  assert.equal(past.source, undefined);
  assert.equal(past.canBookmark, false);
  assert.equal(past.durability, 'the disk is full');
});
