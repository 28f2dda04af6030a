import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { JointInfoSchema, JointStateSchema } from '../generated/palpate/v1/stream_pb';
import { coilPoints, JointLayer, jointShape } from '../src/view/joint_layer';

const vector = (x: number, y: number, z: number) => ({ x, y, z });

const load = (...kinds: string[]) => {
  const layer = new JointLayer();
  layer.load(kinds.map((kind) => create(JointInfoSchema, { name: kind, kind })));
  return layer;
};

/** Where a point of unit length along z is drawn. */
const endOf = (layer: JointLayer, at: number) => {
  const object = layer.group.children[at]!;
  object.updateMatrixWorld();
  return new THREE.Vector3(0, 0, 1).applyMatrix4(object.matrixWorld).toArray().map((x) => Math.round(1e6 * x) / 1e6);
};

test('ropes and springs reach from one point to the other, pins lie along the axis', () => {
  const layer = load('distance', 'spring', 'hinge', 'ball');
  assert.equal(layer.group.children.length, 3);
  const state = create(JointStateSchema, { pointM: vector(1, 2, 3), pointAM: vector(1, 2, 5), axis: vector(1, 0, 0) });
  assert.equal(layer.update([state, state, state, state], 0.5), undefined);
  assert.equal(layer.shown, 3);
  assert.deepEqual(endOf(layer, 0), [1, 2, 3]);
  assert.deepEqual(endOf(layer, 1), [1, 2, 3]);
  assert.deepEqual(layer.group.children[0]!.position.toArray(), [1, 2, 5]);
  assert.deepEqual(endOf(layer, 2), [1.04, 2, 3]);
});

test('what is broken or has no length is not drawn', () => {
  const layer = load('distance', 'spring');
  const at = { pointM: vector(0, 0, 0), pointAM: vector(0, 0, 1), axis: vector(0, 0, 1) };
  layer.update([create(JointStateSchema, { ...at, isBroken: true }), create(JointStateSchema, { ...at, pointAM: at.pointM })], 1);
  assert.equal(layer.shown, 0);
  layer.update([create(JointStateSchema, at), create(JointStateSchema, at)], 1);
  assert.equal(layer.shown, 2);
  layer.clear();
  assert.equal(layer.group.children.length, 0);
});

test('a frame of another number of joints is told', () => {
  assert.match(load('distance').update([], 1)!, /0 joints, expected 1/);
});

test('every kind has a shape, and a coil goes from end to end', () => {
  assert.deepEqual(['distance', 'spring', 'hinge', 'slider', 'line', 'ball', 'fixed', 'plane'].map(jointShape), ['rope', 'coil', 'pin', 'pin', 'pin', 'none', 'none', 'none']);
  const points = coilPoints(3, 8);
  assert.deepEqual([...points.slice(0, 3)], [0, 0, 0]);
  assert.deepEqual([...points.slice(-3)], [0, 0, 1]);
});
