import * as THREE from 'three';
import type { EditSceneResponse } from '../../generated/palpate/v1/edit_pb';
import { explain } from '../ui/refusals';
import type { Brush } from '../view/brush';
import { CarveStroke, InciseStroke, RequestKeys, type EditInit, type Stroke, type SurfaceHit } from './strokes';

/** What the left button does: moves instruments and the camera, or works on tissue. */
export type Mode = 'hand' | 'carve' | 'incise' | 'grasp';

export interface ModeSize {
  label: string;
  /** Shares of the scene's radius: smallest, first and largest. */
  range: [number, number, number];
}

export const MODE_SIZES: Record<Exclude<Mode, 'hand'>, ModeSize> = {
  carve: { label: 'Radius', range: [0.015, 0.07, 0.3] },
  incise: { label: 'Depth', range: [0.02, 0.14, 0.8] },
  grasp: { label: 'Reach', range: [0.015, 0.06, 0.2] },
};

const COLORS: Record<Mode, number> = { hand: 0xffffff, carve: 0xff9d4d, incise: 0x7fe3ff, grasp: 0x6ee7a8 };

export interface SurgeryHost {
  readonly brush: Brush;
  /** Of the scene; sizes are relative to it. */
  readonly radius_m: number;
  pick(pointer: THREE.Vector2): SurfaceHit | undefined;
  /** Rejects with what the server says. */
  edit(edits: EditInit[], key: string): Promise<EditSceneResponse>;
  report(what: string, error: unknown): void;
  tell(message: string): void;
  redraw(): void;
  /**
   * Brings an instrument with jaws to the place and keeps it under the pointer. Its name, or undefined after telling why not, or when it is
   * not wanted any more.
   */
  bringJaws(hit: SurfaceHit, pointer: THREE.Vector2, isWanted: () => boolean): Promise<string | undefined>;
  letGo(): void;
}

/** What the server did for the strokes of this page, since the scene was loaded. */
export interface SurgeryCounts {
  requests: number;
  refused: number;
  removedTets: number;
  addedTets: number;
  newBodies: number;
  removedMassKg: number;
  graspedVertices: number;
}

const NOTHING: SurgeryCounts = { requests: 0, refused: 0, removedTets: 0, addedTets: 0, newBodies: 0, removedMassKg: 0, graspedVertices: 0 };

/** Cutting with the mouse. One request is on its way at a time; strokes gather what the hand does meanwhile. */
export class Surgery {
  mode: Mode = 'hand';
  counts: SurgeryCounts = { ...NOTHING };
  private readonly share: Record<Exclude<Mode, 'hand'>, number> = { carve: MODE_SIZES.carve.range[1], incise: MODE_SIZES.incise.range[1], grasp: MODE_SIZES.grasp.range[1] };
  private readonly keys = new RequestKeys();
  private stroke: Stroke | undefined;
  /** The one that goes on, and before it those that still wait for the server. */
  private strokes: { stroke: Stroke; what: string }[] = [];
  private isSending = false;
  private grasp: { tool: string | undefined; isWanted: boolean } | undefined;
  /** Somebody has set the reach; until then it follows the mesh, which the server knows. */
  private isReachChosen = false;
  private lastPoint: THREE.Vector3 | undefined;
  private readonly along = new THREE.Vector3(1, 0, 0);

  constructor(private readonly host: SurgeryHost) {}

  /** Requests are on their way, or will be. */
  get isBusy(): boolean {
    return this.isSending || this.strokes.length > 0 || this.grasp !== undefined;
  }

  get isCutting(): boolean {
    return this.stroke !== undefined || this.grasp !== undefined;
  }

  /** Radius, depth or reach of the mode, in metres. */
  get size_m(): number {
    return this.mode === 'hand' ? 0 : this.share[this.mode] * this.host.radius_m;
  }

  /** `slide`: 0 = smallest, 1 = largest. */
  setSlide(slide: number): void {
    if (this.mode === 'hand') return;
    const [least, , most] = MODE_SIZES[this.mode].range;
    this.share[this.mode] = least * (most / least) ** Math.min(1, Math.max(0, slide));
    this.isReachChosen ||= this.mode === 'grasp';
    this.host.redraw();
  }

  setSize(size_m: number): void {
    if (this.mode === 'hand') return;
    const [least, , most] = MODE_SIZES[this.mode].range;
    this.setSlide(Math.log(size_m / (least * this.host.radius_m)) / Math.log(most / least));
  }

  get slide(): number {
    if (this.mode === 'hand') return 0;
    const [least, , most] = MODE_SIZES[this.mode].range;
    return Math.log(this.share[this.mode] / least) / Math.log(most / least);
  }

  setMode(mode: Mode): void {
    this.end();
    this.mode = mode;
    this.host.brush.hide();
    this.host.redraw();
  }

  /** Another scene, or the same one from its start. */
  forget(): void {
    this.stroke = undefined;
    this.strokes = [];
    this.grasp = undefined;
    this.counts = { ...NOTHING };
    this.host.brush.hide();
  }

  /** Shows what a press would do. */
  hover(pointer: THREE.Vector2): void {
    if (this.mode === 'hand' || this.isCutting) return;
    this.showCursor(this.host.pick(pointer));
  }

  /** The pointer is elsewhere. */
  leave(): void {
    if (this.isCutting) return;
    this.host.brush.hideCursor();
    this.host.redraw();
  }

  /** True if the press is on tissue. */
  begin(pointer: THREE.Vector2): boolean {
    const hit = this.mode === 'hand' ? undefined : this.host.pick(pointer);
    if (!hit) return false;
    if (this.mode === 'grasp') {
      void this.beginGrasp(hit, pointer);
      return true;
    }
    this.lastPoint = undefined;
    this.stroke = this.mode === 'carve' ? new CarveStroke(this.size_m) : new InciseStroke(this.size_m, Math.max(0.2 * this.size_m, 0.012 * this.host.radius_m));
    this.strokes.push({ stroke: this.stroke, what: this.mode === 'carve' ? 'Carve' : 'Incise' });
    this.add(hit);
    return true;
  }

  move(pointer: THREE.Vector2): void {
    if (!this.stroke) return;
    const hit = this.host.pick(pointer);
    if (hit) this.add(hit);
    else this.host.brush.hideCursor();
  }

  end(): void {
    const { stroke } = this;
    this.stroke = undefined;
    if (stroke) {
      void this.pump();
      if (stroke instanceof InciseStroke && stroke.edges.length < 2) this.host.tell('Drag along the line of the incision.');
    }
    if (this.grasp) {
      this.grasp.isWanted = false;
      void this.endGrasp();
    }
  }

  private add(hit: SurfaceHit): void {
    const { stroke } = this;
    if (!stroke) return;
    if (this.lastPoint && this.lastPoint.distanceToSquared(hit.point) > 0) this.along.subVectors(hit.point, this.lastPoint).normalize();
    this.lastPoint = hit.point.clone();
    stroke.add(hit);
    this.showCursor(hit);
    void this.pump();
  }

  private showCursor(hit: SurfaceHit | undefined): void {
    const { brush } = this.host;
    if (!hit) brush.hideCursor();
    else if (this.mode === 'carve') brush.showBall(hit.point, hit.normal, this.size_m, COLORS.carve);
    else if (this.mode === 'incise') brush.showBlade(hit.point, hit.normal, this.size_m, this.along);
    else {
      brush.hideCursor();
      brush.showRing(hit.point, hit.normal, this.size_m, COLORS[this.mode]);
    }
    if (this.stroke instanceof InciseStroke) brush.showPath(this.stroke.edges, 0.35 / 1.35);
    this.host.redraw();
  }

  /** Sends what is due, one request after the other, until no stroke has anything more. */
  private async pump(): Promise<void> {
    if (this.isSending) return;
    this.isSending = true;
    for (;;) {
      const next = this.strokes[0];
      const edits = next?.stroke.take();
      if (next && edits) {
        try {
          this.onDone(next.what, await this.host.edit(edits, this.keys.next()));
        } catch (error) {
          // The rest of the stroke would fail the same way.
          ++this.counts.refused;
          this.strokes = this.strokes.filter((one) => one !== next);
          if (this.stroke === next.stroke) this.stroke = undefined;
          this.host.report(next.what, error);
        }
      } else if (next && next.stroke !== this.stroke) {
        this.strokes.shift();
      } else {
        break;
      }
    }
    this.isSending = false;
    if (!this.isCutting) {
      this.host.brush.hide();
      this.host.redraw();
    }
  }

  private onDone(what: string, answer: EditSceneResponse): void {
    const { counts } = this;
    ++counts.requests;
    for (const outcome of answer.outcomes) {
      counts.removedTets += outcome.removedTets.length;
      counts.addedTets += outcome.addedTets.length;
      counts.newBodies += outcome.newBodies.length;
      counts.removedMassKg += outcome.removedMassKg;
      counts.graspedVertices += outcome.graspedVertices;
      if (outcome.isRefused) {
        ++counts.refused;
        this.host.report(what, new Error(outcome.note || 'the server refused the edit'));
      }
    }
    const pieces = answer.outcomes.flatMap((outcome) => outcome.newBodies);
    if (pieces.length > 0) this.host.tell(pieces.length === 1 ? `A piece came off: ${pieces[0]}` : `${pieces.length} pieces came off: ${pieces.slice(0, 4).join(', ')}${pieces.length > 4 ? ' …' : ''}`);
  }

  private async beginGrasp(hit: SurfaceHit, pointer: THREE.Vector2): Promise<void> {
    const grasp: NonNullable<Surgery['grasp']> = { tool: undefined, isWanted: true };
    this.grasp = grasp;
    const reach = this.isReachChosen ? { radiusM: this.size_m } : {};
    try {
      grasp.tool = await this.host.bringJaws(hit, pointer, () => this.isCutting);
      if (!grasp.tool || !grasp.isWanted) return;
      const answer = await this.host.edit([{ edit: { case: 'grasp', value: { tool: grasp.tool, ...reach } } }], this.keys.next());
      this.onDone('Grasp', answer);
      const outcome = answer.outcomes[0];
      if (outcome && outcome.graspedVertices === 0 && !outcome.isRefused) this.host.tell(explain(undefined, outcome.note || 'There is nothing to hold between the jaws').sentence);
    } catch (error) {
      ++this.counts.refused;
      this.host.report('Grasp', error);
    } finally {
      if (this.grasp === grasp && !grasp.isWanted) await this.endGrasp();
    }
  }

  private async endGrasp(): Promise<void> {
    const { grasp } = this;
    if (!grasp) return;
    this.grasp = undefined;
    this.host.brush.hide();
    this.host.letGo();
    if (!grasp.tool) return;
    try {
      this.onDone('Release', await this.host.edit([{ edit: { case: 'release', value: { tool: grasp.tool } } }], this.keys.next()));
    } catch (error) {
      this.host.report('Release', error);
    }
  }
}
