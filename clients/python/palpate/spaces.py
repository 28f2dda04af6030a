"""Spaces of observations and actions, in the manner of Gymnasium and without it. `to_gymnasium` gives its own where it is installed."""
from __future__ import annotations

from typing import Any, Optional, Sequence, Tuple, Union

import numpy as np

Bound = Union[float, Sequence[float], np.ndarray]


class Box:
    """Arrays of one shape between two bounds, each of which may be infinite."""

    def __init__(self, low: Bound, high: Bound, shape: Optional[Tuple[int, ...]] = None, dtype: Any = np.float64, seed: Optional[int] = None) -> None:
        wanted = shape if shape is not None else np.broadcast_shapes(np.shape(low), np.shape(high))
        self.shape: Tuple[int, ...] = tuple(wanted)
        """Of the arrays."""
        self.dtype = np.dtype(dtype)
        """Of the numbers."""
        self.low = np.broadcast_to(np.asarray(low, self.dtype), self.shape).copy()
        """Least values."""
        self.high = np.broadcast_to(np.asarray(high, self.dtype), self.shape).copy()
        """Largest values."""
        if not (self.low <= self.high).all():
            raise ValueError("low: not below high everywhere")
        self._random = np.random.default_rng(seed)

    def seed(self, seed: Optional[int] = None) -> None:
        """Begins the sequence of samples anew."""
        self._random = np.random.default_rng(seed)

    def sample(self) -> np.ndarray:
        """Uniform between finite bounds, normal where there is none, exponential beyond one."""
        low, high = self.low.astype(float), self.high.astype(float)
        has_low, has_high = np.isfinite(low), np.isfinite(high)
        uniform = self._random.uniform(np.where(has_low & has_high, low, 0), np.where(has_low & has_high, high, 1))
        tail = self._random.exponential(size=self.shape)
        out = self._random.normal(size=self.shape)
        out = np.where(has_low & has_high, uniform, out)
        out = np.where(has_low & ~has_high, np.where(has_low, low, 0) + tail, out)
        out = np.where(~has_low & has_high, np.where(has_high, high, 0) - tail, out)
        return np.asarray(out, self.dtype)

    def contains(self, value: Any) -> bool:
        """Whether an array has the shape and lies between the bounds."""
        array = np.asarray(value)
        return array.shape == self.shape and bool(((array >= self.low) & (array <= self.high)).all())

    def __contains__(self, value: Any) -> bool:
        return self.contains(value)

    def __eq__(self, other: Any) -> bool:
        return (isinstance(other, Box) and self.shape == other.shape and self.dtype == other.dtype and bool((self.low == other.low).all())
                and bool((self.high == other.high).all()))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Box({self.low.min() if self.low.size else 0:g}, {self.high.max() if self.high.size else 0:g}, {self.shape}, {self.dtype})"

    def batched(self, count: int) -> "Box":
        """The space of `count` of these, one a row."""
        return Box(np.broadcast_to(self.low, (count, *self.shape)), np.broadcast_to(self.high, (count, *self.shape)), dtype=self.dtype)

    def to_gymnasium(self) -> Any:
        """gymnasium.spaces.Box. Errors: ImportError where gymnasium is not installed."""
        import gymnasium  # pylint: disable=import-outside-toplevel

        return gymnasium.spaces.Box(self.low, self.high, dtype=self.dtype.type)
