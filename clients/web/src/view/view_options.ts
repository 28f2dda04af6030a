/** What is drawn beside bodies and instruments. */
export interface ViewOptions {
  wireframe: boolean;
  /** Dots through the bodies: for those who look into the solver. */
  contacts: boolean;
  /** Lines at the dots; shown with them only. */
  normals: boolean;
  forces: boolean;
  markers: boolean;
}

export const DEFAULT_VIEW_OPTIONS: Readonly<ViewOptions> = { wireframe: false, contacts: false, normals: false, forces: true, markers: true };
