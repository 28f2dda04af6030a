// Pictures of example scenes in the viewer, for the documentation.
//
//   node scene_pictures.mjs --server PALPATE_SERVER --out FOLDER [--only NAME] [--size WxH] [--type png]
//
// Plays each scene to a moment worth seeing, driving its instrument where it has one, and writes scene-NAME.jpg. Needs the built viewer and Chromium.
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..', '..');
const { values: options } = parseArgs({
  options: { server: { type: 'string' }, out: { type: 'string' }, only: { type: 'string' }, size: { type: 'string', default: '1280x760' },
    type: { type: 'string', default: 'jpg' } },
});
if (!options.server || !options.out) {
  console.error('usage: scene_pictures.mjs --server PALPATE_SERVER --out FOLDER [--only NAME] [--size WxH] [--type png]');
  process.exit(2);
}

/** steps: before the picture; tool and path: its instrument's tip at each of them; look: azimuth, elevation, distance of the camera; hasNoNormals: those of
    contacts are not drawn. */
const SCENES = {
  tori: { steps: 8, look: [-50, 14, 1] },
  boxes: { steps: 60, look: [-60, 32, 1.0], hasNoNormals: true },
  knot: { steps: 200, look: [-90, 28, 0.36] },
  sheet: { steps: 250, look: [-68, 20, 1.0] },
  organs: {
    steps: 150,
    look: [-60, 30, 1.15],
    tool: 'stirrer',
    path: (step) => {
      const t = step / 120;
      const angle = -2.5 * Math.max(0, t - 0.4) - 0.6;
      return [0.06 * Math.cos(angle), 0.045 * Math.sin(angle), 0.26 - 0.21 * Math.min(1, t / 0.4)];
    },
  },
  whip: { steps: 40, look: [-62, 26, 1.0], tool: 'whip', path: (step) => [Math.min(0.03, -0.06 + 0.0417 * step), 0, -0.06] },
};

const browserPath = [process.env.PALPATE_CHROMIUM, '/usr/bin/chromium', '/usr/bin/google-chrome'].find((path) => path && existsSync(path));
const { chromium } = createRequire(join(root, 'clients', 'web', 'package.json'))('playwright-core');
const [width, height] = options.size.split('x').map(Number);
mkdirSync(options.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-pictures-'));
const names = options.only ? [options.only] : Object.keys(SCENES);
const context = await chromium.launchPersistentContext(join(profile, 'browser'), {
  executablePath: browserPath,
  headless: true,
  viewport: { width, height },
  args: ['--no-sandbox', '--disable-gpu', '--use-gl=angle', '--use-angle=swiftshader', '--enable-unsafe-swiftshader', '--no-first-run'],
});
context.setDefaultTimeout(300_000);
const webRoot = join(root, 'clients', 'web', 'dist');

async function picture(name) {
  const { steps, look, tool, path, hasNoNormals } = SCENES[name];
  const ready = join(profile, `${name}.json`);
  const server = spawn(options.server, ['--listen', '127.0.0.1:0', '--http', '127.0.0.1:0', '--web-root', webRoot, '--ready-file', ready, '--log-level', 'warning',
    '--scene', join(root, 'scenes', `${name}.json`)], { stdio: 'inherit' });
  const ended = new Promise((resolve) => server.once('exit', resolve));
  try {
    while (!existsSync(ready)) await new Promise((resolve) => setTimeout(resolve, 100));
    const page = await context.newPage();
    await page.goto(`http://127.0.0.1:${JSON.parse(readFileSync(ready, 'utf8')).http_port}/?scene=${name}&quality=low`);
    await page.waitForFunction((id) => window.palpate?.sceneId === id && palpate.runState === 'playing', name);
    await page.click('#b-play');
    await page.waitForFunction(() => palpate.runState === 'paused');
    await page.click('#b-reset');
    await page.waitForFunction(() => palpate.stats.step === 0);
    // Drawn in software, a small window leaves the machine to the simulation.
    await page.setViewportSize({ width: 240, height: 160 });
    if (tool) {
      await page.evaluate((which) => palpate.takeTool(which), tool);
      for (let step = 0; step < steps; ++step) {
        await page.evaluate(([x, y, z]) => palpate.moveTool(x, y, z), path(step));
        await page.waitForTimeout(40);
        await page.evaluate(() => palpate.step(1));
      }
    } else {
      await page.evaluate((count) => palpate.step(count), steps);
    }
    await page.waitForFunction((count) => palpate.stats.step >= count, steps);
    await page.setViewportSize({ width, height });
    await page.evaluate(([azimuth, elevation, distance]) => {
      palpate.look(azimuth, elevation, distance);
      palpate.setQuality('high');
    }, look);
    if (hasNoNormals) await page.keyboard.press('k');
    await page.waitForTimeout(1500);
    const file = { path: join(options.out, `scene-${name}.${options.type}`), timeout: 300_000 };
    await page.screenshot(options.type === 'png' ? file : { ...file, type: 'jpeg', quality: 86 });
    console.log(name, JSON.stringify(await page.evaluate(() => palpate.stats)));
    await page.close();
  } finally {
    server.kill('SIGTERM');
    await ended;
  }
}

try {
  for (const name of names) await picture(name);
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
