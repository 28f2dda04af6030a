import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { FrameSchema, SurfaceContactKind } from '../generated/palpate/v1/stream_pb';
import { CONTACT_COLORS, ContactLayer, contactMarks, heatOf, MAX_MARKS, NO_TOOL } from '../src/view/contact_layer';

const vector = (x: number, y: number, z: number) => ({ x, y, z });

const frame = () => create(FrameSchema, {
  contacts: [
    { toolIndex: 0, pointM: vector(1, 2, 3), normal: vector(0, 0, -1), forceN: vector(0, 0, -2) },
    { toolIndex: NO_TOOL, pointM: vector(4, 5, 6), normal: vector(0, 0, 1), forceN: vector(0, 3, 4) },
  ],
  surfaceContacts: [
    { kind: SurfaceContactKind.VERTEX_TRIANGLE, pointAM: vector(0, 0, 0), pointBM: vector(2, 0, 0), normal: vector(1, 0, 0), forceN: vector(0.5, 0, 0) },
    { kind: SurfaceContactKind.EDGE_EDGE, pointAM: vector(0, 1, 0), pointBM: vector(0, 1, 1), normal: vector(0, 0, 1) },
  ],
});

test('every contact becomes a mark of its kind, those between surfaces halfway', () => {
  const marks = contactMarks(frame());
  assert.deepEqual(marks.map((mark) => mark.kind), ['tool', 'obstacle', 'vertex-triangle', 'edge-edge']);
  assert.deepEqual(marks.map((mark) => mark.at), [[1, 2, 3], [4, 5, 6], [1, 0, 0], [0, 1, 0.5]]);
  assert.deepEqual(marks.map((mark) => mark.newtons), [2, 5, 0.5, 0]);
  assert.deepEqual(marks[2]!.normal, [1, 0, 0]);
});

test('heat rises with the force and stays below one', () => {
  assert.equal(heatOf(0), 0);
  assert.ok(heatOf(0.1) < heatOf(1) && heatOf(1) < heatOf(100) && heatOf(1e9) <= 1);
});

test('the layer draws the marks, and no more than it has room for', () => {
  const layer = new ContactLayer();
  const [dots, lines] = layer.group.children as [import('three').InstancedMesh, import('three').LineSegments];
  const marks = contactMarks(frame());
  layer.update(marks, 1);
  assert.equal(dots.count, 4);
  assert.equal(lines.geometry.drawRange.count, 8);
  const ends = lines.geometry.attributes.position!.array;
  // the third line starts at its contact and runs along the normal
  assert.deepEqual([...ends.slice(12, 15)], [1, 0, 0]);
  assert.ok(ends[15]! > 1.03 && ends[16] === 0 && ends[17] === 0);
  layer.update(Array.from({ length: MAX_MARKS + 5 }, () => marks[0]!), 1);
  assert.equal(dots.count, MAX_MARKS);
  layer.setShown(true, false);
  assert.deepEqual([dots.visible, lines.visible], [true, false]);
  layer.setShown(false, true);
  assert.deepEqual([dots.visible, lines.visible], [false, false]);
  layer.clear();
  assert.equal(dots.count, 0);
  assert.equal(Object.keys(CONTACT_COLORS).length, 4);
});
