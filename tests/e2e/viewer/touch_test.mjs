// Fingers on a phone, in a real browser, against the fake server: node touch_test.mjs [--out FOLDER]
//
// One finger orbits, cuts tissue and moves an instrument; two are for the camera and cut nothing; all that keys do for an instrument has a button. Exit status: 0 passed,
// 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, step, webDir } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const { values: options } = parseArgs({ options: { out: { type: 'string' } } });
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-touch');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const { bundleFakeServer } = await import(pathToFileURL(join(webDir, 'scripts', 'fake_server.mjs')).href);
const fake = await (await bundleFakeServer()).startFakeServer(0, join(webDir, 'dist'));
const context = await openBrowser(profile, '390x844');
let page;
let fingers;
let complaints = [];
let failed = false;

/** `points`: where the fingers are, [x, y] each; none: they are lifted. */
const touch = (type, points) => fingers.send('Input.dispatchTouchEvent', { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
/** Moves fingers along straight lines. `paths`: [[from, to], ...]; they come down one after the other, as fingers do. */
async function swipe(paths, moves = 8) {
  for (let count = 1; count <= paths.length; ++count) await touch('touchStart', paths.slice(0, count).map(([from]) => from));
  for (let i = 1; i <= moves; ++i) {
    await touch('touchMove', paths.map(([from, to]) => from.map((x, k) => x + ((to[k] - x) * i) / moves)));
    await page.waitForTimeout(16);
  }
  await touch('touchEnd', []);
}
const middleOf = async (selector) => {
  const box = await page.locator(selector).boundingBox();
  return [box.x + box.width / 2, box.y + box.height / 2];
};
async function tap(selector) {
  await touch('touchStart', [await middleOf(selector)]);
  await touch('touchEnd', []);
}
const camera = () => page.evaluate(() => palpate.camera);
const distance_m = ({ positionM, targetM }) => Math.hypot(...positionM.map((x, k) => x - targetM[k]));
const turned_rad = (a, b) => {
  const [u, v] = [a, b].map((one) => one.positionM.map((x, k) => (x - one.targetM[k]) / distance_m(one)));
  return Math.acos(Math.min(1, u.reduce((sum, x, k) => sum + x * v[k], 0)));
};
const away_m = (a, b) => Math.hypot(...a.map((x, k) => x - b[k]));
/** Until the camera, which swings on a little, has come to rest. */
async function rest() {
  let before = await camera();
  for (let i = 0; i < 100; ++i) {
    await page.waitForTimeout(200);
    const now = await camera();
    if (away_m(now.positionM, before.positionM) + away_m(now.targetM, before.targetM) < 1e-5) return now;
    before = now;
  }
  throw new Error(`the camera does not come to rest: ${JSON.stringify(before)}`);
}
const expectSameView = (a, b) => assert.ok(away_m(a.positionM, b.positionM) + away_m(a.targetM, b.targetM) < 1e-3, `the camera has moved: ${JSON.stringify([a, b])}`);
/** Where a press would be on tissue, near the middle of the organ, and where it would be far from everything. */
const places = () => page.evaluate(() => {
  const p = palpate.positions(0);
  const center = [0, 0, 0];
  for (let i = 0; i < p.length; ++i) center[i % 3] += (3 * p[i]) / p.length;
  const { x, y } = palpate.project(...center);
  const free = document.elementsFromPoint(300, 560)[0].id === 'view' && !palpate.pick(300, 640);
  return { tissue: palpate.pick(x, y) && [x, y], beside: free && [300, 640] };
});

try {
  page = context.pages()[0] ?? (await context.newPage());
  fingers = await context.newCDPSession(page);
  await fingers.send('Emulation.setTouchEmulationEnabled', { enabled: true, maxTouchPoints: 5 });
  complaints = complaintsOf(page);
  const surgeon = new Surgeon(page, async () => {
    const { topologyVersion, surfaces } = fake.truth('surgery');
    return { topologyVersion, surfaces: surfaces.map(({ name, meshHash }) => ({ name, meshHash })) };
  });
  await step('loads, the panel away', async () => {
    await page.goto(`http://127.0.0.1:${fake.port}/?quality=low&scene=surgery`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.stats.step > 3);
    await page.evaluate(() => palpate.look(-90, 50, 1.5));
    assert.ok(await page.evaluate(() => document.getElementById('panel').inert));
    const { tissue, beside } = await places();
    assert.ok(tissue && beside, 'there is tissue in the middle, and none below it');
    assert.match(await page.textContent('#hint'), /Tap/);
  });

  await step('one finger orbits, two zoom', async () => {
    const start = await rest();
    await swipe([[[300, 640], [220, 640]]]);
    const orbited = await rest();
    assert.ok(turned_rad(start, orbited) > 0.2, `turned by ${turned_rad(start, orbited)}`);
    assert.ok(Math.abs(distance_m(orbited) / distance_m(start) - 1) < 0.02);
    await swipe([[[170, 620], [110, 620]], [[230, 620], [290, 620]]]);
    const zoomed = await rest();
    assert.ok(distance_m(zoomed) < 0.8 * distance_m(orbited), `${distance_m(zoomed)} of ${distance_m(orbited)}`);
    await page.evaluate(() => palpate.look(-90, 50, 1.5));
  });

  await step('two fingers on tissue zoom and cut nothing; one carves and leaves the camera alone', async () => {
    await tap('#m-carve');
    await surgeon.waitFor('the mode', () => palpate.surgery.mode === 'carve');
    const start = await rest();
    const { tissue: [x, y] } = await places();
    await swipe([[[x - 12, y], [x - 60, y]], [[x + 12, y], [x + 60, y]]]);
    const zoomed = await rest();
    assert.ok(distance_m(zoomed) < 0.8 * distance_m(start), `${distance_m(zoomed)} of ${distance_m(start)}`);
    await surgeon.settle();
    assert.equal((await surgeon.state()).surgery.requests, 0, 'two fingers cut');

    await page.evaluate(() => palpate.look(-90, 50, 1.5));
    const before = await rest();
    const at = (await places()).tissue;
    await swipe([[at, [at[0] + 30, at[1]]]]);
    await surgeon.waitFor('the cut', () => palpate.surgery.removedTets > 0 && !palpate.surgery.isBusy);
    expectSameView(await rest(), before);
    // A tap takes a dab.
    const { surgery } = await surgeon.state();
    await page.waitForTimeout(300);
    const [tx, ty] = (await page.evaluate(([px, py]) => palpate.pick(px - 25, py) && [px - 25, py], at)) ?? at;
    await touch('touchStart', [[tx, ty]]);
    await touch('touchEnd', []);
    await surgeon.waitFor('the dab', (count) => palpate.surgery.requests > count && !palpate.surgery.isBusy, surgery.requests);
    await surgeon.expectServersSurfaces();

    await swipe([[[300, 640], [220, 640]]]);
    assert.ok(turned_rad(before, await rest()) > 0.2, 'beside the tissue a finger orbits');
    await tap('#m-hand');
    await page.screenshot({ path: join(outDir, '1-carved.png'), timeout: PATIENCE_MS });
  });

  await step('an instrument is taken in the sheet, and moved, pushed and let go without keys', async () => {
    await tap('#b-panel');
    await surgeon.waitFor('the sheet', () => !document.getElementById('panel').inert && document.getAnimations().every((one) => one.playState !== 'running'));
    await page.screenshot({ path: join(outDir, '2-sheet.png'), timeout: PATIENCE_MS });
    await tap('#tools button[data-tool="forceps"]');
    await surgeon.waitFor('the forceps in the hand', () => palpate.tools[0].owner === 'you');
    await tap('#b-panel');
    await surgeon.waitFor('the buttons', () => document.getElementById('hand-controls').checkVisibility?.() ?? document.getElementById('hand-controls').offsetHeight > 0);
    await page.screenshot({ path: join(outDir, '3-in-hand.png'), timeout: PATIENCE_MS });
    const hand = async () => (await surgeon.tool('forceps')).handM;

    const start = await hand();
    const before = await rest();
    await swipe([[[300, 640], [240, 640]]]);
    const dragged = await hand();
    assert.ok(away_m(dragged, start) > 0.005, `dragged by ${away_m(dragged, start)} m`);
    expectSameView(await rest(), before);

    await swipe([[[170, 620], [120, 560]], [[230, 620], [280, 560]]]);
    const after = await rest();
    assert.ok(distance_m(after) < 0.85 * distance_m(before) && turned_rad(before, after) > 0.05, 'two fingers zoom and orbit');
    assert.ok(away_m(await hand(), dragged) < 0.002, 'two fingers move the instrument');

    const held = await hand();
    await touch('touchStart', [await middleOf('#hand-controls button:has-text("Push")')]);
    await surgeon.waitFor('a push', ([place, view]) => {
      const far = (at) => Math.hypot(...at.map((x, k) => x - view[k]));
      return far(palpate.tools[0].handM) > far(place) + 0.01;
    }, [held, after.positionM]);
    await touch('touchEnd', []);
    await page.waitForTimeout(100);
    const pushed = await hand();
    assert.ok(away_m(after.positionM, pushed) > away_m(after.positionM, held) + 0.01);
    await page.waitForTimeout(300);
    assert.deepEqual(await hand(), pushed, 'goes on without a finger');

    // A long press is no wish for a menu.
    const open_rad = (await surgeon.tool('forceps')).jawAngleRad;
    await touch('touchStart', [await middleOf('#hand-controls button:has-text("Jaws")')]);
    await surgeon.waitFor('closed jaws', () => palpate.tools[0].jawAngleRad < 0.05);
    await page.waitForTimeout(900);
    assert.ok((await surgeon.tool('forceps')).jawAngleRad < 0.05, 'a long press lets go');
    await touch('touchEnd', []);
    await surgeon.waitFor('open jaws', (angle) => palpate.tools[0].jawAngleRad > 0.95 * angle, open_rad);

    await tap('#hand-controls button:has-text("Release")');
    await surgeon.waitFor('the release', () => palpate.tools[0].owner === 'free' && document.getElementById('hand-controls').hidden);
  });

  await step('a finger brings all of the help', async () => {
    await page.setViewportSize({ width: 844, height: 390 });
    await tap('#b-help');
    const lastIsShown = () => page.evaluate(() => {
      const box = document.querySelector('#help button').getBoundingClientRect();
      return box.top >= 0 && box.bottom <= innerHeight;
    });
    assert.equal(await lastIsShown(), false, 'nothing to scroll: this test shows nothing');
    for (let i = 0; i < 12 && !(await lastIsShown()); ++i) await swipe([[[422, 300], [422, 80]]]);
    assert.ok(await lastIsShown());
    await page.waitForTimeout(400);  // until the list has come to rest
    await tap('#help button');
    await surgeon.waitFor('the end of the help', () => document.getElementById('help').hidden);
  });

  assert.deepEqual((await surgeon.state()).errors, []);
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
