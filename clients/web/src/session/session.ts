import type { SceneInfo } from '../../generated/palpate/v1/control_pb';
import type { Attached } from '../../generated/palpate/v1/haptics_pb';
import type { ViewerError, ViewerUpdate } from '../../generated/palpate/v1/viewer_pb';
import { ServerError, type Clock, type Connection, type ConnectionState } from '../net/connection';
import type { SceneStream } from './scene_stream';

const LIST_INTERVAL_MS = 2500;
const ABORTED = 10;

export interface SessionEvents {
  /** The connection is another, or gone. */
  onState(state: ConnectionState): void;
  /** The list of scenes has come, and the wanted one is watched. */
  onScenes(scenes: SceneInfo[]): void;
  /** The scene of the address, which is not on this server. */
  onUnknownScene(sceneId: string): void;
  /** Before another scene is watched than so far. */
  onOtherScene(): void;
  /** A scene is watched, perhaps anew. */
  onWatch(sceneId: string): void;
  /** The server has no scene. */
  onNoScene(): void;
  onAttached(attached: Attached): void;
  /** Of no request that waits for its answer. */
  onRefusal(isOfWatch: boolean, error: ServerError): void;
  onListRefused(error: ServerError): void;
}

/** The time with one server: while it is there its scenes are listed, and the wanted one is watched as soon as it exists. */
export class Session {
  state: ConnectionState = { kind: 'connecting', attempt: 0 };
  scenes: SceneInfo[] = [];
  reconnects = 0;
  private timer: unknown;
  /** Where to go back to when the watched scene is gone; empty: the first one there is. */
  private home = '';
  /** Lists that were ever asked for, and the first of them that knows of all that this page has opened. */
  private asked = 0;
  private firstKnowing = 0;

  /** `sceneId`: the wanted scene; empty: the first one there is. */
  constructor(
    public sceneId: string,
    private readonly connection: Pick<Connection, 'call' | 'isOpen'>,
    private readonly stream: SceneStream,
    private readonly events: SessionEvents,
    private readonly clock: Pick<Clock, 'setTimeout' | 'clearTimeout'> = {
      setTimeout: (run, ms) => globalThis.setTimeout(run, ms),
      clearTimeout: (handle) => globalThis.clearTimeout(handle as number),
    },
  ) {}

  /** What the list says of the wanted scene. */
  get scene(): SceneInfo | undefined {
    return this.scenes.find((scene) => scene.sceneId === this.sceneId);
  }

  /** What a scene is called; one without a name by its id. */
  nameOf(sceneId: string): string {
    return this.scenes.find((scene) => scene.sceneId === sceneId)?.name || sceneId;
  }

  onConnection(state: ConnectionState): void {
    const before = this.state;
    this.state = state;
    if (state.kind === 'open') {
      if (before.kind === 'connecting' && before.attempt > 0) ++this.reconnects;
      this.stream.endWithConnection();
      void this.refresh();
    } else {
      this.clock.clearTimeout(this.timer);
    }
    this.events.onState(state);
  }

  onUpdate({ requestId, update }: ViewerUpdate): void {
    if (update.case === 'watch') this.stream.onWatch(requestId, update.value);
    else if (update.case === 'operate' && update.value.update.case === 'attached') this.events.onAttached(update.value.update.value);
    else if (update.case === 'error') this.onError(requestId, update.value);
  }

  /** Asks for the list now, and again from time to time. */
  async refresh(): Promise<void> {
    this.clock.clearTimeout(this.timer);
    const round = ++this.asked;
    try {
      const answer = await this.connection.call({ case: 'list', value: {} });
      if (answer.case === 'list' && round >= this.firstKnowing) this.onScenes(answer.value.scenes);
    } catch (error) {
      if (error instanceof ServerError) this.events.onListRefused(error);
    }
    this.clock.clearTimeout(this.timer);
    if (this.connection.isOpen) this.timer = this.clock.setTimeout(() => void this.refresh(), LIST_INTERVAL_MS);
  }

  /** `keepsCamera`: it shows what the scene so far shows, at another time. */
  watch(sceneId: string, keepsCamera = false): void {
    if (sceneId !== this.stream.sceneId) this.events.onOtherScene();
    this.sceneId = sceneId;
    this.events.onWatch(sceneId);
    this.stream.watch(sceneId, keepsCamera);
  }

  /** Watches a scene that the server has made of the watched one, which may not be in the list yet. */
  open(info: SceneInfo): void {
    this.home = this.sceneId;
    this.firstKnowing = this.asked + 1;
    this.scenes = [...this.scenes.filter(({ sceneId }) => sceneId !== info.sceneId), info];
    this.watch(info.sceneId, true);
    this.events.onScenes(this.scenes);
  }

  private onScenes(scenes: SceneInfo[]): void {
    this.scenes = scenes;
    if (!this.scene && scenes.length > 0) {
      if (this.sceneId !== '' && this.stream.sceneId === '') this.events.onUnknownScene(this.sceneId);
      this.sceneId = (scenes.find(({ sceneId }) => sceneId === this.home) ?? scenes[0]!).sceneId;
    }
    if (scenes.length === 0) {
      this.stream.leave();
      this.events.onNoScene();
    } else if (this.stream.sceneId !== this.sceneId) {
      this.watch(this.sceneId);
    }
    this.events.onScenes(scenes);
  }

  private onError(requestId: number, { code, message }: ViewerError): void {
    const isOfWatch = this.stream.isOfWatch(requestId) || (requestId === 0 && code === ABORTED);
    this.events.onRefusal(isOfWatch, new ServerError(code, message));
    if (!isOfWatch) return;
    this.stream.end();
    void this.refresh();
  }
}
