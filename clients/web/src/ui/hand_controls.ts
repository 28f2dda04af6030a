import { holdButton } from './panel';

/** What a hand without keys needs for the instrument that it holds. */
export interface HandActions {
  setJaws(closed: boolean): void;
  setPedal(down: boolean): void;
  /** Moves the instrument along the view while `on`. */
  push(direction: 'away' | 'closer', on: boolean): void;
  release(): void;
}

/** Which buttons there are: of no instrument none. */
export interface InHand {
  hasJaws: boolean;
  hasPedal: boolean;
}

/** Buttons above the transport, in reach of a thumb while the picture is in view. The style sheet shows them to fingers only. */
export class HandControls {
  private shown = '';

  constructor(private readonly root: HTMLElement, private readonly actions: HandActions) {}

  show(held: InHand | undefined): void {
    const wanted = held ? `${held.hasJaws} ${held.hasPedal}` : '';
    if (wanted === this.shown) return;
    this.shown = wanted;
    this.root.hidden = !held;
    this.root.replaceChildren();
    const { actions } = this;
    for (const direction of ['away', 'closer'] as const) actions.push(direction, false);  // whose button may have gone under the finger
    if (!held) return;
    if (held.hasJaws) this.root.append(holdButton('Jaws', 'Hold to close the jaws', (on) => actions.setJaws(on)));
    if (held.hasPedal) this.root.append(holdButton('Pedal', 'Hold to press the pedal', (on) => actions.setPedal(on)));
    const release = document.createElement('button');
    release.textContent = 'Release';
    release.addEventListener('click', () => actions.release());
    this.root.append(
      holdButton('Push', 'Hold to move the instrument away', (on) => actions.push('away', on)),
      holdButton('Pull', 'Hold to move the instrument closer', (on) => actions.push('closer', on)),
      release,
    );
  }
}
