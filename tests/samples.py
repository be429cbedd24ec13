"""Problems: shapes, ids and values that together meet every edge of the kernels. Any op of the segment family runs on any of them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from references import Array, truth
from tolerance import assert_close

from numba_baracuda import OPS, SegmentDescriptor, arrays, plan
from numba_baracuda.dtypes import numpy_dtype
from numba_baracuda.op import Op, Variant
from numba_baracuda.segment.tiling import FOLD_THREADS, GAP, UNROLL, Tiling, share_for

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
    """A few segments hold most rows."""
    return np.sort(np.minimum(rng.zipf(1.3, rows) - 1, segments - 1))


def outside(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """A third of the ids below the range, a third above."""
    return np.sort(rng.integers(-segments - 1, 2 * segments + 1, rows))


def far_outside(rng: np.random.Generator, rows: int, segments: int) -> Array:
    """int64 ids that would be inside if they were cut to 32 bits."""
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


@dataclass(frozen=True)
class Sample:
    """A problem; ``ids`` are made in order and shuffled for ops that take any."""

    name: str
    rows: int
    trailing: tuple[int, ...]
    segments: int
    ids: Ids = anywhere
    element: str = "f32"
    index: str = "i32"
    whole: bool = False  #: values on which arithmetic is exact, with ties and zeros among them

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
    """Gaps of every length around GAP and twice that, at several alignments to it: in front, in the middle and at the end."""
    made = []
    for gap in (0, GAP - 1, GAP, GAP + 1, 2 * GAP, 2 * GAP + 1):
        between = np.array([gap, GAP - 1, GAP, 0, GAP + 1, 1, 2 * GAP - 1, 2 * GAP, 2 * GAP + 1])
        ids = np.cumsum(between + 1) - 1
        made.append(Sample(f"gaps, {gap} in front", len(ids), (3,), int(ids[-1]) + 1 + gap, lambda rng, rows, segments, ids=ids: ids))
    return made


SAMPLES = [
    Sample("one element", 1, (1,), 1),
    Sample("no rows", 0, (3,), 200),
    Sample("no rows, few segments", 0, (4,), 5, element="f64"),
    Sample("no rows, no segments", 0, (3,), 0),
    Sample("no segments", 5, (3,), 0, outside),
    Sample("no columns", 5, (0,), 3),
    Sample("no columns among others", 5, (2, 0, 3), 3),
    Sample("rank 1", 700, (), 40),
    Sample("rank 1 f64", 300, (), 40, element="f64", index="i64"),
    Sample("rank 3", 40, (3, 5), 7),
    Sample("rank 8", 9, (1, 2, 1, 2, 1, 2, 3), 4),
    Sample("one row", 1, (37,), 9, all_are(4)),
    Sample("one row, first segment", 1, (4,), 100, all_are(0), "f64"),
    Sample("one row, last segment", 1, (4,), 100, all_are(99)),
    Sample("one segment", 150, (8,), 1),
    Sample("one segment for each row", 100, (4,), 100, every()),
    Sample("all ids equal", 150, (5,), 30, all_are(11)),
    Sample("all ids distinct", 60, (4,), 200, every(3, 5), index="i64"),
    Sample("more segments than rows", 20, (2,), 1000),
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
    Sample("skewed", 120, (8,), 40, skewed),
    Sample("whole numbers", 120, (4,), 15, whole=True),
    Sample("whole numbers f64", 120, (1,), 15, whole=True, element="f64"),
    Sample("1 column", 1100, (1,), 50, runs),
    Sample("1 column, long", 5000, (1,), 300, runs),
    Sample("1 column, heads everywhere", 600, (1,), 700, every()),
    Sample("1 column, one segment", 2600, (1,), 3, all_are(1), "f64", "i64"),
    Sample("2 columns", 150, (2,), 50, runs),
    Sample("3 columns", 650, (3,), 70, runs),
    Sample("3 columns i64", 2500, (3,), 90, runs, index="i64"),
    Sample("5 columns", 300, (5,), 50, runs),
    Sample("2 columns f64", 150, (2,), 50, runs, "f64"),
    Sample("4 columns f64", 150, (4,), 50, runs, "f64", "i64"),
    Sample("16 columns", 300, (16,), 50, runs),
    Sample("37 columns", 40, (37,), 12, runs),
    Sample("37 columns f64", 40, (37,), 12, runs, "f64"),
    Sample("128 columns", 40, (128,), 12),
    Sample("130 columns", 40, (130,), 12, runs),
    Sample("257 columns", 20, (257,), 6),
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
]


def boundaries(columns: int, vector: int, multiprocessors: int) -> list[int]:
    """Numbers of rows around the sizes of tiles and blocks, where blocks are as small as they get, and where that ends."""
    share = share_for(4 * columns)
    tile, shape = (32 * share, Tiling.of_narrow(0, share, 1)) if share else (UNROLL, Tiling(0, columns, vector, UNROLL, FOLD_THREADS))
    block = shape.groups * tile
    full = 2 * multiprocessors * block
    if share:
        return [tile - 1, tile + 1, block - 1, block, block + 1]
    return [UNROLL - 1, UNROLL + 1, block - 1, block, block + 1, 5 * block + UNROLL - 1, *([full, full + 1] if multiprocessors > 1 else [])]


FORWARD = [op for op in OPS.values() if op.operands[-1].axes[0] != "num_inputs"]
BACKWARD = [op for op in OPS.values() if op.operands[-1].axes[0] == "num_inputs"]


def variants_of(ops: list[Op], deterministic: bool = False) -> list[Any]:
    """Every op with every variant, or every deterministic one."""
    return [(op, variant) for op in ops for variant in op.variants if variant.deterministic or not deterministic]


def name_of(parameter: Any) -> str:
    """The test id of an op, a variant or a sample."""
    return parameter.name.replace(" ", "_") if hasattr(parameter, "name") else str(parameter)


def values(rng: np.random.Generator, shape: tuple[int, ...], op: Op, sample: Sample) -> Array:
    """Values whose products neither overflow nor vanish, if the op multiplies."""
    if "prod" in op.name:
        made = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0], shape, p=[0.2, 0.25, 0.1, 0.2, 0.25])
        spread = min(0.3, 20 / np.sqrt(sample.rows + 1))
        return made if sample.whole else rng.choice([-1.0, 1.0], shape) * np.exp(rng.uniform(-spread, spread, shape))
    return rng.integers(-8, 9, shape).astype(np.float64) if sample.whole else rng.standard_normal(shape) * 3


def operands(op: Op, sample: Sample) -> dict[str, Array]:
    """The inputs of an op, by name in their order."""
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
    if "output" in [operand.name for operand in op.operands[:-1]]:
        forward = op.name.removesuffix("_backward")
        saved = truth(forward, {"input": given["input"], "segment_ids": given["segment_ids"]}, sample.segments).value
        given["output"] = saved.astype(numpy_dtype(sample.element))
    return {operand.name: given[operand.name] for operand in op.operands[:-1]}


def descriptor(op: Op, sample: Sample, **options: Any) -> SegmentDescriptor:
    return SegmentDescriptor(op.name, sample.rows, sample.columns, sample.segments, sample.element, sample.index, **options)


def plan_of(op: Op, variant: Variant, described: SegmentDescriptor, multiprocessors: int = 0) -> plan.Plan:
    """The plan of one variant, for the emulator also as if a device had ``multiprocessors``."""
    target = plan.target_of(-1 if arrays.emulating() else 0)
    if multiprocessors:
        target = replace(target, multiprocessors=multiprocessors)
    needed = max(variant.recipe(op, described, layouts, target).workspace for layouts in described.typical_layouts(op))
    return plan.Plan(op, described, variant, target, needed)


def run(kind: Any, made: plan.Plan, given: dict[str, Array], seed: int | None = None, **keywords: Any) -> Array:
    """Runs a plan on copies of the inputs, with garbage in the output beforehand; returns the output as NumPy's."""
    output = made.op.operands[-1]
    first = next(iter(given.values()))
    out = kind.poisoned((getattr(made.descriptor, output.axes[0]), *first.shape[1:]), first.dtype)
    with kind.schedule(seed):
        made.run(**{name: kind.array(array) for name, array in given.items()}, **{output.name: out}, **keywords)
    return kind.numpy(out)


def check(kind: Any, op: Op, variant: Variant, sample: Sample, given: dict[str, Array], multiprocessors: int = 0, **options: Any) -> Array:
    """Runs a variant and compares with the truth."""
    described = descriptor(op, sample, **options)
    if variant.refuses(op, described):
        pytest.skip(f"{variant.name} {variant.refuses(op, described)}")
    got = run(kind, plan_of(op, variant, described, multiprocessors), given, sample.schedule)
    assert_close(got, truth(op.name, given, sample.segments, options.get("empty")), sample.element, op.name)
    return got


def function(op: Op) -> Callable[..., Any]:
    import numba_baracuda

    return getattr(numba_baracuda, op.name)  # type: ignore[no-any-return]


def call(op: Op, given: list[Any], segments: int, **keywords: Any) -> Any:
    """The op's function on arrays."""
    return function(op)(*given, *([segments] if op in FORWARD else []), **keywords)
