// A stand-in for palpate-server, for work on the viewer where no server is built: the same pages and socket, with a rubbery toy in place of tissue.
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { create, fromBinary, toBinary } from '@bufbuild/protobuf';
import { WebSocketServer, type WebSocket } from 'ws';
import { ListScenesResponseSchema, RateMode, RateSchema, RunState, SceneInfoSchema, type Rate, type SceneInfo } from '../generated/palpate/v1/control_pb';
import type { ToolPose } from '../generated/palpate/v1/haptics_pb';
import { FrameSchema, KeyframeSchema, PositionEncoding, type Frame, type Keyframe, type WatchRequest } from '../generated/palpate/v1/stream_pb';
import { ViewerRequestSchema, ViewerUpdateSchema, type ViewerRequest } from '../generated/palpate/v1/viewer_pb';

type Vector = [number, number, number];

const DT_S = 1 / 60;
const add = (a: Vector, b: Vector): Vector => [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
const subtract = (a: Vector, b: Vector): Vector => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const scale = (a: Vector, s: number): Vector => [a[0] * s, a[1] * s, a[2] * s];
const dot = (a: Vector, b: Vector): number => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const length = (a: Vector): number => Math.sqrt(dot(a, a));
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
  radius_m: number;
  length_m: number;
  axis: Vector;
  tip: Vector;
  target: Vector;
  rotation: { w: number; x: number; y: number; z: number };
  force: Vector;
  contacts: number;
  owner: object | undefined;
  /** Drives itself, like a tool at a station. */
  script?: (time_s: number) => Vector;
}

function rotationTo(axis: Vector): { w: number; x: number; y: number; z: number } {
  const q = { w: 1 + axis[2], x: -axis[1], y: axis[0], z: 0 };
  const n = Math.hypot(q.w, q.x, q.y) || 1;
  return { w: q.w / n, x: q.x / n, y: q.y / n, z: 0 };
}

export class FakeScene {
  readonly rest: Vector[];
  readonly positions: Vector[];
  readonly velocities: Vector[];
  readonly triangles: number[];
  readonly neighbours: number[][];
  readonly tools: FakeTool[];
  contacts: { tool: number; point: Vector; normal: Vector; force: Vector }[] = [];
  state = RunState.PLAYING;
  rate: Rate = create(RateSchema, { mode: RateMode.REAL_TIME, speed: 1 });
  step = 0;
  version = 0;  // changes with everything that a viewer could see

  constructor(readonly id: string, readonly name: string, kind: 'liver' | 'sphere') {
    const sphere = icosphere(kind === 'liver' ? 4 : 3);
    this.triangles = sphere.triangles;
    this.rest = sphere.vertices.map((v) => (kind === 'liver' ? liverPoint(v) : [0.05 * v[0], 0.05 * v[1], 0.052 + 0.05 * v[2]]));
    this.positions = this.rest.map((p) => [...p]);
    this.velocities = this.rest.map(() => [0, 0, 0]);
    const sets = this.rest.map(() => new Set<number>());
    for (let i = 0; i < this.triangles.length; i += 3) {
      for (let k = 0; k < 3; ++k) {
        sets[this.triangles[i + k]!]!.add(this.triangles[i + ((k + 1) % 3)]!);
        sets[this.triangles[i + ((k + 1) % 3)]!]!.add(this.triangles[i + k]!);
      }
    }
    this.neighbours = sets.map((set) => [...set]);
    const tool = (name: string, radius_m: number, length_m: number, tip: Vector, lean: Vector): FakeTool => {
      const axis = scale(lean, 1 / length(lean));
      return { name, radius_m, length_m, axis, tip, target: tip, rotation: rotationTo(axis), force: [0, 0, 0], contacts: 0, owner: undefined };
    };
    this.tools = [tool('probe', 0.005, 0.11, [0.035, -0.02, 0.105], [0.45, -0.35, 1])];
    if (kind === 'liver') {
      const driven = tool('palpator', 0.006, 0.1, [-0.055, 0, 0.1], [-0.5, 0.2, 1]);
      driven.script = (time_s) => [-0.05 + 0.012 * Math.sin(0.9 * time_s), 0.006 * Math.cos(0.7 * time_s), 0.082 + 0.016 * Math.cos(1.7 * time_s)];
      this.tools.push(driven);
    }
  }

  reset(): void {
    for (const [i, p] of this.rest.entries()) {
      this.positions[i] = [...p];
      this.velocities[i] = [0, 0, 0];
    }
    this.step = 0;
    ++this.version;
  }

  advance(): void {
    ++this.step;
    ++this.version;
    const time_s = this.step * DT_S;
    for (const tool of this.tools) {
      if (tool.script && !tool.owner) tool.target = tool.script(time_s);
      const move = subtract(tool.target, tool.tip);
      tool.tip = add(tool.tip, scale(move, 0.45));
    }
    const breath = 1 + 0.02 * Math.sin(1.6 * time_s);
    const pull = 0.16, spread = 0.32, damping = 0.86;
    const displacement = this.positions.map((p, i) => subtract(p, [this.rest[i]![0], this.rest[i]![1], this.rest[i]![2] * breath]));
    for (let i = 0; i < this.positions.length; ++i) {
      let mean: Vector = [0, 0, 0];
      const around = this.neighbours[i]!;
      for (const j of around) mean = add(mean, displacement[j]!);
      mean = scale(mean, 1 / around.length);
      const d = displacement[i]!;
      const force = add(scale(d, -pull), scale(subtract(mean, d), spread));
      this.velocities[i] = scale(add(this.velocities[i]!, force), damping);
      this.positions[i] = add(this.positions[i]!, this.velocities[i]!);
      if (this.positions[i]![2] < 0.0005) this.positions[i]![2] = 0.0005;
    }
    this.contacts = [];
    for (const [index, tool] of this.tools.entries()) {
      tool.force = [0, 0, 0];
      tool.contacts = 0;
      const reach = tool.radius_m + 0.001;
      for (let i = 0; i < this.positions.length; ++i) {
        const p = this.positions[i]!;
        const along = Math.min(tool.length_m, Math.max(0, dot(subtract(p, tool.tip), tool.axis)));
        const away = subtract(p, add(tool.tip, scale(tool.axis, along)));
        const distance = length(away);
        if (distance >= reach || distance === 0) continue;
        const normal = scale(away, 1 / distance);
        const depth = reach - distance;
        this.positions[i] = add(p, scale(normal, depth));
        const inward = dot(this.velocities[i]!, normal);
        if (inward < 0) this.velocities[i] = subtract(this.velocities[i]!, scale(normal, inward));
        const offset = subtract(this.positions[i]!, this.rest[i]!);
        const force = scale(normal, 24 * length(offset) + 6 * depth);
        tool.force = subtract(tool.force, force);
        ++tool.contacts;
        this.contacts.push({ tool: index, point: this.positions[i]!, normal, force });
      }
    }
  }

  info(): SceneInfo {
    return create(SceneInfoSchema, {
      sceneId: this.id, name: this.name, state: this.state, rate: this.rate, dtS: DT_S, step: BigInt(this.step), simTimeS: this.step * DT_S,
      bodies: [{ name: this.name, vertexCount: this.rest.length, tetCount: this.triangles.length, surfaceVertexCount: this.rest.length,
        surfaceTriangleCount: this.triangles.length / 3 }],
      tools: this.tools.map((tool) => tool.name),
    });
  }

  frame(encoding: PositionEncoding, dropped: number): Frame {
    const jitter = () => 0.85 + 0.3 * Math.random();
    const stages = [['tools', 0.08], ['detect', 0.9], ['solve', 3.6 + 0.02 * this.contacts.length], ['forces', 0.25], ['readback', 0.35], ['models', 0.15]]
      .map(([stage, ms]) => ({ stage: stage as string, ms: (ms as number) * jitter() }));
    return create(FrameSchema, {
      step: BigInt(this.step), simTimeS: this.step * DT_S, serverTimeUs: BigInt(Date.now()) * 1000n, topologyVersion: 1n,
      bodies: [encodePositions(this.positions, encoding)],
      contacts: this.contacts.map((contact) => ({ toolIndex: contact.tool, bodyIndex: 0, pointM: vec3(contact.point), normal: vec3(contact.normal), forceN: vec3(contact.force) })),
      tools: this.tools.map((tool) => ({
        pose: { positionM: vec3(tool.tip), rotation: tool.rotation },
        devicePose: { positionM: vec3(tool.target), rotation: tool.rotation },
        forceN: vec3(tool.force), operated: tool.owner !== undefined || tool.script !== undefined, contactCount: tool.contacts,
      })),
      stats: { stepMs: stages.reduce((sum, stage) => sum + stage.ms, 0), stages, stepsPerS: this.state === RunState.PLAYING ? 59.9 * (this.rate.speed ?? 1) : 0, overruns: 0n },
      dropped: BigInt(dropped), state: this.state,
    });
  }

  keyframe(encoding: PositionEncoding): Keyframe {
    return create(KeyframeSchema, {
      scene: this.info(), topologyVersion: 1n,
      bodies: [{ name: this.name, vertexCount: this.rest.length, triangles: this.triangles, color: { r: 0.5, g: 0.105, b: 0.075 } }],
      tools: this.tools.map((tool) => ({ name: tool.name, radiusM: tool.radius_m, lengthM: tool.length_m })),
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

export function encodePositions(positions: Vector[], encoding: PositionEncoding) {
  if (encoding === PositionEncoding.UINT16) {
    const low: Vector = [Infinity, Infinity, Infinity];
    const high: Vector = [-Infinity, -Infinity, -Infinity];
    for (const p of positions) for (let k = 0; k < 3; ++k) { low[k] = Math.min(low[k]!, p[k]!); high[k] = Math.max(high[k]!, p[k]!); }
    const step = high.map((h, k) => Math.max((h - low[k]!) / 65535, 1e-12)) as Vector;
    const bytes = new DataView(new ArrayBuffer(positions.length * 6));
    positions.forEach((p, i) => p.forEach((x, k) => bytes.setUint16(6 * i + 2 * k, Math.round((x - low[k]!) / step[k]!), true)));
    return { positions: new Uint8Array(bytes.buffer), originM: vec3(low), scaleM: vec3(step), maxErrorM: Math.max(...step) / 2 };
  }
  const bytes = new DataView(new ArrayBuffer(positions.length * 12));
  positions.forEach((p, i) => p.forEach((x, k) => bytes.setFloat32(12 * i + 4 * k, x, true)));
  return { positions: new Uint8Array(bytes.buffer) };
}

/** One viewer's side of the conversation. */
class Session {
  private watched: { scene: FakeScene; encoding: PositionEncoding; version: number; sent: number; nextMs: number; intervalMs: number } | undefined;
  private held: { tool: FakeTool } | undefined;
  private inFlight = 0;

  constructor(private readonly socket: WebSocket, private readonly scenes: Map<string, FakeScene>) {
    socket.on('message', (data, binary) => {
      if (!binary) socket.close(1003, 'binary only');
      else this.onRequest(fromBinary(ViewerRequestSchema, new Uint8Array(data as Buffer)));
    });
    socket.on('pong', () => --this.inFlight);
    socket.on('close', () => this.release());
  }

  /** Sends a frame if one is due and the viewer has taken the last ones off the network, which its pongs tell. */
  tick(nowMs: number): void {
    const watched = this.watched;
    if (!watched || nowMs < watched.nextMs || watched.version === watched.scene.version || this.inFlight >= 3) return;
    watched.nextMs = nowMs + watched.intervalMs;
    watched.version = watched.scene.version;
    this.send(0, { case: 'watch', value: { update: { case: 'frame', value: watched.scene.frame(watched.encoding, 0) } } });
    ++this.inFlight;
    this.socket.ping();
  }

  private send(requestId: number, update: object): void {
    const message = create(ViewerUpdateSchema, { requestId, update: update as never });
    if (this.socket.readyState === this.socket.OPEN) this.socket.send(toBinary(ViewerUpdateSchema, message));
  }

  private fail(requestId: number, code: number, message: string): void {
    this.send(requestId, { case: 'error', value: { code, message } });
  }

  private release(): void {
    if (this.held) this.held.tool.owner = undefined;
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
        scene!.reset();
        return answer();
      case 'setRate':
        if (request.value.rate) scene!.rate = request.value.rate;
        return answer();
      case 'attach': {
        const index = scene!.tools.findIndex((tool) => tool.name === request.value.tool);
        const tool = scene!.tools[index];
        if (!tool) return this.fail(id, 5, `tool: no tool '${request.value.tool}'`);
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
      case 'serverInfo':
        return this.send(id, { case: 'serverInfo', value: {} });
      default:
        return this.fail(id, 12, 'ViewerRequest.request: absent or unknown');
    }
  }

  private pose(id: number, pose: ToolPose): void {
    if (!this.held) return this.fail(id, 9, 'no tool is attached');
    const p = pose.pose?.positionM;
    const q = pose.pose?.rotation;
    if (!p || ![p.x, p.y, p.z].every((x) => Math.abs(x) <= 100)) return this.fail(id, 3, 'pose.position_m: outside [-100, 100]');
    this.held.tool.target = [p.x, p.y, p.z];
    if (q) {
      this.held.tool.rotation = { w: q.w, x: q.x, y: q.y, z: q.z };
      this.held.tool.axis = [2 * (q.x * q.z + q.w * q.y), 2 * (q.y * q.z - q.w * q.x), 1 - 2 * (q.x * q.x + q.y * q.y)];
    }
  }

  private watch(request: WatchRequest, scene: FakeScene): void {
    const encoding = request.positions === PositionEncoding.UINT16 ? PositionEncoding.UINT16 : PositionEncoding.FLOAT32;
    this.watched = { scene, encoding, version: scene.version, sent: 0, nextMs: 0, intervalMs: 900 / (request.maxRateHz ?? 60) };
    this.send(0, { case: 'watch', value: { update: { case: 'keyframe', value: scene.keyframe(encoding) } } });
  }
}

const TYPES: Record<string, string> = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml', '.txt': 'text/plain' };

/** Serves until close() of what it returns. Port 0: a free one. */
export async function startFakeServer(port: number, root: string): Promise<{ port: number; close: () => Promise<void> }> {
  const scenes = new Map([new FakeScene('liver', 'Liver on a table', 'liver'), new FakeScene('ball', 'Ball', 'sphere')].map((scene) => [scene.id, scene]));
  const http: Server = createServer((request, response) => {
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
    sessions.set(socket, new Session(socket, scenes));
    socket.on('close', () => sessions.delete(socket));
    socket.on('error', () => socket.terminate());
  });
  let before = performance.now();
  const due = new Map<FakeScene, number>();
  const timer = setInterval(() => {
    const now = performance.now();
    for (const scene of scenes.values()) {
      if (scene.state !== RunState.PLAYING) continue;
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
  const server = await startFakeServer(at >= 0 ? Number(args[at + 1]) : 8080, root);
  console.log(`viewer: http://127.0.0.1:${server.port}/`);
  const stop = () => void server.close().then(() => process.exit(0));
  process.on('SIGINT', stop);
  process.on('SIGTERM', stop);
}
