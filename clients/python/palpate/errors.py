"""What goes wrong, one class for each status code of the API. Messages are the server's own: they name field, value and range."""
from __future__ import annotations

import errno
from typing import Any, Dict, Optional, Type

import grpc


class PalpateError(Exception):
    """An error of the server, of the connection, or of this package. `code` is the canonical name of its kind."""

    code: str = "UNKNOWN"

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(PalpateError, ValueError):
    """The input is wrong whatever the state; the message names the field path, the value and the allowed range."""

    code = "INVALID_ARGUMENT"


class NotFound(PalpateError, LookupError):
    """There is no such scene, tool, body, file or program."""

    code = "NOT_FOUND"


class AlreadyExists(PalpateError):
    """The id is taken, or the tool is held by somebody else."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(PalpateError):
    """Right at another time: a step while the scene plays."""

    code = "FAILED_PRECONDITION"


class ResourceExhausted(PalpateError):
    """A limit of the server, which is named with its value."""

    code = "RESOURCE_EXHAUSTED"


class Aborted(PalpateError):
    """What was under way was ended: the scene was deleted, reset or set to play."""

    code = "ABORTED"


class Unavailable(PalpateError, ConnectionError):
    """There is no server, or it is stopping."""

    code = "UNAVAILABLE"


class Unauthenticated(PalpateError, PermissionError):
    """The token is missing or wrong."""

    code = "UNAUTHENTICATED"


class DataLoss(PalpateError):
    """The state of the scene is no longer finite, or a stream does not fit together: watch anew."""

    code = "DATA_LOSS"


class Internal(PalpateError):
    """A bug, or a broken driver."""

    code = "INTERNAL"


class Cancelled(PalpateError):
    """The call was given up by its caller."""

    code = "CANCELLED"


class DeadlineExceeded(PalpateError, TimeoutError):
    """The answer did not come in time."""

    code = "DEADLINE_EXCEEDED"


class OutOfRange(PalpateError, IndexError):
    """Beyond what there is: the recording is at its end."""

    code = "OUT_OF_RANGE"


class Unimplemented(PalpateError):
    """The server is older than this package and does not know the call."""

    code = "UNIMPLEMENTED"


_BY_CODE: Dict[str, Type[PalpateError]] = {
    kind.code: kind
    for kind in (InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, ResourceExhausted, Aborted, Unavailable, Unauthenticated,
                 DataLoss, Internal, Cancelled, DeadlineExceeded, OutOfRange, Unimplemented)
}
_CODES = {code.value[0]: code.name for code in grpc.StatusCode}


def of_code(code: str, message: str) -> PalpateError:
    """The exception of a canonical code name; PalpateError for one without a class."""
    error = _BY_CODE.get(code, PalpateError)(message)
    error.code = code
    return error


def of_number(number: int, message: str) -> PalpateError:
    """The exception of a canonical code number, as BatchFailure has it."""
    return of_code(_CODES.get(number, "UNKNOWN"), message)


def of_os(path: Any, error: OSError) -> PalpateError:
    """The exception of a file that cannot be written."""
    kind = NotFound if isinstance(error, FileNotFoundError) else ResourceExhausted if error.errno in (errno.ENOSPC, errno.EDQUOT) else Internal
    return kind(f"{path}: {error.strerror}")


def of_rpc(error: grpc.RpcError) -> PalpateError:
    """The exception of a failed call."""
    code: Optional[Any] = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else None
    return of_code(code.name if code is not None else "UNKNOWN", details or str(error))


def of_end(error: Exception) -> PalpateError:
    """The exception of a stream that ended before its answer: by an error, or (StopIteration, StopAsyncIteration) without."""
    return of_rpc(error) if isinstance(error, grpc.RpcError) else Unavailable("the stream has ended")
