import * as THREE from 'three';
import { ToolActivity, type ObstacleSpec, type Pose, type Vec3 } from '../../generated/palpate/v1/scene_pb';
import type { BodyTopology, Frame, Keyframe, PositionEncoding, TopologyDelta } from '../../generated/palpate/v1/stream_pb';
import { decodePositions } from '../net/positions';
import { SurfaceMirror } from '../net/surface_mirror';
import { ContactLayer, contactMarks } from './contact_layer';
import { framingSphere } from './framing';
import { MarkerLayer } from './marker_layer';
import { applyLooks, disposeMeshes, dressed } from './looks';
import { Organ, type Heritage } from './organ';
import { plainTableMaterial, type Stage, tableMaterial } from './stage';
import type { ZoneStyle } from './tissue_material';
import { ACTIVITY_COLORS, ACTIVITY_LABELS, hasJaws, mainActivity, ToolModel } from './tool_model';
import { DEFAULT_VIEW_OPTIONS, type ViewOptions } from './view_options';

export function toVector(v: Vec3 | undefined, out = new THREE.Vector3()): THREE.Vector3 {
  return v ? out.set(v.x, v.y, v.z) : out.set(0, 0, 0);
}

export function applyPose(pose: Pose | undefined, object: THREE.Object3D): void {
  toVector(pose?.positionM, object.position);
  const q = pose?.rotation;
  if (q) object.quaternion.set(q.x, q.y, q.z, q.w).normalize();
  else object.quaternion.identity();
}

/** What the zones of a body's surface look like; a body that does not say has a skin and, darker, what lies below. */
function zoneStyles(body: BodyTopology, inherited: THREE.Color | undefined): ZoneStyle[] {
  const of = (color: { r: number; g: number; b: number } | undefined) => color && new THREE.Color().setRGB(color.r, color.g, color.b, THREE.LinearSRGBColorSpace);
  const skin = of(body.surfaceZones[0]?.color) ?? of(body.color) ?? inherited ?? new THREE.Color(0.62, 0.22, 0.18);
  const inside = skin.clone().multiplyScalar(0.6);
  const zones = body.surfaceZones.slice(1).map((zone): ZoneStyle => ({ name: zone.name, color: of(zone.color) ?? (zone.isInterior ? inside : skin), isInterior: zone.isInterior }));
  return [{ name: body.surfaceZones[0]?.name || 'skin', color: skin, isInterior: false }, ...(zones.length > 0 ? zones : [{ name: 'inside', color: inside, isInterior: true }])];
}

/** The watched scene in three dimensions: bodies, obstacles, tools, contacts, forces. */
export class SceneView {
  readonly root = new THREE.Group();
  organs: Organ[] = [];
  tools: ToolModel[] = [];
  contactCount = 0;
  options: ViewOptions = { ...DEFAULT_VIEW_OPTIONS };
  /** By the name of a body; those that are not here are opaque. */
  private readonly opacities = new Map<string, number>();
  /** What lies behind it is not drawn. */
  section: THREE.Plane | undefined;
  private readonly statics = new THREE.Group();
  readonly markers = new MarkerLayer();
  /** Where the mouse is over the canvas, in pixels. */
  pointer: [number, number] | undefined;
  private readonly contacts = new ContactLayer();
  private readonly labels: HTMLElement[] = [];
  private readonly scratch = new THREE.Vector3();
  private readonly scratch2 = new THREE.Vector3();
  private readonly arrowTips: THREE.Vector3[] = [];
  private isPlain = false;

  constructor(private readonly stage: Stage, private readonly labelLayer: HTMLElement) {
    stage.scene.add(this.root);
    this.root.add(this.statics, this.contacts.group, this.markers.group);
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
      const organ = this.addOrgan(surface, zoneStyles(body, undefined));
      const problem = decodePositions(bodyFrame, encoding, organ.positions);
      if (problem) return `body '${body.name}': ${problem}`;
      organ.commit();
      organ.expandBox(bounds);
    }
    if (bounds.isEmpty()) bounds.set(new THREE.Vector3(-0.1, -0.1, 0), new THREE.Vector3(0.1, 0.1, 0.1));
    this.stage.lightBox(bounds);
    for (const [index, tool] of keyframe.tools.entries()) {
      const model = new ToolModel(tool, index);
      model.addTo(this.root);
      this.tools.push(model);
      this.arrowTips.push(new THREE.Vector3());
      const label = document.createElement('div');
      label.className = 'force-label';
      this.labelLayer.append(label);
      this.labels.push(label);
    }
    this.addObstacles(keyframe.obstacles, bounds);
    this.markers.load(keyframe.markers);
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
    for (const { body, surface, heritage, skin } of pieces) this.addOrgan(surface as SurfaceMirror, zoneStyles(body, skin), heritage);
    return undefined;
  }

  private addOrgan(surface: SurfaceMirror, zones: ZoneStyle[], heritage?: Heritage): Organ {
    const organ = new Organ(surface, zones, heritage);
    organ.setWireframe(this.options.wireframe);
    organ.setSeeThrough(this.opacities.get(surface.name) ?? 1, this.section);
    applyLooks(organ.mesh, this.isPlain);
    this.organs.push(organ);
    this.root.add(organ.mesh);
    return organ;
  }

  /** Takes over a frame. Returns what is wrong with it, if anything. */
  update(frame: Frame, encoding: PositionEncoding): string | undefined {
    if (frame.bodies.length !== this.organs.length) return `a frame of ${frame.bodies.length} bodies, expected ${this.organs.length}`;
    for (const [index, organ] of this.organs.entries()) {
      const problem = decodePositions(frame.bodies[index]!, encoding, organ.positions);
      if (problem) return `body '${organ.name}': ${problem}`;
      organ.commit();
    }
    for (const [index, model] of this.tools.entries()) {
      const state = frame.tools[index];
      if (!state) continue;
      applyPose(state.pose, model.group);
      applyPose(state.devicePose, model.ghost);
      const apart_m = model.ghost.position.distanceTo(model.group.position);
      const angle = model.ghost.quaternion.angleTo(model.group.quaternion);
      model.ghost.visible = state.operated && (apart_m > 5e-4 || angle > 0.01);
      const newtons = toVector(state.forceN, this.scratch).length();
      const shown = this.options.forces && model.arrow.set(model.group.position, this.scratch, this.stage.radius_m * 0.9, this.arrowTips[index]!);
      if (!shown) model.arrow.group.visible = false;
      const activity = mainActivity(state.activities);
      model.setActivity(activity);
      if (hasJaws(model.shape.kind)) model.setJawAngle(state.jawAngleRad);
      // Without a force to show, only what changes the tissue is worth a label.
      const says = activity > ToolActivity.TOUCHING || shown;
      const label = this.labels[index]!;
      label.textContent = says ? [ACTIVITY_LABELS[activity], shown ? `${newtons.toFixed(2)} N` : ''].filter(Boolean).join(' · ') : '';
      label.style.color = activity > ToolActivity.TOUCHING ? `#${ACTIVITY_COLORS[activity].toString(16).padStart(6, '0')}` : '';
      label.hidden = !says;
      if (!shown) this.arrowTips[index]!.copy(model.group.position);
    }
    const wrong = this.markers.update(frame.markers, this.stage.radius_m);
    if (wrong) return wrong;
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
    for (const organ of this.organs) organ.setSeeThrough(this.opacityOf(organ.name), section);
  }

  setOptions(options: Partial<ViewOptions>): void {
    Object.assign(this.options, options);
    for (const organ of this.organs) organ.setWireframe(this.options.wireframe);
    this.contacts.setShown(this.options.contacts, this.options.normals);
    this.markers.setShown(this.options.markers);
    if (!this.options.forces) {
      for (const model of this.tools) model.arrow.group.visible = false;
      for (const label of this.labels) label.hidden = true;
    }
  }

  /** Materials that a processor can draw, or all there is to see. */
  setPlain(isPlain: boolean): void {
    this.isPlain = isPlain;
    applyLooks(this.root, isPlain);
  }

  /** Puts the labels beside what they tell of; after the camera moved. */
  placeLabels(): void {
    const { clientWidth: width, clientHeight: height } = this.stage.canvas;
    this.markers.placeNames(this.labelLayer, this.stage.camera, width, height, this.pointer);
    for (const [index, label] of this.labels.entries()) {
      if (label.hidden) continue;
      const at = this.scratch2.copy(this.arrowTips[index]!).project(this.stage.camera);
      label.style.transform = `translate(${((at.x + 1) / 2) * width + 10}px, ${((1 - at.y) / 2) * height - 12}px)`;
    }
  }

  clear(): void {
    for (const organ of this.organs) organ.dispose();
    for (const tool of this.tools) tool.dispose();
    for (const label of this.labels) label.remove();
    this.organs = [];
    this.tools = [];
    this.labels.length = 0;
    this.arrowTips.length = 0;
    this.contacts.clear();
    this.contactCount = 0;
    this.markers.clear();
    disposeMeshes(this.statics);
    this.statics.clear();
  }

  private addObstacles(obstacles: ObstacleSpec[], bounds: THREE.Box3): void {
    const r = this.stage.radius_m;
    const solid = (geometry: THREE.BufferGeometry) =>
      dressed(geometry, new THREE.MeshStandardMaterial({ color: 0x3a4b57, roughness: 0.6, metalness: 0.1 }), new THREE.MeshLambertMaterial({ color: 0x3a4b57 }));
    let grounded = false;
    for (const obstacle of obstacles) {
      switch (obstacle.shape.case) {
        case 'plane': {
          const plane = obstacle.shape.value;
          const normal = plane.normal ? toVector(plane.normal, new THREE.Vector3()) : new THREE.Vector3(0, 0, 1);
          if (normal.lengthSq() === 0) continue;
          normal.normalize();
          const center = this.stage.center.clone();
          center.addScaledVector(normal, -normal.dot(center.clone().sub(toVector(plane.pointM))));
          this.addTable(center, normal, r * 8);
          grounded = true;
          break;
        }
        case 'sphere': {
          const sphere = obstacle.shape.value;
          const mesh = solid(new THREE.SphereGeometry(sphere.radiusM, 48, 32));
          toVector(sphere.centerM, mesh.position);
          this.addSolid(mesh);
          break;
        }
        case 'capsule': {
          const capsule = obstacle.shape.value;
          const from = toVector(capsule.end0M);
          const to = toVector(capsule.end1M);
          const length = from.distanceTo(to);
          const mesh = solid(new THREE.CapsuleGeometry(capsule.radiusM, length, 16, 40));
          mesh.position.copy(from).lerp(to, 0.5);
          if (length > 0) mesh.quaternion.setFromUnitVectors(new THREE.Vector3(0, 1, 0), to.clone().sub(from).divideScalar(length));
          this.addSolid(mesh);
          break;
        }
        default:
          break;
      }
    }
    if (!grounded) this.addTable(new THREE.Vector3(this.stage.center.x, this.stage.center.y, bounds.min.z - 0.12 * r), new THREE.Vector3(0, 0, 1), r * 8);
  }

  private addTable(center: THREE.Vector3, normal: THREE.Vector3, extent_m: number): void {
    const table = dressed(new THREE.CircleGeometry(extent_m, 96), tableMaterial(extent_m), plainTableMaterial(extent_m));
    table.position.copy(center);
    table.quaternion.setFromUnitVectors(new THREE.Vector3(0, 0, 1), normal);
    table.receiveShadow = true;
    table.renderOrder = -1;
    this.statics.add(table);
  }

  private addSolid(mesh: THREE.Mesh): void {
    mesh.castShadow = true;
    mesh.receiveShadow = true;
    this.statics.add(mesh);
  }
}
