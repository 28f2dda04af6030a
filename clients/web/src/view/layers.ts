// Drawn surfaces in layers: each layer's vertices and triangles derive from those of the layer below, and a change of some triangles passes through all
// layers at the cost of these triangles.
import { computeNormals } from './normals';

const TAG_RANGE = 2 ** 26;  // keys are exact for fewer vertices and tags
/** Between a triangle and the normal of its corner: rounded fully, and not at all. */
const ROUND_COSINE = 0.87;
const SHARP_COSINE = 0.72;
/** Between an edge of a seam and the tangents of the rim at its ends: beyond this the edge is none of the rim. */
const MIN_RIM_COSINE = 0.5;

function grownTo<T extends Float32Array | Uint32Array | Uint16Array | Uint8Array>(array: T, size: number): T {
  if (size <= array.length) return array;
  const larger = new (array.constructor as new (length: number) => T)(Math.max(size, 2 * array.length));
  larger.set(array);
  return larger;
}

/**
 * Vertices that lie on one vertex of the layer below, or between two of them: made when their first triangle asks for them, given back with their last.
 * Ids of vertices that are gone are used again.
 */
class DerivedVertices {
  /** Ids so far; some may be free. */
  count = 0;
  /** [id] what it derives from; the same twice for a copy. */
  first = new Uint32Array(64);
  second = new Uint32Array(64);
  /** Made since the owner last emptied it; may hold ids that are gone again. */
  made: number[] = [];
  private readonly ids = new Map<number, number>();
  private keys: number[] = [];
  private uses = new Uint32Array(64);
  private readonly free: number[] = [];

  /** The vertex with this key. True in `isNew` if nobody had it. */
  acquire(key: number, first: number, second: number): { id: number; isNew: boolean } {
    let id = this.ids.get(key);
    const isNew = id === undefined;
    if (id === undefined) {
      id = this.free.pop() ?? this.count++;
      this.first = grownTo(this.first, this.count);
      this.second = grownTo(this.second, this.count);
      this.uses = grownTo(this.uses, this.count);
      this.ids.set(key, id);
      this.keys[id] = key;
      this.first[id] = first;
      this.second[id] = second;
      this.uses[id] = 0;
      this.made.push(id);
    }
    this.uses[id]! += 1;
    return { id, isNew };
  }

  /** True if nobody has it any more. */
  release(id: number): boolean {
    this.uses[id]! -= 1;
    if (this.uses[id] !== 0) return false;
    this.ids.delete(this.keys[id]!);
    this.free.push(id);
    return true;
  }
}

/** What a layer takes over for good from the one below when it gets new vertices. */
export interface Below {
  rest: Float32Array;
  tags?: Uint16Array;
  texture?: Float32Array;
  texturePeriod?: number;
}

/** Positions and triangles of one layer. What is free is degenerate: corners 0 0 0. */
export abstract class Layer {
  triangles: Uint32Array;
  positions = new Float32Array(0);
  normals = new Float32Array(0);
  /** Places on the body at rest, to which the look of tissue sticks. */
  rest = new Float32Array(0);
  /** [2 * vertex] texture coordinates; empty: none. */
  texture = new Float32Array(0);
  /** Above 0: u goes around and lies in [0, texturePeriod). */
  texturePeriod = 0;
  /** [vertex] what the first split told apart, see SplitLayer. */
  tags = new Uint16Array(0);
  /** [vertex] 1 where the surface has two sides: neighbours across may not round it differently. */
  seams = new Uint8Array(0);
  /** [vertex] 1 where the surface is round, down to 0 at a corner or an edge, which is not to be rounded. */
  roundness = new Float32Array(0);
  /** [3 * vertex] unit tangent of the rim of a cut through the vertex, either way; 0 0 0: none goes through it, or it turns sharply there. */
  rims = new Float32Array(0);
  /** Slots of triangles. */
  triangleCount = 0;
  protected readonly vertices = new DerivedVertices();

  /** `factor`: triangles for one of the layer below. */
  protected constructor(readonly factor: number, triangleCapacity: number) {
    this.triangles = new Uint32Array(3 * triangleCapacity);
  }

  /** Ids of vertices so far. */
  get vertexCount(): number {
    return this.vertices.count;
  }

  /** Gives back the vertices of what lies in a slot of the layer below. */
  abstract release(slot: number): void;
  /** Fills a released slot of the layer below; corners 0 0 0 leave it empty. */
  abstract fill(slot: number, a: number, b: number, c: number, tag: number): void;

  protected reserve(slots: number): void {
    this.triangleCount = Math.max(this.triangleCount, slots);
    this.triangles = grownTo(this.triangles, 3 * slots);
  }

  protected isFree(slot: number): boolean {
    return this.triangles[3 * slot] === 0 && this.triangles[3 * slot + 1] === 0 && this.triangles[3 * slot + 2] === 0;
  }

  protected fitVertices(): void {
    const count = this.vertices.count;
    if (3 * count <= this.positions.length) return;
    this.positions = grownTo(this.positions, 3 * count);
    this.normals = grownTo(this.normals, this.positions.length);
    this.rest = grownTo(this.rest, this.positions.length);
    this.tags = grownTo(this.tags, this.positions.length / 3);
    this.seams = grownTo(this.seams, this.positions.length / 3);
    this.rims = grownTo(this.rims, this.positions.length);
    this.roundness = grownTo(this.roundness, this.positions.length / 3);
  }

  /** Room for the vertices that were made, with their rest places, tags and texture coordinates; returns which. */
  settle(below: Below): number[] {
    this.fitVertices();
    const { first, second, made } = this.vertices;
    for (const id of made) {
      const a = 3 * first[id]!, b = 3 * second[id]!;
      for (let k = 0; k < 3; ++k) this.rest[3 * id + k] = 0.5 * (below.rest[a + k]! + below.rest[b + k]!);
      if (below.tags) this.tags[id] = below.tags[first[id]!]!;
    }
    if (below.texture && below.texture.length > 0) this.settleTexture(below.texture, below.texturePeriod ?? 0);
    this.vertices.made = [];
    return made;
  }

  private settleTexture(below: Float32Array, period: number): void {
    this.texture = grownTo(this.texture, (2 * this.positions.length) / 3);
    this.texturePeriod = period;
    const { first, second, made } = this.vertices;
    for (const id of made) {
      const a = 2 * first[id]!, b = 2 * second[id]!;
      const u = below[a]!;
      let across = below[b]!;
      if (period > 0) across -= period * Math.round((across - u) / period);  // the shorter way around
      let middle = 0.5 * (u + across);
      if (period > 0) middle -= period * Math.floor(middle / period);
      this.texture[2 * id] = middle;
      this.texture[2 * id + 1] = 0.5 * (below[a + 1]! + below[b + 1]!);
    }
  }

  protected computeNormals(): void {
    computeNormals(this.positions.subarray(0, 3 * this.vertexCount), this.triangles.subarray(0, 3 * this.triangleCount), this.normals.subarray(0, 3 * this.vertexCount));
  }
}

/**
 * A vertex for each pair of a vertex below and a tag of its triangles, so that what differs by tag, such as a colour or the direction of the surface, may
 * have a sharp border.
 */
export class SplitLayer extends Layer {
  /** [vertex below] how many tags it has. */
  private copies = new Uint8Array(64);
  private madeTags: number[] = [];
  /** Two for each vertex that was made, if texture coordinates are by corner. */
  private madeTexture: number[] = [];
  /** Numbers of tags with texture coordinates. */
  private readonly variants = new Map<string, number>();
  /** Vertices below that got their first triangle since the owner last emptied it. */
  firstUses: number[] = [];

  constructor(triangleCapacity: number) {
    super(1, triangleCapacity);
  }

  /** Whether triangles hang on the vertex below. */
  isUsed(below: number): boolean {
    return (this.copies[below] ?? 0) > 0;
  }

  release(slot: number): void {
    if (slot >= this.triangleCount || this.isFree(slot)) return;
    for (let k = 0; k < 3; ++k) {
      const id = this.triangles[3 * slot + k]!;
      if (this.vertices.release(id)) this.copies[this.vertices.first[id]!]! -= 1;
    }
    this.triangles.fill(0, 3 * slot, 3 * slot + 3);
  }

  /** `corners`: texture coordinates, u v of each corner from `at` on; then vertices are told apart by them too. */
  fill(slot: number, a: number, b: number, c: number, tag: number, corners?: ArrayLike<number>, at = 0): void {
    this.reserve(slot + 1);
    if (a === 0 && b === 0 && c === 0) return;
    let corner = 3 * slot;
    for (const [k, below] of [a, b, c].entries()) {
      const kind = corners ? this.variantOf(tag, corners[at + 2 * k]!, corners[at + 2 * k + 1]!) : tag;
      const { id, isNew } = this.vertices.acquire(below * TAG_RANGE + kind, below, below);
      if (isNew) {
        if (corners) this.madeTexture.push(corners[at + 2 * k]!, corners[at + 2 * k + 1]!);
        this.copies = grownTo(this.copies, below + 1);
        this.copies[below]! += 1;
        if (this.copies[below] === 1) this.firstUses.push(below);
        this.madeTags.push(tag);
      }
      this.triangles[corner++] = id;
    }
  }

  private variantOf(tag: number, u: number, v: number): number {
    const key = `${tag} ${u} ${v}`;
    let variant = this.variants.get(key);
    if (variant === undefined) this.variants.set(key, variant = this.variants.size);
    return variant;
  }

  override settle(below: Below): number[] {
    const { madeTags: tags, madeTexture: texture } = this;
    this.madeTags = [];
    this.madeTexture = [];
    const made = super.settle(below);
    for (const [i, id] of made.entries()) this.tags[id] = tags[i]!;
    if (texture.length > 0) {
      this.texture = grownTo(this.texture, (2 * this.positions.length) / 3);
      for (const [i, id] of made.entries()) this.texture.set([texture[2 * i]!, texture[2 * i + 1]!], 2 * id);
    }
    return made;
  }

  /** Positions from those below; normals too, or if there are none, from the triangles. `rims`: of vertices below, as in Layer; none if absent. */
  derive(positions: Float32Array, normals?: Float32Array, rims?: Float32Array): void {
    this.fitVertices();
    const { first, count } = this.vertices;
    for (let id = 0; id < count; ++id) {
      const from = 3 * first[id]!, to = 3 * id;
      this.positions[to] = positions[from]!;
      this.positions[to + 1] = positions[from + 1]!;
      this.positions[to + 2] = positions[from + 2]!;
      if (normals) {
        this.normals[to] = normals[from]!;
        this.normals[to + 1] = normals[from + 1]!;
        this.normals[to + 2] = normals[from + 2]!;
      }
      this.seams[id] = this.copies[first[id]!]! > 1 ? 1 : 0;
      for (let k = 0; k < 3; ++k) this.rims[to + k] = this.seams[id] && rims ? rims[from + k]! : 0;
    }
    if (!normals) {
      this.computeNormals();
      this.findRoundness();
    }
  }

  /** By the triangle that turns away most from the normal of a vertex. */
  private findRoundness(): void {
    const { positions: p, normals: n, triangles, roundness } = this;
    roundness.fill(1, 0, this.vertexCount);
    for (let t = 0; t < 3 * this.triangleCount; t += 3) {
      const a = 3 * triangles[t]!, b = 3 * triangles[t + 1]!, c = 3 * triangles[t + 2]!;
      const ux = p[b]! - p[a]!, uy = p[b + 1]! - p[a + 1]!, uz = p[b + 2]! - p[a + 2]!;
      const vx = p[c]! - p[a]!, vy = p[c + 1]! - p[a + 1]!, vz = p[c + 2]! - p[a + 2]!;
      const x = uy * vz - uz * vy, y = uz * vx - ux * vz, z = ux * vy - uy * vx;
      const size = Math.sqrt(x * x + y * y + z * z);
      if (size === 0) continue;
      for (const corner of [a, b, c]) {
        const cosine = (x * n[corner]! + y * n[corner + 1]! + z * n[corner + 2]!) / size;
        const round = Math.min(1, Math.max(0, (cosine - SHARP_COSINE) / (ROUND_COSINE - SHARP_COSINE)));
        if (round < roundness[corner / 3]!) roundness[corner / 3] = round;
      }
    }
  }
}

/**
 * A vertex on each vertex below and one in the middle of each edge, four triangles for one. Middles lie on the curve that leaves both ends at right angles
 * to their normals (the middle of an edge of a curved PN triangle: Vlachos et al., Curved PN Triangles, 2001), so that a coarse surface has a round
 * outline; at edges and corners of the body they lie straight. Between two vertices of a seam, whose other side has other normals, they lie on the cubic
 * through both along the tangents of the rim, which both sides have alike. Their normals are those of the same construction, which turn evenly along the edge.
 * Old vertices stay.
 */
export class RefineLayer extends Layer {
  constructor(triangleCapacity: number) {
    super(4, 4 * triangleCapacity);
  }

  release(slot: number): void {
    const from = 12 * slot;
    if (4 * slot >= this.triangleCount || this.isFree(4 * slot)) return;
    for (const at of [0, 1, 2, 3, 4, 6]) this.vertices.release(this.triangles[from + at]!);
    this.triangles.fill(0, from, from + 12);
  }

  fill(slot: number, a: number, b: number, c: number): void {
    this.reserve(4 * (slot + 1));
    if (a === 0 && b === 0 && c === 0) return;
    const vertex = (p: number, q: number) => {
      const low = Math.min(p, q), high = Math.max(p, q);
      return this.vertices.acquire(low * TAG_RANGE + high, low, high).id;
    };
    const va = vertex(a, a), vb = vertex(b, b), vc = vertex(c, c);
    const ab = vertex(a, b), bc = vertex(b, c), ca = vertex(c, a);
    // release() knows this order
    this.triangles.set([va, ab, ca, vb, bc, ab, vc, ca, bc, ab, bc, ca], 12 * slot);
  }

  derive(below: Layer): void {
    this.fitVertices();
    const { positions: p, normals: n, seams, roundness, rims } = below;
    const { first, second, count } = this.vertices;
    const out = this.positions;
    const normals = this.normals;
    for (let id = 0; id < count; ++id) {
      const u = first[id]!, v = second[id]!;
      const a = 3 * u, b = 3 * v, to = 3 * id;
      const isSeam = seams[u]! & seams[v]!;
      this.seams[id] = isSeam;
      this.roundness[id] = Math.min(roundness[u]!, roundness[v]!);
      if (u === v) {
        for (let k = 0; k < 3; ++k) {
          out[to + k] = p[a + k]!;
          normals[to + k] = n[a + k]!;
          this.rims[to + k] = rims[a + k]!;
        }
        continue;
      }
      const dx = p[b]! - p[a]!, dy = p[b + 1]! - p[a + 1]!, dz = p[b + 2]! - p[a + 2]!;
      const ta = dx * n[a]! + dy * n[a + 1]! + dz * n[a + 2]!, tb = dx * n[b]! + dy * n[b + 1]! + dz * n[b + 2]!;
      const wa = isSeam ? 0 : (roundness[u]! * ta) / 8, wb = isSeam ? 0 : (roundness[v]! * tb) / 8;
      const turn = (2 * this.roundness[id]! * (ta + tb)) / (dx * dx + dy * dy + dz * dz || 1);
      const nx = n[a]! + n[b]! - turn * dx, ny = n[a + 1]! + n[b + 1]! - turn * dy, nz = n[a + 2]! + n[b + 2]! - turn * dz;
      const size = Math.sqrt(nx * nx + ny * ny + nz * nz) || 1;
      normals[to] = nx / size;
      normals[to + 1] = ny / size;
      normals[to + 2] = nz / size;
      out[to] = 0.5 * (p[a]! + p[b]!) + wb * n[b]! - wa * n[a]!;
      out[to + 1] = 0.5 * (p[a + 1]! + p[b + 1]!) + wb * n[b + 1]! - wa * n[a + 1]!;
      out[to + 2] = 0.5 * (p[a + 2]! + p[b + 2]!) + wb * n[b + 2]! - wa * n[a + 2]!;
      this.rims.fill(0, to, to + 3);
      if (isSeam) this.bend(rims, a, b, dx, dy, dz, to);
    }
  }

  /** Moves the middle of an edge of a seam onto the curve of the rim. The same from either end and on either side, so that no gap opens. */
  private bend(rims: Float32Array, a: number, b: number, dx: number, dy: number, dz: number, to: number): void {
    const length = Math.sqrt(dx * dx + dy * dy + dz * dz);
    // An edge that the rim does not follow, which is a chord of it, stays straight.
    const along = (at: number) => (rims[at]! * dx + rims[at + 1]! * dy + rims[at + 2]! * dz) / (length || 1);
    const ca = along(a), cb = along(b);
    if (Math.abs(ca) < MIN_RIM_COSINE || Math.abs(cb) < MIN_RIM_COSINE) return;
    const sa = Math.sign(ca), sb = Math.sign(cb);
    let size = 0;
    for (let k = 0; k < 3; ++k) {
      const d = k === 0 ? dx : k === 1 ? dy : dz;
      const ta = sa * rims[a + k]!, tb = sb * rims[b + k]!;
      this.positions[to + k]! += (length / 8) * (ta - tb);
      const tangent = (1.5 * d) / length - 0.25 * (ta + tb);
      this.rims[to + k] = tangent;
      size += tangent * tangent;
    }
    size = Math.sqrt(size) || 1;
    for (let k = 0; k < 3; ++k) this.rims[to + k]! /= size;
  }
}

/** Values of the three corners of a triangle, two each, at the corners of the triangles that `levels` refinements make of it, in their order. */
export function refinedCorners(corners: ArrayLike<number>, levels: number): Float32Array {
  let all = Float32Array.from(corners);
  for (let level = 0; level < levels; ++level) {
    const finer = new Float32Array(4 * all.length);
    for (let from = 0; from < all.length; from += 6) {
      for (let k = 0; k < 2; ++k) {
        const a = all[from + k]!, b = all[from + 2 + k]!, c = all[from + 4 + k]!;
        const ab = 0.5 * (a + b), bc = 0.5 * (b + c), ca = 0.5 * (c + a);
        // the order of RefineLayer.fill
        for (const [corner, value] of [a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca].entries()) finer[4 * from + 2 * corner + k] = value;
      }
    }
    all = finer;
  }
  return all;
}
