// The time line, in a real browser, against the server: node timeline_test.mjs --server PALPATE_SERVER [--out FOLDER], or with --fake against its stand-in.
//
// A scene is played and carved. What is seen when it is scrubbed, stepped and played in a replay beside it is what was seen then, to the last bit of each position;
// the scene itself is not disturbed. A branch goes on from there, bookmarks lead back. Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const { values: options } = parseArgs({ options: { server: { type: 'string' }, fake: { type: 'boolean' }, out: { type: 'string' } } });
if (!options.server && !options.fake) {
  console.error('usage: timeline_test.mjs --server PALPATE_SERVER | --fake [--out FOLDER]');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-timeline');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const sceneId = options.fake ? 'surgery' : 'tumor';
let server;
if (options.fake) {
  const { bundleFakeServer } = await import(pathToFileURL(join(webDir, 'scripts', 'fake_server.mjs')).href);
  const fake = await (await bundleFakeServer()).startFakeServer(0, join(webDir, 'dist'), { hasPast: true });
  server = { url: `http://127.0.0.1:${fake.port}/`, end: () => fake.close().then(() => 0) };
} else {
  server = await start();
}
function start(more = []) {
  return startServer(options.server, join(webDir, '..', '..', 'scenes', 'tumor.json'), profile, ['--state-dir', join(profile, 'state'), ...more]);
}
const context = await openBrowser(profile, '1000x640');
const page = context.pages()[0] ?? (await context.newPage());
const complaints = complaintsOf(page);
const surgeon = new Surgeon(page);
const waitFor = (what, condition, argument) => surgeon.waitFor(what, condition, argument);
let failed = false;

const past = () => page.evaluate(() => palpate.past);
/** All that a picture is made of. */
const seen = () => page.evaluate(() => ({
  step: palpate.stats.step, bodies: palpate.bodies.map(({ name, meshHash }) => ({ name, meshHash })), positions: palpate.bodies.map((_, index) => palpate.positions(index)),
}));
async function expectSeen(then, what) {
  const now = await seen();
  assert.equal(now.step, then.step, what);
  assert.deepEqual(now.bodies, then.bodies, what);
  for (const [body, positions] of then.positions.entries()) {
    assert.equal(now.positions[body].length, positions.length, what);
    const other = positions.findIndex((x, i) => x !== now.positions[body][i]);
    assert.equal(other, -1, `${what}: of body ${body} number ${other} is ${now.positions[body][other]}, was ${positions[other]}`);
  }
}
const arrive = (position) => waitFor(`place ${position}`, (at) => palpate.past?.isReplay && !palpate.past.isGoing && palpate.past.position === at
  && palpate.stats.step === palpate.past.step, position);
/** Plays on for so many steps at least, and stops. */
async function playOn(steps) {
  const { stats } = await surgeon.state();
  await surgeon.play(true);
  await waitFor('steps', (at) => palpate.stats.step >= at, stats.step + steps);
  await surgeon.play(false);
  await page.evaluate(() => palpate.step(1));
  // No more steps come, but the picture of the last one may.
  let before;
  do {
    before = (await surgeon.state()).stats.step;
    await page.waitForTimeout(500);
  } while ((await surgeon.state()).stats.step !== before);
}
const xOf = async (share) => {
  const { x, y, width, height } = await page.locator('#track .line').boundingBox();
  return [x + share * width, y + height / 2];
};
const picture = (name) => page.screenshot({ path: join(outDir, `${name}.png`), timeout: PATIENCE_MS });

try {
  let first, last, camera;
  await step('a scene that is played and carved has a time line that tells so', async () => {
    await page.goto(`${server.url}?quality=low&scene=${sceneId}`, { timeout: PATIENCE_MS });
    await waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing' && palpate.past);
    await surgeon.play(false);
    await page.evaluate(() => palpate.look(-90, 50, 1.2));
    await playOn(15);
    first = await seen();
    const [x, y, z] = await surgeon.top(-0.03, 0);
    const carve = (radiusM) => page.evaluate(([[px, py, pz], r]) => palpate.edit([{ body: palpate.bodies[0].name, carve: { region: { ball: {
      centerM: { x: px, y: py, z: pz }, radiusM: r } } } }]), [[x, y, z], radiusM]);
    const [outcome] = await carve(0.02);
    assert.ok(outcome.removedTets > 0, JSON.stringify(outcome));
    await playOn(15);
    last = await seen();
    assert.notDeepEqual(last.bodies, first.bodies);
    await waitFor('the edit', () => palpate.past.events.some(({ kind }) => kind === 'edit'));
    camera = await page.evaluate(() => palpate.camera);
    const { position, end, step: at } = await past();
    assert.deepEqual([position, at], [end, last.step]);
  });

  await step('ticks tell what happened', async () => {
    const { events, begin, end } = await past();
    const edit = events.find(({ kind }) => kind === 'edit');
    assert.deepEqual([edit.position, edit.label], [first.step, 'carve']);
    await page.mouse.move(...(await xOf((edit.position - begin) / (end - begin))));
    await waitFor('the tick', () => /Edit: carve/.test(document.getElementById('track-bubble').textContent) && !document.getElementById('track-bubble').hidden);
    await picture('1-tick');
  });

  await step('a drag goes back in a replay beside the scene, and the newest wish counts', async () => {
    const { begin, end } = await past();
    await page.mouse.move(...(await xOf(1)));
    await page.mouse.down();
    for (let i = 1; i <= 20; ++i) await page.mouse.move(...(await xOf(1 - 0.04 * i)));
    await page.mouse.up();
    const wanted = Math.round(begin + 0.2 * (end - begin));
    await waitFor('the replay', () => palpate.past?.isReplay && !palpate.past.isGoing);
    const { position, source } = await past();
    assert.ok(Math.abs(position - wanted) <= 2, `at ${position}, wanted ${wanted}`);
    assert.equal(source, sceneId);
    await arrive(position);
    assert.equal((await surgeon.state()).runState, 'paused');
    const now = await page.evaluate(() => palpate.camera);
    for (const [k, x] of camera.positionM.entries()) assert.ok(Math.abs(x - now.positionM[k]) < 1e-6, 'the camera stays');
    assert.match(await page.textContent('#replay-head'), /Replay of/);
    await picture('2-replay');
  });

  await step('what is seen is what was seen then, before the cut and after it', async () => {
    for (const then of [first, last, first]) {
      await page.evaluate((at) => palpate.scrub(at), then.step);
      await arrive(then.step);
      // The cut was made after the same step as the first picture.
      if (then === last) await expectSeen(last, 'the newest place');
    }
    await page.evaluate((at) => palpate.scrub(at), first.step - 1);
    await arrive(first.step - 1);
    const before = await seen();
    assert.deepEqual(before.bodies, first.bodies, 'the cut is not made yet');
  });

  await step('step by step, with keys on the line, and playing to the end it does the same again', async () => {
    await page.focus('#track');
    await page.keyboard.press('ArrowLeft');
    await arrive(first.step - 2);
    await page.keyboard.press('ArrowRight');
    await arrive(first.step - 1);
    await page.keyboard.press('j');
    await arrive(first.step - 2);
    await page.evaluate(() => document.activeElement.blur());
    await page.click('#b-play');
    await waitFor('the end', (at) => palpate.stats.step === at && palpate.runState === 'paused', last.step);
    await expectSeen(last, 'played to the end');
    await waitFor('the place', () => palpate.past.position === palpate.past.end);
    assert.equal((await past()).divergences, 0);
  });

  await step('nothing can be changed in it, and it is said why', async () => {
    await page.keyboard.press('2');
    await waitFor('why', () => [...document.querySelectorAll('.toast')].some((toast) => /nothing can be changed/.test(toast.textContent)));
    assert.equal((await surgeon.state()).surgery.mode, 'hand');
    const { tools } = await surgeon.state();
    assert.ok(tools.every(({ owner }) => owner === 'past'));
    if (tools.length > 0) {
      assert.equal(await page.isDisabled('#tools .tool > button'), true);
      assert.equal(await page.evaluate((name) => palpate.takeTool(name), tools[0].name), false);
    }
    await page.evaluate(() => document.getElementById('toasts').replaceChildren());
  });

  let branched;
  await step('a moment gets a name, which leads back to it', async () => {
    await page.evaluate((at) => palpate.scrub(at), first.step - 1);
    await arrive(first.step - 1);
    branched = await seen();
    await page.click('#b-bookmark');
    await page.fill('#bookmark-name', 'before the cut');
    await page.keyboard.press('Enter');
    await waitFor('the bookmark', (at) => palpate.past.events.some(({ kind, label, position }) => kind === 'bookmark' && label === 'before the cut' && position === at),
      first.step - 1);
    await page.evaluate((at) => palpate.scrub(at), last.step);
    await arrive(last.step);
    const mark = await page.locator('#track .bookmark').boundingBox();
    await page.mouse.click(mark.x + mark.width / 2, mark.y + mark.height / 2);
    await arrive(first.step - 1);
    await expectSeen(branched, 'the bookmark');
  });

  await step('a branch lives, and goes on from there', async () => {
    await page.click('#b-branch');
    await waitFor('the branch', (scene) => palpate.past && !palpate.past.isReplay && palpate.sceneId !== scene && palpate.bodies.length > 0, sceneId);
    await waitFor('its picture', (at) => palpate.stats.step === at, branched.step);
    assert.deepEqual((await seen()).positions, branched.positions);
    await playOn(3);
    const { bodies } = await seen();
    assert.deepEqual(bodies, branched.bodies, 'the cut is not made in the branch');
    await surgeon.mode('2', 0.01);
    assert.equal((await surgeon.state()).surgery.mode, 'carve');
    await surgeon.mode('1');
    await picture('3-branch');
  });

  await step('back to the scene that lives: nothing has happened to it, its replay is gone', async () => {
    const replay = (await page.evaluate(() => palpate.scenes)).find((id) => id !== sceneId && /replay/.test(id));
    assert.ok(replay);
    await page.selectOption('#scenes', replay);
    await waitFor('the replay', () => palpate.past?.isReplay);
    await page.click('#b-live');
    await waitFor('the scene', (scene) => palpate.sceneId === scene && palpate.past && !palpate.past.isReplay, sceneId);
    await waitFor('its picture', (at) => palpate.stats.step === at, last.step);
    await expectSeen(last, 'the scene that lives');
    await waitFor('the list', (id) => !palpate.scenes.includes(id), replay);
    await waitFor('the bookmark', () => palpate.past.events.some(({ kind, label }) => kind === 'bookmark' && label === 'before the cut'));
    await picture('4-live');
  });

  await step('time begins anew with a reset, places count on', async () => {
    await page.keyboard.press('r');
    await waitFor('the start', () => palpate.stats.step === 0);
    await playOn(5);
    await waitFor('the reset', () => palpate.past.events.some(({ kind }) => kind === 'reset'));
    const { end, step: at, events } = await past();
    const reset = events.find(({ kind }) => kind === 'reset').position;
    assert.equal(reset, last.step);
    assert.equal(at, end - reset);
    await page.evaluate((to) => palpate.scrub(to), reset - 2);
    await arrive(reset - 2);
    assert.equal((await seen()).step, last.step - 2);
    await page.evaluate((to) => palpate.scrub(to), reset + 3);
    await arrive(reset + 3);
    assert.equal((await seen()).step, 3);
    await page.click('#b-live');
    await waitFor('the scene', () => palpate.past && !palpate.past.isReplay);
  });

  if (!options.fake) {
    await step('after a crash of the server the page is where it was, with all that was before', async () => {
      await waitFor('the disk', () => palpate.past.durable === palpate.past.end);
      const then = await seen();
      const { port } = new URL(server.url);
      await server.kill();
      await waitFor('the loss', () => palpate.connection !== 'open');
      server = await start(['--http', `127.0.0.1:${port}`]);
      await waitFor('the scene', (at) => palpate.connection === 'open' && palpate.stats.step === at && palpate.past && !palpate.past.isReplay, then.step);
      await expectSeen(then, 'after the crash');
      // The page may ask for the past once more, when the stream starts anew.
      await waitFor('the bookmark', () => palpate.past?.events.some(({ kind, label }) => kind === 'bookmark' && label === 'before the cut'));
      await page.evaluate((at) => palpate.scrub(at), branched.step);
      await arrive(branched.step);
      await expectSeen(branched, 'before the crash');
      await page.click('#b-live');
      await waitFor('the scene', () => palpate.past && !palpate.past.isReplay);
    });
  }
  assert.deepEqual((await surgeon.state()).errors, []);
  assert.deepEqual(complaints, [], 'the page complained');
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
  if (complaints.length > 0) console.error(complaints.join('\n'));
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
