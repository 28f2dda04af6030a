import { fromJson, type JsonValue } from '@bufbuild/protobuf';
import * as THREE from 'three';
import { EditSceneRequestSchema } from '../generated/palpate/v1/edit_pb';
import type { App } from './app';
import type { Drawer } from './ui/drawer';
import type { ModeBar } from './ui/mode_bar';
import type { Mode } from './surgery/surgery';
import type { Quality } from './view/stage';
import { hasImage } from './view/images';
import { ACTIVITY_LABELS, mainActivity } from './view/tool_model';

declare const PALPATE_VERSION: string;

/** What `window.palpate` is: the state of the viewer to read, and its controls, for scripts and tests. Lengths in metres of W. */
export class ScriptApi {
  readonly version = PALPATE_VERSION;
  /** Of this page so far, each with what was tried. */
  readonly errors: readonly string[];
  readonly #app: App;
  readonly #modeBar: ModeBar;
  readonly #drawer: Drawer;

  constructor(app: App, modeBar: ModeBar, drawer: Drawer) {
    this.#app = app;
    this.#modeBar = modeBar;
    this.#drawer = drawer;
    this.errors = app.reports.errors;
  }

  get connection() {
    return this.#app.session.state.kind;
  }

  get reconnects() {
    return this.#app.session.reconnects;
  }

  get sceneId() {
    return this.#app.session.sceneId;
  }

  get scenes() {
    return this.#app.session.scenes.map((scene) => scene.sceneId);
  }

  get runState() {
    return ['unspecified', 'paused', 'playing', 'failed'][this.#app.stream.runState] ?? 'unspecified';
  }

  get stats() {
    const { stream, view, stage, panel, connection } = this.#app;
    const { frame, received } = stream;
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
      marksShown: view.contactCount,
      markers: view.markers.states,
      clips: view.fasteners.clipCount,
      stitches: view.fasteners.stitchCount,
      framesReceived: received.frames,
      keyframesReceived: received.keyframes,
      deltasReceived: received.deltas,
      topologyVersion: Number(stream.topologyVersion),
      framesPerS: stream.frameRate.perSecond(performance.now()),
      bytesReceived: connection.bytesReceived,
      stages: [...panel.stages.stageNames],
      lowBandwidth: stream.lowBandwidth,
      quality: stage.quality,
    };
  }

  get bodies() {
    return this.#app.view.organs.map((organ) => ({
      name: organ.name,
      vertexCount: organ.positions.length / 3,
      triangleCount: organ.surface.liveCount,
      interiorTriangleCount: organ.interiorTriangleCount,
      zoneTriangleCounts: organ.zoneTriangleCounts,
      meshHash: organ.surface.hash.toString(16).padStart(16, '0'),
      lowestM: organ.expandBox(new THREE.Box3()).min.z,
    }));
  }

  get tools() {
    const { view, stream, tools, inHand } = this.#app;
    return view.tools.map((tool) => {
      const state = stream.frame?.tools[tool.index];
      const force = state?.forceN;
      return {
        name: tool.name,
        owner: tools.ownerOf(tool.index),
        positionM: tool.group.position.toArray(),
        handM: inHand.index === tool.index ? inHand.hand?.pose.position.toArray() : undefined,
        forceN: force ? [force.x, force.y, force.z] : [0, 0, 0],
        contactCount: state?.contactCount ?? 0,
        jawAngleRad: tool.jawAngle_rad,
        activity: ACTIVITY_LABELS[mainActivity(state?.activities ?? [])],
        graspedVertices: state?.graspedVertices ?? 0,
      };
    });
  }

  /** The past of the watched scene; undefined: it has none. Places count steps since the scene was created. */
  get past() {
    const { past } = this.#app;
    const { axis, timeline, position, isReplay, isGoing, source, durability } = past;
    if (!axis || !timeline) return undefined;
    return {
      begin: axis.begin, end: axis.end, position, step: axis.stepAt(position), timeS: axis.timeAt(position), isReplay, isGoing, source, durability,
      durable: Number(timeline.durable),
      divergences: Number(timeline.divergences),
      events: timeline.events.map((event) => ({ kind: event.kind, label: event.label, position: Number(event.position), step: Number(event.step) })),
    };
  }

  /** Shows a place of the past, as a drag along the time line does. */
  scrub(position: number): void {
    this.#app.past.scrub(position);
  }

  get camera() {
    const { camera, controls } = this.#app.stage;
    return { positionM: camera.position.toArray(), targetM: controls.target.toArray() };
  }

  /** What the mouse did to tissue. */
  get surgery() {
    const { surgery, stream } = this.#app;
    return { mode: surgery.mode, sizeM: surgery.size_m, isBusy: surgery.isBusy || stream.isBehind, ...surgery.counts };
  }

  /** A copy of the positions of a body. */
  positions(body: number): number[] {
    return Array.from(this.#app.view.organs[body]?.positions ?? []);
  }

  /** A copy of the texture coordinates of a body's triangles, six for each slot; empty: it has none by corner. */
  textureCorners(body: number): number[] {
    const surface = this.#app.view.organs[body]?.surface;
    return surface ? Array.from(surface.textureCorners.subarray(0, surface.texture?.byCorner ? 6 * surface.slotCount : 0)) : [];
  }

  /** Where the picture of a body's texture is on the server; empty: it has none. */
  imageOf(body: number): string {
    return this.#app.view.organs[body]?.surface.texture?.image ?? '';
  }

  /** Whether the picture of a body's texture has come; true where it has none. */
  hasImage(body: number): boolean {
    const image = this.#app.view.organs[body]?.surface.texture?.image ?? '';
    return image === '' || hasImage(image);
  }

  /** A copy of the texture coordinates of a body's vertices, u v each, zeros where there are none; empty: it has none. */
  textureCoordinates(body: number): number[] {
    const surface = this.#app.view.organs[body]?.surface;
    return surface?.texture ? Array.from(surface.textureCoordinates.subarray(0, 2 * surface.vertexCount)) : [];
  }

  /** Where a point is in the window, in CSS pixels, and how far in front of the camera. */
  project(x: number, y: number, z: number) {
    const { camera, canvas } = this.#app.stage;
    const point = new THREE.Vector3(x, y, z);
    const depthM = -point.clone().applyMatrix4(camera.matrixWorldInverse).z;
    const at = point.project(camera);
    return { x: ((at.x + 1) / 2) * canvas.clientWidth, y: ((1 - at.y) / 2) * canvas.clientHeight, depthM };
  }

  /** What the mouse would work on at a place of the window: the body, and where. */
  pick(x: number, y: number) {
    const { canvas } = this.#app.stage;
    const hit = this.#app.tissue.pick(new THREE.Vector2((2 * x) / canvas.clientWidth - 1, 1 - (2 * y) / canvas.clientHeight));
    return hit && { body: hit.body, pointM: hit.point.toArray() };
  }

  setMode(mode: Mode): void {
    this.#modeBar.setMode(mode);
  }

  /** Radius, depth or reach of the mode. */
  setSize(size_m: number): void {
    this.#modeBar.setSize(size_m);
  }

  showPanel(isShown: boolean): void {
    this.#drawer.show(isShown);
  }

  /** Advances a paused scene. */
  step(count: number): Promise<void> {
    return this.#app.transport.step(count);
  }

  /** Takes the instrument with this name; true when it is in the hand. */
  takeTool(name: string): Promise<boolean> {
    const { tools } = this.#app;
    return tools.take(tools.find(name));
  }

  releaseTool(): Promise<void> {
    return this.#app.inHand.release();
  }

  /** Shows a message, as the viewer does. */
  tell(message: string): void {
    this.#app.reports.tell(message);
  }

  /** Of the instrument in the hand. */
  setJaws(closed: boolean): void {
    this.#app.inHand.setJaws(closed);
  }

  setPedal(down: boolean): void {
    this.#app.inHand.setPedal(down);
  }

  /** Performs edits, in the JSON form of `EditSceneRequest.edits`; what came of each. */
  async edit(edits: JsonValue[]) {
    const request = fromJson(EditSceneRequestSchema, { edits });
    const { outcomes } = await this.#app.tissue.edit(request.edits, '');
    return outcomes.map(({ body, removedTets, addedTets, newBodies, unchangedCount, isRefused, note }) =>
      ({ body, removedTets: removedTets.length, addedTets: addedTets.length, newBodies, unchangedCount, isRefused, note }));
  }

  /** Where the tip of the instrument in the hand should be. */
  moveTool(x: number, y: number, z: number): void {
    const { hand } = this.#app.inHand;
    if (hand) hand.move(new THREE.Vector3(x, y, z).sub(hand.pose.position));
  }

  /** Turns the camera to the middle of the scene, from this direction; a distance of 1 shows all of it. */
  look(azimuthDeg: number, elevationDeg: number, distance = 1): void {
    this.#app.fit();
    this.#app.stage.look(azimuthDeg, elevationDeg, distance);
    this.#app.redraw();
  }

  /** Like the URL parameter `quality`; also draws at once. */
  setQuality(quality: Quality): void {
    this.#app.setQuality(quality);
    this.#app.stage.render();
  }
}
