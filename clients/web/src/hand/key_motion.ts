import * as THREE from 'three';
import type { ToolHand } from '../view/tool_hand';

/** Radii of the scene a second, and radians a second. */
const SPEED = 0.55;
const TURN_RAD_PER_S = 1.2;

/** The keys that are down, and how they move the tool in the hand: along the view, across it, and about its axes. */
export class KeyMotion {
  private readonly pressed = new Set<string>();

  /** `key`: lower case, as KeyboardEvent.key names it. */
  set(key: string, down: boolean): void {
    if (down) this.pressed.add(key);
    else this.pressed.delete(key);
  }

  clear(): void {
    this.pressed.clear();
  }

  /** `radius_m`: of the scene. */
  move(hand: ToolHand, camera: THREE.Camera, radius_m: number, elapsed_s: number): void {
    if (this.pressed.size === 0) return;
    const speed = radius_m * SPEED * (this.pressed.has('shift') ? 0.25 : 1) * elapsed_s;
    const forward = camera.getWorldDirection(new THREE.Vector3());
    const side = new THREE.Vector3().crossVectors(forward, camera.up).normalize();
    const up = new THREE.Vector3().crossVectors(side, forward);
    const way = new THREE.Vector3()
      .addScaledVector(forward, this.axis('w', 's') * speed)
      .addScaledVector(side, this.axis('arrowright', 'arrowleft') * speed)
      .addScaledVector(up, this.axis('arrowup', 'arrowdown') * speed);
    if (way.lengthSq() > 0) hand.move(way);
    const turn = this.axis('e', 'q') * TURN_RAD_PER_S * elapsed_s;
    if (turn !== 0) hand.rotate(new THREE.Quaternion().setFromAxisAngle(forward, turn));
    const tilt = this.axis('d', 'a') * TURN_RAD_PER_S * elapsed_s;
    if (tilt !== 0) hand.rotate(new THREE.Quaternion().setFromAxisAngle(up, tilt));
  }

  private axis(plus: string, minus: string): number {
    return (this.pressed.has(plus) ? 1 : 0) - (this.pressed.has(minus) ? 1 : 0);
  }
}
