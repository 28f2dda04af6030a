// Surgery with the mouse in a real browser, against the viewer's stand-in for the server, whose meshes are the oracle: node cutting_test.mjs [--out FOLDER]
//
// Carves and incises. After each of these the browser has the server's surfaces, by their hash. Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, step, webDir } from './browser.mjs';

const { values: options } = parseArgs({ options: { out: { type: 'string' }, size: { type: 'string', default: '660x420' } } });
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

const state = () => page.evaluate(() => ({ bodies: palpate.bodies, stats: palpate.stats, surgery: palpate.surgery, tools: palpate.tools, errors: [...palpate.errors] }));
const waitFor = (what, condition, argument) => page.waitForFunction(condition, argument, { timeout: PATIENCE_MS, polling: 40 }).catch(async (error) => {
  throw new Error(`waited in vain for: ${what}\n${JSON.stringify(await state())}\n${error.message}`);
});
/** The browser shows the version that the server has, triangle for triangle. */
async function sameAsServer() {
  const { topologyVersion, surfaces } = fake.truth('surgery');
  await waitFor('the newest topology', (version) => palpate.stats.topologyVersion === version && !palpate.surgery.isBusy, topologyVersion);
  const { bodies } = await state();
  assert.deepEqual(bodies.map(({ name, triangleCount, meshHash }) => ({ name, triangleCount, meshHash })), surfaces);
}
/** Mean red, green and blue of the picture around a place of W. */
const colorAt = (place) => page.evaluate(([x, y, z]) => {
  palpate.setQuality('low');  // draws now, so that the canvas has a picture to copy
  const view = document.getElementById('view');
  const at = palpate.project(x, y, z);
  const scale = view.width / view.clientWidth;
  const size = 6;
  const copy = document.createElement('canvas');
  copy.width = copy.height = size;
  const context = copy.getContext('2d');
  context.drawImage(view, at.x * scale - size / 2, at.y * scale - size / 2, size, size, 0, 0, size, size);
  const { data } = context.getImageData(0, 0, size, size);
  return [0, 1, 2].map((k) => data.reduce((sum, value, i) => sum + (i % 4 === k ? value : 0), 0) / (size * size));
}, place);
const difference = (a, b) => Math.max(...a.map((x, k) => Math.abs(x - b[k])));
/** The skin straight above or below a place of the plane. */
const top = (x, y) => page.evaluate(([px, py]) => {
  const p = palpate.positions(0);
  let best = [0, 0, 0];
  let least = Infinity;
  for (let i = 0; i < p.length; i += 3) {
    const distance = Math.hypot(p[i] - px, p[i + 1] - py) - 2 * p[i + 2];
    if (distance < least) {
      least = distance;
      best = [p[i], p[i + 1], p[i + 2]];
    }
  }
  return best;
}, [x, y]);
/** Drags the left button over places of W, in `moves` moves each. */
async function drag(places, moves = 3) {
  const at = await page.evaluate((list) => list.map(([x, y, z]) => palpate.project(x, y, z)), places);
  await page.mouse.move(at[0].x, at[0].y);
  await page.mouse.down();
  for (let i = 1; i < at.length; ++i) await page.mouse.move(at[i].x, at[i].y, { steps: moves });
  await page.mouse.up();
}
const play = async (isPlaying) => {
  if ((await page.evaluate(() => palpate.runState)) === (isPlaying ? 'playing' : 'paused')) return;
  await page.click('#b-play');
  await waitFor('play or pause', (state) => palpate.runState === state, isPlaying ? 'playing' : 'paused');
};

let failed = false;
try {
  page = context.pages()[0] ?? (await context.newPage());
  complaints = complaintsOf(page);
  await step('loads', async () => {
    await page.goto(`http://127.0.0.1:${fake.port}/?quality=low&scene=surgery`, { timeout: PATIENCE_MS });
    await waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.tools.length > 0);
    await play(false);
    await page.evaluate(() => palpate.look(-90, 62, 0.9));
    await sameAsServer();
    assert.equal((await state()).bodies[0].interiorTriangleCount, 0);
  });

  await step('carving uncovers the inside, in a colour of its own', async () => {
    await page.keyboard.press('2');
    await page.evaluate(() => palpate.setSize(0.011));
    const places = [await top(-0.02, -0.01), await top(0, -0.01), await top(0.02, -0.01)];
    const before = await colorAt(places[1]);
    await drag(places);
    await waitFor('the edits', () => palpate.surgery.requests > 0 && !palpate.surgery.isBusy);
    await sameAsServer();
    const { bodies, surgery, stats } = await state();
    assert.ok(surgery.removedTets > 50 && bodies[0].interiorTriangleCount > 50 && stats.deltasReceived > 0, JSON.stringify({ surgery, bodies }));
    assert.equal(stats.keyframesReceived, 1);
    await page.mouse.move(5, 300);
    const after = await colorAt(places[1]);
    assert.ok(difference(before, after) > 25, `${before} -> ${after}`);
  });

  await step('an incision opens faces and takes nothing away', async () => {
    await page.keyboard.press('3');
    await page.evaluate(() => palpate.setSize(0.02));
    const before = await state();
    await drag([await top(-0.05, -0.02), await top(-0.05, 0), await top(-0.045, 0.02)]);
    await waitFor('the edits', (count) => palpate.surgery.requests > count && !palpate.surgery.isBusy, before.surgery.requests);
    await sameAsServer();
    const { bodies, surgery } = await state();
    assert.ok(bodies[0].interiorTriangleCount > before.bodies[0].interiorTriangleCount);
    assert.equal(surgery.removedTets, before.surgery.removedTets);
  });

  await page.screenshot({ path: join(outDir, 'cut.png'), timeout: PATIENCE_MS });
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
