// Instruments in the hand of a browser, against the server: node grasp_test.mjs --server PALPATE_SERVER [--out FOLDER]
//
// In the scene grasp.json the mouse presses on twelve places of the ridge, with the reach that the viewer has at the start; in trocar.json the pedal of the aspirator
// is pressed, and left pressed by a page that hangs. Exit status: 0 passed, 1 failed, 77 no browser on this machine.
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
const context = await openBrowser(profile, options.size);
const MAX_JAW_ANGLE_RAD = 1.2;  // of the scene
const EXPIRED = 'command expired: let the pedal go';
let page;
let complaints = [];
let failed = false;

/** Does `run` in a page that shows a scene of scenes/. */
async function inScene(name, run) {
  const server = await startServer(options.server, join(webDir, '..', '..', 'scenes', `${name}.json`), profile);
  try {
    page = await context.newPage();
    complaints = complaintsOf(page);
    const surgeon = new Surgeon(page);
    await step(`${name} loads`, async () => {
      await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
      await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing');
      await page.evaluate(() => palpate.showPanel(false));  // it would lie over the tissue
    });
    await run(surgeon);
    assert.deepEqual((await surgeon.state()).errors, []);
    assert.deepEqual(complaints, [], 'the page complained');
    await page.close();
  } finally {
    assert.equal(await server.end(), 0, 'the server did not end well');
  }
}

async function grasp(surgeon) {
  await page.evaluate(() => palpate.look(-60, 60, 1.6));
  await surgeon.mode('4');
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
}

async function pull(surgeon) {
  await step('what is held follows the pull, and goes home when it is let go', async () => {
    const rest = await surgeon.positions(0);
    const at = await page.evaluate((place) => palpate.project(...place), [0, 0, 0.01]);
    await page.mouse.move(at.x, at.y);
    await page.mouse.down();
    await surgeon.waitFor('the hold', () => palpate.tools.some((tool) => tool.graspedVertices > 0));
    // Before the jaws are closed what they hold may slip.
    await surgeon.waitFor('closed jaws', (open_rad) => palpate.tools.find((tool) => tool.name === 'forceps').jawAngleRad < 0.9 * open_rad, MAX_JAW_ANGLE_RAD);
    const held = await surgeon.positions(0);
    await page.mouse.move(at.x + 8, at.y - 40, { steps: 8 });
    await surgeon.waitFor('tissue that follows', (before) => palpate.positions(0).some((x, i) => Math.abs(x - before[i]) > 0.003), held);
    const pulled = await surgeon.tool('forceps');
    assert.equal(pulled.activity, 'grasping');
    assert.ok(Math.hypot(...pulled.forceN) > 0.01, JSON.stringify(pulled));
    await page.screenshot({ path: join(outDir, '1-pulled.png'), timeout: PATIENCE_MS });
    await page.mouse.up();
    await surgeon.waitFor('the release', () => !palpate.surgery.isBusy && palpate.tools.every((tool) => tool.graspedVertices === 0));
    await surgeon.waitFor('tissue that goes home', (before) => palpate.positions(0).every((x, i) => Math.abs(x - before[i]) < 0.002), rest);
  });
}

async function press(surgeon) {
  const later = (steps) => surgeon.waitFor(`${steps} steps`, (step) => palpate.stats.step > step, steps).then(() => surgeon.state());
  const version = async () => (await surgeon.state()).stats.topologyVersion;
  /** Presses the pedal until tissue goes, and leaves it down. A browser that draws in software may be silent for too long meanwhile: then the pedal is pressed anew. */
  const tissueGoes = async () => {
    const before = await version();
    const hasGone = async () => (await version()) > before;
    for (let presses = 0; presses < 50 && !(await hasGone()); ++presses) {
      await page.keyboard.up(' ');
      await surgeon.waitFor('a pedal that is up', (expired) => palpate.tools[0].activity !== expired, EXPIRED);
      await page.keyboard.down(' ');
      await surgeon.waitFor('tissue that goes, or a silence', ([old, expired]) => palpate.stats.topologyVersion > old || palpate.tools[0].activity === expired, [before, EXPIRED]);
    }
    assert.ok(await hasGone());
  };
  await step('tissue goes while the pedal is down, and stays when it is up', async () => {
    assert.equal(await page.evaluate(() => palpate.takeTool('aspirator')), true);
    await page.evaluate(() => palpate.moveTool(0, 0, 0.012));  // the tissue reaches up to 15 mm
    await surgeon.waitFor('the tip in the tissue', () => palpate.tools[0].positionM[2] < 0.018);
    await tissueGoes();
    await page.keyboard.up(' ');
    await surgeon.waitFor('rest', () => palpate.tools[0].activity !== 'cutting');
    const up = await surgeon.state();
    assert.equal((await later(up.stats.step + 60)).stats.topologyVersion, up.stats.topologyVersion);
  });
  await step('a page that hangs does not go on burning', async () => {
    await page.evaluate(() => palpate.moveTool(0.012, 0, 0.012));
    await tissueGoes();
    await page.evaluate(() => {
      for (const end = performance.now() + 1500; performance.now() < end; ) Math.random();
    });
    // The foot has not moved, which counts no more: the silence was too long.
    const after = await later((await surgeon.state()).stats.step + 30);
    assert.equal(after.tools[0].activity, EXPIRED);
    assert.equal((await later(after.stats.step + 120)).stats.topologyVersion, after.stats.topologyVersion);
    await page.evaluate(() => palpate.moveTool(0.02, 0, 0.011));
    await tissueGoes();
    await page.keyboard.up(' ');
    await page.screenshot({ path: join(outDir, '2-burnt.png'), timeout: PATIENCE_MS });
  });
}

try {
  await inScene('grasp', async (surgeon) => {
    await grasp(surgeon);
    await pull(surgeon);
  });
  await inScene('trocar', press);
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
  if (complaints.length > 0) console.error(complaints.join('\n'));
  await page?.screenshot({ path: join(outDir, 'failed.png'), timeout: 30_000 }).catch(() => {});
} finally {
  await context.close();
}
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(`${failed ? '' : 'passed; '}screenshots: ${outDir}`);
process.exit(failed ? 1 : 0);
