import type { Tick, TimeAxis, TimelineEvent } from './time_axis';

/** What people are told where a replay does not do what a scene does. */
export const REPLAY_IS_FIXED = 'A replay shows what happened: nothing can be changed in it. Branch from here to go on in a scene of your own.';

const MAX_LINES = 4;
const count = new Intl.NumberFormat('en');

export function formatSeconds(time_s: number): string {
  if (time_s < 60) return `${time_s.toFixed(2)} s`;
  const minutes = Math.floor(time_s / 60);
  return `${minutes} min ${(time_s - 60 * minutes).toFixed(2).padStart(5, '0')} s`;
}

/** Simulated time and step. */
export function placeWords(axis: TimeAxis, position: number): string {
  return `${formatSeconds(axis.timeAt(position))} · step ${count.format(axis.stepAt(position))}`;
}

function eventWords({ kind, label }: TimelineEvent): string {
  const said = label === '' ? '' : `: ${label}`;
  switch (kind) {
    case 'bookmark': return `Bookmark${said}`;
    case 'reset': return label === '' ? 'Reset' : `Reset by ${label}`;
    case 'gap': return `Nothing was recorded here${said}`;
    case 'edit': return `Edit${said}`;
    default: return 'Saved state';
  }
}

/** What happened, a line each, those that are alike together; what matters most comes first. */
export function tickWords(tick: Tick): string[] {
  const counts = new Map<string, number>();
  const first = tick.events.filter((event) => event.kind === tick.kind);
  for (const event of [...first, ...tick.events.filter((one) => one.kind !== tick.kind)]) {
    const words = eventWords(event);
    counts.set(words, (counts.get(words) ?? 0) + 1);
  }
  const lines = Array.from(counts, ([words, times]) => (times > 1 ? `${words} (${times} times)` : words));
  return lines.length <= MAX_LINES ? lines : [...lines.slice(0, MAX_LINES - 1), `and ${lines.length - MAX_LINES + 1} more`];
}

/** When by the clock on the wall; empty: nobody knows. */
export function clockWords(timeUs: bigint): string {
  return timeUs > 0n ? new Date(Number(timeUs / 1000n)).toLocaleTimeString() : '';
}

/** Empty: the replay does what is recorded. `first`: place of the first step that does not. */
export function divergenceWords(axis: TimeAxis, divergences: number, first: number | undefined): string {
  if (divergences === 0) return '';
  const steps = divergences === 1 ? '1 step differs' : `${count.format(divergences)} steps differ`;
  return `${steps} from the recording${first === undefined ? '' : `, first at ${placeWords(axis, first)}`}`;
}

/** What is wrong with the name of a bookmark, if anything: the server takes 64 bytes. */
export function nameProblem(name: string): string | undefined {
  if (name.trim() === '') return 'A bookmark needs a name.';
  const { length } = new TextEncoder().encode(name.trim());
  if (length > 64) return `A name has at most 64 bytes, this one has ${length}.`;
  return /\p{Cc}/u.test(name.trim()) ? 'A name has no control characters.' : undefined;
}
