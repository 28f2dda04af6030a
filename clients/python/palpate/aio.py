"""Servers and scenes with async: the names of `palpate`, as coroutines and async iterators.

    async with await palpate.aio.launch() as server:
        async with await server.create("scenes/slab.json", play=True) as scene:
            async for frame in scene.watch(max_rate_hz=30):
                print(frame.step)
"""
from __future__ import annotations

import asyncio
import contextlib
import time
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, Union

import grpc
import grpc.aio
import numpy as np

from . import _requests, errors
from ._connection import OPTIONS, Backoff, Stubs, Target, Tls
from ._convert import PoseLike, SpecLike, fill, quaternion, scene_spec, tool_pose, vec3
from ._program import PathLike, ServerProcess
from ._requests import EditLike, RateLike
from .frames import Frame, LocalModel
from .topology import Topology, TopologyMirror
from .v1 import control_pb2, edit_pb2, haptics_pb2, scene_pb2, stream_pb2


class _Connection:
    """A channel of grpc.aio; belongs to the loop it was made in."""

    def __init__(self, target: Target) -> None:
        self.target = target
        credentials = target.credentials()
        self._channel = (grpc.aio.insecure_channel(target.address, OPTIONS) if credentials is None else
                         grpc.aio.secure_channel(target.address, credentials, OPTIONS))
        self.stubs = Stubs(self._channel)

    async def wait_until_ready(self, timeout_s: float) -> None:
        try:
            await asyncio.wait_for(self._channel.channel_ready(), timeout_s)
        except asyncio.TimeoutError:
            raise errors.Unavailable(f"{self.target.address}: no server answers within {timeout_s:g} s") from None

    async def call(self, method: Callable[..., Awaitable[Any]], request: Any, timeout_s: Optional[float] = None,
                   repeatable: bool = False) -> Any:
        backoff = Backoff(self.target.patience_s)
        while True:
            try:
                return await method(request, timeout=timeout_s, metadata=self.target.metadata)
            except grpc.RpcError as failure:
                error = errors.of_rpc(failure)
                pause = backoff.next_s() if repeatable and isinstance(error, errors.Unavailable) else None
                if pause is None:
                    raise error from None
            await asyncio.sleep(pause)

    async def close(self) -> None:
        await self._channel.close()


class Server:
    """A connection to a server; an async context manager."""

    def __init__(self, connection: _Connection, process: Optional[ServerProcess] = None) -> None:
        self._connection, self._process = connection, process

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    @property
    def target(self) -> str:
        """HOST:PORT."""
        return self._connection.target.address

    async def close(self) -> None:
        """Ends calls and streams, and a server that was launched."""
        await self._connection.close()
        if self._process is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._process.close)

    async def info(self) -> "control_pb2.GetServerInfoResponse":
        """Version, device and limits."""
        return await self._connection.call(self._connection.stubs.scenes.GetServerInfo, control_pb2.GetServerInfoRequest(), repeatable=True)

    async def create(self, spec: SpecLike, scene_id: str = "", *, play: bool = False, rate: RateLike = None) -> "Scene":
        """As palpate.Server.create."""
        request = _requests.create(spec, scene_id, play, rate)
        response = await self._connection.call(self._connection.stubs.scenes.CreateScene, request)
        return Scene(self._connection, response.scene.scene_id)

    async def check(self, spec: SpecLike) -> "control_pb2.CheckSceneResponse":
        """As palpate.Server.check."""
        request = control_pb2.CheckSceneRequest(spec=scene_spec(spec))
        return await self._connection.call(self._connection.stubs.scenes.CheckScene, request, repeatable=True)

    async def scene(self, scene_id: str) -> "Scene":
        """One that exists. Errors: NotFound."""
        scene = Scene(self._connection, scene_id)
        await scene.info()
        return scene

    async def scenes(self) -> List["Scene"]:
        """All there are, in order of id."""
        response = await self._connection.call(self._connection.stubs.scenes.ListScenes, control_pb2.ListScenesRequest(), repeatable=True)
        return [Scene(self._connection, info.scene_id) for info in response.scenes]


async def connect(target: str, *, token: Optional[str] = None, tls: Tls = None, patience_s: float = 10.0, timeout_s: float = 10.0) -> Server:
    """As palpate.connect."""
    connection = _Connection(Target(target, token, tls, patience_s))
    try:
        await connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        await connection.close()
        raise
    return Server(connection)


async def launch(*, program: Optional[PathLike] = None, arguments: Sequence[str] = (), environment: Optional[Mapping[str, str]] = None,
                 log_level: str = "warning", patience_s: float = 30.0, timeout_s: float = 300.0) -> Server:
    """Starts a server as palpate.launch does; `arguments`: more of palpate-server's."""
    process = ServerProcess(program, arguments, environment, False, log_level, timeout_s)
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, process.start)
        connection = _Connection(Target(f"127.0.0.1:{process.grpc_port}", patience_s=patience_s))
        await connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        process.close()
        raise
    return Server(connection, process)


class Scene:
    """One scene on a server. As an async context manager it is deleted at the end."""

    def __init__(self, connection: _Connection, scene_id: str) -> None:
        self._connection = connection
        self.id = scene_id
        """Its id on the server."""

    async def __aenter__(self) -> "Scene":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        with contextlib.suppress(errors.NotFound, errors.Unavailable):
            await self.delete()

    async def info(self) -> "control_pb2.SceneInfo":
        """State, step, hash, bodies, tools. Errors: NotFound."""
        request = control_pb2.GetSceneRequest(scene_id=self.id)
        return (await self._connection.call(self._connection.stubs.scenes.GetScene, request, repeatable=True)).scene

    async def play(self) -> "control_pb2.SceneInfo":
        """Lets the scene step by itself."""
        request = control_pb2.PlaySceneRequest(scene_id=self.id)
        return (await self._connection.call(self._connection.stubs.scenes.PlayScene, request, repeatable=True)).scene

    async def pause(self) -> "control_pb2.SceneInfo":
        """On return no step is running."""
        request = control_pb2.PauseSceneRequest(scene_id=self.id)
        return (await self._connection.call(self._connection.stubs.scenes.PauseScene, request, repeatable=True)).scene

    async def step(self, count: int = 1, poses: Optional[Mapping[str, PoseLike]] = None, *, timeout_s: Optional[float] = None) -> "control_pb2.SceneInfo":
        """As palpate.Scene.step."""
        request = _requests.step(self.id, count, poses)
        return (await self._connection.call(self._connection.stubs.scenes.StepScene, request, timeout_s)).scene

    async def reset(self, client_name: str = "") -> "control_pb2.SceneInfo":
        """Back to the rest state, without any edit."""
        request = control_pb2.ResetSceneRequest(scene_id=self.id, client_name=client_name)
        return (await self._connection.call(self._connection.stubs.scenes.ResetScene, request, repeatable=True)).scene

    async def rate(self, value: RateLike) -> "control_pb2.SceneInfo":
        """How fast the scene plays: "real_time", "fast", or simulated seconds per wall second."""
        request = control_pb2.SetSceneRateRequest(scene_id=self.id, rate=_requests.rate(value))
        return (await self._connection.call(self._connection.stubs.scenes.SetSceneRate, request, repeatable=True)).scene

    async def delete(self) -> None:
        """Frees it. Errors: NotFound."""
        await self._connection.call(self._connection.stubs.scenes.DeleteScene, control_pb2.DeleteSceneRequest(scene_id=self.id))

    async def export(self, body: str = "", format: str = "obj") -> bytes:
        """As palpate.Scene.export."""
        request = _requests.export(self.id, body, format)
        data: bytes = (await self._connection.call(self._connection.stubs.scenes.ExportScene, request, repeatable=True)).data
        return data

    async def edit(self, edits: Union[EditLike, Sequence[EditLike]], *, key: Optional[str] = None,
                   expected_topology_version: Optional[int] = None) -> "edit_pb2.EditSceneResponse":
        """As palpate.Scene.edit."""
        request = _requests.edit(self.id, edits, key, expected_topology_version)
        return await self._connection.call(self._connection.stubs.edits.EditScene, request, repeatable=bool(request.key))

    async def carve(self, body: str, *, ball: Optional[Tuple[Any, float]] = None, capsule: Optional[Tuple[Any, Any, float]] = None,
                    tets: Optional[Iterable[int]] = None, zone: Optional[str] = None) -> "edit_pb2.EditOutcome":
        """As palpate.Scene.carve."""
        return (await self.edit({"body": body, "carve": {"region": _requests.region(ball, capsule, tets, zone)}})).outcomes[0]

    async def refine(self, body: str, max_edge_m: float, *, ball: Optional[Tuple[Any, float]] = None,
                     capsule: Optional[Tuple[Any, Any, float]] = None, tets: Optional[Iterable[int]] = None,
                     zone: Optional[str] = None, tet_budget: Optional[int] = None) -> "edit_pb2.EditOutcome":
        """As palpate.Scene.refine."""
        values: Dict[str, Any] = {"region": _requests.region(ball, capsule, tets, zone), "max_edge_m": max_edge_m}
        if tet_budget is not None:
            values["tet_budget"] = tet_budget
        return (await self.edit({"body": body, "refine": values})).outcomes[0]

    async def incise(self, body: str, edges: Any) -> "edit_pb2.EditOutcome":
        """As palpate.Scene.incise."""
        return (await self.edit({"body": body, "incise": {"edges": _requests.blade(edges)}})).outcomes[0]

    async def material(self, body: str, values: Union["scene_pb2.MaterialSpec", Mapping[str, Any]], zone: str = "") -> "edit_pb2.EditOutcome":
        """As palpate.Scene.material."""
        return (await self.edit(edit_pb2.Edit(body=body, material=_requests.material(values, zone)))).outcomes[0]

    async def grasp(self, tool: str, radius_m: Optional[float] = None) -> "edit_pb2.EditOutcome":
        """Takes hold of the tissue at a tool's jaws."""
        return (await self.edit({"grasp": {"tool": tool, **({} if radius_m is None else {"radius_m": radius_m})}})).outcomes[0]

    async def release(self, tool: str) -> "edit_pb2.EditOutcome":
        """Lets go of what a tool holds."""
        return (await self.edit({"release": {"tool": tool}})).outcomes[0]

    def watch(self, *, positions: str = "float32", contacts: bool = True, tools: bool = True, volume: bool = False,
              max_rate_hz: Optional[float] = None, contact_bodies: Sequence[str] = (), patience_s: Optional[float] = None) -> "Watch":
        """As palpate.Scene.watch: an async iterator and context manager."""
        request = _requests.watch(self.id, positions, contacts, tools, volume, max_rate_hz, contact_bodies)
        return Watch(self._connection, request, self._connection.target.patience_s if patience_s is None else patience_s)

    async def frame(self, *, volume: bool = False) -> Frame:
        """The present state."""
        async with self.watch(volume=volume) as frames:
            return await frames.__anext__()

    async def operate(self, tool: str, *, station: str = "python", max_stiffness_n_per_m: float = 0.0) -> "Tool":
        """Takes a tool in the hand, as palpate.Scene.operate."""
        out = Tool(self._connection)
        await out._attach(_requests.attach(self.id, tool, station, max_stiffness_n_per_m))  # pylint: disable=protected-access
        return out


class Watch(AsyncIterator[Frame]):
    """Frames of a scene, as palpate.Watch."""

    def __init__(self, connection: _Connection, request: "stream_pb2.WatchRequest", patience_s: float) -> None:
        self._connection, self._request, self._patience_s = connection, request, patience_s
        self._mirror = TopologyMirror()
        self._backoff: Optional[Backoff] = None
        self._closed = False
        self.reconnects = 0
        """How often the stream was opened again."""
        self._call: Any = None

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    @property
    def topology(self) -> Topology:
        """Of the newest frame."""
        return self._mirror.topology

    def close(self) -> None:
        """Ends the stream; the iterator ends."""
        self._closed = True
        if self._call is not None:
            self._call.cancel()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> Frame:
        """The next frame. Errors: as palpate.Watch."""
        while not self._closed:
            if self._call is None:
                self._call = self._connection.stubs.streams.Watch(self._request, metadata=self._connection.target.metadata)
            try:
                update = await self._call.read()
                if update is grpc.aio.EOF:
                    raise errors.of_code((await self._call.code()).name, await self._call.details())
                frame = self._take(update)
            except grpc.RpcError as error:
                await self._recover(errors.of_rpc(error))
            except errors.Unavailable as error:
                await self._recover(error)
            except asyncio.CancelledError:
                if self._closed:
                    break
                raise
            else:
                if frame is not None:
                    return frame
        raise StopAsyncIteration

    def _take(self, update: "stream_pb2.WatchUpdate") -> Optional[Frame]:
        kind = update.WhichOneof("update")
        if kind == "delta":
            self._mirror.delta(update.delta)
            return None
        frame = update.frame
        if kind == "keyframe":
            self._mirror.keyframe(update.keyframe)
            self._backoff, frame = None, update.keyframe.frame
        self._mirror.check(frame)
        return Frame(frame, self._mirror.topology)

    async def _recover(self, error: errors.PalpateError) -> None:
        if self._closed:
            return
        if not isinstance(error, errors.Unavailable):
            raise error
        if self._backoff is None:
            self._backoff = Backoff(self._patience_s)
        pause = self._backoff.next_s()
        if pause is None:
            raise error
        await asyncio.sleep(pause)
        self.reconnects += 1
        self._call = None


class Tool:
    """A tool in the hand, as palpate.Tool."""

    attached: "haptics_pb2.Attached"
    """What the tool is: its size, kind, where it is."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection
        self._call: Any = None
        self._sequence = 0
        self._model: Optional[LocalModel] = None

    async def _attach(self, attach: "haptics_pb2.OperateRequest") -> None:
        self._call = self._connection.stubs.haptics.Operate(metadata=self._connection.target.metadata)
        try:
            await self._call.write(attach)
            first = await self._read()
        except grpc.RpcError as error:
            raise errors.of_rpc(error) from None
        self.attached = first.attached

    async def _read(self) -> "haptics_pb2.OperateUpdate":
        update = await self._call.read()
        if update is grpc.aio.EOF:
            raise errors.of_code((await self._call.code()).name, await self._call.details())
        return update

    async def __aenter__(self) -> "Tool":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    @property
    def position_m(self) -> np.ndarray:
        """[3] where the tool was when it was taken, in W."""
        return vec3(self.attached.pose.position_m)

    @property
    def rotation(self) -> np.ndarray:
        """[4] how it was turned then."""
        return quaternion(self.attached.pose.rotation)

    async def move(self, pose: PoseLike, **fields: Any) -> int:
        """Tells the tool where to be; returns the number of the pose. Errors: those that have ended the stream."""
        message = tool_pose(pose)
        if fields:
            fill(message, fields, "pose")
        self._sequence += 1
        message.sequence = self._sequence
        message.station_time_us = time.monotonic_ns() // 1000
        try:
            await self._call.write(haptics_pb2.OperateRequest(pose=message))
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise errors.of_code((await self._call.code()).name, await self._call.details()) from None
        return self._sequence

    async def wait(self, sequence: int = 0, timeout_s: float = 10.0) -> LocalModel:
        """The first model whose step used this pose or a later one. Errors: DeadlineExceeded, those that have ended the stream."""
        end = time.monotonic() + timeout_s
        while self._model is None or self._model.pose_sequence < sequence:
            try:
                update = await asyncio.wait_for(self._read(), max(0.0, end - time.monotonic()))
            except asyncio.TimeoutError:
                raise errors.DeadlineExceeded(f"no local model of pose {sequence} within {timeout_s:g} s; does the scene step?") from None
            except grpc.RpcError as error:
                raise errors.of_rpc(error) from None
            if update.WhichOneof("update") == "model":
                self._model = LocalModel(update.model)
        return self._model

    async def close(self) -> None:
        """Lets the tool go."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await self._call.done_writing()
            self._call.cancel()


__all__: List[str] = ["Scene", "Server", "Tool", "Watch", "connect", "launch"]
