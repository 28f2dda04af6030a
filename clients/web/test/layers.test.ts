import assert from 'node:assert/strict';
import { test } from 'node:test';
import { icosphere } from '../dev/fake_server';
import { RefineLayer, refinedCorners, SplitLayer, type Layer } from '../src/view/layers';
import { random } from './random';

interface Stack {
  sides: SplitLayer;
  layers: Layer[];
}

/** A split by tag, refined `levels` times. */
function stack(levels: number): Stack {
  const sides = new SplitLayer(0);
  return { sides, layers: [sides, ...Array.from({ length: levels }, () => new RefineLayer(0))] };
}

function release({ layers }: Stack, slot: number): void {
  for (let at = layers.length - 1; at >= 0; --at) {
    const count = at === 0 ? 1 : 4 ** (at - 1);
    for (let k = 0; k < count; ++k) layers[at]!.release(slot * count + k);
  }
}

function fill({ layers, sides }: Stack, slot: number, corners: number[], tag: number): void {
  sides.fill(slot, corners[0]!, corners[1]!, corners[2]!, tag);
  for (let at = 1; at < layers.length; ++at) {
    const below = layers[at - 1]!;
    for (let k = slot * 4 ** (at - 1); k < (slot + 1) * 4 ** (at - 1); ++k) {
      layers[at]!.fill(k, below.triangles[3 * k]!, below.triangles[3 * k + 1]!, below.triangles[3 * k + 2]!, tag);
    }
  }
}

function derive({ sides, layers }: Stack, positions: Float32Array): void {
  sides.settle({ rest: positions });
  for (let at = 1; at < layers.length; ++at) layers[at]!.settle(layers[at - 1]!);
  sides.derive(positions);
  for (let at = 1; at < layers.length; ++at) (layers[at] as RefineLayer).derive(layers[at - 1]!);
}

/** Triangles of a layer as coordinates with their tags, in an order of their own: what is drawn, whatever the numbering. */
function drawn(layer: Layer): string[] {
  const all: string[] = [];
  for (let slot = 0; slot < layer.triangleCount; ++slot) {
    const corners = [...layer.triangles.subarray(3 * slot, 3 * slot + 3)];
    if (corners.every((corner) => corner === 0)) continue;
    all.push(corners.map((v) => [...layer.positions.subarray(3 * v, 3 * v + 3), ...layer.normals.subarray(3 * v, 3 * v + 3), ...layer.rest.subarray(3 * v, 3 * v + 3)]
      .map((x) => x.toFixed(5)).join(' ') + ` #${layer.tags[v]}`).join(' | '));
  }
  return all.sort();
}

test('a refined sphere keeps its vertices, is closed, and comes nearer to what it approximates', () => {
  const { vertices, triangles } = icosphere(1);
  const one = stack(1);
  for (let slot = 0; 3 * slot < triangles.length; ++slot) fill(one, slot, triangles.slice(3 * slot, 3 * slot + 3), 0);
  derive(one, Float32Array.from(vertices.flat()));
  const round = one.layers[1]!;
  assert.equal(round.triangleCount, (4 * triangles.length) / 3);
  assert.equal(round.vertexCount - round.triangleCount / 2, 2);  // Euler, closed
  const error = (at: (id: number) => number[]) => {
    let worst = 0;
    for (let id = 0; id < round.vertexCount; ++id) worst = Math.max(worst, Math.abs(1 - Math.hypot(...at(id))));
    return worst;
  };
  const curved = error((id) => [...round.positions.subarray(3 * id, 3 * id + 3)]);
  const straight = error((id) => [...round.rest.subarray(3 * id, 3 * id + 3)]);  // interpolated without curvature
  assert.ok(straight > 0.03 && curved < 0.1 * straight, `${straight} -> ${curved}`);
  const kept = new Set(Array.from({ length: round.vertexCount }, (_, id) => [...round.positions.subarray(3 * id, 3 * id + 3)].join()));
  for (const v of vertices) assert.ok(kept.has([...Float32Array.from(v)].join()));
});

test('a refined plane stays plane, and outward stays outward', () => {
  const one = stack(2);
  fill(one, 0, [0, 1, 2], 0);
  fill(one, 1, [2, 1, 3], 0);
  derive(one, Float32Array.from([0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1]));
  const { positions, normals, vertexCount } = one.layers[2]!;
  for (let id = 0; id < vertexCount; ++id) assert.deepEqual([positions[3 * id + 2], normals[3 * id + 2]], [1, 1]);
});

test('a thousand random edits draw what a fresh surface of the same triangles draws', () => {
  const next = random(7);
  const { vertices } = icosphere(2);
  const positions = Float32Array.from(vertices.flat());
  const slots: { corners: number[]; tag: number }[] = Array.from({ length: 120 }, () => ({ corners: [0, 0, 0], tag: 0 }));
  const edited = stack(2);
  for (let round = 0; round < 1000; ++round) {
    const changes = new Map<number, { corners: number[]; tag: number }>();
    for (let i = 0; i < 1 + next(6); ++i) {
      const a = next(40);
      const isFree = next(3) === 0;
      changes.set(next(slots.length), { corners: isFree ? [0, 0, 0] : [a, (a + 1 + next(3)) % 40, (a + 5 + next(3)) % 40], tag: isFree ? 0 : next(2) });
    }
    for (const slot of changes.keys()) release(edited, slot);
    for (const [slot, change] of changes) {
      fill(edited, slot, change.corners, change.tag);
      slots[slot] = change;
    }
    if (round % 50 !== 49) continue;
    derive(edited, positions);
    const fresh = stack(2);
    slots.forEach(({ corners, tag }, slot) => fill(fresh, slot, corners, tag));
    derive(fresh, positions);
    for (const at of [0, 1, 2]) assert.deepEqual(drawn(edited.layers[at]!), drawn(fresh.layers[at]!));
    // Ids are used again.
    assert.ok(edited.layers[2]!.vertexCount < 2 * fresh.layers[2]!.vertexCount);
  }
});

test('both sides of a seam meet without a gap, each with a normal of its own', () => {
  // A roof: two triangles of skin, two of the inside, that share the ridge 0 1.
  const positions = Float32Array.from([0, 0, 1, 2, 0, 1, 1, -1, 0, 1, 1, 0, 0.2, -0.4, 0.5]);
  const one = stack(2);
  fill(one, 0, [0, 2, 1], 0);
  fill(one, 1, [0, 1, 3], 1);
  derive(one, positions);
  for (const layer of one.layers) {
    const side = (tag: number) => {
      const onRidge = new Map<string, number>();
      for (let id = 0; id < layer.vertexCount; ++id) {
        const [x, y, z] = layer.positions.subarray(3 * id, 3 * id + 3);
        if (layer.tags[id] === tag && layer.seams[id] === 1) {
          assert.deepEqual([y, z], [0, 1]);
          onRidge.set(x!.toFixed(6), layer.normals[3 * id + 1]!);
        }
      }
      return onRidge;
    };
    const [skin, inside] = [side(0), side(1)];
    assert.deepEqual([...skin.keys()].sort(), [...inside.keys()].sort());
    for (const [at, y] of skin) assert.ok(y * inside.get(at)! < 0, `normals at ${at}: ${y} ${inside.get(at)}`);
  }
  assert.equal(one.layers[2]!.seams.slice(0, one.layers[2]!.vertexCount).filter(Boolean).length, 2 * 5);
});

test('texture coordinates in the middle of an edge take the shorter way around', () => {
  const { sides, layers } = stack(1);
  sides.fill(0, 0, 1, 2, 0);
  layers[1]!.fill(0, sides.triangles[0]!, sides.triangles[1]!, sides.triangles[2]!, 0);
  // Vertices 0 and 1 lie on either side of the seam at u = 10.
  const texture = Float32Array.from([9.5, 1, 0.25, 2, 1, 4]);
  for (const [period, middle] of [[10, 9.875], [0, 4.875]] as const) {
    const one = stack(1);
    one.sides.fill(0, 0, 1, 2, 0);
    one.layers[1]!.fill(0, one.sides.triangles[0]!, one.sides.triangles[1]!, one.sides.triangles[2]!, 0);
    one.sides.settle({ rest: new Float32Array(9), texture, texturePeriod: period });
    one.layers[1]!.settle(one.sides);
    const { triangles, texture: found } = one.layers[1]!;
    const of = (corner: number) => [found[2 * triangles[corner]!]!, found[2 * triangles[corner]! + 1]!];
    assert.deepEqual(of(0), [9.5, 1]);
    assert.deepEqual(of(1), [middle, 1.5]);  // between the first two
    assert.deepEqual(of(3), [0.25, 2]);
    assert.deepEqual(of(4), [0.625, 3]);
  }
  // Without any there is nothing to carry.
  sides.settle({ rest: new Float32Array(9) });
  layers[1]!.settle(sides);
  assert.equal(layers[1]!.texture.length, 0);
});

test('the rim of a cut is a curve on which both sides meet', () => {
  // A hexagonal cut in a plane: its inside has another tag than the ring around it.
  const corner = (radius: number, k: number) => [radius * Math.cos((Math.PI * k) / 3), radius * Math.sin((Math.PI * k) / 3), 0];
  const positions = Float32Array.from([[9, 9, 9], [0, 0, 0], ...Array.from({ length: 6 }, (_, k) => corner(1, k)), ...Array.from({ length: 6 }, (_, k) => corner(2, k))].flat());
  const one = stack(2);
  for (let k = 0; k < 6; ++k) {
    const [a, b, c, d] = [2 + k, 2 + ((k + 1) % 6), 8 + k, 8 + ((k + 1) % 6)];
    fill(one, 3 * k, [1, a, b], 1);
    fill(one, 3 * k + 1, [a, c, b], 0);
    fill(one, 3 * k + 2, [b, c, d], 0);
  }
  const rims = new Float32Array(positions.length);
  for (let k = 0; k < 6; ++k) rims.set([-Math.sin((Math.PI * k) / 3), Math.cos((Math.PI * k) / 3), 0], 3 * (2 + k));
  for (const layer of one.layers) layer.settle(layer === one.sides ? { rest: positions } : one.layers[one.layers.indexOf(layer) - 1]!);
  one.sides.derive(positions, undefined, rims);
  for (const [at, layer] of one.layers.entries()) if (layer instanceof RefineLayer) layer.derive(one.layers[at - 1]!);
  const finest = one.layers[2]!;
  /** Places of a side's triangle edges that no other triangle of that side shares. */
  const border = (tag: number) => {
    const edges = new Map<string, number>();
    for (let slot = 0; slot < finest.triangleCount; ++slot) {
      const corners = [...finest.triangles.subarray(3 * slot, 3 * slot + 3)];
      if (finest.tags[corners[0]!] !== tag) continue;
      const places = corners.map((v) => [...finest.positions.subarray(3 * v, 3 * v + 3)].join(' '));
      for (let k = 0; k < 3; ++k) {
        const key = [places[k]!, places[(k + 1) % 3]!].sort().join(' | ');
        edges.set(key, (edges.get(key) ?? 0) + 1);
      }
    }
    return [...edges].filter(([, count]) => count === 1).map(([key]) => key);
  };
  const inner = border(1);
  assert.equal(inner.length, 24);
  const outer = new Set(border(0));
  for (const edge of inner) assert.ok(outer.has(edge), 'a gap');
  for (const place of inner.flatMap((edge) => edge.split(' | '))) {
    const [x, y] = place.split(' ').map(Number) as [number, number];
    assert.ok(Math.abs(Math.hypot(x, y) - 1) < 0.01, `a corner: ${Math.hypot(x, y)}`);  // straight middles would be at 0.87
  }
});

test('a seam parts vertices by texture coordinate, and neighbours across other edges share them', () => {
  // Two triangles of a square with a seam along the diagonal, refined twice.
  const corners = [[0, 0, 1, 0, 1, 1], [5, 5, 6, 6, 5, 6]];
  const sides = new SplitLayer(0), one = new RefineLayer(0), two = new RefineLayer(0), seams = new SplitLayer(0);
  const positions = Float32Array.from([0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 1, 0]);
  for (const [slot, triangle] of [[0, 1, 2], [0, 2, 3]].entries()) {
    sides.fill(slot, triangle[0]!, triangle[1]!, triangle[2]!, 0);
    one.fill(slot, sides.triangles[3 * slot]!, sides.triangles[3 * slot + 1]!, sides.triangles[3 * slot + 2]!);
    for (let k = 4 * slot; k < 4 * slot + 4; ++k) two.fill(k, one.triangles[3 * k]!, one.triangles[3 * k + 1]!, one.triangles[3 * k + 2]!);
    const refined = refinedCorners(corners[slot]!, 2);
    for (let k = 16 * slot; k < 16 * slot + 16; ++k) {
      seams.fill(k, two.triangles[3 * k]!, two.triangles[3 * k + 1]!, two.triangles[3 * k + 2]!, 0, refined, 6 * (k - 16 * slot));
    }
  }
  sides.settle({ rest: positions });
  one.settle(sides);
  two.settle(one);
  seams.settle(two);
  sides.derive(positions);
  one.derive(sides);
  two.derive(one);
  seams.derive(two.positions, two.normals);
  assert.equal(two.vertexCount, 25);
  assert.equal(seams.vertexCount, 25 + 5, 'the five vertices of the diagonal are there twice');
  for (let t = 0; t < 32; ++t) for (let k = 0; k < 3; ++k) {
    const v = seams.triangles[3 * t + k]!;
    const [x, y] = [seams.positions[3 * v]!, seams.positions[3 * v + 1]!];
    const [u, w] = t < 16 ? [x, y] : [5 + x, 5 + y];
    // The other triangle's coordinates: (0, 0) is (5, 5), (1, 1) is (6, 6), (0, 1) is (5, 6).
    assert.ok(Math.hypot(seams.texture[2 * v]! - u, seams.texture[2 * v + 1]! - w) < 1e-6, `${t} ${k}`);
  }
});
