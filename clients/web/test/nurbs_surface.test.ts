import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { NurbsObjectSchema, NurbsPatchSchema, type NurbsPatch } from '../generated/palpate/v1/nurbs_pb';
import { PoseSchema } from '../generated/palpate/v1/scene_pb';
import { BodyFrameSchema, BodyTopologySchema, PositionEncoding } from '../generated/palpate/v1/stream_pb';
import { SurfaceMirror } from '../src/net/surface_mirror';
import { NurbsOrgan, problemOf } from '../src/view/nurbs_organ';
import { domainOf, loopPoints, NurbsEvaluator, seemClosed, tessellate } from '../src/view/nurbs_surface';

const RADIUS_M = 0.05;
const QUARTER = [0, 0, 0, 1, 1, 1];

/** An octant of a ball, with a pole at the end of v. */
function octant(): NurbsPatch {
  const r = RADIUS_M, h = Math.SQRT1_2;
  const rows = [[r, 0], [r, r], [0, r]] as const;
  const around = [[1, 0], [1, 1], [0, 1]] as const;
  return create(NurbsPatchSchema, {
    degreeU: 2, degreeV: 2, knotsU: QUARTER, knotsV: QUARTER,
    controlM: around.flatMap(([x, y]) => rows.flatMap(([d, z]) => [d * x, d * y, z])),
    weights: [1, h, 1, h, h * h, h, 1, h, 1],
  });
}

/** A sheet of degree 3 x 1 with a knot inside, bent. */
function sheet(): NurbsPatch {
  return create(NurbsPatchSchema, {
    degreeU: 3, degreeV: 1, knotsU: [0, 0, 0, 0, 2, 5, 5, 5, 5], knotsV: [0, 0, 1, 1],
    controlM: [0, 1, 2, 3, 4].flatMap((i) => [0, 1].flatMap((j) => [0.02 * i, 0.03 * j, 0.004 * ((i * i) % 5)])),
  });
}

test('points of an octant are on the ball, with its normals, the pole included', () => {
  const surface = new NurbsEvaluator(octant());
  for (const u of [0, 0.2, 0.5, 1]) {
    for (const v of [0, 0.3, 0.9, 1]) {
      surface.at(u, v);
      assert.ok(Math.abs(Math.hypot(...surface.point) - RADIUS_M) < 1e-15);
      const along = surface.normal.reduce((sum, n, k) => sum + (n * surface.point[k]!) / RADIUS_M, 0);
      assert.ok(along > 1 - 1e-6, `normal at ${u}, ${v}: ${[...surface.normal]}`);
    }
  }
});

test('derivatives are those of finite differences, also across a knot', () => {
  const surface = new NurbsEvaluator(sheet());
  const at = (u: number, v: number) => {
    surface.at(u, v);
    return surface.point.slice();
  };
  for (const u of [0.4, 1.9, 2, 2.1, 4.7]) {
    const h = 1e-5;
    const du = at(u + h, 0.3).map((x, k) => (x - at(u - h, 0.3)[k]!) / (2 * h));
    const dv = at(u, 0.3 + h).map((x, k) => (x - at(u, 0.3 - h)[k]!) / (2 * h));
    const cross = [du[1]! * dv[2]! - du[2]! * dv[1]!, du[2]! * dv[0]! - du[0]! * dv[2]!, du[0]! * dv[1]! - du[1]! * dv[0]!];
    const length = Math.hypot(...cross);
    surface.at(u, 0.3);
    for (let k = 0; k < 3; ++k) assert.ok(Math.abs(surface.normal[k]! - cross[k]! / length) < 1e-6);
  }
});

test('triangles are as near as asked and no finer than four times that', () => {
  for (const tolerance_m of [1e-3, 1e-4, 1e-5]) {
    const mesh = tessellate(octant(), tolerance_m);
    let farthest_m = 0;
    for (let t = 0; t < mesh.triangles.length; t += 3) {
      const corners = [...mesh.triangles.subarray(t, t + 3)].map((v) => new THREE.Vector3().fromArray(mesh.positions, 3 * v));
      const middle = corners[0]!.clone().add(corners[1]!).add(corners[2]!).divideScalar(3);
      farthest_m = Math.max(farthest_m, Math.abs(middle.length() - RADIUS_M));
    }
    // A triangle sags in both directions, by as much as asked in each.
    assert.ok(farthest_m < 2 * tolerance_m, `${farthest_m} of ${tolerance_m}`);
    assert.ok(farthest_m > tolerance_m / 8, `${farthest_m} of ${tolerance_m}`);
  }
});

test('a trimmed patch is drawn where its loops are', () => {
  const square = create(NurbsPatchSchema, {
    degreeU: 1, degreeV: 1, knotsU: [0, 0, 1, 1], knotsV: [0, 0, 1, 1], controlM: [0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0],
    loops: [{ curves: [
      { degree: 1, knots: [0, 0, 1, 2, 3, 3], points: [0.25, 0.5, 0.25, 0.25, 0.5, 0.25, 0.5, 0.5], isReversed: false },
      { degree: 1, knots: [0, 0, 1, 1], points: [0.25, 0.5, 0.5, 0.5], isReversed: true },
    ] }],
  });
  assert.deepEqual(domainOf(square), [0.25, 0.5, 0.25, 0.5]);
  assert.deepEqual(loopPoints(square.loops[0]!.curves), [[0.25, 0.5], [0.25, 0.25], [0.5, 0.25], [0.5, 0.5]]);
  const mesh = tessellate(square, 1e-3);
  assert.equal(mesh.triangles.length, 6);
  assert.deepEqual([...mesh.positions.subarray(0, 3)], [0.25, 0.25, 0]);
});

test('a body follows its pose, and its triangles the camera', () => {
  const body = create(BodyTopologySchema, { name: 'ball', nurbs: { object: create(NurbsObjectSchema, { version: 1, patches: [octant()] }), toleranceM: 1e-3 } });
  assert.equal(problemOf(body), undefined);
  const surface = SurfaceMirror.of(body);
  assert.ok(surface instanceof SurfaceMirror);
  const organ = new NurbsOrgan(surface, [{ name: 'skin', color: new THREE.Color(1, 0, 0), isInterior: false }, { name: 'inside', color: new THREE.Color(1, 0, 0), isInterior: true }], body.nurbs!);
  const pose = create(PoseSchema, { positionM: { x: 1, y: 0, z: 0 }, rotation: { w: Math.SQRT1_2, x: 0, y: 0, z: Math.SQRT1_2 } });
  assert.equal(organ.place(create(BodyFrameSchema, { pose }), PositionEncoding.FLOAT32), undefined);
  assert.notEqual(organ.place(create(BodyFrameSchema), PositionEncoding.FLOAT32), undefined);
  const camera = new THREE.PerspectiveCamera(36, 1, 0.01, 100);
  camera.position.set(1, 0, 2);
  organ.follow(camera, 800, false);
  const far = organ.triangleCount;
  assert.ok(far > 0);
  for (let i = 0, drawn = organ.drawnPositions(); i < drawn.length; i += 3) {
    assert.ok(Math.abs(Math.hypot(drawn[i]! - 1, drawn[i + 1]!, drawn[i + 2]!) - RADIUS_M) < 1e-7);
    assert.ok(drawn[i]! < 1 + 1e-7, 'turned by a quarter about z');
  }
  camera.position.set(1, 0, 1.9);
  organ.follow(camera, 800, false);
  assert.equal(organ.triangleCount, far, 'a little nearer changes nothing');
  camera.position.set(1, 0, 0.15);
  organ.follow(camera, 800, false);
  assert.ok(organ.triangleCount > 2 * far, `${organ.triangleCount} near, ${far} far away`);
});

test('a wrong surface is refused with its patch', () => {
  const patch = octant();
  patch.weights.pop();
  const body = create(BodyTopologySchema, { name: 'ball', nurbs: { object: create(NurbsObjectSchema, { patches: [octant(), patch] }) } });
  assert.match(problemOf(body)!, /body 'ball': patch 1: 8 weights of 9/);
  body.nurbs!.object!.patches = [];
  assert.match(problemOf(body)!, /without patches/);
});

test('area vectors tell what is closed', () => {
  // The octant's mirror images in three planes, turned so that all face outwards.
  const mirrored = (sx: number, sy: number, sz: number): NurbsPatch => {
    const patch = octant();
    patch.controlM = patch.controlM.map((x, i) => x * [sx, sy, sz][i % 3]!);
    if (sx * sy * sz < 0) {
      const rows = [0, 1, 2].map((i) => patch.controlM.slice(9 * i, 9 * i + 9)).reverse();
      patch.controlM = rows.flat();
      patch.weights = [2, 1, 0].flatMap((i) => patch.weights.slice(3 * i, 3 * i + 3));
    }
    return patch;
  };
  const signs = [1, -1];
  const ball = signs.flatMap((x) => signs.flatMap((y) => signs.map((z) => mirrored(x, y, z))));
  assert.ok(seemClosed(ball, 0.1));
  assert.ok(!seemClosed(ball.slice(1), 0.1));
  // A trimmed face of a cube counts for what is left of it.
  const whole = { degreeU: 1, degreeV: 1, knotsU: [0, 0, 1, 1], knotsV: [0, 0, 1, 1] };
  const square = create(NurbsPatchSchema, { ...whole, controlM: [0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 0] });
  const back = [1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 0];
  assert.ok(seemClosed([square, create(NurbsPatchSchema, { ...whole, controlM: back })], 1));
  const curves = [{ degree: 1, knots: [0, 0, 1, 2, 3, 4, 4], points: [0, 0, 0.5, 0, 0.5, 1, 0, 1, 0, 0] }];
  const half = create(NurbsPatchSchema, { ...whole, controlM: back, loops: [{ curves }] });
  assert.ok(!seemClosed([square, half], 1));
});

test('a body that deforms follows its control points, with their normals', () => {
  const patch = octant();
  const body = create(BodyTopologySchema, {
    name: 'wall', nurbs: { object: create(NurbsObjectSchema, { version: 1, patches: [patch] }), toleranceM: 1e-3, isDeformable: true },
  });
  const surface = SurfaceMirror.of(body);
  assert.ok(surface instanceof SurfaceMirror);
  const skin = { name: 'skin', color: new THREE.Color(1, 0, 0), isInterior: false };
  const organ = new NurbsOrgan(surface, [skin, { ...skin, name: 'inside', isInterior: true }], body.nurbs!);
  const frameOf = (map: (p: number[]) => number[]) => {
    const control = new Float32Array(patch.controlM.length);
    for (let i = 0; i < control.length; i += 3) control.set(map([...patch.controlM.slice(i, i + 3)]), i);
    return create(BodyFrameSchema, { positions: new Uint8Array(control.buffer) });
  };
  const camera = new THREE.PerspectiveCamera(36, 1, 0.01, 100);
  camera.position.set(1, 0, 2);
  assert.equal(organ.place(frameOf((p) => p), PositionEncoding.FLOAT32), undefined);
  organ.follow(camera, 800, false);
  // An affine map of the control points is one of the surface: an ellipsoid about another place.
  assert.equal(organ.place(frameOf(([x, y, z]) => [2 * x! + 1, y!, 3 * z!]), PositionEncoding.FLOAT32), undefined);
  const drawn = organ.drawnPositions();
  assert.ok(drawn.length > 0);
  const mesh = organ.group.children[0] as THREE.Mesh;
  const normals = mesh.geometry.attributes.normal as THREE.BufferAttribute;
  for (let i = 0; i < drawn.length; i += 3) {
    const [x, y, z] = [(drawn[i]! - 1) / 2, drawn[i + 1]!, drawn[i + 2]! / 3];
    assert.ok(Math.abs(Math.hypot(x, y, z) - RADIUS_M) < 1e-6, `vertex ${i / 3}`);
    const wanted = new THREE.Vector3(x / 2, y, z / 3).normalize();
    const normal = new THREE.Vector3().fromBufferAttribute(normals, i / 3);
    assert.ok(Math.abs(normal.dot(wanted)) > 1 - 1e-5, `normal ${i / 3}`);
  }
  assert.notEqual(organ.place(create(BodyFrameSchema, { positions: new Uint8Array(5) }), PositionEncoding.FLOAT32), undefined);
});
