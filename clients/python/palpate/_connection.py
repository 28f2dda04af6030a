"""A channel to a server, with its token, its certificate, and patience."""
from __future__ import annotations

import dataclasses
import os
import pathlib
import time
from typing import Any, Callable, List, Optional, Tuple, TypeVar, Union

import grpc

from . import errors
from .v1 import batch_pb2, control_pb2_grpc, edit_pb2_grpc, haptics_pb2_grpc, record_pb2_grpc, stream_pb2_grpc

T = TypeVar("T")
Tls = Union[bool, str, "os.PathLike[str]", None]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0

OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # The library's own pauses between attempts go up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Channels of one process to one server would share a connection, and its flow control, otherwise.
    ("grpc.use_local_subchannel_pool", 1),
)


class Backoff:
    """Pauses between attempts, each twice as long as the one before, until the patience is over."""

    def __init__(self, patience_s: float) -> None:
        self._end = time.monotonic() + patience_s
        self._pause_s = FIRST_PAUSE_S

    def next_s(self) -> Optional[float]:
        """How long to wait before the next attempt; None: there is none."""
        left = self._end - time.monotonic()
        if left <= 0:
            return None
        pause, self._pause_s = min(self._pause_s, left), min(2 * self._pause_s, LONGEST_PAUSE_S)
        return pause


@dataclasses.dataclass(frozen=True)
class Target:
    """Where a server is, and what it takes to talk to it."""

    address: str
    token: Optional[str] = None
    tls: Tls = None
    patience_s: float = 10.0

    def credentials(self) -> Optional[grpc.ChannelCredentials]:
        """None: without TLS. Errors: NotFound (certificate file)."""
        if self.tls is None or self.tls is False:
            return None
        if self.tls is True:
            return grpc.ssl_channel_credentials()
        path = pathlib.Path(self.tls)
        try:
            return grpc.ssl_channel_credentials(path.read_bytes())
        except OSError as error:
            raise errors.NotFound(f"tls: {path}: {error.strerror}") from error

    @property
    def metadata(self) -> List[Tuple[str, str]]:
        """Of each call."""
        return [] if self.token is None else [("authorization", f"Bearer {self.token}")]


class Stubs:
    """The services over a channel of either kind."""

    def __init__(self, channel: Any) -> None:
        self.scenes = control_pb2_grpc.SceneServiceStub(channel)
        self.edits = edit_pb2_grpc.EditServiceStub(channel)
        self.streams = stream_pb2_grpc.StreamServiceStub(channel)
        self.haptics = haptics_pb2_grpc.HapticServiceStub(channel)
        self.records = record_pb2_grpc.RecordServiceStub(channel)
        # Its answers stay bytes, for the arrays in them.
        self.run_batch = channel.stream_stream("/palpate.v1.BatchService/RunBatch", request_serializer=batch_pb2.BatchRequest.SerializeToString)


class Connection:
    """A blocking channel. Thread-safe."""

    def __init__(self, target: Target) -> None:
        self.target = target
        credentials = target.credentials()
        self._channel = (grpc.insecure_channel(target.address, OPTIONS) if credentials is None else
                         grpc.secure_channel(target.address, credentials, OPTIONS))
        self.stubs = Stubs(self._channel)

    def wait_until_ready(self, timeout_s: float) -> None:
        """Errors: Unavailable."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError:
            raise errors.Unavailable(f"{self.target.address}: no server answers within {timeout_s:g} s") from None

    def call(self, method: Callable[..., T], request: Any, timeout_s: Optional[float] = None, repeatable: bool = False) -> T:
        """A unary call. One that may be repeated goes on trying while the server cannot be reached, for the target's patience."""
        backoff = Backoff(self.target.patience_s)
        while True:
            try:
                return method(request, timeout=timeout_s, metadata=self.target.metadata)
            except grpc.RpcError as failure:
                error = errors.of_rpc(failure)
                pause = backoff.next_s() if repeatable and isinstance(error, errors.Unavailable) else None
                if pause is None:
                    raise error from None
            time.sleep(pause)

    def stream(self, method: Callable[..., Any], request: Any) -> Any:
        """A call with a stream of answers, or of both."""
        return method(request, metadata=self.target.metadata)

    def close(self) -> None:
        """Ends what is under way."""
        self._channel.close()
