import { RunState, type RateMode, type SceneInfo } from '../../generated/palpate/v1/control_pb';
import type { ViewerUpdate } from '../../generated/palpate/v1/viewer_pb';
import type { Connection } from '../net/connection';
import type { SceneStream } from './scene_stream';
import { ResetWatch } from './visitor';

export interface SpeedRate {
  mode: RateMode;
  /** Real time only: simulated seconds a second. */
  speed?: number;
}

export interface TransportEvents {
  /** A reset is asked for. */
  onReset(): void;
  /** A command was done; this is the watched scene now. */
  onScene(info: SceneInfo): void;
  /** Somebody else has set the watched scene back. */
  onForeignReset(who: string): void;
  onRefused(what: string, error: unknown): void;
}

type Request = Parameters<Connection['call']>[0];

/** Commands to the watched scene; without one they do nothing. */
export class Transport {
  private readonly resets = new ResetWatch();

  /** `userName`: what others are told of who did something; empty: the server names the address. */
  constructor(
    private readonly connection: Pick<Connection, 'call'>,
    private readonly stream: Pick<SceneStream, 'sceneId' | 'runState'>,
    private readonly userName: string,
    private readonly events: TransportEvents,
  ) {}

  async togglePlay(): Promise<void> {
    const { sceneId, runState } = this.stream;
    if (sceneId === '') return;
    if (runState === RunState.PLAYING) this.onAnswer(await this.ask('Pause', { case: 'pause', value: { sceneId } }));
    else this.onAnswer(await this.ask('Play', { case: 'play', value: { sceneId } }));
  }

  async step(count = 1): Promise<void> {
    const { sceneId } = this.stream;
    if (sceneId !== '') this.onAnswer(await this.ask('Step', { case: 'step', value: { sceneId, count } }));
  }

  async reset(): Promise<void> {
    const { sceneId } = this.stream;
    if (sceneId === '') return;
    this.events.onReset();
    this.resets.begin();
    const answer = await this.ask('Reset', { case: 'reset', value: { sceneId, clientName: this.userName } });
    this.resets.end(answer?.case === 'scene' ? answer.value : undefined);
    this.onAnswer(answer);
  }

  async setSpeed(rate: SpeedRate): Promise<void> {
    const { sceneId } = this.stream;
    if (sceneId !== '') this.onAnswer(await this.ask('Speed', { case: 'setRate', value: { sceneId, rate } }));
  }

  /** Call with all that the server says of a scene: tells who has set it back, unless it was the user. */
  noteResets(info: SceneInfo): void {
    if (info.isReplay) return;  // they are of the past
    const who = this.resets.look(info);
    if (who !== undefined && info.sceneId === this.stream.sceneId) this.events.onForeignReset(who);
  }

  private async ask(what: string, request: Request): Promise<ViewerUpdate['update'] | undefined> {
    try {
      return await this.connection.call(request);
    } catch (error) {
      this.events.onRefused(what, error);
      return undefined;
    }
  }

  private onAnswer(answer: ViewerUpdate['update'] | undefined): void {
    if (answer?.case === 'scene' && answer.value.sceneId === this.stream.sceneId) this.events.onScene(answer.value);
  }
}
