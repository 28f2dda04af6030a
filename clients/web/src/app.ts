import * as THREE from 'three';
import { create } from '@bufbuild/protobuf';
import { RateMode, RunState, type Rate, type SceneInfo } from '../generated/palpate/v1/control_pb';
import type { EditSceneResponse } from '../generated/palpate/v1/edit_pb';
import { PositionEncoding, type Frame, type Keyframe, type TopologyDelta, type WatchUpdate } from '../generated/palpate/v1/stream_pb';
import { ToolPoseSchema } from '../generated/palpate/v1/haptics_pb';
import type { ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { Connection, ServerError, type ConnectionState } from './net/connection';
import { TokenGate, tokenInFragment } from './net/token';
import { Surgery, type SurgeryHost } from './surgery/surgery';
import type { EditInit, SurfaceHit } from './surgery/strokes';
import { HandControls } from './ui/hand_controls';
import { Overlay, Toasts, type Room } from './ui/notices';
import { element, Panel, type ToolOwner } from './ui/panel';
import { explain } from './ui/refusals';
import { SeeThrough } from './ui/see_through';
import { askForToken } from './ui/token_dialog';
import { ResetWatch, visitorName } from './ui/visitor';
import { Brush } from './view/brush';
import { pickSurface } from './view/pick';
import { RateMeter } from './view/rate_meter';
import { SceneView, toVector } from './view/scene_view';
import { Stage, type Quality } from './view/stage';
import { REPEAT_INTERVAL_MS, ToolHand } from './view/tool_hand';
import { hasJaws, hasPedal, maxJawAngle } from './view/tool_model';

const LIST_INTERVAL_MS = 2500;
const ABORTED = 10;
/** Two new keyframes within this time are one too many: the second waits for the next list. */
const REWATCH_PAUSE_MS = 1000;
/** The tool in the hand is where it should be within this distance. */
const ARRIVED_M = 0.004;
const ARRIVE_PATIENCE_MS = 3000;
/** Between pictures at low quality: a machine that draws in software has other work to do, perhaps the simulation itself. */
const LOW_QUALITY_INTERVAL_MS = 80;

const SPEEDS: { label: string; rate: { mode: RateMode; speed?: number } }[] = [
  ...[0.1, 0.25, 0.5, 1, 2].map((speed) => ({ label: `${speed}×`, rate: { mode: RateMode.REAL_TIME, speed } })),
  { label: 'max', rate: { mode: RateMode.AS_FAST_AS_POSSIBLE } },
];

/** Between header, modes, transport and panel: where nothing is to be clicked. */
function roomForToasts(): Room {
  const gap_px = 12;
  const panel = element('panel');
  const isShown = !panel.classList.contains('away');
  const isSheet = panel.offsetWidth > 0.6 * window.innerWidth;
  // Where the panel is, not where it is on its way.
  const right = isShown && !isSheet ? panel.offsetLeft : window.innerWidth;
  const modes = Math.max(0, ...Array.from(element('modes').children, (child) => child.getBoundingClientRect().right));
  return {
    left: modes + gap_px,
    top: element('top').getBoundingClientRect().bottom + gap_px,
    right: right - gap_px,
    bottom: Math.min(element('bottom').getBoundingClientRect().top, isShown && isSheet ? panel.offsetTop : Infinity) - gap_px,
  };
}

/** A tool in the user's hand, or on its way there. */
interface Held {
  index: number;
  name: string;
  hand?: ToolHand;
  sequence: bigint;
  jawsClosed: boolean;
  pedalDown: boolean;
}

/** The viewer: a connection, one watched scene, at most one tool in the hand. */
export class App implements SurgeryHost {
  readonly stage: Stage;
  readonly view: SceneView;
  readonly panel: Panel;
  private readonly seeThrough: SeeThrough;
  private readonly handControls: HandControls;
  readonly toasts: Toasts;
  readonly overlay: Overlay;
  readonly connection: Connection;
  readonly brush = new Brush();
  readonly surgery: Surgery;
  readonly errors: string[] = [];
  sceneId: string;
  scenes: SceneInfo[] = [];
  keyframe: Keyframe | undefined;
  frame: Frame | undefined;
  held: Held | undefined;
  framesReceived = 0;
  keyframesReceived = 0;
  deltasReceived = 0;
  /** Of the copies in `view`. */
  topologyVersion = 0n;
  reconnects = 0;
  private loggedFailure = '';
  /** What others are told of who did something; empty: the server names the address. */
  private readonly name: string;
  private readonly resets = new ResetWatch();
  private lastStep: bigint | undefined;
  private encoding = PositionEncoding.FLOAT32;
  /** Encoding of the stream that runs; changes with its first keyframe. */
  private streamEncoding = PositionEncoding.FLOAT32;
  private watchId = 0;
  private watchedScene = '';
  private pendingFrame: Frame | undefined;
  /** After a watch request, what still comes of the old stream means nothing. */
  private awaitsKeyframe = true;
  /** The topology has changed; a picture needs the frame that follows. */
  private awaitsFrame = false;
  private lastRewatch_ms = -Infinity;
  private rewatchTimer: ReturnType<typeof setTimeout> | undefined;
  private framedScene = '';
  private readonly frameMeter = new RateMeter();
  private readonly bytes: { t: number; total: number }[] = [];
  private connectionState: ConnectionState = { kind: 'connecting', attempt: 0 };
  private lastPicture_ms = 0;
  private lastRender_ms = 0;
  private needsPicture = true;
  private slowPictures = 0;
  private readonly autoQuality: boolean;
  private listTimer: ReturnType<typeof setTimeout> | undefined;
  private readonly keys = new Set<string>();
  private readonly ray = new THREE.Raycaster();
  private readonly forward = new THREE.Vector3();
  private readonly side = new THREE.Vector3();

  constructor(parameters: URLSearchParams) {
    this.sceneId = parameters.get('scene') ?? '';
    if (parameters.get('positions') === 'uint16') this.encoding = PositionEncoding.UINT16;
    this.name = visitorName(parameters, localStorage);
    const quality = parameters.get('quality');
    this.stage = new Stage(element('view') as HTMLCanvasElement, quality !== 'low');
    this.view = new SceneView(this.stage, element('labels'));
    this.seeThrough = new SeeThrough(element('see-through'), this.view, () => this.redraw());
    this.panel = new Panel({
      toggle: (index) => this.toggleTool(index),
      setJaws: (closed) => this.setJaws(closed),
      setPedal: (down) => this.setPedal(down),
    });
    this.handControls = new HandControls(element('hand-controls'), {
      setJaws: (closed) => this.setJaws(closed),
      setPedal: (down) => this.setPedal(down),
      push: (direction, on) => this.setKey(direction === 'away' ? 'w' : 's', on),
      release: () => void this.releaseTool(),
    });
    this.stage.scene.add(this.brush.group);
    this.surgery = new Surgery(this);
    this.toasts = new Toasts(element('toasts'), () => roomForToasts());
    const moved = new ResizeObserver(() => this.placeToasts());
    for (const id of ['top', 'modes', 'size-box', 'bottom', 'panel', 'view']) moved.observe(element(id));
    this.overlay = new Overlay(element('overlay'));
    this.autoQuality = quality !== 'high' && quality !== 'medium' && quality !== 'low';
    this.setQuality(this.autoQuality ? 'high' : (quality as Quality));
    const socketUrl = new URL('ws', document.baseURI);
    socketUrl.protocol = socketUrl.protocol === 'https:' ? 'wss:' : 'ws:';
    socketUrl.search = '';
    socketUrl.hash = '';
    const gate = new TokenGate((headers) => fetch('auth', { headers, cache: 'no-store' }), askForToken, sessionStorage);
    const token = tokenInFragment(location.hash);
    if (token !== undefined) {
      gate.remember(token);
      history.replaceState(null, '', location.pathname + location.search);  // not to be copied with the address
    }
    this.connection = new Connection(async () => new WebSocket(socketUrl, await gate.protocols()), {
      onState: (state) => this.onConnection(state),
      onUpdate: (update) => this.onUpdate(update),
    });
  }

  start(): void {
    this.connection.start();
    requestAnimationFrame((now) => this.onPicture(now));
    // Pictures may be slow, or stop in a page that nobody sees.
    setInterval(() => this.sendPose(performance.now()), REPEAT_INTERVAL_MS);
  }

  // --- connection ---------------------------------------------------------------------------------------------------------------------------------

  get state(): ConnectionState {
    return this.connectionState;
  }

  private onConnection(state: ConnectionState): void {
    const before = this.connectionState;
    this.connectionState = state;
    if (state.kind === 'open') {
      if (before.kind === 'connecting' && before.attempt > 0) ++this.reconnects;
      this.overlay.hide();
      this.watchId = 0;
      this.watchedScene = '';
      void this.refreshScenes();
    } else {
      clearTimeout(this.listTimer);
      this.dropTool();
      if (state.kind === 'waiting') this.showAway();
    }
    this.showPills();
  }

  private showAway(): void {
    const state = this.connectionState;
    if (state.kind !== 'waiting') return;
    const seconds = Math.max(0, Math.ceil((state.retryAtMs - performance.now()) / 1000));
    const reason = state.reason ? `${explain(undefined, state.reason).sentence} ` : '';
    this.overlay.show('Server away', `${reason}Trying again in ${seconds} s …`, { label: 'Try now', run: () => this.connection.retryNow() });
  }

  /** A request of the user: failures become a toast. */
  private async ask(what: string, request: Parameters<Connection['call']>[0]): Promise<ViewerUpdate['update'] | undefined> {
    try {
      return await this.connection.call(request);
    } catch (error) {
      this.report(what, error);
      return undefined;
    }
  }

  report(what: string, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.errors.push(`${what}: ${message}`);
    const { sentence, small, detail } = explain(error instanceof ServerError ? error.code : undefined, message);
    console.info(`${what}: ${detail}`);
    this.toasts.show(sentence, { title: what, small, detail });
  }

  // --- scenes -------------------------------------------------------------------------------------------------------------------------------------

  private async refreshScenes(): Promise<void> {
    clearTimeout(this.listTimer);
    try {
      const answer = await this.connection.call({ case: 'list', value: {} });
      if (answer.case === 'list') this.onScenes(answer.value.scenes);
    } catch (error) {
      if (error instanceof ServerError) this.report('List scenes', error);
    }
    clearTimeout(this.listTimer);
    if (this.connection.isOpen) this.listTimer = setTimeout(() => void this.refreshScenes(), LIST_INTERVAL_MS);
  }

  private onScenes(scenes: SceneInfo[]): void {
    this.scenes = scenes;
    const select = element('scenes') as HTMLSelectElement;
    const options = scenes.map((scene) => ({ value: scene.sceneId, text: scene.name && scene.name !== scene.sceneId ? `${scene.name} · ${scene.sceneId}` : scene.sceneId }));
    const wanted = options.map((option) => `${option.value}\n${option.text}`).join('\n\n');
    if (select.dataset.options !== wanted) {
      select.dataset.options = wanted;
      select.replaceChildren(...options.map(({ value, text }) => new Option(text, value)));
    }
    const known = scenes.some((scene) => scene.sceneId === this.sceneId);
    if (!known && scenes.length > 0) {
      if (this.sceneId !== '' && this.watchedScene === '') this.toasts.show(`The scene '${this.sceneId}' is not on this server.`, { info: true });
      this.sceneId = scenes[0]!.sceneId;
    }
    select.value = this.sceneId;
    if (scenes.length === 0) {
      this.watchedScene = '';
      this.leaveScene();
      this.overlay.show('No scene on this server', 'Create one with: palpate scene create FILE --play. It will appear here by itself.');
    } else if (this.watchedScene !== this.sceneId) {
      this.watch(this.sceneId);
    }
    const info = scenes.find((scene) => scene.sceneId === this.sceneId);
    if (info) this.noteResets(info);
    this.syncSpeed(info?.rate);
    this.panel.setTets(info);
    this.showPills();
  }

  watch(sceneId: string): void {
    if (sceneId !== this.watchedScene) {
      this.dropTool();
      this.surgery.forget();
    }
    this.sceneId = sceneId;
    this.watchedScene = sceneId;
    this.lastStep = undefined;
    (element('scenes') as HTMLSelectElement).value = sceneId;
    const url = new URL(location.href);
    url.searchParams.set('scene', sceneId);
    history.replaceState(null, '', url);
    this.pendingFrame = undefined;
    this.streamEncoding = this.encoding;
    this.awaitsKeyframe = true;
    this.watchId = this.connection.send({ case: 'watch', value: { sceneId, positions: this.encoding, maxRateHz: 60 } });
    if (this.watchId === 0) this.watchedScene = '';
  }

  private leaveScene(): void {
    this.redraw();
    this.dropTool();
    this.view.clear();
    this.keyframe = undefined;
    this.frame = undefined;
    this.pendingFrame = undefined;
    this.surgery.forget();
    this.panel.load(undefined, 0, []);
    this.seeThrough.reset();
  }

  setLowBandwidth(on: boolean): void {
    this.encoding = on ? PositionEncoding.UINT16 : PositionEncoding.FLOAT32;
    if (this.watchedScene !== '') this.watch(this.watchedScene);
  }

  get lowBandwidth(): boolean {
    return this.encoding === PositionEncoding.UINT16;
  }

  private onUpdate(update: ViewerUpdate): void {
    switch (update.update.case) {
      case 'watch':
        // Updates of a watch that was replaced may still be on their way.
        if (update.requestId === 0 || update.requestId === this.watchId) this.onWatch(update.update.value);
        break;
      case 'operate':
        if (update.update.value.update.case === 'attached' && this.held) this.onAttached(update.update.value.update.value);
        break;
      case 'error': {
        const { code, message } = update.update.value;
        const ofWatch = update.requestId === this.watchId || (update.requestId === 0 && code === ABORTED);
        if (this.held && !ofWatch) this.dropTool();
        this.report(ofWatch ? 'Watch' : 'Server', new ServerError(code, message));
        if (ofWatch) {
          this.watchedScene = '';
          void this.refreshScenes();
        }
        break;
      }
      default:
        break;
    }
  }

  private onWatch(update: WatchUpdate): void {
    if (update.update.case === 'keyframe') this.onKeyframe(update.update.value);
    else if (this.awaitsKeyframe) return;
    else if (update.update.case === 'delta') this.onDelta(update.update.value);
    else if (update.update.case === 'frame') this.onFrame(update.update.value);
  }

  private onKeyframe(keyframe: Keyframe): void {
    if (keyframe.scene && keyframe.scene.sceneId !== this.watchedScene) return;
    ++this.keyframesReceived;
    const problem = this.view.load(keyframe, this.streamEncoding, this.framedScene !== this.watchedScene);
    if (problem) {
      this.report('Keyframe', new Error(problem));
      return;
    }
    const different = keyframe.bodies.filter((body, index) => !this.view.organs[index]!.surface.matches(body.meshHash));
    if (different.length > 0) this.report('Keyframe', new Error(`the surface of '${different[0]!.name}' is not what its hash says`));
    this.redraw();
    this.awaitsKeyframe = false;
    this.awaitsFrame = false;
    this.framedScene = this.watchedScene;
    this.keyframe = keyframe;
    this.topologyVersion = keyframe.topologyVersion;
    this.frame = keyframe.frame;
    this.pendingFrame = undefined;
    this.overlay.hide();
    this.panel.load(keyframe.scene, this.triangleCount, keyframe.tools);
    this.seeThrough.update();
    if (this.held) for (const model of this.view.tools) model.setHighlight(model.index === this.held.index);
    this.syncSpeed(keyframe.scene?.rate);
    if (keyframe.scene) this.noteResets(keyframe.scene);
    this.lastStep = keyframe.frame?.step;
    this.showPills();
  }

  private onDelta(delta: TopologyDelta): void {
    ++this.deltasReceived;
    if (delta.fromVersion !== this.topologyVersion) {
      this.rewatch('Topology', `an edit leads from version ${delta.fromVersion}, but here is ${this.topologyVersion}`);
      return;
    }
    const problem = this.view.applyDelta(delta);
    if (problem) {
      this.rewatch('Topology', problem);
      return;
    }
    const { organs } = this.view;
    const firstPiece = organs.length - delta.newBodies.length;
    const different = delta.bodies.find((body) => !organs[body.bodyIndex]!.surface.matches(body.meshHash))
      ?? delta.newBodies.find((body, index) => !organs[firstPiece + index]!.surface.matches(body.meshHash));
    if (different) {
      this.rewatch('Topology', `the copy of '${'name' in different ? different.name : organs[different.bodyIndex]!.name}' here is not the server's any more`);
      return;
    }
    this.topologyVersion = delta.toVersion;
    this.pendingFrame = undefined;  // it has the old vertices
    this.awaitsFrame = true;
    this.panel.setTriangles(this.triangleCount);
    this.seeThrough.update();
  }

  private onFrame(frame: Frame): void {
    if (frame.topologyVersion !== this.topologyVersion) return;
    const now = performance.now();
    // A reset; the list says whose.
    if (this.lastStep !== undefined && frame.step < this.lastStep) void this.refreshScenes();
    this.lastStep = frame.step;
    ++this.framesReceived;
    this.frameMeter.add(now);
    this.pendingFrame = frame;  // the picture takes the newest
    this.panel.addFrame(frame, now / 1000);
  }

  /** The surfaces here cannot follow the server's any more: says so, and asks for all of them. */
  private rewatch(what: string, why: string): void {
    this.report(what, new Error(`${why}; asking for a new keyframe`));
    this.awaitsKeyframe = true;
    const scene = this.watchedScene;
    clearTimeout(this.rewatchTimer);
    // The scene stays the one at hand meanwhile: its tool, its strokes and what they did are not lost with a delta.
    this.rewatchTimer = setTimeout(() => {
      if (scene === '' || this.watchedScene !== scene || !this.awaitsKeyframe) return;
      this.lastRewatch_ms = performance.now();
      this.watch(scene);
    }, Math.max(0, this.lastRewatch_ms + REWATCH_PAUSE_MS - performance.now()));
  }

  get triangleCount(): number {
    return this.view.organs.reduce((sum, organ) => sum + organ.surface.liveCount, 0);
  }

  // --- simulation controls --------------------------------------------------------------------------------------------------------------------------

  get runState(): RunState {
    return this.frame?.state || this.keyframe?.scene?.state || RunState.UNSPECIFIED;
  }

  async togglePlay(): Promise<void> {
    if (this.watchedScene === '') return;
    const sceneId = this.watchedScene;
    if (this.runState === RunState.PLAYING) this.onSceneInfo(await this.ask('Pause', { case: 'pause', value: { sceneId } }));
    else this.onSceneInfo(await this.ask('Play', { case: 'play', value: { sceneId } }));
  }

  async step(count = 1): Promise<void> {
    if (this.watchedScene !== '') this.onSceneInfo(await this.ask('Step', { case: 'step', value: { sceneId: this.watchedScene, count } }));
  }

  async reset(): Promise<void> {
    if (this.watchedScene === '') return;
    this.surgery.forget();
    this.resets.begin();
    const answer = await this.ask('Reset', { case: 'reset', value: { sceneId: this.watchedScene, clientName: this.name } });
    this.resets.end(answer?.case === 'scene' ? answer.value : undefined);
    this.onSceneInfo(answer);
  }

  async setSpeed(index: number): Promise<void> {
    const choice = SPEEDS[index];
    if (choice && this.watchedScene !== '') this.onSceneInfo(await this.ask('Speed', { case: 'setRate', value: { sceneId: this.watchedScene, rate: choice.rate } }));
  }

  static speedLabels(): string[] {
    return SPEEDS.map((speed) => speed.label);
  }

  /** Tells who has set the watched scene back, unless it was the user. */
  private noteResets(info: SceneInfo): void {
    const who = this.resets.look(info);
    if (who !== undefined && info.sceneId === this.watchedScene) this.toasts.show(`${who} has set the scene back to its start.`, { title: 'Reset', info: true });
  }

  private onSceneInfo(answer: ViewerUpdate['update'] | undefined): void {
    if (answer?.case !== 'scene' || answer.value.sceneId !== this.watchedScene) return;
    // Frames carry the state too, but a paused scene may send none.
    if (this.frame) this.frame.state = answer.value.state;
    if (this.pendingFrame) this.pendingFrame.state = answer.value.state;
    this.syncSpeed(answer.value.rate);
    this.showPills();
  }

  private syncSpeed(rate: Rate | undefined): void {
    const select = element('speed') as HTMLSelectElement;
    if (document.activeElement === select || !rate) return;
    const speed = rate.speed ?? 1;
    const index = SPEEDS.findIndex(({ rate: one }) => (rate.mode === RateMode.AS_FAST_AS_POSSIBLE ? one.mode === rate.mode : one.speed === speed));
    if (index >= 0) select.selectedIndex = index;
  }

  private showPills(): void {
    const pill = element('connection');
    const text = { connecting: 'Connecting', open: 'Connected', waiting: 'Server away' }[this.connectionState.kind];
    pill.className = `pill ${{ connecting: 'warn', open: 'good', waiting: 'bad' }[this.connectionState.kind]}`;
    pill.querySelector('span')!.textContent = text;
    const run = element('run-state');
    const state = this.runState;
    const [label, color] = { [RunState.UNSPECIFIED]: ['', ''], [RunState.PAUSED]: ['Paused', 'warn'], [RunState.PLAYING]: ['Playing', 'good'],
      [RunState.FAILED]: ['Stopped', 'bad'] }[state] ?? ['', ''];
    run.hidden = !label || this.connectionState.kind !== 'open';
    run.className = `pill ${color}`;
    const failure = this.frame?.failure || this.keyframe?.scene?.failure || '';
    run.querySelector('span')!.textContent = label!;
    run.title = state === RunState.FAILED ? failure : '';
    if (state === RunState.FAILED && failure !== '' && failure !== this.loggedFailure) console.info(`The scene has failed: ${failure}`);
    this.loggedFailure = failure;
    const play = element('b-play');
    play.classList.toggle('playing', state === RunState.PLAYING);
    play.setAttribute('aria-label', state === RunState.PLAYING ? 'Pause' : 'Play');
    const off = this.connectionState.kind !== 'open' || this.watchedScene === '';
    for (const id of ['b-play', 'b-step', 'b-reset']) (element(id) as HTMLButtonElement).disabled = off;
    (element('b-step') as HTMLButtonElement).disabled = off || state === RunState.PLAYING;
    (element('b-play') as HTMLButtonElement).disabled = off || state === RunState.FAILED;
  }

  // --- the tool in the hand -------------------------------------------------------------------------------------------------------------------------

  ownerOf(index: number): ToolOwner {
    if (this.held?.index === index) return this.held.hand ? 'you' : 'taking';
    return this.frame?.tools[index]?.operated ? 'station' : 'free';
  }

  toggleTool(index: number): void {
    if (this.held?.index === index) void this.releaseTool();
    else void this.takeTool(index);
  }

  /** Takes the tool with this index, giving back the one in the hand. True when it is in the hand. */
  async takeTool(index: number): Promise<boolean> {
    const tool = this.keyframe?.tools[index];
    if (!tool || this.watchedScene === '') return false;
    if (this.held) await this.releaseTool();
    const held: Held = { index, name: tool.name, sequence: 0n, jawsClosed: false, pedalDown: false };
    this.held = held;
    let answer: ViewerUpdate['update'] | undefined;
    try {
      answer = await this.connection.call({ case: 'attach', value: { sceneId: this.watchedScene, tool: tool.name, station: this.name || 'viewer' } });
    } catch (error) {
      if (this.held === held) this.held = undefined;
      this.report(`Take ${tool.name}`, error);
      return false;
    }
    if (answer.case === 'operate' && answer.value.update.case === 'attached' && this.held === held) this.onAttached(answer.value.update.value);
    return this.held === held && held.hand !== undefined;
  }

  async releaseTool(): Promise<void> {
    if (!this.held) return;
    this.dropTool();
    await this.ask('Release', { case: 'release', value: {} });
  }

  private onAttached(attached: { pose?: { positionM?: { x: number; y: number; z: number }; rotation?: { w: number; x: number; y: number; z: number } } }): void {
    const held = this.held;
    if (!held || held.hand) return;
    const q = attached.pose?.rotation;
    held.hand = new ToolHand({
      position: toVector(attached.pose?.positionM as never),
      rotation: q ? new THREE.Quaternion(q.x, q.y, q.z, q.w).normalize() : new THREE.Quaternion(),
    });
    this.redraw();
    for (const model of this.view.tools) model.setHighlight(model.index === held.index);
    element('view').classList.add('holding');
  }

  /** Forgets the tool without telling the server. */
  private dropTool(): void {
    this.held = undefined;
    this.redraw();
    for (const model of this.view.tools) model.setHighlight(false);
    element('view').classList.remove('holding');
  }

  private sendPose(now: number): void {
    const held = this.held;
    if (!held?.hand || !this.connection.canSendPose) return;
    const velocity = held.hand.tick(now);
    if (!velocity) return;
    const { position: p, rotation: q } = held.hand.pose;
    held.sequence += 1n;
    this.connection.send({
      case: 'pose',
      value: create(ToolPoseSchema, {
        sequence: held.sequence,
        stationTimeUs: BigInt(Math.round(now * 1000)),
        pose: { positionM: { x: p.x, y: p.y, z: p.z }, rotation: { w: q.w, x: q.x, y: q.y, z: q.z } },
        velocityMPerS: { x: velocity.x, y: velocity.y, z: velocity.z },
        jawAngleRad: held.jawsClosed ? 0 : maxJawAngle(this.view.tools[held.index]!.shape),
        pedal: held.pedalDown,
      }),
    });
  }

  /** The instrument in the hand, if it has jaws, or a pedal. */
  get heldWithJaws(): boolean {
    return this.held?.hand !== undefined && hasJaws(this.view.tools[this.held.index]!.shape.kind);
  }

  get heldWithPedal(): boolean {
    return this.held?.hand !== undefined && hasPedal(this.view.tools[this.held.index]!.shape.kind);
  }

  setJaws(closed: boolean): void {
    if (!this.held?.hand || !this.heldWithJaws) return;
    this.held.jawsClosed = closed;
    this.held.hand.touch();
  }

  setPedal(down: boolean): void {
    if (!this.held?.hand || !this.heldWithPedal) return;
    this.held.pedalDown = down;
    this.held.hand.touch();
  }

  setKey(key: string, down: boolean): void {
    if (down) this.keys.add(key);
    else this.keys.delete(key);
  }

  clearKeys(): void {
    this.keys.clear();
    this.setJaws(false);
    this.setPedal(false);
  }

  /** Moves the held tool along the view; positive = away from the camera. */
  pushTool(distance_m: number): void {
    const hand = this.held?.hand;
    if (!hand) return;
    this.stage.camera.getWorldDirection(this.forward);
    hand.move(this.forward.multiplyScalar(distance_m));
  }

  private moveByKeys(elapsed_s: number): void {
    const hand = this.held?.hand;
    if (!hand || this.keys.size === 0) return;
    const speed = this.stage.radius_m * 0.55 * (this.keys.has('shift') ? 0.25 : 1) * elapsed_s;
    const axis = (plus: string, minus: string) => (this.keys.has(plus) ? 1 : 0) - (this.keys.has(minus) ? 1 : 0);
    this.stage.camera.getWorldDirection(this.forward);
    this.side.crossVectors(this.forward, this.stage.camera.up).normalize();
    const up = new THREE.Vector3().crossVectors(this.side, this.forward);
    const move = new THREE.Vector3()
      .addScaledVector(this.forward, axis('w', 's') * speed)
      .addScaledVector(this.side, axis('arrowright', 'arrowleft') * speed)
      .addScaledVector(up, axis('arrowup', 'arrowdown') * speed);
    if (move.lengthSq() > 0) hand.move(move);
    const turn = axis('e', 'q') * 1.2 * elapsed_s;
    if (turn !== 0) hand.rotate(new THREE.Quaternion().setFromAxisAngle(this.forward, turn));
    const tilt = axis('d', 'a') * 1.2 * elapsed_s;
    if (tilt !== 0) hand.rotate(new THREE.Quaternion().setFromAxisAngle(up, tilt));
  }

  // --- surgery with the mouse -----------------------------------------------------------------------------------------------------------------------

  get radius_m(): number {
    return this.stage.radius_m;
  }

  /** What is shown waits for the server: its surfaces cannot be pointed at. */
  get isBehind(): boolean {
    return this.awaitsFrame || this.awaitsKeyframe;
  }

  pick(pointer: THREE.Vector2): SurfaceHit | undefined {
    if (this.awaitsFrame) this.takeFrame();
    if (this.isBehind) return undefined;
    this.ray.setFromCamera(pointer, this.stage.camera);
    return pickSurface(this.ray.ray, this.view.organs, this.view.section);
  }

  async edit(edits: EditInit[], key: string): Promise<EditSceneResponse> {
    const answer = await this.connection.call({ case: 'edit', value: { sceneId: this.sceneId, key, edits } });
    if (answer.case !== 'edit') throw new Error(`the server answered an edit with '${answer.case}'`);
    return answer.value;
  }

  placeToasts(): void {
    this.toasts.place();
  }

  tell(message: string): void {
    this.toasts.show(message, { info: true });
  }

  async bringJaws(hit: SurfaceHit, pointer: THREE.Vector2): Promise<string | undefined> {
    const scene = this.watchedScene;
    if (!this.heldWithJaws) {
      const free = this.view.tools.find((tool) => hasJaws(tool.shape.kind) && this.ownerOf(tool.index) === 'free');
      if (!free) {
        this.tell('No instrument with jaws is free in this scene.');
        return undefined;
      }
      if (!(await this.takeTool(free.index))) return undefined;
    }
    if (this.runState !== RunState.PLAYING) {
      this.tell('The scene stands still: press play, then grasp.');
      return undefined;
    }
    const { held } = this;
    if (!held?.hand) return undefined;
    held.jawsClosed = false;
    held.hand.move(hit.point.clone().sub(held.hand.pose.position));
    const until = performance.now() + ARRIVE_PATIENCE_MS;
    const tip = this.view.tools[held.index]!.group.position;
    while (tip.distanceTo(held.hand.pose.position) > ARRIVED_M && performance.now() < until) {
      await new Promise((resolve) => setTimeout(resolve, 30));
      if (this.held !== held || this.watchedScene !== scene || !this.surgery.isCutting) return undefined;
    }
    held.hand.beginDrag(pointer, this.stage.camera);
    return held.name;
  }

  letGo(): void {
    this.held?.hand?.endDrag();
  }

  /** Something besides a frame or the camera changed what there is to see. */
  redraw(): void {
    this.needsPicture = true;
  }

  // --- pictures -------------------------------------------------------------------------------------------------------------------------------------

  setQuality(quality: Quality): void {
    this.redraw();
    this.stage.setQuality(quality);
    this.view.setPlain(quality === 'low');
  }

  fit(): void {
    this.redraw();
    this.view.showEverything();
  }

  private onPicture(now: number): void {
    requestAnimationFrame((next) => this.onPicture(next));
    const elapsed_ms = now - this.lastPicture_ms;
    this.lastPicture_ms = now;
    if (this.autoQuality) this.adaptQuality(elapsed_ms);
    this.moveByKeys(Math.min(elapsed_ms, 100) / 1000);
    this.sendPose(now);
    if (this.stage.quality === 'low' && now - this.lastRender_ms < LOW_QUALITY_INTERVAL_MS) return;
    this.takeFrame();
    // Nothing moves: nothing is drawn.
    if (this.stage.controls.update()) this.needsPicture = true;
    if (this.needsPicture && !this.awaitsFrame) {
      this.needsPicture = false;
      this.lastRender_ms = now;
      this.stage.render();
      this.view.placeLabels();
    }
    const owners = this.view.tools.map((tool) => this.ownerOf(tool.index));
    this.panel.draw(this.frame, owners, { fps: this.fps, bytesPerSecond: this.bytesPerSecond(now) }, now / 1000);
    this.handControls.show(this.held?.hand && this.surgery.mode === 'hand' ? { hasJaws: this.heldWithJaws, hasPedal: this.heldWithPedal } : undefined);
    this.showHint();
    if (this.connectionState.kind === 'waiting') this.showAway();
  }

  /** Brings the newest frame into the view. */
  private takeFrame(): void {
    const frame = this.pendingFrame;
    if (!frame) return;
    this.pendingFrame = undefined;
    const before = this.runState;
    const problem = this.view.update(frame, this.streamEncoding);
    if (problem) {
      this.rewatch('Frame', problem);
      return;
    }
    this.frame = frame;
    this.awaitsFrame = false;
    this.needsPicture = true;
    if (this.runState !== before) this.showPills();
  }

  get fps(): number {
    return this.frameMeter.perSecond(performance.now());
  }

  private bytesPerSecond(now: number): number {
    this.bytes.push({ t: now, total: this.connection.bytesReceived });
    while (this.bytes.length > 2 && this.bytes[0]!.t < now - 1500) this.bytes.shift();
    const first = this.bytes[0]!;
    return now - first.t < 50 ? 0 : (1000 * (this.connection.bytesReceived - first.total)) / (now - first.t);
  }

  /** A machine that cannot keep up gets a plainer picture. */
  private adaptQuality(elapsed_ms: number): void {
    if (document.hidden || elapsed_ms > 2000) return;
    this.slowPictures = elapsed_ms > 45 ? this.slowPictures + 1 : Math.max(0, this.slowPictures - 2);
    if (this.slowPictures < 20 || this.stage.quality === 'low') return;
    this.slowPictures = 0;
    this.setQuality(this.stage.quality === 'high' ? 'medium' : 'low');
  }

  private showHint(): void {
    const hint = element('hint');
    let html = '';
    const { mode } = this.surgery;
    const byFinger = document.body.classList.contains('by-finger');
    if (this.runState === RunState.FAILED) {
      html = 'The simulation has stopped with an error · <b>Reset</b> it to go on';
    } else if (mode !== 'hand') {
      html = { carve: '<b>Drag</b> over the tissue to carve', incise: '<b>Drag</b> along the line of the incision', grasp: '<b>Press and drag</b> to grasp and pull' }[mode]
        + (byFinger ? ' · <b>beside it</b> to orbit · <b>Two fingers</b> zoom · <b>Hand</b> ends'
          : ' · <b>Wheel + Ctrl</b> or <b>[ ]</b> size · <b>Right drag</b> orbits · <b>R</b> restores the tissue · <b>Esc</b> ends');
    } else if (this.held?.hand) {
      html = byFinger ? '<b>Drag</b> moves the instrument · <b>Two fingers</b> zoom and orbit'
        : `<b>Drag</b> moves the instrument · <b>W S</b> or <b>Shift + wheel</b> push it away and back · <b>Right drag</b> orbits`
        + `${this.heldWithJaws ? ' · <b>G</b> closes the jaws' : ''}${this.heldWithPedal ? ' · <b>Space</b> is the pedal' : ''} · <b>T</b> releases`;
    } else if (this.connection.isOpen && this.view.tools.some((tool) => this.ownerOf(tool.index) === 'free')) {
      html = byFinger ? '<b>Tap an instrument</b> to take it and push the organ' : '<b>Click an instrument</b> or press <b>T</b> to take it and push the organ';
    }
    if (hint.dataset.text !== html) {
      hint.dataset.text = html;
      hint.innerHTML = html;  // constants only
    }
  }
}
