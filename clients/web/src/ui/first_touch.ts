import type { Clock } from '../net/connection';

/** A finger that has moved so far means it. */
const SLOP_PX = 8;
/** So long after the first finger a second one may still make them two for the camera. */
const WAIT_MS = 130;

/** A finger on tissue may be the first of two, which zoom. What it begins waits until it has moved, has been lifted, or for a moment: no tissue is cut by mistake. */
export class FirstTouch {
  private waiting: { pointer: number; x: number; y: number; begin: () => void; timer: unknown } | undefined;

  constructor(private readonly clock: Pick<Clock, 'setTimeout' | 'clearTimeout'> = {
    setTimeout: (run, ms) => globalThis.setTimeout(run, ms),
    clearTimeout: (handle) => globalThis.clearTimeout(handle as number),
  }) {}

  get isWaiting(): boolean {
    return this.waiting !== undefined;
  }

  /** Calls `begin` once, unless a second finger comes first. `x`, `y`: CSS pixels. */
  down(pointer: number, x: number, y: number, begin: () => void): void {
    this.forget();
    this.waiting = { pointer, x, y, begin, timer: this.clock.setTimeout(() => this.beginNow(), WAIT_MS) };
  }

  move(pointer: number, x: number, y: number): void {
    const { waiting } = this;
    if (waiting?.pointer === pointer && Math.hypot(x - waiting.x, y - waiting.y) > SLOP_PX) this.beginNow();
  }

  /** A tap means it, too. */
  up(pointer: number): void {
    if (this.waiting?.pointer === pointer) this.beginNow();
  }

  /** A second finger is down, or the system took the first one. */
  forget(): void {
    this.clock.clearTimeout(this.waiting?.timer);
    this.waiting = undefined;
  }

  private beginNow(): void {
    const begin = this.waiting?.begin;
    this.forget();
    begin?.();
  }
}
