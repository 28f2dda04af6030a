#!/usr/bin/env python3
"""Stretches a strip by a quarter, cuts into it from above step by step, and measures how wide the cut gapes between two markers beside it."""
import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import arguments, finish

options = arguments(__doc__, cuts=(4, "cuts, each deeper than the last"), steps=(60, "steps after each"), edge_length=(0.008, "of the mesh [m]"))
LENGTH_M, WIDTH_M, HEIGHT_M = 0.12, 0.024, 0.016
STRETCH_M, STRETCH_S = 0.03, 0.5
BESIDE_M = 0.008  # the markers

pulled = {"box": {"min_m": (LENGTH_M / 2 - 1e-4, -1, -1), "max_m": (1, 1, 1)},
          "motion": {"velocity_m_per_s": (STRETCH_M / STRETCH_S, 0, 0), "duration_s": STRETCH_S}}
held = {"box": {"min_m": (-1, -1, -1), "max_m": (-LENGTH_M / 2 + 1e-4, 1, 1)}}
strip = (palpate.SceneBuilder("strip", gravity_m_per_s2=(0, 0, 0))
         .body("strip", "slab", {"size_m": (LENGTH_M, WIDTH_M, HEIGHT_M)}, edge_length_m=options.edge_length,
               material={"young_modulus_pa": 30000, "poisson_ratio": 0.4, "damping_s": 0.05}, fixed=[held, pulled],
               markers=[{"name": "left", "position_m": (-BESIDE_M, 0, HEIGHT_M / 2)}, {"name": "right", "position_m": (BESIDE_M, 0, HEIGHT_M / 2)}]))


def markers(scene):
    """[2, 3] where they are."""
    return scene.frame().markers["position_m"]


def distance(points):
    return float(np.linalg.norm(points[1] - points[0]))


with palpate.launch() as server, server.create(strip) as scene:
    scene.step(round(STRETCH_S / scene.info().dt_s) + options.steps)
    before_m, volume_m3 = distance(markers(scene)), scene.info().bodies[0].volume_m3
    depths_m, gapes_m = [0.0], [0.0]
    for i in range(options.cuts):
        depths_m.append(HEIGHT_M * 0.75 * (i + 1) / options.cuts)
        middle = markers(scene).mean(axis=0)
        # The blade hangs down from above the tissue and is drawn across the strip, between the markers.
        bottom = HEIGHT_M / 2 - depths_m[-1]
        outcome = scene.incise("strip", [[(middle[0], y, 0.03), (middle[0], y, bottom)] for y in np.linspace(-WIDTH_M, WIDTH_M, 5)])
        scene.step(options.steps)
        gapes_m.append(distance(markers(scene)) - before_m)
        print(f"cut {1000 * depths_m[-1]:4.1f} mm deep: {len(outcome.added_tets)} new tets, gapes {1000 * gapes_m[-1]:5.2f} mm")
    changed = scene.info().bodies[0].volume_m3 / volume_m3 - 1
    frame = scene.frame()
    body = frame.topology["strip"]
    positions, triangles, zones = frame.positions("strip"), body.triangles, body.zone_slots[body.triangle_slots.any(axis=1)]
print(f"volume at rest changed by {100 * changed:+.3f} %, {np.count_nonzero(zones)} triangles of cut surface")

figure = plt.figure(figsize=(9, 4))
axes = figure.add_subplot(1, 2, 1)
axes.plot(1000 * np.array(depths_m), 1000 * np.array(gapes_m), "o-")
axes.set(xlabel="depth of the cut [mm]", ylabel="gape [mm]", title="A stretched strip, cut from above")
view = figure.add_subplot(1, 2, 2, projection="3d")
# plot_trisurf would take positions that nobody uses, too.
used, corners = np.unique(triangles, return_inverse=True)
shade = view.plot_trisurf(*positions[used].T, triangles=corners.reshape(-1, 3), edgecolor=(0, 0, 0, 0.3), lw=0.3)
shade.set_facecolors(np.where((zones > 0)[:, None], (0.6, 0.05, 0.05), (0.95, 0.65, 0.6)))
view.set_box_aspect(np.ptp(positions[used], axis=0), zoom=1.2)
view.view_init(25, -75)
view.set_axis_off()
finish(figure, options.output)
