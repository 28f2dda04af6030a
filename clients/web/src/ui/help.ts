const SHORTCUTS: [string, string][] = [
  ['Space', 'play or pause'], ['N', 'one step'], ['J', 'in a replay: one step back'], ['R', 'reset'], ['T', 'take or release the instrument'],
  ['Left drag', 'orbit; with an instrument: move it'], ['Right drag', 'pan; with an instrument: orbit'], ['Wheel', 'zoom'],
  ['Shift + wheel', 'push the instrument along the view'], ['W S', 'push, pull the instrument'], ['Arrows', 'move the instrument'],
  ['Q E · A D', 'turn the instrument'], ['G', 'hold: close the jaws'], ['Space', 'with a hook or aspirator: hold for the pedal'],
  ['1 2 3 4', 'hand, carve, incise, grasp'], ['[ ]', 'size of the cut'], ['F', 'show everything'], ['M', 'wireframe'],
  ['C', 'contacts, to look into the solver'], ['K', 'with contacts: their normals'], ['V', 'force arrows'], ['L', 'markers'],
  ['B', 'low bandwidth'], ['P', 'panel'],
  ['Time line', 'drag to see what was; arrows: steps, with Shift seconds; Page: events'], ['?', 'this help'],
  ['One finger', 'as the left button: orbits, moves the instrument, cuts'],
  ['Two fingers', 'zoom and pan; with an instrument: zoom and orbit'],
  ['Buttons', 'below, for fingers: jaws, pedal, push and pull of the instrument'],
];

/** The list of mouse, keys and fingers over everything else. */
export class Help {
  constructor(private readonly root: HTMLElement) {
    root.querySelector('.columns')!.append(...SHORTCUTS.map(([keys, meaning]) => {
      const row = document.createElement('div');
      const key = document.createElement('kbd');
      key.textContent = keys;
      row.append(key, meaning);
      return row;
    }));
    root.querySelector('button')!.addEventListener('click', () => this.hide());
    root.addEventListener('click', (event) => {
      if (event.target === root) this.hide();
    });
  }

  get isShown(): boolean {
    return !this.root.hidden;
  }

  toggle(): void {
    this.root.hidden = !this.root.hidden;
  }

  hide(): void {
    this.root.hidden = true;
  }
}
