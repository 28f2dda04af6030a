import * as THREE from 'three';
import type { Vec3 } from '../../generated/palpate/v1/scene_pb';
import { type Frame, SurfaceContactKind } from '../../generated/palpate/v1/stream_pb';

export type ContactKind = 'tool' | 'obstacle' | 'vertex-triangle' | 'edge-edge';

/** Weak and strong contacts of each kind. */
export const CONTACT_COLORS: Record<ContactKind, [number, number]> = {
  tool: [0xffe08a, 0xff5a3c],
  obstacle: [0xcfd8dc, 0xff8a65],
  'vertex-triangle': [0x9ff2dc, 0x12d6a0],
  'edge-edge': [0xd9c2ff, 0x9a5cff],
};

export const NO_TOOL = 0xffffffff;
export const MAX_MARKS = 8192;
/** Half of the colour's way is done at this force. */
const TYPICAL_N = 0.15;

export interface ContactMark {
  kind: ContactKind;
  at: [number, number, number];
  /** Unit, the way the contact pushes body B. */
  normal: [number, number, number];
  newtons: number;
}

const tuple = (v: Vec3 | undefined): [number, number, number] => (v ? [v.x, v.y, v.z] : [0, 0, 0]);

/** What is drawn of a frame's contacts: those with tools and obstacles on the body, those between surfaces halfway. */
export function contactMarks(frame: Frame): ContactMark[] {
  const marks: ContactMark[] = [];
  for (const contact of frame.contacts) {
    marks.push({ kind: contact.toolIndex === NO_TOOL ? 'obstacle' : 'tool', at: tuple(contact.pointM), normal: tuple(contact.normal), newtons: Math.hypot(...tuple(contact.forceN)) });
  }
  for (const contact of frame.surfaceContacts) {
    const a = tuple(contact.pointAM);
    const b = tuple(contact.pointBM);
    marks.push({
      kind: contact.kind === SurfaceContactKind.EDGE_EDGE ? 'edge-edge' : 'vertex-triangle',
      at: [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2, (a[2] + b[2]) / 2],
      normal: tuple(contact.normal),
      newtons: Math.hypot(...tuple(contact.forceN)),
    });
  }
  return marks;
}

/** 0 = no force, towards 1 = a strong one. */
export function heatOf(newtons: number): number {
  return newtons / (newtons + TYPICAL_N);
}

/** Contacts as dots, with their normals as lines; seen through the bodies, since most lie between them. */
export class ContactLayer {
  readonly group = new THREE.Group();
  private readonly dots: THREE.InstancedMesh;
  private readonly lines: THREE.LineSegments<THREE.BufferGeometry, THREE.LineBasicMaterial>;
  private readonly ends = new Float32Array(6 * MAX_MARKS);
  private readonly endColors = new Float32Array(6 * MAX_MARKS);
  private readonly matrix = new THREE.Matrix4();
  private readonly color = new THREE.Color();
  private readonly strong = new THREE.Color();

  constructor() {
    const through = { toneMapped: false, transparent: true, opacity: 0.85, depthTest: false, depthWrite: false };
    this.dots = new THREE.InstancedMesh(new THREE.SphereGeometry(1, 10, 7), new THREE.MeshBasicMaterial(through), MAX_MARKS);
    this.dots.instanceMatrix.setUsage(THREE.DynamicDrawUsage);
    this.dots.setColorAt(0, this.color);
    this.dots.count = 0;
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute('position', new THREE.BufferAttribute(this.ends, 3).setUsage(THREE.DynamicDrawUsage));
    geometry.setAttribute('color', new THREE.BufferAttribute(this.endColors, 3).setUsage(THREE.DynamicDrawUsage));
    geometry.setDrawRange(0, 0);
    this.lines = new THREE.LineSegments(geometry, new THREE.LineBasicMaterial({ ...through, vertexColors: true }));
    for (const object of [this.dots, this.lines]) {
      object.frustumCulled = false;  // the bounds change with every frame
      object.renderOrder = 5;
    }
    this.group.add(this.dots, this.lines);
  }

  /** `radius_m`: of what the camera shows; marks are sized by it. */
  update(marks: ContactMark[], radius_m: number): void {
    const count = Math.min(marks.length, MAX_MARKS);
    for (let i = 0; i < count; ++i) {
      const { kind, at, normal, newtons } = marks[i]!;
      const heat = heatOf(newtons);
      const size_m = radius_m * (0.005 + 0.006 * heat);
      this.matrix.makeScale(size_m, size_m, size_m).setPosition(...at);
      this.dots.setMatrixAt(i, this.matrix);
      const [weak, strong] = CONTACT_COLORS[kind];
      this.color.setHex(weak).lerp(this.strong.setHex(strong), heat);
      this.dots.setColorAt(i, this.color);
      const length_m = radius_m * (0.03 + 0.13 * heat);
      for (let axis = 0; axis < 3; ++axis) {
        this.ends[6 * i + axis] = at[axis]!;
        this.ends[6 * i + 3 + axis] = at[axis]! + length_m * normal[axis]!;
      }
      this.color.toArray(this.endColors, 6 * i);
      this.color.multiplyScalar(0.35).toArray(this.endColors, 6 * i + 3);
    }
    this.dots.count = count;
    this.dots.instanceMatrix.needsUpdate = true;
    if (this.dots.instanceColor) this.dots.instanceColor.needsUpdate = true;
    this.lines.geometry.setDrawRange(0, 2 * count);
    this.lines.geometry.attributes.position!.needsUpdate = true;
    this.lines.geometry.attributes.color!.needsUpdate = true;
  }

  setShown(dots: boolean, normals: boolean): void {
    this.dots.visible = dots;
    this.lines.visible = dots && normals;
  }

  clear(): void {
    this.update([], 1);
  }
}
