// Pictures of textures: fetched once from the server, with the token if there is one, and shared.
import * as THREE from 'three';
import { tokenHeaders } from '../net/token';

const shown = new Map<string, { value: THREE.Texture }>();
const listeners: (() => void)[] = [];

/** Calls `listener` whenever a picture has come. */
export function onImage(listener: () => void): void {
  listeners.push(listener);
}

/** Transparent, so that the colour of the zone shows until the picture is there. */
function placeholder(): THREE.Texture {
  const texture = new THREE.DataTexture(new Uint8Array(4), 1, 1, THREE.RGBAFormat);
  texture.needsUpdate = true;
  return texture;
}

async function load(path: string): Promise<THREE.Texture> {
  const answer = await fetch(path, { headers: tokenHeaders(sessionStorage) });
  if (!answer.ok) throw new Error(`the server answered with ${answer.status}`);
  // v of texture coordinates grows upwards.
  const bitmap = await createImageBitmap(await answer.blob(), { imageOrientation: 'flipY', premultiplyAlpha: 'none' });
  const texture = new THREE.Texture(bitmap);
  texture.flipY = false;
  texture.colorSpace = THREE.SRGBColorSpace;
  texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
  texture.magFilter = THREE.LinearFilter;
  texture.minFilter = THREE.LinearMipmapLinearFilter;
  texture.generateMipmaps = true;
  texture.anisotropy = 8;
  texture.needsUpdate = true;
  return texture;
}

/** The picture that SurfaceTexture.image names. `value` is a placeholder until it has come. */
export function imageTexture(path: string): { value: THREE.Texture } {
  let entry = shown.get(path);
  if (!entry) {
    const made = entry = { value: placeholder() };
    shown.set(path, made);
    load(path).then((texture) => {
      made.value = texture;
      for (const listener of listeners) listener();
    }, (error: unknown) => {
      shown.delete(path);  // the next scene tries again
      console.warn(`the picture ${path} did not come: ${String(error)}`);
    });
  }
  return entry;
}

/** Whether a picture has come. */
export function hasImage(path: string): boolean {
  const entry = shown.get(path);
  return entry !== undefined && !(entry.value instanceof THREE.DataTexture);
}
