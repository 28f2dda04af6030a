import { MODE_SIZES, type Mode, type Surgery } from '../surgery/surgery';
import { element } from './panel';

/** In the order of their keys. */
export const MODES: readonly Mode[] = ['hand', 'carve', 'incise', 'grasp'];

/** What the left button does, and how large it works. Shows the mode of the surgery; changes go through here. */
export class ModeBar {
  private readonly slider = element('size') as HTMLInputElement;
  /** Why tissue cannot be worked on; empty: it can. */
  private lock = '';

  /** `tell`: why a mode is not to be had. */
  constructor(private readonly surgery: Surgery, private readonly canvas: HTMLCanvasElement, private readonly tell: (message: string) => void) {
    for (const mode of MODES) {
      element(`m-${mode}`).addEventListener('click', () => {
        element(`m-${mode}`).blur();
        this.setMode(mode);
      });
    }
    this.slider.addEventListener('input', () => {
      surgery.setSlide(this.slider.valueAsNumber);
      this.showSize();
    });
    this.slider.addEventListener('change', () => this.slider.blur());
  }

  /** `why`: in words for the user; empty: all modes are to be had. */
  setLock(why: string): void {
    if (why === this.lock) return;
    this.lock = why;
    for (const mode of MODES) {
      const button = element(`m-${mode}`);
      if (mode !== 'hand') button.setAttribute('aria-disabled', String(why !== ''));
      button.dataset.title ??= button.title;
      button.title = why !== '' && mode !== 'hand' ? why : button.dataset.title;
    }
    if (why !== '' && this.surgery.mode !== 'hand') this.setMode('hand');
  }

  setMode(mode: Mode): void {
    if (this.lock !== '' && mode !== 'hand') {
      this.tell(this.lock);
      return;
    }
    this.surgery.setMode(mode);
    for (const one of MODES) element(`m-${one}`).setAttribute('aria-pressed', String(one === mode));
    this.canvas.dataset.mode = mode;
    this.showSize();
  }

  /** `by`: share of the slider's length. */
  changeSize(by: number): void {
    this.surgery.setSlide(this.surgery.slide + by);
    this.showSize();
  }

  /** Radius, depth or reach of the mode. */
  setSize(size_m: number): void {
    this.surgery.setSize(size_m);
    this.showSize();
  }

  private showSize(): void {
    const { mode } = this.surgery;
    element('size-box').hidden = mode === 'hand';
    if (mode === 'hand') return;
    this.slider.value = String(this.surgery.slide);
    element('size-label').textContent = MODE_SIZES[mode].label;
    element('size-value').textContent = `${(1000 * this.surgery.size_m).toFixed(1)} mm`;
  }
}
