// The past of a fake scene: what was done to it, and copies of it now and then, so that any moment can be computed again.
import { create } from '@bufbuild/protobuf';
import type { EditSceneRequest } from '../generated/palpate/v1/edit_pb';
import { TimelineSchema, type Timeline } from '../generated/palpate/v1/record_pb';

const STEPS_PER_STATE = 40;
const MAX_STATES = 80;

/** A copy with all that it refers to, classes kept. */
export function deepCopy<T>(value: T, copies = new Map<unknown, unknown>()): T {
  if (typeof value !== 'object' || value === null) return value;
  const known = copies.get(value);
  if (known) return known as T;
  const keep = <C>(copy: C): C => {
    copies.set(value, copy);
    return copy;
  };
  if (value instanceof Map) {
    const copy = keep(new Map());
    for (const [key, one] of value) copy.set(key, deepCopy(one, copies));
    return copy as T;
  }
  if (value instanceof Set) return keep(new Set(value)) as T;
  if (ArrayBuffer.isView(value)) return keep(structuredClone(value)) as T;
  if (Array.isArray(value)) {
    const copy = keep([] as unknown[]);
    for (const one of value) copy.push(deepCopy(one, copies));
    return copy as T;
  }
  const copy = keep(Object.create(Object.getPrototypeOf(value) as object) as Record<string, unknown>);
  for (const [key, one] of Object.entries(value)) copy[key] = deepCopy(one, copies);
  return copy as T;
}

/** A scene as far as its past needs it; `State` is a copy of what is in it, `Command` what its tools were told in a step. */
export interface Recorded<State, Command> {
  readonly step: number;
  copy(): State;
  restore(state: State): void;
  /** One step with these commands. */
  redo(commands: Command[]): void;
  edit(request: EditSceneRequest): unknown;
  reset(by: string): void;
}

type Entry<Command> = { commands: Command[] } | { edit: EditSceneRequest } | { reset: string };

export class FakePast<State, Command> {
  private readonly entries: Entry<Command>[] = [];
  private states: { position: number; entry: number; state: State }[] = [];
  private readonly events: { position: bigint; step: bigint; kind: string; label: string; timeUs: bigint }[] = [];
  /** Steps since the scene was created. */
  end = 0;

  constructor(private readonly scene: Recorded<State, Command>) {
    this.keepState();
  }

  get begin(): number {
    return this.states[0]!.position;
  }

  addStep(commands: Command[]): void {
    this.entries.push({ commands });
    ++this.end;
    if (this.end % STEPS_PER_STATE === 0) this.keepState();
  }

  addEdit(edit: EditSceneRequest): void {
    this.entries.push({ edit });
    this.note('edit', edit.edits.map((one) => one.edit.case ?? '').join(', '));
  }

  addReset(by: string): void {
    this.entries.push({ reset: by });
    this.note('reset', by);
  }

  private note(kind: string, label: string): void {
    this.events.push({ position: BigInt(this.end), step: BigInt(this.scene.step), kind, label, timeUs: BigInt(Date.now()) * 1000n });
  }

  private keepState(): void {
    this.states.push({ position: this.end, entry: this.entries.length, state: this.scene.copy() });
    if (this.end % (5 * STEPS_PER_STATE) === 0) this.note('state', '');
    if (this.states.length > MAX_STATES) this.states.shift();
  }

  setBookmark(name: string, position: number, remove: boolean): void {
    const old = this.events.findIndex((event) => event.kind === 'bookmark' && event.label === name);
    if (old >= 0) this.events.splice(old, 1);
    if (remove) return;
    const reset = this.events.filter((event) => event.kind === 'reset' && Number(event.position) <= position).at(-1)?.position ?? 0n;
    this.events.push({ position: BigInt(position), step: BigInt(position) - reset, kind: 'bookmark', label: name, timeUs: BigInt(Date.now()) * 1000n });
    this.events.sort((a, b) => Number(a.position - b.position));
  }

  timeline(dt_s: number): Timeline {
    return create(TimelineSchema, {
      begin: BigInt(this.begin), end: BigInt(this.end), position: BigInt(this.end), dtS: dt_s, events: this.events.filter((event) => Number(event.position) >= this.begin),
      durable: BigInt(Math.max(this.begin, this.end - 30)),
    });
  }

  /** Another scene that does all of it again, up to now. It is at the oldest moment. */
  replayIn(scene: Recorded<State, Command>): FakeReplay<State, Command> {
    return new FakeReplay(scene, [...this.entries], [...this.states], this.begin, this.end);
  }
}

/** What a replaying scene does, and where it is. */
export class FakeReplay<State, Command> {
  position: number;
  private entry = 0;

  constructor(
    private readonly scene: Recorded<State, Command>,
    private readonly entries: readonly Entry<Command>[],
    private readonly states: readonly { position: number; entry: number; state: State }[],
    readonly begin: number,
    readonly end: number,
  ) {
    this.position = begin;
    this.seek(begin);
  }

  /** To the state after this step, and what was done before the next one. */
  seek(position: number): void {
    const from = this.states.filter((one) => one.position <= position).at(-1)!;
    this.scene.restore(deepCopy(from.state));
    this.position = from.position;
    this.entry = from.entry;
    this.finish();
    while (this.position < position) this.advance();
  }

  /** False: it has come to its end. */
  advance(): boolean {
    const entry = this.entries[this.entry];
    if (!entry || !('commands' in entry) || this.position >= this.end) return false;
    ++this.entry;
    ++this.position;
    this.scene.redo(entry.commands);
    this.finish();
    return true;
  }

  private finish(): void {
    for (let entry = this.entries[this.entry]; entry && !('commands' in entry); entry = this.entries[++this.entry]) {
      if ('edit' in entry) this.scene.edit(entry.edit);
      else this.scene.reset(entry.reset);
    }
  }
}
