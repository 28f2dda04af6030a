"""Packed numbers of a message as views of its bytes: the library of messages would make a Python object of each."""
from __future__ import annotations

from typing import Iterator, Tuple, Union

import numpy as np

from .errors import DataLoss

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


def _varint(data: memoryview, at: int) -> Tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise DataLoss("a message that is cut off")


def _fields(data: memoryview) -> Iterator[Tuple[int, memoryview]]:
    """Number and bytes of each field that has a length; others are passed over."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            _, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _LENGTH:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise DataLoss("a message that is cut off")
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise DataLoss(f"a message with a field of kind {kind}")


def inner(data: Union[bytes, memoryview], *numbers: int) -> memoryview:
    """The bytes of a message within a message, by the numbers of fields that lead to it; empty if it is absent."""
    view = memoryview(data)
    for number in numbers:
        found = memoryview(b"")
        for field, value in _fields(view):
            if field == number:
                found = value
        view = found
    return view


def packed(data: memoryview, number: int, dtype: str) -> np.ndarray:
    """A packed repeated field of fixed width: a read-only view where it came in one piece, as it does. Errors: DataLoss."""
    pieces = [value for field, value in _fields(data) if field == number]
    if any(len(piece) % np.dtype(dtype).itemsize for piece in pieces):
        raise DataLoss("packed numbers that are cut off")
    arrays = [np.frombuffer(piece, dtype) for piece in pieces]
    if len(arrays) == 1:
        return arrays[0]
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)
