#!/usr/bin/env python3
"""Finds Young's modulus of a phantom from a recorded indentation. The recording is a run with a modulus that the search does not know, with
noise of 0.5 % on its forces; the search indents many candidates at once and narrows down to where the curves agree best."""
import numpy as np

import palpate
from phantoms import arguments, indent, phantom

options = arguments(__doc__, False, seed=(1, "of the hidden modulus and the noise"), count=(8, "candidates at once"), rounds=(3, "of narrowing down"),
                    points=(6, "depths"), steps=(10, "steps at each depth"), edge_length=(0.01, "of the mesh [m]"))
random = np.random.default_rng(options.seed)
depths_m = np.linspace(0.001, 0.005, options.points)


def curves(batch, moduli_pa):
    """[moduli, depths] what candidates give."""
    for i, modulus_pa in enumerate(moduli_pa):
        batch.reset([i], {"young_modulus_pa": modulus_pa})
    return indent(batch, depths_m, options.steps)


with palpate.launch() as server:
    hidden_pa = np.exp(random.uniform(np.log(4000), np.log(25000)))
    with palpate.Batch(server, phantom(options.edge_length), 1, ["tool.probe.force.z"]) as batch:
        recorded_n = curves(batch, [hidden_pa])[0]
    recorded_n = recorded_n * (1 + 0.005 * random.standard_normal(len(recorded_n)))

    low_pa, high_pa = 2000.0, 50000.0
    with palpate.Batch(server, phantom(options.edge_length), options.count, ["tool.probe.force.z"]) as batch:
        for turn in range(options.rounds):
            moduli_pa = np.geomspace(low_pa, high_pa, options.count)
            errors = np.sqrt(np.mean((curves(batch, moduli_pa) - recorded_n)**2, axis=1)) / recorded_n.max()
            best = int(np.argmin(errors))
            low_pa, high_pa = moduli_pa[max(best - 1, 0)], moduli_pa[min(best + 1, options.count - 1)]
            print(f"round {turn + 1}: {moduli_pa[best]:.0f} Pa, error {100 * errors[best]:.2f} %; next between {low_pa:.0f} and {high_pa:.0f} Pa")
        # The sum of squares is nearly a parabola over the logarithm of the modulus, near its least value.
        moduli_pa = np.geomspace(low_pa, high_pa, options.count)
        squares = np.mean((curves(batch, moduli_pa) - recorded_n)**2, axis=1)
a, b, _ = np.polyfit(np.log(moduli_pa), squares, 2)
found_pa = float(np.exp(-b / (2 * a)))
print(f"found {found_pa:.0f} Pa, hidden {hidden_pa:.0f} Pa: off by {100 * (found_pa / hidden_pa - 1):+.2f} %")
