import type { SceneInfo } from '../../generated/palpate/v1/control_pb';
import { type Frame, SurfaceContactKind, type ToolShape } from '../../generated/palpate/v1/stream_pb';
import type { ToolOwner } from '../hand/tools';
import { REPLAY_IS_FIXED } from '../past/words';
import { CONTACT_COLORS, type ContactKind, NO_TOOL } from '../view/contact_layer';
import { ACTIVITY_COLORS, ACTIVITY_LABELS, hasJaws, hasPedal, mainActivity, TOOL_COLORS } from '../view/tool_model';
import { History, StageGraph } from './graphs';

const count = new Intl.NumberFormat('en');

export function formatTime(time_s: number): string {
  if (time_s < 60) return `${time_s.toFixed(2)} s`;
  const minutes = Math.floor(time_s / 60);
  return `${minutes} min ${(time_s - 60 * minutes).toFixed(1)} s`;
}

export function formatBytesPerSecond(rate: number): string {
  if (rate >= 1e6) return `${(rate / 1e6).toFixed(2)} MB/s`;
  if (rate >= 1e3) return `${(rate / 1e3).toFixed(1)} kB/s`;
  return `${rate.toFixed(0)} B/s`;
}

export function formatPressure(pressure_pa: number): string {
  return Math.abs(pressure_pa) < 1000 ? `${pressure_pa.toFixed(0)} Pa` : `${(pressure_pa / 1000).toFixed(2)} kPa`;
}

/** Contacts of each kind. */
export function countKinds(frame: Frame): Record<ContactKind, number> {
  const counts: Record<ContactKind, number> = { tool: 0, obstacle: 0, 'vertex-triangle': 0, 'edge-edge': 0 };
  for (const contact of frame.contacts) ++counts[contact.toolIndex === NO_TOOL ? 'obstacle' : 'tool'];
  for (const contact of frame.surfaceContacts) ++counts[contact.kind === SurfaceContactKind.EDGE_EDGE ? 'edge-edge' : 'vertex-triangle'];
  return counts;
}

const KIND_LABELS: Record<ContactKind, string> = {
  tool: 'instruments', obstacle: 'obstacles', 'vertex-triangle': 'vertices', 'edge-edge': 'edges',
};

/** What the buttons of the panel do. */
export interface ToolActions {
  toggle(index: number): void;
  /** Of the instrument in the hand. */
  setJaws(closed: boolean): void;
  setPedal(down: boolean): void;
}

interface ToolRow {
  owner: HTMLElement;
  activity: HTMLElement;
  controls: HTMLElement;
  force: HTMLElement;
  button: HTMLButtonElement;
  history: History;
}

/** The statistics on the right. Texts change a few times a second, graphs with every picture. */
export class Panel {
  readonly stages: StageGraph;
  private tools: ToolRow[] = [];
  /** Name of the scene, and its tools. */
  private loadedFor = '';
  private readonly kinds = new Map<ContactKind, HTMLElement>();
  private lastText_ms = 0;

  constructor(private readonly actions: ToolActions) {
    this.stages = new StageGraph(element('stages') as HTMLCanvasElement, element('stage-legend'));
    for (const [kind, label] of Object.entries(KIND_LABELS) as [ContactKind, string][]) {
      const row = make('div', '');
      const dot = make('i', '');
      dot.style.background = `#${CONTACT_COLORS[kind][1].toString(16).padStart(6, '0')}`;
      const value = make('b', '');
      value.textContent = '0';
      row.append(dot, label, value);
      element('contact-kinds').append(row);
      this.kinds.set(kind, value);
    }
  }

  load(info: SceneInfo | undefined, triangleCount: number, tools: ToolShape[]): void {
    this.setTets(info);
    this.setTriangles(triangleCount);
    // Going back in time is a new copy of the same: its graphs go on, and what is focused stays.
    const key = [info?.name, ...tools.map((tool) => `${tool.name} ${hasJaws(tool)} ${hasPedal(tool)}`)].join('\n');
    if (key === this.loadedFor) return;
    this.loadedFor = key;
    this.stages.clear();
    element('tools-card').hidden = tools.length === 0;
    const rows = tools.map((tool, index) => this.toolRow(tool, index));
    element('tools').replaceChildren(...rows.map((row) => row.root));
    this.tools = rows.map((row) => row.tool);
  }

  setTets(info: SceneInfo | undefined): void {
    element('s-tets').textContent = count.format(info?.bodies.reduce((sum, body) => sum + body.tetCount, 0) ?? 0);
  }

  setTriangles(triangleCount: number): void {
    element('s-triangles').textContent = count.format(triangleCount);
  }

  addFrame(frame: Frame, now_s: number): void {
    if (frame.stats && frame.stats.stages.length > 0 && frame.step > 0n) this.stages.add(frame.stats);
    for (const [index, row] of this.tools.entries()) {
      const force = frame.tools[index]?.forceN;
      row.history.add(now_s, force ? Math.hypot(force.x, force.y, force.z) : 0);
    }
  }

  /** `bodyNames`: of frame.bodies. */
  draw(frame: Frame | undefined, bodyNames: string[], owners: ToolOwner[], rates: { fps: number; bytesPerSecond: number }, now_s: number): void {
    this.stages.draw();
    for (const row of this.tools) row.history.draw(now_s);
    if (now_s * 1000 - this.lastText_ms < 120) return;
    this.lastText_ms = now_s * 1000;
    element('s-fps').textContent = rates.fps.toFixed(0);
    element('s-bytes').textContent = formatBytesPerSecond(rates.bytesPerSecond);
    if (!frame) return;
    const stats = frame.stats;
    element('s-rate').textContent = stats ? stats.stepsPerS.toFixed(stats.stepsPerS < 10 ? 1 : 0) : '–';
    element('s-step-ms').textContent = stats ? stats.stepMs.toFixed(stats.stepMs < 10 ? 2 : 1) : '–';
    element('s-summary').textContent = stats ? `${stats.stepsPerS.toFixed(0)} steps/s · ${stats.stepMs.toFixed(1)} ms` : '';
    element('stage-total').textContent = stats ? `${stats.stepMs.toFixed(2)} ms` : '';
    element('s-time').textContent = formatTime(frame.simTimeS);
    element('s-step').textContent = count.format(frame.step);
    element('s-overruns').textContent = count.format(stats?.overruns ?? 0n);
    element('s-overruns').classList.toggle('alert', (stats?.overruns ?? 0n) > 0n);
    element('s-dropped').textContent = count.format(frame.dropped);
    this.drawContact(frame);
    this.drawPressures(frame, bodyNames);
    for (const [index, row] of this.tools.entries()) {
      const owner = owners[index] ?? 'free';
      const force = frame.tools[index]?.forceN;
      row.force.firstChild!.textContent = (force ? Math.hypot(force.x, force.y, force.z) : 0).toFixed(2);
      row.owner.className = `tool-owner ${owner}`;
      row.owner.textContent = { free: 'free', you: 'in your hand', station: 'in somebody else\'s hand', taking: 'taking …', past: 'replayed' }[owner];
      const activity = mainActivity(frame.tools[index]?.activities ?? []);
      row.activity.textContent = ACTIVITY_LABELS[activity];
      row.activity.style.color = `#${ACTIVITY_COLORS[activity].toString(16).padStart(6, '0')}`;
      row.controls.hidden = owner !== 'you';
      row.button.textContent = owner === 'you' ? 'Release' : owner === 'station' ? 'In use' : owner === 'past' ? 'Replayed' : 'Take tool';
      row.button.disabled = owner === 'station' || owner === 'taking' || owner === 'past';
      row.button.title = owner === 'past' ? REPLAY_IS_FIXED : '';
      row.button.className = owner === 'you' ? 'held' : 'primary';
    }
  }

  private drawContact(frame: Frame): void {
    element('contact-total').textContent = count.format(frame.contacts.length + frame.surfaceContacts.length);
    const counts = countKinds(frame);
    for (const [kind, value] of this.kinds) value.textContent = count.format(counts[kind]);
    const stats = frame.stats?.contact;
    // A scene of one body that cannot touch itself has nothing to say here.
    element('contact-facts').hidden = !stats || (stats.detectionCount === 0 && !stats.intersectionsChecked);
    if (!stats) return;
    element('c-pairs').textContent = count.format(stats.contactCount);
    element('c-held').textContent = count.format(stats.truncatedVertices);
    element('c-intersections').textContent = stats.intersectionsChecked ? count.format(stats.intersectionCount) : 'not counted';
    element('c-intersections').classList.toggle('alert', stats.intersectionCount > 0);
    element('c-time').textContent = `${(stats.detectMs + stats.filterMs).toFixed(2)} ms`;
  }

  /** Of bodies that keep their volume. */
  private drawPressures(frame: Frame, bodyNames: string[]): void {
    const rows = frame.bodies.flatMap((body, index) => {
      if (body.pressurePa === undefined) return [];
      const name = make('dt', ''), value = make('dd', '');
      name.textContent = bodyNames[index] ?? '';
      value.textContent = formatPressure(body.pressurePa);
      return [name, value];
    });
    element('pressure-card').hidden = rows.length === 0;
    element('pressures').replaceChildren(...rows);
  }

  private toolRow(shape: ToolShape, index: number): { root: HTMLElement; tool: ToolRow } {
    const { name } = shape;
    const color = `#${TOOL_COLORS[index % TOOL_COLORS.length]!.toString(16).padStart(6, '0')}`;
    const root = make('div', 'tool');
    const head = make('div', 'tool-head');
    const swatch = make('i', '');
    swatch.style.background = color;
    const title = make('span', 'tool-name');
    title.textContent = name;
    const owner = make('span', 'tool-owner');
    const force = make('span', 'tool-force');
    const unit = make('small', '');
    unit.textContent = ' N';
    force.append('0.00', unit);
    const who = make('div', 'tool-who');
    const activity = make('span', 'tool-activity');
    who.append(title, owner, activity);
    head.append(swatch, who, force);
    const canvas = document.createElement('canvas');
    canvas.className = 'graph';
    const button = document.createElement('button');
    button.dataset.tool = name;
    button.addEventListener('click', () => {
      button.blur();  // so that the space bar keeps its meaning
      this.actions.toggle(index);
    });
    const controls = make('div', 'tool-controls');
    controls.hidden = true;
    if (hasJaws(shape)) controls.append(holdButton('Jaws', 'Hold to close the jaws (G)', (on) => this.actions.setJaws(on)));
    if (hasPedal(shape)) controls.append(holdButton('Pedal', 'Hold to press the pedal (Space)', (on) => this.actions.setPedal(on)));
    root.append(head, canvas, controls, button);
    return { root, tool: { owner, activity, controls, force, button, history: new History(canvas, color, 'N') } };
  }
}

/** A button that is on while it is pressed, by a finger too: a long press is no wish for a menu. */
export function holdButton(text: string, title: string, onChange: (on: boolean) => void): HTMLButtonElement {
  const button = document.createElement('button');
  button.className = 'hold';
  button.textContent = text;
  button.title = title;
  button.addEventListener('contextmenu', (event) => event.preventDefault());
  const set = (on: boolean) => {
    button.classList.toggle('held', on);
    onChange(on);
  };
  button.addEventListener('pointerdown', (event) => {
    button.setPointerCapture(event.pointerId);
    set(true);
  });
  for (const end of ['pointerup', 'pointercancel', 'lostpointercapture'] as const) {
    button.addEventListener(end, () => {
      button.blur();  // so that the space bar keeps its meaning
      set(false);
    });
  }
  return button;
}

export function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found;
}

function make(tag: string, className: string): HTMLElement {
  const made = document.createElement(tag);
  made.className = className;
  return made;
}
