// Drags over tissue become edits: what a hand does between two answers of the server goes into one request.
import type { MessageInitShape } from '@bufbuild/protobuf';
import * as THREE from 'three';
import type { EditSchema } from '../../generated/palpate/v1/edit_pb';

export type EditInit = MessageInitShape<typeof EditSchema>;

/** Where a ray meets a body. */
export interface SurfaceHit {
  body: string;
  organIndex: number;
  point: THREE.Vector3;
  /** Unit, outwards, smooth. */
  normal: THREE.Vector3;
}

export interface Stroke {
  add(hit: SurfaceHit): void;
  /** The edits that are due, each once; undefined if none is. */
  take(): EditInit[] | undefined;
}

const vec3 = (v: THREE.Vector3) => ({ x: v.x, y: v.y, z: v.z });
const MAX_EDITS = 256;
const MAX_EDGES = 1024;

/** A ball that is dragged through tissue. It digs where it is pressed and as it moves, not while it rests. */
export class CarveStroke implements Stroke {
  private last: SurfaceHit | undefined;
  private due: EditInit[] = [];

  constructor(private readonly radius_m: number) {}

  add(hit: SurfaceHit): void {
    const last = this.last;
    const goesOn = last !== undefined && last.body === hit.body;
    if (goesOn && last.point.distanceTo(hit.point) < 0.4 * this.radius_m) return;
    if (this.due.length >= MAX_EDITS) return;
    const region = goesOn && last.point.distanceTo(hit.point) < 8 * this.radius_m
      ? { case: 'capsule' as const, value: { end0M: vec3(last.point), end1M: vec3(hit.point), radiusM: this.radius_m } }
      : { case: 'ball' as const, value: { centerM: vec3(hit.point), radiusM: this.radius_m } };
    this.due.push({ body: hit.body, edit: { case: 'carve', value: { region: { region } } } });
    this.last = { ...hit, point: hit.point.clone() };
  }

  take(): EditInit[] | undefined {
    if (this.due.length === 0) return undefined;
    const due = this.due;
    this.due = [];
    return due;
  }
}

/** A blade that is drawn along the surface, `depth_m` deep. It turns with the surface, slowly, so that bumps do not twist it. */
export class InciseStroke implements Stroke {
  /** Of the whole stroke, for the picture: ends of the cutting edge above the surface and in the depth. */
  readonly edges: [THREE.Vector3, THREE.Vector3][] = [];
  private body: string | undefined;
  private readonly inward = new THREE.Vector3();
  private readonly at = new THREE.Vector3();
  private taken = 0;

  constructor(private readonly depth_m: number, private readonly spacing_m: number) {}

  add(hit: SurfaceHit): void {
    if (this.body === undefined) {
      this.body = hit.body;
      this.inward.copy(hit.normal).negate();
    } else {
      // A stroke stays on the body on which it began.
      if (hit.body !== this.body || hit.point.distanceTo(this.at) < this.spacing_m) return;
      this.inward.multiplyScalar(0.75).addScaledVector(hit.normal, -0.25).normalize();
    }
    if (this.edges.length - this.taken >= MAX_EDGES) return;
    this.at.copy(hit.point);
    const edge = (along_m: number) => hit.point.clone().addScaledVector(this.inward, along_m);
    this.edges.push([edge(-0.35 * this.depth_m), edge(this.depth_m)]);
  }

  /** Begins where the edits before ended. */
  take(): EditInit[] | undefined {
    const from = Math.max(0, this.taken - 1);
    if (this.edges.length - from < 2 || this.edges.length === this.taken) return undefined;
    const edges = this.edges.slice(from, from + MAX_EDGES).map(([end0, end1]) => ({ end0M: vec3(end0), end1M: vec3(end1) }));
    this.taken = from + edges.length;
    return [{ body: this.body!, edit: { case: 'incise', value: { edges } } }];
  }
}

/** Names requests so that none is done twice; different in every page. */
export class RequestKeys {
  private count = 0;
  private readonly page: string;

  constructor(random: Uint32Array = crypto.getRandomValues(new Uint32Array(3))) {
    this.page = Array.from(random, (word) => word.toString(16).padStart(8, '0')).join('');
  }

  next(): string {
    return `viewer-${this.page}-${++this.count}`;
  }
}
