import { create } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { ToolPoseSchema, type Attached } from '../../generated/palpate/v1/haptics_pb';
import type { ToolShape } from '../../generated/palpate/v1/stream_pb';
import type { ViewerUpdate } from '../../generated/palpate/v1/viewer_pb';
import type { Connection } from '../net/connection';
import type { SceneStream } from '../session/scene_stream';
import { ToolHand } from '../view/tool_hand';
import { hasJaws, hasPedal, maxJawAngle } from '../view/tool_model';

/** A tool in the user's hand, or on its way there: then it has no `hand` yet. */
interface Held {
  index: number;
  shape: ToolShape;
  hand?: ToolHand;
  sequence: bigint;
  jawsClosed: boolean;
  pedalDown: boolean;
}

export interface ToolInHandEvents {
  /** A tool has come into the hand, or is out of it. */
  onChange(): void;
  onRefused(what: string, error: unknown): void;
}

/** At most one tool of the watched scene is in the user's hand, and while it is the server is told where it should be. */
export class ToolInHand {
  private held: Held | undefined;

  /** `userName`: what others are told of who holds the tool; empty: a viewer. */
  constructor(
    private readonly connection: Pick<Connection, 'call' | 'send' | 'canSendPose'>,
    private readonly stream: Pick<SceneStream, 'sceneId'>,
    private readonly userName: string,
    private readonly events: ToolInHandEvents,
  ) {}

  /** Of the tool in the hand, or on its way there. */
  get index(): number | undefined {
    return this.held?.index;
  }

  get name(): string | undefined {
    return this.held?.shape.name;
  }

  /** Undefined until the tool is there. */
  get hand(): ToolHand | undefined {
    return this.held?.hand;
  }

  get hasJaws(): boolean {
    return this.held?.hand !== undefined && hasJaws(this.held.shape);
  }

  get hasPedal(): boolean {
    return this.held?.hand !== undefined && hasPedal(this.held.shape);
  }

  /** Takes a tool of the watched scene, giving back the one in the hand. True when it is in the hand. */
  async take(index: number, shape: ToolShape): Promise<boolean> {
    if (this.held) await this.release();
    const held: Held = { index, shape, sequence: 0n, jawsClosed: false, pedalDown: false };
    this.held = held;
    const value = { sceneId: this.stream.sceneId, tool: shape.name, station: this.userName || 'viewer' };
    let answer: ViewerUpdate['update'];
    try {
      answer = await this.connection.call({ case: 'attach', value });
    } catch (error) {
      if (this.held === held) this.held = undefined;
      this.events.onRefused(`Take ${shape.name}`, error);
      return false;
    }
    if (this.held !== held) return false;
    if (answer.case === 'operate' && answer.value.update.case === 'attached') this.onAttached(answer.value.update.value);
    return held.hand !== undefined;
  }

  async release(): Promise<void> {
    if (!this.held) return;
    this.drop();
    try {
      await this.connection.call({ case: 'release', value: {} });
    } catch (error) {
      this.events.onRefused('Release', error);
    }
  }

  /** Forgets the tool without telling the server. */
  drop(): void {
    this.held = undefined;
    this.events.onChange();
  }

  onAttached({ pose }: Pick<Attached, 'pose'>): void {
    const { held } = this;
    if (!held || held.hand) return;
    const [p, q] = [pose?.positionM, pose?.rotation];
    held.hand = new ToolHand({
      position: p ? new THREE.Vector3(p.x, p.y, p.z) : new THREE.Vector3(),
      rotation: q ? new THREE.Quaternion(q.x, q.y, q.z, q.w).normalize() : new THREE.Quaternion(),
    });
    this.events.onChange();
  }

  setJaws(closed: boolean): void {
    if (!this.held?.hand || !this.hasJaws) return;
    this.held.jawsClosed = closed;
    this.held.hand.touch();
  }

  setPedal(down: boolean): void {
    if (!this.held?.hand || !this.hasPedal) return;
    this.held.pedalDown = down;
    this.held.hand.touch();
  }

  /** Sends where the tool should be, if that is due. Call with each picture, and between slow ones. */
  sendPose(now_ms: number): void {
    const { held } = this;
    if (!held?.hand || !this.connection.canSendPose) return;
    const velocity = held.hand.tick(now_ms);
    if (!velocity) return;
    const { position: p, rotation: q } = held.hand.pose;
    held.sequence += 1n;
    this.connection.send({
      case: 'pose',
      value: create(ToolPoseSchema, {
        sequence: held.sequence,
        stationTimeUs: BigInt(Math.round(now_ms * 1000)),
        pose: { positionM: { x: p.x, y: p.y, z: p.z }, rotation: { w: q.w, x: q.x, y: q.y, z: q.z } },
        velocityMPerS: { x: velocity.x, y: velocity.y, z: velocity.z },
        jawAngleRad: held.jawsClosed ? 0 : maxJawAngle(held.shape),
        pedal: held.pedalDown,
      }),
    });
  }
}
