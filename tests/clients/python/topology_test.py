#!/usr/bin/env python3
"""The reader's copy of a topology: known answers of docs/streaming.md, random edits against arrays made anew, and messages that make no sense."""
import random
import unittest

import numpy as np

from palpate import DataLoss, topology
from palpate.v1 import stream_pb2

MASK = (1 << 64) - 1


def u32(*rows):
    return np.array(rows, np.uint32)


class HashTest(unittest.TestCase):
    """The table of docs/streaming.md, "Mesh hash"."""

    def test_known_answers(self):
        for slot, triangle, zone, expected in [(0, (0, 1, 2), 0, 0xac0384c8a72943ac), (7, (5, 6, 8), 2, 0x7cd99ce37c3d9b92),
                                               (4294967295, (4294967294, 1, 2), 9, 0x4bd474e54de8c36b)]:
            self.assertEqual(int(topology.triangle_hashes(u32(slot), u32(triangle), u32(zone))[0]), expected)
        for slot, tet, expected in [(0, (0, 1, 2, 3), 0xb45ef7fd4682d806), (11, (13, 17, 19, 23), 0x9a05db4493505e2e)]:
            self.assertEqual(int(topology.tet_hashes(u32(slot), u32(tet))[0]), expected)
        for place, uv, expected in [(0, (1, 0), 0xca6b4292f51227c2), (7, (0.1, -2.5), 0x41fd161c62c09471)]:
            self.assertEqual(int(topology.texture_hashes(u32(place), np.array([uv], np.float32))[0]), expected)
        for slot, corners, expected in [(0, ((1, 0), (0, 1), (0.5, 0.5)), 0x845a376a051eb226),
                                        (9, ((0.1, -2.5), (0, 0), (3, 0.25)), 0xddf37d91c9a95a94)]:
            self.assertEqual(int(topology.corner_hashes(u32(slot), np.array([corners], np.float32))[0]), expected)

    def test_free_slots_count_as_nothing(self):
        self.assertEqual(int(topology.triangle_hashes(u32(3), u32((0, 0, 0)), u32(1))[0]), 0)
        self.assertEqual(int(topology.tet_hashes(u32(3), u32((0, 0, 0, 0)))[0]), 0)
        self.assertEqual(int(topology.texture_hashes(u32(3), np.zeros((1, 2), np.float32))[0]), 0)
        self.assertEqual(int(topology.corner_hashes(u32(3), np.zeros((1, 3, 2), np.float32))[0]), 0)


class Model:
    """A body as a server would keep it, with messages made from nothing but its arrays."""

    def __init__(self, rng, name, by_corner=False):
        self.rng, self.name, self.by_corner = rng, name, by_corner
        self.vertex_count = 12
        self.triangles = [self.triangle() for _ in range(8)]
        self.zones = [rng.randrange(3) for _ in self.triangles]
        self.tets = [self.tet() for _ in range(5)]
        self.texture = [] if by_corner else [(rng.random(), -rng.random()) for _ in range(self.vertex_count)]
        self.corners = [self.corners_of(triangle) for triangle in self.triangles]

    def triangle(self):
        return tuple(self.rng.sample(range(self.vertex_count), 3))

    def corners_of(self, triangle):
        if not self.by_corner or not any(triangle):
            return (0.0,) * 6
        return tuple(float(np.float32(self.rng.choice((0.0, self.rng.random())))) for _ in range(6))

    def tet(self):
        return tuple(self.rng.sample(range(self.vertex_count), 4))

    def hash(self):
        total = 0
        for slot, (triangle, zone) in enumerate(zip(self.triangles, self.zones)):
            total += int(topology.triangle_hashes(u32(slot), u32(triangle), u32(zone))[0])
        for slot, tet in enumerate(self.tets):
            total += int(topology.tet_hashes(u32(slot), u32(tet))[0])
        for place, uv in enumerate(self.texture):
            total += int(topology.texture_hashes(u32(place), np.array([uv], np.float32))[0])
        for slot, corners in enumerate(self.corners):
            total += int(topology.corner_hashes(u32(slot), np.array(corners, np.float32).reshape(1, 3, 2))[0])
        return total & MASK

    def whole(self):
        out = stream_pb2.BodyTopology(name=self.name, vertex_count=self.vertex_count, triangle_zones=self.zones, mesh_hash=self.hash())
        out.triangles.extend(i for triangle in self.triangles for i in triangle)
        out.tets.extend(i for tet in self.tets for i in tet)
        out.texture.by_corner = self.by_corner
        if self.by_corner:
            out.texture_corners.extend(x for corners in self.corners for x in corners)
        out.texture_coordinates.extend(x for uv in self.texture for x in uv)
        return out

    def edit(self, index):
        """Changes the arrays at random and says how."""
        rng = self.rng
        self.vertex_count = max(8, self.vertex_count + rng.randrange(-1, 4))
        old = (list(self.triangles), list(self.zones), list(self.tets), list(self.texture))
        size = lambda values, low: max(low, len(values) + rng.randrange(-2, 4))
        self.triangles = (old[0] + [(0, 0, 0)] * 9)[:size(old[0], 2)]
        self.zones = (old[1] + [0] * 9)[:len(self.triangles)]
        self.tets = (old[2] + [(0, 0, 0, 0)] * 9)[:size(old[2], 1)]
        self.texture = [] if self.by_corner else (old[3] + [(0.0, 0.0)] * 9)[:self.vertex_count]
        self.corners = (self.corners + [(0.0,) * 6] * 9)[:len(self.triangles)]
        for slot in rng.sample(range(len(self.triangles)), 2):
            self.triangles[slot] = self.triangle() if rng.random() < 0.7 else (0, 0, 0)
            self.zones[slot] = rng.randrange(3)
            self.corners[slot] = self.corners_of(self.triangles[slot])
        self.tets[rng.randrange(len(self.tets))] = self.tet()
        if self.texture:
            self.texture[rng.randrange(self.vertex_count)] = (rng.random(), 0.0)
        out = stream_pb2.BodyDelta(body_index=index, vertex_count=self.vertex_count, triangle_count=len(self.triangles),
                                   tet_count=len(self.tets), mesh_hash=self.hash())
        padded = [part + [None] * 20 for part in old]
        for slot, triangle in enumerate(self.triangles):
            if triangle != (padded[0][slot] or (0, 0, 0)) or self.zones[slot] != (padded[1][slot] or 0):
                out.triangle_slots.append(slot)
                out.triangles.extend(triangle)
                out.triangle_zones.append(self.zones[slot])
                out.texture_corners.extend(self.corners[slot] if self.by_corner else ())
        for slot, tet in enumerate(self.tets):
            if tet != (padded[2][slot] or (0, 0, 0, 0)):
                out.tet_slots.append(slot)
                out.tets.extend(tet)
        for place, uv in enumerate(self.texture):
            if uv != (padded[3][place] or (0.0, 0.0)):
                out.texture_vertices.append(place)
                out.texture_coordinates.extend(uv)
        return out


class MirrorTest(unittest.TestCase):

    def compare(self, body, model):
        np.testing.assert_array_equal(body.triangle_slots, np.array(model.triangles))
        np.testing.assert_array_equal(body.zone_slots, model.zones)
        np.testing.assert_array_equal(body.tet_slots, np.array(model.tets))
        if model.by_corner:
            self.assertIsNone(body.texture_coordinates)
            np.testing.assert_array_equal(body.texture_corners, np.array(model.corners, np.float32).reshape(-1, 3, 2))
        else:
            self.assertIsNone(body.texture_corners)
            np.testing.assert_array_equal(body.texture_coordinates, np.array(model.texture, np.float32))
        self.assertEqual(body.mesh_hash, model.hash())

    def test_random_edits(self):
        rng = random.Random(1)
        models = [Model(rng, "a"), Model(rng, "b", by_corner=True)]
        mirror = topology.TopologyMirror()
        mirror.keyframe(stream_pb2.Keyframe(topology_version=5, bodies=[model.whole() for model in models]))
        version = 5
        for i in range(40):
            kept = mirror.topology
            before = [body.triangle_slots.copy() for body in kept.bodies]
            index = rng.randrange(len(models))
            delta = stream_pb2.TopologyDelta(from_version=version, to_version=version + 2, bodies=[models[index].edit(index)])
            if i % 20 == 10:
                models.append(Model(rng, f"piece{i}", by_corner=True))
                delta.new_bodies.append(models[-1].whole())
            version += 2
            mirror.delta(delta)
            self.assertEqual(mirror.topology.version, version)
            for body, model in zip(mirror.topology.bodies, models):
                self.compare(body, model)
            # What an older frame belongs to has not changed under it.
            for body, triangles in zip(kept.bodies, before):
                np.testing.assert_array_equal(body.triangle_slots, triangles)

    def test_arrays_are_read_only(self):
        mirror = topology.TopologyMirror()
        mirror.keyframe(stream_pb2.Keyframe(topology_version=1, bodies=[Model(random.Random(2), "a").whole()]))
        with self.assertRaises(ValueError):
            mirror.topology["a"].triangle_slots[0, 0] = 1

    def test_nonsense_is_named(self):
        def delta(change, by_corner=False):
            model = Model(random.Random(3), "a", by_corner)
            mirror = topology.TopologyMirror()
            mirror.keyframe(stream_pb2.Keyframe(topology_version=1, bodies=[model.whole()]))
            message = stream_pb2.TopologyDelta(from_version=1, to_version=2, bodies=[model.edit(0)])
            change(message)
            mirror.delta(message)

        delta(lambda message: None)
        delta(lambda message: None, by_corner=True)
        for change, words, *by_corner in [
            (lambda m: setattr(m, "from_version", 7), "came at version 1"),
            (lambda m: setattr(m.bodies[0], "mesh_hash", 1), "the server's 0000000000000001"),
            (lambda m: setattr(m.bodies[0], "body_index", 9), "outside [0, 1)"),
            (lambda m: m.bodies[0].triangle_slots.append(0), "do not fit together"),
            (lambda m: m.bodies[0].triangles.__setitem__(0, 99), "outside [0, "),
            (lambda m: m.bodies[0].texture_coordinates.append(1), "make no sense"),
            (lambda m: m.bodies[0].texture_corners.extend([0] * 6), "coordinates of a body without"),
            (lambda m: m.bodies[0].texture_corners.append(1), "make no sense", True),
            (lambda m: m.bodies[0].texture_corners.extend([0] * 6), "do not fit together", True),
            (lambda m: m.bodies[0].texture_corners.__setitem__(0, 7), "the arrays have the hash", True),
            (lambda m: m.bodies[0].texture_corners.__setitem__(0, float("nan")), "make no sense", True),
        ]:
            with self.assertRaises(DataLoss) as caught:
                delta(change, *by_corner)
            self.assertIn(words, str(caught.exception))

    def test_frames_of_another_version(self):
        mirror = topology.TopologyMirror()
        mirror.keyframe(stream_pb2.Keyframe(topology_version=4, bodies=[Model(random.Random(4), "a").whole()]))
        mirror.check(stream_pb2.Frame(topology_version=4, bodies=[stream_pb2.BodyFrame()]))
        for frame in (stream_pb2.Frame(topology_version=5), stream_pb2.Frame(topology_version=4, bodies=[stream_pb2.BodyFrame()] * 2),
                      stream_pb2.Frame(topology_version=4, bodies=[stream_pb2.BodyFrame()], markers=[stream_pb2.MarkerState()])):
            with self.assertRaises(DataLoss):
                mirror.check(frame)


if __name__ == "__main__":
    unittest.main()
