import type { Quality } from './stage';

/** A picture that took longer is a slow one. */
const SLOW_MS = 45;
/** A longer pause is none of the machine's: the page was hidden, or the server away. */
const PAUSE_MS = 2000;
const PATIENCE_PICTURES = 20;

/** A machine that cannot keep up gets a plainer picture. Quick pictures count against slow ones twice. */
export class AutoQuality {
  private slowPictures = 0;

  /** The quality for what comes, given the time since the last picture. */
  next(elapsed_ms: number, quality: Quality): Quality {
    if (elapsed_ms > PAUSE_MS) return quality;
    this.slowPictures = elapsed_ms > SLOW_MS ? this.slowPictures + 1 : Math.max(0, this.slowPictures - 2);
    if (this.slowPictures < PATIENCE_PICTURES || quality === 'low') return quality;
    this.slowPictures = 0;
    return quality === 'high' ? 'medium' : 'low';
  }
}
