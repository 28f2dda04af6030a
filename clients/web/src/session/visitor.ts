/** What others are told of who did something. */

const STORAGE_KEY = 'palpate-name';
/** The server takes 64 bytes; of 21 UTF-16 units each makes 3 at most. */
const MAX_UNITS = 21;

export interface NameStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/**
 * The name in the address (`?name=`), which is remembered for later visits, or the remembered one. Empty: none was ever given; the server
 * then tells the address.
 */
export function visitorName(parameters: URLSearchParams, storage: NameStorage): string {
  const given = parameters.get('name');
  const text = (given ?? storage.getItem(STORAGE_KEY) ?? '').replace(/\p{Cc}/gu, '').trim();
  const name = text.slice(0, MAX_UNITS).replace(/[\uD800-\uDBFF]$/, '');
  if (given !== null) storage.setItem(STORAGE_KEY, name);
  return name;
}

/** What SceneInfo tells of resets. */
export interface ResetInfo {
  sceneId: string;
  resets: bigint;
  resetBy: string;
}

/** Tells resets of others from the user's own, and each once. */
export class ResetWatch {
  /** By scene, those that the user knows of. */
  private readonly known = new Map<string, bigint>();
  private own = 0;

  /** Before a reset is asked for; its answer, or undefined where it failed, goes to `end`. */
  begin(): void {
    ++this.own;
  }

  end(answer: ResetInfo | undefined): void {
    --this.own;
    if (answer) this.known.set(answer.sceneId, answer.resets);
  }

  /** Who has set the scene back since the last look, if it was somebody else; undefined on the first look, too. */
  look(info: ResetInfo): string | undefined {
    if (this.own > 0) return undefined;  // its answer tells
    const known = this.known.get(info.sceneId);
    this.known.set(info.sceneId, info.resets);
    return known !== undefined && info.resets > known ? info.resetBy || 'Somebody' : undefined;
  }
}
