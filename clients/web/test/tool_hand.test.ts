import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as THREE from 'three';
import { RateMeter } from '../src/net/rate_meter';
import { ToolHand } from '../src/view/tool_hand';
import { niceCeiling } from '../src/ui/graphs';
import { formatBytesPerSecond, formatPressure, formatTime } from '../src/ui/panel';

/** Looks along -y at the origin from 1 m, z up, aspect 1. */
function camera(): THREE.PerspectiveCamera {
  const made = new THREE.PerspectiveCamera(60, 1, 0.01, 10);
  made.up.set(0, 0, 1);
  made.position.set(0, 1, 0);
  made.lookAt(0, 0, 0);
  made.updateMatrixWorld();
  return made;
}

function near(actual: THREE.Vector3, expected: [number, number, number]): void {
  assert.ok(actual.distanceTo(new THREE.Vector3(...expected)) < 1e-9, `${actual.toArray()} instead of ${expected}`);
}

const start = () => new ToolHand({ position: new THREE.Vector3(0.1, 0, 0.2), rotation: new THREE.Quaternion() });

test('dragging moves the tool in the plane that faces the camera, by what the pointer moved', () => {
  const hand = start();
  const view = camera();
  const halfHeight_m = Math.tan(Math.PI / 6);  // of the picture, at the tool's distance of 1 m
  hand.beginDrag(new THREE.Vector2(0, 0), view);
  hand.drag(new THREE.Vector2(0.5, -0.25), view);
  near(hand.pose.position, [0.1 - 0.5 * halfHeight_m, 0, 0.2 - 0.25 * halfHeight_m]);
  hand.drag(new THREE.Vector2(0, 0), view);
  near(hand.pose.position, [0.1, 0, 0.2]);
  hand.endDrag();
  hand.drag(new THREE.Vector2(0.9, 0.9), view);
  near(hand.pose.position, [0.1, 0, 0.2]);
});

test('a push during a drag stays when the pointer moves on', () => {
  const hand = start();
  const view = camera();
  hand.beginDrag(new THREE.Vector2(0.2, 0.2), view);
  hand.move(new THREE.Vector3(0, -0.3, 0));
  near(hand.pose.position, [0.1, -0.3, 0.2]);
  hand.drag(new THREE.Vector2(0.2, 0.2), view);
  assert.ok(Math.abs(hand.pose.position.y + 0.3) < 1e-9);
});

test('poses are limited in rate, end with velocity zero, and repeat themselves when the hand rests', () => {
  const hand = start();
  assert.ok(hand.tick(1000));
  hand.move(new THREE.Vector3(0.001, 0, 0));
  assert.equal(hand.tick(1005), undefined);
  const velocity = hand.tick(1020)!.clone();
  assert.ok(Math.abs(velocity.x - 0.05) < 1e-6, String(velocity.x));
  near(hand.tick(1040)!, [0, 0, 0]);
  assert.equal(hand.tick(1060), undefined);
  near(hand.tick(1081)!, [0, 0, 0]);  // so that what is commanded does not expire
  let sent = 0;
  for (let now = 2000; now < 3000; now += 1) {
    hand.move(new THREE.Vector3(1e-4, 0, 0));
    if (hand.tick(now)) ++sent;
  }
  assert.ok(sent > 60 && sent <= 120, `${sent} poses a second`);
});

test('a wild movement has a bounded velocity', () => {
  const hand = start();
  hand.tick(1000);
  hand.move(new THREE.Vector3(5, 0, 0));
  assert.ok(hand.tick(1020)!.length() <= 2 + 1e-9);
});

test('rates count over the window, also when events come in bursts', () => {
  const meter = new RateMeter(1000);
  assert.equal(meter.perSecond(0), 0);
  for (let burst = 0; burst < 10; ++burst) for (let i = 0; i < 6; ++i) meter.add(burst * 100);
  assert.ok(Math.abs(meter.perSecond(950) - 60 / 0.95) < 1e-9);
  assert.equal(meter.perSecond(5000), 0);
});

test('numbers for people', () => {
  assert.deepEqual([0, 0.2, 1, 1.2, 4, 6, 99, NaN].map(niceCeiling), [1, 0.2, 1, 1.5, 5, 7.5, 100, 1]);
  assert.equal(formatPressure(-12.3), '-12 Pa');
  assert.equal(formatPressure(2345), '2.35 kPa');
  assert.equal(formatTime(1.234), '1.23 s');
  assert.equal(formatTime(125.04), '2 min 5.0 s');
  assert.equal(formatBytesPerSecond(999), '999 B/s');
  assert.equal(formatBytesPerSecond(12345), '12.3 kB/s');
  assert.equal(formatBytesPerSecond(4.2e6), '4.20 MB/s');
});
