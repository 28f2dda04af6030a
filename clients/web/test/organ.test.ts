import assert from 'node:assert/strict';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { FakeTissue, SURFACE_ZONES } from '../dev/fake_tissue';
import { BodyFrameSchema, PositionEncoding } from '../generated/palpate/v1/stream_pb';
import { decodePositions } from '../src/net/positions';
import { SurfaceMirror } from '../src/net/surface_mirror';
import { Organ } from '../src/view/organ';
import { firstTriangle, pickSurface } from '../src/view/pick';

const ZONES = SURFACE_ZONES!.map((zone, index) => ({ name: zone.name!, color: new THREE.Color(zone.color!.r!, zone.color!.g!, zone.color!.b!), isInterior: index > 0 }));

function organOf(tissue: FakeTissue, heritage?: Organ): Organ {
  const surface = SurfaceMirror.of(tissue.topology());
  assert.ok(surface instanceof SurfaceMirror, String(surface));
  const organ = new Organ(surface, ZONES, heritage?.bequeath());
  take(tissue, organ);
  return organ;
}

function take(tissue: FakeTissue, organ: Organ): void {
  assert.equal(decodePositions(create(BodyFrameSchema, tissue.encode(PositionEncoding.FLOAT32)), PositionEncoding.FLOAT32, organ.positions), undefined);
  organ.commit();
}

function attribute(organ: Organ, name: string): THREE.BufferAttribute {
  return organ.mesh.geometry.getAttribute(name) as THREE.BufferAttribute;
}

/** Every drawn triangle with colours and positions, whatever the numbering. */
function drawn(organ: Organ): string[] {
  const index = organ.mesh.geometry.index!;
  const { count } = organ.mesh.geometry.drawRange;
  const all: string[] = [];
  for (let i = 0; i < count; i += 3) {
    const corners = [index.getX(i), index.getX(i + 1), index.getX(i + 2)];
    if (corners.every((corner) => corner === 0)) continue;
    all.push(corners.map((v) => ['position', 'normal', 'zoneColor'].map((name) => {
      const a = attribute(organ, name);
      return Array.from(a.array.subarray(a.itemSize * v, a.itemSize * (v + 1)) as Float32Array, (x) => x.toFixed(4)).join(' ');
    }).join(' / ')).join(' | '));
  }
  return all.sort();
}

const ball = (cells: number) => FakeTissue.ball('ball', cells, (v) => [v[0], v[1], v[2]], (v) => (v[0] > 0.3 ? 1 : 0));

test('an organ that follows edits is drawn like one that is built anew, and only changed places are uploaded', () => {
  const tissue = ball(5);
  const organ = organOf(tissue);
  const skin = drawn(organ);
  assert.equal(organ.interiorTriangleCount, 0);
  const edits = [() => tissue.carve([0, 0, 1], [0.1, 0, 1], 0.35), () => tissue.incise([[[0.5, -2, 0], [0.5, -2, -2]], [[0.5, 2, 0], [0.5, 2, -2]]]),
    () => tissue.carve([-1, 0, 0], [-1, 0, 0], 0.5), () => tissue.carve([0.9, 0, 0.2], [0.9, 0, 0.2], 0.4)];
  for (const edit of edits) {
    edit();
    tissue.takePieces(() => 'piece');
    const delta = tissue.delta(0)!;
    assert.equal(organ.surface.check(delta), undefined);
    const geometry = organ.mesh.geometry;
    geometry.index!.clearUpdateRanges();  // as the renderer does when it has uploaded them
    organ.change(organ.surface.apply(delta));
    assert.ok(organ.surface.matches(delta.meshHash));
    take(tissue, organ);
    assert.deepEqual(drawn(organ), drawn(organOf(tissue)));
    // Either new buffers, or ranges that cover no more than the change.
    if (organ.mesh.geometry === geometry && delta.triangleSlots.length < 0.25 * organ.surface.slotCount) {
      const uploaded = geometry.index!.updateRanges.reduce((sum, range) => sum + range.count, 0);
      assert.equal(uploaded, 3 * 16 * delta.triangleSlots.length);
    }
  }
  assert.ok(organ.interiorTriangleCount > 50);
  const colors = new Set(drawn(organ).flatMap((triangle) => triangle.split(' | ').map((corner) => corner.split(' / ')[2])));
  assert.equal(colors.size, 3);  // skin and the insides of two zones, nothing in between
  assert.notDeepEqual(drawn(organ), skin);
});

test('the texture stays on the tissue: what a cut uncovers moves as its surroundings did, and so does a piece', () => {
  const tissue = ball(4);
  const organ = organOf(tissue);
  const shift = 0.5;
  for (const p of [...tissue.positions, ...tissue.rest]) p[0] += shift;  // the whole body moves, then it is cut apart
  take(tissue, organ);
  tissue.incise([[[shift + 0.01, -3, 3], [shift + 0.01, -3, -3]], [[shift + 0.01, 3, 3], [shift + 0.01, 3, -3]]]);
  const pieces = tissue.takePieces(() => 'ball.1');
  assert.equal(pieces.length, 1);
  const delta = tissue.delta(0)!;
  const piece = organOf(pieces[0]!, organ);
  organ.change(organ.surface.apply(delta));
  take(tissue, organ);
  for (const one of [organ, piece]) {
    const [position, rest] = [attribute(one, 'position'), attribute(one, 'restPosition')];
    const index = one.mesh.geometry.index!;
    let worst = 0;
    for (let i = 0; i < one.mesh.geometry.drawRange.count; ++i) {
      const v = index.getX(i);
      worst = Math.max(worst, Math.abs(position.getX(v) - rest.getX(v) - shift));
    }
    assert.ok(worst < 0.12, `${one.name}: ${worst}`);  // curvature of the drawn surface and the rest of the first picture
  }
});

test('the ray meets the nearest triangle that faces it', () => {
  const positions = Float32Array.from([0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 1, 1]);
  const triangles = Uint32Array.from([0, 1, 2, 3, 4, 5, 3, 5, 4, 0, 0, 0]);  // facing up at z = 0 and 1, down at z = 1, a free slot
  const down = firstTriangle(new THREE.Vector3(0.2, 0.3, 5), new THREE.Vector3(0, 0, -1), positions, triangles, 4)!;
  assert.equal(down.slot, 1);
  assert.ok(Math.abs(down.t - 4) < 1e-6 && Math.abs(down.u - 0.2) < 1e-6 && Math.abs(down.v - 0.3) < 1e-6);
  assert.equal(firstTriangle(new THREE.Vector3(0.2, 0.3, -5), new THREE.Vector3(0, 0, 1), positions, triangles, 4)!.slot, 2);
  assert.equal(firstTriangle(new THREE.Vector3(0.9, 0.9, 5), new THREE.Vector3(0, 0, -1), positions, triangles, 4), undefined);
  assert.equal(firstTriangle(new THREE.Vector3(0.2, 0.3, 0.5), new THREE.Vector3(0, 0, -1), positions, triangles, 4)!.slot, 0);
});

test('a pick tells body, place and the smooth normal', () => {
  const organ = organOf(ball(6));
  const hit = pickSurface(new THREE.Ray(new THREE.Vector3(0, 0.1, 5), new THREE.Vector3(0, 0, -1)), [organ])!;
  assert.equal(hit.body, 'ball');
  assert.ok(Math.abs(hit.point.length() - 1) < 0.06 && hit.normal.dot(hit.point.clone().normalize()) > 0.99);
  assert.equal(pickSurface(new THREE.Ray(new THREE.Vector3(3, 0, 5), new THREE.Vector3(0, 0, -1)), [organ]), undefined);
});

test('a sheet is drawn from both sides, a closed skin from outside', () => {
  const closed = organOf(ball(3));
  assert.equal(closed.surface.isOpen, false);
  assert.equal(closed.mesh.material.side, THREE.FrontSide);
  const topology = ball(3).topology();
  topology.triangles.splice(0, 3);
  topology.triangleZones.splice(0, 1);
  topology.meshHash = 0n;
  const surface = SurfaceMirror.of(topology);
  assert.ok(surface instanceof SurfaceMirror, String(surface));
  assert.equal(surface.isOpen, true);
  assert.equal(new Organ(surface, ZONES).mesh.material.side, THREE.DoubleSide);
});
