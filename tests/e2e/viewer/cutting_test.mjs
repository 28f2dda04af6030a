// Surgery with the mouse in a real browser, against the viewer's stand-in for the server, whose meshes are the oracle: node cutting_test.mjs [--out FOLDER]
//
// Carves, incises, cuts a piece off, grasps, and loses and spoils deltas. After each of these the browser has the server's surfaces, by their hash.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, step, webDir } from './browser.mjs';
import { difference, farthest_m, Surgeon } from './surgeon.mjs';

const { values: options } = parseArgs({ options: { out: { type: 'string' }, size: { type: 'string', default: '720x520' } } });
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-cutting');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const { bundleFakeServer } = await import(pathToFileURL(join(webDir, 'scripts', 'fake_server.mjs')).href);
const fake = await (await bundleFakeServer()).startFakeServer(0, join(webDir, 'dist'));
const context = await openBrowser(profile, options.size);
let page;
let complaints = [];
let failed = false;
try {
  page = context.pages()[0] ?? (await context.newPage());
  complaints = complaintsOf(page);
  const surgeon = new Surgeon(page, () => {
    const { topologyVersion, surfaces } = fake.truth('surgery');
    return { topologyVersion, surfaces: surfaces.map(({ name, meshHash }) => ({ name, meshHash })) };
  });
  await step('loads', async () => {
    await page.goto(`http://127.0.0.1:${fake.port}/?quality=low&scene=surgery`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.tools.length > 0);
    await surgeon.play(false);
    await page.evaluate(() => palpate.showPanel(false));  // it would lie over the tissue
    await page.evaluate(() => palpate.look(-90, 62, 1.1));
    await surgeon.expectServersSurfaces();
    assert.equal((await surgeon.state()).bodies[0].interiorTriangleCount, 0);
  });
  const original = (await surgeon.state()).bodies;

  await step('carving uncovers the inside, in a colour of its own', async () => {
    await surgeon.mode('2', 0.011);
    const places = [await surgeon.top(-0.02, -0.01), await surgeon.top(0, -0.01), await surgeon.top(0.02, -0.01)];
    const before = await surgeon.colorAt(places[1]);
    await surgeon.drag(places);
    await surgeon.waitFor('the first edit', () => palpate.surgery.requests > 0);
    await surgeon.expectServersSurfaces();
    const { bodies, surgery, stats } = await surgeon.state();
    assert.ok(surgery.removedTets > 50 && bodies[0].interiorTriangleCount > 50 && stats.deltasReceived > 0, JSON.stringify({ surgery, bodies }));
    assert.equal(stats.keyframesReceived, 1);
    assert.equal(fake.truth('surgery').surfaces[0].triangleCount, bodies[0].triangleCount);
    await page.mouse.move(5, 300);
    const after = await surgeon.colorAt(places[1]);
    assert.ok(difference(before, after) > 25, `${before} -> ${after}`);
  });

  await step('an incision opens faces and takes nothing away', async () => {
    await surgeon.mode('3', 0.02);
    const before = await surgeon.state();
    await surgeon.drag([await surgeon.top(-0.05, -0.02), await surgeon.top(-0.05, 0), await surgeon.top(-0.045, 0.02)]);
    await surgeon.waitFor('the first edit', (count) => palpate.surgery.requests > count, before.surgery.requests);
    await surgeon.expectServersSurfaces();
    const { bodies, surgery } = await surgeon.state();
    assert.ok(bodies[0].interiorTriangleCount > before.bodies[0].interiorTriangleCount);
    assert.equal(surgery.removedTets, before.surgery.removedTets);
  });
  await page.screenshot({ path: join(outDir, '1-cut.png'), timeout: PATIENCE_MS });

  for (const [fault, y, complaint] of [['lostDeltas', 0.02, /an edit leads from version \d+, but here is \d+; asking for a new keyframe/],
    ['corruptDeltas', 0.045, /the copy of 'liver' here is not the server's any more; asking for a new keyframe/]]) {
    await step(`${fault}: a keyframe mends it`, async () => {
      await surgeon.mode('2', 0.012);
      const before = await surgeon.state();
      const place = await surgeon.top(0.03, y);
      fake.faults[fault] = 1;
      await surgeon.drag([place, place]);
      await surgeon.waitFor('the edit', (count) => palpate.surgery.requests > count && !palpate.surgery.isBusy, before.surgery.requests);
      if (fault === 'lostDeltas') {
        // The next edit shows that one is missing.
        await surgeon.drag([await surgeon.top(0.03, -0.02), await surgeon.top(0.03, -0.02)]);
      }
      await surgeon.waitFor('a keyframe', (count) => palpate.stats.keyframesReceived > count, before.stats.keyframesReceived);
      await surgeon.expectServersSurfaces();
      const { errors, stats, surgery } = await surgeon.state();
      assert.equal(fake.faults[fault], 0);
      assert.ok(surgery.requests > before.surgery.requests, 'what was done is forgotten');
      assert.equal(errors.length, before.errors.length + 1, errors.join('\n'));
      assert.match(errors.at(-1), complaint);
      assert.equal(stats.keyframesReceived, before.stats.keyframesReceived + 1);
    });
  }

  await step('a piece that is cut off is a body of its own, and falls', async () => {
    await page.evaluate(() => palpate.look(-90, 85, 1.1));
    await surgeon.mode('2', 0.016);
    const beforeRequests = (await surgeon.state()).surgery.requests;
    // Across the thin end, a layer deeper each time, until there is nothing left to click at.
    let dabs = 1;
    for (let pass = 0; pass < 6 && dabs > 0; ++pass) {
      dabs = 0;
      for (const y of [-0.04, -0.02, 0, 0.02, 0.04]) dabs += Number(await surgeon.dab(0.06, y, 0.03));
    }
    await surgeon.expectServersSurfaces();
    const { bodies, surgery } = await surgeon.state();
    assert.ok(surgery.requests > beforeRequests && surgery.newBodies >= 1 && bodies.length > 1, JSON.stringify({ surgery, bodies }));
    const piece = bodies.reduce((a, b, index) => (index > 0 && b.triangleCount > a.triangleCount ? { ...b, index } : a), { triangleCount: 0 });
    assert.match(piece.name, /^liver\.\d+$/);
    assert.ok(piece.triangleCount > 20 && piece.interiorTriangleCount > 4, JSON.stringify(piece));
    await surgeon.mode('1');
    await surgeon.play(true);
    await surgeon.waitFor('the fall', ([index, from]) => palpate.bodies[index].lowestM < 0.003 && palpate.bodies[index].lowestM < from - 0.002, [piece.index, piece.lowestM]);
    await surgeon.play(false);
    await surgeon.expectServersSurfaces();
    // It is drawn where it lies: its middle on the screen has the colour of tissue, more red than the table.
    const p = await surgeon.positions(piece.index);
    const center = [0, 1, 2].map((axis) => (3 * p.reduce((sum, x, i) => sum + (i % 3 === axis ? x : 0), 0)) / p.length);
    const [red, , blue] = await surgeon.colorAt(center);
    assert.ok(red > 1.5 * blue && red > 30, `${red} ${blue}`);
  });
  await page.screenshot({ path: join(outDir, '2-piece.png'), timeout: PATIENCE_MS });

  await step('reset brings the whole back', async () => {
    const { keyframesReceived } = (await surgeon.state()).stats;
    await page.keyboard.press('r');
    await surgeon.waitFor('the keyframe', (count) => palpate.stats.keyframesReceived > count && palpate.stats.step === 0, keyframesReceived);
    await surgeon.expectServersSurfaces();
    const { bodies, surgery } = await surgeon.state();
    assert.deepEqual(bodies.map(({ name, triangleCount, interiorTriangleCount }) => ({ name, triangleCount, interiorTriangleCount })),
      original.map(({ name, triangleCount, interiorTriangleCount }) => ({ name, triangleCount, interiorTriangleCount })));
    assert.equal(surgery.requests, 0);
  });

  await step('jaws close and open with a key, and are drawn so', async () => {
    await surgeon.play(true);
    assert.ok(await page.evaluate(() => palpate.takeTool('forceps')));
    const { jawAngleRad: open } = await surgeon.tool('forceps');
    assert.ok(open > 0.9, `${open}`);
    await page.keyboard.down('g');
    await surgeon.waitFor('closed jaws', () => palpate.tools.find((tool) => tool.name === 'forceps').jawAngleRad < 0.05);
    await page.keyboard.up('g');
    await surgeon.waitFor('open jaws', (angle) => palpate.tools.find((tool) => tool.name === 'forceps').jawAngleRad > angle - 0.05, open);
  });

  await step('grasping with the mouse takes tissue along, and lets go', async () => {
    await page.evaluate(() => palpate.look(-90, 30, 1.1));
    await surgeon.mode('4', 0.014);
    const place = await surgeon.top(0, -0.01);
    const before = await surgeon.positions(0);
    const from = await surgeon.aimAt(place);
    await page.mouse.down();
    await surgeon.waitFor('tissue in the jaws', () => palpate.tools.find((tool) => tool.name === 'forceps').graspedVertices > 0);
    assert.match((await surgeon.tool('forceps')).activity, /grasping/);
    await page.mouse.move(from.x, from.y - 60, { steps: 6 });
    await surgeon.waitFor('a pull', () => Math.hypot(...palpate.tools.find((tool) => tool.name === 'forceps').forceN) > 0.2);
    const pulled = await surgeon.positions(0);
    assert.ok(farthest_m(pulled, before) > 0.008, `${farthest_m(pulled, before)}`);
    await page.screenshot({ path: join(outDir, '3-grasp.png'), timeout: PATIENCE_MS });
    await page.mouse.up();
    await surgeon.waitFor('the release', () => palpate.tools.find((tool) => tool.name === 'forceps').graspedVertices === 0 && !palpate.surgery.isBusy);
    await surgeon.mode('1');
    await page.keyboard.press('t');
    await surgeon.waitFor('a free tool', () => palpate.tools.find((tool) => tool.name === 'forceps').owner === 'free');
  });

  await step('the pedal of an instrument burns while it is down', async () => {
    assert.ok(await page.evaluate(() => palpate.takeTool('hook')));
    const [x, y, z] = await surgeon.top(-0.02, -0.02);
    await page.evaluate((place) => palpate.moveTool(...place), [x, y, z + 0.002]);
    await surgeon.waitFor('the hook there', ([a, b, c]) => {
      const at = palpate.tools.find((tool) => tool.name === 'hook').positionM;
      return Math.hypot(at[0] - a, at[1] - b, at[2] - c) < 0.004;
    }, [x, y, z + 0.002]);
    const before = await surgeon.state();
    assert.equal(before.bodies[0].interiorTriangleCount, 0);
    // A little deeper at a time: power finds tissue on the way.
    await page.keyboard.down(' ');
    for (let i = 1; i <= 10; ++i) await page.evaluate((place) => palpate.moveTool(...place), [x, y, z - 0.002 * i]);
    await surgeon.waitFor('a cut', (version) => palpate.stats.topologyVersion > version && palpate.bodies[0].interiorTriangleCount > 0, before.stats.topologyVersion);
    await page.keyboard.up(' ');
    await surgeon.play(false);
    await surgeon.expectServersSurfaces();
    const { topologyVersion } = (await surgeon.state()).stats;
    await surgeon.play(true);
    const { step: at } = (await surgeon.state()).stats;
    await surgeon.waitFor('more steps', (from) => palpate.stats.step > from + 20, at);
    assert.equal((await surgeon.state()).stats.topologyVersion, topologyVersion, 'it cuts with the pedal up');
  });

  assert.deepEqual(complaints, [], 'the page complained');
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
  if (complaints.length > 0) console.error(complaints.join('\n'));
  await page?.screenshot({ path: join(outDir, 'failed.png'), timeout: 30_000 }).catch(() => {});
} finally {
  await context.close();
  await fake.close();
}
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(`${failed ? '' : 'passed; '}screenshots: ${outDir}`);
process.exit(failed ? 1 : 0);
