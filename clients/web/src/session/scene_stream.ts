import { RunState } from '../../generated/palpate/v1/control_pb';
import { PositionEncoding, type Frame, type Keyframe, type TopologyDelta, type WatchUpdate } from '../../generated/palpate/v1/stream_pb';
import { RateMeter } from '../net/rate_meter';
import type { Clock, Connection } from '../net/connection';

/** Two new keyframes within this time are one too many: the second waits. */
const REWATCH_PAUSE_MS = 1000;

/** Where the stream is shown; SceneView is one. Its methods answer with what is wrong, if anything. */
export interface SceneCopy {
  readonly organs: readonly { readonly name: string; readonly surface: { matches(meshHash: bigint): boolean } }[];
  /** Builds everything anew. */
  load(keyframe: Keyframe, encoding: PositionEncoding, moveCamera: boolean): string | undefined;
  applyDelta(delta: TopologyDelta): string | undefined;
  update(frame: Frame, encoding: PositionEncoding): string | undefined;
  clear(): void;
}

export interface SceneStreamEvents {
  /** The copy is built anew. */
  onKeyframe(keyframe: Keyframe): void;
  /** The copy has other triangles; the frame for them follows. */
  onTopology(): void;
  /** A frame has come; the copy takes it with the next picture. */
  onFrame(frame: Frame, now_ms: number): void;
  /** The copy has taken a frame. */
  onShown(): void;
  /** The copy has taken a frame in which the scene runs, or stands still, for the first time. */
  onRunState(): void;
  /** Steps are counted from the start again. */
  onStepBack(): void;
  onProblem(what: string, error: Error): void;
}

/**
 * The stream of one watched scene into one copy. The copy is always of one topology version: frames of another one are dropped, and a copy
 * that cannot follow is asked for anew.
 */
export class SceneStream {
  keyframe: Keyframe | undefined;
  /** What the copy shows. */
  frame: Frame | undefined;
  /** Of the copy. */
  topologyVersion = 0n;
  readonly received = { frames: 0, keyframes: 0, deltas: 0 };
  readonly frameRate = new RateMeter();
  /** Watched; empty: none. */
  private watched = '';
  private encoding = PositionEncoding.FLOAT32;
  /** Encoding of the stream that runs. */
  private streamEncoding = PositionEncoding.FLOAT32;
  private watchId = 0;
  private pending: Frame | undefined;
  /** After a watch request, what still comes of the old stream means nothing. */
  private awaitsKeyframe = true;
  /** The topology has changed; a picture needs the frame that follows. */
  private awaitsFrame = false;
  private lastRewatch_ms = -Infinity;
  private rewatchTimer: unknown;
  private framedScene = '';
  private lastStep: bigint | undefined;
  /** Step after which a command has answered that the scene is paused. */
  private pausedAfter: bigint | undefined;

  constructor(
    private readonly copy: SceneCopy,
    private readonly connection: Pick<Connection, 'send'>,
    private readonly events: SceneStreamEvents,
    private readonly clock: Clock = {
      setTimeout: (run, ms) => globalThis.setTimeout(run, ms),
      clearTimeout: (handle) => globalThis.clearTimeout(handle as number),
      now: () => performance.now(),
    },
  ) {}

  /** Id of the watched scene; empty: none. */
  get sceneId(): string {
    return this.watched;
  }

  get runState(): RunState {
    return this.frame?.state || this.keyframe?.scene?.state || RunState.UNSPECIFIED;
  }

  get lowBandwidth(): boolean {
    return this.encoding === PositionEncoding.UINT16;
  }

  /** The copy shows what was, and nothing can be changed in it. */
  get isReplay(): boolean {
    return this.keyframe?.scene?.isReplay ?? false;
  }

  /** Triangles and positions of the copy belong together. */
  get canDraw(): boolean {
    return !this.awaitsFrame;
  }

  /** What is shown waits for the server: its surfaces cannot be pointed at. */
  get isBehind(): boolean {
    return this.awaitsFrame || this.awaitsKeyframe;
  }

  /** The server counts an answer with this request id to the running watch. */
  isOfWatch(requestId: number): boolean {
    return requestId === this.watchId;
  }

  setLowBandwidth(on: boolean): void {
    this.encoding = on ? PositionEncoding.UINT16 : PositionEncoding.FLOAT32;
    if (this.watched !== '') this.watch(this.watched);
  }

  /** `keepsCamera`: it shows what the copy shows, at another time. */
  watch(sceneId: string, keepsCamera = false): void {
    if (keepsCamera) this.framedScene = sceneId;
    this.watched = sceneId;
    this.lastStep = undefined;
    this.pausedAfter = undefined;
    this.pending = undefined;
    this.streamEncoding = this.encoding;
    this.awaitsKeyframe = true;
    this.watchId = this.connection.send({ case: 'watch', value: { sceneId, positions: this.encoding, withNurbs: true, maxRateHz: 60 } });
    if (this.watchId === 0) this.watched = '';
  }

  /** The server has ended the watch; what was seen last stays. */
  end(): void {
    this.watched = '';
  }

  /** Another connection: no answer on it is of the old watch. */
  endWithConnection(): void {
    this.watchId = 0;
    this.watched = '';
  }

  /** There is no scene any more. */
  leave(): void {
    this.watched = '';
    this.copy.clear();
    this.keyframe = undefined;
    this.frame = undefined;
    this.pending = undefined;
  }

  /** Updates of a watch that was replaced may still be on their way. */
  onWatch(requestId: number, update: WatchUpdate): void {
    if (requestId !== 0 && requestId !== this.watchId) return;
    if (update.update.case === 'keyframe') this.onKeyframe(update.update.value);
    else if (this.awaitsKeyframe) return;
    else if (update.update.case === 'delta') this.onDelta(update.update.value);
    else if (update.update.case === 'frame') this.onFrame(update.update.value);
  }

  /**
   * A command has answered that the scene has this state after `step`. Frames carry the state too, but a paused scene may send none,
   * and a frame from before a pause may come after its answer.
   */
  noteRunState(state: RunState, step: bigint): void {
    this.pausedAfter = state === RunState.PLAYING ? undefined : step;
    if (this.frame) this.frame.state = state;
    if (this.pending) this.pending.state = state;
  }

  /** Brings the newest frame into the copy. */
  takeFrame(): void {
    const frame = this.pending;
    if (!frame) return;
    this.pending = undefined;
    const before = this.runState;
    const problem = this.copy.update(frame, this.streamEncoding);
    if (problem) {
      this.rewatch('Frame', problem);
      return;
    }
    this.frame = frame;
    this.awaitsFrame = false;
    this.events.onShown();
    if (this.runState !== before) this.events.onRunState();
  }

  private onKeyframe(keyframe: Keyframe): void {
    if (keyframe.scene && keyframe.scene.sceneId !== this.watched) return;
    ++this.received.keyframes;
    const problem = this.copy.load(keyframe, this.streamEncoding, this.framedScene !== this.watched);
    if (problem) {
      this.events.onProblem('Keyframe', new Error(problem));
      return;
    }
    const different = keyframe.bodies.find((body, index) => !this.copy.organs[index]!.surface.matches(body.meshHash));
    if (different) this.events.onProblem('Keyframe', new Error(`the surface of '${different.name}' is not what its hash says`));
    this.awaitsKeyframe = false;
    this.awaitsFrame = false;
    this.framedScene = this.watched;
    this.keyframe = keyframe;
    this.topologyVersion = keyframe.topologyVersion;
    this.frame = keyframe.frame;
    this.pending = undefined;
    this.lastStep = keyframe.frame?.step;
    this.pausedAfter = undefined;
    this.events.onKeyframe(keyframe);
  }

  private onDelta(delta: TopologyDelta): void {
    ++this.received.deltas;
    if (delta.fromVersion !== this.topologyVersion) {
      this.rewatch('Topology', `an edit leads from version ${delta.fromVersion}, but here is ${this.topologyVersion}`);
      return;
    }
    const problem = this.copy.applyDelta(delta);
    if (problem) {
      this.rewatch('Topology', problem);
      return;
    }
    const { organs } = this.copy;
    const firstPiece = organs.length - delta.newBodies.length;
    const different = delta.bodies.find((body) => !organs[body.bodyIndex]!.surface.matches(body.meshHash))
      ?? delta.newBodies.find((body, index) => !organs[firstPiece + index]!.surface.matches(body.meshHash));
    if (different) {
      const name = 'name' in different ? different.name : organs[different.bodyIndex]!.name;
      this.rewatch('Topology', `the copy of '${name}' here is not the server's any more`);
      return;
    }
    this.topologyVersion = delta.toVersion;
    this.pending = undefined;  // it has the old vertices
    this.awaitsFrame = true;
    this.events.onTopology();
  }

  private onFrame(frame: Frame): void {
    if (frame.topologyVersion !== this.topologyVersion) return;
    const now_ms = this.clock.now();
    if (this.lastStep !== undefined && frame.step < this.lastStep) {
      this.pausedAfter = undefined;
      this.events.onStepBack();
    }
    const isOfBeforePause = this.pausedAfter !== undefined && frame.step <= this.pausedAfter;
    if (isOfBeforePause && frame.state === RunState.PLAYING) frame.state = this.runState;
    this.lastStep = frame.step;
    ++this.received.frames;
    this.frameRate.add(now_ms);
    this.pending = frame;  // the picture takes the newest
    this.events.onFrame(frame, now_ms);
  }

  /** The surfaces here cannot follow the server's any more: says so, and asks for all of them. */
  private rewatch(what: string, why: string): void {
    this.events.onProblem(what, new Error(`${why}; asking for a new keyframe`));
    this.awaitsKeyframe = true;
    const scene = this.watched;
    this.clock.clearTimeout(this.rewatchTimer);
    // The scene stays the one at hand meanwhile: its tool, its strokes and what they did are not lost with a delta.
    this.rewatchTimer = this.clock.setTimeout(() => {
      if (scene === '' || this.watched !== scene || !this.awaitsKeyframe) return;
      this.lastRewatch_ms = this.clock.now();
      this.watch(scene);
    }, Math.max(0, this.lastRewatch_ms + REWATCH_PAUSE_MS - this.clock.now()));
  }
}
