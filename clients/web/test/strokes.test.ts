import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { EditSceneResponseSchema, type EditSceneResponse } from '../generated/palpate/v1/edit_pb';
import { CarveStroke, InciseStroke, RequestKeys, type EditInit, type SurfaceHit } from '../src/surgery/strokes';
import { Surgery, type SurgeryHost } from '../src/surgery/surgery';
import { Brush } from '../src/view/brush';

const hitAt = (x: number, y = 0, normal = new THREE.Vector3(0, 0, 1), body = 'liver'): SurfaceHit => ({ body, organIndex: 0, point: new THREE.Vector3(x, y, 0), normal });
const regions = (edits: EditInit[] | undefined) => (edits ?? []).map((edit) => (edit as { edit: { value: { region: { region: { case: string; value: object } } } } }).edit.value.region.region);

test('carving digs where it is pressed and along the way, once for each place', () => {
  const stroke = new CarveStroke(0.01);
  stroke.add(hitAt(0));
  stroke.add(hitAt(0.001));  // hardly moved
  assert.deepEqual(regions(stroke.take()), [{ case: 'ball', value: { centerM: { x: 0, y: 0, z: 0 }, radiusM: 0.01 } }]);
  assert.equal(stroke.take(), undefined);
  stroke.add(hitAt(0.006));
  stroke.add(hitAt(0.012));
  assert.deepEqual(regions(stroke.take()).map((region) => region.value), [
    { end0M: { x: 0, y: 0, z: 0 }, end1M: { x: 0.006, y: 0, z: 0 }, radiusM: 0.01 },
    { end0M: { x: 0.006, y: 0, z: 0 }, end1M: { x: 0.012, y: 0, z: 0 }, radiusM: 0.01 },
  ]);
  // Another body, or the far side of a gap: not everything between.
  stroke.add(hitAt(0.018, 0, undefined, 'kidney'));
  stroke.add(hitAt(0.2, 0, undefined, 'kidney'));
  assert.deepEqual(regions(stroke.take()).map((region) => region.case), ['ball', 'ball']);
  for (let i = 0; i < 1000; ++i) stroke.add(hitAt(0.2 + 0.01 * i, 0, undefined, 'kidney'));
  assert.ok(stroke.take()!.length <= 256);
});

test('requests of an incision begin where the one before ended, and keep its depth', () => {
  const stroke = new InciseStroke(0.02, 0.003);
  stroke.add(hitAt(0));
  assert.equal(stroke.take(), undefined);  // one place is no line
  stroke.add(hitAt(0.001));  // hardly moved
  assert.equal(stroke.take(), undefined);
  stroke.add(hitAt(0.004));
  stroke.add(hitAt(0.008));
  const edges = (edits: EditInit[] | undefined) => (edits![0] as { edit: { value: { edges: { end0M: { x: number; z: number }; end1M: { x: number; z: number } }[] } } }).edit.value.edges;
  const first = edges(stroke.take());
  assert.deepEqual(first.map((edge) => edge.end1M.x), [0, 0.004, 0.008]);
  for (const { end0M, end1M } of first) assert.ok(Math.abs(end1M.z + 0.02) < 1e-12 && end0M.z > 0);
  assert.equal(stroke.take(), undefined);
  stroke.add(hitAt(0.012, 0, undefined, 'kidney'));  // a stroke stays on its body
  assert.equal(stroke.take(), undefined);
  stroke.add(hitAt(0.012));
  const second = edges(stroke.take());
  assert.deepEqual(second.map((edge) => edge.end1M.x), [0.008, 0.012]);
  // A bump turns the blade a little, not at once.
  stroke.add(hitAt(0.016, 0, new THREE.Vector3(1, 0, 0)));
  const turned = edges(stroke.take())[1]!;
  assert.ok(turned.end1M.x < 0.016 && turned.end1M.x > 0.009 && turned.end1M.z < -0.015, JSON.stringify(turned));
});

test('keys are different in every page and for every request', () => {
  const [a, b] = [new RequestKeys(Uint32Array.of(1, 2, 3)), new RequestKeys()];
  const keys = [a.next(), a.next(), b.next(), b.next()];
  assert.equal(new Set(keys).size, 4);
  for (const key of keys) assert.ok(key.length <= 64);
});

/** A server that answers when the test says so. */
function surgeryWithServer() {
  const requests: { edits: EditInit[]; key: string; resolve: (answer: EditSceneResponse) => void; reject: (error: Error) => void }[] = [];
  const reports: string[] = [];
  const told: string[] = [];
  let isJawFree = true;
  const host: SurgeryHost = {
    brush: new Brush(), radius_m: 0.1,
    pick: (pointer) => (Math.abs(pointer.x) > 0.9 ? undefined : hitAt(pointer.x, pointer.y)),
    edit: (edits, key) => new Promise((resolve, reject) => requests.push({ edits, key, resolve, reject })),
    report: (what, error) => reports.push(`${what}: ${(error as Error).message}`),
    tell: (message) => told.push(message),
    redraw: () => {},
    bringJaws: async () => (isJawFree ? 'forceps' : undefined),
    letGo: () => {},
  };
  const settle = () => new Promise((resolve) => setImmediate(resolve));
  const at = (x: number) => new THREE.Vector2(x, 0);
  return { surgery: new Surgery(host), requests, reports, told, settle, at, takeJaws: () => (isJawFree = false) };
}

test('one request is on its way; what the hand does meanwhile goes in the next, after the end of the stroke too', async () => {
  const { surgery, requests, settle, at } = surgeryWithServer();
  surgery.setMode('carve');
  surgery.setSize(0.01);
  assert.equal(surgery.begin(at(0.95)), false);  // beside the tissue
  assert.equal(surgery.begin(at(0)), true);
  for (let i = 1; i <= 5; ++i) surgery.move(at(0.01 * i));
  surgery.end();
  surgery.begin(at(0.5));  // a second stroke before the first is done
  surgery.end();
  assert.equal(requests.length, 1);
  assert.equal(requests[0]!.edits.length, 1);
  requests[0]!.resolve(create(EditSceneResponseSchema, { outcomes: [{ body: 'liver', removedTets: [1n, 2n], newBodies: ['liver.1'] }] }));
  await settle();
  assert.equal(requests.length, 2);
  assert.equal(requests[1]!.edits.length, 5);
  requests[1]!.resolve(create(EditSceneResponseSchema, {}));
  await settle();
  assert.equal(requests.length, 3);
  assert.equal(regions(requests[2]!.edits)[0]!.case, 'ball');
  assert.ok(surgery.isBusy);
  requests[2]!.resolve(create(EditSceneResponseSchema, {}));
  await settle();
  assert.equal(surgery.isBusy, false);
  assert.deepEqual([surgery.counts.requests, surgery.counts.removedTets, surgery.counts.newBodies], [3, 2, 1]);
  assert.equal(new Set(requests.map(({ key }) => key)).size, 3);
});

test('what the server refuses ends the stroke and is told', async () => {
  const { surgery, requests, reports, told, settle, at } = surgeryWithServer();
  surgery.setMode('incise');
  surgery.begin(at(0));
  surgery.end();
  assert.match(told[0]!, /Drag/);
  assert.equal(requests.length, 0);
  surgery.begin(at(0));
  surgery.move(at(0.1));
  surgery.move(at(0.2));
  requests[0]!.reject(new Error('the scene has failed'));
  await settle();
  assert.deepEqual(reports, ['Incise: the scene has failed']);
  surgery.move(at(0.3));
  surgery.end();
  assert.equal(requests.length, 1);
  surgery.setMode('carve');
  surgery.begin(at(0));
  surgery.end();
  requests[1]!.resolve(create(EditSceneResponseSchema, { outcomes: [{ body: 'liver', isRefused: true, note: 'no room for more tetrahedra' }] }));
  await settle();
  assert.equal(reports[1], 'Carve: no room for more tetrahedra');
  assert.equal(surgery.counts.refused, 2);
});

test('a grasp holds while the button is down', async () => {
  const { surgery, requests, told, settle, at, takeJaws } = surgeryWithServer();
  surgery.setMode('grasp');
  assert.equal(surgery.begin(at(0)), true);
  await settle();
  assert.deepEqual(requests[0]!.edits, [{ edit: { case: 'grasp', value: { tool: 'forceps' } } }], 'the reach follows the mesh');
  requests[0]!.resolve(create(EditSceneResponseSchema, { outcomes: [{ graspedVertices: 9 }] }));
  await settle();
  assert.equal(requests.length, 1);
  surgery.end();
  assert.deepEqual(requests[1]!.edits, [{ edit: { case: 'release', value: { tool: 'forceps' } } }]);
  requests[1]!.resolve(create(EditSceneResponseSchema, {}));
  await settle();
  assert.deepEqual(told, []);
  surgery.setSlide(0.4);  // somebody wants another reach
  surgery.begin(at(0));
  await settle();
  assert.deepEqual(requests[2]!.edits, [{ edit: { case: 'grasp', value: { tool: 'forceps', radiusM: surgery.size_m } } }]);
  requests[2]!.resolve(create(EditSceneResponseSchema, { outcomes: [{ graspedVertices: 0, note: 'come nearer' }] }));
  await settle();
  assert.deepEqual(told, ['Come nearer.']);
  surgery.end();
  requests[3]!.resolve(create(EditSceneResponseSchema, {}));
  await settle();
  takeJaws();
  surgery.begin(at(0));
  await settle();
  surgery.end();
  assert.equal(requests.length, 4);
  assert.equal(surgery.isBusy, false);
});
