// Pictures on tissue, with seams, in a real browser against a server that wants a token: node picture_test.mjs --server PALPATE_SERVER [--out FOLDER]
//
// A cube shows a picture of four colours on each of its sides by a box projection: the sides meet in seams. Another has the same picture by the atlas of
// an OBJ file. Tissue is carved and cut; what stays of the skin keeps its colours. The second keeps its volume, and its pressure is told.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import * as zlib from 'node:zlib';
import { PATIENCE_MS, step, testScene } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const SIDE_M = 0.06;
const TOKEN = 'open-sesame-open-sesame-open-sesame';
const COLORS = { blue: [20, 40, 220], yellow: [220, 200, 20], red: [220, 30, 20], green: [20, 190, 40] };

/** A picture of four squares: above blue and yellow, below red and green. */
function fourColors(size) {
  const rows = [];
  for (let y = 0; y < size; ++y) {
    const row = [0];
    for (let x = 0; x < size; ++x) row.push(...(y < size / 2 ? (x < size / 2 ? COLORS.blue : COLORS.yellow) : x < size / 2 ? COLORS.red : COLORS.green));
    rows.push(Buffer.from(row));
  }
  const chunk = (kind, data) => {
    const body = Buffer.concat([Buffer.from(kind, 'latin1'), data]);
    const out = Buffer.alloc(body.length + 8);
    out.writeUInt32BE(data.length);
    body.copy(out, 4);
    out.writeUInt32BE(checksum(body), body.length + 4);
    return out;
  };
  const header = Buffer.from([0, 0, 0, 0, 0, 0, 0, 0, 8, 2, 0, 0, 0]);
  header.writeUInt32BE(size, 0);
  header.writeUInt32BE(size, 4);
  return Buffer.concat([Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]), chunk('IHDR', header), chunk('IDAT', zlib.deflateSync(Buffer.concat(rows))),
    chunk('IEND', Buffer.alloc(0))]);
}

/** CRC-32; older versions of Node.js have none. */
function checksum(bytes) {
  if (zlib.crc32) return zlib.crc32(bytes);
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; ++bit) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** The cube's surface, every side the whole picture turned upside down. */
function atlas() {
  const h = SIDE_M / 2;
  const lines = ['mtllib atlas.mtl', 'usemtl all', 'vt 1 1', 'vt 0 1', 'vt 0 0', 'vt 1 0'];
  let count = 0;
  for (let axis = 0; axis < 3; ++axis) for (const sign of [1, -1]) {
    for (const [a, b] of [[-1, -1], [1, -1], [1, 1], [-1, 1]]) {
      const place = [0, 0, 0];
      place[axis] = sign * h;
      place[(axis + 1) % 3] = a * sign * h;
      place[(axis + 2) % 3] = b * h;
      lines.push(`v ${place.join(' ')}`);
    }
    lines.push(`f ${[1, 2, 3, 4].map((corner) => `${count + corner}/${corner}`).join(' ')}`);
    count += 4;
  }
  return `${lines.join('\n')}\n`;
}

const cube = (name, x, texture) => ({
  name, generator: { slab: { size_m: { x: SIDE_M, y: SIDE_M, z: SIDE_M } }, edge_length_m: 0.012 },
  material: { young_modulus_pa: 20000, poisson_ratio: 0.3, damping_s: 0.05 }, pose: { position_m: { x } },
  fixed: [{ box: { min_m: { x: -1, y: -1, z: -1 }, max_m: { x: 1, y: 1, z: -0.029 } } }], texture,
});
const corner = -SIDE_M / 2;
const SCENE = {
  name: 'picture', dt_s: 1 / 60, gravity_m_per_s2: {},
  bodies: [
    cube('box', -0.05, { image_file: 'four.png', box: { origin_m: { x: corner, y: corner, z: corner } }, tile_size_m: SIDE_M }),
    { ...cube('atlas', 0.05, { surface_file: 'atlas.obj' }), volume_stiffness_pa: 1e4 },
  ],
};
const FILES = { 'four.png': fourColors(64), 'atlas.obj': atlas(), 'atlas.mtl': 'newmtl all\nmap_Kd four.png\n', token: `${TOKEN}\n` };

/** The colour of the picture that comes nearest in hue to what is seen. */
function nameOf([r, g, b]) {
  const most = Math.max(r, g, b), least = Math.min(r, g, b);
  if (most < 1.25 * least) return `grey ${[r, g, b]}`;
  if (b === most) return 'blue';
  if (Math.min(r, g) > 0.6 * most) return 'yellow';
  return r > g ? 'red' : 'green';
}

async function expectSide(surgeon, center, right, up, [upperLeft, upperRight, lowerLeft, lowerRight]) {
  const at = (a, b) => center.map((x, k) => x + 0.25 * SIDE_M * (a * right[k] + b * up[k]));
  const seen = [];
  for (const [a, b] of [[-1, 1], [1, 1], [-1, -1], [1, -1]]) seen.push(nameOf(await surgeon.colorAt(at(a, b))));
  assert.deepEqual(seen, [upperLeft, upperRight, lowerLeft, lowerRight]);
}

await testScene({ scene: SCENE, files: FILES, serverArguments: (folder) => ['--token-file', join(folder, 'token')] }, async ({ page, server, outDir }) => {
  const surgeon = new Surgeon(page, undefined);
  const UPRIGHT = ['blue', 'yellow', 'red', 'green'], TURNED = ['green', 'red', 'yellow', 'blue'];
  const h = SIDE_M / 2;
  let image;
  await step('the pictures come, to whom has the token alone', async () => {
    await page.goto(`${server.url}?quality=low#token=${TOKEN}`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length === 2);
    await surgeon.waitFor('the pictures', () => palpate.hasImage(0) && palpate.hasImage(1));
    await surgeon.play(false);
    await page.evaluate(() => palpate.showPanel(false));
    image = await page.evaluate(() => palpate.imageOf(0));
    assert.match(image, /^images\/[0-9a-f]{32}$/);
    for (const [headers, status] of [[{}, 401], [{ Authorization: 'Bearer wrong' }, 401], [{ Authorization: `Bearer ${TOKEN}` }, 200]]) {
      const answer = await fetch(server.url + image, { headers });
      assert.equal(answer.status, status);
      if (status !== 200) continue;
      assert.equal(answer.headers.get('content-type'), 'image/png');
      assert.deepEqual(Buffer.from(await answer.arrayBuffer()), fourColors(64));
    }
    assert.equal((await fetch(`${server.url}images/${'0'.repeat(32)}`, { headers: { Authorization: `Bearer ${TOKEN}` } })).status, 404);
  });
  await step('the pressure of what keeps its volume is listed', async () => {
    await surgeon.waitFor('the list', () => /^atlas-?0 Pa$/.test(document.getElementById('pressures').textContent));
  });
  await step('each side shows the picture upright, or turned by its atlas', async () => {
    await page.evaluate(() => palpate.look(-90, 89, 1));
    await expectSide(surgeon, [-0.05, 0, h], [1, 0, 0], [0, 1, 0], UPRIGHT);
    await expectSide(surgeon, [0.05, 0, h], [1, 0, 0], [0, 1, 0], TURNED);
    await page.screenshot({ path: join(outDir, '1-top.png'), timeout: PATIENCE_MS });
    await page.evaluate(() => palpate.look(-90, 1, 1));
    await expectSide(surgeon, [-0.05, -h, 0], [1, 0, 0], [0, 0, 1], UPRIGHT);
    await page.evaluate(() => palpate.look(-60, 35, 1));
    await page.screenshot({ path: join(outDir, '2-corner.png'), timeout: PATIENCE_MS });
    await page.evaluate(() => palpate.setQuality('high'));
    await page.screenshot({ path: join(outDir, '3-full.png'), timeout: PATIENCE_MS });
    await page.evaluate(() => palpate.setQuality('low'));
  });
  await step('carved and cut across a seam, the skin keeps its colours on both sides', async () => {
    const { keyframesReceived } = await page.evaluate(() => palpate.stats);
    const outcomes = await page.evaluate((top) => palpate.edit([
      { body: 'box', refine: { region: { ball: { center_m: { x: -0.05, y: -top, z: top }, radius_m: 0.018 } }, max_edge_m: 0.008 } },
      { body: 'box', carve: { region: { ball: { center_m: { x: -0.05, y: -top, z: top }, radius_m: 0.01 } } } },
      { body: 'atlas', incise: { edges: [-0.04, 0, 0.04].map((y) => ({ end0_m: { x: 0.051, y, z: 0.04 }, end1_m: { x: 0.049, y, z: 0.005 } })) } },
    ]), h);
    assert.ok(outcomes[0].addedTets > 50 && outcomes[1].removedTets > 5 && outcomes[2].addedTets > 20, JSON.stringify(outcomes));
    await surgeon.waitFor('the delta', () => palpate.bodies[0].interiorTriangleCount > 10 && palpate.bodies[1].interiorTriangleCount > 10 && !palpate.surgery.isBusy);
    assert.equal((await page.evaluate(() => palpate.stats)).keyframesReceived, keyframesReceived, 'deltas would have done');
    const corners = await page.evaluate(() => palpate.textureCorners(0));
    assert.ok(corners.length > 0 && corners.length % 6 === 0 && corners.every((value) => value > -1.01 && value < 1.01));
    await page.evaluate(() => palpate.look(-90, 89, 1));
    await expectSide(surgeon, [-0.05, 0, h], [1, 0, 0], [0, 1, 0], UPRIGHT);
    await expectSide(surgeon, [0.05, 0, h], [1, 0, 0], [0, 1, 0], TURNED);
    await page.evaluate(() => palpate.look(-90, 1, 1));
    await expectSide(surgeon, [-0.05, -h, 0], [1, 0, 0], [0, 0, 1], UPRIGHT);
    await page.evaluate(() => palpate.look(-70, 30, 1));
    await page.screenshot({ path: join(outDir, '4-cut.png'), timeout: PATIENCE_MS });
  });
  await step('who comes late has the same', async () => {
    const bodies = async () => (await page.evaluate(() => palpate.bodies)).map(({ name, meshHash }) => ({ name, meshHash }));
    const before = await bodies();
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length === 2);
    assert.deepEqual(await bodies(), before);
    assert.deepEqual(await page.evaluate(() => palpate.errors), []);
  });
});
