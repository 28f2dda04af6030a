import * as THREE from 'three';
import { computeNormals } from './normals';
import { Refinement } from './refine';

/** A surface is refined while it stays below so many triangles. */
const MAX_TRIANGLES = 16000;
const MAX_LEVELS = 2;

/** What is drawn of a body after some refinements. */
interface Level {
  refinement: Refinement | undefined;
  triangles: Uint32Array;
  positions: Float32Array;
  normals: Float32Array;
}

/** Wet tissue: mottled colour and fine relief that stick to the rest shape, under a clear, glossy film. */
function tissueMaterial(color: THREE.Color, extent_m: number): THREE.MeshPhysicalMaterial {
  const material = new THREE.MeshPhysicalMaterial({
    color,
    roughness: 0.5,
    metalness: 0,
    clearcoat: 1,
    clearcoatRoughness: 0.16,
    sheen: 0.15,
    sheenRoughness: 0.5,
    sheenColor: color.clone().lerp(new THREE.Color(1, 0.75, 0.65), 0.5),
    envMapIntensity: 0.9,
  });
  const uniforms = { uDetailScale: { value: 1 / Math.max(extent_m, 1e-6) }, uDetail: { value: 1 }, uReliefHeight: { value: 0.0016 * extent_m } };
  material.userData.uniforms = uniforms;
  material.onBeforeCompile = (shader) => {
    Object.assign(shader.uniforms, uniforms);
    shader.vertexShader = shader.vertexShader
      .replace('#include <common>', '#include <common>\nattribute vec3 restPosition;\nvarying vec3 vRest;\nuniform float uDetailScale;')
      .replace('#include <begin_vertex>', '#include <begin_vertex>\nvRest = restPosition * uDetailScale;');
    shader.fragmentShader = shader.fragmentShader
      .replace('#include <common>', `#include <common>
varying vec3 vRest;
uniform float uDetail;
uniform float uReliefHeight;  // metres
float tissueHash(vec3 p) { p = fract(p * 0.3183099 + vec3(0.11, 0.17, 0.13)); p *= 17.0; return fract(p.x * p.y * p.z * (p.x + p.y + p.z)); }
float tissueNoise(vec3 x) {
  vec3 i = floor(x), f = fract(x);
  f = f * f * (3.0 - 2.0 * f);
  return mix(mix(mix(tissueHash(i), tissueHash(i + vec3(1, 0, 0)), f.x), mix(tissueHash(i + vec3(0, 1, 0)), tissueHash(i + vec3(1, 1, 0)), f.x), f.y),
             mix(mix(tissueHash(i + vec3(0, 0, 1)), tissueHash(i + vec3(1, 0, 1)), f.x), mix(tissueHash(i + vec3(0, 1, 1)), tissueHash(i + vec3(1, 1, 1)), f.x), f.y), f.z);
}
float tissueRelief(vec3 p) { return 0.6 * tissueNoise(p * 34.0) + 0.3 * tissueNoise(p * 71.0) + 0.1 * tissueNoise(p * 140.0); }`)
      .replace('#include <color_fragment>', `#include <color_fragment>
if (uDetail > 0.0) {
  float broad = tissueNoise(vRest * 5.0) * 0.6 + tissueNoise(vRest * 13.0) * 0.4;
  float fine = tissueNoise(vRest * 48.0);
  diffuseColor.rgb *= mix(vec3(0.58, 0.47, 0.5), vec3(1.0, 0.9, 0.88), broad);
  diffuseColor.rgb = mix(diffuseColor.rgb, diffuseColor.rgb * vec3(1.18, 1.0, 0.86), smoothstep(0.55, 0.85, fine) * 0.35);
}`)
      .replace('#include <normal_fragment_maps>', `#include <normal_fragment_maps>
if (uDetail > 0.0) {
  // Relief finer than a pixel is left out, it would only glitter.
  float fade = 1.0 - smoothstep(0.25, 0.9, length(fwidth(vRest)) * 34.0);
  float height = tissueRelief(vRest) * uReliefHeight * uDetail * fade;
  vec3 dpdx = dFdx(-vViewPosition), dpdy = dFdy(-vViewPosition);
  vec3 r1 = cross(dpdy, normal), r2 = cross(normal, dpdx);
  float det = dot(dpdx, r1);
  normal = normalize(abs(det) * normal - sign(det) * (dFdx(height) * r1 + dFdy(height) * r2));
}`);
    // Light that wraps around and comes out red at grazing angles stands in for scattering below the surface.
    shader.fragmentShader = shader.fragmentShader.replace('#include <lights_fragment_end>', `#include <lights_fragment_end>
float tissueRim = pow(1.0 - saturate(dot(normal, normalize(vViewPosition))), 2.6);
reflectedLight.directDiffuse += diffuseColor.rgb * vec3(1.0, 0.32, 0.24) * tissueRim * 0.16;`);
  };
  return material;
}

/** One deformable body: a surface whose vertices move with every frame, drawn rounder than it is meshed. */
export class Organ {
  readonly mesh: THREE.Mesh<THREE.BufferGeometry, THREE.MeshPhysicalMaterial>;
  readonly positions: Float32Array;
  private readonly levels: Level[] = [];
  private readonly wire: THREE.LineSegments;

  constructor(readonly name: string, initialPositions: Float32Array, triangles: Uint32Array, color: THREE.Color) {
    this.positions = initialPositions;
    this.levels.push({ refinement: undefined, triangles, positions: initialPositions, normals: new Float32Array(initialPositions.length) });
    let rest = initialPositions.slice();
    let finest = this.levels[0]!;
    while (this.levels.length <= MAX_LEVELS && (4 * finest.triangles.length) / 3 <= MAX_TRIANGLES) {
      const refinement = new Refinement(finest.triangles, finest.positions.length / 3);
      const size = 3 * refinement.vertexCount;
      const fineRest = new Float32Array(size);
      refinement.interpolate(rest, fineRest);
      rest = fineRest;
      finest = { refinement, triangles: refinement.triangles, positions: new Float32Array(size), normals: new Float32Array(size) };
      this.levels.push(finest);
    }
    const geometry = new THREE.BufferGeometry();
    geometry.setAttribute('position', new THREE.BufferAttribute(finest.positions, 3).setUsage(THREE.DynamicDrawUsage));
    geometry.setAttribute('normal', new THREE.BufferAttribute(finest.normals, 3).setUsage(THREE.DynamicDrawUsage));
    geometry.setAttribute('restPosition', new THREE.BufferAttribute(rest, 3));
    geometry.setIndex(new THREE.BufferAttribute(finest.triangles, 1));
    const box = new THREE.Box3().setFromArray(initialPositions);
    const extent_m = box.getSize(new THREE.Vector3()).length();
    this.mesh = new THREE.Mesh(geometry, tissueMaterial(color, extent_m));
    this.mesh.castShadow = true;
    this.mesh.receiveShadow = true;
    this.mesh.frustumCulled = false;  // the bounds change with every frame
    this.mesh.name = name;

    const edges = new THREE.BufferGeometry();
    edges.setAttribute('position', new THREE.BufferAttribute(this.positions, 3).setUsage(THREE.DynamicDrawUsage));
    edges.setIndex(new THREE.BufferAttribute(uniqueEdges(triangles), 1));
    this.wire = new THREE.LineSegments(edges, new THREE.LineBasicMaterial({ color: 0xffe4d6, transparent: true, opacity: 0.3, depthWrite: false }));
    this.wire.frustumCulled = false;
    this.wire.visible = false;
    this.mesh.add(this.wire);
    this.commit();
  }

  /** Call after `positions` changed. */
  commit(): void {
    for (const [index, level] of this.levels.entries()) {
      const coarser = this.levels[index - 1];
      if (coarser) level.refinement!.refine(coarser.positions, coarser.normals, level.positions);
      computeNormals(level.positions, level.triangles, level.normals);
    }
    this.wire.geometry.attributes.position!.needsUpdate = true;
    this.mesh.geometry.attributes.position!.needsUpdate = true;
    this.mesh.geometry.attributes.normal!.needsUpdate = true;
  }

  setWireframe(shown: boolean): void {
    this.wire.visible = shown;
    const material = this.mesh.material;
    material.polygonOffset = shown;
    material.polygonOffsetFactor = 4;  // the drawn surface bulges a little over the mesh
    material.polygonOffsetUnits = 8;
  }

  /** Without detail the shader is a much cheaper one. */
  setDetail(shown: boolean): void {
    const material = this.mesh.material;
    material.userData.uniforms.uDetail.value = shown ? 1 : 0;
    material.clearcoat = shown ? 1 : 0;
    material.sheen = shown ? 0.15 : 0;
    material.roughness = shown ? 0.5 : 0.34;
    material.needsUpdate = true;
  }

  dispose(): void {
    this.mesh.removeFromParent();
    this.mesh.geometry.dispose();
    this.mesh.material.dispose();
    this.wire.geometry.dispose();
    (this.wire.material as THREE.Material).dispose();
  }
}

/** Index pairs of the edges of a mesh, each once. */
export function uniqueEdges(triangles: Uint32Array): Uint32Array {
  const seen = new Set<number>();
  const edges: number[] = [];
  for (let t = 0; t + 2 < triangles.length; t += 3) {
    for (let k = 0; k < 3; ++k) {
      const a = triangles[t + k]!;
      const b = triangles[t + ((k + 1) % 3)]!;
      const low = Math.min(a, b);
      const high = Math.max(a, b);
      const key = low * 2 ** 26 + high;  // exact below 2^26 vertices
      if (seen.has(key)) continue;
      seen.add(key);
      edges.push(low, high);
    }
  }
  return Uint32Array.from(edges);
}
