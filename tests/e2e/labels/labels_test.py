#!/usr/bin/env python3
"""From the labels of a volume to forces: palpate mesh from-labels, scene from-mesh, a zone a label on a server, VTU out. usage: labels_test.py PALPATE"""
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import numpy as np

import palpate

PALPATE = ""
LABELS = ("liver", "tumor")
SPACING_M = np.array((0.001, 0.001, 0.0015))
SHAPE = (48, 40, 24)
RADII_M = {"liver": (0.02, 0.016, 0.014), "tumor": (0.007, 0.007, 0.006)}
STIFF_PA = 60000


def label_volume():
    """An ellipsoid of liver with a smaller one of tumour under its top, as a segmentation of 3D Slicer; and its labels, [x, y, z]."""
    places = [(np.arange(n) - (n - 1) / 2) * step for n, step in zip(SHAPE, SPACING_M)]
    grid = np.meshgrid(*places, indexing="ij")
    labels = np.zeros(SHAPE, np.uint8)
    for number, (name, height_m) in enumerate((("liver", 0.0), ("tumor", 0.006)), 1):
        offset = (0, 0, height_m)
        labels[sum(((axis - middle) / radius) ** 2 for axis, middle, radius in zip(grid, offset, RADII_M[name])) < 1] = number
    head = ["NRRD0004", "type: uint8", "dimension: 3", f"sizes: {SHAPE[0]} {SHAPE[1]} {SHAPE[2]}", "encoding: gzip", "space: left-posterior-superior",
            f"space directions: ({1000 * SPACING_M[0]},0,0) (0,{1000 * SPACING_M[1]},0) (0,0,{1000 * SPACING_M[2]})", "space origin: (0,0,0)"]
    head += [line for i, name in enumerate(LABELS) for line in (f"Segment{i}_Name:={name}", f"Segment{i}_LabelValue:={i + 1}")]
    return "\n".join([*head, "", ""]).encode() + gzip.compress(labels.tobytes(order="F")), labels


def vtu_arrays(data):
    """Arrays of a VTU file by name, as ParaView reads it: declared in XML, raw behind it."""
    begin = data.index(b"_", data.index(b"<AppendedData")) + 1
    tree = xml.etree.ElementTree.fromstring(data[:data.index(b"<AppendedData")] + b"</VTKFile>")
    types = {"Float32": "<f4", "Int32": "<i4", "UInt8": "u1", "UInt16": "<u2"}
    out = {}
    for array in tree.iter("DataArray"):
        if array.get("format") == "appended":
            at = begin + int(array.get("offset"))
            size = int.from_bytes(data[at:at + 8], "little")
            out[array.get("Name")] = np.frombuffer(data[at + 8:at + 8 + size], types[array.get("type")])
    piece = next(tree.iter("Piece"))
    return out, int(piece.get("NumberOfPoints")), int(piece.get("NumberOfCells"))


class LabelsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        data, cls.labels = label_volume()
        (cls.folder / "organ.nrrd").write_bytes(data)
        listing = cls.run_palpate("mesh", "from-labels", "organ.nrrd", "--list", check=False)
        if "libinsighttoolkit5-dev" in listing.stderr:
            raise unittest.SkipTest("built without ITK")
        made = cls.run_palpate("mesh", "from-labels", "organ.nrrd", "--edge-length", "0.004", "--edge-lengths", "tumor=0.0025", "-o", "organ.msh", "--json")
        cls.made = json.loads(made.stdout)
        cls.run_palpate("scene", "from-mesh", "organ.msh", "-o", "scene.json")
        cls.spec = json.loads((cls.folder / "scene.json").read_text(encoding="utf-8"))
        cls.server = palpate.launch(asset_root=cls.folder)
        cls.addClassCleanup(cls.server.close)

    @classmethod
    def run_palpate(cls, *arguments, check=True):
        result = subprocess.run([PALPATE, *arguments], cwd=cls.folder, capture_output=True, text=True, check=False)
        if check and result.returncode != 0:
            raise AssertionError(f"palpate {' '.join(arguments)}: {result.stderr}")
        return result

    def scene(self, tumor_pa):
        """The scene that the command made, with a stiffness for the tumour and a probe that goes exactly where it is told."""
        spec = json.loads(json.dumps(self.spec))
        zones = spec["bodies"][0]["zones"]
        self.assertEqual([zone["name"] for zone in zones], list(LABELS))
        zones[1]["material"]["young_modulus_pa"] = tumor_pa
        spec["tools"][0]["drive"] = "TOOL_DRIVE_DIRECT"
        for key in ("mass_kg", "coupling_stiffness_n_per_m"):
            spec["tools"][0].pop(key, None)
        return self.server.create(spec)

    def pressed(self, scene, depth_m=0.004):
        """Presses the probe into the top above the tumour; the force at the end."""
        top = scene.frame().positions()[:, 2].max() + self.spec["tools"][0]["radius_m"]
        for step in range(60):
            height = top - depth_m * min(1.0, step / 30)
            scene.step(1, poses={"probe": (0, 0, height)})
            frame = scene.frame()
            self.assertTrue(np.isfinite(frame.force("probe")).all(), step)
            self.assertTrue(np.isfinite(frame.positions()).all(), step)
        return scene.frame().force("probe")

    def zone_volumes(self, scene):
        arrays, points, cells = vtu_arrays(scene.export(format="vtu"))
        self.assertEqual(cells, self.made["tets"])
        places, corners = arrays["Points"].reshape(-1, 3).astype(float), arrays["connectivity"].reshape(-1, 4)
        self.assertEqual(len(places), points)
        self.assertTrue(np.isfinite(places).all())
        edges = places[corners[:, 1:]] - places[corners[:, :1]]
        volumes = np.linalg.det(edges) / 6
        self.assertGreater(volumes.min(), 0, "no tet is turned inside out")
        zones = arrays["zone"]
        self.assertEqual([int((zones == i + 1).sum()) for i in range(2)], [label["tets"] for label in self.made["labels"]])
        return np.array([volumes[zones == i + 1].sum() for i in range(2)])

    def voxel_volumes(self):
        return np.array([(self.labels == i + 1).sum() for i in range(2)]) * SPACING_M.prod()

    def test_the_mesh_has_the_volumes_of_the_labels(self):
        self.assertEqual([label["name"] for label in self.made["labels"]], list(LABELS))
        self.assertEqual(self.made["warnings"], [])
        np.testing.assert_allclose([label["volume_m3"] for label in self.made["labels"]], self.voxel_volumes(), rtol=0.01)

    def test_a_zone_a_label_under_a_probe(self):
        with self.scene(STIFF_PA) as scene:
            info = scene.info()
            self.assertEqual(info.bodies[0].tet_count, self.made["tets"])
            np.testing.assert_allclose(self.zone_volumes(scene), self.voxel_volumes(), rtol=0.01)
            stiff = self.pressed(scene)
            frame = scene.frame()
            # The tissue pushes back, and what the probe feels is what the tissue feels.
            self.assertGreater(stiff[2], 0.02)
            np.testing.assert_allclose(stiff, -frame.contacts["force_n"].sum(axis=0), atol=1e-5)
            # Tissue is nearly incompressible, and the stiff tumour more than the liver keeps its shape.
            volumes = self.zone_volumes(scene)
            np.testing.assert_allclose(volumes, self.voxel_volumes(), rtol=0.03)
            self.assertAlmostEqual(volumes.sum() / self.voxel_volumes().sum(), 1, delta=0.02)
        with self.scene(self.spec["bodies"][0]["zones"][0]["material"]["young_modulus_pa"]) as scene:
            soft = self.pressed(scene)
        self.assertGreater(stiff[2], 1.2 * soft[2], "what is a zone by its label is felt")


if __name__ == "__main__":
    PALPATE = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
