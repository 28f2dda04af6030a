"""palpate-server as a child process."""
from __future__ import annotations

import atexit
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import errors

PathLike = Union[str, "os.PathLike[str]"]
PROGRAM = "palpate-server"


def find_program(program: Optional[PathLike] = None, name: str = PROGRAM, variable: str = "PALPATE_SERVER") -> pathlib.Path:
    """The program to start: the argument, the environment's `variable`, a build folder above this package (build/release/bin), PATH. Errors:
    NotFound."""
    named = program if program is not None else os.environ.get(variable)
    if named is not None:
        found = shutil.which(os.fspath(named))
        if found is None:
            raise errors.NotFound(f"{os.fspath(named)}: no such program")
        return pathlib.Path(found).resolve()
    for folder in pathlib.Path(__file__).resolve().parents:
        for candidate in (folder / "bin" / name, folder / "build/release/bin" / name):
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return candidate
    found = shutil.which(name)
    if found is None:
        raise errors.NotFound(f"there is no {name}: build it (./run build), put it on PATH, name it in {variable} or by `program`")
    return pathlib.Path(found)


class ServerProcess:
    """One server on free ports of the loopback address; it may be ended and started again on the same ports."""

    def __init__(self, program: Optional[PathLike], arguments: Sequence[str], environment: Optional[Mapping[str, str]], http: bool,
                 log_level: str, timeout_s: float) -> None:
        self._program = find_program(program)
        self._arguments = list(arguments)
        self._environment: Optional[Dict[str, str]] = {**os.environ, **environment} if environment is not None else None
        self._http, self._log_level, self._timeout_s = http, log_level, timeout_s
        self._folder = tempfile.TemporaryDirectory(prefix="palpate-")
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self.grpc_port = 0
        self.http_port = 0
        _running.add(self)

    @property
    def log_path(self) -> pathlib.Path:
        """What the server has said so far."""
        return pathlib.Path(self._folder.name) / "server.log"

    def last_words(self) -> str:
        """The end of its log."""
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines() if self.log_path.exists() else []
        return "\n".join("  " + line for line in lines[-15:]) or "  (no output)"

    @property
    def pid(self) -> Optional[int]:
        """Of the running process; None: there is none."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Returns when it answers; the first start on a machine compiles kernels. Errors: Internal (it ended), DeadlineExceeded."""
        ready = pathlib.Path(self._folder.name) / "ready.json"
        ready.unlink(missing_ok=True)
        http = f"127.0.0.1:{self.http_port}" if self._http else "off"
        command: List[str] = [str(self._program), "--listen", f"127.0.0.1:{self.grpc_port}", "--http", http, "--ready-file", str(ready),
                              "--log-level", self._log_level, "--stop-with-stdin", *self._arguments]
        # The server's standard input ends with this program, even if it is killed.
        with open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=self._environment)
        end = time.monotonic() + self._timeout_s
        while not ready.exists():
            status = self._process.poll()
            if status is not None:
                self._wait(None)
                raise errors.Internal(f"{PROGRAM} ended with status {status}; its last words:\n{self.last_words()}")
            if time.monotonic() > end:
                self.stop()
                raise errors.DeadlineExceeded(f"{PROGRAM} is not ready after {self._timeout_s:g} s; its last words:\n{self.last_words()}")
            time.sleep(0.01)
        ports: Dict[str, Any] = json.loads(ready.read_text(encoding="utf-8"))
        self.grpc_port, self.http_port = int(ports["grpc_port"]), int(ports.get("http_port", 0))

    def kill(self) -> None:
        """Ends it as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._wait(None)

    def stop(self) -> None:
        """Asks it to end, and waits; after ten seconds it is killed."""
        if self._process is None:
            return
        self._process.terminate()  # nothing, if it has ended
        try:
            self._wait(10)
        except subprocess.TimeoutExpired:
            self.kill()

    def _wait(self, timeout_s: Optional[float]) -> None:
        assert self._process is not None
        self._process.wait(timeout_s)
        if self._process.stdin is not None:
            self._process.stdin.close()

    def close(self) -> None:
        """Stops it and removes its files."""
        self.stop()
        self._folder.cleanup()


def server_process(program: Optional[PathLike], scenes: Sequence[PathLike], device: Optional[str], state_dir: Optional[PathLike],
                   asset_root: Optional[PathLike], http: bool, arguments: Sequence[str], environment: Optional[Mapping[str, str]],
                   log_level: str, timeout_s: float) -> ServerProcess:
    """Of the arguments of palpate.launch; not started yet."""
    flags: List[str] = []
    for scene in scenes:
        flags += ["--scene", os.fspath(scene)]
    for flag, value in (("--device", device), ("--state-dir", state_dir), ("--asset-root", asset_root)):
        if value is not None:
            flags += [flag, os.fspath(value)]
    return ServerProcess(program, [*flags, *arguments], environment, http, log_level, timeout_s)


class LocalProcess:
    """What a server of one's own has beside its connection."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    @property
    def pid(self) -> Optional[int]:
        """Of the process; None: it has ended."""
        return self._process.pid

    @property
    def viewer_url(self) -> str:
        """Of the browser viewer and of /metrics; empty unless launched with `http`."""
        return f"http://127.0.0.1:{self._process.http_port}" if self._process.http_port else ""

    def log(self) -> str:
        """What the server has said."""
        return self._process.log_path.read_text(encoding="utf-8", errors="replace")

    def kill(self) -> None:
        """Ends the process at once, as a crash would; for tests of what survives that."""
        self._process.kill()


_running: "weakref.WeakSet[ServerProcess]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for process in list(_running):
        process.close()
