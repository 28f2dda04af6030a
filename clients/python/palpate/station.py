"""A hand of one's own on a training station: the stiff loop of 1 kHz runs in palpate-station, with its safety and its local contact model;
the hand that it moves is played by Python, tick by tick, over a local socket."""
from __future__ import annotations

import contextlib
import json
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Type

import numpy as np

from . import errors
from ._connection import Connection
from ._convert import PoseLike, tool_pose
from ._program import PathLike, find_program

PROGRAM = "palpate-station"
_POSE = struct.Struct("<14d2I")     # ControllerPose of clients/station/controller_device.h
_FORCE = struct.Struct("<Qd6dQ2I")  # ControllerForce
_HAS_VELOCITY, _HAS_GRIP = 1, 2


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


class Station:
    """palpate-station as a child process, whose hand is moved by `move` and felt by `ticks`. A context manager.

        with scene.station("probe") as hand:
            for tick in hand.ticks(seconds=2):
                hand.move(controller(tick.force_n))

    Places are in W. The station never waits: without a new pose the hand stands still, and after 0.1 s its buttons are let go."""

    def __init__(self, connection: Connection, scene_id: str, tool: str, start: PoseLike, *, profile: str = "omega.3", name: str = "python",
                 program: Optional[PathLike] = None, arguments: Sequence[str] = (), timeout_s: float = 30.0) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="palpate-")
        self._socket: Optional[socket.socket] = None
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._poses = 0
        self._tick = 0
        self.report: Optional[Dict[str, Any]] = None
        """What the station wrote when it ended: rates, ages of models, forces, energies. None while it runs."""
        try:
            path = pathlib.Path(self._folder.name) / "hand"
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                listener.bind(os.fspath(path))
                listener.listen(1)
                command = [os.fspath(find_program(program, PROGRAM, "PALPATE_STATION")), "--server", connection.target.address, "--scene", scene_id,
                           "--tool", tool, "--device", f"controller:{path},profile={profile}", "--origin", "0", "0", "0", "--name", name,
                           "--report", os.fspath(self._path("report.json")), "--quiet", "--log-level", "warning", "--wait", f"{timeout_s:g}",
                           *self._credentials(connection), *arguments]
                with open(self._path("station.log"), "wb") as log:
                    self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                self._socket = self._accepted(listener, time.monotonic() + timeout_s)
            self.move(start)
        except BaseException:
            self._end()
            raise

    def _path(self, name: str) -> pathlib.Path:
        return pathlib.Path(self._folder.name) / name

    def _credentials(self, connection: Connection) -> List[str]:
        target, out = connection.target, []
        if target.tls is not None and target.tls is not False:
            out += ["--tls-ca", "/etc/ssl/certs/ca-certificates.crt" if target.tls is True else os.fspath(target.tls)]
        if target.token is not None:
            token = self._path("token")
            token.touch(mode=0o600)
            token.write_text(target.token + "\n", encoding="utf-8")
            out += ["--token-file", os.fspath(token)]
        return out

    def _accepted(self, listener: socket.socket, end: float) -> socket.socket:
        listener.settimeout(0.05)
        while True:
            with contextlib.suppress(socket.timeout):
                accepted = listener.accept()[0]
                accepted.setblocking(True)
                return accepted
            self._raise_if_failed()
            if time.monotonic() > end:
                raise errors.DeadlineExceeded(f"{PROGRAM} did not start in time; its last words:\n{self.last_words()}")

    def __enter__(self) -> "Station":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

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

    def move(self, pose: PoseLike, *, velocity_m_per_s: Optional[Sequence[float]] = None, angular_velocity_rad_per_s: Sequence[float] = (0, 0, 0),
             grip: Optional[float] = None, buttons: int = 0) -> int:
        """Where the hand is, in W: a place of the tip, or (place, rotation w x y z). `velocity_m_per_s`: else the station derives it.
        `grip`: 0 closed to 1 open. `buttons`: one bit each. Returns the number of the pose. Errors: InvalidArgument (pose)."""
        message = tool_pose(pose).pose
        place = (message.position_m.x, message.position_m.y, message.position_m.z)
        turn = (message.rotation.w, message.rotation.x, message.rotation.y, message.rotation.z) if message.HasField("rotation") else (1.0, 0.0, 0.0, 0.0)
        flags = (_HAS_VELOCITY if velocity_m_per_s is not None else 0) | (_HAS_GRIP if grip is not None else 0)
        values = (*place, *turn, *(velocity_m_per_s if velocity_m_per_s is not None else (0, 0, 0)), *angular_velocity_rad_per_s, grip or 0.0)
        if len(values) != 14 or not np.isfinite(values).all():
            raise errors.InvalidArgument(f"pose: {values} are not 14 finite numbers")
        if self._socket is not None:
            # A station that is gone is told of by `ticks`.
            with contextlib.suppress(OSError):
                self._socket.send(_POSE.pack(*values, buttons, flags))
        self._poses += 1
        return self._poses

    def ticks(self, seconds: Optional[float] = None) -> Iterator[StationTick]:
        """The station's ticks as they come, latest wins, for `seconds` of its clock from the first that moves the tool (default: until
        `close`). What is moved in between acts in the next tick. Errors: FailedPrecondition (the tool could not be taken), Unavailable (it
        failed), InvalidArgument (arguments); all with its last words."""
        begin: Optional[float] = None
        while self._socket is not None:
            tick = self._next_tick()
            if tick is None:
                if self._process is not None:
                    self._process.wait(timeout=30)
                self._raise_if_failed()
                return
            if tick.is_engaged and begin is None:
                begin = tick.time_s
            if seconds is not None and begin is not None and tick.time_s - begin > seconds:
                return
            yield tick

    def _next_tick(self) -> Optional[StationTick]:
        """None: the station has ended."""
        assert self._socket is not None
        data = b""
        try:
            data = self._socket.recv(_FORCE.size)
            while data and (newer := self._socket.recv(_FORCE.size, socket.MSG_DONTWAIT)):
                data = newer
        except BlockingIOError:
            pass
        except ConnectionResetError:
            return None
        if not data:
            return None
        fields = _FORCE.unpack(data)
        missed, self._tick = max(0, fields[0] - self._tick - 1), fields[0]
        return StationTick(fields[0], fields[1], np.array(fields[2:5]), np.array(fields[5:8]), bool(fields[9] & 1), fields[8], missed)

    def close(self) -> None:
        """Lets the tool go, ends the station and reads its report."""
        self._end()

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()  # the station ends in order
            self._socket = None
        if self._process is not None:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
            with contextlib.suppress(OSError, ValueError):
                self.report = json.loads(self._path("report.json").read_text(encoding="utf-8"))
        self._folder.cleanup()
