import * as THREE from 'three';
import { ToolActivity } from '../../generated/palpate/v1/scene_pb';
import type { ToolShape, ToolState } from '../../generated/palpate/v1/stream_pb';
import { ACTIVITY_COLORS, ACTIVITY_LABELS, hasJaws, mainActivity, ToolModel } from './tool_model';
import { applyPose, toVector } from './vectors';

/** A device that is farther from its tool than this is drawn, too. */
const GHOST_M = 5e-4;
const GHOST_RAD = 0.01;
/** Of the longest arrow: radii of the scene. */
const ARROW = 0.9;
const LABEL_OFFSET_PX = [10, -12] as const;

/** The instruments of a scene, each with the arrow of its force and a label that tells what it does. */
export class ToolLayer {
  models: ToolModel[] = [];
  private labels: HTMLElement[] = [];
  /** Where the labels are, in W. */
  private arrowTips: THREE.Vector3[] = [];
  private readonly force_n = new THREE.Vector3();
  private readonly projected = new THREE.Vector3();

  constructor(private readonly root: THREE.Object3D, private readonly labelLayer: HTMLElement) {}

  load(shapes: readonly ToolShape[]): void {
    for (const [index, shape] of shapes.entries()) {
      const model = new ToolModel(shape, index);
      model.addTo(this.root);
      this.models.push(model);
      this.arrowTips.push(new THREE.Vector3());
      const label = document.createElement('div');
      label.className = 'force-label';
      this.labelLayer.append(label);
      this.labels.push(label);
    }
  }

  /** `radius_m`: of the scene. */
  update(states: readonly ToolState[], showsForces: boolean, radius_m: number): void {
    for (const [index, model] of this.models.entries()) {
      const state = states[index];
      if (state) this.updateTool(index, model, state, showsForces, radius_m);
    }
  }

  hideForces(): void {
    for (const model of this.models) model.arrow.group.visible = false;
    for (const label of this.labels) label.hidden = true;
  }

  /** Puts the labels beside their arrows, in a picture of this size; after the camera moved. */
  placeLabels(camera: THREE.Camera, width_px: number, height_px: number): void {
    for (const [index, label] of this.labels.entries()) {
      if (label.hidden) continue;
      const at = this.projected.copy(this.arrowTips[index]!).project(camera);
      const [x_px, y_px] = [((at.x + 1) / 2) * width_px + LABEL_OFFSET_PX[0], ((1 - at.y) / 2) * height_px + LABEL_OFFSET_PX[1]];
      label.style.transform = `translate(${x_px}px, ${y_px}px)`;
    }
  }

  clear(): void {
    for (const model of this.models) model.dispose();
    for (const label of this.labels) label.remove();
    this.models = [];
    this.labels = [];
    this.arrowTips = [];
  }

  private updateTool(index: number, model: ToolModel, state: ToolState, showsForces: boolean, radius_m: number): void {
    applyPose(state.pose, model.group);
    applyPose(state.devicePose, model.ghost);
    const apart_m = model.ghost.position.distanceTo(model.group.position);
    const angle_rad = model.ghost.quaternion.angleTo(model.group.quaternion);
    model.ghost.visible = state.operated && (apart_m > GHOST_M || angle_rad > GHOST_RAD);
    const newtons = toVector(state.forceN, this.force_n).length();
    const tip = this.arrowTips[index]!;
    const hasArrow = showsForces && model.arrow.set(model.group.position, this.force_n, radius_m * ARROW, tip);
    if (!hasArrow) {
      model.arrow.group.visible = false;
      tip.copy(model.group.position);
    }
    const activity = mainActivity(state.activities);
    model.setActivity(activity);
    if (hasJaws(model.shape)) model.setJawAngle(state.jawAngleRad);
    showLabel(this.labels[index]!, activity, hasArrow ? newtons : undefined);
  }
}

/** `newtons`: undefined where no force is shown; then only what changes the tissue is worth a label. */
function showLabel(label: HTMLElement, activity: ToolActivity, newtons: number | undefined): void {
  const changesTissue = activity > ToolActivity.TOUCHING;
  label.hidden = !changesTissue && newtons === undefined;
  const words = [ACTIVITY_LABELS[activity], newtons === undefined ? '' : `${newtons.toFixed(2)} N`];
  label.textContent = label.hidden ? '' : words.filter(Boolean).join(' · ');
  label.style.color = changesTissue ? `#${ACTIVITY_COLORS[activity].toString(16).padStart(6, '0')}` : '';
}
