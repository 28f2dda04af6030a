// Surgery with the mouse in a real browser, against the server: node surgery_test.mjs --server PALPATE_SERVER --cli PALPATE [--out FOLDER]
//
// In the scene tumor.json a way is carved to the tumour, in the standing and in the playing scene, and an incision is made. What the browser has, which followed by
// deltas, is compared with what the command line's client gets, which comes late and so gets a keyframe, and checks it against the server's hash.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs, promisify } from 'node:util';
import { browserPath, complaintsOf, openBrowser, PATIENCE_MS, startServer, step, webDir } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const { values: options } = parseArgs({
  options: { server: { type: 'string' }, cli: { type: 'string' }, out: { type: 'string' }, size: { type: 'string', default: '720x520' } },
});
if (!options.server || !options.cli) {
  console.error('usage: surgery_test.mjs --server PALPATE_SERVER --cli PALPATE [--out FOLDER] [--size WxH]');
  process.exit(1);
}
if (!browserPath) {
  console.log('skipped: no chromium (set PALPATE_CHROMIUM)');
  process.exit(77);
}
const outDir = options.out ?? join(tmpdir(), 'palpate-surgery');
mkdirSync(outDir, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-chromium-'));
const server = await startServer(options.server, join(webDir, '..', '..', 'scenes', 'tumor.json'), profile);
const context = await openBrowser(profile, options.size);
let page;
let complaints = [];
let failed = false;
/** About where the top of the liver is; all is seen from above. */
const TOP_M = 0.04;

/** The keyframe that a client gets who comes now. */
async function keyframe() {
  const { stdout } = await promisify(execFile)(options.cli, ['--json', '--timeout', '60', '--server', server.address, 'watch', 'tumor', '--frames', '1', '--seconds', '60']);
  const first = stdout.split('\n').map((line) => line && JSON.parse(line)).find((message) => message?.type === 'keyframe');
  assert.ok(first, stdout);
  return first;
}

try {
  page = context.pages()[0] ?? (await context.newPage());
  complaints = complaintsOf(page);
  const surgeon = new Surgeon(page, async () => {
    const { topology_version: topologyVersion, bodies } = await keyframe();
    return { topologyVersion, surfaces: bodies.map((body) => ({ name: body.name, meshHash: body.mesh_hash })) };
  });
  const isPale = ([red, green]) => green > 0.6 * red;
  await step('loads, and stands still', async () => {
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing');
    await surgeon.play(false);
    await page.keyboard.press('r');
    await surgeon.waitFor('the start', () => palpate.stats.step === 0);
    await page.evaluate(() => palpate.showPanel(false));  // it would lie over the tissue
    await page.evaluate(() => palpate.look(-90, 80, 1));
    await surgeon.expectServersSurfaces();
    assert.deepEqual(Object.keys((await surgeon.state()).bodies[0].zoneTriangleCounts), ['surface']);
  });
  const original = (await surgeon.state()).bodies;
  const { keyframesReceived } = (await surgeon.state()).stats;

  await step('carving uncovers the parenchyma, then the tumour, each in its colour', async () => {
    await surgeon.mode('2', 0.016);
    const dabs = [];
    const seen = async () => (await surgeon.state()).bodies[0].zoneTriangleCounts;
    assert.ok(!isPale(await surgeon.colorAt(await surgeon.top(-0.03, 0))));
    for (let i = 0; i < 8 && !((await seen())['inside tumor'] > 5); ++i) {
      assert.ok(await surgeon.dab(-0.03, 0, TOP_M), JSON.stringify(dabs));
      dabs.push(await seen());
    }
    assert.ok(Object.keys(dabs[0]).length > 1, `nothing uncovered: ${JSON.stringify(dabs)}`);
    const { surface, inside, 'inside tumor': tumor } = dabs.at(-1);
    assert.ok(tumor > 5 && inside > 5 && surface > 100, JSON.stringify(dabs));
    await surgeon.expectServersSurfaces();
    const { surgery, stats } = await surgeon.state();
    assert.ok(surgery.removedTets > 10 && surgery.removedMassKg > 0, JSON.stringify(surgery));
    assert.ok(stats.deltasReceived >= 1);
    assert.equal(stats.keyframesReceived, keyframesReceived, 'deltas would have done');
    // The tumour is drawn where the mouse finds it.
    await page.mouse.move(5, 300);
    const colors = [];
    for (const [dx, dy] of [[0, 0], [0.006, 0], [-0.006, 0], [0, 0.006], [0, -0.006]]) {
      const at = await page.evaluate((place) => {
        const { x, y } = palpate.project(...place);
        return palpate.pick(x, y)?.pointM;
      }, [-0.03 + dx, dy, 0.03]);
      if (at) colors.push(await surgeon.colorAt(at));
    }
    assert.ok(colors.some(isPale), JSON.stringify(colors));
  });
  await page.screenshot({ path: join(outDir, '1-tumor.png'), timeout: PATIENCE_MS });

  await step('an incision adds tets and takes none', async () => {
    const before = await surgeon.state();
    // Deeper than the tets are wide: a face opens when the blade has passed all of it.
    await surgeon.mode('3', 0.035);
    await surgeon.drag([[0.02, -0.03, TOP_M], [0.02, 0, TOP_M], [0.02, 0.03, TOP_M]], 6);
    await surgeon.waitFor('the first edit', (count) => palpate.surgery.requests > count, before.surgery.requests);
    await surgeon.expectServersSurfaces();
    const { surgery, bodies, stats } = await surgeon.state();
    assert.ok(surgery.addedTets > before.surgery.addedTets, JSON.stringify(surgery));
    assert.ok(Math.abs(surgery.removedMassKg - before.surgery.removedMassKg) < 1e-12, 'mass by rounding only');
    assert.ok(bodies[0].interiorTriangleCount > before.bodies[0].interiorTriangleCount, JSON.stringify({ surgery, bodies, before: before.bodies }));
    assert.equal(stats.keyframesReceived, keyframesReceived);
  });

  await step('carving goes on while the scene plays', async () => {
    const before = await surgeon.state();
    await surgeon.play(true);
    await surgeon.mode('2', 0.012);
    await surgeon.drag([[-0.07, -0.02, TOP_M], [-0.07, 0, TOP_M], [-0.07, 0.02, TOP_M]]);
    await surgeon.waitFor('the edits', (count) => palpate.surgery.removedTets > count && !palpate.surgery.isBusy, before.surgery.removedTets);
    await surgeon.waitFor('steps', (at) => palpate.stats.step > at + 3, before.stats.step);
    await surgeon.play(false);
    await surgeon.expectServersSurfaces();
    const { stats, errors } = await surgeon.state();
    assert.equal(stats.keyframesReceived, keyframesReceived);
    assert.equal(stats.intersections, 0);
    assert.deepEqual(errors, []);
  });
  await page.screenshot({ path: join(outDir, '2-played.png'), timeout: PATIENCE_MS });

  await step('reset brings the whole back', async () => {
    await page.keyboard.press('r');
    await surgeon.waitFor('the keyframe', (count) => palpate.stats.keyframesReceived > count && palpate.stats.step === 0, keyframesReceived);
    await surgeon.expectServersSurfaces();
    const { bodies } = await surgeon.state();
    assert.deepEqual(bodies.map(({ name, zoneTriangleCounts }) => ({ name, zoneTriangleCounts })),
      original.map(({ name, zoneTriangleCounts }) => ({ name, zoneTriangleCounts })));
  });

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
