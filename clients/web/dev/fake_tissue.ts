// Tissue for the fake server: tetrahedra that can be taken out and cut apart along their faces, moved by a rubbery toy in place of mechanics.
import { create, type MessageInitShape } from '@bufbuild/protobuf';
import { BodyDeltaSchema, BodyTopologySchema, PositionEncoding, type BodyDelta, type BodyTopology } from '../generated/palpate/v1/stream_pb';
import { add, cross, dot, length, nearestOnTriangle, scale, subtract, type Vector } from './vectors';

export const GRAVITY_M_PER_S2 = 9.81;
const DT_S = 1 / 60;
const SPREAD = 0.32;
const PULL = 0.16;
const DAMPING = 0.86;
const TABLE_M = 0.0005;

export const SURFACE_ZONES: MessageInitShape<typeof BodyTopologySchema>['surfaceZones'] = [
  { name: 'skin', color: { r: 0.5, g: 0.105, b: 0.075 } },
  { name: 'parenchyma', color: { r: 0.25, g: 0.03, b: 0.025 }, isInterior: true },
  { name: 'tumor', color: { r: 0.62, g: 0.44, b: 0.3 }, isInterior: true },
];

/** Corners of the faces of a tet, seen from outside counter-clockwise; face k is opposite corner k. */
const FACES: [number, number, number][] = [[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]];

interface Tet {
  id: number;
  corners: [number, number, number, number];
  /** Across face k: index of a tet, -1 outside. */
  across: [number, number, number, number];
  /** Of face k where it is on the surface. */
  faceZones: [number, number, number, number];
  zone: number;
}

const MASK = (1n << 64n) - 1n;
const GOLDEN = 0x9e3779b97f4a7c15n;

function mixWord(z: bigint): bigint {
  z = ((z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
  z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
  return z ^ (z >> 31n);
}

/** Sum of the hashes of live triangles, as docs/streaming.md has it. */
export function surfaceHash(triangles: readonly number[], zones: readonly number[]): bigint {
  let sum = 0n;
  const chain = (h: bigint, low: number, high: number) => mixWord((h + GOLDEN + BigInt(low) + (BigInt(high) << 32n)) & MASK);
  for (let slot = 0; 3 * slot < triangles.length; ++slot) {
    const [a, b, c] = triangles.slice(3 * slot, 3 * slot + 3) as Vector;
    if (a === 0 && b === 0 && c === 0) continue;
    sum += chain(chain(chain(0n, slot, a), b, c), zones[slot]!, 3);
  }
  return sum & MASK;
}

/** Numbers in use by key; those that are given back are used again. */
class SlotMap {
  readonly slots = new Map<number, number>();
  size = 0;
  private readonly free: number[] = [];

  of(key: number): number {
    let slot = this.slots.get(key);
    if (slot === undefined) {
      slot = this.free.pop() ?? this.size++;
      this.slots.set(key, slot);
    }
    return slot;
  }

  keepOnly(keys: Set<number>): void {
    for (const [key, slot] of this.slots) {
      if (keys.has(key)) continue;
      this.slots.delete(key);
      this.free.push(slot);
    }
  }
}

export class FakeTissue {
  readonly tets = new Map<number, Tet>();
  rest: Vector[] = [];
  positions: Vector[] = [];
  private velocities: Vector[] = [];
  private neighbours: number[][] = [];
  private fallSpeed_m_per_s = 0;
  private isLoose = false;
  private isChanged = false;
  /** [3 * slot + corner], [slot]: what viewers have. */
  triangles: number[] = [];
  zones: number[] = [];
  /** Vertices of the triangles of the surface. */
  private surface: Vector[] = [];
  private readonly vertexSlots = new SlotMap();
  private readonly triangleSlots = new SlotMap();
  readonly held = new Map<number, { tool: number; offset: Vector }>();

  private constructor(readonly name: string, readonly parent: string) {}

  /** The ball in a grid of `cells` cubed, six tets a cube, put in its place by `shape`; `zone` of a point of the ball: of the tets around it. */
  static ball(name: string, cells: number, shape: (point: Vector) => Vector, zone: (point: Vector) => number): FakeTissue {
    const tissue = new FakeTissue(name, '');
    const side = cells + 1;
    const inBall: Vector[] = [];
    for (let z = 0; z < side; ++z) for (let y = 0; y < side; ++y) for (let x = 0; x < side; ++x) {
      const p = [x, y, z].map((i) => (2 * i) / cells - 1) as Vector;
      const n = length(p);
      inBall.push(n === 0 ? p : scale(p, Math.max(...p.map(Math.abs)) / n));
    }
    tissue.rest = inBall.map(shape);
    const axes = [1, side, side * side];
    let id = 0;
    for (let z = 0; z < cells; ++z) for (let y = 0; y < cells; ++y) for (let x = 0; x < cells; ++x) {
      const base = x + y * side + z * side * side;
      for (const [i, j, isOdd] of [[0, 1, 0], [1, 2, 0], [2, 0, 0], [0, 2, 1], [2, 1, 1], [1, 0, 1]] as const) {
        const [a, b, c, d] = [base, base + axes[i]!, base + axes[i]! + axes[j]!, base + axes[0]! + axes[1]! + axes[2]!];
        const center = [a, b, c, d].reduce<Vector>((sum, v) => add(sum, scale(inBall[v]!, 0.25)), [0, 0, 0]);
        tissue.tets.set(id, { id, corners: isOdd ? [a, c, b, d] : [a, b, c, d], across: [-1, -1, -1, -1], faceZones: [0, 0, 0, 0], zone: zone(center) });
        ++id;
      }
    }
    const open = new Map<string, [Tet, number]>();
    for (const tet of tissue.tets.values()) FACES.forEach((face, k) => {
      const key = face.map((corner) => tet.corners[corner]!).sort((p, q) => p - q).join();
      const other = open.get(key);
      if (other) {
        tet.across[k] = other[0].id;
        other[0].across[other[1]] = tet.id;
      } else {
        open.set(key, [tet, k]);
      }
    });
    tissue.start();
    return tissue;
  }

  private start(): void {
    this.positions = this.rest.map((p) => [...p]);
    this.velocities = this.rest.map(() => [0, 0, 0]);
    this.relink();
    this.resurface();
  }

  get slotCount(): number {
    return this.vertexSlots.size;
  }

  private centroid(tet: Tet): Vector {
    return tet.corners.reduce<Vector>((sum, v) => add(sum, scale(this.positions[v]!, 0.25)), [0, 0, 0]);
  }

  // --- edits ----------------------------------------------------------------------------------------------------------------------------------------

  /** Takes out the tets whose centroids are within `radius_m` of the segment; their ids. */
  carve(end0: Vector, end1: Vector, radius_m: number): number[] {
    const axis = subtract(end1, end0);
    const axisSq = dot(axis, axis);
    const gone = [...this.tets.values()].filter((tet) => {
      const away = subtract(this.centroid(tet), end0);
      const t = axisSq > 0 ? Math.min(1, Math.max(0, dot(away, axis) / axisSq)) : 0;
      return length(subtract(away, scale(axis, t))) < radius_m;
    });
    for (const tet of gone) {
      tet.across.forEach((other, k) => this.open(tet, k, other));
      this.tets.delete(tet.id);
    }
    if (gone.length > 0) this.isChanged = true;
    this.splitVertices(gone.flatMap((tet) => tet.corners));
    return gone.map((tet) => tet.id);
  }

  /** Opens the faces between tets on both sides of the sheets that the blade sweeps; how many. The lips part a little. */
  incise(edges: [Vector, Vector][]): number {
    const cut = new Set<number>();
    let count = 0;
    for (let i = 0; i + 1 < edges.length; ++i) {
      const [a, b] = edges[i]!;
      const [c, d] = edges[i + 1]!;
      const normal = cross(subtract(b, a), subtract(c, a));
      const size = length(normal) || 1;
      for (const tet of this.tets.values()) tet.across.forEach((other, k) => {
        if (other <= tet.id) return;
        const from = this.centroid(tet), to = this.centroid(this.tets.get(other)!);
        if (!crosses(from, to, a, b, c) && !crosses(from, to, c, b, d)) return;
        for (const corner of FACES[k]!) cut.add(tet.corners[corner]!);
        this.open(tet, k, other);
        ++count;
      });
      this.splitVertices([...cut], (tets, vertex) => {
        const center = tets.reduce<Vector>((sum, tet) => add(sum, scale(this.centroid(tet), 1 / tets.length)), [0, 0, 0]);
        const side = Math.sign(dot(subtract(center, this.positions[vertex]!), normal));
        return scale(normal, (side * 0.003) / size);
      });
    }
    return count;
  }

  /** The face between two tets becomes two of the surface. */
  private open(tet: Tet, face: number, other: number): void {
    if (other < 0) return;
    this.isChanged = true;
    const neighbour = this.tets.get(other)!;
    const back = neighbour.across.indexOf(tet.id);
    tet.across[face] = -1;
    neighbour.across[back] = -1;
    tet.faceZones[face] = 1 + tet.zone;
    neighbour.faceZones[back] = 1 + neighbour.zone;
  }

  /** Where the tets around a vertex hang together in several groups, each gets a vertex of its own. `part`: moves the rest place of a group. */
  private splitVertices(vertices: number[], part?: (tets: Tet[], vertex: number) => Vector): void {
    const around = new Map<number, Tet[]>();
    for (const vertex of vertices) around.set(vertex, []);
    for (const tet of this.tets.values()) for (const v of tet.corners) around.get(v)?.push(tet);
    for (const [vertex, tets] of around) {
      const left = new Set(tets);
      const groups: Tet[][] = [];
      for (const seed of tets) {
        if (!left.delete(seed)) continue;
        const group = [seed];
        for (const tet of group) {
          FACES.forEach((face, k) => {
            const other = tet.across[k]! >= 0 ? this.tets.get(tet.across[k]!) : undefined;
            if (other && face.some((corner) => tet.corners[corner] === vertex) && left.delete(other)) group.push(other);
          });
        }
        groups.push(group);
      }
      if (groups.length < 2) continue;
      groups.forEach((group, index) => {
        let own = vertex;
        if (index > 0) {
          own = this.rest.push([...this.rest[vertex]!]) - 1;
          this.positions.push([...this.positions[vertex]!]);
          this.velocities.push([...this.velocities[vertex]!]);
          for (const tet of group) tet.corners[tet.corners.indexOf(vertex)] = own;
        }
        if (part) this.rest[own] = add(this.rest[own]!, part(group, own));
      });
    }
  }

  /** Takes the parts that hang on nothing any more away: all but the largest, as bodies of their own. */
  takePieces(nextName: () => string): FakeTissue[] {
    if (!this.isChanged) return [];
    const left = new Set(this.tets.values());
    const parts: Tet[][] = [];
    for (const seed of this.tets.values()) {
      if (!left.delete(seed)) continue;
      const part = [seed];
      for (const tet of part) for (const other of tet.across) {
        const next = other >= 0 ? this.tets.get(other)! : undefined;
        if (next && left.delete(next)) part.push(next);
      }
      parts.push(part);
    }
    parts.sort((p, q) => q.length - p.length);
    return parts.slice(1).map((part) => {
      const piece = new FakeTissue(nextName(), this.name);
      const vertices = new Map<number, number>();
      for (const tet of part) {
        this.tets.delete(tet.id);
        piece.tets.set(tet.id, tet);
        tet.corners = tet.corners.map((v) => {
          if (!vertices.has(v)) {
            vertices.set(v, piece.rest.length);
            piece.rest.push([...this.positions[v]!]);
          }
          return vertices.get(v)!;
        }) as Tet['corners'];
      }
      piece.isLoose = true;
      piece.start();
      return piece;
    });
  }

  /** Neighbours of vertices. */
  private relink(): void {
    const sets = this.rest.map(() => new Set<number>());
    for (const { corners } of this.tets.values()) for (const a of corners) for (const b of corners) if (a !== b) sets[a]!.add(b);
    this.neighbours = sets.map((set) => [...set]);
    for (const vertex of this.held.keys()) if (this.neighbours[vertex]!.length === 0) this.held.delete(vertex);
  }

  /** Brings the arrays of viewers up to date; what changed. */
  private resurface(): { triangleSlots: number[]; triangles: number[]; triangleZones: number[] } {
    const faces = new Map<number, { corners: number[]; zone: number }>();
    const vertices = new Set<number>();
    for (const tet of this.tets.values()) FACES.forEach((face, k) => {
      if (tet.across[k]! >= 0) return;
      const corners = face.map((corner) => tet.corners[corner]!);
      for (const v of corners) vertices.add(v);
      faces.set(4 * tet.id + k, { corners, zone: tet.faceZones[k]! });
    });
    this.surface = [...faces.values()].map(({ corners }) => corners as Vector);
    this.vertexSlots.keepOnly(vertices);
    this.triangleSlots.keepOnly(new Set(faces.keys()));
    const before = { triangles: this.triangles, zones: this.zones };
    const filled = [...faces].map(([key, { corners, zone }]) => ({ slot: this.triangleSlots.of(key), corners: corners.map((v) => this.vertexSlots.of(v)), zone }));
    this.triangles = Array(3 * this.triangleSlots.size).fill(0);
    this.zones = Array(this.triangleSlots.size).fill(0);
    for (const { slot, corners, zone } of filled) {
      corners.forEach((v, k) => (this.triangles[3 * slot + k] = v));
      this.zones[slot] = zone;
    }
    const triangleSlots: number[] = [];
    for (let slot = 0; slot < this.zones.length; ++slot) {
      const isSame = this.zones[slot] === before.zones[slot] && [0, 1, 2].every((k) => this.triangles[3 * slot + k] === before.triangles[3 * slot + k]);
      if (!isSame) triangleSlots.push(slot);
    }
    return {
      triangleSlots,
      triangles: triangleSlots.flatMap((slot) => this.triangles.slice(3 * slot, 3 * slot + 3)),
      triangleZones: triangleSlots.map((slot) => this.zones[slot]!),
    };
  }

  topology(): BodyTopology {
    return create(BodyTopologySchema, {
      name: this.name, parent: this.parent, vertexCount: this.slotCount, triangles: this.triangles, triangleZones: this.zones,
      color: SURFACE_ZONES![0]!.color!, surfaceZones: SURFACE_ZONES!, meshHash: surfaceHash(this.triangles, this.zones),
    });
  }

  /** What edits changed since the last, if anything. */
  delta(bodyIndex: number): BodyDelta | undefined {
    if (!this.isChanged) return undefined;
    this.isChanged = false;
    this.relink();
    const change = this.resurface();
    return create(BodyDeltaSchema, { bodyIndex, vertexCount: this.slotCount, triangleCount: this.zones.length, ...change, meshHash: surfaceHash(this.triangles, this.zones) });
  }

  // --- motion ---------------------------------------------------------------------------------------------------------------------------------------

  /** One step; `tips`: of tools that hold vertices. */
  advance(time_s: number, tips: Vector[]): void {
    if (this.isLoose) {
      this.fallSpeed_m_per_s += GRAVITY_M_PER_S2 * DT_S;
      const lowest = Math.min(...this.rest.map((p) => p[2]));
      const fall = Math.min(this.fallSpeed_m_per_s * DT_S, Math.max(0, lowest - TABLE_M));
      if (fall === 0) this.fallSpeed_m_per_s = 0;
      for (const p of [...this.rest, ...this.positions]) p[2] -= fall;
    }
    const breath = this.isLoose ? 1 : 1 + 0.02 * Math.sin(1.6 * time_s);
    const moved = new Float64Array(3 * this.positions.length);
    for (let i = 0; i < this.positions.length; ++i) {
      const p = this.positions[i]!, rest = this.rest[i]!;
      moved[3 * i] = p[0] - rest[0];
      moved[3 * i + 1] = p[1] - rest[1];
      moved[3 * i + 2] = p[2] - rest[2] * breath;
    }
    const mean: Vector = [0, 0, 0];
    for (let i = 0; i < this.positions.length; ++i) {
      const around = this.neighbours[i]!;
      if (around.length === 0) continue;
      mean.fill(0);
      for (const j of around) for (let k = 0; k < 3; ++k) mean[k] = mean[k]! + moved[3 * j + k]!;
      const p = this.positions[i]!, v = this.velocities[i]!;
      for (let k = 0; k < 3; ++k) {
        const d = moved[3 * i + k]!;
        v[k] = (v[k]! - PULL * d + SPREAD * (mean[k]! / around.length - d)) * DAMPING;
        p[k] = p[k]! + v[k]!;
      }
      if (p[2] < TABLE_M) p[2] = TABLE_M;
    }
    for (const [vertex, { tool, offset }] of this.held) {
      this.positions[vertex] = add(tips[tool]!, offset);
      this.velocities[vertex] = [0, 0, 0];
    }
  }

  /** Vertices that move with a tool, with the force of each on it. */
  holdForce(tool: number): { count: number; force: Vector } {
    let count = 0;
    let force: Vector = [0, 0, 0];
    for (const [vertex, one] of this.held) {
      if (one.tool !== tool) continue;
      ++count;
      force = add(force, scale(subtract(this.rest[vertex]!, this.positions[vertex]!), 8));
    }
    return { count, force };
  }

  hold(tool: number, tip: Vector, radius_m: number): number {
    let count = 0;
    for (const vertex of this.vertexSlots.slots.keys()) {
      const offset = subtract(this.positions[vertex]!, tip);
      if (length(offset) > radius_m) continue;
      this.held.set(vertex, { tool, offset });
      ++count;
    }
    return count;
  }

  release(tool: number): void {
    for (const [vertex, one] of this.held) if (one.tool === tool) this.held.delete(vertex);
  }

  /** Moves the surface out of a capsule from `end0` to `end1`; where it touches, the way it was pushed, and how far it has been pushed from its rest. */
  pushOut(end0: Vector, end1: Vector, radius_m: number): { point: Vector; normal: Vector; offset_m: number; depth_m: number }[] {
    const contacts: { point: Vector; normal: Vector; offset_m: number; depth_m: number }[] = [];
    const low = end0.map((x, k) => Math.min(x, end1[k]!) - radius_m);
    const high = end0.map((x, k) => Math.max(x, end1[k]!) + radius_m);
    const axis = subtract(end1, end0);
    for (const corners of this.surface) {
      const [a, b, c] = corners.map((vertex) => this.positions[vertex]!) as [Vector, Vector, Vector];
      if (low.some((x, k) => Math.max(a[k]!, b[k]!, c[k]!) < x) || high.some((x, k) => Math.min(a[k]!, b[k]!, c[k]!) > x)) continue;
      // Both are convex: going back and forth between them ends where they are nearest.
      let onAxis = end0, weights: Vector = [1, 0, 0], point = a;
      for (let i = 0; i < 8; ++i) {
        weights = nearestOnTriangle(onAxis, a, b, c);
        point = add(add(scale(a, weights[0]), scale(b, weights[1])), scale(c, weights[2]));
        onAxis = add(end0, scale(axis, Math.min(1, Math.max(0, dot(subtract(point, end0), axis) / dot(axis, axis)))));
      }
      const away = subtract(point, onAxis);
      const distance = length(away);
      if (distance >= radius_m) continue;
      const outward = cross(subtract(b, a), subtract(c, a));
      const normal = distance > 1e-6 ? scale(away, 1 / distance) : scale(outward, -1 / (length(outward) || 1));
      const depth_m = radius_m - distance;
      const share = depth_m / dot(weights, weights);
      let offset: Vector = [0, 0, 0];
      for (const [k, vertex] of corners.entries()) {
        this.positions[vertex] = add(this.positions[vertex]!, scale(normal, share * weights[k]!));
        const inward = weights[k]! > 0 ? dot(this.velocities[vertex]!, normal) : 0;
        if (inward < 0) this.velocities[vertex] = subtract(this.velocities[vertex]!, scale(normal, inward));
        offset = add(offset, scale(subtract(this.positions[vertex]!, this.rest[vertex]!), weights[k]!));
      }
      contacts.push({ point: add(point, scale(normal, depth_m)), normal, offset_m: length(offset), depth_m });
    }
    return contacts;
  }

  encode(encoding: PositionEncoding) {
    const bySlot: Vector[] = Array.from({ length: this.slotCount }, () => [0, 0, 0]);
    for (const [vertex, slot] of this.vertexSlots.slots) bySlot[slot] = this.positions[vertex]!;
    return encodePositions(bySlot, encoding);
  }
}

/** Whether the segment meets the triangle. */
function crosses(from: Vector, to: Vector, a: Vector, b: Vector, c: Vector): boolean {
  const direction = subtract(to, from);
  const u = subtract(b, a), v = subtract(c, a);
  const p = cross(direction, v);
  const det = dot(u, p);
  if (Math.abs(det) < 1e-18) return false;
  const s = subtract(from, a);
  const wu = dot(s, p) / det;
  const q = cross(s, u);
  const wv = dot(direction, q) / det;
  const t = dot(v, q) / det;
  return wu >= 0 && wv >= 0 && wu + wv <= 1 && t >= 0 && t <= 1;
}

const vec3 = (a: Vector) => ({ x: a[0], y: a[1], z: a[2] });

export function encodePositions(positions: Vector[], encoding: PositionEncoding) {
  if (encoding === PositionEncoding.UINT16) {
    const low: Vector = [Infinity, Infinity, Infinity];
    const high: Vector = [-Infinity, -Infinity, -Infinity];
    for (const p of positions) for (let k = 0; k < 3; ++k) { low[k] = Math.min(low[k]!, p[k]!); high[k] = Math.max(high[k]!, p[k]!); }
    const step = high.map((h, k) => Math.max((h - low[k]!) / 65535, 1e-12)) as Vector;
    const bytes = new DataView(new ArrayBuffer(positions.length * 6));
    positions.forEach((p, i) => p.forEach((x, k) => bytes.setUint16(6 * i + 2 * k, Math.round((x - low[k]!) / step[k]!), true)));
    return { positions: new Uint8Array(bytes.buffer), originM: vec3(low), scaleM: vec3(step), maxErrorM: Math.max(...step) / 2 };
  }
  const bytes = new DataView(new ArrayBuffer(positions.length * 12));
  positions.forEach((p, i) => p.forEach((x, k) => bytes.setFloat32(12 * i + 4 * k, x, true)));
  return { positions: new Uint8Array(bytes.buffer) };
}
