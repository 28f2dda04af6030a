import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { AttachedSchema, type ToolPose } from '../generated/palpate/v1/haptics_pb';
import { FrameSchema, ToolShapeSchema } from '../generated/palpate/v1/stream_pb';
import type { ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { KeyMotion } from '../src/hand/key_motion';
import { ToolInHand } from '../src/hand/tool_in_hand';
import { Tools } from '../src/hand/tools';
import { ToolHand } from '../src/view/tool_hand';
import { hasJaws } from '../src/view/tool_model';

const settle = () => new Promise((resolve) => setImmediate(resolve));
const at = (x: number) => create(AttachedSchema, { pose: { positionM: { x, y: 0, z: 0 }, rotation: { w: 2, x: 0, y: 0, z: 0 } } });

function harness() {
  const calls: { what: string; resolve: (answer: ViewerUpdate['update']) => void; reject: (error: Error) => void }[] = [];
  const poses: ToolPose[] = [];
  const refused: string[] = [];
  let changes = 0;
  const connection = {
    canSendPose: true,
    call: (request: { case?: string; value?: unknown }) => new Promise<ViewerUpdate['update']>((resolve, reject) =>
      calls.push({ what: `${request.case} ${(request.value as { tool?: string }).tool ?? ''}`.trim(), resolve, reject })),
    send: (request: { value?: unknown }) => poses.push(request.value as ToolPose),
  };
  const stream = { sceneId: 'liver', isReplay: false, frame: create(FrameSchema, { tools: [{ operated: true }, {}, {}] }) };
  const shapes = [{ name: 'probe' }, { name: 'forceps', traits: { hasJaws: true } }, { name: 'hook', traits: { hasPower: true } }];
  const view = { tools: shapes.map((shape) => ({ shape: create(ToolShapeSchema, shape) })) };
  const inHand = new ToolInHand(connection, stream, 'Ada', {
    onChange: () => ++changes, onRefused: (what, error) => refused.push(`${what}: ${(error as Error).message}`),
  });
  return {
    inHand, tools: new Tools(view, stream, inHand), connection, stream, calls, poses, refused,
    changes: () => changes,
    attach: (x: number) =>
      calls.at(-1)!.resolve({ case: 'operate', value: { update: { case: 'attached', value: at(x) } } } as ViewerUpdate['update']),
  };
}

test('in a replay tools do what they did: none is to be had', async () => {
  const { tools, stream, calls } = harness();
  stream.isReplay = true;
  assert.deepEqual([tools.findFree(), tools.ownerOf(0), tools.ownerOf(1)], [-1, 'past', 'past']);
  assert.equal(await tools.take(1), false);
  assert.deepEqual(calls, []);
});

test('a tool is on its way until the server gives it, and then tells where it is', async () => {
  const { inHand, tools, attach, calls, poses } = harness();
  assert.equal(tools.findFree(), 1, 'the first is a station\'s');
  assert.equal(tools.ownerOf(0), 'station');
  const taken = tools.take(1);
  assert.deepEqual(calls.map(({ what }) => what), ['attach forceps']);
  assert.equal(tools.ownerOf(1), 'taking');
  inHand.sendPose(1000);
  assert.equal(poses.length, 0);
  attach(0.3);
  assert.equal(await taken, true);
  assert.equal(tools.ownerOf(1), 'you');
  inHand.sendPose(1000);
  inHand.hand!.move(new THREE.Vector3(0.1, 0, 0));
  inHand.sendPose(1020);
  assert.deepEqual(poses.map(({ sequence }) => sequence), [1n, 2n]);
  assert.equal(poses[0]!.pose?.positionM?.x, 0.3);
  assert.equal(poses[0]!.pose?.rotation?.w, 1);
  assert.ok(Math.abs(poses[1]!.pose!.positionM!.x - 0.4) < 1e-12);
  assert.equal(poses[1]!.stationTimeUs, 1020000n);
});

test('a refused tool is in nobody\'s hand', async () => {
  const { inHand, tools, calls, refused } = harness();
  const taken = tools.take(1);
  calls[0]!.reject(new Error('somebody else holds it'));
  assert.equal(await taken, false);
  assert.equal(inHand.index, undefined);
  assert.deepEqual(refused, ['Take forceps: somebody else holds it']);
});

test('there is one tool in the hand: the next one waits for the release of the first', async () => {
  const { inHand, tools, attach, calls } = harness();
  const first = tools.take(1);
  attach(0);
  await first;
  const second = tools.take(2);
  assert.equal(inHand.index, undefined);
  assert.deepEqual(calls.map(({ what }) => what), ['attach forceps', 'release']);
  calls[1]!.resolve({ case: undefined });
  await settle();
  attach(0);
  assert.equal(await second, true);
  assert.equal(inHand.name, 'hook');
});

test('a tool that was dropped on its way does not come into the hand', async () => {
  const { inHand, tools, attach } = harness();
  const taken = tools.take(1);
  inHand.drop();
  attach(0);
  assert.equal(await taken, false);
  assert.equal(inHand.hand, undefined);
});

test('jaws and pedal go with the pose, of instruments that have them', async () => {
  const { inHand, tools, attach, poses } = harness();
  const send = (now_ms: number) => {
    inHand.sendPose(now_ms);
    return poses.at(-1)!;
  };
  let taken = tools.take(1);
  attach(0);
  await taken;
  assert.ok(inHand.hasJaws && !inHand.hasPedal);
  const open_rad = send(1000).jawAngleRad;
  assert.ok(open_rad > 0);
  inHand.setJaws(true);
  inHand.setPedal(true);
  assert.deepEqual([send(1020).jawAngleRad, send(1020).pedal], [0, false]);
  inHand.setJaws(false);
  assert.equal(send(1040).jawAngleRad, open_rad);

  inHand.drop();
  taken = tools.take(2);
  attach(0);
  await taken;
  assert.ok(!inHand.hasJaws && inHand.hasPedal);
  inHand.setPedal(true);
  assert.equal(send(2000).pedal, true);
});

test('a link that does not keep up gets no poses; what cannot be taken is not asked for', async () => {
  const { inHand, tools, connection, stream, attach, calls, poses } = harness();
  const taken = tools.take(1);
  attach(0);
  await taken;
  connection.canSendPose = false;
  inHand.sendPose(1000);
  assert.equal(poses.length, 0);
  inHand.drop();
  assert.equal(await tools.take(tools.find('saw')), false);
  stream.sceneId = '';
  assert.equal(await tools.take(1), false);
  assert.equal(calls.length, 1);
  assert.equal(tools.findFree(hasJaws), 1);
});

test('keys move along and across the view, slowly with shift, and turn', () => {
  const motion = new KeyMotion();
  const hand = new ToolHand({ position: new THREE.Vector3(), rotation: new THREE.Quaternion() });
  const camera = new THREE.PerspectiveCamera();
  camera.up.set(0, 0, 1);
  camera.lookAt(new THREE.Vector3(0, 1, 0));
  camera.updateMatrixWorld();
  const moved = () => {
    const before = hand.pose.position.clone();
    motion.move(hand, camera, 0.2, 0.5);
    return hand.pose.position.clone().sub(before).toArray().map((x) => Number(x.toFixed(9)) + 0);
  };
  assert.deepEqual(moved(), [0, 0, 0]);
  motion.set('w', true);
  assert.deepEqual(moved(), [0, 0.055, 0]);
  motion.set('shift', true);
  assert.deepEqual(moved(), [0, 0.01375, 0]);
  motion.set('s', true);
  assert.deepEqual(moved(), [0, 0, 0], 'both ways at once');
  motion.clear();
  motion.set('arrowright', true);
  motion.set('arrowup', true);
  assert.deepEqual(moved(), [0.055, 0, 0.055]);
  motion.clear();
  motion.set('e', true);
  moved();
  assert.ok(Math.abs(2 * Math.acos(hand.pose.rotation.w) - 0.6) < 1e-9);
});
