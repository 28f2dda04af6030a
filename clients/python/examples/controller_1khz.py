#!/usr/bin/env python3
"""A controller of one's own in a loop of 1 kHz, through a station: palpate-station computes the force from its local model of a scene that
plays at 120 steps a second, and asks where the hand is in each millisecond. The hand moves so that the force follows a target."""
import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import RADIUS_M, TOP_M, arguments, finish, phantom

options = arguments(__doc__, seconds=(4.0, "to run"), low=(0.2, "target force [N]"), high=(0.6, "target force [N]"),
                    edge_length=(0.01, "of the mesh [m]"))
SPEED_M_PER_S = 0.02     # at most
ADMITTANCE = 0.02        # m/s for each N that is missing
FIRST_M = TOP_M + RADIUS_M + 0.002


def controller(hand):
    """Time, target, force, height and lost ticks, for each tick."""
    z, begin, last_s = FIRST_M, None, 0.0
    rows = []
    for tick in hand.ticks(options.seconds):
        if not tick.is_engaged:
            hand.move((0, 0, z))
            continue
        if begin is None:
            begin = last_s = tick.time_s
        target_n = options.low if (tick.time_s - begin) % 2 < 1 else options.high
        speed = float(-np.clip(ADMITTANCE * (target_n - tick.force_n[2]), -SPEED_M_PER_S, SPEED_M_PER_S))
        z += speed * min(tick.time_s - last_s, 0.005)
        last_s = tick.time_s
        hand.move((0, 0, z), velocity_m_per_s=(0, 0, speed))
        rows.append((tick.time_s - begin, target_n, tick.force_n[2], z, tick.missed))
    return np.array(rows).T


with palpate.launch() as server, server.create(phantom(options.edge_length), play=True) as scene:
    with scene.station("probe", start=(0, 0, FIRST_M), name="controller", arguments=("--ramp", "0.2")) as hand:
        seconds, targets_n, forces_n, heights_m, missed = controller(hand)
    solved_n = scene.frame().force("probe")[2]
settled = ((seconds % 1) > 0.7) & (seconds > 2)
print(f"{len(seconds)} ticks in {seconds[-1]:.2f} s, {int(missed.sum())} came too late for the controller")
print(f"force in the second half of each second: off target by {np.abs(forces_n - targets_n)[settled].mean():.3f} N; the solver's at the end {solved_n:.3f} N")
loop = hand.report
print(f"the station: {loop['rate_hz']:.0f} Hz, 99 % of its ticks within {loop['jitter_us']['p99']:.0f} us, models {loop['model_age_ms']['p50']:.0f} ms old at the median")

figure, axes = plt.subplots(2, 1, figsize=(6, 5), sharex=True)
axes[0].plot(seconds, forces_n, label="force of the station")
axes[0].plot(seconds, targets_n, "k--", lw=1, label="target")
axes[0].set(ylabel="force [N]", title=f"A controller in Python, {len(seconds) / seconds[-1]:.0f} ticks a second")
axes[0].legend()
axes[1].plot(seconds, 1000 * (TOP_M + RADIUS_M - heights_m))
axes[1].set(xlabel="time [s]", ylabel="depth of the tip [mm]")
finish(figure, options.output)
