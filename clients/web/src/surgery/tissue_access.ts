import * as THREE from 'three';
import { RunState } from '../../generated/palpate/v1/control_pb';
import type { EditSceneResponse } from '../../generated/palpate/v1/edit_pb';
import type { ToolInHand } from '../hand/tool_in_hand';
import type { Tools } from '../hand/tools';
import type { Connection } from '../net/connection';
import type { SceneStream } from '../session/scene_stream';
import type { Reports } from '../ui/reports';
import type { Brush } from '../view/brush';
import { pickSurface } from '../view/pick';
import type { SceneView } from '../view/scene_view';
import type { Stage } from '../view/stage';
import { hasJaws } from '../view/tool_model';
import type { EditInit, SurfaceHit } from './strokes';
import type { SurgeryHost } from './surgery';

/** The tool in the hand is where it should be within this distance. */
const ARRIVED_M = 0.004;
const ARRIVE_PATIENCE_MS = 3000;
const ARRIVE_INTERVAL_MS = 30;

export interface TissueParts {
  stage: Stage;
  view: SceneView;
  connection: Pick<Connection, 'call'>;
  stream: SceneStream;
  /** The scene that edits go to. */
  sceneId(): string;
  tools: Tools;
  inHand: ToolInHand;
  reports: Reports;
  brush: Brush;
  redraw(): void;
}

/** The tissue of the watched scene, as the pointer and the server see it. It is pointed at only where picture and server agree. */
export class TissueAccess implements SurgeryHost {
  readonly brush: Brush;
  private readonly ray = new THREE.Raycaster();

  constructor(private readonly parts: TissueParts) {
    this.brush = parts.brush;
  }

  get radius_m(): number {
    return this.parts.stage.radius_m;
  }

  pick(pointer: THREE.Vector2): SurfaceHit | undefined {
    const { stage, view, stream } = this.parts;
    if (!stream.canDraw) stream.takeFrame();
    if (stream.isBehind) return undefined;
    this.ray.setFromCamera(pointer, stage.camera);
    return pickSurface(this.ray.ray, view.organs, view.section);
  }

  async edit(edits: EditInit[], key: string): Promise<EditSceneResponse> {
    const answer = await this.parts.connection.call({ case: 'edit', value: { sceneId: this.parts.sceneId(), key, edits } });
    if (answer.case !== 'edit') throw new Error(`the server answered an edit with '${answer.case}'`);
    return answer.value;
  }

  report(what: string, error: unknown): void {
    this.parts.reports.report(what, error);
  }

  tell(message: string): void {
    this.parts.reports.tell(message);
  }

  redraw(): void {
    this.parts.redraw();
  }

  async bringJaws(hit: SurfaceHit, pointer: THREE.Vector2, isWanted: () => boolean): Promise<string | undefined> {
    const { stage, view, stream, inHand } = this.parts;
    const scene = stream.sceneId;
    if (!(await this.takeJaws())) return undefined;
    if (stream.runState !== RunState.PLAYING) {
      this.tell('The scene stands still: press play, then grasp.');
      return undefined;
    }
    const { hand, index, name } = inHand;
    if (!hand || index === undefined) return undefined;
    inHand.setJaws(false);
    hand.move(hit.point.clone().sub(hand.pose.position));
    const until_ms = performance.now() + ARRIVE_PATIENCE_MS;
    const tip = view.tools[index]!.group.position;
    while (tip.distanceTo(hand.pose.position) > ARRIVED_M && performance.now() < until_ms) {
      await new Promise((resolve) => setTimeout(resolve, ARRIVE_INTERVAL_MS));
      if (inHand.hand !== hand || stream.sceneId !== scene || !isWanted()) return undefined;
    }
    hand.beginDrag(pointer, stage.camera);
    return name;
  }

  letGo(): void {
    this.parts.inHand.hand?.endDrag();
  }

  /** An instrument with jaws is in the hand; false after telling why not. */
  private async takeJaws(): Promise<boolean> {
    const { tools, inHand } = this.parts;
    if (inHand.hasJaws) return true;
    const free = tools.findFree((shape) => hasJaws(shape));
    if (free >= 0) return tools.take(free);
    this.tell('No instrument with jaws is free in this scene.');
    return false;
  }
}
