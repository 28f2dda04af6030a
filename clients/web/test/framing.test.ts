import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as THREE from 'three';
import { framingDistance, framingSphere } from '../src/view/framing';
import { DEFAULT_VIEW_OPTIONS } from '../src/view/view_options';

const organs = () => new THREE.Box3(new THREE.Vector3(-0.1, -0.05, 0), new THREE.Vector3(0.1, 0.05, 0.06));
const up = new THREE.Vector3(0, 0, 1);

test('without instruments the picture is that of the organs', () => {
  const sphere = framingSphere(organs(), []);
  assert.ok(sphere.center.distanceTo(new THREE.Vector3(0, 0, 0.03)) < 1e-12);
  assert.ok(Math.abs(sphere.radius - Math.hypot(0.1, 0.05, 0.03)) < 1e-12);
});

test('tips and a part of the shafts are in the picture', () => {
  const tip = new THREE.Vector3(0.05, 0.2, 0.15);
  const sphere = framingSphere(organs(), [{ tip, axis: up, length_m: 0.3 }]);
  assert.ok(sphere.containsPoint(tip));
  assert.ok(sphere.containsPoint(tip.clone().addScaledVector(up, 0.05)));
  assert.ok(sphere.radius < 0.3, `${sphere.radius}`);
});

test('an instrument that is far off, or nowhere, does not shrink the organs to a dot', () => {
  const { radius } = organs().getBoundingSphere(new THREE.Sphere());
  for (const tip of [new THREE.Vector3(0, 0, 1e6), new THREE.Vector3(-40, 3, 0), new THREE.Vector3(NaN, 0, 0), new THREE.Vector3(Infinity, 0, 0)]) {
    const sphere = framingSphere(organs(), [{ tip, axis: up, length_m: 0.3 }]);
    assert.ok(sphere.radius <= 3 * radius && sphere.radius >= radius * (1 - 1e-12), `${tip.toArray()}: ${sphere.radius}`);
    assert.ok(organs().distanceToPoint(sphere.center) < sphere.radius);
  }
});

test('a whole sphere is in view, on a phone held upright too', () => {
  const centre = new THREE.Vector3();
  for (const aspect of [390 / 844, 1, 1400 / 900]) {
    const camera = new THREE.PerspectiveCamera(36, aspect, 0.001, 10);
    camera.position.set(0, 0, framingDistance(0.1, THREE.MathUtils.degToRad(36), aspect));
    camera.updateMatrixWorld();
    for (let i = 0; i < 64; ++i) {
      const angle = (2 * Math.PI * i) / 64;
      const at = new THREE.Vector3(Math.cos(angle), Math.sin(angle), 0).multiplyScalar(0.0999).add(centre).project(camera);
      assert.ok(Math.abs(at.x) <= 1 && Math.abs(at.y) <= 1, `${aspect}: ${at.toArray()}`);
    }
  }
});

test('marks of contacts are for those who debug: off until asked for', () => {
  assert.equal(DEFAULT_VIEW_OPTIONS.contacts, false);
  assert.equal(DEFAULT_VIEW_OPTIONS.normals, false);
  assert.equal(DEFAULT_VIEW_OPTIONS.forces, true);
});
