import * as THREE from 'three';

export const TOOL_COLORS = [0x4cc9f0, 0xf7b955, 0xb48cff, 0x6ee7a8, 0xff8fa3, 0x9ad1ff, 0xffd166, 0xc0f0d0];

/** The capsule of the tool frame: from the tip at the origin along +z, as the solver sees it. */
function capsuleGeometry(radius_m: number, length_m: number): THREE.BufferGeometry {
  const geometry = new THREE.CapsuleGeometry(radius_m, length_m, 16, 40, 1);
  geometry.rotateX(Math.PI / 2);
  geometry.translate(0, 0, length_m / 2);
  return geometry;
}

/** An instrument, its device's pose as a ghost, and the force on it as an arrow. */
export class ToolModel {
  readonly group = new THREE.Group();
  readonly ghost: THREE.Mesh;
  readonly arrow: ForceArrow;
  readonly body: THREE.Mesh;
  private readonly ringMaterial: THREE.MeshStandardMaterial;
  private readonly halo: THREE.Mesh;

  constructor(readonly name: string, readonly index: number, readonly radius_m: number, readonly length_m: number) {
    const color = new THREE.Color(TOOL_COLORS[index % TOOL_COLORS.length]!);
    const geometry = capsuleGeometry(radius_m, length_m);
    this.body = new THREE.Mesh(geometry, new THREE.MeshPhysicalMaterial({
      color: 0xdde4ea, metalness: 0.78, roughness: 0.27, clearcoat: 0.3, clearcoatRoughness: 0.15, envMapIntensity: 1.7,
    }));
    this.body.castShadow = true;
    this.body.receiveShadow = true;
    this.body.userData.toolIndex = index;
    this.group.add(this.body);

    this.ringMaterial = new THREE.MeshStandardMaterial({ color, metalness: 0.2, roughness: 0.4, emissive: color, emissiveIntensity: 0.35 });
    const ringLength_m = Math.min(radius_m * 1.1, length_m * 0.08);
    for (const at of [0.72, 0.8]) {
      const ring = new THREE.Mesh(new THREE.CylinderGeometry(radius_m * 1.035, radius_m * 1.035, ringLength_m, 40), this.ringMaterial);
      ring.rotation.x = Math.PI / 2;
      ring.position.z = length_m * at;
      ring.castShadow = true;
      this.group.add(ring);
    }

    this.ghost = new THREE.Mesh(geometry, new THREE.MeshBasicMaterial({ color, transparent: true, opacity: 0.16, depthWrite: false }));
    this.ghost.renderOrder = 2;
    this.ghost.visible = false;
    this.halo = new THREE.Mesh(capsuleGeometry(radius_m * 1.28, length_m), new THREE.MeshBasicMaterial({
      color, transparent: true, opacity: 0.22, depthWrite: false, side: THREE.BackSide,
    }));
    this.halo.visible = false;
    this.group.add(this.halo);
    this.arrow = new ForceArrow(color, radius_m);
  }

  setHighlight(shown: boolean): void {
    this.halo.visible = shown;
    this.ringMaterial.emissiveIntensity = shown ? 1.1 : 0.35;
  }

  addTo(parent: THREE.Object3D): void {
    parent.add(this.group, this.ghost, this.arrow.group);
  }

  dispose(): void {
    for (const root of [this.group, this.ghost, this.arrow.group]) {
      root.removeFromParent();
      root.traverse((child) => {
        if (!(child instanceof THREE.Mesh)) return;
        child.geometry.dispose();
        (child.material as THREE.Material).dispose();
      });
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
