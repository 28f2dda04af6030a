import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { RunState } from '../generated/palpate/v1/control_pb';
import { PositionEncoding, WatchUpdateSchema } from '../generated/palpate/v1/stream_pb';
import { SceneStream } from '../src/session/scene_stream';
import { FakeClock } from './fake_clock';

/** A copy whose bodies have the hashes 1, 2, ... unless the test spoils one. */
function harness() {
  const log: string[] = [];
  const sent: { sceneId: string; positions: PositionEncoding }[] = [];
  const clock = new FakeClock();
  let isOpen = true;
  const copy = {
    organs: [] as { name: string; surface: { matches(hash: bigint): boolean } }[],
    problem: undefined as string | undefined,
    load(keyframe: { bodies: { name: string }[] }, _encoding: PositionEncoding, moveCamera: boolean) {
      log.push(`load${moveCamera ? ' and look' : ''}`);
      const surface = (index: number) => ({ matches: (hash: bigint) => hash === BigInt(index + 1) });
      this.organs = keyframe.bodies.map(({ name }, index) => ({ name, surface: surface(index) }));
      return this.problem;
    },
    applyDelta: () => copy.problem,
    update(frame: { step: bigint }) {
      log.push(`show ${frame.step}`);
      return this.problem;
    },
    clear: () => log.push('clear'),
  };
  const stream = new SceneStream(copy, {
    send: (request) => {
      if (!isOpen) return 0;
      assert.equal(request.case, 'watch');
      sent.push(request.value as { sceneId: string; positions: PositionEncoding });
      return sent.length;
    },
  }, {
    onKeyframe: () => log.push('keyframe'),
    onTopology: () => log.push('topology'),
    onFrame: ({ step }) => log.push(`frame ${step}`),
    onShown: () => log.push('shown'),
    onRunState: () => log.push('run state'),
    onStepBack: () => log.push('step back'),
    onProblem: (what, error) => log.push(`${what}: ${error.message}`),
  }, clock);
  const receive = (update: MessageInitShape<typeof WatchUpdateSchema>['update'], requestId = sent.length) =>
    stream.onWatch(requestId, create(WatchUpdateSchema, { update }));
  return {
    stream, copy, sent, clock,
    keyframe: (version: bigint, options: { sceneId?: string; hash?: bigint; step?: bigint; requestId?: number } = {}) => receive({
      case: 'keyframe',
      value: {
        scene: { sceneId: options.sceneId ?? 'liver', state: RunState.PAUSED }, bodies: [{ name: 'liver', meshHash: options.hash ?? 1n }],
        topologyVersion: version, frame: { step: options.step ?? 5n, topologyVersion: version },
      },
    }, options.requestId),
    frame: (step: bigint, topologyVersion: bigint, state = RunState.PAUSED) =>
      receive({ case: 'frame', value: { step, topologyVersion, state } }),
    delta: (fromVersion: bigint, hash = 1n) => receive({
      case: 'delta', value: { fromVersion, toVersion: fromVersion + 1n, bodies: [{ bodyIndex: 0, meshHash: hash }] },
    }),
    close: () => (isOpen = false),
    /** What has happened since the last call. */
    happened: () => log.splice(0),
  };
}

test('nothing of a stream counts before its keyframe, nor of another scene or an older request', () => {
  const { stream, keyframe, frame, delta, happened } = harness();
  stream.watch('kidney');
  stream.watch('liver');
  frame(1n, 0n);
  delta(0n);
  keyframe(0n, { sceneId: 'kidney' });
  keyframe(0n, { requestId: 1 });
  assert.deepEqual(happened(), []);
  assert.ok(stream.isBehind);
  keyframe(3n);
  assert.deepEqual(happened(), ['load and look', 'keyframe']);
  assert.ok(!stream.isBehind && stream.canDraw);
  assert.equal(stream.topologyVersion, 3n);
  assert.equal(stream.frame?.step, 5n);
});

test('the copy takes the newest frame of its own topology', () => {
  const { stream, keyframe, frame, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  happened();
  frame(6n, 3n);
  frame(7n, 3n);
  frame(8n, 4n);  // of a delta that has not come
  assert.deepEqual(happened(), ['frame 6', 'frame 7']);
  stream.takeFrame();
  stream.takeFrame();
  assert.deepEqual(happened(), ['show 7', 'shown']);
  assert.deepEqual(stream.received, { frames: 2, keyframes: 1, deltas: 0 });
});

test('after a change of topology there is no picture until its frame is in the copy', () => {
  const { stream, keyframe, frame, delta, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  frame(6n, 3n);
  happened();
  delta(3n);
  assert.deepEqual(happened(), ['topology']);
  stream.takeFrame();  // the waiting frame has the old vertices
  assert.deepEqual(happened(), []);
  assert.ok(!stream.canDraw && stream.isBehind);
  frame(6n, 4n);
  stream.takeFrame();
  assert.ok(stream.canDraw && !stream.isBehind);
  assert.equal(stream.topologyVersion, 4n);
});

test('a copy that cannot follow is asked for anew, with pauses, and the camera stays', () => {
  const { stream, sent, clock, keyframe, frame, delta, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  happened();
  delta(7n);
  assert.match(happened().join(), /^Topology: an edit leads from version 7, but here is 3; asking for a new keyframe$/);
  frame(6n, 3n);
  assert.deepEqual(happened(), [], 'what still comes means nothing');
  clock.advance(0);
  assert.equal(sent.length, 2);
  keyframe(8n);
  assert.deepEqual(happened(), ['load', 'keyframe']);
  delta(8n, 99n);
  assert.match(happened().join(), /the copy of 'liver' here is not the server's any more/);
  clock.advance(999);
  assert.equal(sent.length, 2, 'not twice within a second');
  clock.advance(1);
  assert.equal(sent.length, 3);
});

test('a frame that does not fit is a reason for a keyframe; another scene meanwhile is not', () => {
  const { stream, copy, sent, clock, keyframe, frame, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  frame(6n, 3n);
  copy.problem = 'a frame of 2 bodies, expected 1';
  stream.takeFrame();
  assert.match(happened().at(-1)!, /^Frame: a frame of 2 bodies/);
  assert.equal(stream.frame?.step, 5n);
  stream.watch('kidney');
  clock.advance(5000);
  assert.deepEqual(sent.map(({ sceneId }) => sceneId), ['liver', 'kidney']);
});

test('a keyframe is shown even where its hash is wrong, which is told', () => {
  const { stream, keyframe, happened } = harness();
  stream.watch('liver');
  keyframe(3n, { hash: 99n });
  assert.deepEqual(happened(), ['load and look', 'Keyframe: the surface of \'liver\' is not what its hash says', 'keyframe']);
});

test('going back in time is a keyframe: what waits is of another time, and the camera stays', () => {
  const { stream, keyframe, frame, delta, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  delta(3n);
  frame(90n, 4n);
  stream.watch('replay', true);
  frame(91n, 4n);
  keyframe(2n, { sceneId: 'replay' });
  assert.deepEqual(happened().slice(-2), ['load', 'keyframe']);
  frame(6n, 2n);
  keyframe(1n, { sceneId: 'replay', step: 2n });
  stream.takeFrame();
  assert.deepEqual(happened(), ['frame 6', 'load', 'keyframe'], 'the waiting frame is not shown any more');
  assert.deepEqual([stream.frame?.step, stream.topologyVersion, stream.canDraw], [2n, 1n, true]);
  delta(1n);
  frame(3n, 2n);
  stream.takeFrame();
  assert.deepEqual(happened(), ['topology', 'frame 3', 'show 3', 'shown']);
});

test('steps that begin anew are a reset, once', () => {
  const { stream, keyframe, frame, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  happened();
  frame(4n, 3n);
  frame(5n, 3n);
  assert.deepEqual(happened(), ['step back', 'frame 4', 'frame 5']);
});

test('the run state is the frame\'s, or what a command has answered', () => {
  const { stream, keyframe, frame, happened } = harness();
  stream.watch('liver');
  assert.equal(stream.runState, RunState.UNSPECIFIED);
  keyframe(3n);
  assert.equal(stream.runState, RunState.PAUSED);
  frame(6n, 3n, RunState.PLAYING);
  happened();
  stream.takeFrame();
  assert.deepEqual(happened(), ['show 6', 'shown', 'run state']);
  frame(7n, 3n, RunState.PLAYING);
  stream.noteRunState(RunState.PAUSED, 7n);
  stream.takeFrame();
  assert.equal(stream.runState, RunState.PAUSED);
});

test('a frame from before a pause that comes after its answer does not make the scene play again', () => {
  const { stream, keyframe, frame } = harness();
  const show = (step: bigint, state: RunState) => {
    frame(step, 3n, state);
    stream.takeFrame();
    return stream.runState;
  };
  stream.watch('liver');
  keyframe(3n);
  assert.equal(show(6n, RunState.PLAYING), RunState.PLAYING);
  stream.noteRunState(RunState.PAUSED, 8n);
  assert.equal(show(7n, RunState.PLAYING), RunState.PAUSED);
  assert.equal(show(8n, RunState.PLAYING), RunState.PAUSED);
  assert.equal(show(9n, RunState.PLAYING), RunState.PLAYING, 'somebody else plays it');
  stream.noteRunState(RunState.PAUSED, 9n);
  assert.equal(show(2n, RunState.PLAYING), RunState.PLAYING, 'it was reset, and plays');
  stream.noteRunState(RunState.PAUSED, 3n);
  stream.noteRunState(RunState.PLAYING, 3n);
  assert.equal(show(3n, RunState.PLAYING), RunState.PLAYING, 'it has been asked to');
});

test('low bandwidth asks for the watched scene anew; without a connection nothing is watched', () => {
  const { stream, sent, close } = harness();
  stream.setLowBandwidth(true);
  assert.equal(sent.length, 0);
  stream.watch('liver');
  stream.setLowBandwidth(false);
  assert.deepEqual(sent.map(({ positions }) => positions), [PositionEncoding.UINT16, PositionEncoding.FLOAT32]);
  close();
  stream.watch('liver');
  assert.equal(stream.sceneId, '');
});

test('a scene that is gone leaves nothing behind', () => {
  const { stream, keyframe, happened } = harness();
  stream.watch('liver');
  keyframe(3n);
  happened();
  stream.leave();
  assert.deepEqual(happened(), ['clear']);
  assert.deepEqual([stream.sceneId, stream.keyframe, stream.frame, stream.runState], ['', undefined, undefined, RunState.UNSPECIFIED]);
});
