import * as THREE from 'three';
import type { SurfaceMirror, TriangleChange } from '../net/surface_mirror';
import { CutSmoothing } from './cut_smoothing';
import { imageTexture } from './images';
import { RefineLayer, refinedCorners, SplitLayer, type Layer } from './layers';
import { disposeMeshes, dressed } from './looks';
import { guessRest, type RestSamples } from './rest_shape';
import { patternTexture } from './patterns';
import { plainTissueMaterial, setTissueExtent, tissueMaterial, type TissueTexture, type ZoneStyle } from './tissue_material';

/** A surface is refined while it stays below so many triangles. */
const MAX_TRIANGLES = 16000;
const MAX_LEVELS = 2;
/** A delta that changes more than this share of the triangles is cheaper uploaded whole. */
const MANY = 0.25;

function levelsFor(triangleCount: number): number {
  let levels = 0;
  while (levels < MAX_LEVELS && triangleCount * 4 ** (levels + 1) <= MAX_TRIANGLES) ++levels;
  return levels;
}

/** What a piece takes over from the body that it was cut off. */
export interface Heritage {
  samples: RestSamples;
  extent_m: number;
}

/**
 * One body: a surface whose vertices move with every frame and whose triangles change with edits, drawn rounder than it is meshed. Skin and inside have
 * normals of their own, so that the edge of a cut is crisp; every zone has its colour up to its border.
 */
export class Organ {
  readonly mesh: THREE.Mesh<THREE.BufferGeometry, THREE.Material>;
  private readonly material: THREE.MeshPhysicalMaterial;
  private readonly plainMaterial: THREE.MeshPhongMaterial;
  /** [3 * vertex] in W, as the simulation has them; vertices in free slots are anywhere. */
  positions: Float32Array;
  private rest: Float32Array;
  private sides!: SplitLayer;
  private layers!: Layer[];
  private levels = 0;
  private readonly smoothing = new CutSmoothing();
  private colors = new Float32Array(0);
  private topologyChanged = true;
  private extent_m = 0;
  private changedSlots: number[] = [];
  private uploadsAll = true;
  private wireIsOld = true;
  private section: THREE.Plane | undefined;
  private readonly isOpen: boolean;
  private readonly wire: THREE.LineSegments;

  constructor(readonly surface: SurfaceMirror, readonly zones: ZoneStyle[], private readonly heritage?: Heritage) {
    this.positions = new Float32Array(3 * surface.vertexCount);
    this.rest = new Float32Array(3 * surface.vertexCount);
    this.isOpen = surface.isOpen;
    const texture = textureOf(surface);
    this.material = tissueMaterial(zones[0]!.color, texture);
    this.plainMaterial = plainTissueMaterial(texture);
    this.mesh = dressed(new THREE.BufferGeometry(), this.material, this.plainMaterial);
    this.mesh.castShadow = true;
    this.mesh.receiveShadow = true;
    this.mesh.frustumCulled = false;  // the bounds change with every frame
    this.mesh.name = surface.name;
    this.wire = new THREE.LineSegments(new THREE.BufferGeometry(),
      new THREE.LineBasicMaterial({ color: 0xffe4d6, transparent: true, opacity: 0.3, depthWrite: false }));
    this.wire.frustumCulled = false;
    this.wire.visible = false;
    this.mesh.add(this.wire);
    this.build();
    this.showSides();
  }

  get name(): string {
    return this.surface.name;
  }

  /** Smooth normals of the surface as it is meshed: of corner `corner` of the triangle in a slot. */
  cornerNormal(slot: number, corner: number, out: THREE.Vector3): THREE.Vector3 {
    return out.fromArray(this.sides.normals, 3 * this.sides.triangles[3 * slot + corner]!);
  }

  /** Of what cuts have uncovered. */
  get interiorTriangleCount(): number {
    let count = 0;
    for (let slot = 0; slot < this.surface.slotCount; ++slot) if (!this.surface.isFree(slot) && this.styleOf(this.surface.zones[slot]!).isInterior) ++count;
    return count;
  }

  /** How many triangles show each zone, by its name. */
  get zoneTriangleCounts(): Record<string, number> {
    const counts: Record<string, number> = {};
    for (let slot = 0; slot < this.surface.slotCount; ++slot) {
      if (this.surface.isFree(slot)) continue;
      const { name } = this.styleOf(this.surface.zones[slot]!);
      counts[name] = (counts[name] ?? 0) + 1;
    }
    return counts;
  }

  /** Makes `box` hold the surface. */
  expandBox(box: THREE.Box3): THREE.Box3 {
    const point = new THREE.Vector3();
    for (let vertex = 0; vertex < this.surface.vertexCount; ++vertex) {
      if (this.sides.isUsed(vertex)) box.expandByPoint(point.fromArray(this.positions, 3 * vertex));
    }
    return box;
  }

  /** For pieces that come off with the next delta. */
  bequeath(): Heritage | undefined {
    if (this.extent_m === 0) return this.heritage;  // no frame since it came off itself
    const known: number[] = [];
    for (let vertex = 0; vertex < this.surface.vertexCount; ++vertex) if (this.sides.isUsed(vertex)) known.push(vertex);
    return { samples: { positions: this.positions.slice(), rest: this.rest.slice(), known }, extent_m: this.extent_m };
  }

  /** The surface has changed in these slots. New positions and `commit` have to follow before the next picture. */
  change(changes: TriangleChange[]): void {
    if (this.positions.length !== 3 * this.surface.vertexCount) {
      this.positions = fitted(this.positions, 3 * this.surface.vertexCount);
      this.rest = fitted(this.rest, 3 * this.surface.vertexCount);
      this.wireIsOld = true;
    }
    this.topologyChanged = true;
    this.wireIsOld = true;
    if (this.levels > 0 && this.surface.liveCount * 4 ** this.levels > 1.5 * MAX_TRIANGLES) {
      this.build();
      return;
    }
    // All that goes goes first: a vertex that keeps no triangle is another one when it comes back.
    for (const { slot } of changes) this.release(slot);
    for (const { slot } of changes) this.fill(slot);
    this.changedSlots.push(...changes.map(({ slot }) => slot));
  }

  /** Call after `positions` changed. */
  commit(): void {
    const made = this.topologyChanged ? this.settle() : [];
    this.sides.derive(this.smoothing.apply(this.positions), undefined, this.smoothing.isEmpty ? undefined : this.smoothing.tangents);
    for (const [index, layer] of this.layers.entries()) {
      if (layer instanceof RefineLayer) layer.derive(this.layers[index - 1]!);
      else if (layer !== this.sides) (layer as SplitLayer).derive(this.layers[index - 1]!.positions, this.layers[index - 1]!.normals);
    }
    this.upload(made);
    if (this.wire.visible) this.drawWire();
  }

  setWireframe(shown: boolean): void {
    this.wire.visible = shown;
    if (shown) this.drawWire();
    for (const material of [this.material, this.plainMaterial]) {
      material.polygonOffset = shown;
      material.polygonOffsetFactor = 4;  // the drawn surface bulges a little over the mesh
      material.polygonOffsetUnits = 8;
    }
  }

  /** Drawn as if of glass, from 1, opaque, down to 0; only what is in front of `section`, and then from inside too. */
  setSeeThrough(opacity: number, section: THREE.Plane | undefined): void {
    this.mesh.castShadow = opacity === 1;
    this.mesh.renderOrder = opacity < 1 ? 1 : 0;  // over what is inside
    for (const material of [this.material, this.plainMaterial]) {
      material.transparent = opacity < 1;
      material.opacity = opacity;
      material.depthWrite = opacity === 1;
      material.clippingPlanes = section ? [section] : null;
      material.needsUpdate = true;
    }
    this.section = section;
    this.showSides();
  }

  /** Through a cut or a section the surface is seen from inside too, never the dark behind it; and a sheet from both sides. */
  private showSides(): void {
    const side = this.section || this.isOpen || !this.smoothing.isEmpty ? THREE.DoubleSide : THREE.FrontSide;
    for (const material of [this.material, this.plainMaterial]) {
      if (material.side === side) continue;
      material.side = side;
      material.needsUpdate = true;
    }
  }

  dispose(): void {
    this.mesh.removeFromParent();
    disposeMeshes(this.mesh);
  }

  private get finest(): Layer {
    return this.layers[this.layers.length - 1]!;
  }

  /** Zones beyond those that are described look like the last. */
  private styleOf(zone: number): ZoneStyle {
    return this.zones[Math.min(zone, this.zones.length - 1)]!;
  }

  private build(): void {
    const waiting = this.sides?.firstUses;
    this.levels = levelsFor(this.surface.liveCount);
    this.sides = new SplitLayer(this.surface.slotCount);
    this.layers = [this.sides];
    for (let level = 0; level < this.levels; ++level) this.layers.push(new RefineLayer(this.surface.slotCount * 4 ** level));
    // With one kind of inside the two sides are the zones. With more, they share normals and differ in colour, which the last layer tells apart.
    // Seams of a texture are left to that layer too, so that light does not show them.
    if (this.zones.length > 2 || this.surface.texture?.byCorner) this.layers.push(new SplitLayer(this.surface.slotCount * 4 ** this.levels));
    for (let slot = 0; slot < this.surface.slotCount; ++slot) this.fill(slot);
    if (waiting) this.sides.firstUses = waiting;  // the others have their places at rest
    this.uploadsAll = true;
    this.topologyChanged = true;
  }

  private release(slot: number): void {
    for (let at = this.layers.length - 1; at > 0; --at) {
      const layer = this.layers[at]!;
      const count = layer instanceof RefineLayer ? 4 ** (at - 1) : 4 ** this.levels;
      for (let k = 0; k < count; ++k) layer.release(slot * count + k);
    }
    this.sides.release(slot);
  }

  private fill(slot: number): void {
    const { triangles, zones } = this.surface;
    const zone = zones[slot]!;
    const side = this.zones.length > 2 ? Number(this.styleOf(zone).isInterior) : Math.min(zone, this.zones.length - 1);
    this.sides.fill(slot, triangles[3 * slot]!, triangles[3 * slot + 1]!, triangles[3 * slot + 2]!, side);
    for (let at = 1; at < this.layers.length; ++at) {
      const layer = this.layers[at]!;
      const below = this.layers[at - 1]!;
      const count = layer instanceof RefineLayer ? 4 ** (at - 1) : 4 ** this.levels;
      const tag = Math.min(zone, this.zones.length - 1);
      const corners = layer instanceof SplitLayer && this.surface.texture?.byCorner
        ? refinedCorners(this.surface.textureCorners.subarray(6 * slot, 6 * slot + 6), this.levels) : undefined;
      for (let k = slot * count; k < (slot + 1) * count; ++k) {
        const [a, b, c] = [below.triangles[3 * k]!, below.triangles[3 * k + 1]!, below.triangles[3 * k + 2]!];
        if (corners) (layer as SplitLayer).fill(k, a, b, c, tag, corners, 6 * (k - slot * count));
        else layer.fill(k, a, b, c, tag);
      }
    }
  }

  /** Gives new vertices their places at rest; returns those of the finest layer. */
  private settle(): number[] {
    const fresh = [...new Set(this.sides.firstUses)].filter((vertex) => this.sides.isUsed(vertex));
    this.sides.firstUses = [];
    if (this.extent_m === 0) {
      this.extent_m = this.heritage?.extent_m ?? this.expandBox(new THREE.Box3()).getSize(new THREE.Vector3()).length();
      setTissueExtent(this.material, this.extent_m);
      guessRest(fresh, this.positions, this.rest, this.heritage?.samples ?? { positions: this.positions, rest: this.rest, known: [] });
    } else if (fresh.length > 0) {
      const isFresh = new Set(fresh);
      const known: number[] = [];
      for (let vertex = 0; vertex < this.surface.vertexCount; ++vertex) if (this.sides.isUsed(vertex) && !isFresh.has(vertex)) known.push(vertex);
      guessRest(fresh, this.positions, this.rest, { positions: this.positions, rest: this.rest, known });
    }
    const { texture, textureCoordinates } = this.surface;
    let made = this.sides.settle({ rest: this.rest, ...(texture && !texture.byCorner && { texture: textureCoordinates, texturePeriod: texture.uPeriod }) });
    for (let at = 1; at < this.layers.length; ++at) made = this.layers[at]!.settle(this.layers[at - 1]!);
    this.smoothing.rebuild(this.surface, (zone) => this.styleOf(zone).isInterior);
    this.showSides();
    this.topologyChanged = false;
    return made;
  }

  private paint(ids: Iterable<number>): void {
    const { tags } = this.finest;
    for (const id of ids) {
      const { color, isInterior } = this.styleOf(tags[id]!);
      color.toArray(this.colors, 4 * id);
      this.colors[4 * id + 3] = isInterior ? 1 : 0;
    }
  }

  /** Brings what changed to the graphics card: positions and normals always, the rest where `made` and the changed slots say. */
  private upload(made: number[]): void {
    const { positions, normals, rest, texture, triangles, vertexCount, triangleCount } = this.finest;
    let { geometry } = this.mesh;
    const has = geometry.attributes.position as THREE.BufferAttribute | undefined;
    if (this.uploadsAll || has?.array !== positions || geometry.index?.array !== triangles) {
      const colors = new Float32Array((positions.length / 3) * 4);
      colors.set(this.colors.subarray(0, Math.min(colors.length, this.colors.length)));
      this.colors = colors;
      this.paint(this.uploadsAll ? Array(vertexCount).keys() : made);
      // A geometry of its own for grown arrays: three.js frees buffers with the geometry that they belong to, and not before.
      geometry.dispose();
      geometry = new THREE.BufferGeometry();
      geometry.setAttribute('position', new THREE.BufferAttribute(positions, 3).setUsage(THREE.DynamicDrawUsage));
      geometry.setAttribute('normal', new THREE.BufferAttribute(normals, 3).setUsage(THREE.DynamicDrawUsage));
      geometry.setAttribute('restPosition', new THREE.BufferAttribute(rest, 3));
      geometry.setAttribute('zoneColor', new THREE.BufferAttribute(this.colors, 4));
      if (texture.length > 0) geometry.setAttribute('textureCoordinate', new THREE.BufferAttribute(texture, 2));
      geometry.setIndex(new THREE.BufferAttribute(triangles, 1));
      this.mesh.geometry = geometry;
      this.uploadsAll = false;
    } else {
      for (const name of ['position', 'normal']) {
        const attribute = geometry.attributes[name] as THREE.BufferAttribute;
        attribute.clearUpdateRanges();
        attribute.addUpdateRange(0, 3 * vertexCount);
        attribute.needsUpdate = true;
      }
      this.paint(made);
      touch(geometry.attributes.restPosition as THREE.BufferAttribute, made, 3, vertexCount);
      if (texture.length > 0) touch(geometry.attributes.textureCoordinate as THREE.BufferAttribute, made, 2, vertexCount);
      touch(geometry.attributes.zoneColor as THREE.BufferAttribute, made, 4, vertexCount);
      touch(geometry.index!, this.changedSlots, 3 * 4 ** this.levels, this.surface.slotCount);
    }
    geometry.setDrawRange(0, 3 * triangleCount);
    this.changedSlots = [];
  }

  /** The mesh itself, without refinement. */
  private drawWire(): void {
    if (this.wireIsOld) {
      this.wireIsOld = false;
      this.wire.geometry.dispose();
      this.wire.geometry = new THREE.BufferGeometry();
      this.wire.geometry.setAttribute('position', new THREE.BufferAttribute(this.positions, 3).setUsage(THREE.DynamicDrawUsage));
      this.wire.geometry.setIndex(new THREE.BufferAttribute(uniqueEdges(this.surface.triangles.subarray(0, 3 * this.surface.slotCount)), 1));
    }
    this.wire.geometry.attributes.position!.needsUpdate = true;
  }
}

/** What the skin shows; undefined: the look of tissue that every body has. */
function textureOf(surface: SurfaceMirror): TissueTexture | undefined {
  if (!surface.texture) return undefined;
  const { image, pattern, uPeriod: period } = surface.texture;
  if (image !== '') return { shown: imageTexture(image), isImage: true, period };
  const texture = patternTexture(pattern);
  return texture && { shown: { value: texture }, isImage: false, period };
}

function fitted(array: Float32Array, size: number): Float32Array {
  const result = new Float32Array(size);
  result.set(array.subarray(0, Math.min(size, array.length)));
  return result;
}

/** Marks the items of `size` numbers each for upload. Ranges that wait from a picture that was not drawn stay. */
function touch(attribute: THREE.BufferAttribute, items: number[], size: number, itemCount: number): void {
  if (items.length === 0) return;
  if (items.length > MANY * itemCount) {
    attribute.clearUpdateRanges();
    attribute.addUpdateRange(0, size * itemCount);
  } else {
    for (const item of items) attribute.addUpdateRange(size * item, size);
  }
  attribute.needsUpdate = true;
}

/** Index pairs of the edges of a mesh, each once. */
export function uniqueEdges(triangles: Uint32Array): Uint32Array {
  const seen = new Set<number>();
  const edges: number[] = [];
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    for (let k = 0; k < 3; ++k) {
      const a = triangles[t + k]!;
      const b = triangles[t + ((k + 1) % 3)]!;
      if (a === b) continue;  // a free slot
      const low = Math.min(a, b);
      const high = Math.max(a, b);
      const key = low * 2 ** 26 + high;  // exact below 2^26 vertices
      if (seen.has(key)) continue;
      seen.add(key);
      edges.push(low, high);
    }
  }
  return Uint32Array.from(edges);
}
