import * as THREE from 'three';
import type { Vec3 } from '../../generated/palpate/v1/scene_pb';
import type { JointInfo, JointState } from '../../generated/palpate/v1/stream_pb';

const ROPE_COLOR = 0xc9b48a;
const SPRING_COLOR = 0xb8c4cc;
const PIN_COLOR = 0x8fa3b0;
/** Of a rope, as a share of what the camera shows. */
const ROPE_RADIUS = 0.004;
const COILS = 12;
const POINTS_OF_COIL = 10;
const COIL_RADIUS = 0.018;
/** Length of the pin of a hinge and the rail of a slider. */
const PIN_LENGTH = 0.16;

/** How a joint looks: a rope or rod between its two points, a coil, a pin along its axis; others show nothing but the bodies that they hold. */
export type JointShape = 'rope' | 'coil' | 'pin' | 'none';

export function jointShape(kind: string): JointShape {
  if (kind === 'distance') return 'rope';
  if (kind === 'spring') return 'coil';
  return kind === 'hinge' || kind === 'slider' || kind === 'line' ? 'pin' : 'none';
}

/** A coil of unit length along z, with straight ends: x y z of its points. */
export function coilPoints(coils = COILS, perCoil = POINTS_OF_COIL): Float32Array {
  const end = 0.08;
  const turns = coils * perCoil;
  const points: number[] = [0, 0, 0, 0, 0, end];
  for (let i = 0; i <= turns; ++i) {
    const angle = (2 * Math.PI * i) / perCoil;
    points.push(Math.cos(angle), Math.sin(angle), end + (1 - 2 * end) * (i / turns));
  }
  points.push(0, 0, 1 - end, 0, 0, 1);
  return Float32Array.from(points);
}

const vector = (v: Vec3 | undefined) => new THREE.Vector3(v?.x ?? 0, v?.y ?? 0, v?.z ?? 0);

/** Joints that are more than a point: ropes, springs, pins. What broke is not drawn. */
export class JointLayer {
  readonly group = new THREE.Group();
  private shapes: { shape: JointShape; object?: THREE.Object3D }[] = [];

  /** Ropes, coils and pins that are drawn now. */
  get shown(): number {
    return this.shapes.filter(({ object }) => object?.visible).length;
  }

  load(joints: JointInfo[]): void {
    this.clear();
    this.shapes = joints.map((joint) => {
      const shape = jointShape(joint.kind);
      const object = this.make(shape);
      if (object) this.group.add(object);
      return { shape, object };
    });
  }

  private make(shape: JointShape): THREE.Object3D | undefined {
    if (shape === 'none') return undefined;
    if (shape === 'coil') {
      const geometry = new THREE.BufferGeometry();
      geometry.setAttribute('position', new THREE.BufferAttribute(coilPoints(), 3));
      const line = new THREE.Line(geometry, new THREE.LineBasicMaterial({ color: SPRING_COLOR }));
      line.frustumCulled = false;
      return line;
    }
    const geometry = new THREE.CylinderGeometry(1, 1, 1, 8).rotateX(Math.PI / 2).translate(0, 0, 0.5);
    const mesh = new THREE.Mesh(geometry, new THREE.MeshLambertMaterial({ color: shape === 'rope' ? ROPE_COLOR : PIN_COLOR }));
    mesh.frustumCulled = false;
    return mesh;
  }

  /** `radius_m`: of what the camera shows. What is wrong with the frame, if anything. */
  update(joints: JointState[], radius_m: number): string | undefined {
    if (joints.length !== this.shapes.length) return `a frame of ${joints.length} joints, expected ${this.shapes.length}`;
    for (const [index, joint] of joints.entries()) {
      const { shape, object } = this.shapes[index]!;
      if (!object) continue;
      const b = vector(joint.pointM);
      const along = vector(joint.axis);
      if (shape === 'pin') along.setLength(PIN_LENGTH * radius_m);
      const from = shape === 'pin' ? b.clone().addScaledVector(along, -0.5) : vector(joint.pointAM);
      const way = shape === 'pin' ? along : b.clone().sub(from);
      const length_m = way.length();
      object.visible = !joint.isBroken && length_m > 0;
      if (!object.visible) continue;
      const wide_m = radius_m * (shape === 'coil' ? COIL_RADIUS : ROPE_RADIUS);
      object.position.copy(from);
      object.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), way.divideScalar(length_m));
      object.scale.set(wide_m, wide_m, length_m);
    }
    return undefined;
  }

  clear(): void {
    for (const { object } of this.shapes) {
      if (!(object instanceof THREE.Mesh) && !(object instanceof THREE.Line)) continue;
      (object.geometry as THREE.BufferGeometry).dispose();
      (object.material as THREE.Material).dispose();
    }
    this.group.clear();
    this.shapes = [];
  }
}
