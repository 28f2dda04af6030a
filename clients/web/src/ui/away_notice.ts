import type { ConnectionState } from '../net/connection';
import type { Overlay } from './notices';
import { explain } from './refusals';

/** Covers the view while the server is away: why, and when it is tried again. */
export class AwayNotice {
  constructor(private readonly overlay: Overlay, private readonly retry: () => void) {}

  /** Call with each picture: the seconds run down. */
  show(state: ConnectionState): void {
    if (state.kind !== 'waiting') return;
    const left_s = Math.max(0, Math.ceil((state.retryAtMs - performance.now()) / 1000));
    const reason = state.reason ? `${explain(undefined, state.reason).sentence} ` : '';
    this.overlay.show('Server away', `${reason}Trying again in ${left_s} s …`, { label: 'Try now', run: this.retry });
  }
}
