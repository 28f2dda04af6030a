import { RunState, type SceneInfo } from '../../generated/palpate/v1/control_pb';
import type { ViewerUpdate } from '../../generated/palpate/v1/viewer_pb';
import type { Connection } from '../net/connection';
import type { SceneStream } from '../session/scene_stream';
import type { Session } from '../session/session';
import { TimeAxis, type Timeline, type TimelineEvent } from './time_axis';

export interface PastEvents {
  /** Before the watch goes to a replay: who has a tool in the hand gives it back. */
  onLeave(): void;
  /** A command was done; this is the watched scene now. */
  onScene(info: SceneInfo): void;
  onRefused(what: string, error: unknown): void;
}

/** A replay of a scene's past, and how far that goes. */
interface Replay {
  sceneId: string;
  end: number;
}

/** Of what it is tells the list of scenes; the server takes 64 bytes. */
function freshId(sceneId: string, what: string): string {
  return `${sceneId.slice(0, 48)}-${what}-${Math.floor(Math.random() * 36 ** 4).toString(36).padStart(4, '0')}`;
}

type Request = Parameters<Connection['call']>[0];
type Answer = ViewerUpdate['update'];

/**
 * The past of the watched scene. Going back in a scene that lives opens a replay beside it and watches that: the scene goes on, undisturbed. One
 * request for a place is on its way at a time, and the newest wish follows.
 */
export class Past {
  /** As the server told it last. */
  timeline: Timeline | undefined;
  private info: SceneInfo | undefined;
  private line: TimeAxis | undefined;
  /** Where to go next, and on the way to where; undefined: nowhere. */
  private wanted: number | undefined;
  private target: number | undefined;
  /** The way there, or to a replay. */
  private going: Promise<void> | undefined;
  /** Place less step of what the stream shows, and where the replay is until the stream shows that. */
  private offset = 0;
  private arrived: { position: number; frame: SceneStream['frame'] } | undefined;
  /** By the scene that it is of. */
  private readonly replays = new Map<string, Replay>();
  private isAsking = false;
  private hasComplained = false;

  constructor(
    private readonly connection: Pick<Connection, 'call'>,
    private readonly stream: Pick<SceneStream, 'sceneId' | 'frame' | 'runState'>,
    private readonly session: Pick<Session, 'scenes' | 'watch' | 'open' | 'refresh'>,
    private readonly events: PastEvents,
  ) {}

  get isReplay(): boolean {
    return this.info?.isReplay ?? false;
  }

  /** Undefined: the scene has no past, or it has not come yet. */
  get axis(): TimeAxis | undefined {
    if (!this.timeline || !this.info?.hasPast) return undefined;
    const end = this.isReplay ? Number(this.timeline.end) : this.liveEnd(this.timeline);
    if (!this.line || this.line.end !== end) this.line = new TimeAxis(this.timeline, end);
    return this.line;
  }

  /** Where the watched scene is, or is on its way to. */
  get position(): number {
    const { axis } = this;
    if (!axis) return 0;
    const onTheWay = this.wanted ?? this.target;
    if (onTheWay !== undefined) return axis.clamp(onTheWay);
    if (!this.isReplay) return axis.end;
    const { arrived } = this;
    if (arrived && arrived.frame === this.stream.frame) return axis.clamp(arrived.position);
    return axis.clamp(this.offset + Number(this.stream.frame?.step ?? 0n));
  }

  /** A place is on its way to the picture. */
  get isGoing(): boolean {
    return this.going !== undefined;
  }

  /** The scene that the replay is of, if it is on this server. */
  get source(): string | undefined {
    if (!this.isReplay) return undefined;
    const source = this.timeline?.source ?? '';
    return this.session.scenes.some(({ sceneId }) => sceneId === source && source !== this.stream.sceneId) ? source : undefined;
  }

  /** Newest place that a crash of the server leaves; undefined: of a replay. */
  get durable(): number | undefined {
    return this.isReplay || !this.timeline ? undefined : Number(this.timeline.durable);
  }

  /** Why new steps would not outlive the server; empty: they do. */
  get durability(): string {
    return this.info?.durability ?? '';
  }

  /** Another scene is watched from now on. */
  forget(): void {
    this.timeline = undefined;
    this.line = undefined;
    this.info = undefined;
    this.wanted = undefined;
    this.target = undefined;
    this.arrived = undefined;
    this.offset = 0;
  }

  /** Call with all that the server says of the watched scene. */
  note(info: SceneInfo | undefined): void {
    if (!info || info.sceneId !== this.stream.sceneId) return;
    const isNew = this.info === undefined;
    this.info = info;
    if (isNew) void this.refresh();
  }

  /** Asks how long the past is by now, and what has happened. */
  async refresh(): Promise<void> {
    const { sceneId } = this.stream;
    if (this.isAsking || sceneId === '' || !this.info?.hasPast) return;
    this.isAsking = true;
    try {
      const answer = await this.connection.call({ case: 'timeline', value: { sceneId } });
      if (answer.case === 'timeline') this.take(sceneId, answer.value);
      const { source } = this;
      if (source !== undefined) {
        const ofSource = await this.connection.call({ case: 'timeline', value: { sceneId: source } });
        if (ofSource.case === 'timeline') this.takeBookmarks(sceneId, ofSource.value);
      }
      this.hasComplained = false;
    } catch (error) {
      if (!this.hasComplained && sceneId === this.stream.sceneId) this.events.onRefused('Time line', error);
      this.hasComplained = true;
    } finally {
      this.isAsking = false;
      if (sceneId !== this.stream.sceneId) void this.refresh();
    }
  }

  /** Shows a place: in a scene that lives, in a replay beside it. May be called as often as a hand moves. */
  scrub(position: number): void {
    const { axis } = this;
    if (!axis) return;
    const wanted = axis.clamp(position);
    if (!this.isReplay && wanted === axis.end && !this.going) return;
    this.wanted = wanted;
    this.going ??= this.go().finally(() => (this.going = undefined));
  }

  /** From the replay to the scene that it is of; the replay goes. */
  async backToLive(): Promise<void> {
    const { source, stream: { sceneId } } = this;
    if (source === undefined) return;
    this.wanted = undefined;
    await this.going;
    if (this.stream.sceneId === sceneId) this.session.watch(source, true);
    this.replays.delete(source);
    await this.ask('Back to live', { case: 'delete', value: { sceneId } });
    void this.session.refresh();
  }

  /** Makes a scene of its own of the moment that is shown, and watches it. It stands still at first. The branch; undefined: there is none. */
  async branch(): Promise<SceneInfo | undefined> {
    await this.going;
    const { source, stream: { sceneId } } = this;
    const answer = await this.ask('Branch', { case: 'branch', value: { sceneId, branchId: freshId(source ?? sceneId, 'branch'), play: false } });
    if (answer?.case !== 'scene' || this.stream.sceneId !== sceneId) return undefined;
    this.session.open(answer.value);
    return answer.value;
  }

  /** A scene has bookmarks; a replay shows those of the scene that it is of. */
  get canBookmark(): boolean {
    return !this.isReplay || this.source !== undefined;
  }

  /** Names a place; a name that exists moves. */
  async bookmark(name: string, position: number): Promise<void> {
    await this.mark({ name, position: BigInt(position) });
  }

  async removeBookmark(name: string): Promise<void> {
    await this.mark({ name, remove: true });
  }

  private async mark(value: { name: string; position?: bigint; remove?: boolean }): Promise<void> {
    const { source, stream: { sceneId } } = this;
    const answer = await this.ask('Bookmark', { case: 'bookmark', value: { ...value, sceneId: source ?? sceneId } });
    if (answer?.case !== 'timeline') return;
    if (source === undefined) this.take(sceneId, answer.value);
    else this.takeBookmarks(sceneId, answer.value);
  }

  /** The newest place: the scene has gone on since the server told. */
  private liveEnd(timeline: Timeline): number {
    const end = Number(timeline.end);
    const here = this.offset + Number(this.stream.frame?.step ?? 0n);
    return Math.max(end, here);
  }

  private take(sceneId: string, timeline: Timeline): void {
    if (sceneId !== this.stream.sceneId) return;
    // Until the scene that it is of has been asked again.
    this.timeline = timeline.isReplay && this.timeline ? withBookmarks(timeline, this.timeline.events) : timeline;
    this.line = new TimeAxis(this.timeline);
    if (this.going || this.isAhead) return;  // it knows better where the replay is
    this.offset = this.line.offsetAt(Number(timeline.position));
  }

  /** The stream does not show yet where the replay is. */
  private get isAhead(): boolean {
    return this.arrived !== undefined && this.arrived.frame === this.stream.frame;
  }

  private get isPlaying(): boolean {
    return (this.isAhead ? this.info?.state : this.stream.runState) === RunState.PLAYING;
  }

  private takeBookmarks(replayId: string, { events }: Timeline): void {
    if (replayId !== this.stream.sceneId || !this.timeline) return;
    this.timeline = withBookmarks(this.timeline, events);
    this.line = undefined;
  }

  /** The replay is there, and the picture will be. */
  private arrive(position: number, step: bigint): void {
    this.offset = position - Number(step);
    this.arrived = { position, frame: this.stream.frame };
  }

  private async go(): Promise<void> {
    let hasPaused = false;
    try {
      while (this.wanted !== undefined) {
        if (!this.isReplay) {
          await this.openReplay();
        } else if (this.isPlaying && !hasPaused) {
          hasPaused = true;
          await this.pause();
        } else {
          await this.seek();
        }
      }
    } catch (error) {
      this.wanted = undefined;
      this.events.onRefused('Time line', error);
    } finally {
      this.target = undefined;
    }
  }

  private async seek(): Promise<void> {
    const { sceneId } = this.stream;
    const target = this.wanted!;
    this.target = target;
    this.wanted = undefined;
    const answer = await this.connection.call({ case: 'seek', value: { sceneId, target: { case: 'position', value: BigInt(target) } } });
    if (answer.case !== 'scene' || sceneId !== this.stream.sceneId) return;
    this.info = answer.value;
    this.arrive(target, answer.value.step);
    this.events.onScene(answer.value);
  }

  private async pause(): Promise<void> {
    const { sceneId } = this.stream;
    const answer = await this.connection.call({ case: 'pause', value: { sceneId } });
    if (answer.case !== 'scene' || sceneId !== this.stream.sceneId) return;
    this.info = answer.value;
    this.events.onScene(answer.value);
  }

  /** Watches a replay of the watched scene, one from before if its past reaches far enough. */
  private async openReplay(): Promise<void> {
    const { sceneId } = this.stream;
    const old = this.replays.get(sceneId);
    const known = old && this.session.scenes.find((scene) => scene.sceneId === old.sceneId);
    if (known && this.wanted! <= old.end) {
      this.enter(known, undefined);
      return;
    }
    this.replays.delete(sceneId);
    if (known) await this.connection.call({ case: 'delete', value: { sceneId: known.sceneId } });
    // A page that is closed cannot take its replay away: the server does when nobody watches it any more.
    const replay = { sceneId, replayId: freshId(sceneId, 'replay'), temporary: true };
    const answer = await this.connection.call({ case: 'replay', value: replay });
    if (answer.case !== 'replay' || !answer.value.scene) throw new Error(`the server answered a replay with '${answer.case}'`);
    const { scene, timeline } = answer.value;
    this.replays.set(sceneId, { sceneId: scene.sceneId, end: Number(timeline?.end ?? 0n) });
    if (this.stream.sceneId === sceneId) this.enter(scene, timeline);
  }

  private enter(replay: SceneInfo, timeline: Timeline | undefined): void {
    if (!replay.isReplay) throw new Error(`the server made '${replay.sceneId}', which is no replay`);
    const { wanted } = this;
    const before = this.timeline;
    this.events.onLeave();
    this.session.open(replay);
    if (this.stream.sceneId !== replay.sceneId) throw new Error('the connection to the server ended');
    this.info = replay;
    this.timeline = timeline ?? before;  // until it tells: that of the scene is hardly another
    this.line = this.timeline && new TimeAxis(this.timeline);
    this.wanted = wanted;
    this.arrived = { position: wanted ?? 0, frame: this.stream.frame };
    if (!timeline) void this.refresh();
  }

  private async ask(what: string, request: Request): Promise<Answer | undefined> {
    try {
      return await this.connection.call(request);
    } catch (error) {
      this.events.onRefused(what, error);
      return undefined;
    }
  }
}

/** A replay's own are those at the time when it was made. */
function withBookmarks(timeline: Timeline, events: readonly TimelineEvent[]): Timeline {
  const bookmarks = events.filter(({ kind, position }) => kind === 'bookmark' && position >= timeline.begin && position <= timeline.end);
  const others = timeline.events.filter(({ kind }) => kind !== 'bookmark');
  return { ...timeline, events: [...others, ...bookmarks].sort((a, b) => Number(a.position - b.position)) };
}
