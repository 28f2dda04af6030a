const CODE_NAMES = ['OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS', 'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED', 'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED'];

export function codeName(code: number): string {
  return CODE_NAMES[code] ?? `CODE ${code}`;
}

/** Of the window, in CSS pixels. */
export interface Room {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

const MAX_TOASTS = 4;
const MAX_WIDTH_PX = 380;

/** Short messages that go away by themselves, the newest first. They lie where nothing is to be clicked, and let clicks through. */
export class Toasts {
  /** `room`: where they may lie now. */
  constructor(private readonly layer: HTMLElement, private readonly room: () => Room) {}

  /** To be called when the room may be another. Messages that it has no place for go: the oldest first, the newest never. */
  place(): void {
    const { left, top, right, bottom } = this.room();
    const { style } = this.layer;
    style.left = `${left}px`;
    style.top = `${top}px`;
    style.width = `${Math.min(MAX_WIDTH_PX, right - left)}px`;
    style.maxHeight = `${Math.max(0, bottom - top)}px`;
    while (this.layer.children.length > 1 && (this.layer.children.length > MAX_TOASTS || this.layer.scrollHeight > bottom - top + 1)) this.layer.lastElementChild?.remove();
  }

  /** `detail`: the words of the server, for scripts and developer tools; `small`: what of it is shown. */
  show(message: string, options: { title?: string; detail?: string; small?: string; info?: boolean } = {}): void {
    const same = Array.from(this.layer.children).find((child) => (child as HTMLElement).dataset.message === message);
    same?.remove();
    const toast = document.createElement('div');
    toast.className = options.info ? 'toast info' : 'toast';
    toast.dataset.message = message;
    if (options.title) {
      const title = document.createElement('b');
      title.textContent = options.title;
      toast.append(title);
    }
    toast.append(message);
    if (options.small) {
      const small = document.createElement('small');
      small.textContent = options.small;
      toast.append(' ', small);
    }
    if (options.detail) toast.dataset.detail = options.detail;
    this.layer.prepend(toast);
    this.place();
    setTimeout(() => toast.remove(), options.info ? 3500 : 7000);
  }
}

/** Covers the view while there is nothing to see. */
export class Overlay {
  private action: (() => void) | undefined;

  constructor(private readonly root: HTMLElement) {
    root.querySelector('button')!.addEventListener('click', () => this.action?.());
  }

  get shown(): boolean {
    return !this.root.hidden;
  }

  show(title: string, text: string, button?: { label: string; run: () => void }): void {
    this.root.hidden = false;
    this.root.querySelector('h1')!.textContent = title;
    this.root.querySelector('p')!.textContent = text;
    const element = this.root.querySelector('button')!;
    element.hidden = !button;
    element.textContent = button?.label ?? '';
    this.action = button?.run;
  }

  hide(): void {
    this.root.hidden = true;
  }
}
