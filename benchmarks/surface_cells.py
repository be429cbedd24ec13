"""The cells of a surface: cases of a family, drawn at random from a seed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from numba_baracuda import OPS

from .case import nbytes
from .reduce_cases import ReduceCase
from .scan_cases import ScanCase
from .segment_cases import SegmentCase

FAMILIES = ("reduce", "scan", "segment")
DIRECTIONS = ("forward", "backward", "both")
#: elements, and how many cells of ten have each
ELEMENTS = {"f32": 6, "bf16": 3, "f64": 1}
#: least and most elements of an array that is reduced or scanned, and of rows in segments, as powers of two
POWERS, ROW_POWERS = (25.0, 28.0), (25.0, 27.5)
AXES = 4  #: most axes of an array
NARROWEST = 2  #: least extent of an axis; peers find the reduced axes by comparing shapes, which extents of 1 would hide
WIDEST = 512  #: most elements of a row
LENGTHS = (1.4, 4096.0)  #: least and most rows of a segment, in the mean
SPARSE_LENGTHS = (1 / 256, 1.0)  #: the same where most segments are empty
#: how an op of segments gets its ids: sorted, in any order, in any order with ``deterministic=False``, as a ``SegmentIndex``
WAYS = ("sorted", "unsorted", "any_order", "indexed")
IDS = ("uniform", "hot")
#: a cell takes at most so many operand sets, and so many arrays in float64 of the largest operand's shape, for its truth and its peers
SETS, WORK = 2, 16
MOST_DRAWS = 1000

Drawn = ReduceCase | ScanCase | SegmentCase


@dataclass(frozen=True)
class Cell:
    """A case with its number, and how many cases were drawn before it for that number and did not fit in memory."""

    number: int
    case: Drawn
    redrawn: int = 0

    @property
    def facts(self) -> dict[str, str]:
        """Number, dtype, shape and axes as text; for segments, ``axis`` holds their number, the distribution of ids and the way they are given."""
        case, shape, words = self.case, tuple[int, ...](), list[str]()
        if isinstance(case, SegmentCase):
            way = "indexed" if case.indexed else "" if case.deterministic else "any_order"
            shape, words = (case.rows, case.columns), [f"{case.segments} segments", case.ids, *([way] if way else [])]
        else:
            shape, words = case.shape, [str(axis) for axis in (case.axes if isinstance(case, ReduceCase) else [case.axis])]
        return {"cell": str(self.number), "element": case.element, "shape": "x".join(map(str, shape)), "axis": " ".join(words)}


def _log_uniform(rng: Any, least: float, most: float) -> float:
    return float(least * (most / least) ** rng.random())


def _extent(elements: float, others: int, least: float) -> int:
    """The greatest extent whose product with ``others`` is at most ``elements``, or the next one if that product is below ``least``."""
    extent = int(elements // others)
    return extent if extent * others >= least else extent + 1


def extents(rng: Any) -> tuple[int, ...]:
    """The extents of one to four axes: random cuts divide the logarithm of the number of elements."""
    least, most = (2.0**power for power in POWERS)
    elements, axes = _log_uniform(rng, least, most), int(rng.integers(1, AXES + 1))
    cuts = [0.0, *sorted(rng.random(axes - 1)), 1.0]
    shape = [max(NARROWEST, round(elements ** (high - low))) for low, high in itertools.pairwise(cuts)]
    widest = shape.index(max(shape))
    shape[widest] = _extent(elements, math.prod(shape) // shape[widest], least)
    return tuple(shape)


def _segments(rng: Any, names: list[str], element: str, sparse: bool) -> SegmentCase:
    """``sparse``: whether most segments are empty; then they have as many elements as rows have else."""
    way = WAYS[int(rng.integers(len(WAYS)))]
    names = [name for name in names if name.startswith("unsorted_") == (way != "sorted")]
    op = names[int(rng.integers(len(names)))]
    least, most = (2.0**power for power in ROW_POWERS)
    elements, columns = _log_uniform(rng, least, most), round(_log_uniform(rng, 1, WIDEST))
    rows = _extent(elements, columns, least)
    length = _log_uniform(rng, *(SPARSE_LENGTHS if sparse else LENGTHS))
    rows, segments = (max(1, round(rows * length)), rows) if sparse else (rows, max(1, round(rows / length)))
    ids = IDS[int(rng.integers(len(IDS)))]
    return SegmentCase(op, ids, rows, columns, segments, element, deterministic=way != "any_order", indexed=way == "indexed")


def draw(family: str, seed: int, number: int, direction: str = "both", attempt: int = 0, sparse: bool = False) -> Drawn:
    """The case of a number; it depends on the arguments alone. ``attempt`` counts those drawn for the number before; ``sparse`` is of segments."""
    rng = np.random.default_rng([seed, FAMILIES.index(family), number, attempt])
    backward = rng.random() < 0.5 if direction == "both" else direction == "backward"
    element = str(rng.choice(list(ELEMENTS), p=np.array(list(ELEMENTS.values())) / sum(ELEMENTS.values())))
    names = [name for name, op in OPS.items() if op.family == family and op.traits["backward"] == backward]
    if family == "segment":
        return _segments(rng, names, element, sparse)
    op, shape = names[int(rng.integers(len(names)))], extents(rng)
    if family == "scan":
        return ScanCase(op, shape, int(rng.integers(len(shape))), element)
    chosen = int(rng.integers(1, 1 << len(shape)))
    return ReduceCase(op, shape, tuple(axis for axis in range(len(shape)) if chosen >> axis & 1), element)


def memory(case: Drawn) -> int:
    """The bytes that a cell takes at most: ``SETS`` operand sets and ``WORK`` arrays in float64."""
    return SETS * nbytes(case) + WORK * 8 * max(math.prod(spec.shape) for spec in case.specs.values())


def cells(family: str, seed: int, direction: str, count: int, free: float = math.inf, sparse: bool = False) -> Iterator[Cell]:
    """The first cells of a seed. A cell's case is the first one drawn for its number that takes at most ``free`` bytes."""
    for number in range(count):
        drawn = (draw(family, seed, number, direction, attempt, sparse) for attempt in range(MOST_DRAWS))
        fitting = next(((redrawn, case) for redrawn, case in enumerate(drawn) if memory(case) <= free), None)
        if fitting is None:
            raise MemoryError(f"surface: cell {number} was drawn {MOST_DRAWS} times and never fits in {free / 1e9:.1f} GB of device memory")
        yield Cell(number, fitting[1], fitting[0])
