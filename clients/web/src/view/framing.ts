import * as THREE from 'three';

/** What the camera has to know of an instrument. */
export interface FramedTool {
  tip: THREE.Vector3;
  /** Unit, from the tip up the shaft. */
  axis: THREE.Vector3;
  length_m: number;
}

/** Of a shaft, as much as this share of the organs' radius is in the picture: enough to see what holds the tip and where it comes from. */
const SHAFT_SHARE = 0.8;
/** Instruments widen the picture up to this many radii of the organs around their centre; what is farther off is parked, not at work. */
const MAX_REACH = 3;

/** A sphere around the organs, the tips of the instruments and a useful length of their shafts. `organs` is not empty and stays as it is. */
export function framingSphere(organs: THREE.Box3, tools: FramedTool[]): THREE.Sphere {
  const around = organs.getBoundingSphere(new THREE.Sphere());
  const radius_m = Math.max(around.radius, 1e-3);
  const box = organs.clone();
  for (const { tip, axis, length_m } of tools) {
    for (const along_m of [0, Math.min(length_m, SHAFT_SHARE * radius_m)]) {
      const place = tip.clone().addScaledVector(axis, along_m).sub(around.center);
      if (!Number.isFinite(place.lengthSq())) continue;
      box.expandByPoint(place.clampLength(0, MAX_REACH * radius_m).add(around.center));
    }
  }
  return box.getBoundingSphere(around);
}

/** How far from its centre a camera has to be to see a whole sphere. `fov_rad`: of the height; `aspect`: width over height of what is not covered. */
export function framingDistance(radius_m: number, fov_rad: number, aspect: number): number {
  return radius_m / Math.sin(Math.atan(Math.tan(fov_rad / 2) * Math.min(1, aspect)));
}
