import type { SceneInfo } from '../../generated/palpate/v1/control_pb';

/** The list of scenes at the top. */
export class SceneChooser {
  constructor(private readonly select: HTMLSelectElement, onChoose: (sceneId: string) => void) {
    select.addEventListener('change', () => {
      select.blur();
      onChoose(select.value);
    });
  }

  /** Rebuilds the list only when it is another: somebody may have it open. */
  showScenes(scenes: SceneInfo[]): void {
    const textOf = ({ sceneId, name, isReplay }: SceneInfo) =>
      (isReplay ? `Replay · ${sceneId}` : name && name !== sceneId ? `${name} · ${sceneId}` : sceneId);
    const options = scenes.map((scene) => ({ value: scene.sceneId, text: textOf(scene) }));
    const wanted = options.map(({ value, text }) => `${value}\n${text}`).join('\n\n');
    if (this.select.dataset.options === wanted) return;
    this.select.dataset.options = wanted;
    this.select.replaceChildren(...options.map(({ value, text }) => new Option(text, value)));
  }

  showChosen(sceneId: string): void {
    this.select.value = sceneId;
  }
}
