import * as THREE from 'three';
import type { CapsuleObstacle, ObstacleSpec, PlaneObstacle, SphereObstacle } from '../../generated/palpate/v1/scene_pb';
import { dressed } from './looks';
import { plainTableMaterial, tableMaterial } from './stage';
import { toVector } from './vectors';

const OBSTACLE_COLOR = 0x3a4b57;
const UP = new THREE.Vector3(0, 0, 1);
/** Radii of the scene: how far a plane is drawn, and how far below the bodies a table is where the scene has no plane. */
const PLANE_EXTENT = 8;
const TABLE_DEPTH = 0.12;

/** The place of the bodies, for what is drawn around them. */
export interface Room {
  center: THREE.Vector3;
  radius_m: number;
  /** z of the lowest vertex. */
  bottom_m: number;
}

/** Obstacles as they are described, and a table where there is no plane to stand on. */
export function surroundings(obstacles: readonly ObstacleSpec[], room: Room): THREE.Mesh[] {
  const meshes = obstacles.flatMap(({ shape }) => {
    if (shape.case === 'plane') return plane(shape.value, room);
    if (shape.case === 'sphere') return sphere(shape.value);
    return shape.case === 'capsule' ? capsule(shape.value) : [];
  });
  if (obstacles.some(({ shape }) => shape.case === 'plane' && normalOf(shape.value).lengthSq() > 0)) return meshes;
  const below = new THREE.Vector3(room.center.x, room.center.y, room.bottom_m - TABLE_DEPTH * room.radius_m);
  return [...meshes, table(below, UP, room.radius_m * PLANE_EXTENT)];
}

function normalOf({ normal }: PlaneObstacle): THREE.Vector3 {
  return normal ? toVector(normal) : UP.clone();
}

function plane(shape: PlaneObstacle, { center, radius_m }: Room): THREE.Mesh[] {
  const normal = normalOf(shape);
  if (normal.lengthSq() === 0) return [];
  normal.normalize();
  const middle = center.clone();
  middle.addScaledVector(normal, -normal.dot(middle.clone().sub(toVector(shape.pointM))));
  return [table(middle, normal, radius_m * PLANE_EXTENT)];
}

function sphere({ centerM, radiusM }: SphereObstacle): THREE.Mesh[] {
  const mesh = solid(new THREE.SphereGeometry(radiusM, 48, 32));
  toVector(centerM, mesh.position);
  return [mesh];
}

function capsule({ end0M, end1M, radiusM }: CapsuleObstacle): THREE.Mesh[] {
  const [from, to] = [toVector(end0M), toVector(end1M)];
  const length_m = from.distanceTo(to);
  const mesh = solid(new THREE.CapsuleGeometry(radiusM, length_m, 16, 40));
  mesh.position.copy(from).lerp(to, 0.5);
  if (length_m > 0) mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 1, 0), to.sub(from).divideScalar(length_m));
  return [mesh];
}

function table(center: THREE.Vector3, normal: THREE.Vector3, extent_m: number): THREE.Mesh {
  const mesh = dressed(new THREE.CircleGeometry(extent_m, 96), tableMaterial(extent_m), plainTableMaterial(extent_m));
  mesh.position.copy(center);
  mesh.quaternion.setFromUnitVectors(UP, normal);
  mesh.receiveShadow = true;
  mesh.renderOrder = -1;
  return mesh;
}

function solid(geometry: THREE.BufferGeometry): THREE.Mesh {
  const lit = new THREE.MeshStandardMaterial({ color: OBSTACLE_COLOR, roughness: 0.6, metalness: 0.1 });
  const mesh = dressed(geometry, lit, new THREE.MeshLambertMaterial({ color: OBSTACLE_COLOR }));
  mesh.castShadow = true;
  mesh.receiveShadow = true;
  return mesh;
}
