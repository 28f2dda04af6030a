/** Area-weighted vertex normals of a triangle mesh; `out` has the length of `positions`. A vertex without area gets (0, 0, 1). */
export function computeNormals(positions: Float32Array, triangles: Uint32Array, out: Float32Array): void {
  out.fill(0);
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    const a = 3 * triangles[t]!;
    const b = 3 * triangles[t + 1]!;
    const c = 3 * triangles[t + 2]!;
    const ax = positions[a]!, ay = positions[a + 1]!, az = positions[a + 2]!;
    const ux = positions[b]! - ax, uy = positions[b + 1]! - ay, uz = positions[b + 2]! - az;
    const vx = positions[c]! - ax, vy = positions[c + 1]! - ay, vz = positions[c + 2]! - az;
    const nx = uy * vz - uz * vy;
    const ny = uz * vx - ux * vz;
    const nz = ux * vy - uy * vx;
    out[a]! += nx; out[a + 1]! += ny; out[a + 2]! += nz;
    out[b]! += nx; out[b + 1]! += ny; out[b + 2]! += nz;
    out[c]! += nx; out[c + 1]! += ny; out[c + 2]! += nz;
  }
  for (let i = 0; i < out.length; i += 3) {
    const x = out[i]!, y = out[i + 1]!, z = out[i + 2]!;
    const length = Math.sqrt(x * x + y * y + z * z);
    if (length > 0) {
      out[i] = x / length; out[i + 1] = y / length; out[i + 2] = z / length;
    } else {
      out[i] = 0; out[i + 1] = 0; out[i + 2] = 1;
    }
  }
}
