/** Something that is on or off, with its key. */
export interface Toggle {
  label: string;
  /** Lower case. */
  key: string;
  get(): boolean;
  set(on: boolean): void;
}

/** Check boxes that keys can flip, too. */
export class Toggles {
  private readonly byKey = new Map<string, { toggle: Toggle; input: HTMLInputElement }>();

  constructor(root: HTMLElement, toggles: Toggle[]) {
    for (const toggle of toggles) {
      const label = document.createElement('label');
      const input = document.createElement('input');
      input.type = 'checkbox';
      input.checked = toggle.get();
      input.addEventListener('change', () => {
        toggle.set(input.checked);
        input.blur();
      });
      label.append(input, toggle.label);
      label.title = `${toggle.label} (${toggle.key.toUpperCase()})`;
      root.append(label);
      this.byKey.set(toggle.key, { toggle, input });
    }
  }

  /** False: it is no key of these. */
  flip(key: string): boolean {
    const found = this.byKey.get(key);
    if (!found) return false;
    found.toggle.set(!found.toggle.get());
    found.input.checked = found.toggle.get();
    return true;
  }
}
