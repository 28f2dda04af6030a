import * as THREE from 'three';
import type { Vec3 } from '../../generated/palpate/v1/scene_pb';
import type { MarkerInfo, MarkerState } from '../../generated/palpate/v1/stream_pb';

export const MARKER_COLOR = 0x4fd1ff;
export const RELEASED_COLOR = 0x8b98a0;
/** More names than this would cover the picture: then only that of the marker under the pointer is shown. */
export const MAX_NAMES = 12;
const HOVER_PX = 14;

/** Which marker is named: all, or the nearest to the pointer. `at`: of each marker on the screen, in pixels. */
export function namedMarkers(at: [number, number][], pointer: [number, number] | undefined): number[] {
  if (at.length <= MAX_NAMES) return at.map((_, index) => index);
  if (!pointer) return [];
  let nearest = -1;
  let least = HOVER_PX;
  for (const [index, [x, y]] of at.entries()) {
    const distance = Math.hypot(x - pointer[0], y - pointer[1]);
    if (distance >= least) continue;
    least = distance;
    nearest = index;
  }
  return nearest < 0 ? [] : [nearest];
}

const LINE_PX = 15;
const CHARACTER_PX = 7;

/** How far each name goes up or down, in pixels, so that none lies over another: as little as possible, the first ones least. `at`: where they begin. */
export function spreadNames(at: [number, number][], names: string[]): number[] {
  const placed: { left: number; right: number; y: number }[] = [];
  return at.map(([x, y], index) => {
    const right = x + CHARACTER_PX * names[index]!.length;
    const isFree = (shift: number) => placed.every((other) => right <= other.left || x >= other.right || Math.abs(y + shift - other.y) >= LINE_PX);
    // Places beside a name that lies there already, and the own one.
    const shifts = [0, ...placed.flatMap((other) => [other.y - LINE_PX - y, other.y + LINE_PX - y])];
    const shift = shifts.sort((a, b) => Math.abs(a) - Math.abs(b)).find(isFree) ?? 0;
    placed.push({ left: x, right, y: y + shift });
    return shift;
  });
}

/** Points that ride in the tissue, as small balls that are seen through it; grey once their tissue is gone. */
export class MarkerLayer {
  readonly group = new THREE.Group();
  private balls?: THREE.InstancedMesh;
  private names: string[] = [];
  private readonly positions: THREE.Vector3[] = [];
  private readonly labels: HTMLElement[] = [];
  private readonly matrix = new THREE.Matrix4();
  private readonly color = new THREE.Color();
  private readonly scratch = new THREE.Vector3();

  get count(): number {
    return this.names.length;
  }
  /** Where each is, in W. */
  get states(): { name: string; at: number[] }[] {
    return this.names.map((name, index) => ({ name, at: this.positions[index]!.toArray() }));
  }

  load(markers: MarkerInfo[]): void {
    this.clear();
    if (markers.length === 0) return;
    this.names = markers.map((marker) => marker.name);
    this.positions.push(...markers.map(() => new THREE.Vector3()));
    const material = new THREE.MeshBasicMaterial({ toneMapped: false, transparent: true, opacity: 0.9, depthTest: false, depthWrite: false });
    this.balls = new THREE.InstancedMesh(new THREE.SphereGeometry(1, 12, 9), material, markers.length);
    this.balls.instanceMatrix.setUsage(THREE.DynamicDrawUsage);
    this.balls.frustumCulled = false;  // the bounds change with every frame
    this.balls.renderOrder = 6;
    this.group.add(this.balls);
  }

  /** `radius_m`: of what the camera shows; balls are sized by it. What is wrong with the frame, if anything. */
  update(markers: MarkerState[], radius_m: number): string | undefined {
    if (markers.length !== this.names.length) return `a frame of ${markers.length} markers, expected ${this.names.length}`;
    if (!this.balls) return undefined;
    const size_m = 0.012 * radius_m;
    for (const [index, marker] of markers.entries()) {
      const at: Vec3 | undefined = marker.positionM;
      this.positions[index]!.set(at?.x ?? 0, at?.y ?? 0, at?.z ?? 0);
      this.matrix.makeScale(size_m, size_m, size_m).setPosition(this.positions[index]!);
      this.balls.setMatrixAt(index, this.matrix);
      this.balls.setColorAt(index, this.color.setHex(marker.isReleased ? RELEASED_COLOR : MARKER_COLOR));
    }
    this.balls.instanceMatrix.needsUpdate = true;
    if (this.balls.instanceColor) this.balls.instanceColor.needsUpdate = true;
    return undefined;
  }

  setShown(shown: boolean): void {
    this.group.visible = shown;
  }

  /** Puts names beside their balls; after the camera or the pointer moved. Pixels of the canvas. */
  placeNames(layer: HTMLElement, camera: THREE.Camera, width: number, height: number, pointer: [number, number] | undefined): void {
    const at = this.positions.map((position): [number, number] => {
      const seen = this.scratch.copy(position).project(camera);
      return [((seen.x + 1) / 2) * width, ((1 - seen.y) / 2) * height];
    });
    const named = this.group.visible ? namedMarkers(at, pointer) : [];
    while (this.labels.length < named.length) {
      const label = document.createElement('div');
      label.className = 'marker-label';
      layer.append(label);
      this.labels.push(label);
    }
    const shifts = spreadNames(named.map((marker) => at[marker]!), named.map((marker) => this.names[marker]!));
    for (const [index, label] of this.labels.entries()) {
      const marker = named[index];
      label.hidden = marker === undefined;
      if (marker === undefined) continue;
      label.textContent = this.names[marker]!;
      label.style.transform = `translate(${at[marker]![0] + 8}px, ${at[marker]![1] - 9 + shifts[index]!}px)`;
    }
  }

  clear(): void {
    this.balls?.geometry.dispose();
    (this.balls?.material as THREE.Material | undefined)?.dispose();
    this.balls?.dispose();
    this.group.clear();
    this.balls = undefined;
    this.names = [];
    this.positions.length = 0;
    for (const label of this.labels) label.remove();
    this.labels.length = 0;
  }
}
