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
 * file: of `scenes`, by default the name; look: azimuth, elevation, distance of the camera; keys: pressed before the picture (p: no panel, c: contacts,
 * k: with their normals, v: no forces); isBare: the picture without panel, controls and forces; play: brings the scene to its moment.
 */
const SCENES = {
  liver: { look: [-70, 24, 1.0], play: (hand) => hand.move('probe', range(70).map((step) => lerp([-0.045, -0.01, 0.075], [-0.045, -0.01, 0.03], step / 50))) },
  tori: { look: [-50, 14, 1], play: (hand) => hand.step(8) },
  'nurbs-drop': { look: [-62, 24, 0.72], play: (hand) => hand.step(240) },
  'nurbs-swing': { look: [-62, 14, 0.9], play: (hand) => hand.step(200) },
  'nurbs-hammock': { look: [-62, 16, 0.9], play: (hand) => hand.step(200) },
  'nurbs-sheet': { look: [-62, 22, 0.8], play: (hand) => hand.step(150) },
  'nurbs-drape': { look: [-62, 26, 0.8], play: (hand) => hand.step(150) },
  'nurbs-bladder': { look: [-62, 16, 0.8], play: (hand) => hand.step(240) },
  'nurbs-neck': { look: [-62, 16, 0.75], play: (hand) => hand.move('probe', range(120).map((step) => lerp([-0.004, 0, 0.085], [-0.004, 0, 0.054], (step - 40) / 60))) },
  'nurbs-vessel': { look: [-58, 14, 0.8], play: (hand) => hand.step(150) },
  'nurbs-sewn': {
    look: [-66, 12, 0.72],
    play: (hand) => hand.move('hand', range(230).map((step) => lerp([0, 0, 0.1], [0.004, 0, 0.128], (step - 40) / 150))),
  },
  bridge: { look: [-72, 12, 0.9], play: (hand) => hand.step(200) },
  chain: { look: [-80, 8, 1.0], play: (hand) => hand.step(50) },
  gauze: { look: [-62, 26, 0.9], play: (hand) => hand.step(120) },
  mesentery: {
    look: [-62, 34, 0.8],
    async play(hand) {
      await hand.step(60);
      await hand.edit(editsOf('mesentery'));
      await hand.step(120);
    },
  },
  dress: { look: [-58, 8, 1.12], isBare: true, play: (hand) => hand.step(400) },
  breathing: {
    look: [-70, 26, 0.95],
    play: (hand) => hand.move('retractor', range(210).map((step) => lerp([-0.05, -0.02, 0.09], [-0.05, -0.02, 0.036], step / 60))),
  },
  'bowel-loop': {
    look: [-66, 31, 0.84],
    isBare: true,
    async play(hand) {
      // A hole, burnt along a spiral; then a loop is taken through it.
      const spiral = range(181).map((step) => {
        const u = Math.sqrt(step / 180);
        return [0.0115 * u * Math.cos(6 * Math.PI * u), 0.0115 * u * Math.sin(6 * Math.PI * u), -0.0125];
      });
      const way = (from, to, steps) => range(steps).map((step) => lerp(from, to, (step + 1) / steps));
      await hand.move('hook', way([-0.03, 0.02, 0.06], spiral[0], 40));
      await hand.pedal(true);
      await hand.move('hook', spiral.slice(1));
      await hand.pedal(false);
      await hand.move('hook', way(spiral[180], [-0.06, 0.05, 0.1], 30));
      await hand.move('grasper', way([0.03, 0, 0.07], [0, 0.001, 0.03], 30));
      await hand.jaws(true);
      await hand.move('grasper', way([0, 0.001, 0.03], [0, 0.001, -0.022], 50));
      await hand.jaws(false);
      await hand.move('grasper', way([0, 0.001, -0.022], [0, 0.001, -0.049], 100));
      await hand.jaws(true);
      await hand.move('grasper', range(70).map(() => [0, 0.001, -0.049]));
      await hand.move('grasper', way([0, 0.001, -0.049], [0, 0.001, 0.07], 240));
      await hand.step(60);
    },
  },
  cradle: { look: [-78, 10, 0.9], play: (hand) => hand.step(55) },
  wind: { look: [-48, 16, 1.0], play: (hand) => hand.step(420) },
  door: { look: [-60, 34, 1.0], play: (hand) => hand.step(190) },
  elbow: { look: [-62, 12, 1.0], play: (hand) => hand.step(150) },
  boxes: { look: [-60, 32, 1.0], keys: 'c', play: (hand) => hand.step(60) },
  knot: { look: [-90, 28, 0.36], play: (hand) => hand.step(200) },
  sheet: { look: [-68, 20, 1.0], play: (hand) => hand.step(250) },
  organs: {
    look: [-60, 30, 1.15],
    play: (hand) => hand.move('stirrer', range(150).map((step) => {
      const t = step / 120;
      const angle = -2.5 * Math.max(0, t - 0.4) - 0.6;
      return [0.06 * Math.cos(angle), 0.045 * Math.sin(angle), 0.26 - 0.21 * Math.min(1, t / 0.4)];
    })),
  },
  whip: { look: [-62, 26, 1.0], play: (hand) => hand.move('whip', range(40).map((step) => [Math.min(0.03, -0.06 + 0.0417 * step), 0, -0.06])) },
  hepatectomy: {
    look: [-104, 36, 0.74],
    isBare: true,
    async play(hand) {
      const end = (y) => vec3([-0.035, y, 0.01]);
      await hand.edit([{ body: 'liver', refine: { region: { capsule: { end0_m: end(-0.12), end1_m: end(0.12), radius_m: 0.055 } }, max_edge_m: 0.01 } }]);
      for (const edit of editsOf('hepatectomy').slice(0, 9)) await hand.edit([edit]);
      const place = [-0.037, -0.042, 0.024];
      await hand.move('aspirator', range(4).map((step) => lerp([-0.035, -0.03, 0.05], place, (step + 1) / 4)));
    },
  },
  incision: {
    look: [-56, 40, 0.84],
    isBare: true,
    async play(hand) {
      await hand.step(60);
      await hand.edit([{ body: 'slab', refine: { region: { ball: { center_m: vec3([0, 0, 0.005]), radius_m: 0.024 } }, max_edge_m: 0.0065 } }]);
      await hand.edit(editsOf('incision'));
      await hand.step(60);
      await hand.move('scalpel', range(6).map((step) => lerp([0.001, 0.0, 0.05], [0.001, 0.0185, 0.013], (step + 1) / 6)));
    },
  },
  tumor: {
    look: [-80, 52, 0.7],
    isBare: true,
    async play(hand) {
      const center = [-0.03, 0, 0.015];
      await hand.edit([{ body: 'liver', refine: { region: { ball: { center_m: vec3([-0.03, 0, 0.025]), radius_m: 0.045 } }, max_edge_m: 0.009 } }]);
      // Balls around the tumour, down to `least` of its height, by the golden angle.
      const shell = (count, distance_m, radius_m, least) => range(count).map((i) => {
        const z = 1 - ((i + 0.5) / count) * (1 - least);
        const r = Math.sqrt(1 - z * z);
        const angle = Math.PI * (3 - Math.sqrt(5)) * i;
        return ball('liver', [r * Math.cos(angle), r * Math.sin(angle), z].map((x, k) => center[k] + distance_m * x), radius_m);
      });
      await hand.edit(shell(60, 0.036, 0.0095, 0.1));
      await hand.edit(shell(150, 0.0274, 0.0069, 0));
      const place = [-0.052, -0.014, 0.036];
      await hand.move('aspirator', range(4).map((step) => lerp([-0.07, -0.02, 0.07], place, (step + 1) / 4)));
    },
  },
  grasp: {
    look: [-35, 16, 1.25],
    isBare: true,
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
      await this.page.waitForFunction((n) => palpate.stats.step >= n, this.step_, { polling: 100 });
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
  const { file, look, keys, isBare, play } = SCENES[name];
  const server = await startServer(options.server, join(root, 'scenes', `${file ?? name}.json`), profile);
  try {
    const page = await context.newPage();
    // Drawn in software, a small and plain window leaves the machine to the simulation.
    await page.setViewportSize({ width: 240, height: 160 });
    await page.goto(`${server.url}?quality=low`);
    await page.waitForFunction(() => window.palpate?.bodies.length > 0 && palpate.runState === 'playing', undefined, { polling: 100 });
    await page.keyboard.press('Space');
    await page.waitForFunction(() => palpate.runState === 'paused', undefined, { polling: 100 });
    await page.keyboard.press('r');
    await page.waitForFunction(() => palpate.stats.step === 0, undefined, { polling: 100 });
    await play(new Hand(page));
    await page.setViewportSize({ width, height });
    await page.goto(`${server.url}?quality=high`);
    await page.waitForFunction(() => window.palpate?.bodies.length > 0, undefined, { polling: 100 });
    for (const key of keys ?? (isBare ? 'pv' : '')) await page.keyboard.press(key);
    if (isBare) await page.evaluate(() => ['bottom', 'modes', 'toasts', 'panel'].forEach((id) => (document.getElementById(id).hidden = true)));
    await page.evaluate(([azimuth, elevation, distance]) => palpate.look(azimuth, elevation, distance), look);
    await page.waitForTimeout(3000);  // the panel is gone, and the picture is drawn
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
