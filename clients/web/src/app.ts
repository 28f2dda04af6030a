import { RunState, type SceneInfo } from '../generated/palpate/v1/control_pb';
import type { Frame, Keyframe } from '../generated/palpate/v1/stream_pb';
import { KeyMotion } from './hand/key_motion';
import { ToolInHand } from './hand/tool_in_hand';
import { Tools } from './hand/tools';
import { ByteRate } from './net/byte_rate';
import { Connection, type ConnectionEvents, type ConnectionState } from './net/connection';
import { TokenGate, tokenInFragment } from './net/token';
import { Past } from './past/past';
import { divergenceWords } from './past/words';
import { SceneStream } from './session/scene_stream';
import { Session } from './session/session';
import { Transport } from './session/transport';
import { visitorName } from './session/visitor';
import { Surgery } from './surgery/surgery';
import { TissueAccess } from './surgery/tissue_access';
import { AwayNotice } from './ui/away_notice';
import { HandControls } from './ui/hand_controls';
import { Hint } from './ui/hint';
import { Overlay } from './ui/notices';
import { element, Panel } from './ui/panel';
import { Reports } from './ui/reports';
import { SceneChooser } from './ui/scene_chooser';
import { SeeThrough } from './ui/see_through';
import { SpeedChoice } from './ui/speed_choice';
import { StatusBar } from './ui/status_bar';
import { TimeLine, type TimeLineState } from './ui/time_line';
import { askForToken } from './ui/token_dialog';
import { Brush } from './view/brush';
import { PictureLoop } from './view/picture_loop';
import { onImage } from './view/images';
import { SceneView } from './view/scene_view';
import { Stage, type Quality } from './view/stage';
import { REPEAT_INTERVAL_MS } from './view/tool_hand';

/** A page that was asleep does not move the tool for all of that time. */
const MAX_MOVE_MS = 100;

/** A connection to the server of this page, with the token of the address or the user. */
function connectionOfPage(events: ConnectionEvents): Connection {
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
  return new Connection(async () => new WebSocket(socketUrl, await gate.protocols()), events);
}

function isQuality(text: string | null): text is Quality {
  return text === 'high' || text === 'medium' || text === 'low';
}

/** The viewer's parts, and which of them hears of what. What each of them does is in its own file. */
export class App {
  readonly reports = new Reports();
  readonly motion = new KeyMotion();
  readonly stage: Stage;
  readonly view: SceneView;
  readonly connection: Connection;
  readonly stream: SceneStream;
  readonly session: Session;
  readonly transport: Transport;
  readonly past: Past;
  readonly inHand: ToolInHand;
  readonly tools: Tools;
  readonly tissue: TissueAccess;
  readonly surgery: Surgery;
  readonly panel: Panel;
  /** The picture is of a replay, or of a scene again. */
  onReplay: (isReplay: boolean) => void = () => {};
  private readonly timeLine: TimeLine;
  private readonly loop: PictureLoop;
  private readonly seeThrough: SeeThrough;
  private readonly handControls: HandControls;
  private readonly overlay = new Overlay(element('overlay'));
  private readonly away = new AwayNotice(this.overlay, () => this.connection.retryNow());
  private readonly statusBar = new StatusBar();
  private readonly hint = new Hint(element('hint'));
  private readonly speed: SpeedChoice;
  private readonly chooser: SceneChooser;
  private readonly byteRate = new ByteRate();

  constructor(parameters: URLSearchParams) {
    const quality = parameters.get('quality');
    const userName = visitorName(parameters, localStorage);
    const refused = (what: string, error: unknown) => this.reports.report(what, error);
    this.stage = new Stage(element('view') as HTMLCanvasElement, quality !== 'low');
    this.view = new SceneView(this.stage, element('labels'));
    this.loop = this.makeLoop(!isQuality(quality));
    onImage(() => this.redraw());
    this.connection = connectionOfPage({
      onState: (state) => this.session.onConnection(state),
      onUpdate: (update) => this.session.onUpdate(update),
    });
    this.stream = this.makeStream();
    if (parameters.get('positions') === 'uint16') this.stream.setLowBandwidth(true);
    this.session = this.makeSession(parameters.get('scene') ?? '');
    this.transport = new Transport(this.connection, this.stream, userName, {
      onReset: () => this.surgery.forget(),
      onScene: (info) => this.onScene(info),
      onForeignReset: (who) => this.reports.tell(`${who} has set the scene back to its start.`, 'Reset'),
      onRefused: refused,
    });
    this.past = new Past(this.connection, this.stream, this.session, {
      onLeave: () => void this.inHand.release(),
      onScene: (info) => this.onScene(info),
      onRefused: refused,
    });
    this.timeLine = new TimeLine({
      scrub: (position) => this.past.scrub(position),
      backToLive: () => void this.past.backToLive(),
      branch: () => void this.branch(),
      bookmark: (name, position) => void this.past.bookmark(name, position),
      removeBookmark: (name) => void this.past.removeBookmark(name),
      tell: (message) => this.reports.tell(message),
    });
    this.inHand = new ToolInHand(this.connection, this.stream, userName, { onChange: () => this.showHeld(), onRefused: refused });
    this.tools = new Tools(this.view, this.stream, this.inHand);
    const brush = new Brush();
    this.stage.scene.add(brush.group);
    this.tissue = new TissueAccess({
      stage: this.stage, view: this.view, connection: this.connection, stream: this.stream, sceneId: () => this.session.sceneId,
      tools: this.tools, inHand: this.inHand, reports: this.reports, brush, redraw: () => this.redraw(),
    });
    this.surgery = new Surgery(this.tissue);
    const held = { setJaws: (closed: boolean) => this.inHand.setJaws(closed), setPedal: (down: boolean) => this.inHand.setPedal(down) };
    this.panel = new Panel({ ...held, toggle: (index) => this.tools.toggle(index) });
    this.handControls = new HandControls(element('hand-controls'), {
      ...held, push: (direction, on) => this.motion.set(direction === 'away' ? 'w' : 's', on), release: () => void this.inHand.release(),
    });
    this.seeThrough = new SeeThrough(element('see-through'), this.view, () => this.redraw());
    this.speed = new SpeedChoice(element('speed') as HTMLSelectElement, (rate) => void this.transport.setSpeed(rate));
    this.chooser = new SceneChooser(element('scenes') as HTMLSelectElement, (sceneId) => this.session.watch(sceneId));
    this.setQuality(isQuality(quality) ? quality : 'high');
  }

  start(): void {
    this.connection.start();
    this.loop.start();
    // Pictures may be slow, or stop in a page that nobody sees.
    setInterval(() => this.inHand.sendPose(performance.now()), REPEAT_INTERVAL_MS);
  }

  /** Something besides a frame or the camera changed what there is to see. */
  redraw(): void {
    this.loop.redraw();
  }

  setQuality(quality: Quality): void {
    this.redraw();
    this.stage.setQuality(quality);
    this.view.setPlain(quality === 'low');
  }

  fit(): void {
    this.redraw();
    this.view.showEverything();
  }

  /** Sets the scene back to its start, or shows that of a replay. */
  reset(): void {
    if (this.past.isReplay) this.past.scrub(this.past.axis?.begin ?? 0);
    else void this.transport.reset();
  }

  /** In a replay; a scene that lives cannot. */
  stepBack(): void {
    if (this.past.isReplay && this.stream.runState !== RunState.PLAYING) this.past.scrub(this.past.position - 1);
  }

  private async branch(): Promise<void> {
    if (await this.past.branch()) this.reports.tell('This is a branch of its own: play it to go on from here.', 'Branch');
  }

  private makeLoop(isAuto: boolean): PictureLoop {
    return new PictureLoop(this.stage, isAuto, {
      move: (now_ms, elapsed_ms) => {
        const { hand } = this.inHand;
        if (hand) this.motion.move(hand, this.stage.camera, this.stage.radius_m, Math.min(elapsed_ms, MAX_MOVE_MS) / 1000);
        this.inHand.sendPose(now_ms);
      },
      prepare: () => {
        this.stream.takeFrame();
        return this.stream.canDraw;
      },
      placeLabels: () => this.view.placeLabels(),
      describe: (now_ms) => this.describe(now_ms),
      lower: (quality) => this.setQuality(quality),
    });
  }

  private makeStream(): SceneStream {
    return new SceneStream(this.view, this.connection, {
      onKeyframe: (keyframe) => this.onKeyframe(keyframe),
      onTopology: () => {
        this.panel.setTriangles(this.triangleCount);
        this.seeThrough.update();
      },
      onFrame: (frame: Frame, now_ms) => this.panel.addFrame(frame, now_ms / 1000),
      onShown: () => this.redraw(),
      onRunState: () => this.showStatus(),
      onStepBack: () => void this.session.refresh(),  // the list says whose reset it was
      onProblem: (what, error) => this.reports.report(what, error),
    });
  }

  private makeSession(sceneId: string): Session {
    return new Session(sceneId, this.connection, this.stream, {
      onState: (state) => this.onConnection(state),
      onScenes: (scenes) => this.onScenes(scenes),
      onUnknownScene: (unknown) => this.reports.tell(`The scene '${unknown}' is not on this server.`),
      onOtherScene: () => {
        this.inHand.drop();
        this.surgery.forget();
        this.past.forget();
      },
      onWatch: (watched) => {
        this.chooser.showChosen(watched);
        const url = new URL(location.href);
        url.searchParams.set('scene', watched);
        history.replaceState(null, '', url);
      },
      onNoScene: () => this.onNoScene(),
      onAttached: (attached) => this.inHand.onAttached(attached),
      onRefusal: (isOfWatch, error) => {
        if (!isOfWatch && this.inHand.index !== undefined) this.inHand.drop();
        this.reports.report(isOfWatch ? 'Watch' : 'Server', error);
      },
      onListRefused: (error) => this.reports.report('List scenes', error),
    });
  }

  private onConnection(state: ConnectionState): void {
    if (state.kind === 'open') {
      this.overlay.hide();
    } else {
      this.inHand.drop();
      this.away.show(state);
    }
    this.showStatus();
  }

  private onScenes(scenes: SceneInfo[]): void {
    this.chooser.showScenes(scenes);
    this.chooser.showChosen(this.session.sceneId);
    const info = this.session.scene;
    if (info) this.transport.noteResets(info);
    this.past.note(info);
    void this.past.refresh();
    this.speed.show(info?.rate);
    this.panel.setTets(info);
    this.showStatus();
  }

  /** A command was done. */
  private onScene(info: SceneInfo): void {
    this.stream.noteRunState(info.state, info.step);
    this.speed.show(info.rate);
    this.past.note(info);
    this.showStatus();
  }

  private onNoScene(): void {
    this.inHand.drop();
    this.past.forget();
    this.surgery.forget();
    this.panel.load(undefined, 0, []);
    this.seeThrough.reset();
    this.overlay.show('No scene on this server', 'Create one with: palpate scene create FILE --play. It will appear here by itself.');
  }

  private onKeyframe({ scene, tools }: Keyframe): void {
    this.overlay.hide();
    this.panel.load(scene, this.triangleCount, tools);
    this.seeThrough.update();
    this.showHeld();
    this.speed.show(scene?.rate);
    if (scene) this.transport.noteResets(scene);
    this.past.note(scene);
    if (!this.past.isGoing) void this.past.refresh();
    this.onReplay(this.stream.isReplay);
    this.showStatus();
  }

  private get triangleCount(): number {
    return this.view.organs.reduce((sum, organ) => sum + organ.surface.liveCount, 0);
  }

  private showHeld(): void {
    for (const model of this.view.tools) model.setHighlight(model.index === this.inHand.index);
    element('view').classList.toggle('holding', this.inHand.hand !== undefined);
    this.redraw();
  }

  private showStatus(): void {
    const { frame, keyframe, runState, sceneId, isReplay } = this.stream;
    const failure = frame?.failure || keyframe?.scene?.failure || '';
    this.statusBar.show({ connection: this.session.state.kind, runState, failure, isWatching: sceneId !== '', isReplay });
  }

  /** The words and graphs beside the picture. */
  private describe(now_ms: number): void {
    const { stream, inHand, surgery } = this;
    const owners = this.view.tools.map((tool) => this.tools.ownerOf(tool.index));
    const bytesPerSecond = this.byteRate.perSecond(now_ms, this.connection.bytesReceived);
    const rates = { fps: stream.frameRate.perSecond(performance.now()), bytesPerSecond };
    this.panel.draw(stream.frame, this.view.organs.map((organ) => organ.name), owners, rates, now_ms / 1000);
    const held = inHand.hand && { hasJaws: inHand.hasJaws, hasPedal: inHand.hasPedal };
    this.handControls.show(surgery.mode === 'hand' ? held : undefined);
    this.hint.show({
      hasFailed: stream.runState === RunState.FAILED, isReplay: stream.isReplay, mode: surgery.mode, byFinger: document.body.classList.contains('by-finger'), held,
      canTake: this.connection.isOpen && owners.includes('free'),
    });
    this.away.show(this.session.state);
    this.timeLine.show(this.describePast(), now_ms);
  }

  private describePast(): TimeLineState | undefined {
    const { axis, timeline, position, isReplay, source, durable, durability, canBookmark, isGoing } = this.past;
    if (!axis || !timeline) return undefined;
    const first = timeline.firstDivergence;
    return {
      axis, position, durable, durability, canGoLive: source !== undefined, canBookmark, isGoing,
      replayOf: isReplay ? this.session.nameOf(source ?? timeline.source) : undefined,
      divergence: divergenceWords(axis, Number(timeline.divergences), first === undefined ? undefined : Number(first)),
    };
  }
}
