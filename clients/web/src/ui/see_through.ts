import * as THREE from 'three';
import type { SceneView } from '../view/scene_view';

const DIRECTIONS: Record<string, THREE.Vector3 | undefined> = {
  'No section': undefined,
  'From the right': new THREE.Vector3(-1, 0, 0),
  'From the left': new THREE.Vector3(1, 0, 0),
  'From the back': new THREE.Vector3(0, -1, 0),
  'From the front': new THREE.Vector3(0, 1, 0),
  'From above': new THREE.Vector3(0, 0, -1),
};

/** The plane that takes `share` of a box away, from the side that `normal` points away from; what it keeps is on the side of its normal. */
export function sectionOf(box: THREE.Box3, normal: THREE.Vector3, share: number): THREE.Plane {
  const center = box.getCenter(new THREE.Vector3());
  const size = box.getSize(new THREE.Vector3());
  const half_m = 0.5 * (Math.abs(normal.x) * size.x + Math.abs(normal.y) * size.y + Math.abs(normal.z) * size.z);
  return new THREE.Plane().setFromNormalAndCoplanarPoint(normal, center.addScaledVector(normal, (2 * share - 1) * half_m));
}

/** Controls that show what lies inside: a plane that cuts the picture, and how opaque each body is. */
export class SeeThrough {
  private readonly direction = document.createElement('select');
  private readonly share = slider('Where the section is', 0.5);
  private shown = '';

  constructor(private readonly root: HTMLElement, private readonly view: SceneView, private readonly redraw: () => void) {
    this.direction.append(...Object.keys(DIRECTIONS).map((name) => new Option(name)));
    this.direction.setAttribute('aria-label', 'Section');
    for (const control of [this.direction, this.share]) control.addEventListener('input', () => this.cut());
  }

  /** Another scene: all of it is shown. */
  reset(): void {
    this.direction.selectedIndex = 0;
    this.share.value = '0.5';
    this.view.forgetSeeThrough();
    this.shown = '';
  }

  /** Call when the bodies may be others. */
  update(): void {
    const names = this.view.organs.map((organ) => organ.name);
    if (names.join('\n') === this.shown) return;
    this.shown = names.join('\n');
    const opacities = names.flatMap((name) => {
      const input = slider(`How opaque ${name} is`, this.view.opacityOf(name));
      input.addEventListener('input', () => {
        this.view.setOpacity(name, input.valueAsNumber);
        this.redraw();
      });
      const label = document.createElement('span');
      label.textContent = name;
      return [label, input];
    });
    this.root.replaceChildren(this.direction, this.share, ...opacities);
  }

  private cut(): void {
    const normal = DIRECTIONS[this.direction.value];
    const box = new THREE.Box3();
    if (normal) for (const organ of this.view.organs) organ.expandBox(box);
    this.view.setSection(normal && sectionOf(box, normal, this.share.valueAsNumber));
    this.redraw();
  }
}

function slider(label: string, value: number): HTMLInputElement {
  const input = document.createElement('input');
  input.type = 'range';
  input.min = '0';
  input.max = '1';
  input.step = '0.01';
  input.value = String(value);
  input.title = label;
  input.setAttribute('aria-label', label);
  return input;
}
