import * as THREE from 'three';
import type { ToolInHand } from '../hand/tool_in_hand';
import type { Tools } from '../hand/tools';
import type { SceneStream } from '../session/scene_stream';
import type { Surgery } from '../surgery/surgery';
import type { TissueAccess } from '../surgery/tissue_access';
import { FirstTouch } from '../ui/first_touch';
import type { ModeBar } from '../ui/mode_bar';
import { MAX_NAMES } from '../view/marker_layer';
import type { SceneView } from '../view/scene_view';
import type { Stage } from '../view/stage';

/** One notch of the wheel, or one press of a key: share of the way from the smallest to the largest cut. */
export const SIZE_STEP = 0.05;
const LINE_PX = 33;
/** Radii of the scene for each pixel of the wheel. */
const PUSH_PER_PX = 2.5e-4;

export interface PointerParts {
  stage: Stage;
  view: SceneView;
  stream: Pick<SceneStream, 'isBehind'>;
  tools: Tools;
  inHand: ToolInHand;
  surgery: Surgery;
  tissue: TissueAccess;
  modeBar: ModeBar;
  redraw(): void;
}

/**
 * Mouse and fingers over the picture. Each press belongs to one: the tool in the hand, a stroke in tissue, a tool to be taken, or else the
 * camera.
 */
export class PointerInput {
  /** Where the pointer was last, in normalised device coordinates. */
  private readonly at = new THREE.Vector2();
  private readonly raycaster = new THREE.Raycaster();
  private readonly firstTouch = new FirstTouch();
  /** The pointer that drags; undefined: none, or the camera has it. */
  private dragging: number | undefined;
  private readonly canvas: HTMLCanvasElement;

  constructor(private readonly parts: PointerParts) {
    const { canvas, controls } = parts.stage;
    this.canvas = canvas;
    // Before OrbitControls sees the event.
    canvas.addEventListener('pointerdown', (event) => this.onDown(event), { capture: true });
    canvas.addEventListener('pointermove', (event) => this.onMove(event));
    canvas.addEventListener('pointerup', (event) => this.onUp(event));
    canvas.addEventListener('pointercancel', (event) => this.onUp(event));
    canvas.addEventListener('wheel', (event) => this.onWheel(event), { capture: true, passive: false });
    canvas.addEventListener('pointerleave', () => parts.surgery.leave());
    canvas.addEventListener('contextmenu', (event) => event.preventDefault());
    controls.addEventListener('start', () => canvas.classList.add('orbiting'));
    controls.addEventListener('end', () => canvas.classList.remove('orbiting'));
  }

  /** `by`: share of the way from the smallest to the largest cut. */
  changeSize(by: number): void {
    this.parts.modeBar.changeSize(by);
    this.parts.surgery.hover(this.at);
  }

  private read(event: PointerEvent): THREE.Vector2 {
    const box = this.canvas.getBoundingClientRect();
    return this.at.set(((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2);
  }

  private freeToolUnder(at: THREE.Vector2): number | undefined {
    const { stage, view, tools } = this.parts;
    this.raycaster.setFromCamera(at, stage.camera);
    const hit = this.raycaster.intersectObjects(view.tools.flatMap((tool) => tool.bodies), false)[0];
    const index = hit?.object.userData.toolIndex as number | undefined;
    return index !== undefined && tools.ownerOf(index) === 'free' ? index : undefined;
  }

  /** With an instrument in the hand the left button, or one finger, is the hand's; the right one, or two fingers, orbit. */
  private assignButtons(): void {
    const { surgery, inHand, stage: { controls } } = this.parts;
    const isHolding = inHand.hand !== undefined && surgery.mode === 'hand';
    controls.touches = isHolding ? { ONE: null, TWO: THREE.TOUCH.DOLLY_ROTATE } : { ONE: THREE.TOUCH.ROTATE, TWO: THREE.TOUCH.DOLLY_PAN };
    if (surgery.mode !== 'hand') controls.mouseButtons = { LEFT: THREE.MOUSE.ROTATE, MIDDLE: THREE.MOUSE.PAN, RIGHT: THREE.MOUSE.ROTATE };
    else if (isHolding) controls.mouseButtons = { LEFT: null, MIDDLE: THREE.MOUSE.PAN, RIGHT: THREE.MOUSE.ROTATE };
    else controls.mouseButtons = { LEFT: THREE.MOUSE.ROTATE, MIDDLE: THREE.MOUSE.DOLLY, RIGHT: THREE.MOUSE.PAN };
  }

  private onDown(event: PointerEvent): void {
    const { surgery, inHand, stage } = this.parts;
    this.canvas.focus();
    this.assignButtons();
    if (event.button !== 0) return;
    if (this.firstTouch.isWaiting) {
      this.firstTouch.forget();  // two fingers are for the camera, which knows the first one
      return;
    }
    if (this.dragging !== undefined && this.dragging !== event.pointerId) {
      // A second finger turns to the camera: what the first one did ends. A stroke in tissue is not interrupted by it.
      if (surgery.isCutting) event.stopImmediatePropagation();
      else this.stopDrag();
      return;
    }
    const at = this.read(event).clone();
    if (surgery.mode !== 'hand') {
      this.pressTissue(event, at);
    } else if (inHand.hand) {
      inHand.hand.beginDrag(at, stage.camera);
      this.startDrag(event);
    } else {
      this.pressTool(event, at);
    }
  }

  private pressTissue(event: PointerEvent, at: THREE.Vector2): void {
    const { surgery, stream, tissue, stage } = this.parts;
    if (event.pointerType === 'touch' && tissue.pick(at)) {
      stage.controls.touches.ONE = null;
      this.firstTouch.down(event.pointerId, event.clientX, event.clientY, () => {
        if (surgery.begin(at)) this.startDrag(event);
      });
      return;
    }
    const isOnTissue = surgery.begin(at);
    // Beside the tissue the left button orbits.
    if (isOnTissue || stream.isBehind) event.stopImmediatePropagation();
    if (isOnTissue) this.startDrag(event);
  }

  private pressTool(event: PointerEvent, at: THREE.Vector2): void {
    const { tools, inHand, stage } = this.parts;
    const tool = this.freeToolUnder(at);
    if (tool === undefined) return;
    event.stopImmediatePropagation();
    this.startDrag(event);
    void tools.take(tool).then((isTaken) => {
      if (isTaken && this.dragging === event.pointerId) inHand.hand?.beginDrag(this.at.clone(), stage.camera);
    });
  }

  private onMove(event: PointerEvent): void {
    const { surgery, inHand, view, stage } = this.parts;
    this.firstTouch.move(event.pointerId, event.clientX, event.clientY);
    const at = this.read(event);
    view.pointer = [event.offsetX, event.offsetY];
    if (view.markers.count > MAX_NAMES) this.parts.redraw();
    if (this.dragging === event.pointerId) {
      surgery.move(at);
      inHand.hand?.drag(at, stage.camera);
    } else if (surgery.mode !== 'hand') {
      if (event.buttons === 0) surgery.hover(at);
    } else if (event.buttons === 0 && inHand.index === undefined) {
      this.canvas.classList.toggle('over-tool', this.freeToolUnder(at) !== undefined);
    }
  }

  private onUp(event: PointerEvent): void {
    if (event.type === 'pointerup') this.firstTouch.up(event.pointerId);
    else this.firstTouch.forget();
    if (this.dragging === event.pointerId) this.stopDrag();
  }

  private startDrag({ pointerId }: PointerEvent): void {
    this.dragging = pointerId;
    this.canvas.setPointerCapture(pointerId);
  }

  private stopDrag(): void {
    this.dragging = undefined;
    this.parts.surgery.end();
    this.parts.inHand.hand?.endDrag();
  }

  private onWheel(event: WheelEvent): void {
    const { surgery, inHand, stage } = this.parts;
    const isSize = event.ctrlKey && surgery.mode !== 'hand';
    const isPush = !isSize && event.shiftKey && inHand.hand !== undefined;
    if (!isSize && !isPush) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    if (isSize) {
      this.changeSize(event.deltaY < 0 ? SIZE_STEP : -SIZE_STEP);
      return;
    }
    // Browsers turn Shift + wheel into a sideways wheel.
    const turned_px = (event.deltaY || event.deltaX) * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? LINE_PX : 1);
    const away = stage.camera.getWorldDirection(new THREE.Vector3());
    inHand.hand?.move(away.multiplyScalar(-turned_px * PUSH_PER_PX * stage.radius_m));
  }
}
