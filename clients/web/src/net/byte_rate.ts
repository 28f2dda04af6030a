const WINDOW_MS = 1500;
/** Less says nothing about a rate. */
const MIN_WINDOW_MS = 50;

/** Bytes per second over the last second or so, from a total that only grows. */
export class ByteRate {
  private readonly samples: { t_ms: number; total: number }[] = [];

  /** Call with each picture. `total`: bytes received so far. */
  perSecond(now_ms: number, total: number): number {
    this.samples.push({ t_ms: now_ms, total });
    while (this.samples.length > 2 && this.samples[0]!.t_ms < now_ms - WINDOW_MS) this.samples.shift();
    const first = this.samples[0]!;
    return now_ms - first.t_ms < MIN_WINDOW_MS ? 0 : (1000 * (total - first.total)) / (now_ms - first.t_ms);
  }
}
