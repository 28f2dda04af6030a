import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { ClipStateSchema, type ClipState } from '../generated/palpate/v1/stream_pb';
import { FastenerLayer, MAX_CLIP_M } from '../src/view/fastener_layer';

const vector = (x: number, y: number, z: number) => ({ x, y, z });
const HALF = Math.SQRT1_2;

const clip = (lengthM: number, position = vector(0, 0, 0), rotation = { w: 1, x: 0, y: 0, z: 0 }): ClipState =>
  create(ClipStateSchema, { pose: { positionM: position, rotation }, lengthM });

const meshOf = (layer: FastenerLayer, name: string) => layer.group.getObjectByName(name) as THREE.InstancedMesh;

/** Where a point of an instance's shape is drawn. */
const placed = (layer: FastenerLayer, name: string, index: number, point: [number, number, number]) => {
  const matrix = new THREE.Matrix4();
  meshOf(layer, name).getMatrixAt(index, matrix);
  return new THREE.Vector3(...point).applyMatrix4(matrix).toArray();
};

const assertNear = (actual: number[], expected: number[]) => {
  for (const [axis, x] of expected.entries()) assert.ok(Math.abs(actual[axis]! - x) < 1e-6, `${actual} is not ${expected}`);
};

const counts = (layer: FastenerLayer) => ['clips', 'threads', 'ends', 'knots'].map((name) => meshOf(layer, name).count);

/** A row of stitches along x, each with a thread of 1 mm up. */
const row = (count: number, spacing_m = 0.01) => Array.from({ length: count }, (_, i) => [i * spacing_m, 0, 0, i * spacing_m, 0, 0.001]).flat();

test('clips lie where they hold, with their legs along z of the tool', () => {
  const layer = new FastenerLayer();
  assert.equal(layer.update([clip(0.01, vector(0.1, 0.2, 0.3)), clip(0.01, vector(0, 0, 0), { w: 2 * HALF, x: 0, y: 2 * HALF, z: 0 })], [], 0.1), undefined);
  assert.deepEqual(counts(layer), [2, 0, 0, 0]);
  assert.equal(layer.clipCount, 2);
  assertNear(placed(layer, 'clips', 0, [0, 0, -0.5]), [0.1, 0.2, 0.295]);
  assertNear(placed(layer, 'clips', 0, [0, 0, 0.5]), [0.1, 0.2, 0.305]);
  assertNear(placed(layer, 'clips', 1, [0, 0, 0.5]), [0.005, 0, 0]);  // turned by a quaternion that is not unit
});

test('a clip has two legs that are joined at one end, and is 1 long', () => {
  const { geometry } = meshOf(new FastenerLayer(), 'clips');
  geometry.computeBoundingBox();
  const { min, max } = geometry.boundingBox!;
  for (const end of [-min.z, max.z]) assert.ok(end <= 0.5 + 1e-6 && end > 0.49);
  const position = geometry.getAttribute('position');
  const between = (from: number, to: number) => {
    const xs: number[] = [];
    for (let i = 0; i < position.count; ++i) if (position.getZ(i) > from && position.getZ(i) < to) xs.push(Math.abs(position.getX(i)));
    return xs;
  };
  assert.ok(between(-0.5, 0.3).every((x) => x > 0.01), 'nothing between the legs');
  assert.ok(between(0.4, 0.5).some((x) => x < 0.02), 'the bend');
});

test('a clip is as long as its jaws, but no longer than clips are, and seen in large and small scenes', () => {
  const layer = new FastenerLayer();
  const lengthOf = (lengthM: number, radius_m: number) => {
    assert.equal(layer.update([clip(lengthM)], [], radius_m), undefined);
    return placed(layer, 'clips', 0, [0, 0, 1])[2]!;
  };
  assertNear([lengthOf(0.009, 0.1), lengthOf(0.03, 0.1), lengthOf(0, 0.1)], [0.009, MAX_CLIP_M, 0.008]);
  assert.ok(lengthOf(0.02, 0.03) <= 0.2 * 0.03 + 1e-9);
  assert.ok(lengthOf(0.02, 1) >= 0.04 - 1e-9);
});

test('a stitch is a thread from the vertex to its place, with both ends and a knot', () => {
  const layer = new FastenerLayer();
  assert.equal(layer.update([], [0.01, 0.02, 0.03, 0.01, 0.02, 0.05, 0, 0, 0, 0.004, 0, 0], 0.1), undefined);
  assert.deepEqual(counts(layer), [0, 2, 4, 2]);
  assert.equal(layer.stitchCount, 2);
  assert.equal(layer.shown, 2);
  assertNear(placed(layer, 'threads', 0, [0, 0, 0]), [0.01, 0.02, 0.03]);
  assertNear(placed(layer, 'threads', 0, [0, 0, 1]), [0.01, 0.02, 0.05]);
  assertNear(placed(layer, 'threads', 1, [0, 0, 1]), [0.004, 0, 0]);
  assertNear(placed(layer, 'ends', 0, [0, 0, 0]), [0.01, 0.02, 0.03]);
  assertNear(placed(layer, 'ends', 1, [0, 0, 0]), [0.01, 0.02, 0.05]);
  assertNear(placed(layer, 'ends', 3, [0, 0, 0]), [0.004, 0, 0]);
  assertNear(placed(layer, 'knots', 0, [0, 0, 0]), [0.01, 0.02, 0.03]);
});

test('a knot lies along the seam, and leaves room for the next', () => {
  const layer = new FastenerLayer();
  const sizeOf = (stitches_m: number[]) => {
    layer.update([], stitches_m, 0.1);
    return new THREE.Vector3(...placed(layer, 'knots', 0, [1, 0, 0])).length();
  };
  const alone_m = sizeOf(row(1));
  assert.ok(alone_m > 0.001 && alone_m < 0.004);
  assert.ok(Math.abs(sizeOf(row(2, 0.1)) - alone_m) < 1e-9);
  assert.ok(Math.abs(sizeOf(row(2, 0.003)) - 0.38 * 0.003) < 1e-9);
  assert.ok(sizeOf(row(2, 1e-5)) > 0.3 * alone_m);
  layer.update([], [0, 0, 0, 0, 0, 0, 0, 0.5, 0, 0, 0.5, 0, 1, 0, 0, 1, 0, 0], 0.1);
  const [x, y] = placed(layer, 'knots', 0, [1, 0, 0]);
  assert.ok(Math.abs(x!) < 1e-9 && y! > 0, 'towards the nearest');
});

test('where both points of a stitch coincide a knot is left, without a thread', () => {
  const layer = new FastenerLayer();
  assert.equal(layer.update([], [0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3, 0.1, 0.2, 0.3], 0.1), undefined);
  assert.deepEqual(counts(layer), [0, 0, 4, 2]);
  assert.equal(layer.stitchCount, 2);
  for (const name of ['ends', 'knots']) assert.ok([...meshOf(layer, name).instanceMatrix.array.slice(0, 32)].every(Number.isFinite));
  assertNear(placed(layer, 'knots', 1, [0, 0, 0]), [0.1, 0.2, 0.3]);
});

test('buffers grow with what comes, and stay when something goes', () => {
  const layer = new FastenerLayer();
  const meshes = [...layer.group.children];
  layer.update([], row(96), 0.1);
  assert.deepEqual(counts(layer), [0, 96, 192, 96]);
  assertNear(placed(layer, 'threads', 95, [0, 0, 1]), [0.95, 0, 0.001]);
  assertNear(placed(layer, 'ends', 191, [0, 0, 0]), [0.95, 0, 0.001]);
  const buffers = meshes.map((mesh) => (mesh as THREE.InstancedMesh).instanceMatrix);
  layer.update(Array.from({ length: 7 }, (_, i) => clip(0.01, vector(i, 0, 0))), row(90), 0.1);
  assert.deepEqual(counts(layer), [7, 90, 180, 90]);
  assertNear(placed(layer, 'clips', 6, [0, 0, 0]), [6, 0, 0]);
  assert.deepEqual(layer.group.children, meshes);
  assert.ok(meshes.every((mesh, index) => (mesh as THREE.InstancedMesh).instanceMatrix === buffers[index]), 'no new buffers');
  layer.update(Array.from({ length: 200 }, () => clip(0.01)), [], 0.1);
  assert.deepEqual(counts(layer), [200, 0, 0, 0]);
});

test('what is gone is not drawn', () => {
  const layer = new FastenerLayer();
  layer.update([clip(0.01)], row(3), 0.1);
  assert.ok(layer.group.children.every((mesh) => mesh.visible));
  layer.update([], row(1), 0.1);
  assert.deepEqual([layer.clipCount, layer.stitchCount], [0, 1]);
  assert.deepEqual(layer.group.children.map((mesh) => mesh.visible), [false, true, true, true]);
  layer.clear();
  assert.equal(layer.shown, 0);
  assert.ok(layer.group.children.every((mesh) => !mesh.visible));
});

test('malformed lists are told, and nothing of them is drawn', () => {
  const good = row(3);
  const stitchesWith = (at: number, number: number) => good.map((x, index) => (index === at ? number : x));
  const cases: [ClipState[], number[], RegExp][] = [
    [[], good.slice(0, 13), /13 numbers for stitches, expected 6 for each/],
    [[], stitchesWith(13, NaN), /stitch 2 of a frame: a position that is no number/],
    [[], stitchesWith(0, Infinity), /stitch 0 of a frame/],
    [[clip(0.01), create(ClipStateSchema, { lengthM: 0.01 })], good, /clip 1 of a frame: no pose/],
    [[clip(0.01, vector(0, NaN, 0))], good, /clip 0 of a frame: a position that is no number/],
    [[clip(0.01, vector(0, 0, 0), { w: 0, x: 0, y: 0, z: 0 })], good, /a rotation that is none/],
    [[clip(0.01, vector(0, 0, 0), { w: NaN, x: 0, y: 0, z: 0 })], good, /a rotation that is none/],
    [[clip(-1)], good, /a length of -1 m, expected 0 or more/],
    [[clip(NaN)], good, /a length of NaN m/],
  ];
  for (const [clips, stitches_m, message] of cases) {
    const layer = new FastenerLayer();
    assert.equal(layer.update([clip(0.01)], good, 0.1), undefined);
    assert.match(layer.update(clips, stitches_m, 0.1) ?? 'nothing wrong', message);
    assert.equal(layer.shown, 0);
    assert.equal(layer.update([clip(0.01)], good, 0.1), undefined);
    assert.equal(layer.shown, 4);
  }
});

test('a section takes what it takes of the tissue', () => {
  const layer = new FastenerLayer();
  const materials = () => layer.group.children.map((mesh) => (mesh as THREE.InstancedMesh).material as THREE.Material);
  const section = new THREE.Plane(new THREE.Vector3(1, 0, 0), 0);
  layer.setSection(section);
  for (const { clippingPlanes } of materials()) assert.deepEqual(clippingPlanes, [section]);
  layer.setSection(undefined);
  for (const { clippingPlanes } of materials()) assert.equal(clippingPlanes, null);
});
