// Arrays of bodies in the panel, in a real browser, against the server: node arrays_test.mjs --server PALPATE_SERVER [--out FOLDER]
//
// The 517 bodies of boxes.json are seven rows. An array opens to its bodies, and its slider is theirs, in a desktop's window and a phone's.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';

const { values: options } = parseArgs({ options: { server: { type: 'string' }, out: { type: 'string' } } });
if (!options.server) {
  console.error('usage: arrays_test.mjs --server PALPATE_SERVER [--out FOLDER]');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-arrays');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const server = await startServer(options.server, join(webDir, '..', '..', 'scenes', 'boxes.json'), profile);
const context = await openBrowser(profile, '1440x900');
const page = await context.newPage();
const complaints = complaintsOf(page);
let failed = false;

const labels = () => page.$$eval('#see-through > span, #see-through > .array', (rows) => rows.map((row) => row.textContent));
const valuesOf = (list) => page.$$eval(`${list} input`, (inputs) => inputs.map((input) => input.valueAsNumber));
const slide = (slider, value) => slider.evaluate((input, to) => {
  input.value = String(to);
  input.dispatchEvent(new Event('input'));
}, value);
const ROWS = ['floor', 'wall-left', 'wall-right', 'wall-front', 'wall-back', '256 like box0', '256 like ball0'];

try {
  await step('517 bodies are seven rows', async () => {
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await page.waitForFunction(() => window.palpate?.connection === 'open' && palpate.bodies.length === 517);
    await page.waitForFunction(() => palpate.runState === 'playing');
    await page.click('#b-play');
    await page.waitForFunction(() => palpate.runState === 'paused');
    assert.deepEqual(await labels(), ROWS);
    assert.equal(await page.locator('.members input').count(), 0, 'the rows of closed arrays do not exist');
    await page.screenshot({ path: join(outDir, '1440x900-closed.png') });
  });

  for (const [width, height] of [[1440, 900], [390, 844]]) {
    await step(`${width} x ${height}: an array opens, its slider is that of its bodies`, async () => {
      await page.setViewportSize({ width, height });
      await page.waitForFunction((isNarrow) => document.getElementById('panel').inert === isNarrow, width <= 900);
      if (width <= 900) await page.click('#b-panel');
      await page.waitForFunction(() => document.getAnimations().every((animation) => animation.playState !== 'running'));
      const array = page.locator('#see-through > .array', { hasText: '256 like box0' });
      await array.click();
      assert.equal(await array.getAttribute('aria-expanded'), 'true');
      const names = await page.$$eval('.members:not([hidden]) > span', (rows) => rows.map((row) => row.textContent));
      assert.deepEqual(names, Array.from({ length: 256 }, (_, index) => `box${index}`));
      const all = page.locator('#see-through > .array + input').first();
      const members = page.locator('.members:not([hidden]) input');
      await slide(all, 0.5);
      assert.deepEqual(new Set(await valuesOf('.members:not([hidden])')), new Set([0.5]));
      await slide(members.nth(255), 0);
      assert.ok(Math.abs((await all.inputValue()) - 0.5) < 0.011, 'one of many hardly moves the mean');

      // What is shown follows the bodies, not the list.
      await array.click();
      assert.equal(await page.locator('.members input').count(), 0);
      await array.click();
      const values = await valuesOf('.members:not([hidden])');
      assert.equal(values[255], 0);
      assert.deepEqual(new Set(values.slice(0, 255)), new Set([0.5]));
      await members.nth(255).scrollIntoViewIfNeeded();
      const box = await members.nth(255).boundingBox();
      assert.ok(box.x >= 0 && box.x + box.width <= width && box.y >= 0 && box.y + box.height <= height, `outside: ${JSON.stringify(box)}`);
      assert.deepEqual(await labels(), ROWS);
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
      await page.screenshot({ path: join(outDir, `${width}x${height}-open.png`) });
      await slide(all, 1);
      await array.click();
      await page.screenshot({ path: join(outDir, `${width}x${height}-closed.png`) });
    });
  }
  assert.deepEqual(complaints, [], 'the page complained');
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
  await page.screenshot({ path: join(outDir, 'failed.png'), timeout: 30_000 }).catch(() => {});
} finally {
  await context.close();
  const code = await server.end();
  if (code !== 0) {
    failed = true;
    console.error(`FAILED: the server ended with ${code}`);
  }
}
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(`${failed ? '' : 'passed; '}screenshots: ${outDir}`);
process.exit(failed ? 1 : 0);
