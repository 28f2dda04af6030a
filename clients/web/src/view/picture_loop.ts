import { AutoQuality } from './auto_quality';
import type { Quality, Stage } from './stage';

/** Between pictures at low quality: a machine that draws in software has other work to do, perhaps the simulation itself. */
const LOW_QUALITY_INTERVAL_MS = 80;

export interface PictureSteps {
  /** Each time that the browser asks, also where no picture is due. */
  move(now_ms: number, elapsed_ms: number): void;
  /** Brings in what is new. False: there is nothing whole to draw. */
  prepare(): boolean;
  /** The camera may be elsewhere: places what lies over the picture. */
  placeLabels(): void;
  /** Words and graphs beside the picture, whether it was drawn or not. */
  describe(now_ms: number): void;
  /** The machine is too slow for the quality so far. */
  lower(quality: Quality): void;
}

/** Draws when somebody asked for it or the camera moves, else not. */
export class PictureLoop {
  private lastAsked_ms = 0;
  private lastDrawn_ms = 0;
  private needsPicture = true;
  private readonly autoQuality: AutoQuality | undefined;

  constructor(private readonly stage: Stage, isAuto: boolean, private readonly steps: PictureSteps) {
    this.autoQuality = isAuto ? new AutoQuality() : undefined;
  }

  start(): void {
    requestAnimationFrame((now) => this.onPicture(now));
  }

  /** Something besides the camera changed what there is to see. */
  redraw(): void {
    this.needsPicture = true;
  }

  private onPicture(now_ms: number): void {
    requestAnimationFrame((next) => this.onPicture(next));
    const elapsed_ms = now_ms - this.lastAsked_ms;
    this.lastAsked_ms = now_ms;
    this.adaptQuality(elapsed_ms);
    this.steps.move(now_ms, elapsed_ms);
    if (this.stage.quality === 'low' && now_ms - this.lastDrawn_ms < LOW_QUALITY_INTERVAL_MS) return;
    const canDraw = this.steps.prepare();
    if (this.stage.controls.update()) this.needsPicture = true;
    if (this.needsPicture && canDraw) {
      this.needsPicture = false;
      this.lastDrawn_ms = now_ms;
      this.stage.render();
      this.steps.placeLabels();
    }
    this.steps.describe(now_ms);
  }

  private adaptQuality(elapsed_ms: number): void {
    if (!this.autoQuality || document.hidden) return;
    const quality = this.autoQuality.next(elapsed_ms, this.stage.quality);
    if (quality !== this.stage.quality) this.steps.lower(quality);
  }
}
