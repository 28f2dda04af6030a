// A texture sticks to tissue that is carved, cut and pulled, in a real browser against the server: node texture_test.mjs --server PALPATE_SERVER [--out FOLDER]
//
// A slab carries a checker by a planar projection, so that each vertex of its skin has the coordinates of its place at rest; what cuts uncover has none. The
// picture shows dark and light squares where the coordinates say.
// Exit status: 0 passed, 1 failed, 77 no browser on this machine.
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { PATIENCE_MS, step, testScene } from './browser.mjs';
import { Surgeon } from './surgeon.mjs';

const TILE_M = 0.08;  // four squares
const TOP_M = 0.01;
const PULL_M = 0.03;
const held = (sign) => ({
  box: { min_m: { x: sign < 0 ? -1 : 0.056, y: -1, z: -1 }, max_m: { x: sign < 0 ? -0.056 : 1, y: 1, z: 1 } },
  motion: { velocity_m_per_s: { x: sign * PULL_M }, duration_s: 1 },
});
const SCENE = {
  name: 'checker', dt_s: 1 / 60, gravity_m_per_s2: {},
  bodies: [{
    name: 'slab', generator: { slab: { size_m: { x: 0.12, y: 0.08, z: 2 * TOP_M } }, edge_length_m: 0.01 },
    material: { young_modulus_pa: 20000, poisson_ratio: 0.3, damping_s: 0.05 },
    fixed: [held(-1), held(1)], color: { r: 0.6, g: 0.5, b: 0.45 },
    texture: { pattern: 'TEXTURE_PATTERN_CHECKER', planar: {}, tile_size_m: TILE_M },
  }],
};
let page;

const isDarkAt = (u, v) => (((Math.floor(4 * u) + Math.floor(4 * v)) % 2) + 2) % 2 === 0;
const brightness = (color) => color[0] + color[1] + color[2];
const bodies = async () => page.evaluate(() => palpate.bodies);

/** Of each body, each vertex: [x, y, z, u, v]. */
async function vertices() {
  const all = await page.evaluate(() => palpate.bodies.map((_, body) => ({ positions: palpate.positions(body), texture: palpate.textureCoordinates(body) })));
  return all.map(({ positions, texture }) => Array.from({ length: positions.length / 3 }, (_, i) =>
    [...positions.slice(3 * i, 3 * i + 3), ...texture.slice(2 * i, 2 * i + 2)]));
}

/** Places on the top of the first body, each near the middle of a square of the checker wherever that is now, with the square's shade. */
async function squares() {
  const top = (await vertices())[0].filter(([, , z]) => z > TOP_M - 0.004);
  const found = [];
  for (let i = -2; i < 2; ++i) for (let j = -1; j < 1; ++j) {
    const [u, v] = [(i + 0.5) / 4, (j + 0.5) / 4];
    let best;
    for (const p of top) {
      const distance = Math.hypot(p[3] - u, p[4] - v);
      if (distance < (best?.distance ?? 0.05)) best = { distance, place: p.slice(0, 3), isDark: isDarkAt(u, v) };
    }
    if (best) found.push(best);
  }
  return found;
}

async function expectCheckerInPicture(surgeon, least) {
  const seen = [];
  for (const { place, isDark } of await squares()) seen.push({ isDark, brightness: brightness(await surgeon.colorAt(place)) });
  assert.ok(seen.length >= least && seen.some(({ isDark }) => isDark) && seen.some(({ isDark }) => !isDark), JSON.stringify(seen));
  const darkest = Math.min(...seen.filter(({ isDark }) => !isDark).map((one) => one.brightness));
  const lightest = Math.max(...seen.filter(({ isDark }) => isDark).map((one) => one.brightness));
  assert.ok(darkest > 1.25 * lightest, JSON.stringify(seen));
}

await testScene({ scene: SCENE }, async ({ page: opened, server, outDir }) => {
  page = opened;
  const surgeon = new Surgeon(page, undefined);
  await step('every vertex has the coordinates of its place', async () => {
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0 && palpate.runState === 'playing');
    await surgeon.play(false);
    await page.keyboard.press('r');
    await surgeon.waitFor('the start', () => palpate.stats.step === 0);
    await page.evaluate(() => palpate.showPanel(false));
    await page.evaluate(() => palpate.look(-90, 80, 1));
    const [slab] = await vertices();
    assert.ok(slab.length > 200);
    for (const [x, y, , u, v] of slab) assert.ok(Math.hypot(u - x / TILE_M, v - y / TILE_M) < 1e-5, `${[x, y, u, v]}`);
  });
  await step('the picture shows the squares, in both kinds of look', async () => {
    await expectCheckerInPicture(surgeon, 8);
    await page.screenshot({ path: join(outDir, '1-plain.png'), timeout: PATIENCE_MS });
    await page.evaluate(() => palpate.setQuality('high'));
    await page.screenshot({ path: join(outDir, '2-full.png'), timeout: PATIENCE_MS });
    const { left, right } = await page.evaluate(async () => {
      const view = document.getElementById('view');
      const shade = (x, y) => {
        palpate.setQuality('high');
        const at = palpate.project(x, y, 0.01);
        const scale = view.width / view.clientWidth;
        const copy = document.createElement('canvas');
        copy.width = copy.height = 8;
        const pen = copy.getContext('2d');
        pen.drawImage(view, at.x * scale - 4, at.y * scale - 4, 8, 8, 0, 0, 8, 8);
        return pen.getImageData(0, 0, 8, 8).data.reduce((sum, value, i) => sum + (i % 4 < 3 ? value : 0), 0) / 64;
      };
      return { left: shade(0.01, 0.01), right: shade(0.03, 0.01) };
    });
    assert.ok(isDarkAt(0.1, 0.1) && right > 1.25 * left, `${left} ${right}`);
    await page.evaluate(() => palpate.setQuality('low'));
  });

  await step('carved, refined and cut, the skin keeps its coordinates and the inside has none', async () => {
    const before = (await vertices())[0].length;
    const { keyframesReceived } = await page.evaluate(() => palpate.stats);
    const outcomes = await page.evaluate(() => palpate.edit([
      { body: 'slab', refine: { region: { ball: { center_m: { x: 0.02, y: 0.02, z: 0.01 }, radius_m: 0.02 } }, max_edge_m: 0.006 } },
      { body: 'slab', carve: { region: { ball: { center_m: { x: 0.02, y: 0.02, z: 0.012 }, radius_m: 0.012 } } } },
      { body: 'slab', incise: { edges: [-0.03, 0, 0.03].map((y) => ({ end0_m: { x: -0.021, y, z: 0.03 }, end1_m: { x: -0.019, y, z: 0.0 } })) } },
    ]));
    assert.ok(outcomes[0].addedTets > 100 && outcomes[1].removedTets > 20 && outcomes[2].addedTets > 20, JSON.stringify(outcomes));
    await surgeon.waitFor('the delta', () => palpate.bodies[0].interiorTriangleCount > 60 && !palpate.surgery.isBusy);
    assert.equal((await page.evaluate(() => palpate.stats)).keyframesReceived, keyframesReceived, 'deltas would have done');
    let skin = 0;
    let bare = 0;
    for (const [x, y, z, u, v] of (await vertices()).flat()) {
      if (u === 0 && v === 0) {
        ++bare;
        continue;
      }
      ++skin;
      // Copies on either side of a cut are drawn apart a little.
      assert.ok(Math.hypot(u - x / TILE_M, v - y / TILE_M) < 2e-3, `${[x, y, z, u, v]}`);
    }
    assert.ok(skin > before && bare > 20, `${skin} ${bare} ${before}`);
    await expectCheckerInPicture(surgeon, 7);
    // The bottom of the crater is flesh, darker than a light square.
    const [light, inside] = [await surgeon.colorAt([-0.05, -0.03, TOP_M]), await surgeon.colorAt([0.02, 0.02, 0.001])];
    assert.ok(brightness(inside) < 0.8 * brightness(light), `${light} ${inside}`);
    await page.screenshot({ path: join(outDir, '3-cut.png'), timeout: PATIENCE_MS });
  });

  await step('who comes late has the same', async () => {
    const before = (await bodies()).map(({ name, meshHash }) => ({ name, meshHash }));
    await page.goto(`${server.url}?quality=low`, { timeout: PATIENCE_MS });
    await surgeon.waitFor('the scene', () => window.palpate?.connection === 'open' && palpate.bodies.length > 0);
    assert.deepEqual((await bodies()).map(({ name, meshHash }) => ({ name, meshHash })), before);
    await page.evaluate(() => palpate.showPanel(false));
    await page.evaluate(() => palpate.look(-90, 80, 1));
  });

  await step('pulled long, the squares go with the tissue', async () => {
    const before = await squares();
    await page.evaluate(() => palpate.step(60));
    await surgeon.waitFor('the steps', () => palpate.stats.step === 60);
    const after = await squares();
    const reach = (list) => Math.max(...list.map(({ place }) => place[0])) - Math.min(...list.map(({ place }) => place[0]));
    assert.ok(reach(after) > reach(before) + 0.6 * PULL_M, `${reach(before)} ${reach(after)}`);
    await expectCheckerInPicture(surgeon, 7);
    await page.screenshot({ path: join(outDir, '4-pulled.png'), timeout: PATIENCE_MS });
  });

  await step('a reset brings the first coordinates back', async () => {
    await page.keyboard.press('r');
    await surgeon.waitFor('the start', () => palpate.stats.step === 0 && palpate.bodies[0].interiorTriangleCount === 0);
    for (const [x, y, , u, v] of (await vertices())[0]) assert.ok(Math.hypot(u - x / TILE_M, v - y / TILE_M) < 1e-5);
    assert.deepEqual(await page.evaluate(() => palpate.errors), []);
  });
});
