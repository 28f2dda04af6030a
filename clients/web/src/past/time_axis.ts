import type { Timeline, Timeline_Event as TimelineEvent } from '../../generated/palpate/v1/record_pb';

export type { Timeline, TimelineEvent };

/** What can have happened at a place of a time line, what matters most first. */
export const EVENT_KINDS = ['bookmark', 'reset', 'gap', 'edit', 'state'] as const;
export type EventKind = (typeof EVENT_KINDS)[number];

function kindOf({ kind }: TimelineEvent): EventKind | undefined {
  return EVENT_KINDS.find((known) => known === kind);
}

/** From `from` on, steps since the last reset are places less `offset`. */
interface Run {
  from: number;
  offset: number;
}

/** Runs between resets. The first is as long as what is kept: where it began only its events tell. */
function runsOf(timeline: Timeline): Run[] {
  const begin = Number(timeline.begin);
  const runs: Run[] = begin === 0 ? [{ from: 0, offset: 0 }] : [];
  for (const event of timeline.events) {
    const from = Number(event.position);
    // A reset may tell of the step before it.
    const offset = event.kind === 'reset' ? from : from - Number(event.step);
    if (runs.length === 0) runs.push({ from: begin, offset: from - Number(event.step) });
    if (offset !== runs.at(-1)!.offset) runs.push({ from, offset });
  }
  return runs.length > 0 ? runs : [{ from: begin, offset: 0 }];
}

/** Events that share a tick. */
export interface Tick {
  /** 0: oldest end, 1: newest. */
  share: number;
  /** Of the one that matters most, which the tick leads to. */
  kind: EventKind;
  position: number;
  /** In order. */
  events: TimelineEvent[];
}

/** Places of a time line, which only go up, in the terms of a person: steps and simulated seconds since the last reset. */
export class TimeAxis {
  readonly begin: number;
  private readonly runs: Run[];

  /** `end`: where that is now, if the scene has gone on since. */
  constructor(readonly timeline: Timeline, readonly end = Number(timeline.end)) {
    this.begin = Number(timeline.begin);
    this.runs = runsOf(timeline);
  }

  /** A whole place on the line. */
  clamp(position: number): number {
    return Math.min(this.end, Math.max(this.begin, Math.round(position)));
  }

  shareOf(position: number): number {
    return this.end > this.begin ? Math.min(1, Math.max(0, (position - this.begin) / (this.end - this.begin))) : 1;
  }

  positionAt(share: number): number {
    return this.clamp(this.begin + share * (this.end - this.begin));
  }

  /** Place less step, of what follows on a place. */
  offsetAt(position: number): number {
    let { offset } = this.runs[0]!;
    for (const run of this.runs) if (run.from <= position) ({ offset } = run);
    return offset;
  }

  stepAt(position: number): number {
    return Math.max(0, position - this.offsetAt(position));
  }

  timeAt(position: number): number {
    return this.stepAt(position) * this.timeline.dtS;
  }

  /** Steps that take so long. */
  stepsIn(time_s: number): number {
    return this.timeline.dtS > 0 ? Math.max(1, Math.round(time_s / this.timeline.dtS)) : 1;
  }

  /** `width_px`: length of the line; ticks have `apart_px` from each other. Events of kinds that nobody knows have none. */
  ticks(width_px: number, apart_px: number): Tick[] {
    const columns = new Map<number, Tick>();
    for (const event of this.timeline.events) {
      const kind = kindOf(event);
      const position = Number(event.position);
      if (!kind || position < this.begin || position > this.end) continue;
      const column = Math.floor((this.shareOf(position) * width_px) / apart_px);
      const tick = columns.get(column);
      if (!tick) {
        columns.set(column, { share: this.shareOf(position), kind, position, events: [event] });
        continue;
      }
      tick.events.push(event);
      if (EVENT_KINDS.indexOf(kind) < EVENT_KINDS.indexOf(tick.kind)) Object.assign(tick, { share: this.shareOf(position), kind, position });
    }
    return [...columns.values()];
  }

  /** The next place with an event in this direction, saved states aside; the end of the line where there is none. */
  eventBeside(position: number, direction: 1 | -1): number {
    let found = direction > 0 ? this.end : this.begin;
    for (const event of this.timeline.events) {
      const at = Number(event.position);
      if (event.kind === 'state' || direction * (at - position) <= 0 || direction * (found - at) <= 0) continue;
      found = at;
    }
    return this.clamp(found);
  }

  /** The name of a bookmark here. */
  bookmarkAt(position: number): string | undefined {
    return this.timeline.events.find((event) => event.kind === 'bookmark' && Number(event.position) === position)?.label;
  }
}
