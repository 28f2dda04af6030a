import type { BodyDelta, BodyTopology, SurfaceTexture } from '../../generated/palpate/v1/stream_pb';
import { MeshHashSum } from './mesh_hash';

/** A slot whose triangle an edit changed. Corners 0 0 0: no triangle. */
export interface TriangleChange {
  slot: number;
  corners: [number, number, number];
  zone: number;
}

function grown<T extends Uint32Array | Uint16Array | Float32Array>(array: T, size: number): T {
  if (size <= array.length) return array;
  const larger = new (array.constructor as new (length: number) => T)(Math.max(size, 2 * array.length));
  larger.set(array);
  return larger;
}

/** Coordinates belong to vertices, not to corners of triangles. */
function hasVertexTexture(texture: SurfaceTexture | undefined): boolean {
  return texture !== undefined && !texture.byCorner;
}

/**
 * The surface of a body as the server numbers it: triangles by slot, three vertices each, and what each of them shows. A slot that is free holds three
 * zeros. Edits cost what they change; the hash tells whether this copy is the server's.
 */
export class SurfaceMirror {
  readonly name: string;
  vertexCount: number;
  /** Slots, free ones included. */
  slotCount: number;
  /** Of slots that hold a triangle. */
  liveCount = 0;
  /** [3 * slot + corner]; what lies beyond slotCount means nothing. */
  triangles: Uint32Array;
  /** [slot] index into surface zones. */
  zones: Uint16Array;
  /** How texture coordinates are meant; undefined: there are none. */
  readonly texture: SurfaceTexture | undefined;
  /** [2 * vertex] u v, zeros where there are none; what lies beyond vertexCount means nothing. */
  textureCoordinates = new Float32Array(0);
  /** [6 * slot] u v of the corners of triangles, only with texture.byCorner; what lies beyond slotCount means nothing. */
  textureCorners = new Float32Array(0);
  private readonly sum = new MeshHashSum();

  private constructor(topology: BodyTopology) {
    this.name = topology.name;
    this.vertexCount = topology.vertexCount;
    this.slotCount = topology.triangles.length / 3;
    this.triangles = Uint32Array.from(topology.triangles);
    this.zones = new Uint16Array(this.slotCount);
    if (topology.triangleZones.length > 0) this.zones.set(topology.triangleZones);
    for (let slot = 0; slot < this.slotCount; ++slot) {
      if (!this.isFree(slot)) this.count(slot, 1);
    }
    this.texture = topology.texture;
    if (this.texture?.byCorner) {
      this.textureCorners = new Float32Array(6 * this.slotCount);
      for (let slot = 0; slot < this.slotCount; ++slot) this.takeCorners(slot, topology.textureCorners, 6 * slot);
    } else if (this.texture) {
      this.takeTexture(topology.textureVertices, topology.textureCoordinates);
    }
  }

  /** The surface of a keyframe's body, or what is wrong with it. */
  static of(topology: BodyTopology): SurfaceMirror | string {
    const { name, triangles, triangleZones, vertexCount } = topology;
    if (triangles.length % 3 !== 0) return `body '${name}': ${triangles.length} triangle indices`;
    if (triangleZones.length !== 0 && triangleZones.length !== triangles.length / 3) {
      return `body '${name}': ${triangleZones.length} zones of ${triangles.length / 3} triangles`;
    }
    const problem = SurfaceMirror.checkTriangles(triangles, triangleZones, vertexCount)
      ?? SurfaceMirror.checkTexture(topology.textureVertices, topology.textureCoordinates, vertexCount, hasVertexTexture(topology.texture), true)
      ?? SurfaceMirror.checkCorners(topology.textureCorners, triangles.length / 3, topology.texture);
    return problem ? `body '${name}': ${problem}` : new SurfaceMirror(topology);
  }

  private static checkTriangles(triangles: readonly number[], zones: readonly number[], vertexCount: number): string | undefined {
    for (let i = 0; i < triangles.length; i += 3) {
      const a = triangles[i]!, b = triangles[i + 1]!, c = triangles[i + 2]!;
      if (a === 0 && b === 0 && c === 0) continue;
      const largest = Math.max(a, b, c);
      if (largest >= vertexCount) return `triangle of vertex ${largest}, of ${vertexCount}`;
      if (a === b || b === c || c === a) return `triangle of vertices ${a} ${b} ${c}`;
    }
    for (const zone of zones) {
      if (zone > 0xffff) return `surface zone ${zone}`;
    }
    return undefined;
  }

  /** `isWhole`: without vertices the coordinates are those of all, in order. */
  private static checkTexture(vertices: readonly number[], coordinates: readonly number[], vertexCount: number, isTextured: boolean,
    isWhole: boolean): string | undefined {
    const count = isWhole && vertices.length === 0 ? Math.floor(coordinates.length / 2) : vertices.length;
    if (coordinates.length !== 2 * count) return `${coordinates.length} numbers of texture coordinates of ${count} vertices`;
    if (count > 0 && !isTextured) return 'texture coordinates without a texture';
    if (count > vertexCount) return `${count} texture coordinates, of ${vertexCount} vertices`;
    for (const vertex of vertices) if (vertex >= vertexCount) return `texture coordinate of vertex ${vertex}, of ${vertexCount}`;
    for (const value of coordinates) if (!Number.isFinite(value)) return `texture coordinate ${value}`;
    return undefined;
  }

  private static checkCorners(corners: readonly number[], triangleCount: number, texture: SurfaceTexture | undefined): string | undefined {
    const count = texture?.byCorner ? 6 * triangleCount : 0;
    if (corners.length !== count) return `${corners.length} numbers of texture coordinates of corners, not ${count}`;
    for (const value of corners) if (!Number.isFinite(value)) return `texture coordinate ${value}`;
    return undefined;
  }

  isFree(slot: number): boolean {
    return this.triangles[3 * slot] === 0 && this.triangles[3 * slot + 1] === 0 && this.triangles[3 * slot + 2] === 0;
  }

  /** Whether it has an edge: a sheet that is seen from both sides, and not the skin of something. */
  get isOpen(): boolean {
    const ways = new Map<number, number>();  // of edges, by their vertices: how often one way less how often the other
    for (let slot = 0; slot < this.slotCount; ++slot) {
      if (this.isFree(slot)) continue;
      for (let k = 0; k < 3; ++k) {
        const a = this.triangles[3 * slot + k]!;
        const b = this.triangles[3 * slot + (k + 1) % 3]!;
        const key = Math.min(a, b) * this.vertexCount + Math.max(a, b);
        ways.set(key, (ways.get(key) ?? 0) + (a < b ? 1 : -1));
      }
    }
    for (const way of ways.values()) if (way !== 0) return true;
    return false;
  }

  /** Sum of the hashes of the triangles and texture coordinates, as in BodyTopology.mesh_hash. */
  get hash(): bigint {
    return this.sum.toBigInt();
  }

  /** Whether this is what the server has; a server that sends no hash (0) is believed. */
  matches(meshHash: bigint): boolean {
    return meshHash === 0n || this.sum.equals(meshHash);
  }

  /** What is wrong with a delta, if anything. */
  check(delta: BodyDelta): string | undefined {
    const { triangleSlots: slots, triangles, triangleZones: zones, triangleCount, vertexCount } = delta;
    if (triangles.length !== 3 * slots.length || zones.length !== slots.length) {
      return `body '${this.name}': ${slots.length} slots, ${triangles.length} indices, ${zones.length} zones`;
    }
    if (triangleCount < this.slotCount || vertexCount < this.vertexCount) {
      return `body '${this.name}': ${triangleCount} slots and ${vertexCount} vertices after ${this.slotCount} and ${this.vertexCount}`;
    }
    for (const slot of slots) {
      if (slot >= triangleCount) return `body '${this.name}': slot ${slot}, of ${triangleCount}`;
    }
    const problem = SurfaceMirror.checkTriangles(triangles, zones, vertexCount)
      ?? SurfaceMirror.checkTexture(delta.textureVertices, delta.textureCoordinates, vertexCount, hasVertexTexture(this.texture), false)
      ?? SurfaceMirror.checkCorners(delta.textureCorners, slots.length, this.texture);
    return problem ? `body '${this.name}': ${problem}` : undefined;
  }

  /** Takes over a delta that `check` has nothing against; what changed. */
  apply(delta: BodyDelta): TriangleChange[] {
    this.vertexCount = delta.vertexCount;
    this.triangles = grown(this.triangles, 3 * delta.triangleCount);
    this.zones = grown(this.zones, delta.triangleCount);
    this.slotCount = delta.triangleCount;
    if (this.texture?.byCorner) this.textureCorners = grown(this.textureCorners, 6 * delta.triangleCount);
    else if (this.texture) this.takeTexture(delta.textureVertices, delta.textureCoordinates);
    return delta.triangleSlots.map((slot, i) => {
      const corners: [number, number, number] = [delta.triangles[3 * i]!, delta.triangles[3 * i + 1]!, delta.triangles[3 * i + 2]!];
      const zone = delta.triangleZones[i]!;
      if (!this.isFree(slot)) this.count(slot, -1);
      this.triangles.set(corners, 3 * slot);
      this.zones[slot] = zone;
      if (!this.isFree(slot)) this.count(slot, 1);
      if (this.texture?.byCorner) this.takeCorners(slot, delta.textureCorners, 6 * i);
      return { slot, corners, zone };
    });
  }

  private takeTexture(vertices: readonly number[], coordinates: readonly number[]): void {
    this.textureCoordinates = grown(this.textureCoordinates, 2 * this.vertexCount);
    const held = this.textureCoordinates;
    for (let i = 0; 2 * i < coordinates.length; ++i) {
      const vertex = vertices.length > 0 ? vertices[i]! : i;
      this.sum.removeTexture(vertex, held[2 * vertex]!, held[2 * vertex + 1]!);
      held[2 * vertex] = coordinates[2 * i]!;
      held[2 * vertex + 1] = coordinates[2 * i + 1]!;
      this.sum.addTexture(vertex, held[2 * vertex]!, held[2 * vertex + 1]!);
    }
  }

  private takeCorners(slot: number, values: readonly number[], at: number): void {
    this.sum.removeCorners(slot, this.textureCorners, 6 * slot);
    for (let k = 0; k < 6; ++k) this.textureCorners[6 * slot + k] = values[at + k]!;
    this.sum.addCorners(slot, this.textureCorners, 6 * slot);
  }

  private count(slot: number, change: 1 | -1): void {
    this.liveCount += change;
    const a = this.triangles[3 * slot]!, b = this.triangles[3 * slot + 1]!, c = this.triangles[3 * slot + 2]!;
    if (change > 0) this.sum.add(slot, a, b, c, this.zones[slot]!);
    else this.sum.remove(slot, a, b, c, this.zones[slot]!);
  }
}
