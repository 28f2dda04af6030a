#!/usr/bin/env python3
"""Indents phantoms of many stiffnesses at once, in one batch, and plots a curve for each."""
import matplotlib.pyplot as plt
import numpy as np

import palpate
from phantoms import arguments, finish, indent, phantom

options = arguments(__doc__, count=(8, "stiffnesses"), points=(12, "depths"), steps=(10, "steps at each depth"), edge_length=(0.01, "of the mesh [m]"))
moduli_pa = np.geomspace(3000, 30000, options.count)
depths_m = np.linspace(0, 0.005, options.points)
with palpate.launch() as server, palpate.Batch(server, phantom(options.edge_length), options.count, ["tool.probe.force.z"]) as batch:
    for i, modulus_pa in enumerate(moduli_pa):
        batch.reset([i], {"young_modulus_pa": modulus_pa})
    forces_n = indent(batch, depths_m, options.steps)
print("modulus [Pa], force at the largest depth [N], their ratio [N/kPa]")
for modulus_pa, force_n in zip(moduli_pa, forces_n[:, -1]):
    print(f"{modulus_pa:8.0f} {force_n:8.4f} {1000 * force_n / modulus_pa:8.4f}")

figure, axes = plt.subplots(figsize=(6, 4))
for modulus_pa, row in zip(moduli_pa, forces_n):
    axes.plot(1000 * depths_m, row, color=plt.cm.viridis(np.log10(modulus_pa / 3000)), label=f"{modulus_pa / 1000:.1f} kPa")
axes.set(xlabel="depth [mm]", ylabel="force on the probe [N]", title="One batch, one curve a stiffness")
axes.legend(fontsize=8)
finish(figure, options.output)
