import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { surfaceHash } from '../dev/fake_tissue';
import { BodyDeltaSchema, BodyTopologySchema } from '../generated/palpate/v1/stream_pb';
import { MeshHashSum } from '../src/net/mesh_hash';
import { SurfaceMirror } from '../src/net/surface_mirror';
import { random } from './random';

function mirrorOf(topology: object): SurfaceMirror {
  const mirror = SurfaceMirror.of(create(BodyTopologySchema, { name: 'liver', ...topology }));
  assert.ok(mirror instanceof SurfaceMirror, String(mirror));
  return mirror;
}

test('hashes are those of the server', () => {
  // Known answers of docs/streaming.md
  for (const [slot, corners, zone, hash] of [[0, [0, 1, 2], 0, 0xac0384c8a72943acn], [7, [5, 6, 8], 2, 0x7cd99ce37c3d9b92n],
    [4294967295, [4294967294, 1, 2], 9, 0x4bd474e54de8c36bn]] as const) {
    const sum = new MeshHashSum();
    sum.add(slot, corners[0], corners[1], corners[2], zone);
    assert.equal(sum.toBigInt(), hash);
  }
});

test('hashes of texture coordinates are those of the server, and (0, 0) counts as nothing', () => {
  for (const [vertex, u, v, hash] of [[0, 1, 0, 0xca6b4292f51227c2n], [7, 0.1, -2.5, 0x41fd161c62c09471n], [7, 0, 0, 0n]] as const) {
    const sum = new MeshHashSum();
    sum.addTexture(vertex, u, v);
    assert.equal(sum.toBigInt(), hash);
    sum.add(3, 0, 1, 2, 0);
    sum.removeTexture(vertex, u, v);
    sum.remove(3, 0, 1, 2, 0);
    assert.equal(sum.toBigInt(), 0n);
  }
});

test('sums of hashes agree with 64-bit arithmetic, carries included', () => {
  const next = random(3);
  const sum = new MeshHashSum();
  const triangles: number[] = [];
  const zones: number[] = [];
  for (let slot = 0; slot < 400; ++slot) {
    const corners = [next(2 ** 32), next(2 ** 32), next(2 ** 32)] as const;
    triangles.push(...corners);
    zones.push(next(65536));
    sum.add(slot, ...corners, zones[slot]!);
    if (slot % 40 === 0) assert.equal(sum.toBigInt(), surfaceHash(triangles, zones));
  }
  for (let slot = 0; slot < 399; ++slot) sum.remove(slot, triangles[3 * slot]!, triangles[3 * slot + 1]!, triangles[3 * slot + 2]!, zones[slot]!);
  assert.equal(sum.toBigInt(), surfaceHash([...Array(3 * 399).fill(0), ...triangles.slice(3 * 399)], zones));
  sum.remove(399, triangles[3 * 399]!, triangles[3 * 399 + 1]!, triangles[3 * 399 + 2]!, zones[399]!);
  assert.equal(sum.toBigInt(), 0n);
});

test('a mirror that follows a thousand random deltas is what a keyframe would bring', () => {
  const next = random(11);
  let vertexCount = 12;
  const triangles = [0, 1, 2, 3, 4, 5, 0, 0, 0];
  const zones = [0, 1, 0];
  const mirror = mirrorOf({ vertexCount, triangles, triangleZones: zones });
  for (let round = 0; round < 1000; ++round) {
    if (next(10) === 0) vertexCount += next(5);
    if (next(4) === 0) {
      triangles.push(0, 0, 0);
      zones.push(0);
    }
    const slots = [...new Set(Array.from({ length: 1 + next(5) }, () => next(zones.length)))].sort((a, b) => a - b);
    for (const slot of slots) {
      const a = next(vertexCount);
      const isFree = next(3) === 0;
      triangles.splice(3 * slot, 3, ...(isFree ? [0, 0, 0] : [a, (a + 1) % vertexCount, (a + 2 + next(3)) % vertexCount]));
      zones[slot] = isFree ? 0 : next(4);
    }
    const delta = create(BodyDeltaSchema, {
      vertexCount, triangleCount: zones.length, triangleSlots: slots, triangles: slots.flatMap((slot) => triangles.slice(3 * slot, 3 * slot + 3)),
      triangleZones: slots.map((slot) => zones[slot]!),
    });
    assert.equal(mirror.check(delta), undefined);
    mirror.apply(delta);
    if (round % 25 !== 0) continue;
    const fresh = mirrorOf({ vertexCount, triangles, triangleZones: zones });
    assert.deepEqual([...mirror.triangles.subarray(0, 3 * mirror.slotCount)], triangles);
    assert.deepEqual([...mirror.zones.subarray(0, mirror.slotCount)], zones);
    assert.equal(mirror.liveCount, fresh.liveCount);
    assert.equal(mirror.hash, fresh.hash);
    assert.equal(mirror.hash, surfaceHash(triangles, zones));
    assert.ok(mirror.matches(fresh.hash) && mirror.matches(0n) && !mirror.matches(fresh.hash ^ 1n));
  }
});

test('texture coordinates follow deltas: what a keyframe would bring, with the same hash', () => {
  const next = random(5);
  let vertexCount = 6;
  const coordinates = Array.from({ length: 12 }, (_, i) => Math.fround(0.1 * i));
  const base = { triangles: [0, 1, 2, 3, 4, 5], triangleZones: [0, 1], texture: { uPeriod: 4 } };
  const mirror = mirrorOf({ ...base, vertexCount, textureCoordinates: coordinates });
  for (let round = 0; round < 300; ++round) {
    if (next(10) === 0) {
      ++vertexCount;
      coordinates.push(0, 0);
    }
    const vertices = [...new Set(Array.from({ length: next(4) }, () => next(vertexCount)))];
    for (const vertex of vertices) coordinates.splice(2 * vertex, 2, ...(next(3) === 0 ? [0, 0] : [Math.fround(next(1000) / 7), Math.fround(-next(1000) / 9)]));
    const delta = create(BodyDeltaSchema, { vertexCount, triangleCount: 2, textureVertices: vertices,
      textureCoordinates: vertices.flatMap((vertex) => coordinates.slice(2 * vertex, 2 * vertex + 2)) });
    assert.equal(mirror.check(delta), undefined);
    mirror.apply(delta);
    const fresh = mirrorOf({ ...base, vertexCount, textureCoordinates: coordinates });
    assert.deepEqual([...mirror.textureCoordinates.subarray(0, 2 * vertexCount)], coordinates);
    assert.equal(mirror.hash, fresh.hash);
  }
  const given = [...Array(vertexCount).keys()].filter((vertex) => coordinates[2 * vertex] !== 0 || coordinates[2 * vertex + 1] !== 0);
  const sparse = mirrorOf({ ...base, vertexCount, textureVertices: given, textureCoordinates: given.flatMap((vertex) => coordinates.slice(2 * vertex, 2 * vertex + 2)) });
  assert.equal(sparse.hash, mirror.hash);
  assert.notEqual(mirrorOf({ ...base, vertexCount }).hash, mirror.hash);
  const good = { vertexCount, triangleCount: 2, textureVertices: [1], textureCoordinates: [1, 2] };
  for (const [damage, says] of [[{ textureVertices: [1, 2] }, /2 numbers of texture coordinates of 2 vertices/], [{ textureVertices: [vertexCount] }, /texture coordinate of vertex/],
    [{ textureCoordinates: [1, NaN] }, /texture coordinate NaN/], [{ textureVertices: [] }, /2 numbers of texture coordinates of 0/]] as const) {
    assert.match(mirror.check(create(BodyDeltaSchema, { ...good, ...damage } as object)) ?? 'nothing', says);
  }
  assert.match(mirrorOf({ vertexCount: 6, triangles: base.triangles }).check(create(BodyDeltaSchema, { ...good, vertexCount: 6 })) ?? 'nothing', /without a texture/);
  assert.match(String(SurfaceMirror.of(create(BodyTopologySchema, { ...base, vertexCount: 6, textureCoordinates: Array(14).fill(1) }))), /7 texture coordinates, of 6 vertices/);
});

test('texture coordinates of corners follow deltas and are part of the hash', () => {
  const base = { vertexCount: 6, triangles: [0, 1, 2, 0, 0, 0, 3, 4, 5], triangleZones: [0, 0, 1], texture: { byCorner: true } };
  const corners = [1, 0, 0, 1, 0.5, 0.5, ...Array(12).fill(0)];
  const mirror = mirrorOf({ ...base, textureCorners: corners });
  const plain = mirrorOf({ ...base, textureCorners: Array(18).fill(0) });
  assert.equal((mirror.hash - plain.hash) & (2n ** 64n - 1n), 0x845a376a051eb226n);
  const next = random(8);
  for (let round = 0; round < 200; ++round) {
    const slots = [...new Set(Array.from({ length: 1 + next(3) }, () => next(4)))];
    const triangles = slots.flatMap(() => (next(3) === 0 ? [0, 0, 0] : [next(2), 2 + next(2), 4 + next(2)]));
    const textureCorners = slots.flatMap(() => Array.from({ length: 6 }, () => Math.fround(next(100) / 7 - 5)));
    const delta = create(BodyDeltaSchema, { vertexCount: 6, triangleCount: 4, triangleSlots: slots, triangles, triangleZones: slots.map(() => 0), textureCorners });
    assert.equal(mirror.check(delta), undefined);
    mirror.apply(delta);
    const fresh = mirrorOf({ ...base, triangles: [...mirror.triangles.subarray(0, 12)], triangleZones: [...mirror.zones.subarray(0, 4)],
      textureCorners: [...mirror.textureCorners.subarray(0, 24)] });
    assert.equal(mirror.hash, fresh.hash);
  }
  const delta = { vertexCount: 6, triangleCount: 4, triangleSlots: [1], triangles: [1, 2, 4], triangleZones: [0] };
  assert.match(mirror.check(create(BodyDeltaSchema, delta)) ?? 'nothing', /0 numbers of texture coordinates of corners, not 6/);
  assert.match(mirror.check(create(BodyDeltaSchema, { ...delta, textureCorners: [1, 2, 3, 4, 5, NaN] })) ?? 'nothing', /texture coordinate NaN/);
});

test('what cannot be is refused before anything changes', () => {
  const mirror = mirrorOf({ vertexCount: 4, triangles: [0, 1, 2, 0, 2, 3], triangleZones: [0, 1] });
  const good = { vertexCount: 5, triangleCount: 3, triangleSlots: [2], triangles: [1, 2, 4], triangleZones: [1] };
  assert.equal(mirror.check(create(BodyDeltaSchema, good)), undefined);
  for (const [damage, says] of [
    [{ triangleSlots: [3] }, /slot 3, of 3/], [{ triangles: [1, 2] }, /1 slots, 2 indices/], [{ triangleZones: [] }, /0 zones/], [{ triangles: [1, 2, 5] }, /vertex 5, of 5/],
    [{ triangles: [1, 1, 2] }, /vertices 1 1 2/], [{ triangleCount: 1 }, /1 slots/], [{ vertexCount: 3 }, /3 vertices/], [{ triangleZones: [65536] }, /zone 65536/],
  ] as const) {
    assert.match(mirror.check(create(BodyDeltaSchema, { ...good, ...damage } as object)) ?? 'nothing', says);
  }
  assert.equal(mirror.hash, surfaceHash([0, 1, 2, 0, 2, 3], [0, 1]));
  for (const [topology, says] of [[{ vertexCount: 2, triangles: [0, 1, 2] }, /vertex 2, of 2/], [{ vertexCount: 9, triangles: [1, 2] }, /2 triangle indices/],
    [{ vertexCount: 9, triangles: [1, 2, 3], triangleZones: [0, 0] }, /2 zones of 1/]] as const) {
    assert.match(String(SurfaceMirror.of(create(BodyTopologySchema, topology as object))), says);
  }
});
