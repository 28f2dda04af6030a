"""Palpate from Python: start a server or connect to one, make scenes, step them, watch, cut, feel, and train on many at once.

    import palpate
    with palpate.launch() as server:
        scene = server.create("scenes/slab.json")
        scene.step(10, poses={"probe": (0, 0, 0.008)})
        print(scene.frame().force("probe"))
"""
from . import errors, policy
from .batch import Batch, BatchResult
from .builder import SceneBuilder
from .env import Actions, Env, TipMotion, TipPosition, Transition, VectorEnv
from .errors import (Aborted, AlreadyExists, Cancelled, DataLoss, DeadlineExceeded, FailedPrecondition, Internal, InvalidArgument, NotFound,
                     OutOfRange, PalpateError, ResourceExhausted, Unauthenticated, Unavailable, Unimplemented)
from .frames import CONTACT_DTYPE, JOINT_DTYPE, MARKER_DTYPE, OBSTACLE, SUPPORT_DTYPE, SURFACE_CONTACT_DTYPE, Frame, LocalModel, ToolState
from .scenes import LocalServer, Recorder, Scene, Server, Tool, Watch, connect, launch
from .spaces import Box
from .station import Station, StationTick
from .topology import Body, Topology, TopologyMirror

__version__ = "0.1.0"

__all__ = [
    "Aborted", "Actions", "AlreadyExists", "Batch", "BatchResult", "Body", "Box", "CONTACT_DTYPE", "Cancelled", "DataLoss", "DeadlineExceeded", "Env", "FailedPrecondition", "Frame",
    "Internal", "InvalidArgument", "JOINT_DTYPE", "LocalModel", "LocalServer", "MARKER_DTYPE", "NotFound", "OBSTACLE", "OutOfRange", "PalpateError", "Recorder",
    "ResourceExhausted", "SUPPORT_DTYPE", "SURFACE_CONTACT_DTYPE", "Scene", "SceneBuilder", "Server", "Station", "StationTick", "TipMotion", "TipPosition", "Tool", "ToolState", "Topology", "TopologyMirror",
    "Transition",    "Unauthenticated", "Unavailable", "Unimplemented", "VectorEnv", "Watch", "connect", "errors", "launch", "policy",
]
