import type { KeyMotion } from '../hand/key_motion';
import type { ToolInHand } from '../hand/tool_in_hand';
import type { Mode } from '../surgery/surgery';
import { MODES } from '../ui/mode_bar';
import type { Toggles } from '../ui/toggles';
import { SIZE_STEP } from './pointer_input';

/** What keys do beside moving the tool and flipping toggles. */
export interface KeyActions {
  togglePlay(): void;
  step(): void;
  /** Of replays. */
  stepBack(): void;
  reset(): void;
  fit(): void;
  takeOrRelease(): void;
  setMode(mode: Mode): void;
  /** `by`: share of the way from the smallest to the largest cut. */
  changeSize(by: number): void;
  togglePanel(): void;
  toggleHelp(): void;
  /** Escape: ends what is in front, help before modes. */
  leave(): void;
}

/** The keys of the page; those of a list that is open, and those of the browser, stay theirs. */
export class Keyboard {
  private readonly commands: ReadonlyMap<string, () => void>;

  constructor(
    private readonly motion: KeyMotion,
    private readonly inHand: ToolInHand,
    private readonly toggles: Toggles,
    actions: KeyActions,
  ) {
    this.commands = new Map([
      [' ', () => (inHand.hasPedal ? inHand.setPedal(true) : actions.togglePlay())],
      ['g', () => inHand.setJaws(true)],
      ...MODES.map((mode, index): [string, () => void] => [String(index + 1), () => actions.setMode(mode)]),
      ['[', () => actions.changeSize(-SIZE_STEP)],
      [']', () => actions.changeSize(SIZE_STEP)],
      ['n', () => actions.step()],
      ['j', () => actions.stepBack()],
      ['r', () => actions.reset()],
      ['t', () => actions.takeOrRelease()],
      ['f', () => actions.fit()],
      ['p', () => actions.togglePanel()],
      ['?', () => actions.toggleHelp()],
      ['h', () => actions.toggleHelp()],
      ['escape', () => actions.leave()],
    ]);
    window.addEventListener('keydown', (event) => this.onDown(event));
    window.addEventListener('keyup', (event) => this.onUp(event));
    window.addEventListener('blur', () => this.letGo());
  }

  private onDown(event: KeyboardEvent): void {
    if (event.target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
    const key = event.key.toLowerCase();
    this.motion.set(key, true);
    if (event.repeat) return;
    const command = this.commands.get(key);
    if (command) command();
    else if (!this.toggles.flip(key)) return;
    event.preventDefault();
  }

  private onUp(event: KeyboardEvent): void {
    const key = event.key.toLowerCase();
    this.motion.set(key, false);
    if (key === ' ') this.inHand.setPedal(false);
    if (key === 'g') this.inHand.setJaws(false);
  }

  /** The page does not hear keys any more: none counts as held. */
  private letGo(): void {
    this.motion.clear();
    this.inHand.setJaws(false);
    this.inHand.setPedal(false);
  }
}
