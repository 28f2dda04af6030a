import * as THREE from 'three';

/** What a mesh is drawn with: by a graphics card, and by a processor, which cannot afford reflections of the room. */
interface Looks {
  full: THREE.Material;
  plain: THREE.Material;
}

/** A mesh with two materials, of which `applyLooks` takes one. */
export function dressed<G extends THREE.BufferGeometry>(geometry: G, full: THREE.Material, plain: THREE.Material): THREE.Mesh<G, THREE.Material> {
  return dress(new THREE.Mesh<G, THREE.Material>(geometry, full), full, plain);
}

/** The same for a mesh that is there, and has `full` on. */
export function dress<M extends THREE.Mesh>(mesh: M, full: THREE.Material, plain: THREE.Material): M {
  mesh.userData.looks = { full, plain } satisfies Looks;
  return mesh;
}

export function applyLooks(root: THREE.Object3D, isPlain: boolean): void {
  root.traverse((child) => {
    const looks = child.userData.looks as Looks | undefined;
    if (looks) (child as THREE.Mesh).material = isPlain ? looks.plain : looks.full;
  });
}

/** Frees the geometries and materials of all meshes of a tree; some may share a material. */
export function disposeMeshes(root: THREE.Object3D): void {
  root.traverse((child) => {
    if (!(child instanceof THREE.Mesh) && !(child instanceof THREE.LineSegments)) return;
    (child.geometry as THREE.BufferGeometry).dispose();
    (child.material as THREE.Material).dispose();
    const looks = child.userData.looks as Looks | undefined;
    looks?.full.dispose();
    looks?.plain.dispose();
  });
}
