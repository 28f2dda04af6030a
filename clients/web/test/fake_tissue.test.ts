import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FakeTissue } from '../dev/fake_tissue';
import { add, cross, dot, length, nearestOnTriangle, scale, subtract, type Vector } from '../dev/vectors';
import { random } from './random';

const SIZE_M = 0.05;
const ball = () => FakeTissue.ball('ball', 5, (v) => [SIZE_M * v[0], SIZE_M * v[1], 0.06 + SIZE_M * v[2]], () => 0);

test('the nearest place of a triangle is on it, and nothing of it is nearer', () => {
  const below = random(5);
  const point = () => [0, 0, 0].map(() => below(2001) / 1000 - 1) as Vector;
  for (let i = 0; i < 300; ++i) {
    const p = point(), corners = [point(), point(), point()] as const;
    if (length(cross(subtract(corners[1], corners[0]), subtract(corners[2], corners[0]))) < 0.05) continue;
    const at = (w: Vector) => add(add(scale(corners[0], w[0]), scale(corners[1], w[1])), scale(corners[2], w[2]));
    const weights = nearestOnTriangle(p, ...corners);
    assert.ok(weights.every((w) => w >= 0) && Math.abs(weights[0] + weights[1] + weights[2] - 1) < 1e-9);
    const least = length(subtract(at(weights), p));
    for (let u = 0; u <= 20; ++u) for (let v = 0; u + v <= 20; ++v) {
      assert.ok(length(subtract(at([1 - (u + v) / 20, u / 20, v / 20]), p)) > least - 1e-9);
    }
  }
});

test('a tool smaller than a triangle does not slip through it', () => {
  const tissue = ball();
  const radius_m = 0.004;
  // Down in the middle of a face of the surface, away from all vertices.
  const { triangles } = tissue;
  const topmost = (() => {
    let best: { center: Vector; normal: Vector } | undefined;
    const slots = tissue.encode(0).positions;
    const view = new DataView(slots.buffer);
    for (let t = 0; t < triangles.length; t += 3) {
      const [a, b, c] = [0, 1, 2].map((k) => [0, 4, 8].map((o) => view.getFloat32(12 * triangles[t + k]! + o, true)) as Vector) as [Vector, Vector, Vector];
      const center = scale(add(add(a, b), c), 1 / 3);
      const normal = cross(subtract(b, a), subtract(c, a));
      if (!best || center[2] > best.center[2]) best = { center, normal: scale(normal, 1 / length(normal)) };
    }
    return best!;
  })();
  let pushed_m = 0;
  for (let step = 0; step <= 40; ++step) {
    const tip = add(topmost.center, scale(topmost.normal, radius_m - 0.0003 * step));
    const contacts = tissue.pushOut(tip, add(tip, scale(topmost.normal, 0.1)), radius_m);
    if (step > 0) {
      assert.ok(contacts.length > 0, `nothing touched at step ${step}`);
      for (const { normal, depth_m } of contacts) assert.ok(depth_m > 0 && dot(normal, topmost.normal) < 0.5);
    }
    pushed_m = Math.max(pushed_m, ...contacts.map(({ offset_m }) => offset_m));
  }
  assert.ok(pushed_m > 0.008, `${pushed_m}`);
  assert.equal(tissue.pushOut([0, 0, 0.2], [0, 0, 0.3], radius_m).length, 0);
});
