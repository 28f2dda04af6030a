import assert from 'node:assert/strict';
import { test } from 'node:test';
import { icosphere } from '../dev/fake_server';
import { computeNormals } from '../src/view/normals';
import { uniqueEdges } from '../src/view/organ';
import { Refinement } from '../src/view/refine';

test('normals of a sphere point outward along the radius', () => {
  const { vertices, triangles } = icosphere(3);
  const positions = Float32Array.from(vertices.flat());
  const normals = new Float32Array(positions.length);
  computeNormals(positions, Uint32Array.from(triangles), normals);
  vertices.forEach((v, i) => {
    const cosine = v[0] * normals[3 * i]! + v[1] * normals[3 * i + 1]! + v[2] * normals[3 * i + 2]!;
    assert.ok(cosine > 0.999, `vertex ${i}: ${cosine}`);
  });
});

test('normals weigh triangles by area', () => {
  // A large triangle in z = 0 and a small one in x = 0 share vertex 0.
  const positions = Float32Array.from([0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0.1, 0, 0, 0, 0.1]);
  const normals = new Float32Array(15);
  computeNormals(positions, Uint32Array.from([0, 1, 2, 0, 3, 4]), normals);
  assert.ok(normals[2]! > 0.9999 && normals[0]! > 0 && normals[0]! < 0.001);
});

test('a vertex without area still has a unit normal', () => {
  const normals = new Float32Array(9);
  computeNormals(Float32Array.from([1, 1, 1, 1, 1, 1, 1, 1, 1]), Uint32Array.from([0, 1, 2]), normals);
  assert.deepEqual(Array.from(normals), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
});

test('every edge of a closed mesh appears once (Euler)', () => {
  const { vertices, triangles } = icosphere(2);
  const edges = uniqueEdges(Uint32Array.from(triangles));
  assert.equal(edges.length / 2, vertices.length + triangles.length / 3 - 2);
  const keys = new Set<string>();
  for (let i = 0; i < edges.length; i += 2) {
    assert.ok(edges[i]! < edges[i + 1]!);
    keys.add(`${edges[i]},${edges[i + 1]}`);
  }
  assert.equal(keys.size, edges.length / 2);
});

test('a refined mesh keeps its vertices and comes nearer to the sphere that it approximates', () => {
  const { vertices, triangles } = icosphere(1);
  const positions = Float32Array.from(vertices.flat());
  const normals = positions.slice();  // of a unit sphere
  const refinement = new Refinement(Uint32Array.from(triangles), vertices.length);
  const flat = new Float32Array(3 * refinement.vertexCount);
  const round = new Float32Array(3 * refinement.vertexCount);
  refinement.interpolate(positions, flat);
  refinement.refine(positions, normals, round);
  assert.equal(refinement.triangles.length, 4 * triangles.length);
  assert.equal(refinement.vertexCount - refinement.triangles.length / 6, 2);  // Euler, closed
  assert.deepEqual(Array.from(round.subarray(0, positions.length)), Array.from(positions));
  const error = (p: Float32Array) => {
    let worst = 0;
    for (let i = 0; i < p.length; i += 3) worst = Math.max(worst, Math.abs(1 - Math.hypot(p[i]!, p[i + 1]!, p[i + 2]!)));
    return worst;
  };
  assert.ok(error(flat) > 0.03 && error(round) < 0.1 * error(flat), `${error(flat)} -> ${error(round)}`);
});

test('refining a plane leaves it plane, and outward stays outward', () => {
  const triangles = Uint32Array.from([0, 1, 2, 2, 1, 3]);
  const positions = Float32Array.from([0, 0, 1, 1, 0, 1, 0, 1, 1, 1, 1, 1]);
  const normals = new Float32Array(12);
  computeNormals(positions, triangles, normals);
  const refinement = new Refinement(triangles, 4);
  const out = new Float32Array(3 * refinement.vertexCount);
  refinement.refine(positions, normals, out);
  for (let i = 2; i < out.length; i += 3) assert.equal(out[i], 1);
  const fine = new Float32Array(out.length);
  computeNormals(out, refinement.triangles, fine);
  for (let i = 2; i < fine.length; i += 3) assert.equal(fine[i], 1);
});
