#!/usr/bin/env python3
"""Draws a scene while it plays, in PyVista where that is installed, otherwise in matplotlib: a probe that circles over a liver. With --output
the last picture is written instead, and no window opens."""
import argparse
import importlib.util
import pathlib
import threading

import numpy as np

import palpate

SCENES = pathlib.Path(__file__).resolve().parents[3] / "scenes"

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--scene", type=pathlib.Path, default=SCENES / "liver.json", help="scene file (default: the liver)")
parser.add_argument("--frames", type=int, default=300, help="pictures to draw (default 300)")
parser.add_argument("--output", type=pathlib.Path, help="write the last picture to this file")
parser.add_argument("--library", choices=("auto", "pyvista", "matplotlib"), default="auto")
options = parser.parse_args()


class MatplotlibView:
    """One collection of triangles a body, whose corners change."""

    def __init__(self):
        import matplotlib
        if options.output is not None:
            matplotlib.use("Agg")
        import matplotlib.pyplot as plt
        from mpl_toolkits.mplot3d.art3d import Poly3DCollection
        self.plt, self.collection = plt, Poly3DCollection
        self.figure = plt.figure(figsize=(7, 5))
        self.axes = self.figure.add_subplot(projection="3d")
        self.axes.set_box_aspect((1, 1, 1), zoom=1.5)
        self.axes.set_axis_off()
        self.bodies, self.tools, self.version = [], None, None

    def draw(self, frame):
        """A picture; new collections only where the topology has changed."""
        if self.version != frame.topology.version:
            for body in self.bodies:
                body.remove()
            self.bodies = [self.collection([], linewidths=0.2) for _ in frame.topology.bodies]
            for body in self.bodies:
                self.axes.add_collection3d(body)
            self.version = frame.topology.version
        light = np.array([0.3, -0.5, 0.8])
        corners = []
        for i, body in enumerate(frame.topology.bodies):
            triangles = frame.positions(i)[body.triangles].astype(float)
            normals = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
            normals /= np.linalg.norm(normals, axis=1, keepdims=True) + 1e-30
            shade = 0.35 + 0.65 * np.clip(normals @ light, 0, 1)
            self.bodies[i].set_verts(triangles)
            self.bodies[i].set_facecolor(np.clip(np.sqrt(body.color)[None] * shade[:, None], 0, 1))
            self.bodies[i].set_edgecolor((0, 0, 0, 0.15))
            corners.append(triangles.reshape(-1, 3))
        if self.tools is not None:
            self.tools.remove()
        ends = [(tool.position_m, tool.position_m + palpate.frames.rotation_matrix(tool.rotation)[:, 2] * shape.length_m)
                for tool, shape in zip(frame.tools.values(), frame.topology.tools)]
        from mpl_toolkits.mplot3d.art3d import Line3DCollection
        self.tools = self.axes.add_collection3d(Line3DCollection(ends, colors="0.3", linewidths=4))
        points = np.concatenate(corners)
        middle, reach = points.mean(axis=0), np.ptp(points, axis=0).max() / 2
        self.axes.set(xlim=middle[0] + [-reach, reach], ylim=middle[1] + [-reach, reach], zlim=middle[2] + [-reach, reach])
        self.axes.set_title(f"{frame.time_s:.2f} s, {sum(len(body.triangles) for body in frame.topology.bodies)} triangles, {len(frame.contacts)} contacts")
        if options.output is None:
            self.plt.pause(0.001)

    def close(self):
        """Writes the last picture if it is wanted."""
        if options.output is not None:
            self.figure.savefig(options.output, dpi=110)
            print(f"wrote {options.output}")


class PyVistaView:
    """One mesh a body, whose points change."""

    def __init__(self):
        import pyvista
        self.plotter = pyvista.Plotter(off_screen=options.output is not None)
        self.meshes, self.actors, self.tools, self.version, self.pyvista = [], [], [], None, pyvista
        self.is_shown = False

    def draw(self, frame):
        """A picture; new meshes only where the topology has changed."""
        if self.version != frame.topology.version:
            for actor in self.actors:  # clear() would take the lights away too
                self.plotter.remove_actor(actor)
            self.meshes, self.actors = [], []
            for i, body in enumerate(frame.topology.bodies):
                faces = np.hstack([np.full((len(body.triangles), 1), 3), body.triangles])
                self.meshes.append(self.pyvista.PolyData(frame.positions(i).copy(), faces))
                self.actors.append(self.plotter.add_mesh(self.meshes[-1], color=np.sqrt(body.color), smooth_shading=True))
            self.version = frame.topology.version
        for i, mesh in enumerate(self.meshes):
            mesh.points = frame.positions(i).copy()
            mesh.compute_normals(cell_normals=False, consistent_normals=False, inplace=True)
        for tool in self.tools:
            self.plotter.remove_actor(tool)
        self.tools = [self.plotter.add_mesh(self.pyvista.Tube(tool.position_m, tool.position_m + palpate.frames.rotation_matrix(tool.rotation)[:, 2] * shape.length_m,
                                                              radius=shape.radius_m), color="silver")
                      for tool, shape in zip(frame.tools.values(), frame.topology.tools)]
        if options.output is not None:
            self.plotter.render()  # without a window there are no events
            return
        if not self.is_shown:
            self.plotter.show(interactive_update=True, auto_close=False)
            self.is_shown = True
        self.plotter.update()

    def close(self):
        """Writes the last picture if it is wanted."""
        if options.output is not None:
            self.plotter.screenshot(options.output)
            print(f"wrote {options.output}")
        self.plotter.close()


def circle(tool, stop):
    """Moves a tool along a circle over the tissue and into it, 100 times a second, until told to stop."""
    start, k = tool.position_m, 0
    while not stop.wait(0.01):
        k += 1
        angle = 0.03 * k
        tool.move(start + np.array([0.03 * np.sin(angle), 0.03 * (1 - np.cos(angle)), -min(0.05, 0.0005 * k)]))


use_pyvista = options.library == "pyvista" or (options.library == "auto" and importlib.util.find_spec("pyvista") is not None)
with palpate.launch() as server, server.create(options.scene, play=True) as scene:
    view = PyVistaView() if use_pyvista else MatplotlibView()
    names, stop = scene.info().tools, threading.Event()
    with scene.operate(names[0]) as tool, scene.watch(max_rate_hz=30) as frames:
        hand = threading.Thread(target=circle, args=(tool, stop))
        hand.start()
        try:
            for count, frame in enumerate(frames, start=1):
                view.draw(frame)
                if count >= options.frames:
                    break
        finally:
            stop.set()
            hand.join()
    print(f"{count} pictures of {len(frame.topology.bodies)} bodies, at last step {frame.step}, {frame.dropped} frames left out")
    view.close()
