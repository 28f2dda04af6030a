// The viewer in a real browser: node viewer_test.mjs (--url URL | --fake | --server PROGRAM --scene-file FILE) [--scene ID] [--out FOLDER] [--size WxH]
//
// Loads the viewer, sees the organ move, takes a free instrument, pushes the organ with the mouse, loses the server and gets it back. The server must
// play, or be able to play, a scene with a free tool; --server starts a palpate-server of its own. Screenshots go to FOLDER. Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';
import { TcpGate } from './tcp_gate.mjs';

const { values: options } = parseArgs({
  options: {
    url: { type: 'string' }, fake: { type: 'boolean' }, server: { type: 'string' }, 'scene-file': { type: 'string' }, scene: { type: 'string' },
    out: { type: 'string' }, size: { type: 'string', default: '1280x760' },
  },
});
if (!options.url && !options.fake && !(options.server && options['scene-file'])) {
  console.error('give --url URL of a server, or --server PROGRAM and --scene-file FILE, or --fake');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-viewer');
mkdirSync(outDir, { recursive: true });

const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
let fake;
let server;
let target;
if (options.fake) {
  const { bundleFakeServer } = await import(pathToFileURL(join(webDir, 'scripts', 'fake_server.mjs')).href);
  fake = await (await bundleFakeServer()).startFakeServer(0, join(webDir, 'dist'));
  target = new URL(`http://127.0.0.1:${fake.port}/`);
} else if (options.server) {
  server = await startServer(options.server, options['scene-file'], profile);
  target = new URL(server.url);
} else {
  target = new URL(options.url);
}
const gate = new TcpGate(target.hostname, Number(target.port || 80));
await gate.open();

const context = await openBrowser(profile, options.size);
let page;
let complaints = [];
const foreign = [];
const state = () => page.evaluate(() => ({ connection: palpate.connection, sceneId: palpate.sceneId, runState: palpate.runState, stats: palpate.stats,
  tools: palpate.tools, bodies: palpate.bodies, reconnects: palpate.reconnects, errors: [...palpate.errors] }));
const waitFor = (what, condition, argument) => page.waitForFunction(condition, argument, { timeout: PATIENCE_MS, polling: 50 }).catch(async (error) => {
  throw new Error(`waited in vain for: ${what}\n${JSON.stringify(await state())}\n${error.message}`);
});
const positions = (body) => page.evaluate((index) => palpate.positions(index), body);
const farthest_m = (a, b) => {
  let far = 0;
  for (let i = 0; i < a.length; i += 3) far = Math.max(far, Math.hypot(a[i] - b[i], a[i + 1] - b[i + 1], a[i + 2] - b[i + 2]));
  return far;
};
const newtons = (tool) => Math.hypot(...tool.forceN);
/** A picture at full quality; the scene stands still for it, so that software drawing can keep up. */
async function screenshot(name) {
  const playing = (await state()).runState === 'playing';
  if (playing) {
    await page.keyboard.press('Space');
    await waitFor('the pause', () => palpate.runState === 'paused');
  }
  await page.evaluate(() => palpate.setQuality('high'));
  await page.waitForTimeout(700);
  await page.screenshot({ path: join(outDir, `${name}.png`), timeout: PATIENCE_MS });
  await page.evaluate(() => palpate.setQuality('low'));
  if (playing) {
    await page.keyboard.press('Space');
    await waitFor('play', () => palpate.runState === 'playing');
  }
}

let failed = false;
try {
  page = context.pages()[0] ?? (await context.newPage());
  complaints = complaintsOf(page);
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && new URL(request.url()).host !== `127.0.0.1:${gate.port}`) foreign.push(request.url());
  });

  await step('loads, connects, and shows a scene', async () => {
    const query = new URLSearchParams({ quality: 'low', ...(options.scene ? { scene: options.scene } : {}) });
    await page.goto(`http://127.0.0.1:${gate.port}/?${query}`, { timeout: PATIENCE_MS });
    await waitFor('the first scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0);
    const { bodies, sceneId, errors } = await state();
    if (options.scene) assert.equal(sceneId, options.scene);
    assert.ok(bodies.every((body) => body.vertexCount > 3));
    assert.ok((await positions(0)).every(Number.isFinite));
    assert.deepEqual(errors, []);
  });

  await step('plays: steps and frames advance, and the statistics show it', async () => {
    if ((await state()).runState !== 'playing') await page.click('#b-play');
    await waitFor('play', () => palpate.runState === 'playing');
    const before = (await state()).stats;
    await waitFor('frames', ({ step, framesReceived }) => palpate.stats.step > step + 10 && palpate.stats.framesReceived > framesReceived + 5, before);
    const { stats } = await state();
    assert.ok(stats.stepMs > 0 && stats.stages.length > 0, JSON.stringify(stats));
    assert.match(await page.textContent('#connection'), /Connected/);
    assert.match(await page.textContent('#s-step'), /\d/);
  });

  await step('pauses, steps and resets', async () => {
    await page.keyboard.press('Space');
    await waitFor('the pause', () => palpate.runState === 'paused');
    await page.waitForTimeout(300);
    const paused = (await state()).stats.step;
    await page.keyboard.press('n');
    await waitFor('one step', (at) => palpate.stats.step > at, paused);
    await page.waitForTimeout(300);
    assert.equal((await state()).stats.step, paused + 1);
    await page.click('#b-reset');
    await waitFor('the reset', () => palpate.stats.step === 0);
    await page.click('#b-play');
    await waitFor('play', () => palpate.runState === 'playing' && palpate.stats.step > 3);
  });

  await step('the organ moves', async () => {
    const before = await positions(0);
    await page.waitForFunction((old) => palpate.positions(0).some((x, i) => Math.abs(x - old[i]) > 1e-5), before, { timeout: PATIENCE_MS, polling: 200 });
  });
  await screenshot('1-overview');

  let held;
  await step('a free instrument can be taken', async () => {
    const free = (await state()).tools.findIndex((tool) => tool.owner === 'free');
    assert.ok(free >= 0, 'the scene has no free tool');
    held = (await state()).tools[free].name;
    await page.click(`#tools button[data-tool="${held}"]`);
    await waitFor('the tool in the hand', (index) => palpate.tools[index].owner === 'you', free);
  });

  const heldTool = async () => (await state()).tools.find((tool) => tool.name === held);
  await step('dragging it with the mouse pushes the organ and shows the force', async () => {
    await page.keyboard.press('f');
    await page.waitForTimeout(500);
    // Aim for the vertex of the organ that is as far from the camera as the tip is: the mouse moves the tip at that depth. Then go on into the organ.
    const path = await page.evaluate((name) => {
      const tip = palpate.tools.find((tool) => tool.name === name).positionM;
      const from = palpate.project(...tip);
      const p = palpate.positions(0);
      const center = [0, 0, 0];
      for (let i = 0; i < p.length; ++i) center[i % 3] += (3 * p[i]) / p.length;
      let best = { depth: Infinity };
      for (let i = 0; i < p.length; i += 3) {
        const at = palpate.project(p[i], p[i + 1], p[i + 2]);
        const depth = Math.abs(at.depthM - from.depthM);
        if (at.y > 0 && depth < best.depth + 1e-4) {
          const better = depth < best.depth - 1e-4 || Math.hypot(at.x - from.x, at.y - from.y) < Math.hypot(best.x - from.x, best.y - from.y);
          if (better) best = { depth, x: at.x, y: at.y };
        }
      }
      const middle = palpate.project(...center);
      const pull = 0.35;
      return { from, to: { x: best.x + pull * (middle.x - best.x), y: best.y + pull * (middle.y - best.y) } };
    }, held);
    const before = await positions(0);
    await page.mouse.move(path.from.x, path.from.y);
    await page.mouse.down();
    let pushed = false;
    const moves = 40;
    for (let i = 1; i <= 2 * moves && !pushed; ++i) {
      const t = Math.min(1, i / moves);
      await page.mouse.move(path.from.x + (path.to.x - path.from.x) * t, path.from.y + (path.to.y - path.from.y) * t);
      await page.waitForTimeout(50);
      if (newtons(await heldTool()) > 0.05) pushed = farthest_m(await positions(0), before) > 2e-3;
    }
    const tool = await heldTool();
    assert.ok(pushed, `no push: ${JSON.stringify({ tool, path, moved_m: farthest_m(await positions(0), before) })}`);
    assert.equal(tool.owner, 'you');
    await waitFor('contacts in the statistics', () => palpate.stats.contacts > 0);  // tissue that moves may part from the tool for a frame
    await waitFor('a force label', () => [...document.querySelectorAll('.force-label')].some((label) => !label.hidden && /\d N$/.test(label.textContent)));
  });
  await screenshot('2-pushing');

  await step('released, the instrument is free again', async () => {
    await page.mouse.up();
    await page.keyboard.press('t');
    await waitFor('the release', (name) => palpate.tools.find((tool) => tool.name === name).owner === 'free', held);
  });

  await step('low bandwidth needs fewer bytes for the same shape', async () => {
    await page.keyboard.press('Space');
    await waitFor('the pause', () => palpate.runState === 'paused');
    await page.waitForTimeout(300);
    const exact = await positions(0);
    const { keyframesReceived } = (await state()).stats;
    await page.keyboard.press('b');
    await waitFor('a new keyframe', (count) => palpate.stats.keyframesReceived > count && palpate.stats.lowBandwidth, keyframesReceived);
    assert.ok(farthest_m(await positions(0), exact) < 1e-4, 'quantised positions are far off');
    await page.keyboard.press('b');
    await page.keyboard.press('Space');
    await waitFor('play', () => palpate.runState === 'playing');
  });

  await step('a server that goes away is announced, and comes back by itself', async () => {
    const before = await state();
    await gate.shut();
    await page.waitForSelector('#overlay:not([hidden])', { timeout: PATIENCE_MS });
    await waitFor('the announcement', () => /Server away/.test(document.querySelector('#overlay h1').textContent));
    assert.match(await page.textContent('#overlay p'), /Trying again in \d+ s/);
    await page.screenshot({ path: join(outDir, '3-away.png'), timeout: PATIENCE_MS });
    await gate.open();
    await waitFor('the server', () => palpate.connection === 'open');
    await waitFor('new frames', ({ framesReceived, keyframesReceived }) => palpate.stats.framesReceived > framesReceived + 3 && palpate.stats.keyframesReceived > keyframesReceived,
      before.stats);
    const after = await state();
    assert.equal(after.sceneId, before.sceneId);
    assert.ok(after.reconnects > before.reconnects);
    assert.equal(await page.isVisible('#overlay'), false);
  });

  await step('help opens and closes', async () => {
    await page.keyboard.press('?');
    await page.waitForSelector('#help:not([hidden])', { timeout: PATIENCE_MS });
    await page.screenshot({ path: join(outDir, '4-help.png'), timeout: PATIENCE_MS });
    await page.keyboard.press('Escape');
    assert.equal(await page.isVisible('#help'), false);
  });

  assert.deepEqual(complaints, [], 'the page complained');
  assert.deepEqual(foreign, [], 'the page asked another host');
  assert.deepEqual((await state()).errors, [], 'the server refused something');
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
  if (complaints.length > 0) console.error(complaints.join('\n'));
  await page?.screenshot({ path: join(outDir, 'failed.png'), timeout: 30_000 }).catch(() => {});
} finally {
  await context.close();
  await gate.shut().catch(() => {});
  await fake?.close();
  const code = (await server?.end()) ?? 0;
  if (code !== 0) {
    failed = true;
    console.error(`FAILED: the server ended with ${code}`);
  }
}
rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
console.log(failed ? `screenshots: ${outDir}` : `passed; screenshots: ${outDir}`);
process.exit(failed ? 1 : 0);
