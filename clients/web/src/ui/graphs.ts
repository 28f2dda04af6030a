import type { StepStats } from '../../generated/palpate/v1/stream_pb';

export const STAGE_COLORS = ['#4cc9f0', '#f7b955', '#ff7d6b', '#b48cff', '#6ee7a8', '#9fb3c8', '#ff8fc7', '#d6e685'];

/** Makes the canvas as sharp as the screen; the context is in CSS pixels. */
function prepare(canvas: HTMLCanvasElement): { context: CanvasRenderingContext2D; width: number; height: number } | undefined {
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  const context = canvas.getContext('2d');
  if (!context || width === 0 || height === 0) return undefined;
  const ratio = Math.min(window.devicePixelRatio, 2);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}

/** A round number at or above `value`, for the top of an axis. */
export function niceCeiling(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 1.5, 2, 3, 5, 7.5, 10]) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

/** Values over the last `window_s` of wall time. */
export class History {
  private readonly samples: { t: number; v: number }[] = [];
  private top = 1;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly color: string, private readonly unit: string, private readonly window_s = 12) {}

  add(t_s: number, value: number): void {
    const last = this.samples[this.samples.length - 1];
    if (last && t_s <= last.t) return;
    this.samples.push({ t: t_s, v: value });
    let old = 0;
    while (old < this.samples.length && this.samples[old]!.t < t_s - this.window_s) ++old;
    if (old > 64) this.samples.splice(0, old);
  }

  draw(now_s: number): void {
    const area = prepare(this.canvas);
    if (!area) return;
    const { context, width, height } = area;
    let peak = 0;
    for (const { t, v } of this.samples) if (t >= now_s - this.window_s) peak = Math.max(peak, v);
    this.top += (niceCeiling(Math.max(peak * 1.1, 0.2)) - this.top) * 0.2;
    const x = (t: number) => width * (1 - (now_s - t) / this.window_s);
    const y = (v: number) => height - 2 - (height - 6) * Math.min(v / this.top, 1.1);
    context.strokeStyle = 'rgba(255,255,255,0.06)';
    context.beginPath();
    context.moveTo(0, height / 2);
    context.lineTo(width, height / 2);
    context.stroke();
    if (this.samples.length > 1) {
      context.beginPath();
      let previous = -1e9;
      for (const { t, v } of this.samples) {
        const at = x(t);
        if (at < -20 || at - previous < 0.5) continue;
        previous = at;
        context.lineTo(at, y(v));
      }
      const last = this.samples[this.samples.length - 1]!;
      context.strokeStyle = this.color;
      context.lineWidth = 1.6;
      context.lineJoin = 'round';
      context.stroke();
      context.lineTo(x(last.t), height);
      context.lineTo(Math.max(x(this.samples[0]!.t), 0), height);
      context.closePath();
      context.globalAlpha = 0.16;
      context.fillStyle = this.color;
      context.fill();
      context.globalAlpha = 1;
    }
    context.fillStyle = '#566675';
    context.font = '9.5px system-ui, sans-serif';
    context.textAlign = 'right';
    context.fillText(`${peak.toFixed(peak < 10 ? 2 : 1)} ${this.unit} max`, width - 5, 11);
  }
}

/** Wall time of the last steps, stacked by stage. */
export class StageGraph {
  private readonly rows: Float32Array[] = [];
  private readonly averages = new Map<string, number>();
  private names: string[] = [];
  private top = 1;
  private static readonly kRows = 220;

  constructor(private readonly canvas: HTMLCanvasElement, private readonly legend: HTMLElement) {}

  get stageNames(): readonly string[] {
    return this.names;
  }

  clear(): void {
    this.rows.length = 0;
    this.averages.clear();
  }

  add(stats: StepStats): void {
    const names = stats.stages.map((stage) => stage.stage);
    if (names.join() !== this.names.join()) {
      this.names = names;
      this.clear();
      this.legend.replaceChildren(...names.map((name, index) => {
        const row = document.createElement('div');
        const swatch = document.createElement('i');
        swatch.style.background = STAGE_COLORS[index % STAGE_COLORS.length]!;
        const value = document.createElement('b');
        row.append(swatch, name, value);
        return row;
      }));
    }
    const row = Float32Array.from(stats.stages, (stage) => Math.max(0, stage.ms));
    this.rows.push(row);
    if (this.rows.length > StageGraph.kRows) this.rows.shift();
    for (const stage of stats.stages) {
      const before = this.averages.get(stage.stage) ?? stage.ms;
      this.averages.set(stage.stage, before + 0.06 * (stage.ms - before));
    }
  }

  draw(): void {
    const area = prepare(this.canvas);
    if (!area) return;
    const { context, width, height } = area;
    const sums = this.rows.map((row) => row.reduce((sum, ms) => sum + ms, 0));
    // One odd step must not flatten all the others.
    const sorted = [...sums].sort((a, b) => a - b);
    const high = sorted[Math.floor(0.97 * (sorted.length - 1))] ?? 1;
    this.top += (niceCeiling(high * 1.15) - this.top) * 0.25;
    const columnWidth = width / StageGraph.kRows;
    const offset = width - this.rows.length * columnWidth;
    const below = new Float32Array(this.rows.length);
    for (let stage = 0; stage < this.names.length; ++stage) {
      context.beginPath();
      for (let i = 0; i < this.rows.length; ++i) context.lineTo(offset + (i + 0.5) * columnWidth, height * (1 - below[i]! / this.top));
      for (let i = 0; i < this.rows.length; ++i) below[i]! += this.rows[i]![stage] ?? 0;
      for (let i = this.rows.length - 1; i >= 0; --i) context.lineTo(offset + (i + 0.5) * columnWidth, height * (1 - below[i]! / this.top));
      context.closePath();
      context.globalAlpha = 0.82;
      context.fillStyle = STAGE_COLORS[stage % STAGE_COLORS.length]!;
      context.fill();
    }
    context.globalAlpha = 1;
    context.font = '9.5px system-ui, sans-serif';
    context.textAlign = 'left';
    for (const fraction of [0.5, 1]) {
      const y = height * (1 - fraction) + (fraction === 1 ? 0.5 : 0);
      context.strokeStyle = 'rgba(255,255,255,0.08)';
      context.beginPath();
      context.moveTo(0, y);
      context.lineTo(width, y);
      context.stroke();
      const text = `${Number((this.top * fraction).toPrecision(2))} ms`;
      context.fillStyle = 'rgba(10,14,19,0.65)';
      context.fillRect(2, y + 2, context.measureText(text).width + 6, 12);
      context.fillStyle = '#a9b8c5';
      context.fillText(text, 5, y + 11.5);
    }
    for (const [index, row] of Array.from(this.legend.children).entries()) {
      const name = this.names[index];
      const value = row.querySelector('b');
      if (name !== undefined && value) value.textContent = (this.averages.get(name) ?? 0).toFixed(2);
    }
  }
}
