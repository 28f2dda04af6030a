/** Products of asked and known points beyond which only some of the known ones are looked at. */
const MAX_COMPARISONS = 2e7;

/** Where points of a moving body are and where they were at rest, packed x y z. */
export interface RestSamples {
  positions: Float32Array;
  rest: Float32Array;
  /** Indices of points that are known. */
  known: number[];
}

/**
 * Rest places of points that nobody has seen at rest, such as those that a cut uncovers: they moved as their nearest known neighbour did. Without known
 * points they are at rest where they are. `at`: indices of points of `positions`, whose places in `rest` are written.
 */
export function guessRest(at: number[], positions: Float32Array, rest: Float32Array, samples: RestSamples): void {
  const { known } = samples;
  const stride = Math.max(1, Math.ceil((at.length * known.length) / MAX_COMPARISONS));
  for (const point of at) {
    const x = positions[3 * point]!, y = positions[3 * point + 1]!, z = positions[3 * point + 2]!;
    let nearest = -1;
    let least = Infinity;
    for (let i = 0; i < known.length; i += stride) {
      const j = 3 * known[i]!;
      const dx = samples.positions[j]! - x, dy = samples.positions[j + 1]! - y, dz = samples.positions[j + 2]! - z;
      const distance = dx * dx + dy * dy + dz * dz;
      if (distance < least) {
        least = distance;
        nearest = j;
      }
    }
    for (let k = 0; k < 3; ++k) {
      const offset = nearest < 0 ? 0 : samples.positions[nearest + k]! - samples.rest[nearest + k]!;
      rest[3 * point + k] = positions[3 * point + k]! - offset;
    }
  }
}
