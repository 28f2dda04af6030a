import * as THREE from 'three';
import { InstrumentKind, ToolActivity } from '../../generated/palpate/v1/scene_pb';
import type { ToolShape } from '../../generated/palpate/v1/stream_pb';
import { disposeMeshes, dressed } from './looks';

export const TOOL_COLORS = [0x4cc9f0, 0xf7b955, 0xb48cff, 0x6ee7a8, 0xff8fa3, 0x9ad1ff, 0xffd166, 0xc0f0d0];

/** One material in its two looks. */
interface Pair<Full extends THREE.MeshStandardMaterial> {
  full: Full;
  plain: THREE.MeshPhongMaterial;
}

/** Used for instruments that do not say. */
const DEFAULT_MAX_JAW_ANGLE_RAD = 1;

/** How far the jaws of an instrument open. */
export function maxJawAngle(shape: ToolShape): number {
  return hasJaws(shape) ? shape.maxJawAngleRad || DEFAULT_MAX_JAW_ANGLE_RAD : 0;
}

/** The capsule of the tool frame: from the tip at the origin along +z, as the solver sees it. */
function capsuleGeometry(radius_m: number, length_m: number): THREE.BufferGeometry {
  const geometry = new THREE.CapsuleGeometry(radius_m, length_m, 16, 40, 1);
  geometry.rotateX(Math.PI / 2);
  geometry.translate(0, 0, length_m / 2);
  return geometry;
}

/** `metalness`: what is flat shows one place of the room only, and may need less of it. */
const steel = (metalness = 0.78): Pair<THREE.MeshPhysicalMaterial> => ({
  full: new THREE.MeshPhysicalMaterial({ color: 0xdde4ea, metalness, roughness: 0.27, clearcoat: 0.3, clearcoatRoughness: 0.15, envMapIntensity: 1.7 }),
  plain: new THREE.MeshPhongMaterial({ color: 0x8c979f, specular: 0xcfd8de, shininess: 70 }),
});

export const ACTIVITY_LABELS: Record<ToolActivity, string> = {
  [ToolActivity.UNSPECIFIED]: '', [ToolActivity.TOUCHING]: 'touching', [ToolActivity.GRASPING]: 'grasping', [ToolActivity.CUTTING]: 'cutting',
  [ToolActivity.BLOCKED]: 'blocked', [ToolActivity.COMMAND_EXPIRED]: 'command expired: let the pedal go',
};
export const ACTIVITY_COLORS: Record<ToolActivity, number> = {
  [ToolActivity.UNSPECIFIED]: 0x8fa1b1, [ToolActivity.TOUCHING]: 0xffe08a, [ToolActivity.GRASPING]: 0x6ee7a8, [ToolActivity.CUTTING]: 0xff7a3d,
  [ToolActivity.BLOCKED]: 0xff4d6d, [ToolActivity.COMMAND_EXPIRED]: 0xc9a0ff,
};

/** What is worth saying of a tool that does several things: the last of expired, blocked, cutting, grasping, touching gives way to those before. */
export function mainActivity(activities: ToolActivity[]): ToolActivity {
  for (const one of [ToolActivity.COMMAND_EXPIRED, ToolActivity.BLOCKED, ToolActivity.CUTTING, ToolActivity.GRASPING, ToolActivity.TOUCHING]) if (activities.includes(one)) return one;
  return ToolActivity.UNSPECIFIED;
}

export function hasJaws(shape: ToolShape): boolean {
  return shape.traits?.hasJaws ?? false;
}

export function hasPedal(shape: ToolShape): boolean {
  return (shape.traits?.hasPower || shape.traits?.leavesClips) ?? false;
}

/** An instrument, its device's pose as a ghost, and the force on it as an arrow. */
export class ToolModel {
  readonly group = new THREE.Group();
  readonly ghost: THREE.Mesh;
  readonly arrow: ForceArrow;
  /** What the mouse takes the instrument by. */
  readonly bodies: THREE.Mesh[] = [];
  private readonly color: THREE.Color;
  private readonly ringMaterial: Pair<THREE.MeshStandardMaterial>;
  private readonly tipMaterial: Pair<THREE.MeshPhysicalMaterial>;
  private readonly halo: THREE.Mesh;
  private readonly jaws: THREE.Group[] = [];
  /** Between the jaws as they are drawn. */
  jawAngle_rad = 0;
  private isHeld = false;
  private activity = ToolActivity.UNSPECIFIED;

  constructor(readonly shape: ToolShape, readonly index: number) {
    const { radiusM: radius_m, lengthM: length_m } = shape;
    this.tipMaterial = steel(shape.traits?.hasBlade ? 0.45 : 0.7);
    this.color = new THREE.Color(TOOL_COLORS[index % TOOL_COLORS.length]!);
    // The tip of the instrument takes this much of the capsule that is its shaft otherwise.
    const tip_m = Math.min(this.addTip(), 0.6 * length_m);
    const shaft = capsuleGeometry(radius_m, length_m - tip_m);
    shaft.translate(0, 0, tip_m);
    this.addPart(shaft, steel());

    const { color } = this;
    this.ringMaterial = {
      full: new THREE.MeshStandardMaterial({ color, metalness: 0.2, roughness: 0.4, emissive: color, emissiveIntensity: 0.35 }),
      plain: new THREE.MeshPhongMaterial({ color, emissive: color, emissiveIntensity: 0.35 }),
    };
    const ringLength_m = Math.min(radius_m * 1.1, length_m * 0.08);
    for (const at of [0.72, 0.8]) {
      const ring = dressed(new THREE.CylinderGeometry(radius_m * 1.035, radius_m * 1.035, ringLength_m, 40), this.ringMaterial.full, this.ringMaterial.plain);
      ring.rotation.x = Math.PI / 2;
      ring.position.z = length_m * at;
      ring.castShadow = true;
      this.group.add(ring);
    }

    this.ghost = new THREE.Mesh(capsuleGeometry(radius_m, length_m), new THREE.MeshBasicMaterial({ color, transparent: true, opacity: 0.16, depthWrite: false }));
    this.ghost.renderOrder = 2;
    this.ghost.visible = false;
    this.halo = new THREE.Mesh(capsuleGeometry(radius_m * 1.28, length_m), new THREE.MeshBasicMaterial({
      color, transparent: true, opacity: 0.22, depthWrite: false, side: THREE.BackSide,
    }));
    this.halo.visible = false;
    this.group.add(this.halo);
    this.arrow = new ForceArrow(color, radius_m);
    this.setJawAngle(maxJawAngle(shape));
  }

  get name(): string {
    return this.shape.name;
  }

  setHighlight(shown: boolean): void {
    this.isHeld = shown;
    this.glow();
  }

  /** The tip glows in the colour of what the instrument does. */
  setActivity(activity: ToolActivity): void {
    if (activity === this.activity) return;
    this.activity = activity;
    this.glow();
  }

  setJawAngle(angle_rad: number): void {
    this.jawAngle_rad = angle_rad;
    for (const [index, jaw] of this.jaws.entries()) jaw.rotation.y = (index === 0 ? 0.5 : -0.5) * angle_rad;
  }

  private glow(): void {
    this.halo.visible = this.isHeld;
    for (const ring of Object.values(this.ringMaterial)) ring.emissiveIntensity = this.isHeld ? 1.1 : 0.35;
    for (const tip of Object.values(this.tipMaterial)) {
      tip.emissive.setHex(this.activity === ToolActivity.UNSPECIFIED ? 0 : ACTIVITY_COLORS[this.activity]);
      tip.emissiveIntensity = this.activity === ToolActivity.TOUCHING ? 0.12 : 0.4;
    }
  }

  private addPart(geometry: THREE.BufferGeometry, material: { full: THREE.Material; plain: THREE.Material }, parent: THREE.Object3D = this.group): THREE.Mesh {
    const part = dressed(geometry, material.full, material.plain);
    part.castShadow = true;
    part.receiveShadow = true;
    part.userData.toolIndex = this.index;
    this.bodies.push(part);
    parent.add(part);
    return part;
  }

  /** What the instrument has at its tip; returns where its shaft begins. A kind without a picture of its own looks like what it can do. */
  private addTip(): number {
    const { kind, traits } = this.shape;
    if (traits?.hasJaws) return this.addJaws(traits.leavesClips);
    if (traits?.hasBlade) return this.addBlade();
    if (kind === InstrumentKind.CAUTERY_HOOK) return this.addHook();
    return traits?.hasPower ? this.addTube() : 0;
  }

  private addJaws(areBroad: boolean): number {
    const { radiusM: r, jawLengthM, jawRadiusM } = this.shape;
    const length_m = jawLengthM || 0.02, radius_m = jawRadiusM || 0.0015;
    for (const side of [-1, 1]) {
      const jaw = new THREE.Group();
      jaw.position.set(side * radius_m, 0, length_m);
      this.jaws.push(jaw);
      this.group.add(jaw);
      const geometry = capsuleGeometry(radius_m, length_m);
      geometry.translate(0, 0, -length_m);
      if (areBroad) geometry.scale(1, 1.8, 1);
      this.addPart(geometry, this.tipMaterial, jaw);
      // Teeth on the inner side
      const teeth = Math.max(3, Math.round(length_m / (2.4 * radius_m)));
      for (let i = 1; i < teeth; ++i) {
        const tooth = this.addPart(new THREE.ConeGeometry(0.42 * radius_m, 0.5 * radius_m, 6), this.tipMaterial, jaw);
        tooth.position.set(-0.85 * side * radius_m, 0, -length_m * (i / teeth));
        tooth.rotation.z = (side * Math.PI) / 2;
      }
    }
    const wrist = new THREE.CylinderGeometry(0.8 * r, Math.max(1.6 * radius_m, 0.5 * r), 0.5 * length_m, 28);
    wrist.rotateX(Math.PI / 2);
    wrist.translate(0, 0, 1.1 * length_m);
    this.addPart(wrist, this.tipMaterial);
    return 1.3 * length_m;
  }

  private addBlade(): number {
    const { radiusM: r, lengthM, bladeLengthM } = this.shape;
    const length_m = bladeLengthM || 0.01;
    // Seen along -y: the cutting edge is at the bottom, the neck holds the shaft.
    const neck = Math.min(0.9 * r, 0.45 * length_m) / length_m;
    const outline = new THREE.Shape();
    outline.moveTo(0, 0);
    outline.lineTo(length_m, 0);
    outline.splineThru([[0.96, 0.2], [0.78, 0.62], [0.5, 1.05], [0.5 * neck + 0.15, 1.5], [neck, 2.1]].map(([x, z]) => new THREE.Vector2(x! * length_m, z! * length_m)));
    outline.lineTo(-neck * length_m, 2.1 * length_m);
    outline.splineThru([[-neck, 1.7], [-0.55 * neck, 0.8], [0, 0]].map(([x, z]) => new THREE.Vector2(x! * length_m, z! * length_m)));
    const blade = new THREE.ExtrudeGeometry(outline, { depth: 0.02 * length_m, bevelEnabled: true, bevelThickness: 0.025 * length_m, bevelSize: 0.07 * length_m, bevelOffset: -0.07 * length_m,
      bevelSegments: 2, curveSegments: 16 });
    blade.translate(0, 0, -0.01 * length_m);
    blade.rotateX(Math.PI / 2);
    this.addPart(blade, this.tipMaterial);
    return Math.min(2 * length_m, 0.5 * lengthM);
  }

  private addHook(): number {
    const r = this.shape.radiusM;
    const w = 0.28 * r;
    const curve = new THREE.CatmullRomCurve3([[0, 0, 4 * r], [0, 0, 1.6 * r], [0.1 * r, 0, 0.35 * r], [0.8 * r, 0, w], [1.6 * r, 0, w], [1.9 * r, 0, 0.8 * r]]
      .map(([x, y, z]) => new THREE.Vector3(x, y, z)));
    this.addPart(new THREE.TubeGeometry(curve, 48, w, 12), this.tipMaterial);
    const end = this.addPart(new THREE.SphereGeometry(w, 14, 10), this.tipMaterial);
    end.position.set(1.9 * r, 0, 0.8 * r);
    return 3.6 * r;
  }

  /** Of an ultrasonic aspirator. */
  private addTube(): number {
    const r = this.shape.radiusM;
    const profile = [[0.3, 0], [0.52, 0.05], [0.56, 0.4], [0.62, 3.2], [1.0, 5.2]].map(([x, z]) => new THREE.Vector2(x! * r, z! * r));
    const tip = new THREE.LatheGeometry(profile, 36);
    tip.rotateX(Math.PI / 2);
    this.addPart(tip, this.tipMaterial);
    const black = new THREE.MeshBasicMaterial({ color: 0x05070a, side: THREE.DoubleSide });
    const bore = this.addPart(new THREE.CircleGeometry(0.32 * r, 24), { full: black, plain: black });
    bore.position.z = 0.02 * r;
    return 6 * r;
  }

  addTo(parent: THREE.Object3D): void {
    parent.add(this.group, this.ghost, this.arrow.group);
  }

  dispose(): void {
    for (const root of [this.group, this.ghost, this.arrow.group]) {
      root.removeFromParent();
      disposeMeshes(root);
    }
  }
}

/** An arrow whose length grows with the force, ever more slowly: at one newton it has half its full length. */
export class ForceArrow {
  readonly group = new THREE.Group();
  private readonly shaft: THREE.Mesh;
  private readonly head: THREE.Mesh;
  private readonly direction = new THREE.Vector3();

  constructor(color: THREE.Color, private readonly radius_m: number) {
    // Seen through everything: the force of a straight push runs along the inside of the shaft.
    const bright = color.clone().lerp(new THREE.Color(1, 1, 1), 0.25);
    const material = new THREE.MeshBasicMaterial({ color: bright, depthTest: false, depthWrite: false, transparent: true, opacity: 0.92, toneMapped: false });
    const shaft = new THREE.CylinderGeometry(1, 1, 1, 20);
    shaft.translate(0, 0.5, 0);
    const head = new THREE.ConeGeometry(1, 1, 24);
    head.translate(0, 0.5, 0);
    this.shaft = new THREE.Mesh(shaft, material);
    this.head = new THREE.Mesh(head, material);
    this.shaft.renderOrder = 10;
    this.head.renderOrder = 10;
    this.group.add(this.shaft, this.head);
    this.group.visible = false;
  }

  /** Places the arrow at `origin`; `full_m` is the length that an unbounded force would have. Returns where its point is. */
  set(origin: THREE.Vector3, force: THREE.Vector3, full_m: number, tip: THREE.Vector3): boolean {
    const newtons = force.length();
    this.group.visible = newtons > 5e-3;
    if (!this.group.visible) return false;
    const length_m = (full_m * newtons) / (newtons + 1);
    const headLength_m = Math.min(length_m * 0.45, this.radius_m * 2.2);
    const width_m = Math.min(this.radius_m * 0.32, length_m * 0.12);
    this.direction.copy(force).divideScalar(newtons);
    this.group.position.copy(origin);
    this.group.quaternion.setFromUnitVectors(UP, this.direction);
    this.shaft.scale.set(width_m, length_m - headLength_m, width_m);
    this.head.position.y = length_m - headLength_m;
    this.head.scale.set(width_m * 2.6, headLength_m, width_m * 2.6);
    tip.copy(this.direction).multiplyScalar(length_m).add(origin);
    return true;
  }
}

const UP = new THREE.Vector3(0, 1, 0);
