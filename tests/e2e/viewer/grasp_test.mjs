// Grasping with the mouse in a real browser, against the server: node grasp_test.mjs --server PALPATE_SERVER [--out FOLDER]
//
// In the scene grasp.json the mouse presses on twelve places of the ridge, with the reach that the viewer has at the start. Exit status: 0 passed, 1 failed, 77 no
// browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const { values: options } = parseArgs({ options: { server: { type: 'string' }, out: { type: 'string' }, size: { type: 'string', default: '720x520' } } });
if (!options.server) {
  console.error('usage: grasp_test.mjs --server PALPATE_SERVER [--out FOLDER] [--size WxH]');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-grasp');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const server = await startServer(options.server, join(webDir, '..', '..', 'scenes', 'grasp.json'), profile);
const context = await openBrowser(profile, options.size);
const MAX_JAW_ANGLE_RAD = 1.2;  // of the scene
let page;
let complaints = [];
let failed = false;

try {
  page = context.pages()[0] ?? (await context.newPage());
  complaints = complaintsOf(page);
  const surgeon = new Surgeon(page);
  await step('loads', async () => {
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing');
    await page.keyboard.press('p');  // the panel would lie over the tissue
    await page.evaluate(() => palpate.look(-60, 60, 1.6));
    await surgeon.mode('4');
  });

  await step('of 12 presses at least 11 hold, with the jaws closed onto what they hold', async () => {
    const outcomes = [];
    for (const y of [-0.018, -0.011, -0.004, 0.004, 0.011, 0.018]) {
      for (const x of [-0.004, 0.003]) {
        const before = (await surgeon.state()).surgery;
        const at = await page.evaluate((place) => palpate.project(...place), [x, y, 0.01]);
        await page.mouse.move(at.x, at.y);
        await page.mouse.down();
        await surgeon.waitFor('the answer', (count) => palpate.surgery.requests + palpate.surgery.refused > count, before.requests + before.refused);
        const holds = (await surgeon.state()).surgery.graspedVertices > before.graspedVertices;
        if (holds) {
          await surgeon.waitFor('jaws that close', (open_rad) => {
            const forceps = palpate.tools.find((tool) => tool.name === 'forceps');
            return forceps.graspedVertices > 0 && forceps.jawAngleRad < 0.9 * open_rad;
          }, MAX_JAW_ANGLE_RAD);
          if (outcomes.length === 6) await page.screenshot({ path: join(outDir, '1-held.png'), timeout: PATIENCE_MS });
        }
        await page.mouse.up();
        await surgeon.waitFor('the release', () => !palpate.surgery.isBusy && palpate.tools.every((tool) => tool.graspedVertices === 0));
        outcomes.push({ x, y, holds });
      }
    }
    assert.ok(outcomes.filter(({ holds }) => holds).length >= 11, JSON.stringify(outcomes));
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
  const code = await server.end();
  if (code !== 0) {
    failed = true;
    console.error(`FAILED: the server ended with ${code}`);
  }
}
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(`${failed ? '' : 'passed; '}screenshots: ${outDir}`);
process.exit(failed ? 1 : 0);
