"""What the examples share: a phantom under a probe, an indentation of many at once, arguments, figures."""
import argparse
import pathlib

import numpy as np

import palpate

RADIUS_M = 0.005
TOP_M = 0.01  # of the phantom at rest


def phantom(edge_length_m=0.01, young_modulus_pa=10000.0):
    """A slab of 8 x 8 x 2 cm on a base, under a probe that goes exactly where it is told."""
    return (palpate.SceneBuilder("phantom")
            .body("phantom", "slab", {"size_m": (0.08, 0.08, 0.02)}, edge_length_m=edge_length_m,
                  material={"model": "stable_neo_hookean", "young_modulus_pa": young_modulus_pa, "poisson_ratio": 0.45, "damping_s": 0.02})
            .fixed_below(-0.0099)
            .tool("probe", (0, 0, TOP_M + RADIUS_M + 0.005), radius_m=RADIUS_M, drive="direct"))


def indent(batch, depths_m, steps):
    """[environments, depths] force on the probe [N], pressed in to each depth for a number of steps."""
    column = batch.column("tool.probe.force.z")
    return np.array([batch.move("probe", (0, 0, TOP_M + RADIUS_M - depth), steps).observations[:, column] for depth in depths_m]).T


def arguments(description, has_figure=True, **options):
    """What the command line says: options with their defaults, and --output for a figure."""
    parser = argparse.ArgumentParser(description=description)
    if has_figure:
        parser.add_argument("--output", type=pathlib.Path, help="write the figure to this file instead of showing it")
    for name, (default, text) in options.items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default, help=f"{text} (default {default})")
    return parser.parse_args()


def finish(figure, output):
    """Saves a figure or shows it."""
    import matplotlib.pyplot as plt  # only where it is wanted

    figure.tight_layout()
    if output is None:
        plt.show()
    else:
        figure.savefig(output, dpi=110)
        print(f"wrote {output}")
