/** Time that passes when the test says so. */
export class FakeClock {
  private now_ms = 0;
  private handles = 0;
  private timers: { run: () => void; at_ms: number; handle: number }[] = [];

  setTimeout(run: () => void, ms: number): number {
    this.timers.push({ run, at_ms: this.now_ms + ms, handle: ++this.handles });
    return this.handles;
  }

  clearTimeout(handle: unknown): void {
    this.timers = this.timers.filter((timer) => timer.handle !== handle);
  }

  now(): number {
    return this.now_ms;
  }

  get waiting(): number {
    return this.timers.length;
  }

  /** Runs what is due meanwhile, in order. */
  advance(ms: number): void {
    const until_ms = this.now_ms + ms;
    for (;;) {
      const next = this.timers.filter((timer) => timer.at_ms <= until_ms).sort((a, b) => a.at_ms - b.at_ms)[0];
      if (!next) break;
      this.now_ms = Math.max(this.now_ms, next.at_ms);
      this.clearTimeout(next.handle);
      next.run();
    }
    this.now_ms = until_ms;
  }
}
