"""palpate-station as a child process and the messages of the hand it listens to, whichever way these are waited for."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from . import errors
from ._connection import Target
from ._convert import PoseLike, tool_pose
from ._program import PathLike, find_program
from .frames import Frame

PROGRAM = "palpate-station"
_POSE = struct.Struct("<14d2I")     # ControllerPose of clients/station/controller_device.h
_FORCE = struct.Struct("<Qd6dQ2I")  # ControllerForce
_HAS_VELOCITY, _HAS_GRIP = 1, 2
POLL_S = 0.05
"""Between two looks at a station that starts."""


class StationTick(NamedTuple):
    """What the station says in a tick of its loop."""

    tick: int
    """Counts from 1."""
    time_s: float
    """Its clock."""
    force_n: np.ndarray
    """[3] on the hand at the tip, in W."""
    torque_n_m: np.ndarray
    """[3] about the tip."""
    is_engaged: bool
    """It moves the tool; before that, and after a loss of the server, there is no force."""
    pose: int
    """Number of the pose that the force is of, as `move` gave it."""
    missed: int
    """Ticks since the last one that was fetched, whose forces came and went."""


def tool_place(frame: Frame, tool: str) -> Tuple[np.ndarray, np.ndarray]:
    """Where a tool is. Errors: NotFound."""
    tools = frame.tools
    if tool not in tools:
        raise errors.NotFound(f"tool: the scene has no tool {tool!r}; it has {', '.join(map(repr, tools)) or 'none'}")
    return tools[tool].position_m, tools[tool].rotation


def pose_message(pose: PoseLike, velocity_m_per_s: Optional[Sequence[float]], angular_velocity_rad_per_s: Sequence[float],
                 grip: Optional[float], buttons: int) -> bytes:
    """A pose of the hand. Errors: InvalidArgument."""
    message = tool_pose(pose).pose
    place = (message.position_m.x, message.position_m.y, message.position_m.z)
    turn = (message.rotation.w, message.rotation.x, message.rotation.y, message.rotation.z) if message.HasField("rotation") else (1.0, 0.0, 0.0, 0.0)
    flags = (_HAS_VELOCITY if velocity_m_per_s is not None else 0) | (_HAS_GRIP if grip is not None else 0)
    values = (*place, *turn, *(velocity_m_per_s if velocity_m_per_s is not None else (0, 0, 0)), *angular_velocity_rad_per_s, grip or 0.0)
    if len(values) != 14 or not np.isfinite(values).all():
        raise errors.InvalidArgument(f"pose: {values} are not 14 finite numbers")
    return _POSE.pack(*values, buttons, flags)


class StationProcess:
    """The program, its folder and its socket."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="palpate-")
        self._socket: Optional[socket.socket] = None
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._poses = 0
        self._tick = 0
        self.report: Optional[Dict[str, Any]] = None
        """What the station wrote when it ended: rates, ages of models, forces, energies. None while it runs."""

    def _path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self._folder.name) / name

    def _launched(self, target: Target, scene_id: str, tool: str, profile: str, name: str, program: Optional[PathLike],
                  arguments: Sequence[str], timeout_s: float) -> socket.socket:
        """Starts the program; it is going to connect to the socket."""
        path = self._path("hand")
        command = [os.fspath(find_program(program, PROGRAM, "PALPATE_STATION")), "--server", target.address, "--scene", scene_id, "--tool", tool,
                   "--device", f"controller:{path},profile={profile}", "--origin", "0", "0", "0", "--name", name, "--report",
                   os.fspath(self._path("report.json")), "--quiet", "--log-level", "warning", "--wait", f"{timeout_s:g}",
                   *self._credentials(target), *arguments]
        with contextlib.ExitStack() as resources:
            listener = resources.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            listener.bind(os.fspath(path))
            listener.listen(1)
            with open(self._path("station.log"), "wb") as log:
                self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            resources.pop_all()
        return listener

    def _credentials(self, target: Target) -> List[str]:
        out: List[str] = []
        if target.tls is not None and target.tls is not False:
            out += ["--tls-ca", "/etc/ssl/certs/ca-certificates.crt" if target.tls is True else os.fspath(target.tls)]
        if target.token is not None:
            token = self._path("token")
            token.touch(mode=0o600)
            token.write_text(target.token + "\n", encoding="utf-8")
            out += ["--token-file", os.fspath(token)]
        return out

    def last_words(self) -> str:
        """The end of the station's log."""
        log = self._path("station.log")
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        return "\n".join("  " + line for line in lines[-15:]) or "  (no output)"

    def _raise_if_failed(self) -> None:
        status = self._process.poll() if self._process is not None else 0
        if status is None or status == 0:
            return
        kind = {2: errors.InvalidArgument, 3: errors.FailedPrecondition}.get(status, errors.Unavailable)
        raise kind(f"{PROGRAM} ended with status {status}; its last words:\n{self.last_words()}")

    def _too_late(self) -> errors.PalpateError:
        return errors.DeadlineExceeded(f"{PROGRAM} did not start in time; its last words:\n{self.last_words()}")

    def _newest(self, data: bytes) -> Optional[StationTick]:
        """The tick of a message, or of the newest that waits behind it. None: the station has ended."""
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError):
            while data and (newer := self._socket.recv(_FORCE.size, socket.MSG_DONTWAIT)):
                data = newer
        if not data:
            return None
        fields = _FORCE.unpack(data)
        missed, self._tick = max(0, fields[0] - self._tick - 1), fields[0]
        return StationTick(fields[0], fields[1], np.array(fields[2:5]), np.array(fields[5:8]), bool(fields[9] & 1), fields[8], missed)

    def _end_process(self) -> None:
        """Waits for the station, whose hand is gone, and reads its report."""
        process, self._process = self._process, None
        if process is not None:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            with contextlib.suppress(OSError, ValueError):
                self.report = json.loads(self._path("report.json").read_text(encoding="utf-8"))
        self._folder.cleanup()


class TickTimer:
    """Which ticks are within `seconds` of the first that moves the tool."""

    def __init__(self, seconds: Optional[float]) -> None:
        self._seconds = seconds
        self._begin_s: Optional[float] = None

    def is_over(self, tick: StationTick) -> bool:
        """The time is up."""
        if tick.is_engaged and self._begin_s is None:
            self._begin_s = tick.time_s
        return self._seconds is not None and self._begin_s is not None and tick.time_s - self._begin_s > self._seconds


TICK_BYTES = _FORCE.size
