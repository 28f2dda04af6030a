import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { encodePositions } from '../dev/fake_tissue';
import { BodyFrameSchema, PositionEncoding } from '../generated/palpate/v1/stream_pb';
import { decodePositions } from '../src/net/positions';

type Vector = [number, number, number];
const points: Vector[] = [[0, 0.125, -3], [1e-3, 100, 0.5], [-0.25, 7, 0.0625], [0.3, -2, 1]];

test('float32 positions come through exactly, wherever they lie in the message', () => {
  for (const shift of [0, 1, 2, 3]) {
    const encoded = encodePositions(points, PositionEncoding.FLOAT32).positions;
    const padded = new Uint8Array(encoded.length + 4);
    padded.set(encoded, shift);
    const frame = create(BodyFrameSchema, { positions: padded.subarray(shift, shift + encoded.length) });
    const out = new Float32Array(12);
    assert.equal(decodePositions(frame, PositionEncoding.FLOAT32, out), undefined);
    assert.deepEqual(Array.from(out), points.flat().map(Math.fround));
  }
});

test('quantised positions are within the stated error', () => {
  const frame = create(BodyFrameSchema, encodePositions(points, PositionEncoding.UINT16));
  const again = fromBinary(BodyFrameSchema, toBinary(BodyFrameSchema, frame));
  const out = new Float32Array(12);
  assert.equal(decodePositions(again, PositionEncoding.UINT16, out), undefined);
  points.flat().forEach((value, i) => assert.ok(Math.abs(out[i]! - value) <= again.maxErrorM * 1.01 + 1e-5, `${i}: ${out[i]} for ${value}`));
  assert.ok(again.maxErrorM < 1e-3);
});

test('a wrong length is reported and leaves the positions alone', () => {
  for (const [encoding, bytes] of [[PositionEncoding.FLOAT32, 47], [PositionEncoding.FLOAT32, 0], [PositionEncoding.UINT16, 48], [PositionEncoding.UINT16, 22]] as const) {
    const out = Float32Array.from({ length: 12 }, (_, i) => i);
    const frame = create(BodyFrameSchema, { positions: new Uint8Array(bytes), originM: {}, scaleM: {} });
    assert.match(decodePositions(frame, encoding, out) ?? '', new RegExp(`${bytes} bytes, expected`));
    assert.deepEqual(Array.from(out), Array.from({ length: 12 }, (_, i) => i));
  }
});

test('quantised positions without origin are refused', () => {
  assert.match(decodePositions(create(BodyFrameSchema, { positions: new Uint8Array(24) }), PositionEncoding.UINT16, new Float32Array(12)) ?? '', /origin_m/);
});
