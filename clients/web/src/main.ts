import { fromJson, type JsonValue } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { EditSceneRequestSchema } from '../generated/palpate/v1/edit_pb';
import './style.css';
import { App } from './app';
import { MODE_SIZES, type Mode } from './surgery/surgery';
import { FirstTouch } from './ui/first_touch';
import { element } from './ui/panel';
import { MAX_NAMES } from './view/marker_layer';
import type { Quality } from './view/stage';
import { ACTIVITY_LABELS, mainActivity } from './view/tool_model';

declare const PALPATE_VERSION: string;

const SHORTCUTS: [string, string][] = [
  ['Space', 'play or pause'], ['N', 'one step'], ['R', 'reset'], ['T', 'take or release the instrument'],
  ['Left drag', 'orbit; with an instrument: move it'], ['Right drag', 'pan; with an instrument: orbit'], ['Wheel', 'zoom'],
  ['Shift + wheel', 'push the instrument along the view'], ['W S', 'push, pull the instrument'], ['Arrows', 'move the instrument'],
  ['Q E · A D', 'turn the instrument'], ['G', 'hold: close the jaws'], ['Space', 'with a hook or aspirator: hold for the pedal'],
  ['1 2 3 4', 'hand, carve, incise, grasp'], ['[ ]', 'size of the cut'], ['F', 'show everything'], ['M', 'wireframe'],
  ['C', 'contacts, to look into the solver'], ['K', 'with contacts: their normals'], ['V', 'force arrows'], ['L', 'markers'], ['B', 'low bandwidth'],
  ['P', 'panel'], ['?', 'this help'],
  ['One finger', 'as the left button: orbits, moves the instrument, cuts'], ['Two fingers', 'zoom and pan; with an instrument: zoom and orbit'],
  ['Buttons', 'below, for fingers: jaws, pedal, push and pull of the instrument'],
];

const app = new App(new URLSearchParams(location.search));
const canvas = app.stage.canvas;
const panel = element('panel');
const help = element('help');

// --- panel and toolbar -----------------------------------------------------------------------------------------------------------------------------

interface Toggle {
  label: string;
  key: string;
  get: () => boolean;
  set: (on: boolean) => void;
  input?: HTMLInputElement;
}
const setOptions = (options: Partial<typeof app.view.options>) => {
  app.view.setOptions(options);
  app.redraw();
};
const toggles: Toggle[] = [
  { label: 'Wireframe', key: 'm', get: () => app.view.options.wireframe, set: (on) => setOptions({ wireframe: on }) },
  { label: 'Contacts', key: 'c', get: () => app.view.options.contacts, set: (on) => setOptions({ contacts: on }) },
  { label: 'Normals', key: 'k', get: () => app.view.options.normals, set: (on) => setOptions({ normals: on }) },
  { label: 'Forces', key: 'v', get: () => app.view.options.forces, set: (on) => setOptions({ forces: on }) },
  { label: 'Markers', key: 'l', get: () => app.view.options.markers, set: (on) => setOptions({ markers: on }) },
  { label: 'Low bandwidth', key: 'b', get: () => app.lowBandwidth, set: (on) => app.setLowBandwidth(on) },
];
for (const toggle of toggles) {
  const label = document.createElement('label');
  const input = document.createElement('input');
  input.type = 'checkbox';
  input.checked = toggle.get();
  input.addEventListener('change', () => {
    toggle.set(input.checked);
    input.blur();
  });
  toggle.input = input;
  label.append(input, toggle.label);
  label.title = `${toggle.label} (${toggle.key.toUpperCase()})`;
  element('toggles').append(label);
}
const flip = (toggle: Toggle) => {
  toggle.set(!toggle.get());
  toggle.input!.checked = toggle.get();
};

const isPanelShown = () => !panel.classList.contains('away');
function showPanel(shown: boolean): void {
  panel.classList.toggle('away', !shown);
  panel.inert = !shown;
  document.body.classList.toggle('with-panel', shown);
  element('b-panel').setAttribute('aria-expanded', String(shown));
  // A sheet lies below the picture, not beside it.
  const isBeside = panel.offsetWidth < 0.6 * window.innerWidth;
  app.stage.setInsets(shown && isBeside ? panel.offsetWidth + 16 : 0, shown && !isBeside ? window.innerHeight - panel.offsetTop : 0);
  app.placeToasts();
  app.redraw();
}

const speed = element('speed') as HTMLSelectElement;
speed.append(...App.speedLabels().map((label, index) => new Option(label, String(index))));
speed.selectedIndex = App.speedLabels().indexOf('1×');
speed.addEventListener('change', () => {
  speed.blur();
  void app.setSpeed(speed.selectedIndex);
});
const scenes = element('scenes') as HTMLSelectElement;
scenes.addEventListener('change', () => {
  scenes.blur();
  app.watch(scenes.value);
});
const onClick = (id: string, run: () => void) => element(id).addEventListener('click', () => {
  element(id).blur();
  run();
});
onClick('b-play', () => void app.togglePlay());
onClick('b-step', () => void app.step());
onClick('b-reset', () => void app.reset());
onClick('b-fit', () => app.fit());
onClick('b-panel', () => showPanel(!isPanelShown()));
onClick('b-help', () => (help.hidden = !help.hidden));
help.querySelector('.columns')!.append(...SHORTCUTS.map(([keys, meaning]) => {
  const row = document.createElement('div');
  const key = document.createElement('kbd');
  key.textContent = keys;
  row.append(key, meaning);
  return row;
}));
help.querySelector('button')!.addEventListener('click', () => (help.hidden = true));
help.addEventListener('click', (event) => {
  if (event.target === help) help.hidden = true;
});

// --- what the left button does --------------------------------------------------------------------------------------------------------------------------

const MODES: Mode[] = ['hand', 'carve', 'incise', 'grasp'];
const slider = element('size') as HTMLInputElement;

function showSize(): void {
  const { mode } = app.surgery;
  element('size-box').hidden = mode === 'hand';
  if (mode === 'hand') return;
  slider.value = String(app.surgery.slide);
  element('size-label').textContent = MODE_SIZES[mode].label;
  element('size-value').textContent = `${(1000 * app.surgery.size_m).toFixed(1)} mm`;
}
function setMode(mode: Mode): void {
  app.surgery.setMode(mode);
  for (const one of MODES) element(`m-${one}`).setAttribute('aria-pressed', String(one === mode));
  canvas.dataset.mode = mode;
  showSize();
}
function changeSize(by: number): void {
  app.surgery.setSlide(app.surgery.slide + by);
  showSize();
  app.surgery.hover(pointer);
}
for (const mode of MODES) {
  element(`m-${mode}`).addEventListener('click', () => {
    element(`m-${mode}`).blur();
    setMode(mode);
  });
}
slider.addEventListener('input', () => {
  app.surgery.setSlide(slider.valueAsNumber);
  showSize();
});
slider.addEventListener('change', () => slider.blur());

// --- mouse -------------------------------------------------------------------------------------------------------------------------------------------

const raycaster = new THREE.Raycaster();
const pointer = new THREE.Vector2();

function readPointer(event: PointerEvent | WheelEvent): THREE.Vector2 {
  const box = canvas.getBoundingClientRect();
  return pointer.set(((event.clientX - box.left) / box.width) * 2 - 1, 1 - ((event.clientY - box.top) / box.height) * 2);
}

function toolUnder(at: THREE.Vector2): number | undefined {
  raycaster.setFromCamera(at, app.stage.camera);
  const hit = raycaster.intersectObjects(app.view.tools.flatMap((tool) => tool.bodies), false)[0];
  return hit?.object.userData.toolIndex as number | undefined;
}

/** With an instrument in the hand the left button, or one finger, is the hand's; the right one, or two fingers, orbit. */
function assignButtons(): void {
  const holding = app.held?.hand !== undefined && app.surgery.mode === 'hand';
  app.stage.controls.touches = holding ? { ONE: null, TWO: THREE.TOUCH.DOLLY_ROTATE } : { ONE: THREE.TOUCH.ROTATE, TWO: THREE.TOUCH.DOLLY_PAN };
  if (app.surgery.mode !== 'hand') {
    app.stage.controls.mouseButtons = { LEFT: THREE.MOUSE.ROTATE, MIDDLE: THREE.MOUSE.PAN, RIGHT: THREE.MOUSE.ROTATE };
    return;
  }
  app.stage.controls.mouseButtons = holding
    ? { LEFT: null, MIDDLE: THREE.MOUSE.PAN, RIGHT: THREE.MOUSE.ROTATE }
    : { LEFT: THREE.MOUSE.ROTATE, MIDDLE: THREE.MOUSE.DOLLY, RIGHT: THREE.MOUSE.PAN };
}

let dragPointer: number | undefined;
const firstTouch = new FirstTouch();
// Before OrbitControls sees the event.
canvas.addEventListener('pointerdown', (event) => {
  canvas.focus();
  assignButtons();
  if (event.button !== 0) return;
  if (firstTouch.isWaiting) {
    firstTouch.forget();  // two fingers are for the camera, which knows the first one
    return;
  }
  if (dragPointer !== undefined && dragPointer !== event.pointerId) {
    // A second finger turns to the camera: what the first one did ends. A stroke in tissue is not interrupted by it.
    if (app.surgery.isCutting) event.stopImmediatePropagation();
    else stopDrag();
    return;
  }
  const at = readPointer(event).clone();
  if (app.surgery.mode !== 'hand' && event.pointerType === 'touch' && app.pick(at)) {
    app.stage.controls.touches.ONE = null;
    firstTouch.down(event.pointerId, event.clientX, event.clientY, () => {
      if (!app.surgery.begin(at)) return;
      dragPointer = event.pointerId;
      canvas.setPointerCapture(event.pointerId);
    });
    return;
  }
  if (app.surgery.mode !== 'hand') {
    // Beside the tissue the left button orbits.
    if (!app.surgery.begin(at)) {
      if (app.isBehind) event.stopImmediatePropagation();
      return;
    }
    event.stopImmediatePropagation();
    dragPointer = event.pointerId;
    canvas.setPointerCapture(event.pointerId);
    return;
  }
  const hand = app.held?.hand;
  if (hand) {
    hand.beginDrag(at, app.stage.camera);
    dragPointer = event.pointerId;
    canvas.setPointerCapture(event.pointerId);
    return;
  }
  const tool = toolUnder(at);
  if (tool !== undefined && app.ownerOf(tool) === 'free') {
    event.stopImmediatePropagation();
    dragPointer = event.pointerId;
    canvas.setPointerCapture(event.pointerId);
    void app.takeTool(tool).then((taken) => {
      if (taken && dragPointer === event.pointerId) app.held?.hand?.beginDrag(pointer.clone(), app.stage.camera);
    });
  }
}, { capture: true });
canvas.addEventListener('pointermove', (event) => {
  firstTouch.move(event.pointerId, event.clientX, event.clientY);
  const at = readPointer(event);
  app.view.pointer = [event.offsetX, event.offsetY];
  if (app.view.markers.count > MAX_NAMES) app.redraw();
  if (dragPointer === event.pointerId) {
    app.surgery.move(at);
    app.held?.hand?.drag(at, app.stage.camera);
  } else if (app.surgery.mode !== 'hand') {
    if (event.buttons === 0) app.surgery.hover(at);
  } else if (event.buttons === 0 && !app.held) {
    const tool = toolUnder(at);
    canvas.classList.toggle('over-tool', tool !== undefined && app.ownerOf(tool) === 'free');
  }
});
function stopDrag(): void {
  dragPointer = undefined;
  app.surgery.end();
  app.held?.hand?.endDrag();
}
const endDrag = (event: PointerEvent) => {
  if (event.type === 'pointerup') firstTouch.up(event.pointerId);
  else firstTouch.forget();
  if (dragPointer === event.pointerId) stopDrag();
};
canvas.addEventListener('pointerup', endDrag);
canvas.addEventListener('pointercancel', endDrag);
canvas.addEventListener('wheel', (event) => {
  if (event.ctrlKey && app.surgery.mode !== 'hand') {
    event.preventDefault();
    event.stopImmediatePropagation();
    changeSize(event.deltaY < 0 ? 0.05 : -0.05);
    return;
  }
  if (!event.shiftKey || !app.held?.hand) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  // Browsers turn Shift + wheel into a sideways wheel.
  const turns = (event.deltaY || event.deltaX) * (event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 33 : 1);
  app.pushTool(-turns * 2.5e-4 * app.stage.radius_m);
}, { capture: true, passive: false });
canvas.addEventListener('pointerleave', () => app.surgery.leave());
canvas.addEventListener('contextmenu', (event) => event.preventDefault());
app.stage.controls.addEventListener('start', () => canvas.classList.add('orbiting'));
app.stage.controls.addEventListener('end', () => canvas.classList.remove('orbiting'));

// --- keys --------------------------------------------------------------------------------------------------------------------------------------------

function takeAnyTool(): void {
  if (app.held) {
    void app.releaseTool();
    return;
  }
  const free = app.view.tools.find((tool) => app.ownerOf(tool.index) === 'free');
  if (free) void app.takeTool(free.index);
  else if (app.view.tools.length > 0) app.tell('Every instrument is in somebody else\'s hand.');
}

window.addEventListener('keydown', (event) => {
  const target = event.target as HTMLElement;
  if (target instanceof HTMLSelectElement || event.ctrlKey || event.metaKey || event.altKey) return;
  const key = event.key.toLowerCase();
  app.setKey(key, true);
  if (event.repeat) return;
  const toggle = toggles.find((one) => one.key === key);
  if (toggle) flip(toggle);
  else if (key === ' ' && app.heldWithPedal) app.setPedal(true);
  else if (key === ' ') void app.togglePlay();
  else if (key === 'g') app.setJaws(true);
  else if (MODES[Number(key) - 1]) setMode(MODES[Number(key) - 1]!);
  else if (key === '[' || key === ']') changeSize(key === '[' ? -0.05 : 0.05);
  else if (key === 'n') void app.step();
  else if (key === 'r') void app.reset();
  else if (key === 't') takeAnyTool();
  else if (key === 'f') app.fit();
  else if (key === 'p') showPanel(!isPanelShown());
  else if (key === '?' || key === 'h') help.hidden = !help.hidden;
  else if (key === 'escape' && help.hidden) setMode('hand');
  else if (key === 'escape') help.hidden = true;
  else return;
  event.preventDefault();
});
window.addEventListener('keyup', (event) => {
  const key = event.key.toLowerCase();
  app.setKey(key, false);
  if (key === ' ') app.setPedal(false);
  if (key === 'g') app.setJaws(false);
});
window.addEventListener('blur', () => app.clearKeys());
/** Less than this and the panel would take half of the picture: it waits until it is asked for. */
const MIN_WIDTH_WITH_PANEL = 900;
let wasWide = window.innerWidth > MIN_WIDTH_WITH_PANEL;
window.addEventListener('resize', () => {
  const isWide = window.innerWidth > MIN_WIDTH_WITH_PANEL;
  showPanel(isWide === wasWide ? isPanelShown() : isWide);
  wasWide = isWide;
  app.stage.resize();
  app.redraw();
});

// The last touch tells more than the machine: a tablet may have a mouse.
window.addEventListener('pointerdown', (event) => document.body.classList.toggle('by-finger', event.pointerType === 'touch'), { capture: true });
document.body.classList.toggle('by-finger', matchMedia('(pointer: coarse)').matches);

setMode('hand');
showPanel(wasWide);
app.start();

// --- for scripts and tests -----------------------------------------------------------------------------------------------------------------------------

const api = {
  version: PALPATE_VERSION,
  get connection() {
    return app.state.kind;
  },
  get reconnects() {
    return app.reconnects;
  },
  get sceneId() {
    return app.sceneId;
  },
  get scenes() {
    return app.scenes.map((scene) => scene.sceneId);
  },
  get runState() {
    return ['unspecified', 'paused', 'playing', 'failed'][app.runState] ?? 'unspecified';
  },
  get stats() {
    const frame = app.frame;
    return {
      step: Number(frame?.step ?? 0n),
      simTimeS: frame?.simTimeS ?? 0,
      stepsPerS: frame?.stats?.stepsPerS ?? 0,
      stepMs: frame?.stats?.stepMs ?? 0,
      overruns: Number(frame?.stats?.overruns ?? 0n),
      dropped: Number(frame?.dropped ?? 0n),
      contacts: frame?.contacts.length ?? 0,
      surfaceContacts: frame?.surfaceContacts.length ?? 0,
      intersections: frame?.stats?.contact?.intersectionsChecked ? frame.stats.contact.intersectionCount : undefined,
      marksShown: app.view.contactCount,
      markers: app.view.markers.states,
      framesReceived: app.framesReceived,
      keyframesReceived: app.keyframesReceived,
      deltasReceived: app.deltasReceived,
      topologyVersion: Number(app.topologyVersion),
      framesPerS: app.fps,
      bytesReceived: app.connection.bytesReceived,
      stages: [...app.panel.stages.stageNames],
      lowBandwidth: app.lowBandwidth,
      quality: app.stage.quality,
    };
  },
  get bodies() {
    return app.view.organs.map((organ) => ({
      name: organ.name,
      vertexCount: organ.positions.length / 3,
      triangleCount: organ.surface.liveCount,
      interiorTriangleCount: organ.interiorTriangleCount,
      zoneTriangleCounts: organ.zoneTriangleCounts,
      meshHash: organ.surface.hash.toString(16).padStart(16, '0'),
      lowestM: organ.expandBox(new THREE.Box3()).min.z,
    }));
  },
  get tools() {
    return app.view.tools.map((tool) => {
      const state = app.frame?.tools[tool.index];
      const force = state?.forceN;
      return {
        name: tool.name,
        owner: app.ownerOf(tool.index),
        positionM: tool.group.position.toArray(),
        handM: app.held?.index === tool.index ? app.held.hand?.pose.position.toArray() : undefined,
        forceN: force ? [force.x, force.y, force.z] : [0, 0, 0],
        contactCount: state?.contactCount ?? 0,
        jawAngleRad: tool.jawAngle_rad,
        activity: ACTIVITY_LABELS[mainActivity(state?.activities ?? [])],
        graspedVertices: state?.graspedVertices ?? 0,
      };
    });
  },
  errors: app.errors,
  /** Metres in W. */
  get camera() {
    return { positionM: app.stage.camera.position.toArray(), targetM: app.stage.controls.target.toArray() };
  },
  /** What the mouse did to tissue. */
  get surgery() {
    return { mode: app.surgery.mode, sizeM: app.surgery.size_m, isBusy: app.surgery.isBusy || app.isBehind, ...app.surgery.counts };
  },
  setMode,
  showPanel,
  /** Radius, depth or reach of the mode, metres. */
  setSize(size_m: number) {
    app.surgery.setSize(size_m);
    showSize();
  },
  /** A copy of the positions of a body, metres in W. */
  positions: (body: number) => Array.from(app.view.organs[body]?.positions ?? []),
  /** A copy of the texture coordinates of a body's vertices, u v each, zeros where there are none; empty: it has none. */
  textureCoordinates: (body: number) => {
    const surface = app.view.organs[body]?.surface;
    return surface?.texture ? Array.from(surface.textureCoordinates.subarray(0, 2 * surface.vertexCount)) : [];
  },
  /** Where a point of W is in the window, in CSS pixels, and how far in front of the camera, in metres. */
  project(x: number, y: number, z: number) {
    const point = new THREE.Vector3(x, y, z);
    const depthM = -point.clone().applyMatrix4(app.stage.camera.matrixWorldInverse).z;
    const at = point.project(app.stage.camera);
    return { x: ((at.x + 1) / 2) * canvas.clientWidth, y: ((1 - at.y) / 2) * canvas.clientHeight, depthM };
  },
  /** What the mouse would work on at a place of the window: the body, and where in W. */
  pick(x: number, y: number) {
    const hit = app.pick(new THREE.Vector2((2 * x) / canvas.clientWidth - 1, 1 - (2 * y) / canvas.clientHeight));
    return hit && { body: hit.body, pointM: hit.point.toArray() };
  },
  /** Advances a paused scene. */
  step: (count: number) => app.step(count),
  /** Takes the instrument with this name; true when it is in the hand. */
  takeTool: (name: string) => app.takeTool(app.view.tools.find((tool) => tool.name === name)?.index ?? -1),
  releaseTool: () => app.releaseTool(),
  /** Shows a message, as the viewer does. */
  tell: (message: string) => app.tell(message),
  /** Closes or opens the jaws of the instrument in the hand. */
  setJaws: (closed: boolean) => app.setJaws(closed),
  setPedal: (down: boolean) => app.setPedal(down),
  /** Performs edits, in the JSON form of `EditSceneRequest.edits`; what came of each. */
  async edit(edits: JsonValue[]) {
    const request = fromJson(EditSceneRequestSchema, { edits });
    const { outcomes } = await app.edit(request.edits, '');
    return outcomes.map(({ body, removedTets, addedTets, newBodies, unchangedCount, isRefused, note }) =>
      ({ body, removedTets: removedTets.length, addedTets: addedTets.length, newBodies, unchangedCount, isRefused, note }));
  },
  /** Where the tip of the instrument in the hand should be, metres in W. */
  moveTool(x: number, y: number, z: number) {
    const hand = app.held?.hand;
    if (hand) hand.move(new THREE.Vector3(x, y, z).sub(hand.pose.position));
  },
  /** Turns the camera to the middle of the scene, from this direction; a distance of 1 shows all of it. */
  look(azimuthDeg: number, elevationDeg: number, distance = 1) {
    app.fit();
    app.stage.look(azimuthDeg, elevationDeg, distance);
    app.redraw();
  },
  /** Like the URL parameter `quality`; also draws at once. */
  setQuality(quality: Quality) {
    app.setQuality(quality);
    app.stage.render();
  },
};
export type PalpateApi = typeof api;
(window as unknown as { palpate: PalpateApi }).palpate = api;
