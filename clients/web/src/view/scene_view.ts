import * as THREE from 'three';
import type { BodyFrame, BodyTopology, Frame, Keyframe, PositionEncoding, TopologyDelta } from '../../generated/palpate/v1/stream_pb';
import { decodePositions } from '../net/positions';
import { SurfaceMirror } from '../net/surface_mirror';
import { ContactLayer, contactMarks } from './contact_layer';
import { FastenerLayer } from './fastener_layer';
import { framingSphere } from './framing';
import { JointLayer } from './joint_layer';
import { MarkerLayer } from './marker_layer';
import { applyLooks, disposeMeshes } from './looks';
import { NurbsOrgan, problemOf } from './nurbs_organ';
import { Organ } from './organ';
import type { Stage } from './stage';
import { surroundings } from './surroundings';
import type { ZoneStyle } from './tissue_material';
import { ToolLayer } from './tool_layer';
import type { ToolModel } from './tool_model';
import { DEFAULT_VIEW_OPTIONS, type ViewOptions } from './view_options';

/** What the zones of a body's surface look like; a body that does not say has a skin and, darker, what lies below. */
function zoneStyles(body: BodyTopology, inherited: THREE.Color | undefined): ZoneStyle[] {
  const of = (color: { r: number; g: number; b: number } | undefined) => color && new THREE.Color().setRGB(color.r, color.g, color.b, THREE.LinearSRGBColorSpace);
  const skin = of(body.surfaceZones[0]?.color) ?? of(body.color) ?? inherited ?? new THREE.Color(0.62, 0.22, 0.18);
  const inside = skin.clone().multiplyScalar(0.6);
  const zones = body.surfaceZones.slice(1).map((zone): ZoneStyle => ({ name: zone.name, color: of(zone.color) ?? (zone.isInterior ? inside : skin), isInterior: zone.isInterior }));
  return [{ name: body.surfaceZones[0]?.name || 'skin', color: skin, isInterior: false }, ...(zones.length > 0 ? zones : [{ name: 'inside', color: inside, isInterior: true }])];
}

/** The watched scene in three dimensions: bodies, obstacles, tools, contacts, forces, joints, clips and stitches. */
export class SceneView {
  readonly root = new THREE.Group();
  organs: Organ[] = [];
  contactCount = 0;
  options: ViewOptions = { ...DEFAULT_VIEW_OPTIONS };
  /** What lies behind it is not drawn. */
  section: THREE.Plane | undefined;
  readonly markers = new MarkerLayer();
  readonly joints = new JointLayer();
  readonly fasteners = new FastenerLayer();
  /** Where the mouse is over the canvas, in pixels. */
  pointer: [number, number] | undefined;
  /** By the name of a body; those that are not here are opaque. */
  private readonly opacities = new Map<string, number>();
  private readonly statics = new THREE.Group();
  private readonly contacts = new ContactLayer();
  private readonly toolLayer: ToolLayer;
  private isPlain = false;

  constructor(private readonly stage: Stage, private readonly labelLayer: HTMLElement) {
    this.toolLayer = new ToolLayer(this.root, labelLayer);
    stage.scene.add(this.root);
    this.root.add(this.statics, this.contacts.group, this.markers.group, this.joints.group, this.fasteners.group);
  }

  get tools(): readonly ToolModel[] {
    return this.toolLayer.models;
  }

  /** Builds everything anew. Returns what is wrong with the keyframe, if anything. */
  load(keyframe: Keyframe, encoding: PositionEncoding, moveCamera: boolean): string | undefined {
    this.clear();
    const first = keyframe.frame;
    if (!first) return 'a keyframe without a frame';
    const bounds = new THREE.Box3();
    for (const [index, body] of keyframe.bodies.entries()) {
      const bodyFrame = first.bodies[index];
      if (!bodyFrame) return `body '${body.name}': no positions in the keyframe`;
      const surface = SurfaceMirror.of(body);
      if (typeof surface === 'string') return surface;
      const wrong = body.nurbs && problemOf(body);
      if (wrong) return wrong;
      const zones = zoneStyles(body, undefined);
      const organ = this.add(body.nurbs ? new NurbsOrgan(surface, zones, body.nurbs) : new Organ(surface, zones));
      const problem = this.take(organ, bodyFrame, encoding);
      if (problem) return problem;
      organ.expandBox(bounds);
    }
    if (bounds.isEmpty()) bounds.set(new THREE.Vector3(-0.1, -0.1, 0), new THREE.Vector3(0.1, 0.1, 0.1));
    this.stage.lightBox(bounds);
    this.toolLayer.load(keyframe.tools);
    const { center, radius_m } = this.stage;
    this.statics.add(...surroundings(keyframe.obstacles, { center, radius_m, bottom_m: bounds.min.z }));
    this.markers.load(keyframe.markers);
    this.joints.load(keyframe.joints);
    applyLooks(this.root, this.isPlain);
    this.update(first, encoding);
    if (moveCamera) this.stage.frame(this.framing(bounds));
    return undefined;
  }

  /** Turns the camera to the organs, wherever they are now, and the instruments. */
  showEverything(): void {
    const bounds = new THREE.Box3();
    for (const organ of this.organs) organ.expandBox(bounds);
    if (bounds.isEmpty()) return;
    this.stage.lightBox(bounds);
    this.stage.frame(this.framing(bounds));
  }

  private framing(organs: THREE.Box3): THREE.Sphere {
    return framingSphere(organs, this.tools.map(({ group, shape }) => ({
      tip: group.position, axis: new THREE.Vector3(0, 0, 1).applyQuaternion(group.quaternion), length_m: shape.lengthM,
    })));
  }

  /** Takes over a change of topology; a frame has to follow before the next picture. What is wrong with it, if anything: then nothing has changed. */
  applyDelta(delta: TopologyDelta): string | undefined {
    for (const change of delta.bodies) {
      const organ = this.organs[change.bodyIndex];
      const problem = organ ? organ.surface.check(change) : `body ${change.bodyIndex}, of ${this.organs.length}`;
      if (problem) return problem;
    }
    const pieces = delta.newBodies.map((body) => {
      const parent = this.organs.find((organ) => organ.name === body.parent);
      return { body, surface: SurfaceMirror.of(body), heritage: parent?.bequeath(), skin: parent?.zones[0]!.color };
    });
    for (const { surface } of pieces) if (typeof surface === 'string') return surface;
    for (const change of delta.bodies) {
      const organ = this.organs[change.bodyIndex]!;
      organ.change(organ.surface.apply(change));
    }
    for (const { body, surface, heritage, skin } of pieces) this.add(new Organ(surface as SurfaceMirror, zoneStyles(body, skin), heritage));
    return undefined;
  }

  /** Where a body is now. What is wrong, if anything. */
  private take(organ: Organ, frame: BodyFrame, encoding: PositionEncoding): string | undefined {
    const problem = organ instanceof NurbsOrgan ? organ.place(frame, encoding) : decodePositions(frame, encoding, organ.positions);
    if (problem) return `body '${organ.name}': ${problem}`;
    organ.commit();
    return undefined;
  }

  private add(organ: Organ): Organ {
    organ.setWireframe(this.options.wireframe);
    organ.setSeeThrough(this.opacities.get(organ.name) ?? 1, this.section);
    applyLooks(organ.mesh, this.isPlain);
    this.organs.push(organ);
    this.root.add(organ.mesh);
    return organ;
  }

  /** Takes over a frame. Returns what is wrong with it, if anything. */
  update(frame: Frame, encoding: PositionEncoding): string | undefined {
    if (frame.bodies.length !== this.organs.length) return `a frame of ${frame.bodies.length} bodies, expected ${this.organs.length}`;
    for (const [index, organ] of this.organs.entries()) {
      const problem = this.take(organ, frame.bodies[index]!, encoding);
      if (problem) return problem;
    }
    this.toolLayer.update(frame.tools, this.options.forces, this.stage.radius_m);
    const wrong = this.markers.update(frame.markers, this.stage.radius_m);
    if (wrong) return wrong;
    const broken = this.joints.update(frame.joints, this.stage.radius_m);
    if (broken) return broken;
    const malformed = this.fasteners.update(frame.clips, frame.stitchesM, this.stage.radius_m);
    if (malformed) return malformed;
    const marks = contactMarks(frame);
    this.contactCount = marks.length;
    this.contacts.update(marks, this.stage.radius_m);
    this.contacts.setShown(this.options.contacts, this.options.normals);
    return undefined;
  }

  /** 1: opaque. */
  opacityOf(body: string): number {
    return this.opacities.get(body) ?? 1;
  }

  /** Of the bodies with these names. */
  setOpacity(bodies: Iterable<string>, opacity: number): void {
    const named = new Set(bodies);
    for (const name of named) this.opacities.set(name, opacity);
    for (const organ of this.organs) if (named.has(organ.name)) organ.setSeeThrough(opacity, this.section);
  }

  forgetSeeThrough(): void {
    this.opacities.clear();
    this.setSection(undefined);
    for (const organ of this.organs) organ.setSeeThrough(1, undefined);
  }

  setSection(section: THREE.Plane | undefined): void {
    this.section = section;
    this.fasteners.setSection(section);
    for (const organ of this.organs) organ.setSeeThrough(this.opacityOf(organ.name), section);
  }

  setOptions(options: Partial<ViewOptions>): void {
    Object.assign(this.options, options);
    for (const organ of this.organs) organ.setWireframe(this.options.wireframe);
    this.contacts.setShown(this.options.contacts, this.options.normals);
    this.markers.setShown(this.options.markers);
    if (!this.options.forces) this.toolLayer.hideForces();
  }

  /** Materials that a processor can draw, or all there is to see. */
  setPlain(isPlain: boolean): void {
    this.isPlain = isPlain;
    applyLooks(this.root, isPlain);
  }

  /** Puts the labels beside what they tell of, and exact surfaces into triangles for their distance; after the camera moved. */
  placeLabels(): void {
    for (const organ of this.organs) {
      if (organ instanceof NurbsOrgan) organ.follow(this.stage.camera, this.stage.canvas.height, this.isPlain);
    }
    const { clientWidth: width, clientHeight: height } = this.stage.canvas;
    this.markers.placeNames(this.labelLayer, this.stage.camera, width, height, this.pointer);
    this.toolLayer.placeLabels(this.stage.camera, width, height);
  }

  clear(): void {
    for (const organ of this.organs) organ.dispose();
    this.toolLayer.clear();
    this.organs = [];
    this.contacts.clear();
    this.contactCount = 0;
    this.markers.clear();
    this.joints.clear();
    this.fasteners.clear();
    disposeMeshes(this.statics);
    this.statics.clear();
  }
}
