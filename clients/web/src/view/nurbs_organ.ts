import * as THREE from 'three';
import type { NurbsPatch } from '../../generated/palpate/v1/nurbs_pb';
import type { BodyFrame, BodyTopology, NurbsShape, PositionEncoding } from '../../generated/palpate/v1/stream_pb';
import type { Pose } from '../../generated/palpate/v1/scene_pb';
import { decodePositions } from '../net/positions';
import type { SurfaceMirror } from '../net/surface_mirror';
import { applyLooks, disposeMeshes, dressed } from './looks';
import { domainOf, loopPoints, MovingPatch, NurbsEvaluator, seemClosed, tessellate, type PatchMesh } from './nurbs_surface';
import { Organ } from './organ';
import type { ZoneStyle } from './tissue_material';

/** Chords are as fine as this share of a pixel. */
const PIXELS = 0.35;
/** Finer than the last by so much before triangles are made anew: it costs milliseconds. */
const FINER = 2;
const COARSER = 8;
/** Nothing is drawn finer than this share of the body's size, wherever the eye is among its control points. */
const FINEST = 1e-4;
/** Pixels of the mask of a trimmed patch, along its longer side. */
const MASK_SIZE = 1024;

/** What is wrong with an exact surface, if anything. */
export function problemOf(body: BodyTopology): string | undefined {
  const patches = body.nurbs?.object?.patches ?? [];
  if (patches.length === 0) return `body '${body.name}': an exact surface without patches`;
  for (const [index, patch] of patches.entries()) {
    const problem = NurbsEvaluator.problemOf(patch);
    if (problem) return `body '${body.name}': patch ${index}: ${problem}`;
  }
  return undefined;
}

/** Where a trimmed patch is: white on black. */
function maskOf(patch: NurbsPatch): THREE.Texture {
  const [u0, u1, v0, v1] = domainOf(patch);
  const canvas = document.createElement('canvas');
  canvas.width = MASK_SIZE;
  canvas.height = MASK_SIZE;
  const context = canvas.getContext('2d')!;
  context.fillStyle = '#000';
  context.fillRect(0, 0, MASK_SIZE, MASK_SIZE);
  context.fillStyle = '#fff';
  context.beginPath();
  for (const loop of patch.loops) {
    for (const [i, [u, v]] of loopPoints(loop.curves).entries()) {
      const x = ((u - u0) / (u1 - u0)) * MASK_SIZE, y = (1 - (v - v0) / (v1 - v0)) * MASK_SIZE;
      if (i === 0) context.moveTo(x, y);
      else context.lineTo(x, y);
    }
    context.closePath();
  }
  context.fill('nonzero');  // inside is where the winding number of the loops is not 0: holes run the other way round
  const texture = new THREE.CanvasTexture(canvas);
  texture.anisotropy = 8;
  return texture;
}

function geometryOf(meshes: PatchMesh[]): THREE.BufferGeometry {
  const vertices = meshes.reduce((sum, mesh) => sum + mesh.positions.length / 3, 0);
  const [positions, normals, places] = [new Float32Array(3 * vertices), new Float32Array(3 * vertices), new Float32Array(2 * vertices)];
  const triangles = new Uint32Array(meshes.reduce((sum, mesh) => sum + mesh.triangles.length, 0));
  let vertex = 0, index = 0;
  for (const mesh of meshes) {
    positions.set(mesh.positions, 3 * vertex);
    normals.set(mesh.normals, 3 * vertex);
    places.set(mesh.places, 2 * vertex);
    for (const corner of mesh.triangles) triangles[index++] = vertex + corner;
    vertex += mesh.positions.length / 3;
  }
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute('position', new THREE.BufferAttribute(positions, 3));
  geometry.setAttribute('normal', new THREE.BufferAttribute(normals, 3));
  geometry.setAttribute('uv', new THREE.BufferAttribute(places, 2));
  geometry.setIndex(new THREE.BufferAttribute(triangles, 1));
  return geometry;
}

/**
 * A body with an exact surface: it moves as one piece, or with its control points. Its triangles are as fine as the distance asks for, with the normals of
 * the surface.
 */
export class NurbsOrgan extends Organ {
  readonly group = new THREE.Group();
  triangleCount = 0;
  private tolerance_m = 0;
  private readonly parts: { patches: NurbsPatch[]; mesh: THREE.Mesh<THREE.BufferGeometry, THREE.Material> }[] = [];
  private readonly control = new THREE.Box3();
  /** x y z of all control points in W, patch by patch, of a body that deforms. */
  private readonly moving: Float32Array | undefined;
  /** [part][patch]: of a body that deforms. */
  private movers: { patch: MovingPatch; mesh: PatchMesh; begin: number }[][] = [];
  private readonly begins = new Map<NurbsPatch, number>();
  private isPlain = false;
  /** Else it is drawn from both sides. */
  private readonly isClosed: boolean;
  /** At rest. */
  private readonly size_m: number;

  constructor(surface: SurfaceMirror, zones: ZoneStyle[], shape: NurbsShape) {
    super(surface, zones);
    const patches = shape.object!.patches;
    for (const patch of patches) {
      for (let i = 0; i < patch.controlM.length; i += 3) {
        this.control.expandByPoint(new THREE.Vector3(patch.controlM[i]!, patch.controlM[i + 1]!, patch.controlM[i + 2]!));
      }
    }
    let points = 0;
    for (const patch of patches) {
      this.begins.set(patch, 3 * points);
      points += patch.controlM.length / 3;
    }
    if (shape.isDeformable) this.moving = new Float32Array(3 * points);
    this.size_m = this.control.getSize(new THREE.Vector3()).length();
    this.isClosed = seemClosed(patches, this.size_m);
    const whole = patches.filter((patch) => patch.loops.length === 0);
    if (whole.length > 0) this.addPart(whole, undefined);
    for (const patch of patches) if (patch.loops.length > 0) this.addPart([patch], maskOf(patch));
    this.mesh.add(this.group);
  }

  private addPart(patches: NurbsPatch[], mask: THREE.Texture | undefined): void {
    const { color } = this.zones[0]!;
    const common = { color, side: this.isClosed ? THREE.FrontSide : THREE.DoubleSide, shadowSide: THREE.BackSide, ...(mask && { alphaMap: mask, alphaTest: 0.5 }) };
    const full = new THREE.MeshPhysicalMaterial(
      this.moving ? { ...common, roughness: 0.55, clearcoat: 0.2, clearcoatRoughness: 0.4 }
        : { ...common, roughness: 0.32, metalness: 0.15, clearcoat: 0.5, clearcoatRoughness: 0.25 });
    const plain = new THREE.MeshPhongMaterial({ ...common, shininess: 60, specular: 0x444444 });
    const mesh = dressed(new THREE.BufferGeometry(), full as THREE.Material, plain);
    mesh.castShadow = true;
    mesh.receiveShadow = true;
    mesh.name = this.name;
    this.group.add(mesh);
    this.parts.push({ patches, mesh });
  }

  /** Takes over where the body is, or its control points. What is wrong, if anything. */
  place(frame: BodyFrame, encoding: PositionEncoding): string | undefined {
    if (this.moving) {
      const problem = decodePositions(frame, encoding, this.moving);
      if (!problem) this.deform(this.moving);
      return problem;
    }
    return this.placeAt(frame.pose);
  }

  private deform(control: Float32Array): void {
    this.control.setFromArray(control as unknown as number[]);
    for (const [p, movers] of this.movers.entries()) {
      const { position, normal } = this.parts[p]!.mesh.geometry.attributes as { position: THREE.BufferAttribute; normal: THREE.BufferAttribute };
      let vertex = 0;
      for (const { patch, mesh, begin } of movers) {
        patch.update(control, begin);
        position.array.set(mesh.positions, 3 * vertex);
        normal.array.set(mesh.normals, 3 * vertex);
        vertex += mesh.positions.length / 3;
      }
      position.needsUpdate = true;
      normal.needsUpdate = true;
    }
  }

  private placeAt(pose: Pose | undefined): string | undefined {
    const { positionM: p, rotation: q } = pose ?? {};
    if (!p || !q) return 'an exact surface without a pose';
    this.group.position.set(p.x, p.y, p.z);
    this.group.quaternion.set(q.x, q.y, q.z, q.w);
    this.group.updateMatrixWorld();
    return undefined;
  }

  /** Makes triangles anew if they are too coarse, or far too fine, for the camera. */
  follow(camera: THREE.PerspectiveCamera, height_px: number, isPlain: boolean): void {
    if (isPlain !== this.isPlain) {
      this.isPlain = isPlain;
      applyLooks(this.group, isPlain);
    }
    const eye = this.group.worldToLocal(camera.position.clone());
    const distance_m = Math.max(camera.near, this.control.distanceToPoint(eye));
    const pixel_m = (2 * distance_m * Math.tan(THREE.MathUtils.degToRad(camera.fov) / 2)) / Math.max(1, height_px);
    const wanted_m = Math.max(PIXELS * pixel_m, FINEST * this.size_m);
    if (this.tolerance_m > 0 && wanted_m * FINER > this.tolerance_m && wanted_m < COARSER * this.tolerance_m) return;
    this.tolerance_m = wanted_m;
    this.triangleCount = 0;
    this.movers = [];
    for (const { patches, mesh } of this.parts) {
      mesh.geometry.dispose();
      if (this.moving) {
        // As they are now, for how fine they need be.
        for (const patch of patches) {
          const begin = this.begins.get(patch)!;
          patch.controlM = Array.from(this.moving.subarray(begin, begin + patch.controlM.length));
        }
      }
      const meshes = patches.map((patch) => tessellate(patch, wanted_m));
      mesh.geometry = geometryOf(meshes);
      mesh.frustumCulled = !this.moving;
      this.triangleCount += mesh.geometry.index!.count / 3;
      if (this.moving) {
        this.movers.push(patches.map((patch, i) => ({ patch: new MovingPatch(patch, meshes[i]!), mesh: meshes[i]!, begin: this.begins.get(patch)! })));
      }
    }
  }

  /** The triangles as they are drawn, in W; for tests and tools. */
  drawnPositions(): number[] {
    const out: number[] = [];
    const point = new THREE.Vector3();
    for (const { mesh } of this.parts) {
      const position = mesh.geometry.attributes.position as THREE.BufferAttribute | undefined;
      for (let i = 0; position && i < position.count; ++i) out.push(...point.fromBufferAttribute(position, i).applyMatrix4(this.group.matrixWorld).toArray());
    }
    return out;
  }

  override commit(): void {}

  /** By its control points, which hold the surface. */
  override expandBox(box: THREE.Box3): THREE.Box3 {
    return box.union(this.control.clone().applyMatrix4(this.group.matrixWorld));
  }

  override setWireframe(shown: boolean): void {
    for (const material of this.materials()) material.wireframe = shown;
  }

  override setSeeThrough(opacity: number, section: THREE.Plane | undefined): void {
    for (const { mesh } of this.parts ?? []) {
      mesh.castShadow = opacity === 1;
      mesh.renderOrder = opacity < 1 ? 1 : 0;
    }
    for (const material of this.materials()) {
      material.transparent = opacity < 1;
      material.opacity = opacity;
      material.depthWrite = opacity === 1;
      material.clippingPlanes = section ? [section] : null;
      material.side = this.isClosed && !section ? THREE.FrontSide : THREE.DoubleSide;
      material.needsUpdate = true;
    }
  }

  override dispose(): void {
    for (const material of this.materials()) (material as THREE.MeshPhongMaterial).alphaMap?.dispose();
    disposeMeshes(this.group);
    super.dispose();
  }

  private *materials(): Iterable<THREE.Material & { wireframe: boolean }> {
    for (const { mesh } of this.parts ?? []) {
      const { full, plain } = mesh.userData.looks as { full: THREE.MeshPhysicalMaterial; plain: THREE.MeshPhongMaterial };
      yield full;
      yield plain;
    }
  }
}
