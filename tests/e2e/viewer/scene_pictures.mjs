// Pictures of example scenes in the viewer, for the documentation.
//
//   node scene_pictures.mjs --server PALPATE_SERVER --out FOLDER [--only NAME,...] [--size WxH] [--type png]
//
// Plays each scene to a moment worth seeing, driving its instrument and cutting where it says so, and writes scene-NAME.jpg. Needs the built viewer and Chromium.
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { openBrowser, startServer, webDir } from './browser.mjs';

const root = join(webDir, '..', '..');
const { values: options } = parseArgs({
  options: { server: { type: 'string' }, out: { type: 'string' }, only: { type: 'string' }, size: { type: 'string', default: '1280x760' },
    type: { type: 'string', default: 'jpg' } },
});
if (!options.server || !options.out) {
  console.error('usage: scene_pictures.mjs --server PALPATE_SERVER --out FOLDER [--only NAME,...] [--size WxH] [--type png]');
  process.exit(2);
}

const lerp = (a, b, t) => a.map((x, k) => x + (b[k] - x) * Math.min(1, Math.max(0, t)));
const range = (count) => [...Array(count).keys()];
const vec3 = ([x, y, z]) => ({ x, y, z });
const ball = (body, center, radius_m) => ({ body, carve: { region: { ball: { center_m: vec3(center), radius_m } } } });
const editsOf = (name) => JSON.parse(readFileSync(join(root, 'scenes', 'edits', `${name}.json`), 'utf8')).edits;

/**
 * file: of `scenes`, by default the name; look: azimuth, elevation, distance of the camera; keys: pressed before the picture (p: the panel, k: no normals of contacts, c: no
 * contacts, v: no forces); play: brings the scene to its moment.
 */
const SCENES = {
  tori: { look: [-50, 14, 1], keys: 'p', play: (hand) => hand.step(8) },
  boxes: { look: [-60, 32, 1.0], keys: 'pk', play: (hand) => hand.step(60) },
  knot: { look: [-90, 28, 0.36], keys: 'p', play: (hand) => hand.step(200) },
  sheet: { look: [-68, 20, 1.0], keys: 'p', play: (hand) => hand.step(250) },
  organs: {
    look: [-60, 30, 1.15],
    keys: 'p',
    play: (hand) => hand.move('stirrer', range(150).map((step) => {
      const t = step / 120;
      const angle = -2.5 * Math.max(0, t - 0.4) - 0.6;
      return [0.06 * Math.cos(angle), 0.045 * Math.sin(angle), 0.26 - 0.21 * Math.min(1, t / 0.4)];
    })),
  },
  whip: { look: [-62, 26, 1.0], keys: 'p', play: (hand) => hand.move('whip', range(40).map((step) => [Math.min(0.03, -0.06 + 0.0417 * step), 0, -0.06])) },
  hepatectomy: {
    look: [-64, 34, 0.8],
    keys: 'c',
    async play(hand) {
      const plane = { end0_m: { x: -0.035, y: -0.12, z: 0 }, end1_m: { x: -0.035, y: 0.12, z: 0 }, radius_m: 0.03 };
      await hand.edit([{ body: 'liver', refine: { region: { capsule: { ...plane, radius_m: 0.06 } }, max_edge_m: 0.011 } }]);
      for (const edit of editsOf('hepatectomy').slice(0, 9)) {
        await hand.edit([edit]);
        await hand.step(4);
      }
      await hand.step(20);
    },
  },
  incision: {
    look: [-62, 40, 0.9],
    keys: 'c',
    async play(hand) {
      await hand.step(60);
      await hand.edit([{ body: 'slab', refine: { region: { ball: { center_m: vec3([0, 0, 0.005]), radius_m: 0.024 } }, max_edge_m: 0.006 } }]);
      await hand.edit(editsOf('incision'));
      await hand.step(60);
    },
  },
  tumor: {
    look: [-75, 55, 0.8],
    keys: 'c',
    async play(hand) {
      await hand.edit([{ body: 'liver', refine: { region: { ball: { center_m: vec3([-0.03, 0, 0.02]), radius_m: 0.05 } }, max_edge_m: 0.007 } }]);
      await hand.edit([ball('liver', [-0.03, 0, 0.06], 0.03)]);
      await hand.step(30);
    },
  },
  grasp: {
    look: [-40, 18, 0.9],
    keys: 'c',
    async play(hand) {
      await hand.move('forceps', range(60).map(() => [0, 0, 0.05]));
      await hand.move('forceps', range(80).map((step) => [0, 0, 0.05 - 0.047 * ((step + 1) / 80)]));
      await hand.jaws(true);
      await hand.move('forceps', range(90).map(() => [0, 0, 0.003]));
      await hand.move('forceps', range(60).map((step) => [0, 0, 0.003 + 0.009 * ((step + 1) / 60)]));
    },
  },
};

const [width, height] = options.size.split('x').map(Number);
mkdirSync(options.out, { recursive: true });
const profile = mkdtempSync(join(tmpdir(), 'palpate-pictures-'));
const names = options.only ? options.only.split(',') : Object.keys(SCENES);
const context = await openBrowser(profile, options.size);
context.setDefaultTimeout(300_000);

/** What a scene's `play` works with. */
class Hand {
  step_ = 0;
  tool_ = '';

  constructor(page) {
    this.page = page;
  }

  async step(count) {
    for (let left = count; left > 0; left -= 10) {
      await this.page.evaluate((n) => palpate.step(n), Math.min(10, left));
      this.step_ += Math.min(10, left);
      await this.page.waitForFunction((n) => palpate.stats.step >= n, this.step_);
    }
  }

  async edit(edits) {
    for (const outcome of await this.page.evaluate((list) => palpate.edit(list), edits)) {
      if (outcome.isRefused) throw new Error(`${outcome.body}: ${outcome.note}`);
    }
  }

  /** The tip of the tool goes from place to place, one a step. */
  async move(tool, places) {
    if (this.tool_ !== tool) await this.page.evaluate((which) => palpate.takeTool(which), tool);
    this.tool_ = tool;
    for (const place of places) {
      await this.page.evaluate(([x, y, z]) => palpate.moveTool(x, y, z), place);
      await this.page.waitForTimeout(40);
      await this.step(1);
    }
  }

  jaws(closed) {
    return this.page.evaluate((isClosed) => palpate.setJaws(isClosed), closed);
  }

  pedal(down) {
    return this.page.evaluate((isDown) => palpate.setPedal(isDown), down);
  }
}

async function picture(name) {
  const { file, look, keys, play } = SCENES[name];
  const server = await startServer(options.server, join(root, 'scenes', `${file ?? name}.json`), profile);
  try {
    const page = await context.newPage();
    // Drawn in software, a small window leaves the machine to the simulation.
    await page.setViewportSize({ width: 240, height: 160 });
    await page.goto(`${server.url}?quality=high`);
    await page.waitForFunction(() => window.palpate?.bodies.length > 0 && palpate.runState === 'playing');
    await page.keyboard.press('Space');
    await page.waitForFunction(() => palpate.runState === 'paused');
    await page.keyboard.press('r');
    await page.waitForFunction(() => palpate.stats.step === 0);
    await play(new Hand(page));
    await page.setViewportSize({ width, height });
    for (const key of keys ?? '') await page.keyboard.press(key);
    await page.evaluate(([azimuth, elevation, distance]) => palpate.look(azimuth, elevation, distance), look);
    await page.waitForTimeout(5000);  // toasts are gone, and the picture is drawn
    const target = { path: join(options.out, `scene-${name}.${options.type}`), timeout: 300_000 };
    await page.screenshot(options.type === 'png' ? target : { ...target, type: 'jpeg', quality: 86 });
    console.log(name, JSON.stringify(await page.evaluate(() => palpate.stats)), JSON.stringify(await page.evaluate(() => palpate.errors)));
    await page.close();
  } finally {
    await server.end();
  }
}

try {
  for (const name of names) await picture(name);
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
}
