// What tests of surgery with the mouse have in common: a page, and a hand that works in it.
import assert from 'node:assert/strict';
import { PATIENCE_MS } from './browser.mjs';

export const difference = (a, b) => Math.max(...a.map((x, k) => Math.abs(x - b[k])));
export const farthest_m = (a, b) => {
  let far = 0;
  for (let i = 0; i < a.length; i += 3) far = Math.max(far, Math.hypot(a[i] - b[i], a[i + 1] - b[i + 1], a[i + 2] - b[i + 2]));
  return far;
};

export class Surgeon {
  /** `truth`: the server's topology version, with the name and mesh hash of each of its bodies. */
  constructor(page, truth) {
    this.page = page;
    this.truth = truth;
  }

  state() {
    return this.page.evaluate(() => ({ runState: palpate.runState, past: palpate.past, bodies: palpate.bodies, stats: palpate.stats, surgery: palpate.surgery,
      tools: palpate.tools, errors: [...palpate.errors] }));
  }

  async tool(name) {
    return (await this.state()).tools.find((tool) => tool.name === name);
  }

  positions(body) {
    return this.page.evaluate((index) => palpate.positions(index), body);
  }

  waitFor(what, condition, argument) {
    return this.page.waitForFunction(condition, argument, { timeout: PATIENCE_MS, polling: 40 }).catch(async (error) => {
      throw new Error(`waited in vain for: ${what}\n${JSON.stringify(await this.state())}\n${error.message}`);
    });
  }

  /** Until the answers to all that the mouse did are here. */
  async settle() {
    await this.waitFor('the edits', () => !palpate.surgery.isBusy);
  }

  /** The browser shows the version that the server has, triangle for triangle. The scene stands still. */
  async expectServersSurfaces() {
    await this.settle();
    const { topologyVersion, surfaces } = await this.truth();
    await this.waitFor(`topology ${topologyVersion}`, (version) => palpate.stats.topologyVersion === version, topologyVersion);
    const { bodies } = await this.state();
    assert.deepEqual(bodies.map(({ name, meshHash }) => ({ name, meshHash })), surfaces);
  }

  /** Mean red, green and blue of the picture around a place of W. */
  colorAt(place) {
    return this.page.evaluate(([x, y, z]) => {
      palpate.setQuality('low');  // draws now, so that the canvas has a picture to copy
      const view = document.getElementById('view');
      const at = palpate.project(x, y, z);
      const scale = view.width / view.clientWidth;
      const size = 6;
      const copy = document.createElement('canvas');
      copy.width = copy.height = size;
      const context = copy.getContext('2d');
      context.drawImage(view, at.x * scale - size / 2, at.y * scale - size / 2, size, size, 0, 0, size, size);
      const { data } = context.getImageData(0, 0, size, size);
      return [0, 1, 2].map((k) => data.reduce((sum, value, i) => sum + (i % 4 === k ? value : 0), 0) / (size * size));
    }, place);
  }

  /** The vertex near the vertical through a place of the plane that lies highest. */
  top(x, y) {
    return this.page.evaluate(([px, py]) => {
      const p = palpate.positions(0);
      let best = [0, 0, 0];
      let least = Infinity;
      for (let i = 0; i < p.length; i += 3) {
        const distance = Math.hypot(p[i] - px, p[i + 1] - py) - 2 * p[i + 2];
        if (distance < least) {
          least = distance;
          best = [p[i], p[i + 1], p[i + 2]];
        }
      }
      return best;
    }, [x, y]);
  }

  /** Puts the mouse on a place of W; never on the outline of the tissue, which moves, but a little below. */
  async aimAt(place) {
    const at = await this.page.evaluate(([px, py, pz]) => {
      const { x, y } = palpate.project(px, py, pz);
      for (let down = 0; down <= 24; down += 2) {
        if (palpate.pick(x, y + down)) return { x, y: y + down + (palpate.pick(x, y + down + 10) ? 10 : 0) };
      }
      return { x, y };
    }, place);
    await this.page.mouse.move(at.x, at.y);
    return at;
  }

  /** Drags the left button over places of W, in `moves` moves each. */
  async drag(places, moves = 3) {
    const at = await this.page.evaluate((list) => list.map(([x, y, z]) => palpate.project(x, y, z)), places);
    await this.page.mouse.move(at[0].x, at[0].y);
    await this.page.mouse.down();
    for (let i = 1; i < at.length; ++i) await this.page.mouse.move(at[i].x, at[i].y, { steps: moves });
    await this.page.mouse.up();
  }

  /** Clicks a place of the plane z = `z`, seen from above, if tissue is under it; whether it was. */
  async dab(x, y, z) {
    const at = await this.page.evaluate((place) => {
      const { x: px, y: py } = palpate.project(...place);
      return palpate.pick(px, py) && { x: px, y: py };
    }, [x, y, z]);
    if (!at) return false;
    await this.page.mouse.click(at.x, at.y);
    await this.settle();
    return true;
  }

  async mode(key, size_m) {
    await this.page.keyboard.press(key);
    if (size_m) await this.page.evaluate((size) => palpate.setSize(size), size_m);
  }

  async play(isPlaying) {
    const wanted = isPlaying ? 'playing' : 'paused';
    if ((await this.state()).runState === wanted) return;
    await this.page.click('#b-play');
    await this.waitFor(wanted, (state) => palpate.runState === state, wanted);
  }
}
