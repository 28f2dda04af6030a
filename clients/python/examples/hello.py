#!/usr/bin/env python3
"""Ten lines from nothing to a force: presses a probe 4 mm into a slab of tissue and prints what it feels."""
import palpate

slab = (palpate.SceneBuilder("hello")
        .body("slab", "slab", {"size_m": (0.08, 0.08, 0.02)}, edge_length_m=0.01, material={"young_modulus_pa": 10000})
        .fixed_below(-0.0099)
        .tool("probe", (0, 0, 0.02), radius_m=0.005, drive="direct"))

with palpate.launch() as server, server.create(slab) as scene:
    for depth_m in (0, 0.002, 0.004):
        scene.step(30, poses={"probe": (0, 0, 0.015 - depth_m)})
        print(f"{1000 * depth_m:.0f} mm: {scene.frame().force('probe')[2]:.3f} N")
