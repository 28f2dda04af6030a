import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as THREE from 'three';
import { sectionOf } from '../src/ui/see_through';
import { pickSurface } from '../src/view/pick';
import type { Organ } from '../src/view/organ';

test('a section takes the share of the box that is asked for, from the side that it is named after', () => {
  const box = new THREE.Box3(new THREE.Vector3(-1, 0, 2), new THREE.Vector3(3, 1, 4));
  for (const share of [0, 0.25, 1]) {
    const section = sectionOf(box, new THREE.Vector3(-1, 0, 0), share);
    assert.ok(Math.abs(section.distanceToPoint(new THREE.Vector3(3 - 4 * share, 7, 7))) < 1e-12);
    assert.ok(section.distanceToPoint(new THREE.Vector3(-10, 0, 0)) > 0);
  }
});

test('the mouse passes through what a section takes away', () => {
  // Two triangles over each other, both facing up.
  const positions = Float32Array.from([-1, -1, 1, 1, -1, 1, 0, 1, 1, -1, -1, 0, 1, -1, 0, 0, 1, 0]);
  const organ = {
    name: 'sheets', positions, surface: { triangles: Uint32Array.from([0, 1, 2, 3, 4, 5]), slotCount: 2 },
    cornerNormal: (_slot: number, _corner: number, out: THREE.Vector3) => out.set(0, 0, 1),
  } as unknown as Organ;
  const down = new THREE.Ray(new THREE.Vector3(0, 0, 5), new THREE.Vector3(0, 0, -1));
  const keeping = (z: number, up: number) => new THREE.Plane().setFromNormalAndCoplanarPoint(new THREE.Vector3(0, 0, up), new THREE.Vector3(0, 0, z));
  assert.equal(pickSurface(down, [organ])?.point.z, 1);
  assert.equal(pickSurface(down, [organ], keeping(0.5, -1))?.point.z, 0);
  assert.equal(pickSurface(down, [organ], keeping(0.5, 1))?.point.z, 1);
  assert.equal(pickSurface(down, [organ], keeping(-0.5, -1)), undefined);
  assert.equal(pickSurface(down, [organ], keeping(1.5, 1)), undefined);
});
