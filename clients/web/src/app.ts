import * as THREE from 'three';
import { create } from '@bufbuild/protobuf';
import { RateMode, RunState, type Rate, type SceneInfo } from '../generated/palpate/v1/control_pb';
import { PositionEncoding, type Frame, type Keyframe, type WatchUpdate } from '../generated/palpate/v1/stream_pb';
import { ToolPoseSchema } from '../generated/palpate/v1/haptics_pb';
import type { ViewerUpdate } from '../generated/palpate/v1/viewer_pb';
import { Connection, ServerError, type ConnectionState } from './net/connection';
import { codeName, Overlay, Toasts } from './ui/notices';
import { element, Panel, type ToolOwner } from './ui/panel';
import { RateMeter } from './view/rate_meter';
import { SceneView, toVector } from './view/scene_view';
import { Stage, type Quality } from './view/stage';
import { ToolHand } from './view/tool_hand';

const LIST_INTERVAL_MS = 2500;
const ABORTED = 10;
/** Between pictures at low quality: a machine that draws in software has other work to do, perhaps the simulation itself. */
const LOW_QUALITY_INTERVAL_MS = 80;

const SPEEDS: { label: string; rate: { mode: RateMode; speed?: number } }[] = [
  ...[0.1, 0.25, 0.5, 1, 2].map((speed) => ({ label: `${speed}×`, rate: { mode: RateMode.REAL_TIME, speed } })),
  { label: 'max', rate: { mode: RateMode.AS_FAST_AS_POSSIBLE } },
];

/** A tool in the user's hand, or on its way there. */
interface Held {
  index: number;
  name: string;
  hand?: ToolHand;
  sequence: bigint;
}

/** The viewer: a connection, one watched scene, at most one tool in the hand. */
export class App {
  readonly stage: Stage;
  readonly view: SceneView;
  readonly panel: Panel;
  readonly toasts: Toasts;
  readonly overlay: Overlay;
  readonly connection: Connection;
  readonly errors: string[] = [];
  sceneId: string;
  scenes: SceneInfo[] = [];
  keyframe: Keyframe | undefined;
  frame: Frame | undefined;
  held: Held | undefined;
  framesReceived = 0;
  keyframesReceived = 0;
  reconnects = 0;
  private encoding = PositionEncoding.FLOAT32;
  /** Encoding of the stream that runs; changes with its first keyframe. */
  private streamEncoding = PositionEncoding.FLOAT32;
  private watchId = 0;
  private watchedScene = '';
  private pendingFrame: Frame | undefined;
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
  private readonly forward = new THREE.Vector3();
  private readonly side = new THREE.Vector3();

  constructor(parameters: URLSearchParams) {
    this.sceneId = parameters.get('scene') ?? '';
    if (parameters.get('positions') === 'uint16') this.encoding = PositionEncoding.UINT16;
    this.stage = new Stage(element('view') as HTMLCanvasElement);
    this.view = new SceneView(this.stage, element('labels'));
    this.panel = new Panel((index) => this.toggleTool(index));
    this.toasts = new Toasts(element('toasts'));
    this.overlay = new Overlay(element('overlay'));
    const quality = parameters.get('quality');
    this.autoQuality = quality !== 'high' && quality !== 'medium' && quality !== 'low';
    this.setQuality(this.autoQuality ? 'high' : (quality as Quality));
    const socketUrl = new URL('ws', document.baseURI);
    socketUrl.protocol = socketUrl.protocol === 'https:' ? 'wss:' : 'ws:';
    socketUrl.search = '';
    socketUrl.hash = '';
    this.connection = new Connection(() => new WebSocket(socketUrl), {
      onState: (state) => this.onConnection(state),
      onUpdate: (update) => this.onUpdate(update),
    });
  }

  start(): void {
    this.connection.start();
    requestAnimationFrame((now) => this.onPicture(now));
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
    const reason = state.reason ? `${state.reason}. ` : '';
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

  private report(what: string, error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    this.errors.push(`${what}: ${message}`);
    this.toasts.show(message, { title: error instanceof ServerError ? `${what} · ${codeName(error.code)}` : what });
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
    this.syncSpeed(scenes.find((scene) => scene.sceneId === this.sceneId)?.rate);
    this.showPills();
  }

  watch(sceneId: string): void {
    if (sceneId !== this.watchedScene) this.dropTool();
    this.sceneId = sceneId;
    this.watchedScene = sceneId;
    (element('scenes') as HTMLSelectElement).value = sceneId;
    const url = new URL(location.href);
    url.searchParams.set('scene', sceneId);
    history.replaceState(null, '', url);
    this.pendingFrame = undefined;
    this.streamEncoding = this.encoding;
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
    this.panel.load(undefined, 0, []);
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
    const now = performance.now();
    if (update.update.case === 'keyframe') {
      const keyframe = update.update.value;
      if (keyframe.scene && keyframe.scene.sceneId !== this.watchedScene) return;
      ++this.keyframesReceived;
      const moveCamera = this.framedScene !== this.watchedScene;
      const problem = this.view.load(keyframe, this.streamEncoding, moveCamera);
      if (problem) {
        this.report('Keyframe', new Error(problem));
        return;
      }
      this.redraw();
      this.framedScene = this.watchedScene;
      this.keyframe = keyframe;
      this.frame = keyframe.frame;
      this.pendingFrame = undefined;
      this.overlay.hide();
      const triangles = keyframe.bodies.reduce((sum, body) => sum + body.triangles.length / 3, 0);
      this.panel.load(keyframe.scene, triangles, keyframe.tools.map((tool) => tool.name));
      this.syncSpeed(keyframe.scene?.rate);
      this.showPills();
    } else if (update.update.case === 'frame') {
      const frame = update.update.value;
      if (!this.keyframe || frame.topologyVersion !== this.keyframe.topologyVersion) return;
      ++this.framesReceived;
      this.frameMeter.add(now);
      this.pendingFrame = frame;  // the picture takes the newest
      this.panel.addFrame(frame, now / 1000);
    }
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
    if (this.watchedScene !== '') this.onSceneInfo(await this.ask('Reset', { case: 'reset', value: { sceneId: this.watchedScene } }));
  }

  async setSpeed(index: number): Promise<void> {
    const choice = SPEEDS[index];
    if (choice && this.watchedScene !== '') this.onSceneInfo(await this.ask('Speed', { case: 'setRate', value: { sceneId: this.watchedScene, rate: choice.rate } }));
  }

  static speedLabels(): string[] {
    return SPEEDS.map((speed) => speed.label);
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
    run.querySelector('span')!.textContent = state === RunState.FAILED && failure ? `Stopped: ${failure}` : label!;
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
    const held: Held = { index, name: tool.name, sequence: 0n };
    this.held = held;
    let answer: ViewerUpdate['update'] | undefined;
    try {
      answer = await this.connection.call({ case: 'attach', value: { sceneId: this.watchedScene, tool: tool.name, station: 'viewer' } });
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
      }),
    });
  }

  setKey(key: string, down: boolean): void {
    if (down) this.keys.add(key);
    else this.keys.delete(key);
  }

  clearKeys(): void {
    this.keys.clear();
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

  /** Something besides a frame or the camera changed what there is to see. */
  redraw(): void {
    this.needsPicture = true;
  }

  // --- pictures -------------------------------------------------------------------------------------------------------------------------------------

  setQuality(quality: Quality): void {
    this.redraw();
    this.stage.setQuality(quality);
    this.view.setDetail(quality !== 'low');
  }

  fit(): void {
    this.redraw();
    const box = new THREE.Box3();
    for (const organ of this.view.organs) box.union(new THREE.Box3().setFromArray(organ.positions));
    if (!box.isEmpty()) this.stage.frameBox(box, true);
  }

  private onPicture(now: number): void {
    requestAnimationFrame((next) => this.onPicture(next));
    const elapsed_ms = now - this.lastPicture_ms;
    this.lastPicture_ms = now;
    if (this.autoQuality) this.adaptQuality(elapsed_ms);
    this.moveByKeys(Math.min(elapsed_ms, 100) / 1000);
    this.sendPose(now);
    if (this.stage.quality === 'low' && now - this.lastRender_ms < LOW_QUALITY_INTERVAL_MS) return;
    if (this.pendingFrame) {
      const before = this.runState;
      const problem = this.view.update(this.pendingFrame, this.streamEncoding);
      if (problem) {
        this.report('Frame', new Error(problem));
        this.pendingFrame = undefined;
        this.watchedScene = '';  // asks for a new keyframe with the next list
      } else {
        this.frame = this.pendingFrame;
        this.pendingFrame = undefined;
        this.needsPicture = true;
        if (this.runState !== before) this.showPills();
      }
    }
    // Nothing moves: nothing is drawn.
    if (this.stage.controls.update()) this.needsPicture = true;
    if (this.needsPicture) {
      this.needsPicture = false;
      this.lastRender_ms = now;
      this.stage.render();
      this.view.placeLabels();
    }
    const owners = this.view.tools.map((tool) => this.ownerOf(tool.index));
    this.panel.draw(this.frame, owners, { fps: this.fps, bytesPerSecond: this.bytesPerSecond(now) }, now / 1000);
    this.showHint();
    if (this.connectionState.kind === 'waiting') this.showAway();
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
    if (this.held?.hand) html = `<b>Drag</b> moves the instrument · <b>W S</b> or <b>Shift + wheel</b> push it away and back · <b>Right drag</b> orbits · <b>T</b> releases`;
    else if (this.connection.isOpen && this.view.tools.some((tool) => this.ownerOf(tool.index) === 'free')) html = `<b>Click an instrument</b> or press <b>T</b> to take it and push the organ`;
    if (hint.dataset.text !== html) {
      hint.dataset.text = html;
      hint.innerHTML = html;  // constants only
    }
  }
}
