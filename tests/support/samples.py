"""Problems: shapes, ids and values that together reach every edge case of the kernels. Any op of the segment family runs on any of them.

The emulator infers the types of every kernel in every process, which takes a second, where running it takes some hundredths. So one op for each
algorithm runs on all problems, the others run on ``CORE``, and small tests use the shapes of ``CORE``, whose kernels are then lowered already.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from kinds import KINDS
from references import BY_ROW, INTEGERS, OPS, POSITIONS, Array, stem, truth
from tolerance import assert_close

from numba_baracuda import SegmentDescriptor
from numba_baracuda.arrays import arrays
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op, Variant
from numba_baracuda.plans import plan
from numba_baracuda.segment.policy import FoldNarrow, FoldTiles
from numba_baracuda.segment.policy_of import narrow_items
from numba_baracuda.segment.tiling import GAP, Tiling

Ids = Callable[[np.random.Generator, int, int], Array]


def uniform(low: float = 0.0, high: float = 1.0) -> Ids:
    """Ids in a part of the range."""
    return lambda rng, rows, segments: np.sort(rng.integers(int(low * segments), max(int(high * segments), 1), rows))


anywhere = uniform()


def every(step: int = 1, start: int = 0) -> Ids:
    """Distinct ids, ``step`` apart."""
    return lambda rng, rows, segments: start + step * np.arange(rows)


def all_are(which: int) -> Ids:
    return lambda rng, rows, segments: np.full(rows, which)


def skewed(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """A few segments have most rows."""
    return np.sort(np.minimum(rng.zipf(1.3, rows) - 1, segments - 1))


def outside(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """A third of the ids below the range, a third above."""
    return np.sort(rng.integers(-segments - 1, 2 * segments + 1, rows))


def far_outside(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """int64 ids that are out of range, but in range if cast to 32 bits."""
    return np.sort(rng.integers(0, segments, rows) + rng.choice([-(1 << 32), 0, 1 << 32, 1 << 62], rows))


def limits(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """The least and the greatest int32 among the ids."""
    return np.sort(rng.choice([-(1 << 31), -1, 0, segments - 1, segments, (1 << 31) - 1], rows))


def runs(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """Runs of all lengths, from single rows to a third of them, with short and long gaps and ids outside the range."""
    ids, identifier = np.empty(rows, np.int64), -2
    row = 0
    while row < rows:
        length = int(np.exp(rng.uniform(0, np.log(rows / 3 + 2))))
        ids[row : row + length] = identifier
        row += length
        identifier += int(rng.choice([1, 1, 1, 2, GAP, 2 * GAP + 3]))
    return ids


def around_a_long_one(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """One segment has three quarters of the rows, with short ones on both sides and ids outside the range at both ends."""
    short = rows // 8
    front, back = rng.integers(-2, segments // 2, short), rng.integers(segments // 2 + 1, segments + 2, short)
    return np.concatenate([np.sort(front), np.full(rows - 2 * short, segments // 2), np.sort(back)])


@dataclass(frozen=True)
class Sample:
    """A problem; ``ids`` are sorted, and shuffled for ops that take any order."""

    name: str
    rows: int
    trailing: tuple[int, ...]
    segments: int
    ids: Ids = anywhere
    element: str = "f32"
    index: str = "i32"
    whole: bool = False  #: whether values are small whole numbers with ties and zeros, on which arithmetic is exact
    offset: float = 0.0  #: added to every value

    @property
    def columns(self) -> int:
        return int(np.prod(self.trailing, dtype=np.int64))

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())

    @property
    def schedule(self) -> int | None:
        """Seed of the emulator's checked mode, or the fast mode where that would take seconds."""
        return self.seed if self.rows * self.columns <= 2000 else None


def _gaps() -> list[Sample]:
    """Gaps of lengths around GAP and twice that, at several alignments: before, between and after segments."""
    made = []
    for gap in (0, GAP - 1, GAP, GAP + 1, 2 * GAP, 2 * GAP + 1):
        between = np.array([gap, GAP - 1, GAP, 0, GAP + 1, 1, 2 * GAP - 1, 2 * GAP, 2 * GAP + 1])
        ids = np.cumsum(between + 1) - 1
        made.append(Sample(f"gaps, {gap} in front", len(ids), (3,), int(ids[-1]) + 1 + gap, lambda rng, rows, segments, ids=ids: ids))
    return made


SAMPLES = [
    Sample("one element", 1, (1,), 1),
    Sample("no rows", 0, (3,), 200),
    Sample("no rows, few segments", 0, (3,), 5, element="f64", index="i64"),
    Sample("no rows, no segments", 0, (3,), 0),
    Sample("no segments", 5, (3,), 0, outside),
    Sample("no columns", 5, (0,), 3),
    Sample("no columns among others", 5, (2, 0, 3), 3),
    Sample("rank 1", 700, (), 40),
    Sample("rank 1 f64", 300, (), 40, element="f64", index="i64"),
    Sample("rank 3", 40, (2, 8), 7),
    Sample("rank 8", 9, (1, 2, 1, 2, 1, 2, 2), 4),
    Sample("one row", 1, (37,), 9, all_are(4)),
    Sample("one row, first segment", 1, (4,), 100, all_are(0)),
    Sample("one row, last segment", 1, (4,), 100, all_are(99)),
    Sample("one segment", 150, (16,), 1),
    Sample("one segment for each row", 100, (4,), 100, every()),
    Sample("all ids equal", 150, (3,), 30, all_are(11)),
    Sample("all ids distinct", 60, (4,), 200, every(3, 5), index="i64"),
    Sample("more segments than rows", 20, (3,), 1000),
    Sample("half of the segments empty", 90, (4,), 60, lambda rng, rows, segments: np.sort(2 * rng.integers(0, segments // 2, rows))),
    Sample("empty in front", 50, (4,), 60, uniform(0.7, 1.0)),
    Sample("empty in the middle", 50, (4,), 90, lambda rng, rows, segments: np.sort(rng.choice([*range(9), *range(80, 90)], rows))),
    Sample("empty at the end", 50, (4,), 60, uniform(0.0, 0.3)),
    *_gaps(),
    Sample("outside", 90, (4,), 30, outside),
    Sample("outside f64 i64", 90, (3,), 30, outside, "f64", "i64"),
    Sample("far outside", 90, (4,), 30, far_outside, index="i64"),
    Sample("limits of int32", 60, (4,), 100, limits),
    Sample("limits of int32 in int64", 60, (4,), 100, limits, index="i64"),
    Sample("all below", 30, (4,), 10, all_are(-7)),
    Sample("all above", 30, (4,), 10, all_are(10)),
    Sample("skewed", 120, (16,), 40, skewed),
    Sample("whole numbers", 120, (4,), 15, whole=True),
    Sample("whole numbers f64", 120, (1,), 15, whole=True, element="f64", index="i64"),
    Sample("1 column", 1100, (1,), 50, runs),
    Sample("1 column, long", 5000, (1,), 300, runs),
    Sample("1 column, heads everywhere", 600, (1,), 700, every()),
    Sample("1 column, one segment", 2600, (1,), 3, all_are(1), "f64", "i64"),
    Sample("2 columns", 150, (2,), 50, runs),
    Sample("3 columns", 650, (3,), 70, runs),
    Sample("4 columns i64", 2500, (4,), 90, runs, index="i64"),
    Sample("5 columns", 300, (5,), 50, runs),
    Sample("3 columns f64", 150, (3,), 50, runs, "f64", "i64"),
    Sample("4 columns f64", 150, (4,), 50, runs, "f64", "i64"),
    Sample("16 columns", 300, (16,), 50, runs),
    Sample("37 columns", 40, (37,), 12, runs),
    Sample("36 columns f64", 40, (36,), 12, runs, "f64", "i64"),
    Sample("36 columns", 40, (36,), 12, runs),
    Sample("128 columns", 40, (128,), 12),
    Sample("130 columns", 40, (130,), 12, runs),
    Sample("257 columns", 20, (257,), 6),
    Sample("1 column f16", 700, (1,), 50, runs, "f16"),
    Sample("3 columns f16", 300, (3,), 50, runs, "f16"),
    Sample("24 columns f16 i64", 100, (24,), 30, runs, "f16", "i64"),
    Sample("37 columns f16", 40, (37,), 12, runs, "f16"),
    Sample("whole numbers f16", 120, (3,), 15, whole=True, element="f16"),
    Sample("3 columns bf16", 200, (3,), 50, runs, "bf16"),
    Sample("16 columns bf16 i64", 100, (16,), 30, runs, "bf16", "i64"),
    Sample("1 column of i32", 1100, (1,), 50, runs, "i32"),
    Sample("3 columns of i32", 300, (3,), 50, runs, "i32"),
    Sample("3 columns of i64", 150, (3,), 50, runs, "i64"),
    Sample("4 columns of i64", 120, (4,), 30, outside, "i64", "i64"),
]

#: those with edge cases of the ragged folds only
RAGGED = ("2 columns", "5 columns", "130 columns", "257 columns", "4 columns i64", "36 columns f64", "1 column f16", "37 columns f16")

#: for ops whose algorithm another op tests on all of the above
CORE = [
    Sample("core, 1 column", 700, (), 50, runs),
    Sample("core, 1 column, one segment", 1300, (1,), 3, all_are(1)),
    Sample("core, 3 columns", 300, (3,), 70, runs),
    Sample("core, whole numbers", 150, (3,), 30, outside, whole=True),
    Sample("core, large offset", 90, (3,), 7, outside, offset=10_000),
    Sample("core, no rows", 0, (3,), 200),
    Sample("core, 36 columns", 150, (36,), 20, around_a_long_one),
    Sample("core, rank 3", 30, (4, 9), 9, skewed),
    Sample("core, f64 i64", 90, (3,), 30, far_outside, "f64", "i64"),
    Sample("core, no segments", 5, (3,), 0, outside),
    Sample("core, no columns", 5, (0,), 3),
]
#: for the unsorted ops of these, and for ops that differ from another by a sign or a root
BRIEF = [
    sample for sample in CORE if sample.name in ("core, 3 columns", "core, whole numbers", "core, no rows", "core, 36 columns", "core, no columns")
]
TWINS = {"min": "max", "std": "var", "argmin": "argmax"}
#: element types for ops that run on ``CORE``; those that run on ``BRIEF`` have the first only
TYPES = [
    Sample("core, f16", 150, (3,), 40, runs, "f16"),
    Sample("core, bf16", 150, (3,), 40, runs, "bf16"),
    Sample("core, i32", 150, (3,), 40, runs, "i32"),
    Sample("core, i64", 150, (3,), 40, outside, "i64"),
]

BIG = [
    Sample("2M x 32, uniform", 2_000_000, (32,), 100_000),
    Sample("2M x 32 f64 i64", 1_000_003, (32,), 50_000, element="f64", index="i64"),
    Sample("1M x 1", 1_000_000, (1,), 40_000),
    Sample("rank 1, 3M", 3_000_001, (), 40_000, element="f64"),
    Sample("3 columns", 2_000_003, (3,), 90_000, runs),
    Sample("skewed", 1_000_000, (16,), 100_000, skewed),
    Sample("one segment holds everything", 1_500_000, (8,), 3, all_are(1)),
    Sample("one segment, 1 column", 3_000_000, (1,), 1),
    Sample("as many segments as rows", 700_000, (8,), 700_000, every()),
    Sample("many more segments than rows", 10_000, (8,), 5_000_000),
    Sample("half of the segments empty", 500_000, (4,), 400_000, lambda rng, rows, segments: np.sort(2 * rng.integers(0, segments // 2, rows))),
    Sample("runs", 1_000_000, (24,), 60_000, runs),
    Sample("outside", 500_000, (12,), 50_000, outside),
    Sample("37 columns", 300_000, (37,), 20_000),
    Sample("100 columns", 200_000, (100,), 20_000, index="i64"),
    Sample("257 columns", 100_000, (257,), 9_000),
    Sample("1000 columns", 30_000, (1000,), 3_000, runs),
    Sample("100000 columns", 300, (100_000,), 20),
    Sample("no rows", 0, (64,), 1_000_000),
    Sample("rank 3", 200_000, (3, 7), 20_000),
    Sample("2M x 32 f16", 2_000_000, (32,), 100_000, element="f16"),
    Sample("1M x 1 f16", 1_000_000, (1,), 40_000, runs, "f16", "i64"),
    Sample("300k x 100 bf16", 300_000, (100,), 20_000, skewed, "bf16"),
    Sample("1M x 3 of i32", 1_000_000, (3,), 40_000, runs, "i32"),
    Sample("1M x 8 of i64", 1_000_000, (8,), 40_000, skewed, "i64", "i64"),
]
BIG_CORE = [
    Sample("core, 1M x 32", 1_000_000, (32,), 50_000),
    Sample("core, 2M x 1", 2_000_000, (1,), 90_000, runs),
    Sample("core, 500k x 3 f64 i64", 500_000, (3,), 40_000, skewed, "f64", "i64"),
    Sample("core, one segment holds everything", 400_000, (8,), 3, all_are(1)),
    Sample("core, 1M x 3, large offset", 1_000_000, (3,), 20_000, outside, offset=10_000),
    Sample("core, 500k x 16 f16", 500_000, (16,), 30_000, runs, "f16"),
    Sample("core, 500k x 5 bf16", 500_000, (5,), 30_000, element="bf16"),
    Sample("core, 500k x 4 of i32", 500_000, (4,), 30_000, runs, "i32"),
]


def boundaries(columns: int, vector: int, multiprocessors: int, length: int) -> list[int]:
    """Numbers of rows around the sizes of tiles and blocks, and around the end of the smallest blocks; ``length`` rows for each segment."""
    share, unroll = narrow_items(4 * columns, length, 1), FoldTiles.items_per_thread
    if share:
        tile, shape = 32 * share, Tiling.of_narrow(FoldNarrow(items_per_thread=share), 0, 1)
    else:
        tile, shape = unroll, Tiling(0, columns, vector, unroll, FoldTiles.threads_per_block)
    block = shape.groups * tile
    full = 2 * multiprocessors * block
    if share:
        return [tile - 1, tile + 1, block - 1, block, block + 1]
    return [unroll - 1, unroll + 1, block - 1, block, block + 1, 5 * block + unroll - 1, *([full, full + 1] if multiprocessors > 1 else [])]


FORWARD = [op for op in OPS.values() if not op.traits["backward"]]
BACKWARD = [op for op in OPS.values() if op.traits["backward"]]


@functools.cache
def serves(op: Op, variant: Variant) -> bool:
    """Whether a variant takes an array of ids; some take a :class:`SegmentIndex` only."""
    return any(not variant.refuses(op, descriptor(op, sample)) for sample in (*CORE, *TYPES) if sample.element in op.elements)


def variants_of(ops: Sequence[Op], deterministic: bool = False) -> list[Any]:
    """Every op with every variant, or every deterministic one."""
    return [(op, variant) for op in ops for variant in op.variants if serves(op, variant) and (variant.deterministic or not deterministic)]


@functools.cache
def _representatives() -> frozenset[tuple[str, str]]:
    """(op, variant) pairs, one for each name of a variant."""
    names = ("segment_sum", "unsorted_segment_sum", "unsorted_segment_max", "segment_sum_backward", "segment_max_backward")
    chosen: dict[str, tuple[str, str]] = {}
    for op, variant in variants_of([*[OPS[name] for name in names if name in OPS], *OPS.values()]):
        if variant.name != "atomic_exact" or stem(op.name) != "sum":  # an op on floats tests it harder
            chosen.setdefault(variant.name, (op.name, variant.name))
    return frozenset(chosen.values())


def represents(op: Op, variant: Variant) -> bool:
    """Whether this op tests the variant's algorithm on every problem; other ops with the algorithm run on few."""
    return (op.name, variant.name) in _representatives()


def tells(op: Op, variant: Variant) -> bool:
    """Whether an op and a variant need more than ``BRIEF``: not the unsorted twin, nor an op that differs from another by a sign or a root."""
    return represents(op, variant) or (op.traits["ordered"] and stem(op.name) not in TWINS)


def cases(ops: Sequence[Op], full: Sequence[Any], few: Sequence[Any], deterministic: bool = False) -> list[Any]:
    """Op, variant and one of ``full`` where the op represents the variant's algorithm, else one of ``few``."""
    return [(op, variant, each) for op, variant in variants_of(ops, deterministic) for each in (full if represents(op, variant) else few)]


def sampled(ops: Sequence[Op]) -> list[Any]:
    """Op, variant and sample, of elements that the op has: all samples for a representative, fewer where other ops test the same."""
    made, others = [], [sample for sample in SAMPLES if sample.name not in RAGGED]
    for op, variant in variants_of(ops):
        full = SAMPLES if variant.name.startswith("ragged") else others
        brief = [*BRIEF, TYPES[0]] if stem(op.name) in TWINS or not op.traits["ordered"] else []
        few = brief if sum(not variant.refuses(op, descriptor(op, sample)) for sample in brief) > 3 else [*CORE, *TYPES]
        made += [(op, variant, sample) for sample in (full if represents(op, variant) else few) if sample.element in op.elements]
    return made


def name_of(parameter: Any) -> str:
    """The test id of an op, a variant or a sample."""
    return parameter.name.replace(" ", "_").replace(",", "") if hasattr(parameter, "name") else str(parameter)


def values(rng: np.random.Generator, shape: tuple[int, ...], op: Op, sample: Sample) -> Array:
    """Values; for an op that multiplies, their products neither overflow nor underflow."""
    whole = sample.whole or stem(op.name) in POSITIONS  # ties make positions matter
    if sample.element in INTEGERS:
        return rng.integers(-3, 4, shape) if stem(op.name) == "prod" else rng.integers(*((-8, 9) if whole else (-1000, 1001)), shape)
    if stem(op.name) == "prod":
        made = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], shape, p=[0.2, 0.25, 0.1, 0.2, 0.25])
        spread = min(0.3, (6 if sample.element == "f16" else 20) / np.sqrt(sample.rows + 1))
        return made if sample.whole else rng.choice([-1.0, 1.0], shape) * np.exp(rng.uniform(-spread, spread, shape))
    made = rng.integers(-8, 9, shape).astype(np.float64) if whole else rng.standard_normal(shape) * 3
    return made + sample.offset


def operands(op: Op, sample: Sample, **options: Any) -> dict[str, Array]:
    """The inputs of an op, by name in their order, with the saved output for these options."""
    rng = np.random.default_rng([sample.seed, zlib.crc32(op.name.encode())])
    ids = sample.ids(rng, sample.rows, sample.segments)
    if not op.traits["ordered"]:
        ids = rng.permutation(ids)
    given = {}
    for operand in op.operands:
        if operand.index:
            given[operand.name] = ids.astype(numpy_dtype(sample.index))
        elif not operand.output and operand.name != "output":
            extent = sample.rows if operand.axes[0] == "num_inputs" else sample.segments
            given[operand.name] = values(rng, (extent, *sample.trailing), op, sample).astype(numpy_dtype(sample.element))
    names = [operand.name for operand in op.operands[:-1]]
    if "output" in names:
        made = given.get("input", values(rng, (sample.rows, *sample.trailing), op, sample).astype(numpy_dtype(sample.element)))
        given["output"] = saved(op, made, given["segment_ids"], sample, **options)
    return {name: given[name] for name in names}


def saved(op: Op, input: Array, ids: Array, sample: Sample, **options: Any) -> Array:
    """The output of a gradient's forward op, rounded to the dtype in which it is saved."""
    forward = truth(op.name.removesuffix("_backward"), {"input": input, "segment_ids": ids}, sample.segments, **options)
    with np.errstate(over="ignore"):
        return forward.value.astype(numpy_dtype(sample.element))


def descriptor(op: Op, sample: Sample, **options: Any) -> SegmentDescriptor:
    return SegmentDescriptor(op.name, sample.rows, sample.columns, sample.segments, sample.element, sample.index, **options)


def plan_of(op: Op, variant: Variant, described: SegmentDescriptor, multiprocessors: int = 0) -> plan.Plan:
    """The plan of one variant, in the emulator with ``multiprocessors`` if given; skips where the variant refuses."""
    refusal = variant.refuses(op, described)
    if refusal:
        pytest.skip(f"{variant.name} {refusal}")
    target = plan.target_of(-1 if arrays.emulating() else 0)
    if multiprocessors:
        target = replace(target, multiprocessors=multiprocessors)
    return plan.Plan(op, described, variant, target)


def suited(kind: Any, element: str) -> Any:
    """The kind itself, or torch's where CuPy lacks the element type."""
    if element == "bf16" and kind.name == "cupy":
        pytest.importorskip("torch")
        return KINDS["torch"]
    return kind


def run(kind: Any, made: plan.Plan, given: dict[str, Array], seed: int | None = None, **keywords: Any) -> Array:
    """Runs a plan on copies of the inputs, with garbage in the output beforehand; returns the output as a NumPy array."""
    kind = suited(kind, made.descriptor.element)
    output = made.op.operands[-1]
    first = next(iter(given.values()))
    out = kind.poisoned((getattr(made.descriptor, output.axes[0]), *first.shape[1:]), numpy_dtype(made.descriptor.result_of(made.op)))
    with kind.schedule(seed):
        made.run(**{name: kind.array(array) for name, array in given.items()}, **{output.name: out}, **keywords)
    return kind.numpy(out)


def check(kind: Any, op: Op, variant: Variant, sample: Sample, given: dict[str, Array], multiprocessors: int = 0, **options: Any) -> Array:
    """Runs a variant and compares with the truth."""
    got = run(kind, plan_of(op, variant, descriptor(op, sample, **options), multiprocessors), given, sample.schedule)
    assert_close(got, truth(op.name, given, sample.segments, **options), sample.element, op.name)
    return got


def output_type(op: Op, sample: Sample) -> Any:
    """The NumPy dtype of an op's result."""
    return numpy_dtype(descriptor(op, sample).result_of(op))


def function(op: Op) -> Callable[..., Any]:
    import numba_baracuda

    return getattr(numba_baracuda, op.name)  # type: ignore[no-any-return]


def takes_segments(op: Op) -> bool:
    """Whether an op's function has ``num_segments``: no input has that extent."""
    return all(operand.axes[0] != "num_segments" for operand in op.operands[:-1])


def call(op: Op, given: Sequence[Any], segments: int, **keywords: Any) -> Any:
    """The op's function on arrays."""
    return function(op)(*given, *([segments] if takes_segments(op) else []), **keywords)


def takes_empty(op: Op) -> bool:
    """Whether an op has a value for empty segments that a caller may choose."""
    return op in FORWARD and stem(op.name) not in BY_ROW
