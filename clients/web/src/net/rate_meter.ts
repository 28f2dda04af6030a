/** Events per second over the last second or so. */
export class RateMeter {
  private readonly times: number[] = [];
  private startMs: number | undefined;
  constructor(private readonly windowMs = 1500) {}

  add(nowMs: number): void {
    this.startMs ??= nowMs;
    this.times.push(nowMs);
    this.trim(nowMs);
  }

  perSecond(nowMs: number): number {
    this.trim(nowMs);
    if (this.startMs === undefined || nowMs - this.startMs < 250) return 0;
    // Divided by the whole window: events that come in bursts count no more than others.
    return (1000 * this.times.length) / Math.min(nowMs - this.startMs, this.windowMs);
  }

  private trim(nowMs: number): void {
    let old = 0;
    while (old < this.times.length && this.times[old]! < nowMs - this.windowMs) ++old;
    if (old > 0) this.times.splice(0, old);
  }
}
