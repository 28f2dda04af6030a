// Patterns that textures repeat, made here: a shade of the zone's colour (red, green, blue; 128 leaves it as it is, 255 doubles it) and, as alpha, the height
// of the relief. All of them go on without a seam from tile to tile.
import * as THREE from 'three';
import { TexturePattern } from '../../generated/palpate/v1/scene_pb';

const SIZE = 256;

type Field = (u: number, v: number) => number;

/** Numbers in [0, 1), one for each point of a lattice, the same on every machine. */
function lattice(cellsX: number, cellsY: number, seed: number): Float32Array {
  const numbers = new Float32Array(cellsX * cellsY);
  for (let i = 0; i < numbers.length; ++i) {
    let h = Math.imul(i + 1, 0x85ebca6b) ^ Math.imul(seed + 1, 0xc2b2ae35);
    h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
    h = Math.imul(h ^ (h >>> 12), 0x297a2d39);
    numbers[i] = ((h ^ (h >>> 15)) >>> 0) / 2 ** 32;
  }
  return numbers;
}

/** Smooth noise in [0, 1] with `cellsX` by `cellsY` cells a tile. */
function noise(cellsX: number, cellsY: number, seed: number): Field {
  const numbers = lattice(cellsX, cellsY, seed);
  return (u, v) => {
    const x = (u - Math.floor(u)) * cellsX, y = (v - Math.floor(v)) * cellsY;
    const i = Math.floor(x) % cellsX, j = Math.floor(y) % cellsY;
    let f = x - Math.floor(x), g = y - Math.floor(y);
    f = f * f * (3 - 2 * f);
    g = g * g * (3 - 2 * g);
    const right = (i + 1) % cellsX, row = j * cellsX, above = ((j + 1) % cellsY) * cellsX;
    const low = numbers[row + i]! + (numbers[row + right]! - numbers[row + i]!) * f;
    const high = numbers[above + i]! + (numbers[above + right]! - numbers[above + i]!) * f;
    return low + (high - low) * g;
  };
}

function clouds(cells: number, seed: number, octaves = 3): Field {
  const fields = Array.from({ length: octaves }, (_, k) => noise(cells * 2 ** k, cells * 2 ** k, seed + 50 * k));
  const whole = 2 - 2 ** (1 - octaves);
  return (u, v) => fields.reduce((sum, field, k) => sum + field(u, v) * 0.5 ** k, 0) / whole;
}

interface Cell {
  nearest: number;
  /** How much farther the next point is: small between two cells. */
  margin: number;
  /** In [0, 1), of the cell. */
  number: number;
}

/** Cells around points scattered one to a square, `cells` squares across a tile; distances in squares. */
function cellular(cells: number, seed: number): (u: number, v: number) => Cell {
  const xs = lattice(cells, cells, seed), ys = lattice(cells, cells, seed + 1), numbers = lattice(cells, cells, seed + 2);
  return (u, v) => {
    const x = (u - Math.floor(u)) * cells, y = (v - Math.floor(v)) * cells;
    const i = Math.floor(x), j = Math.floor(y);
    let nearest = 9, next = 9, number = 0;
    for (let row = j - 1; row <= j + 1; ++row) for (let column = i - 1; column <= i + 1; ++column) {
      const at = ((row + cells) % cells) * cells + ((column + cells) % cells);
      const dx = column + 0.1 + 0.8 * xs[at]! - x, dy = row + 0.1 + 0.8 * ys[at]! - y;
      const square = dx * dx + dy * dy;
      if (square < nearest) {
        next = nearest;
        nearest = square;
        number = numbers[at]!;
      } else if (square < next) {
        next = square;
      }
    }
    return { nearest: Math.sqrt(nearest), margin: Math.sqrt(next) - Math.sqrt(nearest), number };
  };
}

const step = (low: number, high: number, x: number) => {
  const t = Math.min(1, Math.max(0, (x - low) / (high - low)));
  return t * t * (3 - 2 * t);
};

type Shade = [red: number, green: number, blue: number, height: number];
const scaled = ([r, g, b]: readonly number[], by: number): [number, number, number] => [r! * by, g! * by, b! * by];
const mixed = (a: readonly number[], b: readonly number[], t: number): [number, number, number] =>
  [a[0]! + (b[0]! - a[0]!) * t, a[1]! + (b[1]! - a[1]!) * t, a[2]! + (b[2]! - a[2]!) * t];

type Shader = (u: number, v: number) => Shade;

function checker(): Shader {
  return (u, v) => ((Math.floor(4 * u) + Math.floor(4 * v)) % 2 === 0 ? [0.42, 0.42, 0.42, 0.5] : [1.35, 1.35, 1.35, 0.5]);
}

/** Where branching lines run: 1 in the middle of one. */
function veins(cells: number, width: number, seed: number): Field {
  const [bendU, bendV, thickness, around] = [clouds(5, seed), clouds(5, seed + 1), noise(4, 4, seed + 2), cellular(cells, seed + 3)];
  return (u, v) => {
    const wide = width * (0.35 + 0.65 * thickness(u, v));
    return 1 - step(0.4 * wide, wide, around(u + 0.16 * (bendU(u, v) - 0.5), v + 0.16 * (bendV(u, v) - 0.5)).margin);
  };
}

function liver(): Shader {
  const [bendU, bendV, broad, where] = [noise(14, 14, 3), noise(14, 14, 4), clouds(3, 6), clouds(2, 8)];
  const [lobules, vessels] = [cellular(20, 5), veins(3, 0.07, 7)];
  return (u, v) => {
    const { margin, nearest, number } = lobules(u + 0.014 * (bendU(u, v) - 0.5), v + 0.014 * (bendV(u, v) - 0.5));
    const inside = step(0.0, 0.3, margin);
    let color = mixed([1.1, 1.02, 0.98], [0.93, 0.89, 0.89], inside);
    color = scaled(color, (0.94 + 0.12 * number) * (0.7 + 0.6 * broad(u, v)));
    color = scaled(color, 1 - 0.1 * (1 - step(0.04, 0.2, nearest)));  // the vein in the middle of a lobule
    const vessel = vessels(u, v) * step(0.35, 0.6, where(u, v));
    color = mixed(color, [0.6, 0.4, 0.5], 0.6 * vessel);
    return [...color, 0.4 + 0.16 * inside + 0.3 * vessel];
  };
}

function muscle(): Shader {
  const [long, short, uneven, thick] = [noise(3, 3, 11), noise(9, 9, 12), noise(2, 9, 13), noise(3, 64, 14)];
  const [thin, broad, pale] = [noise(5, 120, 15), clouds(3, 17), noise(5, 20, 18)];
  return (u, v) => {
    const across = v + 0.014 * (long(u, v) - 0.5) + 0.006 * (short(u, v) - 0.5);
    // Bundles of fibres, a little uneven, that run out into each other.
    const bundle = across * 9 + 0.5 * (uneven(u, across) - 0.5);
    const place = bundle - Math.floor(bundle);
    const gap = 1 - step(0.02, 0.14, Math.min(place, 1 - place));
    const fibres = 0.6 * thick(u, across) + 0.4 * thin(u, across);
    let color = mixed([0.62, 0.54, 0.54], [1.24, 1.14, 1.1], fibres);
    color = scaled(color, 0.8 + 0.4 * broad(u, v));
    color = mixed(color, [1.55, 1.5, 1.45], 0.6 * gap * (0.35 + 0.65 * pale(u, across)));
    return [...color, 0.25 + 0.3 * fibres + 0.4 * Math.sqrt(Math.max(0, Math.sin(Math.PI * place))) - 0.15 * gap];
  };
}

function fat(): Shader {
  const [bendU, bendV, broad] = [noise(9, 9, 21), noise(9, 9, 22), clouds(4, 24)];
  const [lobules, vessels] = [cellular(12, 23), veins(3, 0.06, 27)];
  return (u, v) => {
    const { margin, nearest, number } = lobules(u + 0.02 * (bendU(u, v) - 0.5), v + 0.02 * (bendV(u, v) - 0.5));
    const inside = step(0, 0.3, margin);
    let color = mixed([0.84, 0.64, 0.54], [1.1, 1.06, 0.98], inside);
    color = scaled(color, (0.92 + 0.16 * number) * (0.9 + 0.2 * broad(u, v)));
    color = mixed(color, [0.75, 0.24, 0.2], 0.55 * vessels(u, v));
    return [...color, 0.9 * Math.sqrt(Math.max(0, 1 - 1.1 * nearest * nearest)) * (0.35 + 0.65 * inside)];
  };
}

const SHADERS: Partial<Record<TexturePattern, () => Shader>> = {
  [TexturePattern.CHECKER]: checker,
  [TexturePattern.LIVER]: liver,
  [TexturePattern.MUSCLE]: muscle,
  [TexturePattern.FAT]: fat,
};

/** One tile, [4 * (row * size + column)]; undefined: the pattern is none, or one of another version. */
export function drawPattern(pattern: TexturePattern, size: number): Uint8Array<ArrayBuffer> | undefined {
  const shade = SHADERS[pattern]?.();
  if (!shade) return undefined;
  const data = new Uint8Array(4 * size * size);
  for (let row = 0; row < size; ++row) for (let column = 0; column < size; ++column) {
    const [r, g, b, height] = shade((column + 0.5) / size, (row + 0.5) / size);
    const at = 4 * (row * size + column);
    for (const [k, value] of [r / 2, g / 2, b / 2, height].entries()) data[at + k] = Math.round(255 * Math.min(1, Math.max(0, value)));
  }
  return data;
}

const textures = new Map<TexturePattern, THREE.DataTexture | undefined>();

/** The texture of a pattern, made once and shared; undefined as above. */
export function patternTexture(pattern: TexturePattern): THREE.DataTexture | undefined {
  if (!textures.has(pattern)) {
    const data = drawPattern(pattern, SIZE);
    const texture = data && new THREE.DataTexture(data, SIZE, SIZE, THREE.RGBAFormat);
    if (texture) {
      texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
      texture.magFilter = THREE.LinearFilter;
      texture.minFilter = THREE.LinearMipmapLinearFilter;
      texture.generateMipmaps = true;
      texture.anisotropy = 8;
      texture.needsUpdate = true;
    }
    textures.set(pattern, texture);
  }
  return textures.get(pattern);
}
