import * as THREE from 'three';

/** What a surface zone looks like. */
export interface ZoneStyle {
  name: string;
  color: THREE.Color;
  /** Uncovered by a cut: drawn as the inside of tissue, not as its skin. */
  isInterior: boolean;
}

/** A pattern or a picture on the skin, by texture coordinates. */
export interface TissueTexture {
  /** Shared by all who show it, so that a picture appears when it has come. */
  shown: { value: THREE.Texture };
  /** Its colours take the place of the zone's as far as it is opaque; a pattern shades them. */
  isImage: boolean;
  /** Above 0: u goes around and lies in [0, period), a whole number of tiles. */
  period: number;
}

// u twice, with the seam at either side of the body: a triangle that crosses one seam does not cross the other, and has small derivatives there.
// (Tarini, Cylindrical and toroidal parameterizations without vertex seams, 2012.)
const TEXTURE_VERTEX = `
#ifdef TISSUE_TEXTURE
attribute vec2 textureCoordinate;
varying vec3 vTexture;
uniform float uTexturePeriod;
#endif`;
const TEXTURE_VARYINGS = `
#ifdef TISSUE_TEXTURE
vTexture = vec3(textureCoordinate.x, textureCoordinate.x + (textureCoordinate.x < 0.5 * uTexturePeriod ? uTexturePeriod : 0.0), textureCoordinate.y);
#endif`;
const TEXTURE_FRAGMENT = `
#ifdef TISSUE_TEXTURE
varying vec3 vTexture;
uniform sampler2D uPattern;
/** Of a pattern the shade of the colour, and height; of a picture its colour, and how opaque it is. */
vec4 tissuePattern() {
  vec4 pattern = texture2D(uPattern, vec2(fwidth(vTexture.x) <= fwidth(vTexture.y) ? vTexture.x : vTexture.y, vTexture.z));
#ifdef TISSUE_IMAGE
  return pattern;
#else
  return vec4(2.0 * pattern.rgb, pattern.a);
#endif
}
#endif`;

const NOISE = `
varying vec3 vRest;
varying vec4 vZone;
uniform float uReliefHeight;  // metres
float tissueHash(vec3 p) { p = fract(p * 0.3183099 + vec3(0.11, 0.17, 0.13)); p *= 17.0; return fract(p.x * p.y * p.z * (p.x + p.y + p.z)); }
float tissueNoise(vec3 x) {
  vec3 i = floor(x), f = fract(x);
  f = f * f * (3.0 - 2.0 * f);
  return mix(mix(mix(tissueHash(i), tissueHash(i + vec3(1, 0, 0)), f.x), mix(tissueHash(i + vec3(0, 1, 0)), tissueHash(i + vec3(1, 1, 0)), f.x), f.y),
             mix(mix(tissueHash(i + vec3(0, 0, 1)), tissueHash(i + vec3(1, 0, 1)), f.x), mix(tissueHash(i + vec3(0, 1, 1)), tissueHash(i + vec3(1, 1, 1)), f.x), f.y), f.z);
}
// Distances to the nearest and the second nearest of points scattered one to a cell; of the eight cells around only, which is near enough.
vec2 tissueCells(vec3 x) {
  vec3 base = floor(x - 0.5);
  vec2 nearest = vec2(8.0);
  for (int k = 0; k < 8; ++k) {
    vec3 cell = base + vec3(k & 1, (k >> 1) & 1, k >> 2);
    vec3 d = cell + 0.2 + 0.6 * vec3(tissueHash(cell), tissueHash(cell + 7.3), tissueHash(cell + 19.1)) - x;
    float s = dot(d, d);
    nearest = s < nearest.x ? vec2(s, nearest.x) : vec2(nearest.x, min(nearest.y, s));
  }
  return sqrt(nearest);
}
float tissueRelief(vec3 p) { return 0.6 * tissueNoise(p * 34.0) + 0.3 * tissueNoise(p * 71.0) + 0.1 * tissueNoise(p * 140.0); }
// What a cut shows at a place. x: 0 between lobules, 1 inside one; y: depth in a vessel, 0 outside of its wall, 1 in its hole; z: blood in the tissue.
vec3 interiorAt(vec3 p) {
  vec3 warped = p + 0.012 * vec3(tissueNoise(p * 23.0), tissueNoise(p * 23.0 + 17.0), tissueNoise(p * 23.0 + 31.0));
  vec2 lobules = tissueCells(warped * 44.0);
  vec3 at = p * 6.5 + 0.5 * vec3(tissueNoise(p * 19.0), tissueNoise(p * 19.0 + 11.0), 0.0);
  float vessel = 1.0 - smoothstep(0.05, 0.12, tissueCells(at).x);
  return vec3(smoothstep(0.02, 0.34, lobules.y - lobules.x), vessel, 0.6 * tissueNoise(p * 9.0) + 0.4 * tissueNoise(p * 31.0));
}
float interiorRelief(vec3 p) {
  vec3 inside = interiorAt(p);
  return 0.16 * inside.x + 0.2 * tissueNoise(p * 64.0) + 0.14 * tissueNoise(p * 150.0) - 0.7 * smoothstep(0.3, 1.0, inside.y);
}`;

const COLOR = `
diffuseColor.rgb = vZone.rgb;
#ifdef TISSUE_TEXTURE
vec4 skinPattern = tissuePattern();  // here, where all pixels of a quad come by
#endif
{
  if (vZone.a > 0.5) {
    vec3 inside = interiorAt(vRest);
    diffuseColor.rgb *= mix(vec3(0.87, 0.8, 0.79), vec3(1.03, 1.02, 1.02), inside.x);
    diffuseColor.rgb *= mix(vec3(0.78, 0.62, 0.6), vec3(1.16, 1.12, 1.08), smoothstep(0.2, 0.75, inside.z));
    diffuseColor.rgb *= 0.9 + 0.2 * tissueNoise(vRest * 130.0);
    diffuseColor.rgb = mix(diffuseColor.rgb, diffuseColor.rgb * 0.5 + vec3(0.3, 0.2, 0.16), smoothstep(0.0, 0.25, inside.y));  // wall
    diffuseColor.rgb = mix(diffuseColor.rgb, vec3(0.05, 0.005, 0.007), smoothstep(0.55, 0.75, inside.y));  // hole
  } else {
#ifdef TISSUE_IMAGE
    diffuseColor.rgb = mix(diffuseColor.rgb, skinPattern.rgb, skinPattern.a);
#elif defined(TISSUE_TEXTURE)
    float broad = tissueNoise(vRest * 5.0) * 0.6 + tissueNoise(vRest * 13.0) * 0.4;
    diffuseColor.rgb *= skinPattern.rgb * mix(vec3(0.8, 0.74, 0.75), vec3(1.0), broad);
#else
    float broad = tissueNoise(vRest * 5.0) * 0.6 + tissueNoise(vRest * 13.0) * 0.4;
    float fine = tissueNoise(vRest * 48.0);
    diffuseColor.rgb *= mix(vec3(0.58, 0.47, 0.5), vec3(1.0, 0.9, 0.88), broad);
    diffuseColor.rgb = mix(diffuseColor.rgb, diffuseColor.rgb * vec3(1.18, 1.0, 0.86), smoothstep(0.55, 0.85, fine) * 0.35);
#endif
  }
}`;

/**
 * Where surfaces meet at less than a right angle, as at the bottom of a narrow cut, the normals of their common vertices face neither: light from
 * nowhere, and black triangles. There the face itself counts.
 */
const FACING = `
{
  vec3 face = normalize(cross(dFdx(vViewPosition), dFdy(vViewPosition)));
  normal = normalize(mix(face, normal, smoothstep(0.1, 0.55, dot(normal, face))));
  nonPerturbedNormal = normal;
}`;

const RELIEF = `
{
  // Relief finer than a pixel is left out, it would only glitter.
  float fade = 1.0 - smoothstep(0.25, 0.9, length(fwidth(vRest)) * (vZone.a > 0.5 ? 44.0 : 34.0));
#ifdef TISSUE_IMAGE
  float skinRelief = 0.5 * tissueRelief(vRest);
#elif defined(TISSUE_TEXTURE)
  float skinRelief = 0.5 * tissueRelief(vRest) + 0.7 * skinPattern.a;
#else
  float skinRelief = tissueRelief(vRest);
#endif
  float height = (vZone.a > 0.5 ? interiorRelief(vRest) : skinRelief) * uReliefHeight * fade;
  vec3 dpdx = dFdx(-vViewPosition), dpdy = dFdy(-vViewPosition);
  vec3 r1 = cross(dpdy, normal), r2 = cross(normal, dpdx);
  float det = dot(dpdx, r1);
  normal = normalize(abs(det) * normal - sign(det) * (dFdx(height) * r1 + dFdy(height) * r2));
}`;

/**
 * Wet tissue under a clear, glossy film. The skin is mottled, with a fine relief; what cuts uncover shows lobules and vessels. Both stick to the rest
 * shape. Vertex attributes: `restPosition` in metres; `zoneColor`, linear red, green and blue, and 1 for the inside; with a texture, which takes the place
 * of the mottling, `textureCoordinate`.
 */
export function tissueMaterial(color: THREE.Color, texture?: TissueTexture): THREE.MeshPhysicalMaterial {
  const material = new THREE.MeshPhysicalMaterial({
    color: 0xffffff,
    roughness: 0.5,
    metalness: 0,
    clearcoat: 1,
    clearcoatRoughness: 0.22,
    sheen: 0.15,
    sheenRoughness: 0.5,
    sheenColor: color.clone().lerp(new THREE.Color(1, 0.75, 0.65), 0.5),
    envMapIntensity: 0.9,
  });
  const uniforms = { uDetailScale: { value: 1 }, uReliefHeight: { value: 0 }, ...textureUniforms(texture) };
  if (texture) defineTexture(material, texture);
  material.userData.uniforms = uniforms;
  material.onBeforeCompile = (shader) => {
    Object.assign(shader.uniforms, uniforms);
    shader.vertexShader = shader.vertexShader
      .replace('#include <common>', `#include <common>
attribute vec3 restPosition;
attribute vec4 zoneColor;
varying vec3 vRest;
varying vec4 vZone;
uniform float uDetailScale;${TEXTURE_VERTEX}`)
      .replace('#include <begin_vertex>', `#include <begin_vertex>\nvRest = restPosition * uDetailScale;\nvZone = zoneColor;${TEXTURE_VARYINGS}`);
    shader.fragmentShader = shader.fragmentShader
      .replace('#include <common>', `#include <common>${NOISE}${TEXTURE_FRAGMENT}`)
      .replace('#include <color_fragment>', `#include <color_fragment>${COLOR}`)
      .replace('#include <normal_fragment_begin>', `#include <normal_fragment_begin>${FACING}`)
      .replace('#include <normal_fragment_maps>', `#include <normal_fragment_maps>${RELIEF}`)
      // Smooth normals of a coarse mesh turn away from the eye at its outline, where the film would mirror the dark floor alone.
      .replace('#include <clearcoat_normal_fragment_begin>', `#include <clearcoat_normal_fragment_begin>
vec3 toEye = normalize(vViewPosition);
normal = normalize(normal + max(0.0, 0.15 - dot(normal, toEye)) * toEye);
#ifdef USE_CLEARCOAT
clearcoatNormal = normalize(clearcoatNormal + max(0.0, 0.3 - dot(clearcoatNormal, toEye)) * toEye);
#endif`)
      // A cut is moist, but has no smooth film.
      .replace('#include <lights_physical_fragment>', `#include <lights_physical_fragment>
#ifdef USE_CLEARCOAT
if (vZone.a > 0.5) {
  material.clearcoat *= 0.35;
  material.clearcoatRoughness = max(material.clearcoatRoughness, 0.32);
}
#endif`)
      // Light that wraps around and comes out red at grazing angles stands in for scattering below the surface.
      .replace('#include <lights_fragment_end>', `#include <lights_fragment_end>
float tissueRim = pow(1.0 - saturate(dot(normal, normalize(vViewPosition))), 2.6);
reflectedLight.directDiffuse += diffuseColor.rgb * vec3(1.0, 0.32, 0.24) * tissueRim * 0.16;`);
  };
  return material;
}

function textureUniforms(texture: TissueTexture | undefined): Record<string, THREE.IUniform> {
  return texture ? { uPattern: texture.shown, uTexturePeriod: { value: texture.period } } : {};
}

function defineTexture(material: THREE.Material & { defines?: Record<string, string> }, texture: TissueTexture): void {
  material.defines = { ...material.defines, TISSUE_TEXTURE: '', ...(texture.isImage && { TISSUE_IMAGE: '' }) };
}

/** The size of the body gives that of its look. */
export function setTissueExtent(material: THREE.MeshPhysicalMaterial, extent_m: number): void {
  material.userData.uniforms.uDetailScale.value = 1 / Math.max(extent_m, 1e-6);
  material.userData.uniforms.uReliefHeight.value = 0.0016 * extent_m;
}

/** Tissue for a processor to draw: the colour of each zone, the pattern of the skin and a highlight. Vertex attributes as above, without `restPosition`. */
export function plainTissueMaterial(texture?: TissueTexture): THREE.MeshPhongMaterial {
  const material = new THREE.MeshPhongMaterial({ color: 0xffffff, specular: 0x3c3836, shininess: 55 });
  if (texture) defineTexture(material, texture);
  material.onBeforeCompile = (shader) => {
    Object.assign(shader.uniforms, textureUniforms(texture));
    shader.vertexShader = shader.vertexShader
      .replace('#include <common>', `#include <common>\nattribute vec4 zoneColor;\nvarying vec4 vZoneColor;${TEXTURE_VERTEX}`)
      .replace('#include <begin_vertex>', `#include <begin_vertex>\nvZoneColor = zoneColor;${TEXTURE_VARYINGS}`);
    shader.fragmentShader = shader.fragmentShader
      .replace('#include <common>', `#include <common>\nvarying vec4 vZoneColor;${TEXTURE_FRAGMENT}`)
      .replace('#include <normal_fragment_begin>', `#include <normal_fragment_begin>${FACING}`)
      .replace('#include <color_fragment>', `#include <color_fragment>
diffuseColor.rgb = vZoneColor.rgb;
#ifdef TISSUE_TEXTURE
vec4 skinPattern = tissuePattern();
#ifdef TISSUE_IMAGE
if (vZoneColor.a < 0.5) diffuseColor.rgb = mix(diffuseColor.rgb, skinPattern.rgb, skinPattern.a);
#else
if (vZoneColor.a < 0.5) diffuseColor.rgb *= skinPattern.rgb;
#endif
#endif`);
  };
  return material;
}
