#!/usr/bin/env python3
"""Presses a probe into a phantom and lifts it again, plots force over depth, and compares with Hertz for a sphere on a half space. A thin slab on
a rigid base is stiffer than that, and so is a coarse mesh; contact begins a margin of 1 mm before the surfaces meet."""
import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import RADIUS_M, TOP_M, arguments, finish, phantom

options = arguments(__doc__, depth=(0.006, "largest depth [m]"), points=(24, "places on the way in"), steps=(6, "steps at each place"),
                    edge_length=(0.004, "of the mesh [m]"))
young_modulus_pa, poisson_ratio = 10000.0, 0.45
depths_m = np.concatenate([np.linspace(-0.001, options.depth, options.points), np.linspace(options.depth, -0.001, options.points)])
forces_n = []
with palpate.launch() as server, server.create(phantom(options.edge_length, young_modulus_pa)) as scene:
    with scene.watch(positions="none", max_rate_hz=10000) as frames:
        for depth in depths_m:
            info = scene.step(options.steps, poses={"probe": (0, 0, TOP_M + RADIUS_M - depth)})
            frame = next(frame for frame in frames if frame.step == info.step)
            forces_n.append(frame.force("probe")[2])
forces_n = np.array(forces_n)
hertz_n = 4 / 3 * young_modulus_pa / (1 - poisson_ratio**2) * np.sqrt(RADIUS_M) * np.clip(depths_m, 0, None)**1.5
print(f"at {1000 * options.depth:g} mm: {forces_n.max():.3f} N; a half space under a sphere: {hertz_n.max():.3f} N")

figure, axes = plt.subplots(figsize=(6, 4))
half = options.points
axes.plot(1000 * depths_m[:half], forces_n[:half], "o-", ms=3, label="in")
axes.plot(1000 * depths_m[half:], forces_n[half:], "o-", ms=3, label="out")
axes.plot(1000 * depths_m[:half], hertz_n[:half], "k--", lw=1, label="Hertz, half space")
axes.axvline(-1, color="0.7", lw=1, ls=":", label="contact begins")
axes.set(xlabel="depth [mm]", ylabel="force on the probe [N]", title="Indentation of a slab on a rigid base")
axes.legend()
finish(figure, options.output)
