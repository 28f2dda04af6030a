#!/usr/bin/env python3
"""A controller of one's own in a loop of 1 kHz against a scene that plays at 120 steps a second. Each millisecond it asks the newest local
model what the tool feels where it is now, and moves it so that the force follows a target; the stiff loop never waits for the network."""
import time

import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import RADIUS_M, TOP_M, arguments, finish, phantom

options = arguments(__doc__, seconds=(4.0, "to run"), rate=(1000.0, "of the loop [Hz]"), low=(0.2, "target force [N]"), high=(0.6, "target force [N]"),
                    edge_length=(0.01, "of the mesh [m]"))
SPEED_M_PER_S = 0.02     # at most
ADMITTANCE = 0.02        # m/s for each N that is missing


def controller(tool):
    """Time, target, force and height of each tick."""
    period_s = 1 / options.rate
    z = TOP_M + RADIUS_M + 0.002
    rows = []
    begin = due = time.monotonic()
    while (now := time.monotonic()) - begin < options.seconds:
        target_n = options.low if (now - begin) % 2 < 1 else options.high
        model = tool.model
        force_n = model.force_at((0, 0, z))[2] if model is not None else 0.0
        z -= np.clip(ADMITTANCE * (target_n - force_n), -SPEED_M_PER_S, SPEED_M_PER_S) * period_s
        tool.move((0, 0, z))
        rows.append((now - begin, target_n, force_n, z))
        due += period_s
        if due > time.monotonic():
            time.sleep(due - time.monotonic())
        else:
            due = time.monotonic()  # late: the lost ticks are not made up for
    return np.array(rows).T


with palpate.launch() as server, server.create(phantom(options.edge_length), play=True) as scene, scene.operate("probe", station="controller") as tool:
    tool.move((0, 0, TOP_M + RADIUS_M + 0.002))
    tool.wait(1)
    seconds, targets_n, forces_n, heights_m = controller(tool)
    solved_n = tool.model.force_n[2]
ticks = np.diff(seconds)
settled = ((seconds % 1) > 0.7) & (seconds > 2)
print(f"{len(seconds)} ticks, {len(seconds) / options.seconds:.0f} Hz, median {1000 * np.median(ticks):.3f} ms, 99 % below {1000 * np.quantile(ticks, 0.99):.2f} ms")
print(f"force in the second half of each second: off target by {np.abs(forces_n - targets_n)[settled].mean():.3f} N; the solver's at the end {solved_n:.3f} N")

figure, axes = plt.subplots(2, 1, figsize=(6, 5), sharex=True)
axes[0].plot(seconds, forces_n, label="force of the local model")
axes[0].plot(seconds, targets_n, "k--", lw=1, label="target")
axes[0].set(ylabel="force [N]", title=f"A controller in Python at {len(seconds) / options.seconds:.0f} Hz")
axes[0].legend()
axes[1].plot(seconds, 1000 * (TOP_M + RADIUS_M - heights_m))
axes[1].set(xlabel="time [s]", ylabel="depth of the tip [mm]")
finish(figure, options.output)
