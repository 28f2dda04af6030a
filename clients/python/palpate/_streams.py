"""What streams do with their messages, whichever way these come: shared by the classes with and without async."""
from __future__ import annotations

import collections
import os
import pathlib
import threading
from typing import Any, BinaryIO, Deque, Mapping, Optional, Union

import numpy as np

from . import _requests, errors
from ._connection import Backoff
from ._convert import PoseLike, quaternion, vec3
from .frames import Frame, LocalModel
from .topology import Topology, TopologyMirror
from .v1 import haptics_pb2, stream_pb2


class Follower:
    """Makes frames of the messages of a watch, and knows when to try again."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._mirror = TopologyMirror()
        self._backoff: Optional[Backoff] = None
        self._closed = False
        self.reconnects = 0
        """How often the stream was opened again."""
        self.keyframe: Optional["stream_pb2.Keyframe"] = None
        """The newest: obstacles, gravity."""

    @property
    def topology(self) -> Topology:
        """Of the newest frame."""
        return self._mirror.topology

    def _take(self, update: "stream_pb2.WatchUpdate") -> Optional[Frame]:
        """The frame of a message that has one. Errors: DataLoss."""
        kind = update.WhichOneof("update")
        if kind == "delta":
            self._mirror.delta(update.delta)
            return None
        frame = update.frame
        if kind == "keyframe":
            self._mirror.keyframe(update.keyframe)
            self.keyframe, self._backoff = update.keyframe, None
            frame = update.keyframe.frame
        self._mirror.check(frame)
        return Frame(frame, self._mirror.topology)

    def _pause_s(self, error: errors.PalpateError) -> float:
        """How long to wait before the stream is opened again; raises the error if it is not to be."""
        if not isinstance(error, errors.Unavailable):
            raise error
        if self._backoff is None:
            self._backoff = Backoff(self._patience_s)
        pause = self._backoff.next_s()
        if pause is None:
            raise error
        return pause


class Hand:
    """Numbers the poses of a tool and keeps what came back."""

    attached: "haptics_pb2.Attached"
    """What the tool is: its size, kind, where it is."""

    def __init__(self) -> None:
        self._sequence = 0
        self._model: Optional[LocalModel] = None
        self._error: Optional[errors.PalpateError] = None
        self._is_over = False

    @property
    def position_m(self) -> np.ndarray:
        """[3] where the tool was when it was taken, in W."""
        return vec3(self.attached.pose.position_m)

    @property
    def rotation(self) -> np.ndarray:
        """[4] how it was turned then."""
        return quaternion(self.attached.pose.rotation)

    @property
    def model(self) -> Optional[LocalModel]:
        """The newest local model; None before the first."""
        return self._model

    def _taken(self, update: "haptics_pb2.OperateUpdate") -> None:
        self.attached = update.attached

    def _next_pose(self, pose: PoseLike, fields: Mapping[str, Any]) -> "haptics_pb2.OperateRequest":
        out = _requests.pose(pose, fields, self._sequence + 1)
        self._sequence += 1
        return out

    def _raise_if_over(self) -> None:
        if self._is_over:
            raise self._error if self._error is not None else errors.Unavailable("the stream has ended")


class PoseQueue:
    """What a hand sends: the attach first, then poses. A slow server does not make it grow: of poses that wait only the newest is kept, and
    the last one before each change of the pedal, MAX_POSES together. An iterator for one reader, which ends after `close`; thread-safe."""

    MAX_POSES = 16

    def __init__(self, attach: "haptics_pb2.OperateRequest") -> None:
        self._attach: Optional["haptics_pb2.OperateRequest"] = attach
        self._poses: "Deque[haptics_pb2.OperateRequest]" = collections.deque(maxlen=self.MAX_POSES)
        self._is_closed = False
        self._news = threading.Condition()

    def put(self, request: "haptics_pb2.OperateRequest") -> None:
        with self._news:
            if self._poses and self._poses[-1].pose.pedal == request.pose.pedal:
                self._poses.pop()
            self._poses.append(request)
            self._news.notify()

    def close(self) -> None:
        """What waits is still given out."""
        with self._news:
            self._is_closed = True
            self._news.notify()

    def __iter__(self) -> "PoseQueue":
        return self

    def __next__(self) -> "haptics_pb2.OperateRequest":
        with self._news:
            if self._attach is not None:
                attach, self._attach = self._attach, None
                return attach
            while not self._poses:
                if self._is_closed:
                    raise StopIteration
                self._news.wait()
            return self._poses.popleft()


class ChunkFile:
    """Chunks of a stream as a file, which is made with the first of them: a call that fails leaves what is there as it is. `whole`: it has
    its name when it is complete. Errors: of_os."""

    def __init__(self, path: "Union[str, os.PathLike[str]]", whole: bool) -> None:
        self.path = pathlib.Path(path)
        self.size_bytes = 0
        self._written = self.path.with_name(self.path.name + ".part") if whole else self.path
        self._file: Optional[BinaryIO] = None

    def write(self, data: bytes) -> None:
        """Appends, down to the operating system."""
        try:
            if self._file is None:
                self._file = open(self._written, "wb", buffering=0)  # pylint: disable=consider-using-with
            rest = memoryview(data)
            while rest:
                rest = rest[self._file.write(rest):]
        except OSError as error:
            raise errors.of_os(self._written, error) from error
        self.size_bytes += len(data)

    def finish(self) -> int:
        """Gives it its name; returns its size."""
        self.close()
        try:
            if self._written != self.path:
                self._written.replace(self.path)
        except OSError as error:
            raise errors.of_os(self.path, error) from error
        return self.size_bytes

    def discard(self) -> None:
        """Leaves nothing of a file that is not whole."""
        if self._file is not None:
            self.close()
            if self._written != self.path:
                self._written.unlink(missing_ok=True)

    def close(self) -> None:
        """Nothing is written any more."""
        if self._file is not None:
            self._file.close()
