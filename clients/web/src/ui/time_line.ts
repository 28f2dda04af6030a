import { formatSeconds, nameProblem, placeWords } from '../past/words';
import { element } from './panel';
import { TimeTrack, type TrackState } from './time_track';

export interface TimeLineActions {
  /** As often as the hand moves. */
  scrub(position: number): void;
  backToLive(): void;
  branch(): void;
  /** A name that exists moves. */
  bookmark(name: string, position: number): void;
  removeBookmark(name: string): void;
  tell(message: string): void;
}

export interface TimeLineState extends TrackState {
  canGoLive: boolean;
  canBookmark: boolean;
  /** A place is on its way to the picture. */
  isGoing: boolean;
  /** Empty: it does what is recorded. */
  divergence: string;
  /** Why new steps would not outlive the server; empty: they do. */
  durability: string;
}

/** The card of the time line. In a replay it says so, and how to get out of it. Windows without much room fold it while the scene lives. */
export class TimeLine {
  private readonly root = element('timeline');
  private readonly form = element('bookmark-form') as HTMLFormElement;
  private readonly name = element('bookmark-name') as HTMLInputElement;
  private readonly track: TimeTrack;
  private state: TimeLineState | undefined;
  /** The place that is to be named. */
  private naming: { position: number; name: string | undefined; byDefault: string } | undefined;

  constructor(private readonly actions: TimeLineActions) {
    this.track = new TimeTrack((position) => actions.scrub(position));
    const onClick = (id: string, run: () => void) => element(id).addEventListener('click', () => {
      element(id).blur();  // so that the space bar keeps its meaning
      run();
    });
    onClick('b-live', () => actions.backToLive());
    onClick('b-branch', () => actions.branch());
    onClick('b-bookmark', () => (this.naming ? this.closeForm() : this.openForm()));
    onClick('b-fold', () => this.fold(!this.root.classList.contains('folded')));
    onClick('durability', () => actions.tell(durabilityWords(this.state?.durability ?? '')));
    onClick('bookmark-remove', () => this.remove());
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.save();
    });
    this.form.addEventListener('keydown', (event) => {
      event.stopPropagation();  // it is text
      if (event.key === 'Escape') this.closeForm();
    });
  }

  /** Undefined: the watched scene has no past. Call with each picture. */
  show(state: TimeLineState | undefined, now_ms: number): void {
    this.root.hidden = state === undefined;
    document.body.classList.toggle('replay', state?.replayOf !== undefined);
    if (!state || state.replayOf !== this.state?.replayOf) this.closeForm();
    this.state = state;
    if (!state) return;
    const { axis, position, replayOf, divergence, durability } = state;
    this.root.classList.toggle('going', state.isGoing);
    element('replay-head').hidden = replayOf === undefined;
    setText('replay-of', replayOf ?? '');
    setText('replay-place', placeWords(axis, position).replace('step ', 'step\u00a0'));
    setText('replay-divergence', divergence);
    setText('track-time', formatSeconds(axis.timeAt(position)));
    setText('fold-time', formatSeconds(axis.timeAt(position)));
    element('b-live').hidden = !state.canGoLive;
    element('b-bookmark').hidden = !state.canBookmark;
    element('durability').hidden = durability === '';
    element('durability').title = durabilityWords(durability);
    this.track.show(state, now_ms);
  }

  private fold(isFolded: boolean): void {
    this.root.classList.toggle('folded', isFolded);
    element('b-fold').setAttribute('aria-expanded', String(!isFolded));
    if (isFolded) this.closeForm();
  }

  private openForm(): void {
    if (!this.state) return;
    const { axis, position } = this.state;
    const name = axis.bookmarkAt(position);
    this.naming = { position, name, byDefault: placeWords(axis, position) };
    this.name.value = name ?? '';
    this.name.placeholder = this.naming.byDefault;
    element('bookmark-remove').hidden = name === undefined;
    this.form.hidden = false;
    element('b-bookmark').setAttribute('aria-expanded', 'true');
    this.name.select();
    this.name.focus();
  }

  private closeForm(): void {
    if (!this.naming) return;
    this.naming = undefined;
    this.form.hidden = true;
    element('b-bookmark').setAttribute('aria-expanded', 'false');
  }

  private save(): void {
    const { naming } = this;
    if (!naming) return;
    const name = this.name.value.trim() || naming.byDefault;
    const problem = nameProblem(name);
    if (problem !== undefined) {
      this.actions.tell(problem);
      return;
    }
    this.closeForm();
    if (naming.name !== undefined && naming.name !== name) this.actions.removeBookmark(naming.name);
    this.actions.bookmark(name, naming.position);
  }

  private remove(): void {
    const name = this.naming?.name;
    this.closeForm();
    if (name !== undefined) this.actions.removeBookmark(name);
  }
}

function durabilityWords(durability: string): string {
  return durability === '' ? '' : `New steps of this scene would not outlive the server: ${durability}`;
}

function setText(id: string, text: string): void {
  const target = element(id);
  if (target.textContent !== text) target.textContent = text;
}
