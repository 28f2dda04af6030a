"""A hand of one's own on a training station: the stiff loop of 1 kHz runs in palpate-station, with its safety and its local contact model;
the hand that it moves is played by Python, tick by tick, over a local socket."""
from __future__ import annotations

import contextlib
import socket
import time
from types import TracebackType
from typing import Iterator, Optional, Sequence, Type

from ._connection import Connection
from ._convert import PoseLike
from ._program import PathLike
from ._station import POLL_S, TICK_BYTES, StationProcess, StationTick, TickTimer, pose_message


class Station(StationProcess):
    """palpate-station as a child process, whose hand is moved by `move` and felt by `ticks`. A context manager.

        with scene.station("probe") as hand:
            for tick in hand.ticks(seconds=2):
                hand.move(controller(tick.force_n))

    Places are in W. The station never waits: without a new pose the hand stands still, and after 0.1 s its buttons are let go."""

    def __init__(self, connection: Connection, scene_id: str, tool: str, start: PoseLike, *, profile: str = "omega.3", name: str = "python",
                 program: Optional[PathLike] = None, arguments: Sequence[str] = (), timeout_s: float = 30.0) -> None:
        super().__init__()
        try:
            with self._launched(connection.target, scene_id, tool, profile, name, program, arguments, timeout_s) as listener:
                self._socket = self._accepted(listener, time.monotonic() + timeout_s)
            self.move(start)
        except BaseException:
            self.close()
            raise

    def _accepted(self, listener: socket.socket, end: float) -> socket.socket:
        listener.settimeout(POLL_S)
        while True:
            with contextlib.suppress(socket.timeout):
                accepted = listener.accept()[0]
                accepted.setblocking(True)
                return accepted
            self._raise_if_failed()
            if time.monotonic() > end:
                raise self._too_late()

    def __enter__(self) -> "Station":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def move(self, pose: PoseLike, *, velocity_m_per_s: Optional[Sequence[float]] = None, angular_velocity_rad_per_s: Sequence[float] = (0, 0, 0),
             grip: Optional[float] = None, buttons: int = 0) -> int:
        """Where the hand is, in W: a place of the tip, or (place, rotation w x y z). `velocity_m_per_s`: else the station derives it.
        `grip`: 0 closed to 1 open. `buttons`: one bit each. Returns the number of the pose. Errors: InvalidArgument (pose)."""
        message = pose_message(pose, velocity_m_per_s, angular_velocity_rad_per_s, grip, buttons)
        if self._socket is not None:
            # A station that is gone is told of by `ticks`.
            with contextlib.suppress(OSError):
                self._socket.send(message)
        self._poses += 1
        return self._poses

    def ticks(self, seconds: Optional[float] = None) -> Iterator[StationTick]:
        """The station's ticks as they come, latest wins, for `seconds` of its clock from the first that moves the tool (default: until
        `close`). What is moved in between acts in the next tick. Errors: FailedPrecondition (the tool could not be taken), Unavailable (it
        failed), InvalidArgument (arguments); all with its last words."""
        timer = TickTimer(seconds)
        while self._socket is not None:
            tick = self._next_tick()
            if tick is None:
                if self._process is not None:
                    self._process.wait(timeout=30)
                self._raise_if_failed()
                return
            if timer.is_over(tick):
                return
            yield tick

    def _next_tick(self) -> Optional[StationTick]:
        """None: the station has ended."""
        assert self._socket is not None
        with contextlib.suppress(ConnectionResetError):
            return self._newest(self._socket.recv(TICK_BYTES))
        return None

    def close(self) -> None:
        """Lets the tool go, ends the station and reads its report."""
        if self._socket is not None:
            self._socket.close()  # the station ends in order
            self._socket = None
        self._end_process()


__all__ = ["Station", "StationTick"]
