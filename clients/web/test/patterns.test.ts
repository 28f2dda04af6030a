import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TexturePattern } from '../generated/palpate/v1/scene_pb';
import { drawPattern, patternTexture } from '../src/view/patterns';

const SIZE = 128;

test('every pattern is a picture, goes on without a seam from tile to tile, and leaves the colour about as bright as it is', () => {
  for (const pattern of [TexturePattern.CHECKER, TexturePattern.LIVER, TexturePattern.MUSCLE, TexturePattern.FAT]) {
    const data = drawPattern(pattern, SIZE)!;
    const at = (column: number, row: number, k: number) => data[4 * ((row % SIZE) * SIZE + (column % SIZE)) + k]!;
    let sum = 0;
    const values = new Set<number>();
    for (let i = 0; i < SIZE * SIZE; ++i) for (let k = 0; k < 3; ++k) {
      sum += data[4 * i + k]!;
      values.add(data[4 * i + k]!);
    }
    const mean = sum / (3 * SIZE * SIZE);
    assert.ok(mean > 95 && mean < 150, `${TexturePattern[pattern]}: ${mean}`);
    if (pattern === TexturePattern.CHECKER) {
      assert.equal(values.size, 2);
      continue;
    }
    assert.ok(values.size > 40);
    // Across the seam neighbours differ as anywhere else.
    const jump = (column: number) => {
      let across = 0;
      let along = 0;
      for (let i = 0; i < SIZE; ++i) for (let k = 0; k < 4; ++k) {
        across += Math.abs(at(column, i, k) - at(column + 1, i, k));
        along += Math.abs(at(i, column, k) - at(i, column + 1, k));
      }
      return [across, along] as const;
    };
    const elsewhere = Array.from({ length: SIZE - 1 }, (_, column) => jump(column));
    const seam = jump(SIZE - 1);
    for (const k of [0, 1] as const) assert.ok(seam[k] <= 1.2 * Math.max(...elsewhere.map((one) => one[k])), `${TexturePattern[pattern]}: ${seam[k]}`);
  }
});

test('a pattern is made once; an unknown one is none', () => {
  assert.equal(patternTexture(TexturePattern.UNSPECIFIED), undefined);
  assert.equal(patternTexture(99 as TexturePattern), undefined);
  assert.ok(patternTexture(TexturePattern.CHECKER) !== undefined);
  assert.equal(patternTexture(TexturePattern.CHECKER), patternTexture(TexturePattern.CHECKER));
});
