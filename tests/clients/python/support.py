"""What the tests of the Python package share."""
import palpate

PATIENCE_S = 120  # only a failure takes so long


def phantom(edge_length_m=0.01, young_modulus_pa=10000, **fields):
    """A slab on a base under a probe that goes exactly where it is told: 360 tets."""
    return (palpate.SceneBuilder("phantom", **fields)
            .body("slab", "slab", {"size_m": (0.06, 0.06, 0.02)}, edge_length_m=edge_length_m,
                  material={"model": "corotated_linear", "young_modulus_pa": young_modulus_pa, "poisson_ratio": 0.4})
            .fixed_below(-0.0099)
            .tool("probe", (0, 0, 0.03), radius_m=0.004, drive="direct"))
