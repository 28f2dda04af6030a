import type { SurfaceMirror } from '../net/surface_mirror';

/** Passes of shrinking and of swelling again; together they take the edges of tets out and leave what is wider (Taubin, A signal processing approach to fair surface design, 1995). */
const PASSES = 4;
const SHRINK = 0.5;
const SWELL = -0.526;
/** No vertex is drawn farther from where it is than this share of the mean distance to its neighbours. */
const MAX_SHARE = 0.35;
const EDGE_KEY = 2 ** 26;  // keys are exact for fewer vertices

/**
 * Smooths what cuts leave, for the picture: a carved surface consists of the faces of the tets that stayed, which stick out. Vertices inside a zone follow all
 * their neighbours; those on a border, between zones or at the skin, follow the border alone, so that it loses its zigzag; where borders meet they stay.
 */
export class CutSmoothing {
  /** Vertices that move. */
  private vertices = new Uint32Array(0);
  /** Neighbours of the i-th of them: [starts[i], starts[i + 1]). */
  private starts = new Uint32Array(1);
  private neighbours = new Uint32Array(0);
  /** Of those that follow a border: themselves and the two neighbours along it. */
  private borders = new Uint32Array(0);
  /** [3 * vertex] unit tangents of borders after `apply`, 0 0 0 for vertices that none goes through. */
  tangents = new Float32Array(0);
  private from = new Float32Array(0);
  private to = new Float32Array(0);

  /** Nothing has been cut. */
  get isEmpty(): boolean {
    return this.vertices.length === 0;
  }

  /** `isInterior` of a zone: cuts uncovered it. Costs as much as there are such triangles. */
  rebuild(surface: SurfaceMirror, isInterior: (zone: number) => boolean): void {
    const { triangles, zones, slotCount } = surface;
    /** Of directed edges of the inside, the zone to their left. */
    const zoneOf = new Map<number, number>();
    for (let slot = 0; slot < slotCount; ++slot) {
      if (!isInterior(zones[slot]!) || surface.isFree(slot)) continue;
      for (let k = 0; k < 3; ++k) zoneOf.set(triangles[3 * slot + k]! * EDGE_KEY + triangles[3 * slot + ((k + 1) % 3)]!, zones[slot]!);
    }
    const around = new Map<number, { all: number[]; border: number[] }>();
    const link = (a: number, b: number, isBorder: boolean) => {
      let one = around.get(a);
      if (!one) around.set(a, (one = { all: [], border: [] }));
      one.all.push(b);
      if (isBorder) one.border.push(b);
    };
    for (const [key, zone] of zoneOf) {
      const a = Math.floor(key / EDGE_KEY), b = key % EDGE_KEY;
      const across = zoneOf.get(b * EDGE_KEY + a);
      if (across === undefined) {
        link(a, b, true);
        link(b, a, true);
      } else {
        link(a, b, across !== zone);  // and b to a with the other edge
      }
    }
    const vertices: number[] = [];
    const starts: number[] = [0];
    const neighbours: number[] = [];
    const borders: number[] = [];
    for (const [vertex, { all, border }] of around) {
      if (border.length === 2) borders.push(vertex, border[0]!, border[1]!);
      const follows = border.length === 0 ? all : border.length === 2 ? border : [];
      if (follows.length < 2) continue;
      vertices.push(vertex);
      neighbours.push(...follows);
      starts.push(neighbours.length);
    }
    this.vertices = Uint32Array.from(vertices);
    this.starts = Uint32Array.from(starts);
    this.neighbours = Uint32Array.from(neighbours);
    this.borders = Uint32Array.from(borders);
  }

  /** Where to draw vertices that are at `positions`; valid until the next call. */
  apply(positions: Float32Array): Float32Array {
    if (this.isEmpty) return positions;
    if (this.from.length !== positions.length) {
      this.from = new Float32Array(positions.length);
      this.to = new Float32Array(positions.length);
    }
    this.from.set(positions);
    this.to.set(positions);
    for (let pass = 0; pass < PASSES; ++pass) {
      this.relax(this.from, this.to, SHRINK);
      this.relax(this.to, this.from, SWELL);
    }
    this.limit(positions, this.from);
    this.findTangents(this.from);
    return this.from;
  }

  private findTangents(positions: Float32Array): void {
    if (this.tangents.length !== positions.length) this.tangents = new Float32Array(positions.length);
    this.tangents.fill(0);
    const { borders, tangents } = this;
    for (let i = 0; i < borders.length; i += 3) {
      const at = 3 * borders[i]!, a = 3 * borders[i + 1]!, b = 3 * borders[i + 2]!;
      const x = positions[b]! - positions[a]!, y = positions[b + 1]! - positions[a + 1]!, z = positions[b + 2]! - positions[a + 2]!;
      const size = Math.sqrt(x * x + y * y + z * z);
      if (size === 0) continue;
      tangents[at] = x / size;
      tangents[at + 1] = y / size;
      tangents[at + 2] = z / size;
    }
  }

  private relax(from: Float32Array, to: Float32Array, share: number): void {
    const { vertices, starts, neighbours } = this;
    for (let i = 0; i < vertices.length; ++i) {
      let x = 0, y = 0, z = 0;
      const begin = starts[i]!, end = starts[i + 1]!;
      for (let n = begin; n < end; ++n) {
        const at = 3 * neighbours[n]!;
        x += from[at]!;
        y += from[at + 1]!;
        z += from[at + 2]!;
      }
      const at = 3 * vertices[i]!;
      const weight = share / (end - begin);
      to[at] = (1 - share) * from[at]! + weight * x;
      to[at + 1] = (1 - share) * from[at + 1]! + weight * y;
      to[at + 2] = (1 - share) * from[at + 2]! + weight * z;
    }
  }

  private limit(positions: Float32Array, out: Float32Array): void {
    const { vertices, starts, neighbours } = this;
    for (let i = 0; i < vertices.length; ++i) {
      const at = 3 * vertices[i]!;
      const px = positions[at]!, py = positions[at + 1]!, pz = positions[at + 2]!;
      let reach = 0;
      for (let n = starts[i]!; n < starts[i + 1]!; ++n) {
        const b = 3 * neighbours[n]!;
        reach += Math.hypot(positions[b]! - px, positions[b + 1]! - py, positions[b + 2]! - pz);
      }
      reach *= MAX_SHARE / (starts[i + 1]! - starts[i]!);
      const dx = out[at]! - px, dy = out[at + 1]! - py, dz = out[at + 2]! - pz;
      const moved = Math.hypot(dx, dy, dz);
      if (moved <= reach) continue;
      const share = reach / moved;
      out[at] = px + share * dx;
      out[at + 1] = py + share * dy;
      out[at + 2] = pz + share * dz;
    }
  }
}
