import * as THREE from 'three';

export interface HandPose {
  position: THREE.Vector3;
  rotation: THREE.Quaternion;
}

/** Sends no more than so many poses a second. */
const MIN_INTERVAL_MS = 1000 / 90;
/** A hand at rest says so again after this time: the server lets commands expire (ToolSpec.energy_hold_s), so that a page that hangs does not go on burning. */
export const REPEAT_INTERVAL_MS = 40;

/**
 * The mouse as a hand: where the held tool should be. Dragging moves it in the plane through its tip that faces the camera; pushing moves it along the
 * view. The owner calls `tick` with each picture, and between slow pictures, and sends what it returns.
 */
export class ToolHand {
  readonly pose: HandPose = { position: new THREE.Vector3(), rotation: new THREE.Quaternion() };
  private readonly plane = new THREE.Plane();
  private readonly grabPoint = new THREE.Vector3();
  private readonly grabPosition = new THREE.Vector3();
  private readonly ray = new THREE.Raycaster();
  private readonly hit = new THREE.Vector3();
  private readonly lastSent = new THREE.Vector3();
  private readonly velocity = new THREE.Vector3();
  private lastSentMs = 0;
  private dirty = true;
  dragging = false;

  constructor(start: HandPose) {
    this.pose.position.copy(start.position);
    this.pose.rotation.copy(start.rotation);
    this.lastSent.copy(start.position);
  }

  beginDrag(pointer: THREE.Vector2, camera: THREE.Camera): void {
    camera.getWorldDirection(this.hit);
    this.plane.setFromNormalAndCoplanarPoint(this.hit, this.pose.position);
    this.dragging = this.castOnto(pointer, camera, this.grabPoint);
    this.grabPosition.copy(this.pose.position);
  }

  drag(pointer: THREE.Vector2, camera: THREE.Camera): void {
    if (!this.dragging || !this.castOnto(pointer, camera, this.hit)) return;
    this.pose.position.copy(this.grabPosition).add(this.hit).sub(this.grabPoint);
    this.dirty = true;
  }

  endDrag(): void {
    this.dragging = false;
  }

  /** Moves by `offset_m` in W, during a drag too. */
  move(offset_m: THREE.Vector3): void {
    this.pose.position.add(offset_m);
    this.grabPosition.add(offset_m);
    this.grabPoint.add(offset_m);
    this.plane.constant -= this.plane.normal.dot(offset_m);
    this.dirty = true;
  }

  rotate(by: THREE.Quaternion): void {
    this.pose.rotation.premultiply(by).normalize();
    this.dirty = true;
  }

  /** What goes with the pose has changed. */
  touch(): void {
    this.dirty = true;
  }

  /** The velocity to send with the pose (m/s in W), or undefined if nothing is due. A hand at rest repeats itself, with velocity zero. */
  tick(nowMs: number): THREE.Vector3 | undefined {
    const elapsed = nowMs - this.lastSentMs;
    if (elapsed < MIN_INTERVAL_MS || (!this.dirty && this.velocity.lengthSq() === 0 && elapsed < REPEAT_INTERVAL_MS)) return undefined;
    if (this.dirty && this.lastSentMs > 0) {
      // A long pause says nothing about how fast the hand moves now.
      this.velocity.copy(this.pose.position).sub(this.lastSent).divideScalar(Math.min(elapsed, 50) / 1000).clampLength(0, 2);
    } else {
      this.velocity.set(0, 0, 0);
    }
    this.dirty = false;
    this.lastSent.copy(this.pose.position);
    this.lastSentMs = nowMs;
    return this.velocity;
  }

  private castOnto(pointer: THREE.Vector2, camera: THREE.Camera, out: THREE.Vector3): boolean {
    this.ray.setFromCamera(pointer, camera);
    return this.ray.ray.intersectPlane(this.plane, out) !== null;
  }
}
