import * as THREE from 'three';
import type { Pose, Vec3 } from '../../generated/palpate/v1/scene_pb';

/** Nothing is the origin. */
export function toVector(v: Vec3 | undefined, out = new THREE.Vector3()): THREE.Vector3 {
  return v ? out.set(v.x, v.y, v.z) : out.set(0, 0, 0);
}

export function applyPose(pose: Pose | undefined, object: THREE.Object3D): void {
  toVector(pose?.positionM, object.position);
  const q = pose?.rotation;
  if (q) object.quaternion.set(q.x, q.y, q.z, q.w).normalize();
  else object.quaternion.identity();
}
