"""Servers and scenes, the blocking way. `palpate.aio` has the same with async."""
from __future__ import annotations

import contextlib
import threading
import time
from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Type, Union

import grpc

from . import _requests, errors
from ._connection import Connection, Target, Tls
from ._convert import PoseLike, SpecLike, made, scene_spec
from ._program import LocalProcess, PathLike, ServerProcess, server_process
from ._requests import EditLike, RateLike
from ._station import tool_place
from ._streams import ChunkFile, Follower, Hand, PoseQueue
from .frames import Frame, LocalModel
from .station import Station
from .v1 import control_pb2, edit_pb2, haptics_pb2, record_pb2, scene_pb2, stream_pb2


class Server:
    """A connection to a server. A context manager; thread-safe. Made by `connect` and `launch`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    @property
    def target(self) -> str:
        """HOST:PORT."""
        return self._connection.target.address

    def close(self) -> None:
        """Ends calls and streams under way. Scenes stay on the server."""
        self._connection.close()

    def info(self) -> "control_pb2.GetServerInfoResponse":
        """Version, device and limits."""
        return self._connection.call(self._connection.stubs.scenes.GetServerInfo, control_pb2.GetServerInfoRequest(), repeatable=True)

    def create(self, spec: SpecLike, scene_id: str = "", *, play: bool = False, rate: RateLike = None) -> "Scene":
        """Builds a scene of a mapping, a scene file, a SceneBuilder or a SceneSpec; it is paused unless `play`. `rate`: "real_time", "fast"
        or a speed. As a context manager the scene is deleted at the end. Errors: InvalidArgument naming the field, AlreadyExists,
        ResourceExhausted, NotFound (a file)."""
        request = _requests.create(spec, scene_id, play, rate)
        response = self._connection.call(self._connection.stubs.scenes.CreateScene, request)
        return Scene(self._connection, response.scene.scene_id)

    def check(self, spec: SpecLike) -> "control_pb2.CheckSceneResponse":
        """What a spec would build; creates nothing. Errors: as create."""
        request = control_pb2.CheckSceneRequest(spec=scene_spec(spec))
        return self._connection.call(self._connection.stubs.scenes.CheckScene, request, repeatable=True)

    def scene(self, scene_id: str) -> "Scene":
        """One that exists. Errors: NotFound."""
        scene = Scene(self._connection, scene_id)
        scene.info()
        return scene

    def scenes(self) -> List["Scene"]:
        """All there are, in order of id."""
        response = self._connection.call(self._connection.stubs.scenes.ListScenes, control_pb2.ListScenesRequest(), repeatable=True)
        return [Scene(self._connection, info.scene_id) for info in response.scenes]

    def open_recording(self, path: PathLike, scene_id: str = "", *, rate: RateLike = None, temporary: bool = False) -> "Scene":
        """A scene that replays a recording; it begins paused, at the first moment. `temporary`: the server deletes it when nobody has
        watched it or asked it for anything in 10 minutes. Errors: DataLoss and InvalidArgument name the byte offset, NotFound (the file)."""
        request = _requests.recording(path, scene_id, rate, temporary)
        response = self._connection.call(self._connection.stubs.records.OpenRecording, request)
        return Scene(self._connection, response.scene.scene_id)

    @property
    def connection(self) -> Connection:
        """For other parts of this package."""
        return self._connection


class LocalServer(LocalProcess, Server):
    """A server of one's own, a child process that ends with this."""

    def __init__(self, process: ServerProcess, connection: Connection) -> None:
        LocalProcess.__init__(self, process)
        Server.__init__(self, connection)

    def __enter__(self) -> "LocalServer":
        return self

    def close(self) -> None:
        """Ends the server too."""
        super().close()
        self._process.close()

    def restart(self) -> None:
        """Starts it again after it has ended, at the same address. With `state_dir` its scenes are back; watch iterators go on by themselves.
        Errors: as launch."""
        self._process.stop()
        self._process.start()
        self._connection.wait_until_ready(30)


def connect(target: str, *, token: Optional[str] = None, tls: Tls = None, patience_s: float = 10.0, timeout_s: float = 10.0) -> Server:
    """Connects to a server at HOST:PORT. `token`: what the server's --token-file holds. `tls`: True for the system's certificate authorities,
    or a PEM file of those to trust. `patience_s`: how long calls that can be repeated, edits and watch iterators go on trying when the server
    cannot be reached, for instance while it is started again. Errors: Unavailable if no server answers within `timeout_s`, NotFound (a file)."""
    connection = Connection(Target(target, token, tls, patience_s))
    try:
        connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        connection.close()
        raise
    return Server(connection)


def launch(*, program: Optional[PathLike] = None, scenes: Sequence[PathLike] = (), device: Optional[str] = None,
           state_dir: Optional[PathLike] = None, asset_root: Optional[PathLike] = None, http: bool = False, arguments: Sequence[str] = (),
           environment: Optional[Mapping[str, str]] = None, log_level: str = "warning", patience_s: float = 30.0,
           timeout_s: float = 300.0) -> LocalServer:
    """Starts a server on free ports of this machine. The program is `program`, $PALPATE_SERVER, that of a build folder above this package, or
    that on PATH. `scenes`: files to create and play at the start. `device`: an OpenCL device as --device takes it. `state_dir`: where scenes
    outlive the process. `asset_root`: folder of the mesh files that specs name. `http`: serve the browser viewer as well. `arguments`: more of
    palpate-server's. `environment`: more variables. `patience_s`: as of connect. Errors: NotFound (program), Internal (it ended; its last
    words), DeadlineExceeded."""
    process = server_process(program, scenes, device, state_dir, asset_root, http, arguments, environment, log_level, timeout_s)
    try:
        process.start()
        connection = Connection(Target(f"127.0.0.1:{process.grpc_port}", patience_s=patience_s))
        connection.wait_until_ready(timeout_s)
    except errors.PalpateError:
        process.close()
        raise
    return LocalServer(process, connection)


class Scene:
    """One scene on a server. As a context manager it is deleted at the end. Thread-safe."""

    def __init__(self, connection: Connection, scene_id: str) -> None:
        self._connection = connection
        self.id = scene_id
        """Its id on the server."""

    def __enter__(self) -> "Scene":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        with contextlib.suppress(errors.NotFound, errors.Unavailable):
            self.delete()

    def __repr__(self) -> str:
        return f"<palpate.Scene {self.id!r} at {self._connection.target.address}>"

    # -- life ------------------------------------------------------------------------------------------------------------------------

    def info(self) -> "control_pb2.SceneInfo":
        """State, step, hash, bodies, tools. Errors: NotFound."""
        request = control_pb2.GetSceneRequest(scene_id=self.id)
        return self._connection.call(self._connection.stubs.scenes.GetScene, request, repeatable=True).scene

    def spec(self) -> "scene_pb2.SceneSpec":
        """As created, inline meshes left out."""
        request = control_pb2.GetSceneRequest(scene_id=self.id)
        return self._connection.call(self._connection.stubs.scenes.GetScene, request, repeatable=True).spec

    def play(self) -> "control_pb2.SceneInfo":
        """Lets the scene step by itself. Errors: FailedPrecondition (it has failed)."""
        request = control_pb2.PlaySceneRequest(scene_id=self.id)
        return self._connection.call(self._connection.stubs.scenes.PlayScene, request, repeatable=True).scene

    def pause(self) -> "control_pb2.SceneInfo":
        """On return no step is running."""
        request = control_pb2.PauseSceneRequest(scene_id=self.id)
        return self._connection.call(self._connection.stubs.scenes.PauseScene, request, repeatable=True).scene

    def step(self, count: int = 1, poses: Optional[Mapping[str, PoseLike]] = None, *, timeout_s: Optional[float] = None) -> "control_pb2.SceneInfo":
        """Advances a paused scene by `count` steps and returns after the last. `poses`: what tools are told during these steps: a place of
        the tip, (place, rotation w x y z), or a mapping with fields of ToolPose. Errors: FailedPrecondition (it plays, or has failed),
        DataLoss (it failed under way), NotFound (tool), AlreadyExists (somebody operates the tool)."""
        request = _requests.step(self.id, count, poses)
        return self._connection.call(self._connection.stubs.scenes.StepScene, request, timeout_s).scene

    def reset(self, client_name: str = "") -> "control_pb2.SceneInfo":
        """Back to the rest state at step 0, without any edit; mode and rate stay."""
        request = control_pb2.ResetSceneRequest(scene_id=self.id, client_name=client_name)
        return self._connection.call(self._connection.stubs.scenes.ResetScene, request, repeatable=True).scene

    def rate(self, value: RateLike) -> "control_pb2.SceneInfo":
        """How fast the scene plays: "real_time", "fast", or simulated seconds per wall second."""
        request = control_pb2.SetSceneRateRequest(scene_id=self.id, rate=_requests.rate(value))
        return self._connection.call(self._connection.stubs.scenes.SetSceneRate, request, repeatable=True).scene

    def delete(self) -> None:
        """Frees it; streams of it end with Aborted. Errors: NotFound."""
        self._connection.call(self._connection.stubs.scenes.DeleteScene, control_pb2.DeleteSceneRequest(scene_id=self.id))

    def export(self, body: str = "", format: str = "obj") -> bytes:
        """The present state of a body (default: the first; of "glb": all) as "obj", "vtp" or "glb" (surface), "vtk", "vtu" or "msh" (volume)."""
        request = _requests.export(self.id, body, format)
        return self._connection.call(self._connection.stubs.scenes.ExportScene, request, repeatable=True).data

    # -- looking ---------------------------------------------------------------------------------------------------------------------

    def watch(self, *, positions: str = "float32", contacts: bool = True, tools: bool = True, volume: bool = False,
              max_rate_hz: Optional[float] = None, contact_bodies: Sequence[str] = (), patience_s: Optional[float] = None) -> "Watch":
        """Frames as they come, latest wins: an iterator and a context manager. The first frame is the present state. `positions`:
        "float32", "uint16" or "none". `volume`: positions of all vertices, and tets. `max_rate_hz`: default 60. When the server cannot be
        reached the iterator connects again and goes on, for at most `patience_s` (default: the connection's) without success."""
        request = _requests.watch(self.id, positions, contacts, tools, volume, max_rate_hz, contact_bodies)
        return Watch(self._connection, request, self._connection.target.patience_s if patience_s is None else patience_s)

    def frame(self, *, volume: bool = False) -> Frame:
        """The present state."""
        with self.watch(volume=volume) as frames:
            return next(frames)

    # -- hands -----------------------------------------------------------------------------------------------------------------------

    def operate(self, tool: str, *, station: str = "python", max_stiffness_n_per_m: float = 0.0) -> "Tool":
        """Takes a tool in the hand: a context manager. `max_stiffness_n_per_m`: constraints of local models are made no stiffer; 0: no
        limit. Errors: NotFound, AlreadyExists (somebody else operates it)."""
        return Tool(self._connection, _requests.attach(self.id, tool, station, max_stiffness_n_per_m))

    def station(self, tool: str, *, start: Optional[PoseLike] = None, profile: str = "omega.3", name: str = "python",
                program: Optional[PathLike] = None, arguments: Sequence[str] = (), timeout_s: float = 30.0) -> Station:
        """Takes a tool in a hand that Python plays on a palpate-station of this machine, whose loop of 1 kHz computes force from the local
        model, with all its safety. `start`: where the hand is first; default: where the tool is. `profile`: of the device whose limits hold,
        as `palpate-station --help` lists them. `program`: default $PALPATE_STATION, that of a build folder above this package, or that on
        PATH. `arguments`: more of palpate-station's, such as --ramp. Errors: NotFound (tool, program), DeadlineExceeded; others from
        Station.ticks."""
        if start is None:
            start = tool_place(self.frame(), tool)
        return Station(self._connection, self.id, tool, start, profile=profile, name=name, program=program, arguments=arguments, timeout_s=timeout_s)

    # -- edits -----------------------------------------------------------------------------------------------------------------------

    def edit(self, edits: Union[EditLike, Sequence[EditLike]], *, key: Optional[str] = None,
             expected_topology_version: Optional[int] = None) -> "edit_pb2.EditSceneResponse":
        """Performs one or more edits between two steps; returns when they hold. Each is an Edit or a mapping of its fields. A key makes the
        request idempotent; by default it gets a random one, so that this method can send it again while the server cannot be reached.
        Errors: InvalidArgument naming edits[i] and its field, NotFound, FailedPrecondition; nothing was done then."""
        request = _requests.edit(self.id, edits, key, expected_topology_version)
        return self._connection.call(self._connection.stubs.edits.EditScene, request, repeatable=bool(request.key))

    def carve(self, body: str, *, ball: Optional[Tuple[Any, float]] = None, capsule: Optional[Tuple[Any, Any, float]] = None,
              tets: Optional[Iterable[int]] = None, zone: Optional[str] = None,
              triangles: Optional[Iterable[int]] = None) -> "edit_pb2.EditOutcome":
        """Takes tissue out: of a ball (center, radius), a capsule (end, end, radius), by ids, or all of a zone."""
        return self.edit({"body": body, "carve": {"region": _requests.region(ball, capsule, tets, zone, triangles)}}).outcomes[0]

    def refine(self, body: str, max_edge_m: float, *, ball: Optional[Tuple[Any, float]] = None,
               capsule: Optional[Tuple[Any, Any, float]] = None, tets: Optional[Iterable[int]] = None, zone: Optional[str] = None,
               tet_budget: Optional[int] = None, triangles: Optional[Iterable[int]] = None,
               triangle_budget: Optional[int] = None) -> "edit_pb2.EditOutcome":
        """Halves edges in a region until none that reaches into it is longer (at rest)."""
        values: Dict[str, Any] = {"region": _requests.region(ball, capsule, tets, zone, triangles), "max_edge_m": max_edge_m}
        if tet_budget is not None:
            values["tet_budget"] = tet_budget
        if triangle_budget is not None:
            values["triangle_budget"] = triangle_budget
        return self.edit({"body": body, "refine": values}).outcomes[0]

    def incise(self, body: str, edges: Any) -> "edit_pb2.EditOutcome":
        """Sweeps a blade through tissue. `edges`: [n, 2, 3], places of the cutting edge one after the other."""
        return self.edit({"body": body, "incise": {"edges": _requests.blade(edges)}}).outcomes[0]

    def material(self, body: str, values: Union["scene_pb2.MaterialSpec", Mapping[str, Any]], zone: str = "") -> "edit_pb2.EditOutcome":
        """Gives a body (or one of its zones) other material; fields that are left out stay."""
        return self.edit(edit_pb2.Edit(body=body, material=_requests.material(values, zone))).outcomes[0]

    def grasp(self, tool: str, radius_m: Optional[float] = None) -> "edit_pb2.EditOutcome":
        """Takes hold of the tissue at a tool's jaws."""
        return self.edit({"grasp": {"tool": tool, **({} if radius_m is None else {"radius_m": radius_m})}}).outcomes[0]

    def release(self, tool: str) -> "edit_pb2.EditOutcome":
        """Lets go of what a tool holds."""
        return self.edit({"release": {"tool": tool}}).outcomes[0]

    def drive(self, joint: str, change: Mapping[str, Any]) -> None:
        """Drives a joint in another way from now on: one field of JointEdit, as `{"turn": {"motor": {"speed_rad_per_s": 2}}}` or
        `{"release": {}}`. Errors: NotFound (the joint), InvalidArgument (a change that its kind does not have)."""
        self.edit({"joint": {"joint": joint, **change}})

    # -- past ------------------------------------------------------------------------------------------------------------------------

    def save(self, path: PathLike) -> int:
        """Writes the whole state as a file, which `Server.open_recording` opens; returns its size in bytes. The file appears when it is
        complete. Errors: NotFound (the scene, a folder), ResourceExhausted (the disk is full)."""
        file = ChunkFile(path, whole=True)
        call = self._connection.stream(self._connection.stubs.records.SaveScene, record_pb2.SaveSceneRequest(scene_id=self.id))
        try:
            for chunk in call:
                file.write(chunk.data)
            return file.finish()
        except grpc.RpcError as error:
            raise errors.of_rpc(error) from None
        finally:
            call.cancel()
            file.discard()

    def record(self, path: PathLike, *, from_step: Optional[int] = None, from_begin: bool = False,
               until_step: Optional[int] = None) -> "Recorder":
        """Writes a recording: a context manager that goes on in the background until it is left, or until `until_step` is done. Without
        `from_step` and `from_begin` it begins now, with the state when this method returns or a little before."""
        request = made(record_pb2.RecordSceneRequest, scene_id=self.id, from_begin=from_begin, from_step=from_step, until_step=until_step)
        return Recorder(self._connection.stream(self._connection.stubs.records.RecordScene, request), path)

    def replay(self, replay_id: str = "", *, temporary: bool = False) -> "Scene":
        """A scene beside this one that replays its past, up to now. `temporary`: as of Server.open_recording. Errors: FailedPrecondition
        (no past is kept)."""
        request = made(record_pb2.ReplaySceneRequest, scene_id=self.id, replay_id=replay_id, temporary=temporary)
        return Scene(self._connection, self._connection.call(self._connection.stubs.records.ReplayScene, request).scene.scene_id)

    def seek(self, target: Union[int, str]) -> "control_pb2.SceneInfo":
        """Takes a replaying scene to a place of its time line, or to a bookmark. Returns when it is there."""
        request = _requests.seek(self.id, target)
        return self._connection.call(self._connection.stubs.records.SeekScene, request, repeatable=True).scene

    def branch(self, branch_id: str = "", *, play: bool = False) -> "Scene":
        """A scene of its own that begins with the present state of this one."""
        request = made(record_pb2.BranchSceneRequest, scene_id=self.id, branch_id=branch_id, play=play)
        return Scene(self._connection, self._connection.call(self._connection.stubs.records.BranchScene, request).scene.scene_id)

    def timeline(self) -> "record_pb2.Timeline":
        """What is kept of the past. Errors: FailedPrecondition (nothing)."""
        request = record_pb2.GetTimelineRequest(scene_id=self.id)
        return self._connection.call(self._connection.stubs.records.GetTimeline, request, repeatable=True).timeline

    def bookmark(self, name: str, position: Optional[int] = None, *, remove: bool = False) -> "record_pb2.Timeline":
        """Names a place of the time line (default: now), or forgets a name."""
        request = made(record_pb2.SetBookmarkRequest, scene_id=self.id, name=name, remove=remove, position=position)
        return self._connection.call(self._connection.stubs.records.SetBookmark, request, repeatable=True).timeline


class Recorder:
    """A recording under way. What has been written is a whole recording at any moment."""

    def __init__(self, call: Any, path: PathLike) -> None:
        self._call = call
        self._error: Optional[errors.PalpateError] = None
        self._file = ChunkFile(path, whole=False)
        self.path = self._file.path
        """The file."""
        self._has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run, name="palpate-record", daemon=True)
        self._thread.start()
        # Nothing that happens from here on is left out.
        self._has_begun.wait()
        if self.size_bytes == 0 and self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            for chunk in self._call:
                self._file.write(chunk.data)
                self._has_begun.set()
        except grpc.RpcError as error:
            self._error = errors.of_rpc(error)
        except errors.PalpateError as error:
            self._error = error
            self._call.cancel()
        finally:
            self._file.close()
            self._has_begun.set()

    @property
    def size_bytes(self) -> int:
        """Written so far."""
        return self._file.size_bytes

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def wait(self) -> int:
        """Until the recording is complete (`until_step`); returns its size. Errors: those of the stream."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self.size_bytes

    def close(self) -> int:
        """Ends the recording and returns its size. Errors: those of the stream."""
        self._call.cancel()
        self._thread.join()
        if self._error is not None and not isinstance(self._error, errors.Cancelled):
            raise self._error
        return self.size_bytes


class Watch(Follower, Iterator[Frame]):
    """Frames of a scene. `topology` is that of the newest frame. One thread at a time; `close` from any."""

    def __init__(self, connection: Connection, request: "stream_pb2.WatchRequest", patience_s: float) -> None:
        super().__init__(patience_s)
        self._connection, self._request = connection, request
        self._is_over = threading.Event()
        self._call = self._open()

    def _open(self) -> Any:
        return self._connection.stream(self._connection.stubs.streams.Watch, self._request)

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def close(self) -> None:
        """Ends the stream; the iterator ends."""
        self._closed = True
        self._is_over.set()
        self._call.cancel()

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> Frame:
        """The next frame. Errors: Aborted (the scene was deleted), Unavailable (the patience is over), DataLoss, NotFound."""
        while True:
            if self._closed:
                raise StopIteration
            try:
                frame = self._take(next(self._call))
            except StopIteration:
                self._recover(errors.Unavailable("the stream has ended"))
            except grpc.RpcError as error:
                self._recover(errors.of_rpc(error))
            except errors.DataLoss:
                self._call.cancel()
                raise
            else:
                if frame is not None:
                    return frame

    def _recover(self, error: errors.PalpateError) -> None:
        """Opens the stream again after a pause, or raises what ended it."""
        if self._closed:
            return
        self._is_over.wait(self._pause_s(error))
        self.reconnects += 1
        self._call = self._open()
        if self._closed:  # meanwhile, by another thread
            self._call.cancel()


class Tool(Hand):
    """A tool in the hand: poses go up, local contact models come back after each step. Leaving the context lets it go; it keeps its place."""

    def __init__(self, connection: Connection, attach: "haptics_pb2.OperateRequest") -> None:
        super().__init__()
        self._requests = PoseQueue(attach)
        self._models = threading.Condition()
        self._call = connection.stream(connection.stubs.haptics.Operate, self._requests)
        try:
            first = next(self._call)
        except (grpc.RpcError, StopIteration) as error:
            self._requests.close()
            raise errors.of_end(error) from None
        self._taken(first)
        self._thread = threading.Thread(target=self._read, name="palpate-tool", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Tool":
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.close()

    def _read(self) -> None:
        error: Optional[errors.PalpateError] = None
        try:
            for update in self._call:
                if update.WhichOneof("update") != "model":
                    continue
                model = LocalModel(update.model)
                with self._models:
                    self._model = model
                    self._models.notify_all()
        except grpc.RpcError as failure:
            error = errors.of_rpc(failure)
        with self._models:
            self._error, self._is_over = error, True
            self._models.notify_all()

    def move(self, pose: PoseLike, **fields: Any) -> int:
        """Tells the tool where to be; returns at once. `fields`: more of ToolPose, such as velocity_m_per_s, jaw_angle_rad, pedal. Returns
        the number of the pose, which a model names that used it or a later one: a pose that a slow connection has not taken yet is replaced
        by the next, unless the pedal changes. Errors: those that have ended the stream."""
        with self._models:
            self._raise_if_over()
        request = self._next_pose(pose, fields)
        self._requests.put(request)
        return request.pose.sequence

    def wait(self, sequence: int = 0, timeout_s: float = 10.0, step: int = 0) -> LocalModel:
        """The first model of this step or a later one that used this pose or a later one. Errors: DeadlineExceeded, those that have ended the
        stream."""
        end = time.monotonic() + timeout_s
        with self._models:
            while self._model is None or self._model.pose_sequence < sequence or self._model.step < step:
                self._raise_if_over()
                left = end - time.monotonic()
                if left <= 0:
                    raise errors.DeadlineExceeded(f"no local model of pose {sequence} within {timeout_s:g} s; does the scene step?")
                self._models.wait(left)
            return self._model

    def close(self) -> None:
        """Lets the tool go."""
        self._requests.close()
        self._thread.join(timeout=2)
        self._call.cancel()
        self._thread.join()
