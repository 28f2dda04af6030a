import * as THREE from 'three';
import type { SceneView } from '../view/scene_view';
import { foldArrays, rowLabel } from './arrays';

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

/** What lies inside: a plane that cuts the picture, and how opaque each body is. An array of bodies is one row that opens. */
export class SeeThrough {
  private readonly direction = document.createElement('select');
  private readonly share = slider('Where the section is', 0.5);
  private shown = '';
  /** Labels of the arrays whose bodies are listed. */
  private readonly opened = new Set<string>();

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
    this.opened.clear();
    this.shown = '';
  }

  /** Call when the bodies may be others. */
  update(): void {
    const bodies = this.view.organs.map(({ name, surface }) => ({ name, vertexCount: surface.vertexCount, triangleCount: surface.liveCount }));
    const rows = foldArrays(bodies).map((row) => ({ label: rowLabel(row), names: row.map(({ name }) => name) }));
    const wanted = rows.map(({ names }) => names.join('\n')).join('\n\n');
    if (wanted === this.shown) return;
    this.shown = wanted;
    const controls = rows.flatMap(({ label, names }) => (names.length === 1 ? this.bodyRow(label) : this.arrayRow(label, names)));
    this.root.replaceChildren(this.direction, this.share, ...controls);
  }

  /** `changed`: of the array that the body is listed under. */
  private bodyRow(name: string, changed?: () => void): HTMLElement[] {
    const label = document.createElement('span');
    label.textContent = name;
    const input = slider(`How opaque ${name} is`, this.view.opacityOf(name));
    input.addEventListener('input', () => {
      this.setOpacity([name], input);
      changed?.();
    });
    return [label, input];
  }

  private arrayRow(label: string, names: string[]): HTMLElement[] {
    const mean = () => names.reduce((sum, name) => sum + this.view.opacityOf(name), 0) / names.length;
    const all = slider(`How opaque these are: ${label}`, mean());
    const members = document.createElement('div');
    members.className = 'members';
    const button = document.createElement('button');
    button.className = 'array';
    button.textContent = label;
    const list = () => {
      const isOpen = this.opened.has(label);
      button.setAttribute('aria-expanded', String(isOpen));
      members.hidden = !isOpen;
      // The rows of a closed array do not exist: there may be thousands.
      members.replaceChildren(...(isOpen ? names.flatMap((name) => this.bodyRow(name, () => (all.value = String(mean())))) : []));
    };
    button.addEventListener('click', () => {
      button.blur();  // so that the space bar keeps its meaning
      if (!this.opened.delete(label)) this.opened.add(label);
      list();
    });
    all.addEventListener('input', () => {
      this.setOpacity(names, all);
      for (const input of members.querySelectorAll('input')) input.value = all.value;
    });
    list();
    return [button, all, members];
  }

  private setOpacity(names: string[], input: HTMLInputElement): void {
    this.view.setOpacity(names, input.valueAsNumber);
    this.redraw();
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
