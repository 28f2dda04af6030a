import assert from 'node:assert/strict';
import { test } from 'node:test';
import { foldArrays, rowLabel } from '../src/ui/arrays';

const body = (name: string, vertexCount = 8, triangleCount = 12) => ({ name, vertexCount, triangleCount });
const labels = (...bodies: ReturnType<typeof body>[]) => foldArrays(bodies).map(rowLabel);

test('bodies alike but for a number at the end share a row', () => {
  const boxes = Array.from({ length: 256 }, (_, i) => body(`box${i}`));
  const balls = Array.from({ length: 256 }, (_, i) => body(`ball${i}`, 14, 24));
  assert.deepEqual(labels(body('floor'), ...boxes, ...balls), ['floor', '256 like box0', '256 like ball0']);
  assert.deepEqual(foldArrays(boxes)[0]!.map(({ name }) => name), boxes.map(({ name }) => name));
});

test('what differs in more than the number stands alone', () => {
  assert.deepEqual(labels(body('wall-left'), body('wall-right')), ['wall-left', 'wall-right']);
  assert.deepEqual(labels(body('box0'), body('box1', 9), body('box2', 8, 13), body('box3', 8, 13)), ['box0', 'box1', '2 like box2']);
  assert.deepEqual(labels(body('box0'), body('ball'), body('box1')), ['box0', 'ball', 'box1'], 'an array is in one piece');
  assert.deepEqual(labels(body('box'), body('box1'), body('box2')), ['box', '2 like box1'], 'without a number it is of no array');
  assert.deepEqual(labels(body('box'), body('box')), ['box', 'box']);
  assert.deepEqual(labels(body('liver.1'), body('liver.2')), ['2 like liver.1']);
  assert.deepEqual(labels(body('1'), body('2')), ['2 like 1']);
  assert.deepEqual(labels(), []);
});
