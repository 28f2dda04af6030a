import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { ObstacleSpecSchema } from '../generated/palpate/v1/scene_pb';
import { surroundings } from '../src/view/surroundings';

const ROOM = { center: new THREE.Vector3(1, 2, 3), radius_m: 0.5, bottom_m: 2.5 };
const around = (...shapes: MessageInitShape<typeof ObstacleSpecSchema>['shape'][]) =>
  surroundings(shapes.map((shape) => create(ObstacleSpecSchema, { shape })), ROOM);
const up = (mesh: THREE.Mesh) => new THREE.Vector3(0, 0, 1).applyQuaternion(mesh.quaternion);
const near = (a: THREE.Vector3, x: number, y: number, z: number) =>
  assert.ok(a.distanceTo(new THREE.Vector3(x, y, z)) < 1e-6, `${a.toArray()}`);

test('a plane is drawn under the middle of the scene, as it leans', () => {
  const [table, ...others] = around({ case: 'plane', value: { pointM: { x: 0, y: 0, z: 1 }, normal: { x: 0, y: 0, z: 2 } } });
  assert.equal(others.length, 0);
  near(table!.position, 1, 2, 1);
  near(up(table!), 0, 0, 1);
  const [wall] = around({ case: 'plane', value: { pointM: { x: 4, y: 0, z: 0 }, normal: { x: -1, y: 0, z: 0 } } });
  near(wall!.position, 4, 2, 3);
  near(up(wall!), -1, 0, 0);
});

test('a scene without a plane stands over a table', () => {
  const [ball, table, ...others] = around({ case: 'sphere', value: { centerM: { x: 5, y: 0, z: 0 }, radiusM: 0.1 } });
  assert.equal(others.length, 0);
  near(ball!.position, 5, 0, 0);
  near(table!.position, 1, 2, 2.44);
  assert.equal(around().length, 1);
  assert.equal(around({ case: 'plane', value: { normal: { x: 0, y: 0, z: 0 } } }).length, 1, 'a plane that faces nowhere is none');
});

test('a capsule lies between its ends, also where they are one', () => {
  const [capsule] = around({ case: 'capsule', value: { end0M: { x: 0, y: 0, z: 0 }, end1M: { x: 0, y: 0, z: 2 }, radiusM: 0.1 } });
  near(capsule!.position, 0, 0, 1);
  near(new THREE.Vector3(0, 1, 0).applyQuaternion(capsule!.quaternion), 0, 0, 1);
  const bounds = new THREE.Box3().setFromObject(capsule!);
  assert.ok(Math.abs(bounds.min.z + 0.1) < 1e-6 && Math.abs(bounds.max.z - 2.1) < 1e-6);
  const end = { x: 1, y: 1, z: 1 };
  const [ball] = around({ case: 'capsule', value: { end0M: end, end1M: end, radiusM: 0.1 } });
  near(ball!.position, 1, 1, 1);
  assert.ok(ball!.quaternion.toArray().every(Number.isFinite));
});
