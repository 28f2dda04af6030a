import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { MarkerInfoSchema, MarkerStateSchema } from '../generated/palpate/v1/stream_pb';
import { MARKER_COLOR, MarkerLayer, MAX_NAMES, namedMarkers, RELEASED_COLOR, spreadNames } from '../src/view/marker_layer';

test('markers are drawn where the frame has them, released ones in grey', () => {
  const layer = new MarkerLayer();
  layer.load(['seed', 'margin'].map((name) => create(MarkerInfoSchema, { name, body: 'liver' })));
  assert.equal(layer.count, 2);
  const states = [
    create(MarkerStateSchema, { positionM: { x: 1, y: 2, z: 3 } }),
    create(MarkerStateSchema, { positionM: { x: 4, y: 5, z: 6 }, isReleased: true }),
  ];
  assert.equal(layer.update(states, 0.5), undefined);
  assert.deepEqual(layer.states, [{ name: 'seed', at: [1, 2, 3] }, { name: 'margin', at: [4, 5, 6] }]);
  const balls = layer.group.children[0] as THREE.InstancedMesh;
  assert.equal(balls.count, 2);
  const matrix = new THREE.Matrix4();
  balls.getMatrixAt(1, matrix);
  assert.deepEqual(new THREE.Vector3().setFromMatrixPosition(matrix).toArray(), [4, 5, 6]);
  const color = new THREE.Color();
  balls.getColorAt(0, color);
  assert.equal(color.getHex(), MARKER_COLOR);
  balls.getColorAt(1, color);
  assert.equal(color.getHex(), RELEASED_COLOR);
  assert.match(layer.update(states.slice(1), 0.5)!, /1 markers, expected 2/);
  layer.setShown(false);
  assert.equal(layer.group.visible, false);
  layer.clear();
  assert.equal(layer.group.children.length, 0);
  assert.equal(layer.update([], 1), undefined);
});

test('few markers are all named, of many the one under the pointer', () => {
  const few = Array.from({ length: MAX_NAMES }, (_, i): [number, number] => [100 * i, 0]);
  assert.equal(namedMarkers(few, undefined).length, MAX_NAMES);
  const many = [...few, [50, 50] as [number, number]];
  assert.deepEqual(namedMarkers(many, undefined), []);
  assert.deepEqual(namedMarkers(many, [203, 4]), [2]);
  assert.deepEqual(namedMarkers(many, [56, 50]), [MAX_NAMES]);
  assert.deepEqual(namedMarkers(many, [150, 0]), []);
});

test('names make room for each other, and stay where they have it', () => {
  const names = ['left lobe', 'left margin', 'line', 'right margin', 'far away'];
  const at: [number, number][] = [[100, 100], [120, 104], [140, 106], [160, 107], [600, 102]];
  const shifts = spreadNames(at, names);
  assert.equal(shifts[0], 0);
  assert.equal(shifts[4], 0);
  const y = at.map((place, k) => place[1] + shifts[k]!);
  for (let a = 0; a < 4; ++a) for (let b = 0; b < a; ++b) assert.ok(Math.abs(y[a]! - y[b]!) >= 15, `${names[a]} lies over ${names[b]}`);
  assert.ok(Math.max(...shifts.map(Math.abs)) <= 40);
  // Exactly on one place, as often as there are names at most.
  const same = spreadNames(Array.from({ length: 12 }, () => [5, 5] as [number, number]), Array.from({ length: 12 }, () => 'marker'));
  assert.equal(new Set(same).size, 12);
});
