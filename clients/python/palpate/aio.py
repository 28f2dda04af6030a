"""Servers and scenes with async: the names of `palpate`, as coroutines and async iterators.

    async with await palpate.aio.launch() as server:
        async with await server.create("scenes/slab.json", play=True) as scene:
            async for frame in scene.watch(max_rate_hz=30):
                print(frame.step)
"""
from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type, Union

import grpc
import grpc.aio
import numpy as np

from . import _requests, errors
from ._connection import OPTIONS, Backoff, Stubs, Target, Tls
from ._convert import PoseLike, SpecLike, made, scene_spec
from ._program import LocalProcess, PathLike, ServerProcess, server_process
from ._requests import EditLike, RateLike
from ._station import POLL_S, TICK_BYTES, StationProcess, StationTick, TickTimer, pose_message, tool_place
from ._streams import ChunkFile, Follower, Hand
from .batch import BatchResult, BatchState, PosesLike
from .env import Actions, Begun, Episodes, Goal, Randomize, RewardFunction, Stepped, SteppedOnly, T, Work, only
from .frames import Frame, LocalModel
from .spaces import Box
from .v1 import batch_pb2, control_pb2, edit_pb2, haptics_pb2, record_pb2, scene_pb2, stream_pb2


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

    def stream(self, method: Callable[..., Any], *request: Any) -> Any:
        """A call with a stream of answers, or of both."""
        return method(*request, metadata=self.target.metadata)

    async def close(self) -> None:
        await self._channel.close()


async def _next(call: Any) -> Any:
    """The next answer of a stream. Errors: those that ended it, Unavailable if none did."""
    try:
        update = await call.read()
    except grpc.RpcError as error:
        raise errors.of_rpc(error) from None
    if update is not grpc.aio.EOF:
        return update
    code = await call.code()
    raise errors.Unavailable("the stream has ended") if code is grpc.StatusCode.OK else errors.of_code(code.name, await call.details())


async def _chunks(call: Any) -> AsyncIterator[bytes]:
    """Until the stream has ended in order."""
    try:
        async for chunk in call:
            yield chunk.data
    except grpc.RpcError as error:
        raise errors.of_rpc(error) from None


class Server:
    """A connection to a server; an async context manager."""

    def __init__(self, connection: _Connection) -> None:
        self._connection = connection

    async def __aenter__(self) -> "Server":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    @property
    def target(self) -> str:
        """HOST:PORT."""
        return self._connection.target.address

    async def close(self) -> None:
        """Ends calls and streams under way. Scenes stay on the server."""
        await self._connection.close()

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

    async def open_recording(self, path: PathLike, scene_id: str = "", *, rate: RateLike = None, temporary: bool = False) -> "Scene":
        """As palpate.Server.open_recording."""
        request = _requests.recording(path, scene_id, rate, temporary)
        response = await self._connection.call(self._connection.stubs.records.OpenRecording, request)
        return Scene(self._connection, response.scene.scene_id)

    @property
    def connection(self) -> _Connection:
        """For other parts of this package."""
        return self._connection


class LocalServer(LocalProcess, Server):
    """A server of one's own, a child process that ends with this."""

    def __init__(self, process: ServerProcess, connection: _Connection) -> None:
        LocalProcess.__init__(self, process)
        Server.__init__(self, connection)

    async def __aenter__(self) -> "LocalServer":
        return self

    async def close(self) -> None:
        """Ends the server too."""
        await super().close()
        await asyncio.get_running_loop().run_in_executor(None, self._process.close)

    async def restart(self) -> None:
        """As palpate.LocalServer.restart."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._process.stop)
        await loop.run_in_executor(None, self._process.start)
        await self._connection.wait_until_ready(30)


async def connect(target: str, *, token: Optional[str] = None, tls: Tls = None, patience_s: float = 10.0, timeout_s: float = 10.0) -> Server:
    """As palpate.connect."""
    connection = _Connection(Target(target, token, tls, patience_s))
    try:
        await connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        await connection.close()
        raise
    return Server(connection)


async def launch(*, program: Optional[PathLike] = None, scenes: Sequence[PathLike] = (), device: Optional[str] = None,
                 state_dir: Optional[PathLike] = None, asset_root: Optional[PathLike] = None, http: bool = False, arguments: Sequence[str] = (),
                 environment: Optional[Mapping[str, str]] = None, log_level: str = "warning", patience_s: float = 30.0,
                 timeout_s: float = 300.0) -> LocalServer:
    """As palpate.launch."""
    process = server_process(program, scenes, device, state_dir, asset_root, http, arguments, environment, log_level, timeout_s)
    loop = asyncio.get_running_loop()
    try:
        await loop.run_in_executor(None, process.start)
        connection = _Connection(Target(f"127.0.0.1:{process.grpc_port}", patience_s=patience_s))
        await connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        process.close()
        raise
    return LocalServer(process, connection)


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

    async def spec(self) -> "scene_pb2.SceneSpec":
        """As created, inline meshes left out."""
        request = control_pb2.GetSceneRequest(scene_id=self.id)
        return (await self._connection.call(self._connection.stubs.scenes.GetScene, request, repeatable=True)).spec

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
                    tets: Optional[Iterable[int]] = None, zone: Optional[str] = None,
                    triangles: Optional[Iterable[int]] = None) -> "edit_pb2.EditOutcome":
        """As palpate.Scene.carve."""
        return (await self.edit({"body": body, "carve": {"region": _requests.region(ball, capsule, tets, zone, triangles)}})).outcomes[0]

    async def refine(self, body: str, max_edge_m: float, *, ball: Optional[Tuple[Any, float]] = None,
                     capsule: Optional[Tuple[Any, Any, float]] = None, tets: Optional[Iterable[int]] = None,
                     zone: Optional[str] = None, tet_budget: Optional[int] = None, triangles: Optional[Iterable[int]] = None,
                     triangle_budget: Optional[int] = None) -> "edit_pb2.EditOutcome":
        """As palpate.Scene.refine."""
        values: Dict[str, Any] = {"region": _requests.region(ball, capsule, tets, zone, triangles), "max_edge_m": max_edge_m}
        if tet_budget is not None:
            values["tet_budget"] = tet_budget
        if triangle_budget is not None:
            values["triangle_budget"] = triangle_budget
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

    async def drive(self, joint: str, change: Mapping[str, Any]) -> None:
        """As Scene.drive of `palpate`."""
        await self.edit({"joint": {"joint": joint, **change}})

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

    async def station(self, tool: str, *, start: Optional[PoseLike] = None, profile: str = "omega.3", name: str = "python",
                      program: Optional[PathLike] = None, arguments: Sequence[str] = (), timeout_s: float = 30.0) -> "Station":
        """Takes a tool in a hand that Python plays on a palpate-station of this machine, as palpate.Scene.station."""
        place = start if start is not None else tool_place(await self.frame(), tool)
        out = Station()
        await out._start(self._connection.target, self.id, tool, place, profile, name, program, arguments, timeout_s)  # pylint: disable=protected-access
        return out

    async def save(self, path: PathLike) -> int:
        """As palpate.Scene.save."""
        file = ChunkFile(path, whole=True)
        call = self._connection.stream(self._connection.stubs.records.SaveScene, record_pb2.SaveSceneRequest(scene_id=self.id))
        try:
            async for data in _chunks(call):
                file.write(data)
            return file.finish()
        finally:
            call.cancel()
            file.discard()

    async def record(self, path: PathLike, *, from_step: Optional[int] = None, from_begin: bool = False,
                     until_step: Optional[int] = None) -> "Recorder":
        """As palpate.Scene.record: an async context manager."""
        request = made(record_pb2.RecordSceneRequest, scene_id=self.id, from_begin=from_begin, from_step=from_step, until_step=until_step)
        out = Recorder(self._connection.stream(self._connection.stubs.records.RecordScene, request), path)
        await out._begun()  # pylint: disable=protected-access
        return out

    async def replay(self, replay_id: str = "", *, temporary: bool = False) -> "Scene":
        """As palpate.Scene.replay."""
        request = made(record_pb2.ReplaySceneRequest, scene_id=self.id, replay_id=replay_id, temporary=temporary)
        return Scene(self._connection, (await self._connection.call(self._connection.stubs.records.ReplayScene, request)).scene.scene_id)

    async def seek(self, target: Union[int, str]) -> "control_pb2.SceneInfo":
        """As palpate.Scene.seek."""
        request = _requests.seek(self.id, target)
        return (await self._connection.call(self._connection.stubs.records.SeekScene, request, repeatable=True)).scene

    async def branch(self, branch_id: str = "", *, play: bool = False) -> "Scene":
        """As palpate.Scene.branch."""
        request = made(record_pb2.BranchSceneRequest, scene_id=self.id, branch_id=branch_id, play=play)
        return Scene(self._connection, (await self._connection.call(self._connection.stubs.records.BranchScene, request)).scene.scene_id)

    async def timeline(self) -> "record_pb2.Timeline":
        """As palpate.Scene.timeline."""
        request = record_pb2.GetTimelineRequest(scene_id=self.id)
        return (await self._connection.call(self._connection.stubs.records.GetTimeline, request, repeatable=True)).timeline

    async def bookmark(self, name: str, position: Optional[int] = None, *, remove: bool = False) -> "record_pb2.Timeline":
        """As palpate.Scene.bookmark."""
        request = made(record_pb2.SetBookmarkRequest, scene_id=self.id, name=name, remove=remove, position=position)
        return (await self._connection.call(self._connection.stubs.records.SetBookmark, request, repeatable=True)).timeline


class Recorder:
    """A recording under way, as palpate.Recorder."""

    def __init__(self, call: Any, path: PathLike) -> None:
        self._call = call
        self._file = ChunkFile(path, whole=False)
        self.path = self._file.path
        """The file."""
        self._first = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async for data in _chunks(self._call):
                self._file.write(data)
                self._first.set()
        except asyncio.CancelledError:
            pass  # by close
        finally:
            self._call.cancel()
            self._file.close()
            self._first.set()

    async def _begun(self) -> None:
        await self._first.wait()
        if self.size_bytes == 0:
            await self._task

    @property
    def size_bytes(self) -> int:
        """Written so far."""
        return self._file.size_bytes

    async def __aenter__(self) -> "Recorder":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def wait(self) -> int:
        """Until the recording is complete (`until_step`); returns its size. Errors: those of the stream."""
        await asyncio.shield(self._task)
        return self.size_bytes

    async def close(self) -> int:
        """Ends the recording and returns its size. Errors: those of the stream."""
        self._call.cancel()
        with contextlib.suppress(errors.Cancelled):
            await self._task
        return self.size_bytes


class Watch(Follower, AsyncIterator[Frame]):
    """Frames of a scene, as palpate.Watch."""

    def __init__(self, connection: _Connection, request: "stream_pb2.WatchRequest", patience_s: float) -> None:
        super().__init__(patience_s)
        self._connection, self._request = connection, request
        self._call: Any = None

    async def __aenter__(self) -> "Watch":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

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
                self._call = self._connection.stream(self._connection.stubs.streams.Watch, self._request)
            try:
                frame = self._take(await _next(self._call))
            except errors.DataLoss:
                self._call.cancel()
                raise
            except errors.PalpateError as error:
                if self._closed:
                    break
                await asyncio.sleep(self._pause_s(error))
                self.reconnects += 1
                self._call = None
            except asyncio.CancelledError:
                if self._closed:
                    break
                raise
            else:
                if frame is not None:
                    return frame
        raise StopAsyncIteration


class Tool(Hand):
    """A tool in the hand, as palpate.Tool."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self._connection = connection
        self._call: Any = None
        self._news = asyncio.Event()
        self._task: Optional["asyncio.Task[None]"] = None

    async def _attach(self, attach: "haptics_pb2.OperateRequest") -> None:
        self._call = self._connection.stream(self._connection.stubs.haptics.Operate)
        try:
            await self._call.write(attach)
        except (grpc.RpcError, asyncio.InvalidStateError):
            pass  # the reading tells why
        self._taken(await _next(self._call))
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        try:
            while True:
                update = await _next(self._call)
                if update.WhichOneof("update") == "model":
                    self._model = LocalModel(update.model)
                    self._news.set()
        except errors.PalpateError as error:
            self._error = error
        except asyncio.CancelledError:
            pass  # by close
        finally:
            self._is_over = True
            self._news.set()

    async def __aenter__(self) -> "Tool":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def move(self, pose: PoseLike, **fields: Any) -> int:
        """As palpate.Tool.move."""
        self._raise_if_over()
        request = self._next_pose(pose, fields)
        try:
            await self._call.write(request)
        except (grpc.RpcError, asyncio.InvalidStateError):
            raise errors.of_code((await self._call.code()).name, await self._call.details()) from None
        return int(request.pose.sequence)

    async def wait(self, sequence: int = 0, timeout_s: float = 10.0, step: int = 0) -> LocalModel:
        """As palpate.Tool.wait; one coroutine at a time."""
        end = time.monotonic() + timeout_s
        while self._model is None or self._model.pose_sequence < sequence or self._model.step < step:
            self._raise_if_over()
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, end - time.monotonic()))
            except asyncio.TimeoutError:
                raise errors.DeadlineExceeded(f"no local model of pose {sequence} within {timeout_s:g} s; does the scene step?") from None
        return self._model

    async def close(self) -> None:
        """Lets the tool go."""
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError, asyncio.CancelledError):
            await self._call.done_writing()
        self._call.cancel()
        if self._task is not None:
            await self._task


class Station(StationProcess):
    """palpate-station as a child process, as palpate.Station; made by `Scene.station`. One coroutine at a time follows its ticks.

        async with await scene.station("probe") as hand:
            async for tick in hand.ticks(seconds=2):
                await hand.move(controller(tick.force_n))
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_closing = False

    async def _start(self, target: Target, scene_id: str, tool: str, start: PoseLike, profile: str, name: str, program: Optional[PathLike],
                     arguments: Sequence[str], timeout_s: float) -> None:
        try:
            with self._launched(target, scene_id, tool, profile, name, program, arguments, timeout_s) as listener:
                self._socket = await self._accepted(listener, time.monotonic() + timeout_s)
            await self.move(start)
        except BaseException:
            await self.close()
            raise

    async def _accepted(self, listener: socket.socket, end: float) -> socket.socket:
        listener.setblocking(False)
        accepting = asyncio.ensure_future(asyncio.get_running_loop().sock_accept(listener))
        try:
            while not (await asyncio.wait({accepting}, timeout=POLL_S))[0]:
                self._raise_if_failed()
                if time.monotonic() > end:
                    raise self._too_late()
            return (await accepting)[0]
        finally:
            accepting.cancel()

    async def __aenter__(self) -> "Station":
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def move(self, pose: PoseLike, *, velocity_m_per_s: Optional[Sequence[float]] = None,
                   angular_velocity_rad_per_s: Sequence[float] = (0, 0, 0), grip: Optional[float] = None, buttons: int = 0) -> int:
        """As palpate.Station.move."""
        message = pose_message(pose, velocity_m_per_s, angular_velocity_rad_per_s, grip, buttons)
        if self._socket is not None:
            with contextlib.suppress(OSError):  # a station that is gone is told of by `ticks`
                await asyncio.get_running_loop().sock_sendall(self._socket, message)
        self._poses += 1
        return self._poses

    async def ticks(self, seconds: Optional[float] = None) -> AsyncIterator[StationTick]:
        """As palpate.Station.ticks."""
        timer = TickTimer(seconds)
        while self._socket is not None and not self._is_closing:
            tick = await self._next_tick(self._socket)
            if tick is None:
                if not self._is_closing:
                    await self._ended()
                return
            if timer.is_over(tick):
                return
            yield tick

    async def _next_tick(self, hand: socket.socket) -> Optional[StationTick]:
        """None: the station has ended."""
        await asyncio.sleep(0)  # others have their turn, even where there is always a tick
        with contextlib.suppress(ConnectionResetError):
            return self._newest(await asyncio.get_running_loop().sock_recv(hand, TICK_BYTES))
        return None

    async def _ended(self) -> None:
        """Errors: what a station that failed says."""
        if self._process is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._process.wait, 30)
        self._raise_if_failed()

    async def close(self) -> None:
        """As palpate.Station.close; ticks that somebody follows end."""
        self._is_closing = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # the station ends in order
        await asyncio.get_running_loop().run_in_executor(None, self._end_process)
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Batch(BatchState):
    """As palpate.Batch, as an async context manager: it is opened when that is entered.

        async with palpate.aio.Batch(server, spec, 16, ["tool.probe.force"]) as batch:
            result = await batch.move("probe", positions)
    """

    def __init__(self, server: Server, spec: SpecLike, count: int, probes: Sequence[str] = ()) -> None:
        self._request = self._opening(spec, count, probes)
        self._connection = server.connection
        self._call: Any = None

    async def __aenter__(self) -> "Batch":
        self._call = self._connection.stream(self._connection.stubs.run_batch)
        self._opened(await self._ask(self._request))
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Frees the scenes."""
        if self._call is not None:
            self._call.cancel()

    async def _ask(self, request: "batch_pb2.BatchRequest") -> bytes:
        if self._call is None:
            raise errors.FailedPrecondition("the batch is not open; `async with` opens it")
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):  # the reading tells why
            await self._call.write(request)
        return bytes(await _next(self._call))

    async def step(self, steps: int = 1, poses: PosesLike = None, *, edits: Optional[Mapping[int, Sequence[EditLike]]] = None,
                   release: Optional[Mapping[int, Sequence[str]]] = None, only_named: bool = False) -> BatchResult:
        """As palpate.Batch.step."""
        return self._answered(await self._ask(self._step(steps, poses, edits, release, only_named)))

    async def move(self, tool: str, positions_m: np.ndarray, steps: int = 1, rotations: Optional[np.ndarray] = None,
                   environments: Optional[Sequence[int]] = None) -> BatchResult:
        """As palpate.Batch.move."""
        return self._answered(await self._ask(self._move(tool, positions_m, steps, rotations, environments)))

    async def reset(self, environments: Sequence[int] = (), material: Optional[Mapping[str, Any]] = None, *, zone: str = "",
                    body: str = "") -> BatchResult:
        """As palpate.Batch.reset."""
        return self._answered(await self._ask(self._reset(environments, material, zone, body)))


async def _carried_out(work: Work[T]) -> T:
    try:
        asked = next(work)
        while True:
            asked = work.send(await asked)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


class VectorEnv(Episodes):
    """As palpate.VectorEnv, as an async context manager: batch and spaces are there when that is entered. One coroutine at a time.

        async with palpate.aio.VectorEnv(spec, 16, probes, actions, server=server) as env:
            observations, infos = await env.reset(seed=1)
    """

    def __init__(self, spec: SpecLike, count: int, probes: Sequence[str], actions: Actions, *, reward: Optional[RewardFunction] = None,
                 steps_per_action: int = 1, max_steps: Optional[int] = None, randomize: Optional[Randomize] = None,
                 goal: Optional[Goal] = None, server: Optional[Server] = None) -> None:
        super().__init__(spec, count, actions, reward, steps_per_action, max_steps, randomize, goal)
        self._probes, self._server = probes, server
        self._resources = contextlib.AsyncExitStack()

    async def __aenter__(self) -> "VectorEnv":
        async with contextlib.AsyncExitStack() as resources:
            used = self._server if self._server is not None else await resources.enter_async_context(await launch())
            self._opened(await resources.enter_async_context(Batch(used, self._spec, self.num_envs, self._probes)))
            self._resources = resources.pop_all()
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Frees the scenes, and the server if it is one's own."""
        await self._resources.aclose()

    async def reset(self, *, seed: Optional[int] = None, options: Optional[Mapping[str, Any]] = None) -> Begun:
        """As palpate.VectorEnv.reset."""
        return await _carried_out(self._reset_all(seed))

    async def step(self, actions: np.ndarray) -> Stepped:
        """As palpate.VectorEnv.step."""
        return await _carried_out(self._step_all(actions))

    @property
    def batch(self) -> Batch:
        """The scenes themselves."""
        return self._batch  # type: ignore[no-any-return]


class Env:
    """As palpate.Env, as an async context manager."""

    action_space: Box
    """Of an action."""
    observation_space: Box
    """Of an observation."""
    columns: Tuple[str, ...]
    """Names of the observation's columns, without the goal's."""

    metadata: Dict[str, Any] = {"render_modes": []}

    def __init__(self, spec: SpecLike, probes: Sequence[str], actions: Actions, **options: Any) -> None:
        self._vector = VectorEnv(spec, 1, probes, actions, **options)

    async def __aenter__(self) -> "Env":
        await self._vector.__aenter__()
        self.action_space, self.observation_space = self._vector.single_action_space, self._vector.single_observation_space
        self.columns = self._vector.columns
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        await self.close()

    async def close(self) -> None:
        """Frees the scene."""
        await self._vector.close()

    async def reset(self, *, seed: Optional[int] = None, options: Optional[Mapping[str, Any]] = None) -> Begun:
        """Begins an episode."""
        observations, infos = await self._vector.reset(seed=seed, options=options)
        return observations[0], infos

    async def step(self, action: np.ndarray) -> SteppedOnly:
        """As palpate.Env.step."""
        return only(await self._vector.step(self._vector.only_action(action)))


__all__: List[str] = ["Batch", "Env", "LocalServer", "Recorder", "Scene", "Server", "Station", "Tool", "VectorEnv", "Watch", "connect", "launch"]
