import { PositionEncoding, type BodyFrame } from '../../generated/palpate/v1/stream_pb';

const LITTLE_ENDIAN = new Uint8Array(new Uint16Array([1]).buffer)[0] === 1;

/**
 * Decodes the positions of a body, metres in W, into `out` ([3 * vertex count], x y z each).
 * Returns undefined, or what is wrong with the message; `out` is then unchanged.
 */
export function decodePositions(frame: BodyFrame, encoding: PositionEncoding, out: Float32Array): string | undefined {
  const bytes = frame.positions;
  if (encoding === PositionEncoding.UINT16) {
    if (bytes.length !== out.length * 2) return `positions: ${bytes.length} bytes, expected ${out.length * 2}`;
    const origin = frame.originM;
    const scale = frame.scaleM;
    if (!origin || !scale) return 'quantised positions without origin_m and scale_m';
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let i = 0; i < out.length; i += 3) {
      out[i] = origin.x + view.getUint16(2 * i, true) * scale.x;
      out[i + 1] = origin.y + view.getUint16(2 * i + 2, true) * scale.y;
      out[i + 2] = origin.z + view.getUint16(2 * i + 4, true) * scale.z;
    }
    return undefined;
  }
  if (bytes.length !== out.length * 4) return `positions: ${bytes.length} bytes, expected ${out.length * 4}`;
  if (LITTLE_ENDIAN) {
    new Uint8Array(out.buffer, out.byteOffset, out.byteLength).set(bytes);
  } else {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    for (let i = 0; i < out.length; ++i) out[i] = view.getFloat32(4 * i, true);
  }
  return undefined;
}
