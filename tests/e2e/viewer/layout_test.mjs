// What the viewer's controls look like to people with screens of all sizes, in a real browser, against the server:
// node layout_test.mjs --server PALPATE_SERVER --cli PALPATE [--out FOLDER]
//
// In windows from a desktop's to a phone's every control can be reached and none is covered, by messages neither, in the scene and in a replay of it; refusals are
// sentences; a reset says who did it.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';

const { values: options } = parseArgs({ options: { server: { type: 'string' }, cli: { type: 'string' }, out: { type: 'string' } } });
if (!options.server || !options.cli) {
  console.error('usage: layout_test.mjs --server PALPATE_SERVER --cli PALPATE [--out FOLDER]');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-layout');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const server = await startServer(options.server, join(webDir, '..', '..', 'scenes', 'hepatectomy.json'), profile, ['--state-dir', join(profile, 'state')]);
const context = await openBrowser(profile, '1440x900');
const complaints = [];
let page;
let failed = false;

async function open(query = '') {
  const opened = await context.newPage();
  const theirs = complaintsOf(opened);
  opened.once('close', () => complaints.push(...theirs));
  await opened.goto(`${server.url}?quality=low${query}`, { timeout: PATIENCE_MS });
  await opened.waitForFunction(() => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing');
  return opened;
}

/** Controls that lie in the window but cannot be pressed in their middle, or are too small for a finger where `forFingers`. */
const unreachable = (forFingers) => page.evaluate((isSmall) => {
  const faults = [];
  for (const control of document.querySelectorAll('button, select, input, summary, [role="slider"]')) {
    const box = control.getBoundingClientRect();
    if (box.width === 0 || control.closest('[hidden], [inert]')) continue;
    if (control.closest('details:not([open])') && control.tagName !== 'SUMMARY') continue;
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    const name = control.id || control.title || control.textContent || control.parentElement.textContent;
    // What a list has scrolled out of itself can be scrolled in.
    const list = control.closest('#panel, #help .box')?.getBoundingClientRect();
    if (list && (y < list.top || y > list.bottom)) continue;
    if (box.left < 0 || box.right > innerWidth || (!list && (box.top < 0 || box.bottom > innerHeight))) faults.push(`${name} is cut off by the window`);
    const top = document.elementFromPoint(x, y);
    if (!top || !(control.contains(top) || top.contains(control) && top !== document.body && !top.matches('canvas'))) {
      faults.push(`${name} is ${top ? `covered by ${top.id || top.className || top.tagName}` : 'outside'}`);
    }
    if (isSmall && control.matches('button, select, summary') && Math.min(box.width, box.height) < 39.5) faults.push(`${name} is only ${box.width} x ${box.height}`);
  }
  return faults;
}, forFingers);

/** Shows four messages; toasts let clicks through, but here they catch them, so that one over a control is seen. None of them may lie outside, and one is there. */
async function expectMessagesBeside() {
  await page.evaluate(() => {
    for (let i = 0; i < 4; ++i) palpate.tell(`${i}: somebody else holds this instrument. Take another one, or wait until it is free.`);
    for (const toast of document.querySelectorAll('.toast')) toast.style.pointerEvents = 'auto';
  });
  assert.deepEqual(await unreachable(false), []);
  const boxes = await page.evaluate(() => Array.from(document.querySelectorAll('.toast'), (toast) => {
    const { left, top, right, bottom } = toast.getBoundingClientRect();
    const below = document.elementFromPoint((left + right) / 2, bottom - 4);
    return { left, top, right, bottom, isWhole: toast.contains(below) };
  }));
  assert.ok(boxes.length > 0 && boxes.length <= 4);
  const { width, height } = page.viewportSize();
  for (const box of boxes) assert.ok(box.isWhole && box.left >= 0 && box.top >= 0 && box.right <= width && box.bottom <= height, `a message is cut off: ${JSON.stringify(box)}`);
}
/** The camera comes to look at the middle of what the panel leaves of the window. */
async function expectPictureBeside() {
  const { width, height } = page.viewportSize();
  let seen;
  for (let frames = 0; frames < 100; ++frames) {  // the picture follows the window in one of its next frames
    const { at, panel } = await page.evaluate(async () => {
      await new Promise((resolve) => requestAnimationFrame(resolve));
      const { left, top } = document.getElementById('panel').getBoundingClientRect();
      return { at: palpate.project(...palpate.camera.targetM), panel: document.getElementById('panel').inert ? undefined : { left, top } };
    });
    const isSheet = panel && panel.left < 0.4 * width;
    const middle = { x: panel && !isSheet ? panel.left / 2 : width / 2, y: isSheet ? panel.top / 2 : height / 2 };
    if (Math.abs(at.x - middle.x) < 10 && Math.abs(at.y - middle.y) < 10) return;
    seen = `the camera looks at ${JSON.stringify(at)}, not at ${JSON.stringify(middle)}`;
  }
  assert.fail(seen);
}
const forgetMessages = () => page.evaluate(() => document.getElementById('toasts').replaceChildren());

try {
  page = await open();
  const toggle = async (wanted) => {
    await page.click('#b-play');
    await page.waitForFunction((state) => palpate.runState === state, wanted);
  };
  await toggle('paused');  // nothing moves: nothing is drawn, which takes long here
  const WINDOWS = [[1440, 900], [1000, 640], [820, 1180], [720, 500], [844, 390], [390, 844], [360, 640]];
  await page.waitForFunction(() => palpate.past?.end > 0);
  for (const [width, height] of WINDOWS) {
    await step(`${width} x ${height}: controls can be reached, messages cover none`, async () => {
      await page.setViewportSize({ width, height });
      const isNarrow = width <= 900;
      await page.waitForFunction((shown) => document.getElementById('b-panel').getAttribute('aria-expanded') === String(shown), !isNarrow);
      await page.waitForFunction(() => document.getAnimations().every((animation) => animation.playState !== 'running'));
      assert.deepEqual(await unreachable(isNarrow), []);
      await expectPictureBeside();
      await expectMessagesBeside();
      await page.screenshot({ path: join(outDir, `${width}x${height}-messages.png`) });
      await page.evaluate(() => palpate.setMode('carve'));
      await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));  // messages make room
      assert.deepEqual(await unreachable(isNarrow), []);
      await expectMessagesBeside();
      await page.evaluate(() => palpate.setMode('hand'));
      await forgetMessages();

      // With the buttons that fingers need for an instrument.
      assert.ok(await page.evaluate(() => {
        document.body.classList.add('by-finger');
        return palpate.takeTool('aspirator');
      }));
      await page.waitForFunction(() => document.querySelector('#hand-controls button')?.offsetHeight > 0);
      assert.deepEqual(await unreachable(isNarrow), []);
      await expectMessagesBeside();
      await page.screenshot({ path: join(outDir, `${width}x${height}-in-hand.png`) });
      await forgetMessages();
      await page.evaluate(() => palpate.releaseTool());

      // The time line is folded where there is little room.
      const isFolded = await page.isVisible('#b-fold');
      assert.equal(isFolded, width <= 640 || height <= 480);
      assert.equal(await page.isVisible('#track'), !isFolded);
      if (isFolded) {
        await page.click('#b-fold');
        assert.equal(await page.isVisible('#track'), true);
        assert.deepEqual(await unreachable(isNarrow), []);
        await page.screenshot({ path: join(outDir, `${width}x${height}-time-line.png`) });
        await page.click('#b-fold');
      }

      if (isNarrow) await page.click('#b-panel');
      await page.waitForFunction(() => {
        const panel = document.getElementById('panel').getBoundingClientRect();
        return panel.left >= 0 && panel.right <= innerWidth && panel.top >= 0 && panel.bottom <= innerHeight
          && document.getAnimations().every((animation) => animation.playState !== 'running');
      });
      assert.deepEqual(await unreachable(isNarrow), []);
      const first = await page.evaluate(() => document.querySelector('#panel h2').textContent);
      assert.equal(first, 'Instruments');
      await page.click('#tools .tool > button', { trial: true });
      await expectPictureBeside();
      await expectMessagesBeside();
      await page.screenshot({ path: join(outDir, `${width}x${height}-panel-messages.png`) });
      await forgetMessages();
      await page.screenshot({ path: join(outDir, `${width}x${height}-panel.png`) });
      assert.equal(await page.isVisible('#stages'), false, 'statistics are folded');
      await page.click('#statistics summary');
      // All of the panel can be brought into the window.
      for (const place of ['#s-bytes', '#stage-legend', '#toggles']) {
        await page.locator(place).scrollIntoViewIfNeeded();
        const box = await page.locator(place).boundingBox();
        assert.ok(box.y >= 0 && box.y + box.height <= height + 1, `${place} stays outside: ${JSON.stringify(box)}`);
      }
      await page.click('#statistics summary');
      if (isNarrow) await page.click('#b-panel');

      await page.click('#b-help');
      await page.screenshot({ path: join(outDir, `${width}x${height}-help.png`) });
      for (const place of ['#help h1', '#help .columns div:last-child', '#help button']) {
        await page.locator(place).scrollIntoViewIfNeeded();
        const box = await page.locator(place).boundingBox();
        assert.ok(box.x >= 0 && box.x + box.width <= width && box.y >= 0 && box.y + box.height <= height, `${place}: ${JSON.stringify(box)}`);
      }
      await page.click('#help button');
    });
  }

  await page.evaluate(() => palpate.scrub(palpate.past.begin));
  await page.waitForFunction(() => palpate.past?.isReplay && !palpate.past.isGoing && palpate.stats.step === palpate.past.step);
  for (const [width, height] of WINDOWS) {
    await step(`${width} x ${height}: in a replay, too`, async () => {
      await page.setViewportSize({ width, height });
      const isNarrow = width <= 900;
      await page.waitForFunction((shown) => document.getElementById('b-panel').getAttribute('aria-expanded') === String(shown), !isNarrow);
      await page.waitForFunction(() => document.getAnimations().every((animation) => animation.playState !== 'running'));
      for (const control of ['#track', '#replay-place', '#b-branch', '#b-live', '#b-bookmark', '#b-back']) assert.equal(await page.isVisible(control), true, control);
      assert.deepEqual(await unreachable(isNarrow), []);
      await expectMessagesBeside();
      await forgetMessages();
      await page.click('#b-bookmark');
      assert.deepEqual(await unreachable(isNarrow), []);
      await page.screenshot({ path: join(outDir, `${width}x${height}-replay.png`) });
      await page.keyboard.press('Escape');
      assert.equal(await page.isVisible('#bookmark-form'), false);
    });
  }
  await page.click('#b-live');
  await page.waitForFunction(() => palpate.past && !palpate.past.isReplay && palpate.runState === 'paused');

  await step('a reset says who did it, to the others', async () => {
    await page.setViewportSize({ width: 1000, height: 640 });
    await toggle('playing');
    const other = await open('&name=Ada');
    const said = (who) => who.evaluate(() => Array.from(document.querySelectorAll('.toast'), (toast) => toast.textContent));
    await other.bringToFront();
    await other.click('#b-reset');
    await page.waitForFunction(() => [...document.querySelectorAll('.toast')].some((toast) => toast.textContent.includes('Ada has set the scene back to its start.')));
    assert.deepEqual(await said(other), [], 'who resets knows it');
    await promisify(execFile)(options.cli, ['--server', server.address, '--timeout', '60', 'scene', 'reset', 'hepatectomy']);
    for (const one of [page, other]) {
      await one.bringToFront();
      await one.waitForFunction(() => [...document.querySelectorAll('.toast')].some((toast) => /palpate on .+ has set the scene back/.test(toast.textContent)));
    }

    // The same two want one instrument.
    assert.equal(await page.evaluate(() => palpate.takeTool('aspirator')), true);
    assert.equal(await other.evaluate(() => palpate.takeTool('aspirator')), false);
    const refusal = (await said(other)).find((text) => text.includes('instrument'));
    assert.match(refusal ?? '', /Somebody else holds this instrument\. Take another one, or wait until it is free\./);
    await page.evaluate(() => palpate.releaseTool());
    assert.equal(await other.evaluate(() => palpate.takeTool('aspirator')), true);
    assert.equal(await page.evaluate(() => palpate.takeTool('aspirator')), false);
    assert.ok((await said(page)).some((text) => text.includes('Ada holds this instrument.')), 'who holds it is named');
    assert.doesNotMatch(refusal, /[A-Z]+_[A-Z]+|attach/);
    await other.close();
  });
  await page.close();
  page = undefined;
  assert.deepEqual(complaints, [], 'the page complained');
} catch (error) {
  failed = true;
  console.error(`FAILED: ${error.stack ?? error}`);
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
