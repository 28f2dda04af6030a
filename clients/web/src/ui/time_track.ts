import type { Tick, TimeAxis } from '../past/time_axis';
import { clockWords, placeWords, tickWords } from '../past/words';
import { element } from './panel';

/** Ticks that are nearer to each other than this are one. */
const TICK_PX = 6;
/** As near as this the pointer means the tick, or the handle. */
const NEAR_TICK_PX = 5;
const NEAR_HANDLE_PX = 14;
/** A line that grows under the eye is laid out so often. */
const LAYOUT_INTERVAL_MS = 200;
const JUMP_S = 1;

export interface TrackState {
  axis: TimeAxis;
  position: number;
  /** What it is a replay of; undefined: the scene lives, and the line grows. */
  replayOf: string | undefined;
  /** Newest place that a crash of the server leaves; undefined: none is told. */
  durable: number | undefined;
}

/** The line itself: what happened when, and a handle that a hand or keys can move. */
export class TimeTrack {
  private readonly root = element('track');
  private readonly line = this.root.querySelector('.line') as HTMLElement;
  private readonly tickLayer = this.root.querySelector('.ticks') as HTMLElement;
  private readonly handle = this.root.querySelector('.handle') as HTMLElement;
  private readonly bubble = element('track-bubble');
  private state: TrackState | undefined;
  private ticks: Tick[] = [];
  private laidOut_ms = -Infinity;
  private laidOutFor = '';
  private laidOutOf: TimeAxis['timeline'] | undefined;
  private drag: { pointer: number; grab_px: number } | undefined;
  /** Where the pointer is, on the line; undefined: elsewhere. */
  private hover_px: number | undefined;
  /** A line that grows stands still under the pointer: ticks are small. */
  private frozen: TimeAxis | undefined;

  /** `scrub`: go to this place; as often as the hand moves. */
  constructor(private readonly scrub: (position: number) => void) {
    const { root } = this;
    root.addEventListener('pointerdown', (event) => this.onDown(event));
    root.addEventListener('pointermove', (event) => this.onMove(event));
    for (const end of ['pointerup', 'pointercancel'] as const) root.addEventListener(end, (event) => this.onUp(event));
    root.addEventListener('pointerleave', () => this.leave());
    root.addEventListener('keydown', (event) => this.onKey(event));
    for (const change of ['focus', 'blur'] as const) root.addEventListener(change, () => this.showBubble());
  }

  /** Call with each picture. */
  show(latest: TrackState, now_ms: number): void {
    const isFrozen = this.hover_px !== undefined && latest.replayOf === undefined && this.state?.replayOf === undefined;
    this.frozen = isFrozen ? (this.frozen ?? latest.axis) : undefined;
    const axis = this.frozen ?? latest.axis;
    const state = { ...latest, axis, position: axis.clamp(latest.position) };
    const hasMoved = this.state?.position !== state.position;
    this.state = state;
    const { position, durable } = state;
    const isDue = this.drag !== undefined || now_ms - this.laidOut_ms > LAYOUT_INTERVAL_MS;
    const width_px = this.line.clientWidth;
    const wanted = `${width_px} ${axis.begin} ${axis.end} ${durable}`;
    const isLaidOut = wanted === this.laidOutFor && axis.timeline === this.laidOutOf;
    if (!hasMoved && isLaidOut) return;
    this.handle.style.left = this.line.style.backgroundSize = percent(axis.shareOf(position));
    if (!isDue) return;
    this.laidOut_ms = now_ms;
    if (!isLaidOut) {
      this.laidOutFor = wanted;
      this.laidOutOf = axis.timeline;
      this.layOut(width_px);
    }
    this.root.setAttribute('aria-valuemin', String(axis.begin));
    this.root.setAttribute('aria-valuemax', String(axis.end));
    this.root.setAttribute('aria-valuenow', String(position));
    this.root.setAttribute('aria-valuetext', [...this.wordsOfTick(position), placeWords(axis, position)].join(', '));
    this.showBubble();
  }

  private layOut(width_px: number): void {
    const { axis, durable } = this.state!;
    (this.root.querySelector('.durable') as HTMLElement).style.width = durable === undefined ? '0' : percent(axis.shareOf(durable));
    this.ticks = axis.ticks(width_px, TICK_PX);
    const have = this.tickLayer.children;
    while (have.length > this.ticks.length) this.tickLayer.lastElementChild!.remove();
    while (have.length < this.ticks.length) this.tickLayer.append(document.createElement('i'));
    for (const [index, { kind, share }] of this.ticks.entries()) {
      const mark = have[index] as HTMLElement;
      mark.className = kind;
      mark.style.left = percent(share);
    }
  }

  private at_px({ clientX }: PointerEvent): number {
    return clientX - this.line.getBoundingClientRect().left;
  }

  private tickNear(x_px: number): Tick | undefined {
    const away = (tick: Tick) => Math.abs(tick.share * this.line.clientWidth - x_px);
    return this.ticks.filter((tick) => away(tick) <= NEAR_TICK_PX).sort((a, b) => away(a) - away(b))[0];
  }

  private placeAt(x_px: number): number {
    return this.tickNear(x_px)?.position ?? this.state!.axis.positionAt(x_px / Math.max(1, this.line.clientWidth));
  }

  private wordsOfTick(position: number): string[] {
    const tick = this.ticks.find((one) => one.position === position);
    return tick ? tickWords(tick) : [];
  }

  private onDown(event: PointerEvent): void {
    if (event.button !== 0 || !this.state || this.drag) return;
    const x_px = this.at_px(event);
    const handle_px = this.state.axis.shareOf(this.state.position) * this.line.clientWidth;
    const isOnHandle = Math.abs(x_px - handle_px) <= NEAR_HANDLE_PX && !this.tickNear(x_px);
    this.drag = { pointer: event.pointerId, grab_px: isOnHandle ? x_px - handle_px : 0 };
    this.root.setPointerCapture(event.pointerId);
    this.root.classList.add('dragging');
    if (!isOnHandle) this.scrub(this.placeAt(x_px));
    this.hover_px = x_px;
    this.showBubble();
  }

  private onMove(event: PointerEvent): void {
    if (!this.state) return;
    const x_px = this.at_px(event);
    this.hover_px = x_px;
    if (this.drag?.pointer === event.pointerId) this.scrub(this.placeAt(x_px - this.drag.grab_px));
    this.showBubble();
  }

  private onUp(event: PointerEvent): void {
    if (this.drag?.pointer !== event.pointerId) return;
    this.drag = undefined;
    this.root.classList.remove('dragging');
    if (event.pointerType === 'touch') this.leave();
  }

  private leave(): void {
    if (this.drag) return;
    this.hover_px = undefined;
    this.showBubble();
  }

  private onKey(event: KeyboardEvent): void {
    const to = this.state && !event.ctrlKey && !event.metaKey && !event.altKey ? this.placeOfKey(event) : undefined;
    if (to === undefined) return;
    // Arrows would move the instrument in the hand, too.
    event.preventDefault();
    event.stopPropagation();
    this.scrub(to);
  }

  private placeOfKey({ key, shiftKey }: KeyboardEvent): number | undefined {
    const { axis, position } = this.state!;
    const steps = shiftKey ? axis.stepsIn(JUMP_S) : 1;
    switch (key) {
      case 'ArrowLeft': case 'ArrowDown': return position - steps;
      case 'ArrowRight': case 'ArrowUp': return position + steps;
      case 'PageDown': return axis.eventBeside(position, -1);
      case 'PageUp': return axis.eventBeside(position, 1);
      case 'Home': return axis.begin;
      case 'End': return axis.end;
      default: return undefined;
    }
  }

  /** What is under the pointer, or with keys under the handle. */
  private showBubble(): void {
    const { bubble, state, hover_px } = this;
    const isShown = state !== undefined && (hover_px !== undefined || this.root.matches(':focus-visible'));
    bubble.hidden = !isShown;
    if (!isShown) return;
    const isOfHandle = hover_px === undefined || this.drag !== undefined;
    const position = isOfHandle ? state.position : this.placeAt(hover_px);
    const tick = this.ticks.find((one) => one.position === position);
    const place = [placeWords(state.axis, position), clockWords(tick?.events.at(-1)?.timeUs ?? 0n),
      state.durable !== undefined && position > state.durable ? 'not saved yet' : ''];
    const lines = [...this.wordsOfTick(position), place.filter((words) => words !== '').join(' · ')];
    const wanted = lines.join('\n');
    if (bubble.dataset.text !== wanted) {
      bubble.dataset.text = wanted;
      bubble.replaceChildren(...lines.map((words, index) => {
        const line = document.createElement(index === lines.length - 1 ? 'small' : 'b');
        line.textContent = words;
        return line;
      }));
    }
    const card = bubble.parentElement!.getBoundingClientRect();
    const line = this.line.getBoundingClientRect();
    const middle_px = line.left - card.left + state.axis.shareOf(position) * line.width;
    const half_px = bubble.offsetWidth / 2;
    bubble.style.left = `${Math.max(half_px, Math.min(card.width - half_px, middle_px))}px`;
  }
}

function percent(share: number): string {
  return `${(100 * share).toFixed(3)}%`;
}
