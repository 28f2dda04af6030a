import assert from 'node:assert/strict';
import { test } from 'node:test';
import { icosphere } from '../dev/fake_server';
import { computeNormals } from '../src/view/normals';
import { uniqueEdges } from '../src/view/organ';

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
