#!/usr/bin/env python3
"""Hangs a strip by both ends, cuts into it from above step by step, and measures how wide the cut gapes and how far the strip sags."""
import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import arguments, finish

options = arguments(__doc__, cuts=(4, "cuts, each deeper than the last"), steps=(60, "steps after each"), edge_length=(0.008, "of the mesh [m]"))
LENGTH_M, WIDTH_M, HEIGHT_M = 0.12, 0.024, 0.016

strip = (palpate.SceneBuilder("strip")
         .body("strip", "slab", {"size_m": (LENGTH_M, WIDTH_M, HEIGHT_M)}, edge_length_m=options.edge_length,
               material={"young_modulus_pa": 30000, "poisson_ratio": 0.4, "damping_s": 0.05},
               fixed=[{"box": {"min_m": (-1, -1, -1), "max_m": (-LENGTH_M / 2 + 1e-4, 1, 1)}}, {"box": {"min_m": (LENGTH_M / 2 - 1e-4, -1, -1), "max_m": (1, 1, 1)}}],
               markers=[{"name": "left", "position_m": (-0.006, 0, HEIGHT_M / 2)}, {"name": "right", "position_m": (0.006, 0, HEIGHT_M / 2)}]))


def measure(scene):
    """Depth that is cut [m], gape between the markers beside the cut [m], sag of the lowest point [m], volume of tissue [m3]."""
    frame = scene.frame()
    left, right = frame.markers["position_m"]
    positions = frame.positions("strip")
    used = np.unique(frame.topology["strip"].triangles)
    return np.linalg.norm(right - left) - 0.012, -HEIGHT_M / 2 - positions[used, 2].min(), scene.info().bodies[0].volume_m3


with palpate.launch() as server, server.create(strip) as scene:
    scene.step(options.steps)
    rows = [(0.0, *measure(scene))]
    for i in range(options.cuts):
        depth_m = HEIGHT_M * 0.75 * (i + 1) / options.cuts
        # The blade's edge hangs down from above the tissue and is drawn across the strip.
        bottom = HEIGHT_M / 2 - depth_m - rows[-1][2]
        edges = [[(0.0005, y, bottom + 0.03), (0.0005, y, bottom)] for y in np.linspace(-0.6 * WIDTH_M, 0.6 * WIDTH_M, 5)]
        outcome = scene.incise("strip", edges)
        scene.step(options.steps)
        rows.append((depth_m, *measure(scene)))
        print(f"cut {1000 * depth_m:4.1f} mm deep: {len(outcome.added_tets)} new tets, gapes {1000 * rows[-1][1]:5.2f} mm, sags {1000 * rows[-1][2]:5.2f} mm")
    frame = scene.frame()
    body = frame.topology["strip"]
    positions, triangles, zones = frame.positions("strip"), body.triangles, body.zone_slots[body.triangle_slots.any(axis=1)]
depths_m, gapes_m, sags_m, volumes_m3 = np.array(rows).T
print(f"volume at rest changed by {100 * (volumes_m3[-1] / volumes_m3[0] - 1):+.3f} %, {np.count_nonzero(zones)} triangles of cut surface")

figure = plt.figure(figsize=(8, 4))
axes = figure.add_subplot(1, 2, 1)
axes.plot(1000 * depths_m, 1000 * gapes_m, "o-", label="gape")
axes.plot(1000 * depths_m, 1000 * sags_m, "o-", label="sag")
axes.set(xlabel="depth of the cut [mm]", ylabel="[mm]", title="A strip that is cut from above")
axes.legend()
view = figure.add_subplot(1, 2, 2, projection="3d")
colors = np.where((zones > 0)[:, None], (0.6, 0.05, 0.05), (0.95, 0.65, 0.6))
shade = view.plot_trisurf(*positions.T, triangles=triangles, edgecolor=(0, 0, 0, 0.2), lw=0.3)
shade.set_facecolors(colors)
view.set_box_aspect((LENGTH_M, 1.5 * WIDTH_M, 2 * HEIGHT_M))
view.view_init(35, -60)
view.set_axis_off()
finish(figure, options.output)
