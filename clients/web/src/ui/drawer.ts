import type { Stage } from '../view/stage';
import { element } from './panel';

/** Less than this and the panel would take half of the picture: it waits until it is asked for. */
const MIN_WIDTH_WITH_PANEL_PX = 900;
const GAP_PX = 16;

/** The panel comes and goes, and the picture has its middle in what is left of the window. */
export class Drawer {
  private readonly panel = element('panel');
  private wasWide = isWide();

  /** `moved`: what lies over the picture may have to make room. */
  constructor(private readonly stage: Stage, private readonly moved: () => void) {
    window.addEventListener('resize', () => this.onResize());
  }

  /** As the window has room for it. */
  start(): void {
    this.show(this.wasWide);
  }

  show(isShown: boolean): void {
    const { panel } = this;
    panel.classList.toggle('away', !isShown);
    panel.inert = !isShown;
    document.body.classList.toggle('with-panel', isShown);
    element('b-panel').setAttribute('aria-expanded', String(isShown));
    // A sheet lies below the picture, not beside it.
    const isBeside = panel.offsetWidth < 0.6 * window.innerWidth;
    const right_px = isShown && isBeside ? panel.offsetWidth + GAP_PX : 0;
    const bottom_px = isShown && !isBeside ? window.innerHeight - panel.offsetTop : 0;
    this.stage.setInsets(right_px, bottom_px);
    this.moved();
  }

  toggle(): void {
    this.show(!this.isShown);
  }

  private get isShown(): boolean {
    return !this.panel.classList.contains('away');
  }

  private onResize(): void {
    const wide = isWide();
    this.show(wide === this.wasWide ? this.isShown : wide);
    this.wasWide = wide;
    this.stage.resize();
    this.moved();
  }
}

function isWide(): boolean {
  return window.innerWidth > MIN_WIDTH_WITH_PANEL_PX;
}
