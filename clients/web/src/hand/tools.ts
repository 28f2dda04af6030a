import type { ToolShape } from '../../generated/palpate/v1/stream_pb';
import type { SceneStream } from '../session/scene_stream';
import type { ToolInHand } from './tool_in_hand';

/** 'past': of a replay, in which it does what it did. */
export type ToolOwner = 'free' | 'you' | 'station' | 'taking' | 'past';

/** The tools of the watched scene: whose they are, and taking them by place or by kind. */
export class Tools {
  constructor(
    private readonly view: { readonly tools: readonly { readonly shape: ToolShape }[] },
    private readonly stream: Pick<SceneStream, 'sceneId' | 'frame' | 'isReplay'>,
    private readonly inHand: ToolInHand,
  ) {}

  get count(): number {
    return this.view.tools.length;
  }

  /** -1: there is none of this name. */
  find(name: string): number {
    return this.view.tools.findIndex(({ shape }) => shape.name === name);
  }

  ownerOf(index: number): ToolOwner {
    if (this.stream.isReplay) return 'past';
    if (this.inHand.index === index) return this.inHand.hand ? 'you' : 'taking';
    return this.stream.frame?.tools[index]?.operated ? 'station' : 'free';
  }

  /** The first tool that is in nobody's hand and of a kind that fits; -1: none. */
  findFree(fits: (shape: ToolShape) => boolean = () => true): number {
    return this.view.tools.findIndex(({ shape }, index) => fits(shape) && this.ownerOf(index) === 'free');
  }

  /** True when the tool is in the hand. */
  async take(index: number): Promise<boolean> {
    const shape = this.view.tools[index]?.shape;
    if (!shape || this.stream.sceneId === '' || this.stream.isReplay) return false;
    return this.inHand.take(index, shape);
  }

  toggle(index: number): void {
    if (this.inHand.index === index) void this.inHand.release();
    else void this.take(index);
  }
}
