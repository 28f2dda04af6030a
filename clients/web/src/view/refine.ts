/** Topology of a mesh split once: a vertex in the middle of each edge, four triangles for one. */
export class Refinement {
  readonly triangles: Uint32Array;
  readonly vertexCount: number;
  /** Ends of the edges; the middle of edge e is vertex coarseCount + e. */
  private readonly edges: Uint32Array;

  constructor(triangles: Uint32Array, readonly coarseCount: number) {
    const middles = new Map<number, number>();
    const edges: number[] = [];
    const middle = (a: number, b: number): number => {
      const key = Math.min(a, b) * 2 ** 26 + Math.max(a, b);  // exact below 2^26 vertices
      let index = middles.get(key);
      if (index === undefined) {
        index = coarseCount + edges.length / 2;
        middles.set(key, index);
        edges.push(a, b);
      }
      return index;
    };
    const fine: number[] = [];
    for (let t = 0; t + 2 < triangles.length; t += 3) {
      const a = triangles[t]!, b = triangles[t + 1]!, c = triangles[t + 2]!;
      const ab = middle(a, b), bc = middle(b, c), ca = middle(c, a);
      fine.push(a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca);
    }
    this.edges = Uint32Array.from(edges);
    this.triangles = Uint32Array.from(fine);
    this.vertexCount = coarseCount + edges.length / 2;
  }

  /**
   * Values [3 * coarseCount] to values [3 * vertexCount]: old vertices stay, new ones are the means of their edges.
   */
  interpolate(coarse: Float32Array, out: Float32Array): void {
    out.set(coarse);
    let to = 3 * this.coarseCount;
    for (let e = 0; e < this.edges.length; e += 2) {
      const a = 3 * this.edges[e]!, b = 3 * this.edges[e + 1]!;
      for (let k = 0; k < 3; ++k) out[to++] = 0.5 * (coarse[a + k]! + coarse[b + k]!);
    }
  }

  /**
   * Like interpolate, but new vertices lie on the curve that leaves both ends at right angles to their normals (the middle of an edge of a curved PN
   * triangle: Vlachos et al., Curved PN Triangles, 2001), so that a coarse surface has a round outline. Old vertices stay where the simulation has them.
   */
  refine(positions: Float32Array, normals: Float32Array, out: Float32Array): void {
    this.interpolate(positions, out);
    let to = 3 * this.coarseCount;
    for (let e = 0; e < this.edges.length; e += 2, to += 3) {
      const a = 3 * this.edges[e]!, b = 3 * this.edges[e + 1]!;
      const dx = positions[b]! - positions[a]!, dy = positions[b + 1]! - positions[a + 1]!, dz = positions[b + 2]! - positions[a + 2]!;
      const wa = (dx * normals[a]! + dy * normals[a + 1]! + dz * normals[a + 2]!) / 8;
      const wb = (dx * normals[b]! + dy * normals[b + 1]! + dz * normals[b + 2]!) / 8;
      out[to]! += wb * normals[b]! - wa * normals[a]!;
      out[to + 1]! += wb * normals[b + 1]! - wa * normals[a + 1]!;
      out[to + 2]! += wb * normals[b + 2]! - wa * normals[a + 2]!;
    }
  }
}
