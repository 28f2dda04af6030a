import * as THREE from 'three';
import type { SurfaceHit } from '../surgery/strokes';
import type { Organ } from './organ';

export interface TriangleHit {
  slot: number;
  /** Along the ray, in units of its direction. */
  t: number;
  /** Weights of the second and the third corner. */
  u: number;
  v: number;
}

/** The first triangle that the ray meets from outside (Moeller and Trumbore). Free slots are never met. */
export function firstTriangle(origin: THREE.Vector3, direction: THREE.Vector3, positions: Float32Array, triangles: Uint32Array, slotCount: number): TriangleHit | undefined {
  let best: TriangleHit | undefined;
  const { x: ox, y: oy, z: oz } = origin;
  const { x: dx, y: dy, z: dz } = direction;
  for (let slot = 0; slot < slotCount; ++slot) {
    const a = 3 * triangles[3 * slot]!, b = 3 * triangles[3 * slot + 1]!, c = 3 * triangles[3 * slot + 2]!;
    const ax = positions[a]!, ay = positions[a + 1]!, az = positions[a + 2]!;
    const ux = positions[b]! - ax, uy = positions[b + 1]! - ay, uz = positions[b + 2]! - az;
    const vx = positions[c]! - ax, vy = positions[c + 1]! - ay, vz = positions[c + 2]! - az;
    const px = dy * vz - dz * vy, py = dz * vx - dx * vz, pz = dx * vy - dy * vx;
    const det = ux * px + uy * py + uz * pz;
    if (!(det > 0)) continue;  // seen from inside, edge on, or no triangle
    const sx = ox - ax, sy = oy - ay, sz = oz - az;
    const u = sx * px + sy * py + sz * pz;
    if (u < 0 || u > det) continue;
    const qx = sy * uz - sz * uy, qy = sz * ux - sx * uz, qz = sx * uy - sy * ux;
    const v = dx * qx + dy * qy + dz * qz;
    if (v < 0 || u + v > det) continue;
    const t = (vx * qx + vy * qy + vz * qz) / det;
    if (t > 0 && t < (best?.t ?? Infinity)) best = { slot, t, u: u / det, v: v / det };
  }
  return best;
}

/** The ray from where it enters the side that is drawn; undefined: it never does. */
function shownPart(ray: THREE.Ray, section: THREE.Plane): THREE.Ray | undefined {
  if (section.distanceToPoint(ray.origin) >= 0) return ray;
  const origin = ray.intersectPlane(section, new THREE.Vector3());
  return origin ? new THREE.Ray(origin, ray.direction) : undefined;
}

/** Where the ray meets the nearest body, on the mesh of the simulation rather than the rounder one that is drawn: edits are about that one. */
export function pickSurface(fullRay: THREE.Ray, organs: Organ[], section?: THREE.Plane): SurfaceHit | undefined {
  const ray = section ? shownPart(fullRay, section) : fullRay;
  if (!ray) return undefined;
  let best: { hit: TriangleHit; organIndex: number } | undefined;
  for (const [organIndex, organ] of organs.entries()) {
    const hit = firstTriangle(ray.origin, ray.direction, organ.positions, organ.surface.triangles, organ.surface.slotCount);
    if (hit && hit.t < (best?.hit.t ?? Infinity)) best = { hit, organIndex };
  }
  if (!best) return undefined;
  const { hit: { slot, t, u, v }, organIndex } = best;
  if (section && section.distanceToPoint(ray.at(t, new THREE.Vector3())) < 0) return undefined;
  const organ = organs[organIndex]!;
  const corner = new THREE.Vector3();
  const normal = new THREE.Vector3();
  for (const [index, weight] of [1 - u - v, u, v].entries()) normal.addScaledVector(organ.cornerNormal(slot, index, corner), weight);
  return { body: organ.name, organIndex, point: ray.at(t, new THREE.Vector3()), normal: normal.normalize() };
}
