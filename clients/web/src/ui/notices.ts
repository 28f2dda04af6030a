const CODE_NAMES = ['OK', 'CANCELLED', 'UNKNOWN', 'INVALID_ARGUMENT', 'DEADLINE_EXCEEDED', 'NOT_FOUND', 'ALREADY_EXISTS', 'PERMISSION_DENIED',
  'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'ABORTED', 'OUT_OF_RANGE', 'UNIMPLEMENTED', 'INTERNAL', 'UNAVAILABLE', 'DATA_LOSS', 'UNAUTHENTICATED'];

export function codeName(code: number): string {
  return CODE_NAMES[code] ?? `CODE ${code}`;
}

/** Short messages that go away by themselves, the newest first. They lie below `header`, where nothing is to be clicked, and let clicks through. */
export class Toasts {
  constructor(private readonly layer: HTMLElement, header: HTMLElement) {
    const place = () => (layer.style.top = `${header.getBoundingClientRect().bottom + 12}px`);
    new ResizeObserver(place).observe(header);
    place();
  }

  /** `detail`: the words of the server, for scripts and developer tools. */
  show(message: string, options: { title?: string; detail?: string; info?: boolean } = {}): void {
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
    if (options.detail) toast.dataset.detail = options.detail;
    this.layer.prepend(toast);
    while (this.layer.children.length > 4) this.layer.lastElementChild?.remove();
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
