import { RunState } from '../../generated/palpate/v1/control_pb';
import type { ConnectionState } from '../net/connection';
import { element } from './panel';

export interface Status {
  connection: ConnectionState['kind'];
  runState: RunState;
  /** Why the scene has failed; empty: it has not. */
  failure: string;
  isWatching: boolean;
  isReplay: boolean;
}

const CONNECTION_PILLS: Record<ConnectionState['kind'], { label: string; color: string }> = {
  connecting: { label: 'Connecting', color: 'warn' },
  open: { label: 'Connected', color: 'good' },
  waiting: { label: 'Server away', color: 'bad' },
};

const RUN_PILLS: Record<RunState, { label: string; color: string }> = {
  [RunState.UNSPECIFIED]: { label: '', color: '' },
  [RunState.PAUSED]: { label: 'Paused', color: 'warn' },
  [RunState.PLAYING]: { label: 'Playing', color: 'good' },
  [RunState.FAILED]: { label: 'Stopped', color: 'bad' },
};

/** The pills at the top, and which buttons of the transport can be pressed. */
export class StatusBar {
  private loggedFailure = '';

  show({ connection, runState, failure, isWatching, isReplay }: Status): void {
    showPill(element('connection'), CONNECTION_PILLS[connection]);
    const run = element('run-state');
    const pill = RUN_PILLS[runState] ?? RUN_PILLS[RunState.UNSPECIFIED];
    showPill(run, pill);
    run.hidden = !pill.label || connection !== 'open';
    const hasFailed = runState === RunState.FAILED;
    run.title = hasFailed ? failure : '';
    if (hasFailed && failure !== '' && failure !== this.loggedFailure) console.info(`The scene has failed: ${failure}`);
    this.loggedFailure = failure;

    const isPlaying = runState === RunState.PLAYING;
    const play = element('b-play');
    play.classList.toggle('playing', isPlaying);
    play.setAttribute('aria-label', isPlaying ? 'Pause' : 'Play');
    const isOff = connection !== 'open' || !isWatching;
    for (const [id, isDisabled] of [['b-play', isOff || hasFailed], ['b-step', isOff || isPlaying], ['b-back', isOff || isPlaying],
      ['b-reset', isOff]] as const) {
      (element(id) as HTMLButtonElement).disabled = isDisabled;
    }
    element('b-back').hidden = !isReplay;
    element('b-reset').title = isReplay ? 'To the start of the recording (R)' : 'Back to the start (R)';
  }
}

function showPill(root: HTMLElement, { label, color }: { label: string; color: string }): void {
  root.className = `pill ${color}`;
  root.querySelector('span')!.textContent = label;
}
