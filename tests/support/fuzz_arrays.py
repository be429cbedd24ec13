"""Arrays for the fuzzer: values of several profiles, in every layout that slicing can make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from references import Array, is_whole

from numba_baracuda.core.dtypes import numpy_dtype

#: normal: as the suite draws them; whole: small whole numbers, with ties and zeros; special: NaN, infinities and zeros among them;
#: zeros: zeros of both signs among them; extreme: the limits of the type among them
PROFILES = ("normal", "whole", "special", "zeros", "extreme")
SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0)


def sprinkled(rng: np.random.Generator, values: Array, profile: str, factors: bool = False) -> Array:
    """``values`` with the special values of a profile among them; with ``factors`` absolute values stay, since products must stay in range."""
    if profile == "normal" or not values.size or values.dtype == bool:
        return values
    made = np.array(values)  # of no axes, values may be a scalar
    if profile == "whole":
        made[...] = (rng.integers(-2, 3, made.shape) if factors else rng.integers(-8, 9, made.shape)).astype(made.dtype)
        return made
    cells = rng.random(made.shape) < rng.choice([0.02, 0.1, 0.4])
    made[cells] = rng.choice(_special(made.dtype, profile), int(cells.sum()))
    return made


def _special(dtype: Any, profile: str) -> Array:
    if is_whole(dtype):
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.max, 0, -1] if profile == "extreme" else [0, 1, -1]).astype(dtype)  # −1 of bytes is 255
    limits = ml_dtypes.finfo(dtype)
    sizes = [float(each) for each in (limits.max, limits.tiny, limits.smallest_subnormal)]
    numbers = {"special": SPECIAL, "zeros": (0.0, -0.0), "extreme": (*sizes, *[-each for each in sizes])}[profile]
    return np.array(numbers).astype(dtype)


@dataclass(frozen=True)
class Layout:
    """An array's layout in memory: the order of the axes, the step along each, and the elements before and after each row."""

    order: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    late: int = 0
    pad: int = 0
    broadcast: tuple[int, ...] = ()  #: axes of stride 0


def drawn_layout(rng: np.random.Generator, rank: int, output: bool = False, rows: bool = False) -> Layout:
    """Any layout; outputs are never broadcast; with ``rows`` the elements of a row are contiguous."""
    order = tuple(map(int, rng.permutation(rank))) if rng.random() < 0.4 and not rows else ()
    steps = tuple(int(rng.choice([1, 1, 1, 2, -1, -2, 3])) for _ in range(rank)) if rng.random() < 0.6 else ()
    if rows:
        steps = (abs(steps[0]), *(1,) * (rank - 1)) if steps and rank > 1 else ()
    broadcast = tuple(axis for axis in range(rank) if rng.random() < 0.4) if rng.random() < 0.15 and not output and not rows else ()
    return Layout(order, steps, int(rng.choice([0, 0, 0, 1, 2, 3, 7])), int(rng.choice([0, 0, 1, 2, 5, 8])), broadcast)


def repeated(values: Array, layout: Layout | None) -> Array:
    """``values`` with the repetitions of a broadcast layout."""
    axes = layout.broadcast if layout else ()
    part = values[tuple(slice(0, 1) if axis in axes else slice(None) for axis in range(values.ndim))]
    return np.ascontiguousarray(np.broadcast_to(part, values.shape)) if axes else values


class Placed:
    """An array of a kind in a layout, as a view of a larger array with other elements around it."""

    def __init__(self, kind: Any, values: Array, layout: Layout | None) -> None:
        self.kind, self.shape = kind, values.shape
        layout = layout or Layout()
        order, steps = layout.order or tuple(range(values.ndim)), layout.steps or (1,) * values.ndim
        extents = [
            min(extent, 1) if axis in layout.broadcast else extent * abs(step)
            for axis, (extent, step) in enumerate(zip(values.shape, steps, strict=True))
        ]
        within = [extents[axis] for axis in order]
        wide = (*within[:-1], within[-1] + layout.pad) if within else ()
        count = int(np.prod(wide, dtype=np.int64))
        self._where = (layout.late, count, wide, within, [slice(None, None, 1 if axis in layout.broadcast else steps[axis]) for axis in order], order)
        self._part = tuple(slice(0, 1) if axis in layout.broadcast else slice(None) for axis in range(values.ndim))
        self._before = np.full(layout.late + count + 4, _garbage(values.dtype), values.dtype)
        self._view(self._before)[...] = values[self._part]
        self._flat = kind.array(self._before.view(np.uint8)).view(values.dtype)
        self.array = self._view(self._flat)
        if layout.broadcast:
            self.array = kind.broadcast(self.array, values.shape)

    def _view(self, flat: Any) -> Any:
        late, count, wide, within, steps, order = self._where
        base = flat[late : late + count].reshape(wide)
        if within:
            base = base[..., : within[-1]]
        return base[tuple(steps)].transpose(tuple(int(each) for each in np.argsort(order))) if within else base

    def put(self, values: Array) -> None:
        """Writes other values to the same memory."""
        self._view(self._before)[...] = values[self._part]
        self._flat.view(np.uint8)[...] = self.kind.array(self._before.view(np.uint8))

    def read(self) -> Array:
        """The array's values; raises if memory around it changed."""
        after = on_host(self.kind, self._flat)
        around = np.ones(len(after), bool)
        self._view(around)[...] = False
        assert after[around].tobytes() == self._before[around].tobytes(), "memory around an output was written"
        return np.array(self._view(after))

    def check_unchanged(self, name: str) -> None:
        """Raises if the array or memory around it changed."""
        assert on_host(self.kind, self._flat).tobytes() == self._before.tobytes(), f"{name} was written"


def _garbage(dtype: Any) -> Any:
    if np.dtype(dtype).kind == "b":
        return True
    return np.iinfo(dtype).max - 6 if is_whole(dtype) or np.issubdtype(dtype, np.unsignedinteger) else np.nan


def on_host(kind: Any, array: Any) -> Array:
    """A contiguous array of a kind as a NumPy array, of any dtype."""
    if kind.emulated:
        return np.asarray(array)
    dtype = np.dtype(array.dtype)
    if not array.size:
        return np.empty(array.shape, dtype)
    return kind.numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(array.shape)


def drawn_shape(rng: np.random.Generator, rank: int, most: int) -> tuple[int, ...]:
    """Extents whose product is at most ``most``; now and then one of them is 0."""
    budget, shape = float(max(most, 1)), []
    for left in range(rank, 0, -1):
        extent = int(np.exp(rng.uniform(0, np.log(budget) if left == 1 else min(np.log(budget), rng.uniform(0, np.log(budget) + 1)))))
        extent = max(1, min(extent, int(budget)))
        shape.append(extent)
        budget /= extent
    shape = [shape[k] for k in rng.permutation(rank)]
    if rank and rng.random() < 0.04:
        shape[int(rng.integers(rank))] = 0
    return tuple(shape)


def picked(rng: np.random.Generator, choices: Sequence[Any]) -> Any:
    """One of several objects, unchanged: NumPy's own choice converts tuples to arrays and numbers to its scalars."""
    return choices[int(rng.integers(len(choices)))]


def random_values(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> Array:
    """Numbers of any element type, for operands without values of their family."""
    dtype = numpy_dtype(element)
    if dtype.kind == "b":
        return rng.random(shape) < rng.choice([0.02, 0.5, 0.98])
    return (rng.integers(-1000, 1001, shape) if is_whole(dtype) else rng.standard_normal(shape) * 3).astype(dtype)
