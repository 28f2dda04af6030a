import type { Mode } from '../surgery/surgery';

/** What the hint depends on. */
export interface HintState {
  hasFailed: boolean;
  isReplay: boolean;
  mode: Mode;
  byFinger: boolean;
  /** The tool in the hand, if there is one. */
  held: { hasJaws: boolean; hasPedal: boolean } | undefined;
  /** Some tool can be taken. */
  canTake: boolean;
}

const STROKES: Record<Exclude<Mode, 'hand'>, string> = {
  carve: '<b>Drag</b> over the tissue to carve',
  incise: '<b>Drag</b> along the line of the incision',
  grasp: '<b>Press and drag</b> to grasp and pull',
};

/** One line of HTML, of constants only: what the hand can do next. Empty: nothing worth a line. */
export function hintFor({ hasFailed, isReplay, mode, byFinger, held, canTake }: HintState): string {
  if (hasFailed) return 'The simulation has stopped with an error · <b>Reset</b> it to go on';
  if (isReplay) {
    return byFinger ? '<b>Drag</b> along the time line · <b>Branch</b> to go on from here'
      : '<b>Drag</b> along the time line · <b>J N</b> one step · a replay cannot be changed: <b>Branch</b> to go on from here';
  }
  if (mode !== 'hand') {
    return STROKES[mode] + (byFinger ? ' · <b>beside it</b> to orbit · <b>Two fingers</b> zoom · <b>Hand</b> ends'
      : ' · <b>Wheel + Ctrl</b> or <b>[ ]</b> size · <b>Right drag</b> orbits · <b>R</b> restores the tissue · <b>Esc</b> ends');
  }
  if (held) {
    return byFinger ? '<b>Drag</b> moves the instrument · <b>Two fingers</b> zoom and orbit'
      : '<b>Drag</b> moves the instrument · <b>W S</b> or <b>Shift + wheel</b> push it away and back · <b>Right drag</b> orbits'
      + `${held.hasJaws ? ' · <b>G</b> closes the jaws' : ''}${held.hasPedal ? ' · <b>Space</b> is the pedal' : ''} · <b>T</b> releases`;
  }
  if (!canTake) return '';
  return `${byFinger ? '<b>Tap an instrument</b>' : '<b>Click an instrument</b> or press <b>T</b>'} to take it and push the organ`;
}

/** The line above the transport. */
export class Hint {
  constructor(private readonly root: HTMLElement) {}

  show(state: HintState): void {
    const html = hintFor(state);
    if (this.root.dataset.text === html) return;
    this.root.dataset.text = html;
    this.root.innerHTML = html;
  }
}
