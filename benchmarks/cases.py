"""The cases that are measured: a table for each family.

A family is a function in ``FAMILIES`` that yields cases; every :class:`~benchmarks.case.Case` is checked, timed and compared alike.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator
from typing import Any

from numba_baracuda import OPS

from .case import Case
from .kernel_cases import RowSumCase
from .monoid_cases import MonoidCase
from .peer import INDEXED
from .reduce_cases import ReduceCase
from .scan_cases import ScanCase
from .segment_cases import IndexCase, SegmentCase

MILLION = 1_000_000
Axes = tuple[tuple[int, ...], tuple[int, ...]]
Along = tuple[tuple[int, ...], int]
Extents = tuple[str, int, int, int]  #: distribution of ids, rows, columns, segments

WIDE: Extents = ("uniform", 2 * MILLION, 128, 100_000)
ZIPF: Extents = ("zipf", 2 * MILLION, 128, 100_000)
NARROW: Extents = ("uniform", 20 * MILLION, 16, MILLION)
SINGLE: Extents = ("uniform", 100 * MILLION, 1, MILLION)
UNIFORM = (WIDE, NARROW, SINGLE)
EVERY = (WIDE, ZIPF, NARROW, SINGLE)
HALF: Extents = ("uniform", 2 * MILLION, 64, 100_000)  #: half of the columns, for elements twice as wide
#: one segment, one for each row, every second one empty
EDGES: tuple[Extents, ...] = (("uniform", 2 * MILLION, 128, 1), ("each", MILLION, 128, MILLION), ("even", 2 * MILLION, 128, 200_000))
_CELLS = 1 << 28
ODD: tuple[Extents, ...] = tuple(("uniform", _CELLS // columns, columns, _CELLS // columns // 20) for columns in (37, 100, 257))
#: a few numbers for each of many nodes, as in attention over the edges of a graph
HEADS_4: Extents = ("uniform", 20 * MILLION, 4, MILLION)
HEADS_8: Extents = ("uniform", 20 * MILLION, 8, MILLION)
FEW_SINGLE: Extents = ("uniform", 100 * MILLION, 1, 64)
FEW_NARROW: Extents = ("uniform", 20 * MILLION, 16, 64)
SMALL: Extents = ("uniform", 100_000, 16, 5_000)

KINDS = ("sum", "mean", "max", "min", "prod")
FIRST = ("argmax", "argmin")
DEVIATIONS = ("norm2", "var", "std")


def _rows(pattern: str, kinds: Iterable[str], extents: Iterable[Extents], **options: Any) -> Iterator[Case]:
    """The ops that ``pattern`` names, each with all extents."""
    grid = list(extents)
    for kind in kinds:
        for each in grid:
            yield SegmentCase(pattern.format(kind), *each, **options)


def sorted_cases() -> Iterator[Case]:
    """Folds over sorted ids."""
    op = "segment_{}"
    yield from _rows(op, KINDS, EVERY)
    yield from _rows(op, ["sum"], [*EDGES, *ODD])
    yield from _rows(op, KINDS, [WIDE], element="bf16")
    yield from _rows(op, KINDS, [HALF], element="f64")
    yield from _rows(op, ["logsumexp", *DEVIATIONS], [WIDE])
    yield from _rows(op, FIRST, [WIDE])
    yield from _rows(op, ["softmax"], [HEADS_4, HEADS_8])
    yield from _rows(op, ["log_softmax"], [HEADS_8])


def unsorted_cases() -> Iterator[Case]:
    """Folds over ids in any order: in one call, with ``deterministic=False``, by one variant, and with an index that exists."""
    op = "unsorted_segment_{}"
    yield from _rows(op, KINDS, EVERY)
    yield from _rows(op, ["sum"], [WIDE], element="i32")
    yield from _rows(op, ["sum", "mean"], EVERY, deterministic=False)
    yield from _rows(op, ["max", "min"], UNIFORM, variant="atomic_exact")
    yield from _rows(op, INDEXED, UNIFORM, indexed=True)
    yield from _rows(op, FIRST, [WIDE])
    yield from _rows(op, ["softmax", "log_softmax"], [HEADS_8])
    yield from _rows(op, ["sum", "max"], [FEW_SINGLE])
    yield from _rows(op, ["sum"], [FEW_NARROW])


def gradient_cases() -> Iterator[Case]:
    """Backward ops; the small one has a peer that reads all rows for every element."""
    op = "segment_{}_backward"
    yield from _rows(op, KINDS, UNIFORM)
    yield from _rows(op, ["logsumexp", *DEVIATIONS], [WIDE])
    yield from _rows(op, ["softmax", "log_softmax"], [HEADS_8])
    yield from _rows(f"unsorted_{op}", ["sum", "mean"], UNIFORM)
    yield from _rows(f"unsorted_{op}", ["max"], [WIDE, SMALL])
    yield from _rows(f"unsorted_{op}", KINDS, [WIDE, NARROW], indexed=True)


#: shapes, and the reduced axes: rows as long as columns, columns in the middle, few long rows, many short ones, odd ones
SQUARE: tuple[Axes, ...] = (((16384, 16384), (1,)), ((16384, 16384), (0,)))
AXES: tuple[Axes, ...] = (
    *SQUARE, ((64, 8192, 512), (1,)), ((4, 1 << 26), (1,)), ((1 << 20, 256), (1,)), ((1 << 24, 16), (1,)), ((1 << 26, 4), (1,)),
)  # fmt: skip
UNEVEN: tuple[Axes, ...] = (((16383, 1000, 37), (0,)), ((16383, 1000, 37), (1,)), ((16383, 1000, 37), (2,)), ((16383, 16383), (1,)))
#: short rows, whose bytes no vector divides
SHORT = (((50_000_000, 5), "f32"), ((1_982_427, 49), "bf16"))
REDUCTIONS = (*KINDS, "logsumexp", *DEVIATIONS)


def reduce_cases() -> Iterator[Case]:
    """Reductions along axes, and their gradients."""
    for element in ("f32", "bf16", "f16", "f64"):
        for kind in REDUCTIONS:
            for shape, axes in AXES:
                yield ReduceCase(f"reduce_{kind}", shape, axes, element)
    for shape, axes in UNEVEN:
        yield ReduceCase("reduce_sum", shape, axes)
    for lies in ("misaligned", "transposed", "every_second_row"):
        for shape, axes in SQUARE:
            yield ReduceCase("reduce_sum", shape, axes, lies=lies)
    for kind in (*FIRST, "any", "all", "count_nonzero"):
        for shape, axes in SQUARE:
            yield ReduceCase(f"reduce_{kind}", shape, axes)
    for kind in REDUCTIONS:
        for shape, axes in SQUARE:
            yield ReduceCase(f"reduce_{kind}_backward", shape, axes)
        for shape, element in SHORT:
            yield ReduceCase(f"reduce_{kind}_backward", shape, (1,), element)


#: shapes, and the axis of the scan: long rows, short ones, middling ones, columns, columns in the middle; and rows, and few columns, so long that
#: many blocks share them
ROWS: Along = ((16384, 16384), 1)
COLUMNS: Along = ((16384, 16384), 0)
ENDLESS: tuple[Along, ...] = (((1, 1 << 28), 1), ((7, (1 << 25) + 3), 1))
TALL: tuple[Along, ...] = (((1 << 22, 24), 0), ((1 << 25, 3), 0))
SCANS: tuple[Along, ...] = (
    ROWS, ((1 << 20, 256), 1), ((32, 2048, 4096), 2), COLUMNS, ((64, 8192, 512), 1), ((32, 2048, 4096), 1), *ENDLESS, *TALL,
)  # fmt: skip
#: columns of few elements, narrow columns and columns of an odd width, in float32 and in bfloat16
ODD_COLUMNS: tuple[Along, ...] = (((4, 43_145_613), 0), ((50_000_003, 5), 0), ((345_678, 777), 0))
ODD_HALVES: tuple[Along, ...] = (((555, 7, 17_223), 1), ((7251, 4794, 6), 1))
#: counts, of which CSR offsets are the cumulative sums
OFFSETS: Along = (((1 << 27) + 3,), 0)
#: what is scanned in other elements than float32, forward and backward
_HALVES = (ROWS, COLUMNS, ENDLESS[0])
FORWARD: dict[str, tuple[Along, ...]] = {"bf16": _HALVES, "f16": _HALVES, "f64": (((8192, 16384), 1), ((8192, 16384), 0))}
WHOLE: dict[str, tuple[str, ...]] = {"cumsum": ("i32", "i64", "bool"), "cummax": ("i32",)}
BACKWARD: dict[str, tuple[Along, ...]] = {"bf16": (ROWS, COLUMNS)}


def scan_cases() -> Iterator[Case]:
    """Scans along an axis, and their gradients; very long rows also with ``deterministic=False``."""
    for name, op in OPS.items():
        if op.family != "scan":
            continue
        backward = op.traits["backward"]
        for shape, axis in (*SCANS, *ODD_COLUMNS):
            yield ScanCase(name, shape, axis)
        for shape, axis in ODD_HALVES:
            yield ScanCase(name, shape, axis, "bf16")
        if not all(variant.deterministic for variant in op.variants):
            for shape, axis in ENDLESS[:1] if backward else ENDLESS:
                yield ScanCase(name, shape, axis, deterministic=False)
        for element, problems in (BACKWARD if backward else FORWARD).items():
            for shape, axis in problems:
                yield ScanCase(name, shape, axis, element)
        for element in WHOLE.get(name, ()):
            for shape, axis in (*_HALVES, OFFSETS):
                yield ScanCase(name, shape, axis, element)
    yield ScanCase("cumsum", *ROWS, reverse=True)


def monoid_cases() -> Iterator[Case]:
    """Folds by users' monoids, to compare with the built-in ops of the same bytes."""
    for op in ("segment_sum", "segment_max", "segment_var", "unsorted_segment_sum"):
        yield MonoidCase(SegmentCase(op, *WIDE))
    for op in ("reduce_sum", "reduce_var"):
        for shape, axes in SQUARE:
            yield MonoidCase(ReduceCase(op, shape, axes))
    for shape, axis in (ROWS, COLUMNS, ENDLESS[0]):
        yield MonoidCase(ScanCase("cumsum", shape, axis))


def index_cases() -> Iterator[Case]:
    """Ids put in order once, in segments of 20 rows and of 3 in the mean, numbers that no vector divides; found out and told not to ascend."""
    for rows, segments in ((5_000_003, 250_000), (50_000_003, 16_666_668)):
        yield IndexCase(rows, segments)
        yield IndexCase(rows, segments, told=True)


def kernel_cases() -> Iterator[Case]:
    """Kernels that are not ops."""
    yield RowSumCase(16384, 16384)


FAMILIES = (sorted_cases, unsorted_cases, gradient_cases, reduce_cases, scan_cases, monoid_cases, index_cases, kernel_cases)


def matching(op: str = "*", case: str = "*") -> list[Case]:
    """The cases whose op and id match two shell patterns."""
    every = (each for family in FAMILIES for each in family())
    return [each for each in every if fnmatch.fnmatchcase(each.op, op) and fnmatch.fnmatchcase(each.id, case)]
