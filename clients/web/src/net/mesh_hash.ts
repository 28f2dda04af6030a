/** Upper half of the 64-bit product of two 32-bit numbers. */
function mulHigh(a: number, b: number): number {
  const a0 = a & 0xffff, a1 = a >>> 16, b0 = b & 0xffff, b1 = b >>> 16;
  const middle = a1 * b0 + ((a0 * b0) >>> 16);
  const other = a0 * b1 + (middle & 0xffff);
  return (a1 * b1 + (middle >>> 16) + (other >>> 16)) >>> 0;
}

const floats = new Float32Array(6);
const floatBits = new Uint32Array(floats.buffer);

/**
 * Sum, modulo 2^64, of the hashes of the live triangles of a surface and of its texture coordinates (docs/streaming.md): a sum can follow an edit without
 * looking at what stays. 64-bit arithmetic in halves; BigInt would take a hundred times as long.
 */
export class MeshHashSum {
  high = 0;
  low = 0;
  private h = 0;
  private l = 0;

  add(slot: number, a: number, b: number, c: number, zone: number): void {
    this.hashTriangle(slot, a, b, c, zone);
    this.accumulate(1);
  }

  remove(slot: number, a: number, b: number, c: number, zone: number): void {
    this.hashTriangle(slot, a, b, c, zone);
    this.accumulate(-1);
  }

  /** Of the texture coordinate of a vertex, single precision; (0, 0) counts as nothing. */
  addTexture(vertex: number, u: number, v: number): void {
    if (this.hashTexture(vertex, u, v)) this.accumulate(1);
  }

  removeTexture(vertex: number, u: number, v: number): void {
    if (this.hashTexture(vertex, u, v)) this.accumulate(-1);
  }

  /** Of the texture coordinates of a triangle's corners, six numbers from `at` on; zeros count as nothing. */
  addCorners(slot: number, values: ArrayLike<number>, at: number): void {
    if (this.hashCorners(slot, values, at)) this.accumulate(1);
  }

  removeCorners(slot: number, values: ArrayLike<number>, at: number): void {
    if (this.hashCorners(slot, values, at)) this.accumulate(-1);
  }

  equals(value: bigint): boolean {
    return this.toBigInt() === value;
  }

  toBigInt(): bigint {
    return (BigInt(this.high) << 32n) | BigInt(this.low);
  }

  private accumulate(sign: 1 | -1): void {
    const low = this.low + sign * this.l;
    this.low = low >>> 0;
    const carry = low > 0xffffffff ? 1 : low < 0 ? -1 : 0;
    this.high = (this.high + sign * this.h + carry) >>> 0;
  }

  private hashTriangle(slot: number, a: number, b: number, c: number, zone: number): void {
    this.h = 0;
    this.l = 0;
    this.mix(slot, a);
    this.mix(b, c);
    this.mix(zone, 3);
  }

  private hashTexture(vertex: number, u: number, v: number): boolean {
    floats[0] = u;
    floats[1] = v;
    if (floats[0] === 0 && floats[1] === 0) return false;
    this.h = 0;
    this.l = 0;
    this.mix(vertex, floatBits[0]!);
    this.mix(floatBits[1]!, 5);
    return true;
  }

  private hashCorners(slot: number, values: ArrayLike<number>, at: number): boolean {
    for (let k = 0; k < 6; ++k) floats[k] = values[at + k]!;
    if (floats.every((value) => value === 0)) return false;
    this.h = 0;
    this.l = 0;
    this.mix(slot, floatBits[0]!);
    this.mix(floatBits[1]!, floatBits[2]!);
    this.mix(floatBits[3]!, floatBits[4]!);
    this.mix(floatBits[5]!, 6);
    return true;
  }

  /** Adds high * 2^32 + low and a constant, then stirs as splitmix64 does. */
  private mix(low: number, high: number): void {
    const sum = this.l + low + 0x7f4a7c15;
    this.l = sum >>> 0;
    this.h = (this.h + high + 0x9e3779b9 + Math.floor(sum / 2 ** 32)) >>> 0;
    this.shiftXor(30);
    this.multiply(0xbf58476d, 0x1ce4e5b9);
    this.shiftXor(27);
    this.multiply(0x94d049bb, 0x133111eb);
    this.shiftXor(31);
  }

  private shiftXor(bits: number): void {
    this.l = (this.l ^ ((this.l >>> bits) | (this.h << (32 - bits)))) >>> 0;
    this.h = (this.h ^ (this.h >>> bits)) >>> 0;
  }

  private multiply(high: number, low: number): void {
    const h = mulHigh(this.l, low) + Math.imul(this.h, low) + Math.imul(this.l, high);
    this.l = Math.imul(this.l, low) >>> 0;
    this.h = h >>> 0;
  }
}
