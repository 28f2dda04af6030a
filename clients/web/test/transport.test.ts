import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { RateMode, RunState, SceneInfoSchema } from '../generated/palpate/v1/control_pb';
import type { ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { Transport } from '../src/session/transport';
import { speedIndex, SPEEDS } from '../src/ui/speed_choice';

const info = (resets: bigint, resetBy = '', sceneId = 'liver') => create(SceneInfoSchema, { sceneId, resets, resetBy });

function harness(sceneId = 'liver', runState = RunState.PAUSED) {
  const log: string[] = [];
  let answer = info(0n);
  let refusal: Error | undefined;
  let meanwhile = () => {};
  const stream = { sceneId, runState };
  const transport = new Transport({
    call: async (request): Promise<ViewerUpdate['update']> => {
      log.push(`call ${request.case}`);
      meanwhile();
      if (refusal) throw refusal;
      return { case: 'scene', value: answer };
    },
  }, stream, 'Ada', {
    onReset: () => log.push('reset'),
    onScene: (scene) => log.push(`scene ${scene.sceneId}`),
    onForeignReset: (who) => log.push(`by ${who}`),
    onRefused: (what, error) => log.push(`${what}: ${(error as Error).message}`),
  });
  return {
    transport, stream, answer: (next: typeof answer) => (answer = next), refuse: (error: Error) => (refusal = error),
    meanwhile: (run: () => void) => (meanwhile = run), happened: () => log.splice(0),
  };
}

test('play and pause are one button', async () => {
  const { transport, stream, happened } = harness();
  await transport.togglePlay();
  stream.runState = RunState.PLAYING;
  await transport.togglePlay();
  assert.deepEqual(happened(), ['call play', 'scene liver', 'call pause', 'scene liver']);
});

test('without a scene there is nothing to command', async () => {
  const { transport, happened } = harness('');
  await transport.togglePlay();
  await transport.step();
  await transport.reset();
  await transport.setSpeed(SPEEDS[0]!.rate);
  assert.deepEqual(happened(), []);
});

test('an answer about a scene that is not watched any more means nothing', async () => {
  const { transport, answer, happened } = harness();
  answer(info(0n, '', 'kidney'));
  await transport.step();
  assert.deepEqual(happened(), ['call step']);
});

test('refusals are told by the name of the command', async () => {
  const { transport, refuse, happened } = harness();
  refuse(new Error('pause it'));
  await transport.step(3);
  assert.deepEqual(happened(), ['call step', 'Step: pause it']);
});

test('the user\'s own reset is no news, somebody else\'s is, of the watched scene', async () => {
  const { transport, answer, meanwhile, happened } = harness();
  transport.noteResets(info(0n));
  transport.noteResets(info(0n, '', 'kidney'));
  answer(info(1n, 'Ada'));
  meanwhile(() => transport.noteResets(info(1n, 'Ada')));  // a keyframe comes before the answer
  await transport.reset();
  transport.noteResets(info(1n, 'Ada'));
  assert.deepEqual(happened(), ['reset', 'call reset', 'scene liver']);
  transport.noteResets(info(2n, 'Grace'));
  transport.noteResets(info(1n, 'Grace', 'kidney'));
  assert.deepEqual(happened(), ['by Grace']);
});

test('each speed finds itself in the list; others are none of it', () => {
  for (const [index, { rate }] of SPEEDS.entries()) assert.equal(speedIndex(rate), index);
  assert.equal(SPEEDS[speedIndex({ mode: RateMode.REAL_TIME })]!.label, '1×');
  assert.equal(speedIndex({ mode: RateMode.REAL_TIME, speed: 0.3 }), -1);
});
