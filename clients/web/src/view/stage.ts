import * as THREE from 'three';
import { OrbitControls } from 'three/addons/controls/OrbitControls.js';
import { framingDistance } from './framing';

export type Quality = 'high' | 'medium' | 'low';

const BACKGROUND = new THREE.Color(0x080c11);

/** A dark room with soft boxes: what the wet tissue and the steel reflect. */
function roomEnvironment(renderer: THREE.WebGLRenderer): THREE.Texture {
  const room = new THREE.Scene();
  const box = new THREE.BoxGeometry();
  const wall = new THREE.Mesh(box, new THREE.MeshBasicMaterial({ color: new THREE.Color(0.06, 0.075, 0.095), side: THREE.BackSide }));
  wall.scale.setScalar(20);
  room.add(wall);
  const floor = new THREE.Mesh(box, new THREE.MeshBasicMaterial({ color: new THREE.Color(0.02, 0.045, 0.05) }));
  floor.scale.set(20, 20, 0.1);
  floor.position.z = -9.9;
  room.add(floor);
  const lamp = (x: number, y: number, z: number, sx: number, sy: number, sz: number, color: THREE.Color, power: number) => {
    const mesh = new THREE.Mesh(box, new THREE.MeshBasicMaterial({ color: color.clone().multiplyScalar(power) }));
    mesh.position.set(x, y, z);
    mesh.scale.set(sx, sy, sz);
    room.add(mesh);
  };
  const white = new THREE.Color(1, 0.97, 0.93);
  const cool = new THREE.Color(0.62, 0.78, 1);
  const warm = new THREE.Color(1, 0.72, 0.5);
  lamp(0, 0, 9, 3.2, 3.2, 0.2, white, 9);
  for (let i = 0; i < 6; ++i) lamp(4.6 * Math.cos((i * Math.PI) / 3), 4.6 * Math.sin((i * Math.PI) / 3), 8.6, 1.6, 1.6, 0.2, white, 5);
  lamp(-9.5, 2, 2, 0.2, 9, 6, cool, 2.6);
  lamp(9.5, -3, 1, 0.2, 7, 5, warm, 2.2);
  lamp(-2, -9.5, 0.5, 7, 0.2, 2.2, white, 1.7);
  lamp(5, -9.5, 3, 2, 0.2, 5, white, 1.4);
  lamp(0, 9.5, 3, 10, 0.2, 3, cool, 1.6);
  const generator = new THREE.PMREMGenerator(renderer);
  const texture = generator.fromScene(room, 0.03).texture;
  generator.dispose();
  room.traverse((child) => {
    if (child instanceof THREE.Mesh) (child.material as THREE.Material).dispose();
  });
  box.dispose();
  return texture;
}

/** A surface that fades out with distance, with lines every centimetre and stronger ones every five. */
export function tableMaterial(fade_m: number): THREE.Material {
  return withLines(new THREE.MeshStandardMaterial({ color: 0x111c22, roughness: 0.7, metalness: 0, transparent: true, envMapIntensity: 0.35 }), fade_m);
}

/** The same without light. */
export function plainTableMaterial(fade_m: number): THREE.Material {
  return withLines(new THREE.MeshBasicMaterial({ color: 0x0d161b, transparent: true }), fade_m);
}

function withLines(material: THREE.Material, fade_m: number): THREE.Material {
  material.onBeforeCompile = (shader) => {
    shader.uniforms.uFade = { value: fade_m };
    shader.vertexShader = shader.vertexShader
      .replace('#include <common>', '#include <common>\nvarying vec2 vTable;')
      .replace('#include <begin_vertex>', '#include <begin_vertex>\nvTable = position.xy;');
    shader.fragmentShader = shader.fragmentShader
      .replace('#include <common>', `#include <common>
varying vec2 vTable;
uniform float uFade;
float tableLine(float cell) {
  vec2 at = vTable / cell;
  vec2 width = fwidth(at);
  vec2 line = 1.0 - smoothstep(vec2(0.0), width * 1.25, abs(fract(at - 0.5) - 0.5));
  vec2 visible = 1.0 - smoothstep(0.15, 0.5, width);
  return max(line.x * visible.x, line.y * visible.y);
}`)
      .replace('#include <color_fragment>', `#include <color_fragment>
diffuseColor.rgb += vec3(0.016, 0.034, 0.042) * tableLine(0.01) + vec3(0.028, 0.06, 0.072) * tableLine(0.05);
diffuseColor.a *= 1.0 - smoothstep(0.16, 0.85, length(vTable) / uFade);`);
  };
  return material;
}

/** Renderer, camera, lights and room. Lengths follow `lightBox`: an organ of 20 cm and a phantom of 2 m look alike. */
export class Stage {
  readonly scene = new THREE.Scene();
  readonly camera = new THREE.PerspectiveCamera(36, 1, 0.01, 100);
  readonly renderer: THREE.WebGLRenderer;
  readonly controls: OrbitControls;
  radius_m = 0.15;
  readonly center = new THREE.Vector3();
  private readonly lamp = new THREE.SpotLight(0xfff3e6, 1, 0, 0.5, 0.75, 2);
  private readonly rim = new THREE.DirectionalLight(0x86b8ff, 0.9);
  private readonly fill = new THREE.HemisphereLight(0xbfd6ea, 0x16222a, 0.22);
  quality: Quality = 'high';
  private rightInset_px = 0;
  private bottomInset_px = 0;

  constructor(readonly canvas: HTMLCanvasElement, antialias: boolean) {
    this.renderer = new THREE.WebGLRenderer({ canvas, antialias, powerPreference: 'high-performance' });
    this.renderer.localClippingEnabled = true;
    this.renderer.toneMapping = THREE.ACESFilmicToneMapping;
    this.renderer.toneMappingExposure = 0.95;
    this.renderer.shadowMap.enabled = true;
    this.renderer.shadowMap.type = THREE.PCFSoftShadowMap;
    this.scene.background = BACKGROUND;
    this.scene.environment = roomEnvironment(this.renderer);
    this.scene.environmentIntensity = 0.6;
    this.camera.up.set(0, 0, 1);
    this.camera.position.set(0.28, -0.4, 0.26);
    this.lamp.castShadow = true;
    this.lamp.shadow.mapSize.set(2048, 2048);
    this.lamp.shadow.bias = -0.0004;
    this.lamp.shadow.radius = 5;
    this.scene.add(this.lamp, this.lamp.target, this.rim, this.rim.target, this.fill);
    this.controls = new OrbitControls(this.camera, canvas);
    this.controls.enableDamping = true;
    this.controls.dampingFactor = 0.12;
    this.controls.zoomToCursor = true;
    const empty = new THREE.Box3(new THREE.Vector3(-0.1, -0.07, 0), new THREE.Vector3(0.1, 0.07, 0.08));
    this.lightBox(empty);
    this.frame(empty.getBoundingSphere(new THREE.Sphere()));
  }

  setQuality(quality: Quality): void {
    this.quality = quality;
    document.body.dataset.quality = quality;
    this.renderer.shadowMap.enabled = quality !== 'low';
    this.lamp.castShadow = quality !== 'low';
    this.fill.intensity = quality === 'low' ? 1 : 0.22;  // plain materials do not see the room
    this.scene.traverse((child) => {
      if (child instanceof THREE.Mesh) (child.material as THREE.Material).needsUpdate = true;
    });
    this.resize();
  }

  /** Lights the box and scales the room to it. */
  lightBox(box: THREE.Box3): void {
    box.getCenter(this.center);
    this.radius_m = Math.max(box.getSize(new THREE.Vector3()).length() / 2, 1e-3);
    const r = this.radius_m;
    this.lamp.position.set(this.center.x + 1.4 * r, this.center.y - 1.1 * r, this.center.z + 4.6 * r);
    this.lamp.target.position.copy(this.center);
    this.lamp.intensity = 33 * r * r;
    this.lamp.shadow.camera.near = r;
    this.lamp.shadow.camera.far = 9 * r;
    this.lamp.shadow.normalBias = r * 0.01;
    this.rim.position.set(this.center.x - 3 * r, this.center.y + 4 * r, this.center.z + 1.6 * r);
    this.rim.target.position.copy(this.center);
    this.controls.minDistance = r * 0.3;
    this.controls.maxDistance = r * 14;
    this.camera.near = r * 0.02;
    this.camera.far = r * 60;
    this.scene.fog = new THREE.Fog(BACKGROUND, r * 7, r * 22);
    this.camera.updateProjectionMatrix();
    this.controls.update();
  }

  /** Turns the camera to all of a sphere, beside the panel and also where the window is narrow. */
  frame(sphere: THREE.Sphere): void {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const freeWidth_px = Math.max(1, width - this.rightInset_px);
    const freeHeight_px = Math.max(1, height - this.bottomInset_px);
    const free_rad = 2 * Math.atan((Math.tan(THREE.MathUtils.degToRad(this.camera.fov) / 2) * freeHeight_px) / Math.max(1, height));
    const distance_m = 1.04 * framingDistance(sphere.radius, free_rad, freeWidth_px / freeHeight_px);
    // The farthest zoom has to leave room for it: the controls would pull the camera back in.
    this.controls.maxDistance = Math.max(this.controls.maxDistance, 2 * distance_m);
    this.controls.target.copy(sphere.center);
    this.camera.position.set(0.46, -0.8, 0.44).normalize().multiplyScalar(distance_m).add(sphere.center);
    this.controls.update();
    this.camera.updateMatrixWorld();
  }

  /** Azimuth from +x towards +y, elevation from the horizon; at distance 1 the box of `lightBox` fills the picture. */
  look(azimuth_deg: number, elevation_deg: number, distance: number): void {
    const azimuth = THREE.MathUtils.degToRad(azimuth_deg);
    const elevation = THREE.MathUtils.degToRad(elevation_deg);
    this.lookFrom(new THREE.Vector3(Math.cos(elevation) * Math.cos(azimuth), Math.cos(elevation) * Math.sin(azimuth), Math.sin(elevation)), distance);
    this.controls.update();
    this.camera.updateMatrixWorld();  // places project and rays go by the new view before its first picture
  }

  private lookFrom(direction: THREE.Vector3, distance: number): void {
    this.controls.target.copy(this.center);
    const length_m = (distance * this.radius_m) / Math.sin((this.camera.fov * Math.PI) / 360);
    this.camera.position.copy(direction).normalize().multiplyScalar(length_m).add(this.center);
  }

  /** Keeps the middle of the picture clear of a panel on the right, or a sheet at the bottom: so wide and so high, in CSS pixels. */
  setInsets(right_px: number, bottom_px: number): void {
    this.rightInset_px = right_px;
    this.bottomInset_px = bottom_px;
    this.resize();
  }

  resize(): void {
    const width = Math.max(this.canvas.clientWidth, 1);
    const height = Math.max(this.canvas.clientHeight, 1);
    const ratio = Math.min(window.devicePixelRatio, this.quality === 'high' ? 2 : 1) * (this.quality === 'low' ? 0.75 : 1);
    this.renderer.setPixelRatio(ratio);
    this.renderer.setSize(width, height, false);
    this.camera.aspect = width / height;
    const [right, bottom] = [this.rightInset_px, this.bottomInset_px];
    if (right > 0 || bottom > 0) this.camera.setViewOffset(width, height, right / 2, bottom / 2, width, height);
    else this.camera.clearViewOffset();
    this.camera.updateProjectionMatrix();
  }

  render(): void {
    this.renderer.render(this.scene, this.camera);
  }
}
