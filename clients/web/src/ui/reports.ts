import { ServerError } from '../net/connection';
import { Toasts, type Room } from './notices';
import { element } from './panel';
import { explain } from './refusals';

const GAP_PX = 12;

/** Between header, modes, transport and panel: where nothing is to be clicked. */
function roomForToasts(): Room {
  const panel = element('panel');
  const isShown = !panel.classList.contains('away');
  const isSheet = panel.offsetWidth > 0.6 * window.innerWidth;
  // Where the panel is, not where it is on its way.
  const right = isShown && !isSheet ? panel.offsetLeft : window.innerWidth;
  const modes = Math.max(0, ...Array.from(element('modes').children, (child) => child.getBoundingClientRect().right));
  return {
    left: modes + GAP_PX,
    top: element('top').getBoundingClientRect().bottom + GAP_PX,
    right: right - GAP_PX,
    bottom: Math.min(element('bottom').getBoundingClientRect().top, isShown && isSheet ? panel.offsetTop : Infinity) - GAP_PX,
  };
}

/** What the user is told in passing. Failures are kept for scripts, too. */
export class Reports {
  /** Of this page so far, each with what was tried. */
  readonly errors: string[] = [];
  private readonly toasts = new Toasts(element('toasts'), roomForToasts);

  constructor() {
    const moved = new ResizeObserver(() => this.place());
    for (const id of ['top', 'modes', 'size-box', 'bottom', 'panel', 'view']) moved.observe(element(id));
  }

  /** Something of what was tried did not work. */
  report(what: string, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.errors.push(`${what}: ${message}`);
    const { sentence, small, detail } = explain(error instanceof ServerError ? error.code : undefined, message);
    console.info(`${what}: ${detail}`);
    this.toasts.show(sentence, { title: what, small, detail });
  }

  /** News that are no failure. */
  tell(message: string, title?: string): void {
    this.toasts.show(message, { title, info: true });
  }

  /** Call when what lies around the messages has moved. */
  place(): void {
    this.toasts.place();
  }
}
