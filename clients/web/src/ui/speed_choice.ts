import { RateMode, type Rate } from '../../generated/palpate/v1/control_pb';
import type { SpeedRate } from '../session/transport';

export const SPEEDS: readonly { label: string; rate: SpeedRate }[] = [
  ...[0.1, 0.25, 0.5, 1, 2].map((speed) => ({ label: `${speed}×`, rate: { mode: RateMode.REAL_TIME, speed } })),
  { label: 'max', rate: { mode: RateMode.AS_FAST_AS_POSSIBLE } },
];

/** Which of SPEEDS a scene runs at; -1: none of them. */
export function speedIndex(rate: Pick<Rate, 'mode' | 'speed'>): number {
  const speed = rate.speed ?? 1;
  return SPEEDS.findIndex(({ rate: one }) => (rate.mode === RateMode.AS_FAST_AS_POSSIBLE ? one.mode === rate.mode : one.speed === speed));
}

/** The list of speeds. It follows the scene, but not under the hand of somebody who chooses. */
export class SpeedChoice {
  constructor(private readonly select: HTMLSelectElement, onChoose: (rate: SpeedRate) => void) {
    select.append(...SPEEDS.map(({ label }, index) => new Option(label, String(index))));
    select.selectedIndex = SPEEDS.findIndex(({ label }) => label === '1×');
    select.addEventListener('change', () => {
      select.blur();
      const choice = SPEEDS[select.selectedIndex];
      if (choice) onChoose(choice.rate);
    });
  }

  show(rate: Rate | undefined): void {
    if (document.activeElement === this.select || !rate) return;
    const index = speedIndex(rate);
    if (index >= 0) this.select.selectedIndex = index;
  }
}
