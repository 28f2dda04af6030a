import * as THREE from 'three';

const MAX_PLACES = 1024;

/** What the mouse would do to the tissue: the ball that carves, the blade and its path, the reach of a grasp. */
export class Brush {
  readonly group = new THREE.Group();
  private readonly ball: THREE.Mesh;
  private readonly ring: THREE.Mesh;
  private readonly blade: THREE.Mesh<THREE.BufferGeometry, THREE.MeshBasicMaterial>;
  private readonly path: THREE.Line<THREE.BufferGeometry, THREE.LineBasicMaterial>;
  private readonly places = new Float32Array(3 * MAX_PLACES);
  private readonly sheet: THREE.Mesh<THREE.BufferGeometry, THREE.MeshBasicMaterial>;
  private readonly sheetCorners = new Float32Array(6 * MAX_PLACES);

  constructor() {
    const over = { transparent: true, depthTest: false, depthWrite: false, toneMapped: false };
    this.ball = new THREE.Mesh(new THREE.SphereGeometry(1, 40, 28),
      new THREE.MeshBasicMaterial({ color: 0xffb36b, transparent: true, opacity: 0.2, depthWrite: false, toneMapped: false }));
    this.ring = new THREE.Mesh(new THREE.TorusGeometry(1, 0.03, 10, 72), new THREE.MeshBasicMaterial({ ...over, color: 0xffd9b0, opacity: 0.9 }));
    const bladeShape = new THREE.BufferGeometry();
    bladeShape.setAttribute('position', new THREE.BufferAttribute(new Float32Array(9), 3).setUsage(THREE.DynamicDrawUsage));
    this.blade = new THREE.Mesh(bladeShape, new THREE.MeshBasicMaterial({ ...over, color: 0xe6f4ff, opacity: 0.75, side: THREE.DoubleSide }));
    const line = new THREE.BufferGeometry();
    line.setAttribute('position', new THREE.BufferAttribute(this.places, 3).setUsage(THREE.DynamicDrawUsage));
    this.path = new THREE.Line(line, new THREE.LineBasicMaterial({ ...over, color: 0x7fe3ff, opacity: 0.95 }));
    const sheet = new THREE.BufferGeometry();
    sheet.setAttribute('position', new THREE.BufferAttribute(this.sheetCorners, 3).setUsage(THREE.DynamicDrawUsage));
    const index = new Uint16Array(6 * (MAX_PLACES - 1));
    for (let i = 0; i + 1 < MAX_PLACES; ++i) index.set([2 * i, 2 * i + 1, 2 * i + 2, 2 * i + 2, 2 * i + 1, 2 * i + 3], 6 * i);
    sheet.setIndex(new THREE.BufferAttribute(index, 1));
    this.sheet = new THREE.Mesh(sheet, new THREE.MeshBasicMaterial({ ...over, color: 0x4cc9f0, opacity: 0.13, side: THREE.DoubleSide }));
    for (const object of [this.ball, this.ring, this.blade, this.path, this.sheet]) {
      object.frustumCulled = false;
      object.renderOrder = 6;
      object.visible = false;
      this.group.add(object);
    }
  }

  /** A ball around a place of the surface, with the ring in which it meets it. */
  showBall(center: THREE.Vector3, normal: THREE.Vector3, radius_m: number, color: number): void {
    this.hideCursor();
    this.ball.visible = true;
    this.ball.position.copy(center);
    this.ball.scale.setScalar(radius_m);
    (this.ball.material as THREE.MeshBasicMaterial).color.setHex(color);
    this.showRing(center, normal, radius_m, color);
  }

  showRing(center: THREE.Vector3, normal: THREE.Vector3, radius_m: number, color: number): void {
    this.ring.visible = true;
    this.ring.position.copy(center);
    this.ring.scale.setScalar(radius_m);
    this.ring.quaternion.setFromUnitVectors(FORWARD, normal);
    (this.ring.material as THREE.MeshBasicMaterial).color.setHex(color).lerp(WHITE, 0.35);
  }

  /** A blade that stands in the surface, its point `depth_m` below. */
  showBlade(point: THREE.Vector3, normal: THREE.Vector3, depth_m: number, along: THREE.Vector3): void {
    this.hideCursor();
    this.blade.visible = true;
    const corners = this.blade.geometry.attributes.position as THREE.BufferAttribute;
    const corner = new THREE.Vector3();
    corner.copy(point).addScaledVector(normal, -depth_m).toArray(corners.array, 0);
    corner.copy(point).addScaledVector(normal, 0.9 * depth_m).toArray(corners.array, 3);
    corner.copy(point).addScaledVector(normal, 0.9 * depth_m).addScaledVector(along, -0.55 * depth_m).toArray(corners.array, 6);
    corners.needsUpdate = true;
  }

  /** The way of a blade: ends above the surface and in the depth; `surface`: share of the way between them at which the surface lies. */
  showPath(edges: [THREE.Vector3, THREE.Vector3][], surface: number): void {
    const newest = edges.slice(-MAX_PLACES);
    const point = new THREE.Vector3();
    for (const [i, [above, below]] of newest.entries()) {
      point.lerpVectors(above, below, surface).toArray(this.places, 3 * i);
      point.toArray(this.sheetCorners, 6 * i);
      below.toArray(this.sheetCorners, 6 * i + 3);
    }
    this.path.geometry.setDrawRange(0, newest.length);
    this.path.geometry.attributes.position!.needsUpdate = true;
    this.sheet.geometry.setDrawRange(0, 6 * Math.max(0, newest.length - 1));
    this.sheet.geometry.attributes.position!.needsUpdate = true;
    this.path.visible = this.sheet.visible = newest.length > 1;
  }

  hideCursor(): void {
    this.ball.visible = this.ring.visible = this.blade.visible = false;
  }

  hide(): void {
    this.hideCursor();
    this.path.visible = this.sheet.visible = false;
  }
}

const FORWARD = new THREE.Vector3(0, 0, 1);
const WHITE = new THREE.Color(1, 1, 1);
