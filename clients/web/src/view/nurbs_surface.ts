import type { NurbsPatch, NurbsTrimCurve } from '../../generated/palpate/v1/nurbs_pb';

/** Steps along one parameter between two knots, at most. */
const MAX_STEPS = 64;

/** Basis functions that are not 0 in a span, and their first derivatives, over clamped knots (Piegl and Tiller, The NURBS Book, A2.3). */
export class Basis {
  private readonly values: Float64Array;
  private readonly lower: Float64Array;

  constructor(readonly degree: number, readonly knots: readonly number[]) {
    this.values = new Float64Array(degree + 1);
    this.lower = new Float64Array(degree + 1);
  }

  get count(): number {
    return this.knots.length - this.degree - 1;
  }

  get first(): number {
    return this.knots[0]!;
  }

  get last(): number {
    return this.knots[this.knots.length - 1]!;
  }

  /** Knots without repetitions. */
  get breaks(): number[] {
    return this.knots.filter((knot, i) => i === 0 || knot > this.knots[i - 1]!);
  }

  spanOf(t: number): number {
    let low = this.degree, high = this.count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.knots[middle]! <= t) low = middle;
      else high = middle - 1;
    }
    while (low > this.degree && this.knots[low]! === this.knots[low + 1]!) --low;  // the end of the domain belongs to the last span
    return low;
  }

  /** Fills functions and derivatives at t; returns the first control point that counts. */
  at(t: number, functions: Float64Array, derivatives: Float64Array): number {
    const { degree, knots } = this;
    const span = this.spanOf(t);
    const raise = (to: number, out: Float64Array) => {
      out.fill(0);
      out[0] = 1;
      for (let j = 1; j <= to; ++j) {
        let saved = 0;
        for (let r = 0; r < j; ++r) {
          const right = knots[span + r + 1]! - t, left = t - knots[span + 1 - j + r]!;
          const share = out[r]! / (right + left);
          out[r] = saved + right * share;
          saved = left * share;
        }
        out[j] = saved;
      }
    };
    raise(degree, this.values);
    raise(degree - 1, this.lower);
    for (let r = 0; r <= degree; ++r) {
      functions[r] = this.values[r]!;
      const i = span - degree + r;
      const before = r > 0 ? this.lower[r - 1]! / (knots[i + degree]! - knots[i]!) : 0;
      const after = r < degree ? this.lower[r]! / (knots[i + degree + 1]! - knots[i + 1]!) : 0;
      derivatives[r] = degree * (before - after);
    }
    return span - degree;
  }
}

/** A rational surface as the server has it, evaluated in double. */
export class NurbsEvaluator {
  readonly u: Basis;
  readonly v: Basis;
  /** x y z, and unit normal along S_u x S_v, of the newest evaluation. */
  readonly point = new Float64Array(3);
  readonly normal = new Float64Array(3);
  private readonly scratch: Float64Array[];
  private readonly sums = new Float64Array(12);

  constructor(private readonly patch: NurbsPatch) {
    this.u = new Basis(patch.degreeU, patch.knotsU);
    this.v = new Basis(patch.degreeV, patch.knotsV);
    this.scratch = [patch.degreeU, patch.degreeU, patch.degreeV, patch.degreeV].map((degree) => new Float64Array(degree + 1));
  }

  /** What is wrong with a patch, if anything. */
  static problemOf(patch: NurbsPatch): string | undefined {
    for (const [degree, knots] of [[patch.degreeU, patch.knotsU], [patch.degreeV, patch.knotsV]] as const) {
      if (!(degree >= 1 && degree <= 15) || knots.length < 2 * degree + 2) return `degree ${degree} with ${knots.length} knots`;
      for (let i = 1; i < knots.length; ++i) if (!(knots[i]! >= knots[i - 1]!)) return 'knots that fall';
    }
    const count = (patch.knotsU.length - patch.degreeU - 1) * (patch.knotsV.length - patch.degreeV - 1);
    if (patch.controlM.length !== 3 * count) return `${patch.controlM.length} coordinates of ${count} control points`;
    if (patch.weights.length !== 0 && patch.weights.length !== count) return `${patch.weights.length} weights of ${count} control points`;
    return undefined;
  }

  private evaluate(u: number, v: number): void {
    const [fu, du, fv, dv] = this.scratch as [Float64Array, Float64Array, Float64Array, Float64Array];
    const i0 = this.u.at(u, fu, du), j0 = this.v.at(v, fv, dv);
    const { controlM, weights } = this.patch;
    const s = this.sums.fill(0);
    const row = this.v.count;
    for (let i = 0; i < fu.length; ++i) {
      for (let j = 0; j < fv.length; ++j) {
        const at = (i0 + i) * row + j0 + j;
        const w = weights.length > 0 ? weights[at]! : 1;
        for (const [k, f] of [fu[i]! * fv[j]!, du[i]! * fv[j]!, fu[i]! * dv[j]!].entries()) {
          s[4 * k]! += f * w * controlM[3 * at]!;
          s[4 * k + 1]! += f * w * controlM[3 * at + 1]!;
          s[4 * k + 2]! += f * w * controlM[3 * at + 2]!;
          s[4 * k + 3]! += f * w;
        }
      }
    }
    const { point } = this;
    for (let k = 0; k < 3; ++k) point[k] = s[k]! / s[3]!;
    const tangent = (of: number, k: number) => (s[4 * of + k]! - s[4 * of + 3]! * point[k]!) / s[3]!;
    const [ax, ay, az, bx, by, bz] = [tangent(1, 0), tangent(1, 1), tangent(1, 2), tangent(2, 0), tangent(2, 1), tangent(2, 2)];
    this.normal[0] = ay * bz - az * by;
    this.normal[1] = az * bx - ax * bz;
    this.normal[2] = ax * by - ay * bx;
  }

  /** Fills `point` and `normal`. At a pole, where a derivative is 0, the normal is that of a place a little inside. */
  at(u: number, v: number): void {
    this.evaluate(u, v);
    let length = Math.hypot(...this.normal);
    const size = Math.hypot(...this.point) + 1e-3;
    if (length < 1e-9 * size * size) {
      const point = this.point.slice();
      const inside = (t: number, basis: Basis) => t + 1e-4 * ((basis.first + basis.last) / 2 - t);
      this.evaluate(inside(u, this.u), inside(v, this.v));
      this.point.set(point);
      length = Math.hypot(...this.normal);
    }
    for (let k = 0; k < 3; ++k) this.normal[k]! /= length || 1;
  }
}

/** Triangles of a patch, or of the part of it that its loops lie in. */
export interface PatchMesh {
  positions: Float32Array;
  normals: Float32Array;
  /** In [0, 1] of the part. */
  places: Float32Array;
  triangles: Uint32Array;
}

/** Low and high u, low and high v of what there is to draw. */
export function domainOf(patch: NurbsPatch): [number, number, number, number] {
  const whole: [number, number, number, number] = [patch.knotsU[0]!, patch.knotsU.at(-1)!, patch.knotsV[0]!, patch.knotsV.at(-1)!];
  if (patch.loops.length === 0) return whole;
  const box: [number, number, number, number] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const loop of patch.loops) {
    for (const [u, v] of loopPoints(loop.curves)) {
      box[0] = Math.min(box[0], u);
      box[1] = Math.max(box[1], u);
      box[2] = Math.min(box[2], v);
      box[3] = Math.max(box[3], v);
    }
  }
  return [Math.max(whole[0], box[0]), Math.min(whole[1], box[1]), Math.max(whole[2], box[2]), Math.min(whole[3], box[3])];
}

/** A loop as a polygon in (u, v). */
export function loopPoints(curves: readonly NurbsTrimCurve[], stepsPerSpan = 24): [number, number][] {
  const out: [number, number][] = [];
  for (const curve of curves) {
    const basis = new Basis(curve.degree, curve.knots);
    const [functions, derivatives] = [new Float64Array(curve.degree + 1), new Float64Array(curve.degree + 1)];
    const breaks = basis.breaks;
    const points: [number, number][] = [];
    for (let k = 0; k + 1 < breaks.length; ++k) {
      const steps = curve.degree === 1 ? 1 : stepsPerSpan;
      for (let i = 0; i < steps; ++i) points.push(at(breaks[k]! + ((breaks[k + 1]! - breaks[k]!) * i) / steps));
    }
    points.push(at(basis.last));
    if (curve.isReversed) points.reverse();
    out.push(...points.slice(0, -1));

    function at(t: number): [number, number] {
      const first = basis.at(t, functions, derivatives);
      let u = 0, v = 0, sum = 0;
      for (let r = 0; r <= curve.degree; ++r) {
        const w = functions[r]! * (curve.weights.length > 0 ? curve.weights[first + r]! : 1);
        u += w * curve.points[2 * (first + r)]!;
        v += w * curve.points[2 * (first + r) + 1]!;
        sum += w;
      }
      return [u / sum, v / sum];
    }
  }
  return out;
}

/** How far chords of so many steps are from the curve through three samples a step, at most of some. */
function parametersFor(breaks: number[], low: number, high: number, sagOf: (from: number, to: number) => number, tolerance_m: number): number[] {
  const inside = breaks.filter((t) => t > low && t < high);
  const out: number[] = [low];
  for (const end of [...inside, high]) {
    const from = out[out.length - 1]!;
    const sag_m = sagOf(from, end);
    // A chord's sag falls with the square of its length.
    const steps = Math.min(MAX_STEPS, Math.max(1, Math.ceil(Math.sqrt(sag_m / tolerance_m))));
    for (let i = 1; i <= steps; ++i) out.push(i === steps ? end : from + ((end - from) * i) / steps);
  }
  return out;
}

/**
 * Triangles about `tolerance_m` from the surface, on a grid with lines at the knots. Neighbouring patches with the same parameters along their common edge
 * get the same points there.
 */
export function tessellate(patch: NurbsPatch, tolerance_m: number): PatchMesh {
  const surface = new NurbsEvaluator(patch);
  const [u0, u1, v0, v1] = domainOf(patch);
  const SAMPLES = 5;
  const pointAt = (u: number, v: number): [number, number, number] => {
    surface.at(u, v);
    return [surface.point[0]!, surface.point[1]!, surface.point[2]!];
  };
  // The largest distance of the middle of a half from its chord, times four for the whole.
  const sag = (at: (t: number, across: number) => [number, number, number], across: [number, number], from: number, to: number) => {
    let largest = 0;
    for (let k = 0; k <= SAMPLES; ++k) {
      const c = across[0] + ((across[1] - across[0]) * k) / SAMPLES;
      for (const [a, b] of [[from, (from + to) / 2], [(from + to) / 2, to]] as const) {
        const [p, q, r] = [at(a, c), at((a + b) / 2, c), at(b, c)];
        largest = Math.max(largest, Math.hypot(q[0] - (p[0] + r[0]) / 2, q[1] - (p[1] + r[1]) / 2, q[2] - (p[2] + r[2]) / 2));
      }
    }
    return 4 * largest;
  };
  const us = parametersFor(surface.u.breaks, u0, u1, (from, to) => sag((t, c) => pointAt(t, c), [v0, v1], from, to), tolerance_m);
  const vs = parametersFor(surface.v.breaks, v0, v1, (from, to) => sag((t, c) => pointAt(c, t), [u0, u1], from, to), tolerance_m);
  const count = us.length * vs.length;
  const mesh: PatchMesh = {
    positions: new Float32Array(3 * count), normals: new Float32Array(3 * count), places: new Float32Array(2 * count),
    triangles: new Uint32Array(6 * (us.length - 1) * (vs.length - 1)),
  };
  for (const [i, u] of us.entries()) {
    for (const [j, v] of vs.entries()) {
      const at = i * vs.length + j;
      surface.at(u, v);
      mesh.positions.set(surface.point, 3 * at);
      mesh.normals.set(surface.normal, 3 * at);
      mesh.places[2 * at] = (u - u0) / (u1 - u0);
      mesh.places[2 * at + 1] = (v - v0) / (v1 - v0);
    }
  }
  let k = 0;
  for (let i = 0; i + 1 < us.length; ++i) {
    for (let j = 0; j + 1 < vs.length; ++j) {
      const a = i * vs.length + j, b = a + vs.length;
      mesh.triangles.set([a, b, b + 1, a, b + 1, a + 1], k);
      k += 6;
    }
  }
  return mesh;
}

/** The vertices of a patch's triangles while its control points move: each is a fixed mean of the same few control points. */
export class MovingPatch {
  /** Of each vertex: its first control point, and values and derivatives by u and v of the functions that count. */
  private readonly first: Uint32Array;
  private readonly rows: Float32Array;
  private readonly rowCount: number;
  private readonly columnCount: number;
  private readonly stride: number;

  constructor(patch: NurbsPatch, private readonly mesh: PatchMesh) {
    const [u, v] = [new Basis(patch.degreeU, patch.knotsU), new Basis(patch.degreeV, patch.knotsV)];
    const [u0, u1, v0, v1] = domainOf(patch);
    this.rowCount = patch.degreeU + 1;
    this.columnCount = patch.degreeV + 1;
    this.stride = v.count;
    const size = this.rowCount * this.columnCount;
    const count = mesh.places.length / 2;
    this.first = new Uint32Array(count);
    this.rows = new Float32Array(3 * size * count);
    const [fu, du, fv, dv] = [this.rowCount, this.rowCount, this.columnCount, this.columnCount].map((n) => new Float64Array(n)) as
      [Float64Array, Float64Array, Float64Array, Float64Array];
    const weight = (at: number) => (patch.weights.length > 0 ? patch.weights[at]! : 1);
    for (let vertex = 0; vertex < count; ++vertex) {
      const at = (kind: 'value' | 'derivatives', pu: number, pv: number) => {
        const i0 = u.at(u0 + pu * (u1 - u0), fu, du), j0 = v.at(v0 + pv * (v1 - v0), fv, dv);
        let [w, wu, wv] = [0, 0, 0];
        for (let i = 0; i < this.rowCount; ++i) {
          for (let j = 0; j < this.columnCount; ++j) {
            const of = weight((i0 + i) * this.stride + j0 + j);
            w += fu[i]! * fv[j]! * of;
            wu += du[i]! * fv[j]! * of;
            wv += fu[i]! * dv[j]! * of;
          }
        }
        for (let i = 0; i < this.rowCount; ++i) {
          for (let j = 0; j < this.columnCount; ++j) {
            const of = weight((i0 + i) * this.stride + j0 + j);
            const k = 3 * size * vertex + i * this.columnCount + j;
            const value = (fu[i]! * fv[j]! * of) / w;
            if (kind === 'value') this.rows[k] = value;
            else {
              this.rows[k + size] = (du[i]! * fv[j]! * of - value * wu) / w;
              this.rows[k + 2 * size] = (fu[i]! * dv[j]! * of - value * wv) / w;
            }
          }
        }
        return i0 * this.stride + j0;
      };
      // At an edge that is one point a derivative is 0: those a little inside have the same limit of the normal. The span stays.
      const inside = (t: number) => Math.min(1 - 1e-3, Math.max(1e-3, t));
      const [pu, pv] = [mesh.places[2 * vertex]!, mesh.places[2 * vertex + 1]!];
      at('derivatives', inside(pu), inside(pv));
      this.first[vertex] = at('value', pu, pv);
    }
  }

  /** Writes positions and unit normals into the mesh; `control`: x y z of the patch's control points, from `begin` on. */
  update(control: Float32Array, begin: number): void {
    const { positions, normals } = this.mesh;
    const size = this.rowCount * this.columnCount;
    for (let vertex = 0; vertex < this.first.length; ++vertex) {
      let [x, y, z, ux, uy, uz, vx, vy, vz] = [0, 0, 0, 0, 0, 0, 0, 0, 0];
      let k = 3 * size * vertex;
      for (let i = 0; i < this.rowCount; ++i) {
        let at = begin + 3 * (this.first[vertex]! + i * this.stride);
        for (let j = 0; j < this.columnCount; ++j, ++k, at += 3) {
          const [px, py, pz] = [control[at]!, control[at + 1]!, control[at + 2]!];
          const [f, du, dv] = [this.rows[k]!, this.rows[k + size]!, this.rows[k + 2 * size]!];
          x += f * px;
          y += f * py;
          z += f * pz;
          ux += du * px;
          uy += du * py;
          uz += du * pz;
          vx += dv * px;
          vy += dv * py;
          vz += dv * pz;
        }
      }
      const [nx, ny, nz] = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
      const length = Math.hypot(nx, ny, nz) || 1;
      positions[3 * vertex] = x;
      positions[3 * vertex + 1] = y;
      positions[3 * vertex + 2] = z;
      normals[3 * vertex] = nx / length;
      normals[3 * vertex + 1] = ny / length;
      normals[3 * vertex + 2] = nz / length;
    }
  }
}

/** Whether (u, v) is inside polygons by the winding number that is not 0. */
function isInside(polygons: [number, number][][], u: number, v: number): boolean {
  let winding = 0;
  for (const polygon of polygons) {
    for (const [i, a] of polygon.entries()) {
      const b = polygon[(i + 1) % polygon.length]!;
      if (a[1] <= v === b[1] <= v) continue;
      const side = (b[0] - a[0]) * (v - a[1]) - (b[1] - a[1]) * (u - a[0]);
      if (b[1] > a[1] ? side > 0 : side < 0) winding += b[1] > a[1] ? 1 : -1;
    }
  }
  return winding !== 0;
}

/** Whether patches close, as far as their area vectors tell: they add up to nothing on each closed shell. Near enough to choose what is drawn. */
export function seemClosed(patches: readonly NurbsPatch[], size_m: number): boolean {
  const NEAR = 0.03;
  const sum = [0, 0, 0];
  let area = 0;
  for (const patch of patches) {
    const [u0, u1, v0, v1] = domainOf(patch);
    const polygons = patch.loops.map((loop) => loopPoints(loop.curves));
    const mesh = tessellate(patch, size_m / 2000);
    for (let t = 0; t < mesh.triangles.length; t += 3) {
      const [a, b, c] = [mesh.triangles[t]!, mesh.triangles[t + 1]!, mesh.triangles[t + 2]!];
      if (polygons.length > 0) {
        const place = (k: number) => (mesh.places[2 * a + k]! + mesh.places[2 * b + k]! + mesh.places[2 * c + k]!) / 3;
        if (!isInside(polygons, u0 + place(0) * (u1 - u0), v0 + place(1) * (v1 - v0))) continue;
      }
      const at = (vertex: number, k: number) => mesh.positions[3 * vertex + k]!;
      const [px, py, pz, qx, qy, qz] = [0, 1, 2].map((k) => at(b, k) - at(a, k)).concat([0, 1, 2].map((k) => at(c, k) - at(a, k))) as [number, number, number, number, number, number];
      const n = [(py * qz - pz * qy) / 2, (pz * qx - px * qz) / 2, (px * qy - py * qx) / 2];
      for (let k = 0; k < 3; ++k) sum[k]! += n[k]!;
      area += Math.hypot(...n);
    }
  }
  return Math.hypot(...sum) < NEAR * area;
}
