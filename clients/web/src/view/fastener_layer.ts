import * as THREE from 'three';
import { mergeGeometries } from 'three/addons/utils/BufferGeometryUtils.js';
import type { ClipState } from '../../generated/palpate/v1/stream_pb';
import { dress } from './looks';
import { toVector } from './vectors';

const CLIP_COLOR = 0xe6ebf0;
/** Of polypropylene sutures: nothing in a body has it. */
const SUTURE_COLOR = 0x3a6cff;
const NUMBERS_OF_STITCH = 6;

/** The clip is no longer than a large one of titanium, although jaws may be. */
export const MAX_CLIP_M = 0.012;
/** Shares of what the camera shows: of a clip whose jaws are not told, and the range of all others. */
const CLIP_LENGTH = 0.08;
const MIN_CLIP_LENGTH = 0.04;
const MAX_CLIP_LENGTH = 0.2;
/** Of a clip that is 1 long: from the middle to a leg, and a leg's thickness. */
const LEG_DISTANCE = 0.1;
const LEG_RADIUS = 0.05;
/** Clips are rolled of flat wire. */
const LEG_BREADTH = 1.7;

/** Shares of what the camera shows. */
const THREAD_RADIUS = 0.0034;
const END_RADIUS = 0.0055;
const KNOT_SIZE = 0.02;
/** Where stitches lie close, a knot reaches so far to the next one, but is never smaller than this share of `KNOT_SIZE`. */
const KNOT_SHARE = 0.38;
const MIN_KNOT = 0.4;
/** Shorter threads have no direction. */
const MIN_THREAD_M = 1e-9;
/** A stitch looks for its neighbour among so many before it and after it: all that a scene can have. */
const NEIGHBOURS = 96;

/** How far all is drawn nearer to the camera than it is, as a share of what the camera shows: what holds tissue lies in it. */
const LIFT = 0.016;
/** Likewise, as a share of its own size: what lies flat on a slope would sink in at one end. */
const LIFT_OF_CLIP = 0.35;
const LIFT_OF_KNOT = 1.5;
const LIFT_OF_THREAD = 1;

const FIRST_CAPACITY = 16;
const UP = new THREE.Vector3(0, 0, 1);
const X = new THREE.Vector3(1, 0, 0);

// Along the ray to the camera, so that nothing moves in the picture and only the depth changes. A knot is turned to the camera, with its x as the x of
// its instance appears.
const LIFTED_COMMON = `#include <common>
uniform float uLift;
#ifdef IS_KNOT
vec3 toCamera(vec3 v) {
  vec2 x = (modelViewMatrix * vec4(instanceMatrix[0].xyz, 0.0)).xy;
  x = dot(x, x) > 0.0 ? normalize(x) : vec2(1.0, 0.0);
  return vec3(x.x * v.x - x.y * v.y, x.y * v.x + x.x * v.y, v.z);
}
#endif`;
const LIFTED_NORMAL = `
#ifdef IS_KNOT
vec3 transformedNormal = toCamera(objectNormal);
#else
#include <defaultnormal_vertex>
#endif`;
const LIFTED_POSITION = `#include <project_vertex>
{
  float size = length(instanceMatrix[0].xyz);
#ifdef IS_KNOT
  mvPosition = modelViewMatrix * vec4(instanceMatrix[3].xyz, 1.0);
  mvPosition.xyz += size * toCamera(transformed);
#endif
  float lift = (uLift + LIFT_OF_SIZE * size) / length(mvPosition.xyz);
  gl_Position = projectionMatrix * vec4(mvPosition.xyz * max(1.0 - lift, 0.2), 1.0);
}`;

type Definable = THREE.Material & { defines?: Record<string, unknown> };

function lifted(material: Definable, lift_m: { value: number }, liftOfSize: number, isKnot: boolean): THREE.Material {
  material.defines = { ...material.defines, LIFT_OF_SIZE: liftOfSize.toFixed(3), ...(isKnot && { IS_KNOT: '' }) };
  material.onBeforeCompile = (shader) => {
    shader.uniforms.uLift = lift_m;
    shader.vertexShader = shader.vertexShader
      .replace('#include <common>', LIFTED_COMMON)
      .replace('#include <defaultnormal_vertex>', LIFTED_NORMAL)
      .replace('#include <project_vertex>', LIFTED_POSITION);
  };
  return material;
}

/** A closed clip, 1 long: two legs along z around the origin, with their bend at the end of the shaft that set it, side by side along x as the jaws are. */
function clipGeometry(): THREE.BufferGeometry {
  const path = new THREE.CurvePath<THREE.Vector3>();
  const [open, bend] = [-0.5 + LEG_RADIUS, 0.5 - LEG_RADIUS - LEG_DISTANCE];
  const arc = Array.from({ length: 9 }, (_, i) => {
    const angle = (Math.PI * i) / 8;
    return new THREE.Vector3(-LEG_DISTANCE * Math.cos(angle), 0, bend + LEG_DISTANCE * Math.sin(angle));
  });
  const points = [new THREE.Vector3(-LEG_DISTANCE, 0, open), ...arc, new THREE.Vector3(LEG_DISTANCE, 0, open)];
  for (let i = 1; i < points.length; ++i) path.add(new THREE.LineCurve3(points[i - 1]!, points[i]!));
  const ends = [-LEG_DISTANCE, LEG_DISTANCE].map((x) => new THREE.SphereGeometry(LEG_RADIUS, 10, 8).translate(x, 0, open));
  return merged([new THREE.TubeGeometry(path, 60, LEG_RADIUS, 10), ...ends]).scale(1, LEG_BREADTH, 1);
}

/** A cross stitch in the xy plane that reaches 1 far, with its knot in the middle and the places where it enters. */
function knotGeometry(): THREE.BufferGeometry {
  const radius = THREAD_RADIUS / KNOT_SIZE;
  const parts: THREE.BufferGeometry[] = [new THREE.SphereGeometry(2 * radius, 12, 8).translate(0, 0, radius)];
  for (const angle of [Math.PI / 4, (3 * Math.PI) / 4]) {
    const way = new THREE.Vector3(Math.cos(angle), Math.sin(angle), 0);
    const over = new THREE.Vector3(0, 0, 3 * radius);
    parts.push(new THREE.TubeGeometry(new THREE.QuadraticBezierCurve3(way.clone().negate(), over, way), 10, radius, 7));
    for (const end of [-1, 1]) parts.push(new THREE.SphereGeometry(1.4 * radius, 8, 6).translate(end * way.x, end * way.y, 0));
  }
  return merged(parts);
}

function merged(parts: THREE.BufferGeometry[]): THREE.BufferGeometry {
  const whole = mergeGeometries(parts);
  for (const part of parts) part.dispose();
  return whole;
}

/** The copies of one shape: any number of them. */
class Copies {
  readonly mesh: THREE.InstancedMesh;

  constructor(name: string, geometry: THREE.BufferGeometry, full: THREE.Material, plain: THREE.Material) {
    this.mesh = dress(new THREE.InstancedMesh(geometry, full, FIRST_CAPACITY), full, plain);
    this.mesh.name = name;
    this.mesh.instanceMatrix.setUsage(THREE.DynamicDrawUsage);
    this.mesh.frustumCulled = false;  // the bounds change with every frame
    this.empty();
  }

  empty(): void {
    this.mesh.count = 0;
    this.mesh.visible = false;
  }

  /** Before `add` is called for so many. */
  reserve(count: number): void {
    const { mesh } = this;
    const capacity = mesh.instanceMatrix.count;
    if (count <= capacity) return;
    mesh.dispose();  // gives back the buffer on the graphics card; the mesh goes on with the next
    mesh.instanceMatrix = new THREE.InstancedBufferAttribute(new Float32Array(16 * Math.max(count, 2 * capacity)), 16).setUsage(THREE.DynamicDrawUsage);
  }

  add(matrix: THREE.Matrix4): void {
    this.mesh.setMatrixAt(this.mesh.count++, matrix);
    this.mesh.instanceMatrix.needsUpdate = true;
    this.mesh.visible = true;
  }
}

const isFinitePoint = (v: { x: number; y: number; z: number } | undefined) => !v || (Number.isFinite(v.x) && Number.isFinite(v.y) && Number.isFinite(v.z));

/** What is wrong with a clip, if anything. */
function problemOfClip({ pose, lengthM }: ClipState): string | undefined {
  if (!pose) return 'no pose';
  const { positionM, rotation } = pose;
  if (!isFinitePoint(positionM)) return 'a position that is no number';
  if (rotation) {
    const length = Math.hypot(rotation.w, rotation.x, rotation.y, rotation.z);
    if (!(Number.isFinite(length) && length > 0)) return 'a rotation that is none';
  }
  return Number.isFinite(lengthM) && lengthM >= 0 ? undefined : `a length of ${lengthM} m, expected 0 or more`;
}

function problemOf(clips: readonly ClipState[], stitches_m: readonly number[]): string | undefined {
  for (let i = 0; i < clips.length; ++i) {
    const problem = problemOfClip(clips[i]!);
    if (problem) return `clip ${i} of a frame: ${problem}`;
  }
  if (stitches_m.length % NUMBERS_OF_STITCH !== 0) return `a frame with ${stitches_m.length} numbers for stitches, expected ${NUMBERS_OF_STITCH} for each`;
  for (let i = 0; i < stitches_m.length; ++i) {
    if (!Number.isFinite(stitches_m[i]!)) return `stitch ${Math.floor(i / NUMBERS_OF_STITCH)} of a frame: a position that is no number`;
  }
  return undefined;
}

/** What holds tissue together: clips and the stitches of sutures. Each frame tells all that there are. */
export class FastenerLayer {
  readonly group = new THREE.Group();
  private readonly lift_m = { value: 0 };
  private readonly materials: THREE.Material[] = [];
  private readonly clips: Copies;
  private readonly threads: Copies;
  private readonly ends: Copies;
  private readonly knots: Copies;
  private readonly matrix = new THREE.Matrix4();
  private readonly at = new THREE.Vector3();
  private readonly end = new THREE.Vector3();
  private readonly way = new THREE.Vector3();
  private readonly turn = new THREE.Quaternion();
  private readonly size = new THREE.Vector3();

  constructor() {
    const metal = { color: CLIP_COLOR, metalness: 0.85, roughness: 0.3, envMapIntensity: 1.9 };
    this.clips = this.make('clips', clipGeometry(), LIFT_OF_CLIP, new THREE.MeshStandardMaterial(metal),
      new THREE.MeshPhongMaterial({ color: 0x9aa4ac, specular: 0xcfd8de, shininess: 70 }));
    this.clips.mesh.castShadow = true;
    const thread = () => new THREE.MeshLambertMaterial({ color: SUTURE_COLOR, emissive: SUTURE_COLOR, emissiveIntensity: 0.3 });
    const along = new THREE.CylinderGeometry(1, 1, 1, 7, 1, true).rotateX(Math.PI / 2).translate(0, 0, 0.5);
    this.threads = this.make('threads', along, LIFT_OF_THREAD, thread());
    this.ends = this.make('ends', new THREE.SphereGeometry(1, 10, 7), LIFT_OF_THREAD, thread());
    this.knots = this.make('knots', knotGeometry(), LIFT_OF_KNOT, thread());
  }

  get clipCount(): number {
    return this.clips.mesh.count;
  }
  get stitchCount(): number {
    return this.knots.mesh.count;
  }
  /** Clips and stitches that are drawn now. */
  get shown(): number {
    return this.clipCount + this.stitchCount;
  }

  /** `radius_m`: of what the camera shows. What is wrong with the frame, if anything: then none is drawn. */
  update(clips: readonly ClipState[], stitches_m: readonly number[], radius_m: number): string | undefined {
    this.clear();
    const problem = problemOf(clips, stitches_m);
    if (problem) return problem;
    this.lift_m.value = LIFT * radius_m;
    this.clips.reserve(clips.length);
    for (let i = 0; i < clips.length; ++i) this.addClip(clips[i]!, radius_m);
    const count = stitches_m.length / NUMBERS_OF_STITCH;
    this.threads.reserve(count);
    this.ends.reserve(2 * count);
    this.knots.reserve(count);
    for (let i = 0; i < count; ++i) this.addStitch(stitches_m, i, radius_m);
    return undefined;
  }

  /** What lies behind it is not drawn, as of the tissue that is held. */
  setSection(section: THREE.Plane | undefined): void {
    for (const material of this.materials) {
      material.clippingPlanes = section ? [section] : null;
      material.needsUpdate = true;
    }
  }

  clear(): void {
    for (const copies of [this.clips, this.threads, this.ends, this.knots]) copies.empty();
  }

  private make(name: string, geometry: THREE.BufferGeometry, liftOfSize: number, full: THREE.Material, plain = full): Copies {
    for (const material of new Set([full, plain])) this.materials.push(lifted(material, this.lift_m, liftOfSize, name === 'knots'));
    const copies = new Copies(name, geometry, full, plain);
    this.group.add(copies.mesh);
    return copies;
  }

  private addClip({ pose, lengthM }: ClipState, radius_m: number): void {
    toVector(pose?.positionM, this.at);
    const q = pose?.rotation;
    if (q) this.turn.set(q.x, q.y, q.z, q.w).normalize();
    else this.turn.identity();
    const wanted_m = lengthM > 0 ? Math.min(lengthM, MAX_CLIP_M) : CLIP_LENGTH * radius_m;
    this.size.setScalar(Math.min(Math.max(wanted_m, MIN_CLIP_LENGTH * radius_m), MAX_CLIP_LENGTH * radius_m));
    this.clips.add(this.matrix.compose(this.at, this.turn, this.size));
  }

  private addStitch(stitches_m: readonly number[], index: number, radius_m: number): void {
    this.at.fromArray(stitches_m, NUMBERS_OF_STITCH * index);
    this.end.fromArray(stitches_m, NUMBERS_OF_STITCH * index + 3);
    const end_m = END_RADIUS * radius_m;
    this.ends.add(this.matrix.makeScale(end_m, end_m, end_m).setPosition(this.at));
    this.ends.add(this.matrix.setPosition(this.end));
    const length_m = this.way.subVectors(this.end, this.at).length();
    if (length_m > MIN_THREAD_M) {
      this.turn.setFromUnitVectors(UP, this.way.divideScalar(length_m));
      this.size.set(THREAD_RADIUS * radius_m, THREAD_RADIUS * radius_m, length_m);
      this.threads.add(this.matrix.compose(this.at, this.turn, this.size));
    }
    // The seam runs to the nearest stitch, and the cross lies over it.
    const apart_m = this.toNeighbour(stitches_m, index, this.way);
    this.turn.setFromUnitVectors(X, this.way);
    const knot_m = KNOT_SIZE * radius_m;
    this.size.setScalar(Math.min(knot_m, Math.max(KNOT_SHARE * apart_m, MIN_KNOT * knot_m)));
    this.knots.add(this.matrix.compose(this.at, this.turn, this.size));
  }

  /** How far the nearest other stitch is, and which way: unit. Infinity, and along x, where there is none. */
  private toNeighbour(stitches_m: readonly number[], index: number, out: THREE.Vector3): number {
    const begin = NUMBERS_OF_STITCH * Math.max(0, index - NEIGHBOURS);
    const end = Math.min(stitches_m.length, NUMBERS_OF_STITCH * (index + NEIGHBOURS + 1));
    let least_sq_m2 = Infinity;
    out.copy(X);
    for (let other = begin; other < end; other += NUMBERS_OF_STITCH) {
      const x = stitches_m[other]! - this.at.x;
      const y = stitches_m[other + 1]! - this.at.y;
      const z = stitches_m[other + 2]! - this.at.z;
      const distance_sq_m2 = x * x + y * y + z * z;
      if (distance_sq_m2 >= least_sq_m2 || distance_sq_m2 < MIN_THREAD_M * MIN_THREAD_M) continue;
      least_sq_m2 = distance_sq_m2;
      out.set(x, y, z);
    }
    out.normalize();
    return Math.sqrt(least_sq_m2);
  }
}
