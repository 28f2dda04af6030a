// A stand-in for palpate-server, for work on the viewer where no server is built: the same pages and socket, with a rubbery toy in
// place of tissue.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { WebSocketServer, type WebSocket } from 'ws';
import { ListScenesResponseSchema, RateMode, RateSchema, RunState, SceneInfoSchema, type Rate, type SceneInfo } from '../generated/palpate/v1/control_pb';
import type { ToolPose } from '../generated/palpate/v1/haptics_pb';
import { EditOutcomeSchema, EditSceneResponseSchema, type Edit, type EditOutcome, type EditSceneRequest, type EditSceneResponse } from '../generated/palpate/v1/edit_pb';
import type { SeekSceneRequest, SetBookmarkRequest, Timeline } from '../generated/palpate/v1/record_pb';
import { InstrumentKind, ToolActivity, type Vec3 } from '../generated/palpate/v1/scene_pb';
import { FrameSchema, KeyframeSchema, PositionEncoding, TopologyDeltaSchema, type Frame, type Keyframe, type TopologyDelta,
  type WatchRequest } from '../generated/palpate/v1/stream_pb';
import { ViewerRequestSchema, ViewerUpdateSchema, type ViewerRequest } from '../generated/palpate/v1/viewer_pb';
import { deepCopy, FakePast, type FakeReplay, type Recorded } from './fake_past';
import { FakeTissue, surfaceHash } from './fake_tissue';
import { add, length, scale, subtract, type Vector } from './vectors';

const DT_S = 1 / 60;
const MAX_JAW_ANGLE_RAD = 1;
const JAW_SPEED_RAD_PER_S = 4;
const MARGIN_M = 0.001;
/** Of each triangle that a tool touches, where it has been pushed from its rest and where it is pushed now. */
const STIFFNESS_N_PER_M = 24;
const DEPTH_STIFFNESS_N_PER_M = 6;
const vec3 = (a: Vector) => ({ x: a[0], y: a[1], z: a[2] });

/** Points and triangles of a subdivided icosahedron on the unit sphere, seen from outside counter-clockwise. */
export function icosphere(subdivisions: number): { vertices: Vector[]; triangles: number[] } {
  const t = (1 + Math.sqrt(5)) / 2;
  let vertices: Vector[] = [[-1, t, 0], [1, t, 0], [-1, -t, 0], [1, -t, 0], [0, -1, t], [0, 1, t], [0, -1, -t], [0, 1, -t], [t, 0, -1], [t, 0, 1], [-t, 0, -1], [-t, 0, 1]];
  vertices = vertices.map((v) => scale(v, 1 / length(v)));
  let triangles = [0, 11, 5, 0, 5, 1, 0, 1, 7, 0, 7, 10, 0, 10, 11, 1, 5, 9, 5, 11, 4, 11, 10, 2, 10, 7, 6, 7, 1, 8, 3, 9, 4, 3, 4, 2, 3, 2, 6, 3, 6, 8, 3, 8, 9, 4, 9, 5, 2, 4, 11, 6, 2, 10, 8, 6, 7, 9, 8, 1];
  for (let s = 0; s < subdivisions; ++s) {
    const middles = new Map<string, number>();
    const middle = (a: number, b: number): number => {
      const key = a < b ? `${a},${b}` : `${b},${a}`;
      let index = middles.get(key);
      if (index === undefined) {
        const m = add(vertices[a]!, vertices[b]!);
        index = vertices.push(scale(m, 1 / length(m))) - 1;
        middles.set(key, index);
      }
      return index;
    };
    const next: number[] = [];
    for (let i = 0; i < triangles.length; i += 3) {
      const [a, b, c] = [triangles[i]!, triangles[i + 1]!, triangles[i + 2]!];
      const [ab, bc, ca] = [middle(a, b), middle(b, c), middle(c, a)];
      next.push(a, ab, ca, b, bc, ab, c, ca, bc, ab, bc, ca);
    }
    triangles = next;
  }
  return { vertices, triangles };
}

interface FakeTool {
  name: string;
  kind: InstrumentKind;
  radius_m: number;
  length_m: number;
  axis: Vector;
  tip: Vector;
  target: Vector;
  rotation: { w: number; x: number; y: number; z: number };
  jaw_rad: number;
  wantedJaw_rad: number;
  isPedalDown: boolean;
  force: Vector;
  contacts: number;
  held: number;
  isCutting: boolean;
  owner: object | undefined;
  /** Drives itself, like a tool at a station. */
  script?: (time_s: number) => Vector;
}

function rotationTo(axis: Vector): { w: number; x: number; y: number; z: number } {
  const q = { w: 1 + axis[2], x: -axis[1], y: axis[0], z: 0 };
  const n = Math.hypot(q.w, q.x, q.y) || 1;
  return { w: q.w / n, x: q.x / n, y: q.y / n, z: 0 };
}

/** A request that the server does not do; `code` is a canonical status code. */
class Refusal extends Error {
  constructor(readonly code: number, message: string) {
    super(message);
  }
}

const tuple = (v: Vec3 | undefined): Vector => [v?.x ?? 0, v?.y ?? 0, v?.z ?? 0];
const isJawed = (tool: FakeTool) => tool.kind === InstrumentKind.FORCEPS;

/** What a tool is told in a step. */
type Command = Pick<FakeTool, 'target' | 'rotation' | 'axis' | 'wantedJaw_rad' | 'isPedalDown'>;

/** What a step, an edit or a reset changes. */
interface FakeState {
  bodies: FakeTissue[];
  tools: FakeTool[];
  pieceCounts: Map<string, number>;
  contacts: FakeScene['contacts'];
  step: number;
}

export class FakeScene implements Recorded<FakeState, Command> {
  bodies: FakeTissue[] = [];
  readonly tools: FakeTool[];
  /** Of scenes that have one; replays have what they replay instead. */
  past: FakePast<FakeState, Command> | undefined;
  replay: FakeReplay<FakeState, Command> | undefined;
  source: FakeScene | undefined;
  contacts: { tool: number; body: number; point: Vector; normal: Vector; force: Vector }[] = [];
  state = RunState.PLAYING;
  rate: Rate = create(RateSchema, { mode: RateMode.REAL_TIME, speed: 1 });
  step = 0;
  durability = '';
  private resetBy = '';
  private resets = 0;
  version = 0;  // changes with everything that a viewer could see
  topologyVersion = 1;
  /** From each version to the next. */
  readonly deltas = new Map<number, TopologyDelta>();
  /** Of the last keyframe that everybody has to see: after a reset. */
  keyframeVersion = 1;
  private readonly answers = new Map<string, EditSceneResponse>();
  private pieceCounts = new Map<string, number>();

  constructor(readonly id: string, readonly name: string, private readonly kind: 'liver' | 'sphere' | 'surgery') {
    const tool = (name: string, toolKind: InstrumentKind, radius_m: number, length_m: number, tip: Vector, lean: Vector): FakeTool => {
      const axis = scale(lean, 1 / length(lean));
      return { name, kind: toolKind, radius_m, length_m, axis, tip, target: tip, rotation: rotationTo(axis), jaw_rad: MAX_JAW_ANGLE_RAD, wantedJaw_rad: MAX_JAW_ANGLE_RAD,
        isPedalDown: false, force: [0, 0, 0], contacts: 0, held: 0, isCutting: false, owner: undefined };
    };
    if (kind === 'surgery') {
      this.tools = [
        tool('forceps', InstrumentKind.FORCEPS, 0.0035, 0.13, [0.045, -0.045, 0.115], [0.5, -0.6, 1]),
        tool('hook', InstrumentKind.CAUTERY_HOOK, 0.0025, 0.13, [-0.02, -0.06, 0.12], [-0.1, -0.8, 1]),
        tool('aspirator', InstrumentKind.CAVITRON, 0.004, 0.13, [-0.085, 0.01, 0.12], [-0.7, 0.1, 1]),
        tool('scalpel', InstrumentKind.SCALPEL, 0.003, 0.12, [0.06, 0.05, 0.11], [0.6, 0.5, 1]),
      ];
    } else {
      this.tools = [tool('probe', InstrumentKind.PROBE, 0.005, 0.11, [0.035, -0.02, 0.105], [0.45, -0.35, 1])];
    }
    if (kind === 'liver') {
      const driven = tool('palpator', InstrumentKind.PROBE, 0.006, 0.1, [-0.055, 0, 0.1], [-0.5, 0.2, 1]);
      driven.script = (time_s) => [-0.05 + 0.012 * Math.sin(0.9 * time_s), 0.006 * Math.cos(0.7 * time_s), 0.082 + 0.016 * Math.cos(1.7 * time_s)];
      this.tools.push(driven);
    }
    this.fill();
  }

  private fill(): void {
    const tumor = (p: Vector) => (this.kind === 'surgery' && length(subtract(p, [-0.35, 0, 0.55])) < 0.27 ? 1 : 0);
    this.bodies = [this.kind === 'sphere' ? FakeTissue.ball('ball', 6, (v) => [0.05 * v[0], 0.05 * v[1], 0.052 + 0.05 * v[2]], () => 0)
      : FakeTissue.ball('liver', this.kind === 'surgery' ? 12 : 11, liverPoint, tumor)];
    this.pieceCounts.clear();
  }

  // --- the past -------------------------------------------------------------------------------------------------------------------------------------

  keepPast(): void {
    this.past = new FakePast(this);
  }

  copy(): FakeState {
    const tools = this.tools.map((tool) => ({ ...tool, owner: undefined }));
    return { bodies: deepCopy(this.bodies), tools, pieceCounts: new Map(this.pieceCounts), contacts: this.contacts, step: this.step };
  }

  restore({ bodies, tools, pieceCounts, contacts, step }: FakeState): void {
    this.bodies = bodies;
    this.tools.forEach((tool, index) => Object.assign(tool, tools[index], { owner: tool.owner }));
    this.pieceCounts = pieceCounts;
    this.contacts = contacts;
    this.step = step;
    this.renew();
  }

  redo(commands: Command[]): void {
    commands.forEach((command, index) => Object.assign(this.tools[index]!, command));
    this.move();
  }

  /** A scene that does again what this one did, or goes on from here. */
  private another(id: string): FakeScene {
    const scene = new FakeScene(id, this.name, this.kind);
    scene.state = RunState.PAUSED;
    return scene;
  }

  replayed(id: string): FakeScene {
    const scene = this.another(id);
    scene.source = this;
    scene.replay = this.past!.replayIn(scene);
    return scene;
  }

  branched(id: string): FakeScene {
    const scene = this.another(id);
    scene.restore(deepCopy(this.copy()));
    scene.keepPast();
    return scene;
  }

  seek(position: number): void {
    const { replay } = this;
    if (!replay) throw new Refusal(9, `scene '${this.id}' is no replay`);
    if (position < replay.begin || position > replay.end) throw new Refusal(11, `position: ${position} is outside [${replay.begin}, ${replay.end}]`);
    replay.seek(position);
    this.renew();
  }

  timeline(): Timeline {
    if (!this.replay) return this.past!.timeline(DT_S);
    const { end, position } = this.replay;
    const of = this.source!.timeline();
    return { ...of, end: BigInt(end), position: BigInt(position), durable: BigInt(end), isReplay: true, source: this.source!.id,
      events: of.events.filter(({ kind }) => kind !== 'bookmark') };
  }

  /** Everybody has to see all of it anew. */
  private renew(): void {
    ++this.version;
    this.deltas.clear();
    this.keyframeVersion = ++this.topologyVersion;
  }

  /** `by`: whom the others are told of. */
  reset(by: string): void {
    this.past?.addReset(by);
    this.resetBy = by;
    ++this.resets;
    this.fill();
    this.step = 0;
    this.renew();
  }

  advance(): void {
    if (this.replay) {
      if (this.replay.advance()) return;
      this.state = RunState.PAUSED;
      ++this.version;  // a frame tells it
      return;
    }
    for (const tool of this.tools) if (tool.script && !tool.owner) tool.target = tool.script((this.step + 1) * DT_S);
    const commands = this.tools.map(({ target, rotation, axis, wantedJaw_rad, isPedalDown }): Command => ({ target, rotation, axis, wantedJaw_rad, isPedalDown }));
    this.move();
    this.past?.addStep(commands);
  }

  private move(): void {
    ++this.step;
    ++this.version;
    const time_s = this.step * DT_S;
    for (const [index, tool] of this.tools.entries()) {
      // No faster than contact can follow.
      const move = subtract(tool.target, tool.tip);
      tool.tip = add(tool.tip, scale(move, Math.min(0.45, tool.radius_m / (length(move) || 1))));
      const turn = tool.wantedJaw_rad - tool.jaw_rad;
      tool.jaw_rad += Math.sign(turn) * Math.min(Math.abs(turn), JAW_SPEED_RAD_PER_S * DT_S);
      if (isJawed(tool) && tool.held === 0 && turn < 0 && tool.jaw_rad < 0.2) for (const body of this.bodies) body.hold(index, tool.tip, 0.008);
      if (isJawed(tool) && turn > 0.1) for (const body of this.bodies) body.release(index);
      tool.isCutting = false;
      if (tool.isPedalDown && this.step % 4 === 0) this.burn(tool);
    }
    const tips = this.tools.map((tool) => tool.tip);
    for (const body of this.bodies) body.advance(time_s, tips);
    this.contacts = [];
    for (const [index, tool] of this.tools.entries()) {
      const holds = this.bodies.map((body) => body.holdForce(index));
      tool.held = holds.reduce((sum, hold) => sum + hold.count, 0);
      tool.force = holds.reduce<Vector>((sum, hold) => add(sum, hold.force), [0, 0, 0]);
      tool.contacts = 0;
      if (tool.held > 0) continue;
      for (const [bodyIndex, body] of this.bodies.entries()) {
        for (const { point, normal, offset_m, depth_m } of body.pushOut(tool.tip, add(tool.tip, scale(tool.axis, tool.length_m)), tool.radius_m + MARGIN_M)) {
          const force = scale(normal, STIFFNESS_N_PER_M * offset_m + DEPTH_STIFFNESS_N_PER_M * depth_m);
          tool.force = subtract(tool.force, force);
          ++tool.contacts;
          this.contacts.push({ tool: index, body: bodyIndex, point, normal, force });
        }
      }
    }
  }

  // --- edits ----------------------------------------------------------------------------------------------------------------------------------------

  /** Energy takes the tissue around the tip away. */
  private burn(tool: FakeTool): void {
    const reach_m = 1.6 * tool.radius_m;
    for (const body of [...this.bodies]) if (body.carve(tool.tip, tool.tip, reach_m).length > 0) tool.isCutting = true;
    if (tool.isCutting) this.publish();
  }

  edit(request: EditSceneRequest): EditSceneResponse {
    const known = this.answers.get(request.key);
    if (known) return create(EditSceneResponseSchema, { ...known, isRepeat: true });
    if (request.edits.length < 1 || request.edits.length > 256) throw new Refusal(3, `edits: ${request.edits.length} edits, must be 1 to 256`);
    if (this.kind === 'sphere') throw new Refusal(9, "edits[0].body: 'ball' is rigid, only a deformable body can be cut");
    const outcomes = request.edits.map((edit, index) => this.perform(edit, `edits[${index}]`));
    for (const { body, pieces } of this.publish()) outcomes.find((outcome) => outcome.body === body)?.newBodies.push(...pieces);
    const answer = create(EditSceneResponseSchema, { topologyVersion: BigInt(this.topologyVersion), step: BigInt(this.step), outcomes });
    if (request.key !== '' && !this.replay) this.answers.set(request.key, answer);
    this.past?.addEdit(request);
    return answer;
  }

  private perform(edit: Edit, field: string): EditOutcome {
    const outcome = create(EditOutcomeSchema, { body: edit.body });
    const body = this.bodies.find((one) => one.name === edit.body);
    if (!body && edit.edit.case !== 'grasp' && edit.edit.case !== 'release') throw new Refusal(5, `${field}.body: no body '${edit.body}'`);
    switch (edit.edit.case) {
      case 'carve': {
        const region = edit.edit.value.region?.region;
        if (region?.case !== 'ball' && region?.case !== 'capsule') throw new Refusal(12, `${field}.carve.region: only balls and capsules here`);
        const { radiusM } = region.value;
        if (!(radiusM > 0 && radiusM <= 10)) throw new Refusal(3, `${field}.carve.region.${region.case}.radius_m: ${radiusM} is outside (0, 10]`);
        const [end0, end1] = region.case === 'ball' ? [region.value.centerM, region.value.centerM] : [region.value.end0M, region.value.end1M];
        outcome.removedTets = body!.carve(tuple(end0), tuple(end1), radiusM).map(BigInt);
        outcome.removedMassKg = 2e-5 * outcome.removedTets.length;
        break;
      }
      case 'incise': {
        const { edges } = edit.edit.value;
        if (edges.length < 2 || edges.length > 1024) throw new Refusal(3, `${field}.incise.edges: ${edges.length} edges, must be 2 to 1024`);
        outcome.unchangedCount = body!.incise(edges.map((edge) => [tuple(edge.end0M), tuple(edge.end1M)])) > 0 ? 0 : 1;
        break;
      }
      case 'grasp':
      case 'release': {
        const name = edit.edit.value.tool;
        const index = this.tools.findIndex((tool) => tool.name === name);
        if (index < 0) throw new Refusal(5, `${field}.${edit.edit.case}.tool: no tool '${name}'`);
        if (!isJawed(this.tools[index]!)) throw new Refusal(3, `${field}.${edit.edit.case}.tool: '${name}' has no jaws`);
        for (const one of this.bodies) {
          if (edit.edit.case === 'grasp') outcome.graspedVertices += one.hold(index, this.tools[index]!.tip, edit.edit.value.radiusM ?? 0.008);
          else one.release(index);
        }
        break;
      }
      default:
        throw new Refusal(12, `${field}.edit: not here`);
    }
    return outcome;
  }

  /** Makes what was edited a new version of the topology; the pieces that came off. */
  private publish(): { body: string; pieces: string[] }[] {
    const before = this.bodies.length;
    const cameOff = this.bodies.map((body) => {
      const pieces = body.takePieces(() => {
        const root = body.name.split('.')[0]!;
        const count = (this.pieceCounts.get(root) ?? 0) + 1;
        this.pieceCounts.set(root, count);
        return `${root}.${count}`;
      });
      return { body, pieces };
    });
    const newBodies = cameOff.flatMap(({ pieces }) => pieces);
    const bodies = this.bodies.map((body, index) => body.delta(index)).filter((delta) => delta !== undefined);
    this.bodies.push(...newBodies);
    if (bodies.length > 0 || this.bodies.length > before) {
      const from = this.topologyVersion++;
      this.deltas.set(from, create(TopologyDeltaSchema, { fromVersion: BigInt(from), toVersion: BigInt(from + 1), bodies, newBodies: newBodies.map((piece) => piece.topology()) }));
      ++this.version;
    }
    return cameOff.map(({ body, pieces }) => ({ body: body.name, pieces: pieces.map((piece) => piece.name) }));
  }

  info(): SceneInfo {
    return create(SceneInfoSchema, {
      sceneId: this.id, name: this.name, state: this.state, rate: this.rate, dtS: DT_S, step: BigInt(this.step), simTimeS: this.step * DT_S,
      bodies: this.bodies.map((body) => ({ name: body.name, vertexCount: body.positions.length, tetCount: body.tets.size, surfaceVertexCount: body.slotCount,
        surfaceTriangleCount: body.zones.length })),
      tools: this.tools.map((tool) => tool.name), resetBy: this.resetBy, resets: BigInt(this.resets),
      isReplay: this.replay !== undefined, hasPast: this.past !== undefined || this.replay !== undefined, durability: this.durability,
    });
  }

  frame(encoding: PositionEncoding, dropped: number): Frame {
    const jitter = () => 0.85 + 0.3 * Math.random();
    const stages = [['tools', 0.08], ['detect', 0.9], ['solve', 3.6 + 0.02 * this.contacts.length], ['forces', 0.25], ['readback', 0.35], ['models', 0.15]]
      .map(([stage, ms]) => ({ stage: stage as string, ms: (ms as number) * jitter() }));
    return create(FrameSchema, {
      step: BigInt(this.step), simTimeS: this.step * DT_S, serverTimeUs: BigInt(Date.now()) * 1000n, topologyVersion: BigInt(this.topologyVersion),
      bodies: this.bodies.map((body) => body.encode(encoding)),
      contacts: this.contacts.map((contact) => ({ toolIndex: contact.tool, bodyIndex: contact.body, pointM: vec3(contact.point), normal: vec3(contact.normal), forceN: vec3(contact.force) })),
      tools: this.tools.map((tool) => ({
        pose: { positionM: vec3(tool.tip), rotation: tool.rotation },
        devicePose: { positionM: vec3(tool.target), rotation: tool.rotation },
        forceN: vec3(tool.force), operated: tool.owner !== undefined || tool.script !== undefined, contactCount: tool.contacts,
        jawAngleRad: isJawed(tool) ? tool.jaw_rad : 0, graspedVertices: tool.held,
        activities: [...(tool.contacts > 0 ? [ToolActivity.TOUCHING] : []), ...(tool.held > 0 ? [ToolActivity.GRASPING] : []), ...(tool.isCutting ? [ToolActivity.CUTTING] : [])],
      })),
      stats: { stepMs: stages.reduce((sum, stage) => sum + stage.ms, 0), stages, stepsPerS: this.state === RunState.PLAYING ? 59.9 * (this.rate.speed ?? 1) : 0, overruns: 0n },
      dropped: BigInt(dropped), state: this.state,
    });
  }

  keyframe(encoding: PositionEncoding): Keyframe {
    return create(KeyframeSchema, {
      scene: this.info(), topologyVersion: BigInt(this.topologyVersion),
      bodies: this.bodies.map((body) => body.topology()),
      tools: this.tools.map((tool) => ({ name: tool.name, kind: tool.kind, radiusM: tool.radius_m, lengthM: tool.length_m,
        ...(isJawed(tool) ? { jawLengthM: 0.018, jawRadiusM: 0.0018, maxJawAngleRad: MAX_JAW_ANGLE_RAD } : {}),
        ...(tool.kind === InstrumentKind.SCALPEL ? { bladeLengthM: 0.01 } : {}),
        traits: { hasJaws: isJawed(tool), hasBlade: tool.kind === InstrumentKind.SCALPEL,
          hasPower: tool.kind === InstrumentKind.CAUTERY_HOOK || tool.kind === InstrumentKind.CAVITRON } })),
      obstacles: [{ name: 'table', shape: { case: 'plane', value: { normal: { x: 0, y: 0, z: 1 } } } }],
      frame: this.frame(encoding, 0),
    });
  }
}

function liverPoint(v: Vector): Vector {
  const taper = 0.5 - 0.5 * v[0];  // thick at -x, thin at +x
  const height = 0.030 + 0.028 * taper;
  const notch = 1 - 0.3 * Math.exp(-((v[0] - 0.15) ** 2) / 0.02) * Math.max(0, -v[1]);
  const x = 0.1 * v[0];
  const y = (0.045 + 0.028 * taper) * v[1] * notch + 0.012 * v[0] * v[0];
  return [x, y, Math.max(0.001, 0.036 + height * (v[2] < 0 ? 0.75 : 1) * v[2] * notch + 0.006 * Math.sin(30 * x))];
}

/** What a test may want to go wrong, once for each count. */
export interface Faults {
  corruptDeltas: number;
  lostDeltas: number;
}

/** One viewer's side of the conversation. */
class Session {
  private watched: { scene: FakeScene; encoding: PositionEncoding; version: number; topologyVersion: number; sent: number; nextMs: number; intervalMs: number } | undefined;
  private held: { tool: FakeTool } | undefined;
  private inFlight = 0;

  constructor(private readonly socket: WebSocket, private readonly scenes: Map<string, FakeScene>, private readonly faults: Faults) {
    socket.on('message', (data, binary) => {
      if (!binary) socket.close(1003, 'binary only');
      else this.onRequest(fromBinary(ViewerRequestSchema, new Uint8Array(data as Buffer)));
    });
    socket.on('pong', () => --this.inFlight);
    socket.on('close', () => this.release());
  }

  get scene(): FakeScene | undefined {
    return this.watched?.scene;
  }

  /** Sends a frame if one is due and the viewer has taken the last ones off the network, which its pongs tell. */
  tick(nowMs: number): void {
    const watched = this.watched;
    if (!watched || nowMs < watched.nextMs || watched.version === watched.scene.version || this.inFlight >= 3) return;
    watched.nextMs = nowMs + watched.intervalMs;
    watched.version = watched.scene.version;
    if (watched.topologyVersion < watched.scene.keyframeVersion) {
      this.sendKeyframe();
      return;
    }
    this.sendDeltas();
    this.send(0, { case: 'watch', value: { update: { case: 'frame', value: watched.scene.frame(watched.encoding, 0) } } });
    ++this.inFlight;
    this.socket.ping();
  }

  private sendKeyframe(): void {
    const { scene, encoding } = this.watched!;
    this.watched!.topologyVersion = scene.topologyVersion;
    this.send(0, { case: 'watch', value: { update: { case: 'keyframe', value: scene.keyframe(encoding) } } });
  }

  private sendDeltas(): void {
    const watched = this.watched!;
    for (; watched.topologyVersion < watched.scene.topologyVersion; ++watched.topologyVersion) {
      if (this.faults.lostDeltas > 0) {
        --this.faults.lostDeltas;
        continue;
      }
      let delta = watched.scene.deltas.get(watched.topologyVersion)!;
      if (this.faults.corruptDeltas > 0 && delta.bodies.length > 0) {
        --this.faults.corruptDeltas;
        delta = fromBinary(TopologyDeltaSchema, toBinary(TopologyDeltaSchema, delta));
        delta.bodies[0]!.triangleZones[0]! ^= 1;
      }
      this.send(0, { case: 'watch', value: { update: { case: 'delta', value: delta } } });
    }
  }

  private send(requestId: number, update: object): void {
    const message = create(ViewerUpdateSchema, { requestId, update: update as never });
    if (this.socket.readyState === this.socket.OPEN) this.socket.send(toBinary(ViewerUpdateSchema, message));
  }

  private fail(requestId: number, code: number, message: string): void {
    this.send(requestId, { case: 'error', value: { code, message } });
  }

  private release(): void {
    if (this.held) {
      this.held.tool.owner = undefined;
      this.held.tool.isPedalDown = false;
    }
    this.held = undefined;
  }

  private onRequest(message: ViewerRequest): void {
    const id = message.requestId;
    const request = message.request;
    const value = request.value as { sceneId?: string } | undefined;
    const scene = value?.sceneId === undefined ? undefined : this.scenes.get(value.sceneId);
    if (value?.sceneId !== undefined && !scene) return this.fail(id, 5, `scene_id: no scene '${value.sceneId}'`);
    const answer = () => this.send(id, { case: 'scene', value: scene!.info() });
    switch (request.case) {
      case 'list':
        return this.send(id, { case: 'list', value: create(ListScenesResponseSchema, { scenes: [...this.scenes.values()].map((one) => one.info()) }) });
      case 'watch':
        return this.watch(request.value, scene!);
      case 'play':
      case 'pause':
        scene!.state = request.case === 'play' ? RunState.PLAYING : RunState.PAUSED;
        ++scene!.version;
        return answer();
      case 'step':
        if (scene!.state === RunState.PLAYING) return this.fail(id, 9, `scene '${scene!.id}' plays; pause it first`);
        for (let i = 0; i < request.value.count; ++i) scene!.advance();
        return answer();
      case 'reset':
        scene!.reset(request.value.clientName || 'browser 127.0.0.1');
        return answer();
      case 'setRate':
        if (request.value.rate) scene!.rate = request.value.rate;
        return answer();
      case 'attach': {
        const index = scene!.tools.findIndex((tool) => tool.name === request.value.tool);
        const tool = scene!.tools[index];
        if (!tool) return this.fail(id, 5, `tool: no tool '${request.value.tool}'`);
        if (scene!.replay) return this.fail(id, 9, 'attach.tool: the scene replays a recording; branch off from it to change something');
        if (tool.owner || tool.script) return this.fail(id, 6, `tool '${tool.name}' is operated by another station`);
        this.release();
        tool.owner = this;
        this.held = { tool };
        return this.send(id, { case: 'operate', value: { update: { case: 'attached', value: { toolIndex: index, radiusM: tool.radius_m, lengthM: tool.length_m, dtS: DT_S,
          pose: { positionM: vec3(tool.tip), rotation: tool.rotation } } } } });
      }
      case 'pose':
        return this.pose(id, request.value);
      case 'release':
        this.release();
        return this.send(id, { case: 'released', value: {} });
      case 'timeline':
      case 'replay':
      case 'seek':
      case 'branch':
      case 'bookmark':
      case 'delete':
        try {
          return this.onPast(id, request.case, scene!, request.value);
        } catch (error) {
          if (error instanceof Refusal) return this.fail(id, error.code, error.message);
          throw error;
        }
      case 'edit':
        if (scene!.replay) return this.fail(id, 9, 'edits: the scene replays a recording; branch off from it to change something');
        try {
          return this.send(id, { case: 'edit', value: scene!.edit(request.value) });
        } catch (error) {
          if (error instanceof Refusal) return this.fail(id, error.code, error.message);
          throw error;
        }
      case 'serverInfo':
        return this.send(id, { case: 'serverInfo', value: {} });
      default:
        return this.fail(id, 12, 'ViewerRequest.request: absent or unknown');
    }
  }

  private onPast(id: number, what: 'timeline' | 'replay' | 'seek' | 'branch' | 'bookmark' | 'delete', scene: FakeScene, request: object): void {
    const { past, replay } = scene;
    if (!past && !replay) throw new Refusal(9, `scene '${scene.id}' has no past`);
    const add = (made: FakeScene) => {
      this.scenes.set(made.id, made);
      return made.info();
    };
    const free = (stem: string) => {
      for (let i = 1; ; ++i) if (!this.scenes.has(`${stem}-${i}`)) return `${stem}-${i}`;
    };
    switch (what) {
      case 'timeline':
        return this.send(id, { case: 'timeline', value: scene.timeline() });
      case 'replay': {
        if (!past) throw new Refusal(9, `scene '${scene.id}' is a replay itself`);
        const made = scene.replayed(free(`${scene.id}-replay`));
        return this.send(id, { case: 'replay', value: { scene: add(made), timeline: made.timeline() } });
      }
      case 'seek': {
        const { target } = request as SeekSceneRequest;
        if (target.case !== 'position') throw new Refusal(12, 'target: only places here');
        scene.seek(Number(target.value));
        return this.send(id, { case: 'scene', value: scene.info() });
      }
      case 'branch':
        return this.send(id, { case: 'scene', value: add(scene.branched(free(`${(scene.source ?? scene).id}-branch`))) });
      case 'bookmark': {
        const { name, position, remove } = request as SetBookmarkRequest;
        if (!past) throw new Refusal(9, 'scene_id: bookmarks are set in the scene that is replayed');
        if (position !== undefined && (Number(position) < past.begin || Number(position) > past.end)) throw new Refusal(3, `position: ${position} is outside`);
        past.setBookmark(name, Number(position ?? BigInt(past.end)), remove);
        return this.send(id, { case: 'timeline', value: scene.timeline() });
      }
      case 'delete':
        if (!replay) throw new Refusal(7, `scene '${scene.id}' is no replay`);
        this.scenes.delete(scene.id);
        return this.send(id, { case: 'deleted', value: {} });
    }
  }

  private pose(id: number, pose: ToolPose): void {
    if (!this.held) return this.fail(id, 9, 'no tool is attached');
    const p = pose.pose?.positionM;
    const q = pose.pose?.rotation;
    if (!p || ![p.x, p.y, p.z].every((x) => Math.abs(x) <= 100)) return this.fail(id, 3, 'pose.position_m: outside [-100, 100]');
    this.held.tool.target = [p.x, p.y, p.z];
    this.held.tool.wantedJaw_rad = Math.min(MAX_JAW_ANGLE_RAD, Math.max(0, pose.jawAngleRad));
    this.held.tool.isPedalDown = pose.pedal;
    if (q) {
      this.held.tool.rotation = { w: q.w, x: q.x, y: q.y, z: q.z };
      this.held.tool.axis = [2 * (q.x * q.z + q.w * q.y), 2 * (q.y * q.z - q.w * q.x), 1 - 2 * (q.x * q.x + q.y * q.y)];
    }
  }

  private watch(request: WatchRequest, scene: FakeScene): void {
    const encoding = request.positions === PositionEncoding.UINT16 ? PositionEncoding.UINT16 : PositionEncoding.FLOAT32;
    this.watched = { scene, encoding, version: scene.version, topologyVersion: 0, sent: 0, nextMs: 0, intervalMs: 900 / (request.maxRateHz ?? 60) };
    this.sendKeyframe();
  }
}

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.txt': 'text/plain' };

export interface FakeServer {
  port: number;
  faults: Faults;
  /** What a viewer of the scene should have. */
  truth(sceneId: string): { topologyVersion: number; surfaces: { name: string; triangleCount: number; meshHash: string }[] };
  close(): Promise<void>;
}

/** Serves until close() of what it returns. Port 0: a free one. */
export async function startFakeServer(port: number, root: string, options: { hasPast?: boolean; durability?: string } = {}): Promise<FakeServer> {
  const scenes = new Map([new FakeScene('liver', 'Liver on a table', 'liver'), new FakeScene('ball', 'Ball', 'sphere'),
    new FakeScene('surgery', 'Liver with a tumor', 'surgery')].map((scene) => [scene.id, scene]));
  if (options.hasPast) for (const scene of scenes.values()) scene.keepPast();
  for (const scene of scenes.values()) scene.durability = options.durability ?? '';
  const faults: Faults = { corruptDeltas: 0, lostDeltas: 0 };
  const http: Server = createServer((request, response) => {
    if (request.url === '/auth') {
      response.writeHead(204).end();
      return;
    }
    const path = join(root, normalize(decodeURIComponent(new URL(request.url ?? '/', 'http://x').pathname)).replace(/^(\.\.[/\\])+/, ''));
    const file = existsSync(path) && statSync(path).isDirectory() ? join(path, 'index.html') : path;
    if (!existsSync(file)) {
      response.writeHead(404).end('no such page\n');
      return;
    }
    response.writeHead(200, { 'Content-Type': TYPES[extname(file)] ?? 'application/octet-stream', 'Cache-Control': 'no-store',
      'Content-Security-Policy': "default-src 'self'; img-src 'self' data: blob:; connect-src 'self'; object-src 'none'; base-uri 'none'" });
    createReadStream(file).pipe(response);
  });
  const sockets = new WebSocketServer({ server: http, path: '/ws' });
  const sessions = new Map<WebSocket, Session>();
  sockets.on('connection', (socket) => {
    sessions.set(socket, new Session(socket, scenes, faults));
    socket.on('close', () => sessions.delete(socket));
    socket.on('error', () => socket.terminate());
  });
  let before = performance.now();
  const due = new Map<FakeScene, number>();
  const timer = setInterval(() => {
    const now = performance.now();
    const watched = new Set([...sessions.values()].map((session) => session.scene));
    for (const scene of scenes.values()) {
      if (scene.state !== RunState.PLAYING || !watched.has(scene)) continue;  // what nobody sees stands still
      const speed = scene.rate.mode === RateMode.AS_FAST_AS_POSSIBLE ? 2 : scene.rate.speed ?? 1;
      let behind = Math.min((due.get(scene) ?? 0) + ((now - before) / 1000) * speed, 4 * DT_S);
      for (; behind >= DT_S; behind -= DT_S) scene.advance();
      due.set(scene, behind);
    }
    before = now;
    for (const session of sessions.values()) session.tick(now);
  }, 8);
  await new Promise<void>((resolve, reject) => {
    http.once('error', reject);
    http.listen(port, '127.0.0.1', resolve);
  });
  const address = http.address();
  return {
    port: typeof address === 'object' && address ? address.port : port,
    faults,
    truth: (sceneId) => {
      const { topologyVersion, bodies } = scenes.get(sceneId)!;
      return { topologyVersion, surfaces: bodies.map(({ name, triangles, zones }) => ({ name,
        triangleCount: zones.filter((_, slot) => triangles.slice(3 * slot, 3 * slot + 3).some((corner) => corner !== 0)).length,
        meshHash: surfaceHash(triangles, zones).toString(16).padStart(16, '0') })) };
    },
    close: async () => {
      clearInterval(timer);
      for (const socket of sessions.keys()) socket.terminate();
      sockets.close();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

export async function main(args: string[], root: string): Promise<void> {
  const at = args.indexOf('--port');
  const server = await startFakeServer(at >= 0 ? Number(args[at + 1]) : 8080, root, { hasPast: true });
  console.log(`viewer: http://127.0.0.1:${server.port}/`);
  const stop = () => void server.close().then(() => process.exit(0));
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
}
