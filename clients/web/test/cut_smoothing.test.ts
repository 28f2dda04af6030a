import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { BodyTopologySchema } from '../generated/palpate/v1/stream_pb';
import { SurfaceMirror } from '../src/net/surface_mirror';
import { CutSmoothing } from '../src/view/cut_smoothing';

const SIDE = 13;
const at = (i: number, j: number) => i * SIDE + j;

/** A square of triangles in the plane z = 0; `zone` of each cell, `height` of each vertex. */
function square(zone: (i: number, j: number) => number, height: (i: number, j: number) => number) {
  const triangles: number[] = [];
  const triangleZones: number[] = [];
  for (let i = 0; i + 1 < SIDE; ++i) for (let j = 0; j + 1 < SIDE; ++j) {
    triangles.push(at(i, j), at(i + 1, j), at(i + 1, j + 1), at(i, j), at(i + 1, j + 1), at(i, j + 1));
    triangleZones.push(zone(i, j), zone(i, j));
  }
  const surface = SurfaceMirror.of(create(BodyTopologySchema, { name: 'square', vertexCount: SIDE * SIDE, triangles, triangleZones }));
  assert.ok(surface instanceof SurfaceMirror);
  const positions = new Float32Array(3 * SIDE * SIDE);
  for (let i = 0; i < SIDE; ++i) for (let j = 0; j < SIDE; ++j) positions.set([i, j, height(i, j)], 3 * at(i, j));
  return { surface, positions };
}

function smoothed({ surface, positions }: ReturnType<typeof square>): Float32Array {
  const smoothing = new CutSmoothing();
  smoothing.rebuild(surface, (zone) => zone > 0);
  return smoothing.apply(positions).slice();
}
const zigzag = (i: number, j: number) => 0.2 * (-1) ** (i + j);
const isInner = (i: number, j: number) => i > 2 && i < SIDE - 3 && j > 2 && j < SIDE - 3;

test('skin is left as it is', () => {
  const { surface, positions } = square(() => 0, zigzag);
  const smoothing = new CutSmoothing();
  smoothing.rebuild(surface, (zone) => zone > 0);
  assert.ok(smoothing.isEmpty);
  assert.equal(smoothing.apply(positions), positions);
});

test('the inside loses its zigzag and keeps its place and its wide shape', () => {
  const wave = (i: number) => 0.8 * Math.sin((Math.PI * i) / (SIDE - 1));
  const out = smoothed(square(() => 1, (i, j) => wave(i) + zigzag(i, j)));
  let worst = 0;
  for (let i = 0; i < SIDE; ++i) for (let j = 0; j < SIDE; ++j) if (isInner(i, j)) worst = Math.max(worst, Math.abs(out[3 * at(i, j) + 2]! - wave(i)));
  assert.ok(worst < 0.06, `${worst}`);  // 0.2 before
});

test('a cut does not move skin around it, and its border follows itself alone', () => {
  const raw = square((i, j) => (i >= 4 && i < 8 && j >= 4 && j < 8 ? 1 : 0), (i, j) => (i === 6 && j === 6 ? 0.3 : 0));
  const out = smoothed(raw);
  for (let i = 0; i < SIDE; ++i) for (let j = 0; j < SIDE; ++j) {
    const v = 3 * at(i, j);
    const moved = Math.hypot(out[v]! - i, out[v + 1]! - j, out[v + 2]! - raw.positions[v + 2]!);
    if (i < 4 || i > 8 || j < 4 || j > 8) assert.equal(moved, 0);
    // The border lies in the plane and is not drawn up by the vertex in the middle.
    else if (i === 4 || i === 8 || j === 4 || j === 8) assert.equal(out[v + 2], 0);
  }
  assert.ok(out[3 * at(6, 6) + 2]! < 0.15);
});

test('zones of the inside have a smooth border between them', () => {
  const zone = (i: number, j: number) => (j < 6 + (i % 2) ? 1 : 2);  // a border that goes to and fro
  const out = smoothed(square(zone, () => 0));
  const on: number[] = [];
  // Vertices of the border: between cells of both zones.
  for (let i = 3; i < SIDE - 3; ++i) for (const j of [6, 7]) {
    const around = new Set([zone(i - 1, j - 1), zone(i - 1, j), zone(i, j - 1), zone(i, j)]);
    if (around.size === 2) on.push(out[3 * at(i, j) + 1]!);
  }
  assert.ok(on.length > 8 && Math.max(...on) - Math.min(...on) < 0.6, on.join());  // 1 before
});

test('nothing is drawn far from where it is', () => {
  const raw = square(() => 1, (i, j) => (isInner(i, j) ? ((7 * i + 3 * j) % 5) * 2 : 0));
  const out = smoothed(raw);
  for (let v = 0; v < out.length; v += 3) {
    const moved = Math.hypot(out[v]! - raw.positions[v]!, out[v + 1]! - raw.positions[v + 1]!, out[v + 2]! - raw.positions[v + 2]!);
    assert.ok(moved < 0.35 * 9, `${moved}`);
  }
  // A lone tetrahedron does not vanish.
  const tet = SurfaceMirror.of(create(BodyTopologySchema, { name: 'tet', vertexCount: 4, triangles: [0, 2, 1, 0, 1, 3, 1, 2, 3, 0, 3, 2], triangleZones: [1, 1, 1, 1] }));
  assert.ok(tet instanceof SurfaceMirror);
  const smoothing = new CutSmoothing();
  smoothing.rebuild(tet, (zone) => zone > 0);
  const corners = smoothing.apply(Float32Array.from([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]));
  assert.ok(Math.hypot(corners[3]! - corners[6]!, corners[4]! - corners[7]!) > 0.5);
});
