"""Every path of every kernel under the race detector: several tiles, blocks and steps, short last tiles, runs and look-back across blocks.

Problems are as small as these paths allow: tiles are small, and the device has one or very many multiprocessors. ``python -m tests.mutate --lines``
lists lines that none of these tests reaches; ``python -m tests.mutate`` changes kernels, so that a test must fail.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import loss_cases
import numpy as np
import pytest
import rank_cases
import reduce_cases
import samples
import scan_cases
import scan_reference
from kinds import Kind
from samples import Sample
from user_monoids import LAST

import numba_baracuda as nb
from numba_baracuda import OPS
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.emulator import emulator as emulation
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.descriptor import reduced_axes
from numba_baracuda.reduce.policy import (
    BroadcastDense,
    CombinePartials,
    FoldAndBroadcastColumns,
    FoldColumns,
    FoldHeld,
    FoldLines,
    FoldRows,
    FoldStagedRows,
    Passes,
    SinglePass,
)
from numba_baracuda.scan.policy import ScanColumns, ScanLongColumns, ScanLongRows, ScanRows, ScanSlabs, ScanSlices
from numba_baracuda.segment.kernels import choose_passes, count_ids, scatter_rows, split_ranges
from numba_baracuda.segment.policy import (
    BoundShortSegments,
    BroadcastFlat,
    BroadcastRuns,
    CountFewIds,
    CountIds,
    Crowds,
    FirstFault,
    FoldAndBroadcast,
    FoldAndBroadcastShort,
    FoldAndBroadcastStaged,
    FoldAndBroadcastWide,
    FoldCarries,
    FoldGaps,
    FoldLookback,
    FoldRanges,
    FoldShortRuns,
    FoldStaged,
    FoldThenBroadcast,
    FoldTiles,
    GatherMeans,
    IdPasses,
    PermutedRows,
)
from numba_baracuda.segment.tiling import RANGE, RANGE_BITS, RANGE_TILE

Case = Callable[[Kind, pytest.MonkeyPatch], None]
CASES: dict[str, Case] = {}
SEED = 1
#: so many multiprocessors that a group has one step of rows, and every few rows a block of their own
MANY = 1000


def _add(name: str, case: Case) -> None:
    assert name not in CASES, name
    CASES[name] = case


# ---------------------------------------------------------------- segments


def runs_of(*lengths: int) -> samples.Ids:
    """Ids in order with these lengths of runs, of which 0 is an empty segment."""
    return lambda rng, rows, segments: np.repeat(np.arange(len(lengths)), lengths)


def fold(
    name: str, op: str, variant: str, sample: Sample, multiprocessors: int = 1, tiles: int = 4, threads: int = 0, tile: int = 0,
    disordered: bool = False, cached: bool = True, short: bool = False, staged: int = 0, at_once: int = 0, held: int = 1300, narrow_stage: int = 0,
    narrow_threads: int = 64, carries: dict[str, int] | None = None, together: bool = False, in_runs: bool = False, registers: int = 0,
    by_rows: bool = False, share: float = IdPasses.cache_share, tabled: bool = False, filled: int = FoldGaps.range_bytes,
    sparse: int = FoldGaps.sparse_bytes, **options: Any,
) -> None:  # fmt: skip
    """``tiles`` are those of a part of a range, ``threads`` those of a block that folds tiles, 0 for as many as usual; ``tile`` elements of a warp
    that broadcasts, 0 for usual blocks. ``cached``: whether random accesses to few rows are cheap.
    ``short``: whether runs of narrow rows are taken for short ones, or for long ones. ``staged``: bytes that a warp copies to shared memory at a
    time, or 0 where no rows are staged. ``at_once``: bytes of a run that are too many for one launch, 0 for other launches only; a block of that
    launch holds so many bytes of rows as are ``held``; or, with a ``narrow_stage``, so many, and ``narrow_threads`` a block. ``carries``: the policy
    by which these are combined, where blocks leave some; else they look back. ``together``: whether one launch folds and broadcasts, where it can.
    ``in_runs``: whether lanes keep their columns where they broadcast, or rows end anywhere. ``registers``: rows that a thread of a launch of all has
    in registers, or 0. ``by_rows``: whether lanes that broadcast have rows, never pieces of all rows. ``share``: share of the level 2 cache that a
    pass of atomics may fill. ``tabled``: whether blocks that add look for ids that crowd. ``filled``: bytes of a gap that a warp fills as a range.
    ``sparse``: bytes of an output that is filled first where most segments are empty.

    For ``disordered`` ids a sorted op gives unspecified values, but stays inside its arrays.
    """

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        found = next(each for each in OPS[op].variants if each.name == variant)
        given = samples.operands(OPS[op], sample)
        of_blocks = using(FoldTiles, threads_per_block=threads) if threads else contextlib.nullcontext()
        flat = {"threads_per_block": 32, "tile_elements": tile, "grid_blocks_per_multiprocessor": 1} if tile else {}
        of_warps = using(BroadcastFlat, **({"max_columns": 1} if by_rows else flat))
        in_cache = contextlib.nullcontext() if cached else using(PermutedRows, cache_share=0.0)
        runs = using(FoldShortRuns, max_segment_rows=1e9 if short else 0.0)
        stages = using(FoldStaged, threads_per_block=64, stage_bytes=staged, grid_blocks_per_multiprocessor=1)
        stages = stages if staged else using(FoldStaged, stage_bytes=1)
        kept = using(BroadcastRuns, threads_per_block=64, min_segment_turns=0.0 if in_runs else 1e9, max_turns=2)
        combined, back = contextlib.nullcontext(), contextlib.nullcontext()
        if carries is not None:
            combined, back = using(FoldCarries, **carries), using(FoldLookback, max_status_bytes=1)
        once = using(
            FoldAndBroadcast, threads_per_block=64, min_bytes=1, narrow_row_bytes=1, long_bytes=at_once,
            min_odd_segment_rows=0.0, grid_blocks_per_multiprocessor=4,
            **dict.fromkeys(("held_bytes", "held_halves_bytes", "most_held_bytes", "most_held_halves_bytes"), held),
            **dict.fromkeys(("narrow_halves_bytes", "narrow_odd_bytes"), 1 << 20 if narrow_stage else 1),
        )  # fmt: skip
        in_stages = {
            "threads_per_block": narrow_threads, "stage_bytes": narrow_stage or 1, "min_segment_rows": 0.0,
            "max_segment_rows": 1e9 if narrow_stage else 0.0, "min_row_bytes": 1, "min_position_bytes": 1, "min_lanes": 1,
        }  # fmt: skip
        narrow_stages, wide_stages = using(FoldAndBroadcastStaged, long_rows=16, **in_stages), using(FoldAndBroadcastWide, **in_stages)
        with (
            using(FoldRanges, min_part_tiles=tiles), using(CountIds, grid_blocks_per_multiprocessor=1), using(IdPasses, cache_share=share),
            using(Crowds, min_input_bytes=1) if tabled else contextlib.nullcontext(), of_blocks, of_warps, in_cache, runs, stages,
            once if at_once else contextlib.nullcontext(), narrow_stages, wide_stages, combined, back,
            contextlib.nullcontext() if together else using(FoldThenBroadcast, max_bytes=1), kept,
            using(FoldGaps, range_bytes=filled, sparse_bytes=sparse),
            using(
                FoldAndBroadcastShort, threads_per_block=64, items_per_thread=registers or 8, long_rows=48, grid_blocks_per_multiprocessor=1,
                max_segment_rows=1e9 if registers else 0.0, max_pivoted_rows=1e9 if registers else 0.0,
            ),
        ):  # fmt: skip
            plan = samples.plan_of(OPS[op], found, samples.descriptor(OPS[op], sample, **options), multiprocessors)
            if disordered:
                given["segment_ids"] = np.random.default_rng(7).permutation(given["segment_ids"])
                samples.run(kind, plan, given)
                return
            got = samples.run(kind, plan, given, SEED)
        samples.assert_close(got, samples.truth(op, given, sample.segments, **options), sample.element, op)

    _add(name, case)


def narrow(name: str, *given: Any, **options: Any) -> None:
    """The same of narrow rows, taken for short runs and for long ones."""
    fold(f"narrow, {name}", *given, **options)
    fold(f"short runs, {name}", *given, short=True, **options)


def of_runs(name: str, columns: int, *lengths: int) -> Sample:
    return Sample(name, sum(lengths), (columns,), len(lengths), runs_of(*lengths))


def one_long_gap(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Every third id, but none of some hundred in the middle."""
    return 3 * np.arange(rows) + np.where(np.arange(rows) > rows // 2, 100, 0)


def gaps(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Ids with short and long gaps before, between and after segments."""
    return np.cumsum([3, 66, 1, 70, 2, 150, 1, 1])


def apart(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Runs of a few rows with gaps between them, of which some are too long for those who find them, and ids outside the range at both ends."""
    return np.cumsum(rng.choice([0, 0, 0, 1, 1, 2, 5, 9, 40, 63, 64, 65, 66, 130], rows)) - 70


SORTED = "segment_sum", "ragged_sorted"
fold("tiles, long runs", "segment_logsumexp", "ragged_sorted", of_runs("a", 37, 5, 0, 51, 1, 230), MANY, threads=32)
fold("tiles, runs of one row", "segment_logsumexp", "ragged_sorted", Sample("a2", 2200, (9,), 2200, samples.every()), MANY, threads=32)
fold("tiles, a long run before a short one", "segment_logsumexp", "ragged_sorted", of_runs("a3", 37, 5, 0, 18, 1, 232, 3), MANY, threads=32)
fold("tiles, two long runs of a block", "segment_logsumexp", "ragged_sorted", of_runs("a4", 9, 5, 350, 2, 900, 7), MANY, threads=32)
# blocks leave two carries for every 8 rows; those that combine them have one warp or several, and lanes one or several saved states
FEW = {"threads_per_block": 32, "items_per_thread": 2, "wide_blocks": 1 << 20}
SEVERAL = FEW | {"threads_per_block": 64, "chunks": 16}
LONG = of_runs("a5", 37, 5, 12, 3, 900, 7, 1, 2, 300, 9, 41)
fold("carries, the usual ones", "segment_mean", "ragged_sorted", LONG, MANY, threads=32, carries={})
fold("look back, a run over many spans", "segment_mean", "ragged_sorted", LONG, MANY, threads=32)
fold("look back, states of several words", "segment_var", "ragged_sorted", LONG, MANY, threads=32)
fold("look back, chunks", "segment_argmax", "ragged_sorted", of_runs("a15", 137, 5, 12, 0, 40, 3), MANY, threads=32)
fold("look back, full tiles", "segment_mean", "ragged_sorted", of_runs("a7", 37, 5, 300, 207), MANY, threads=32)
fold("carries, a run over many tiles", "segment_mean", "ragged_sorted", LONG, MANY, threads=32, carries=FEW)
fold("carries, a run over many warps", "segment_logsumexp", "ragged_sorted", LONG, MANY, threads=32, carries=SEVERAL | {"chunks": 128})
fold("carries, several lanes", "segment_var", "ragged_sorted", LONG, MANY, threads=32, carries=SEVERAL)
fold("carries, short runs", "segment_argmax", "ragged_sorted", Sample("a6", 400, (37,), 130, samples.every()), MANY, threads=32, carries=SEVERAL)
JOINED = SEVERAL | {"most_at_once": 8, "join_threads": 32}
for monoid in ("mean", "logsumexp", "argmax", "norm2"):
    fold(f"carries, joined, of {monoid}", f"segment_{monoid}", "ragged_sorted", LONG, MANY, threads=32, carries=JOINED)
fold("carries, joined by several warps", "segment_var", "ragged_sorted", LONG, MANY, threads=32, carries=JOINED | {"join_threads": 64})
fold("carries, joined, ids outside", *SORTED, Sample("a10", 900, (37,), 30, samples.far_outside, "f32", "i64"), MANY, threads=32, carries=JOINED)
fold("carries, joined, all of one segment", "segment_mean", "ragged_sorted", Sample("a11", 900, (37,), 3, samples.all_are(1)), MANY, threads=32,
    carries=JOINED)  # fmt: skip
fold("carries, joined, short runs", "segment_argmax", "ragged_sorted", Sample("a12", 400, (37,), 130, samples.every()), MANY, threads=32,
    carries=JOINED)  # fmt: skip
fold("carries, joined, full tiles", *SORTED, of_runs("a13", 37, 8, 8 * 62 + 8, 208), MANY, threads=32, carries=JOINED)
fold("carries, joined, ids in disorder", *SORTED, Sample("a14", 900, (37,), 40, samples.outside), MANY, threads=32, carries=JOINED, disordered=True)
fold("carries, full tiles", "segment_mean", "ragged_sorted", of_runs("a7", 37, 5, 300, 207), MANY, threads=32, carries=FEW)
fold("carries, several states of a lane", "segment_mean", "ragged_sorted", LONG, MANY, threads=32, carries={"items_per_thread": 2, "chunks": 8})
fold("carries, two rounds", "segment_mean", "ragged_sorted", of_runs("a9", 37, 5, 80, 3, 30), MANY, threads=32, carries=SEVERAL | {"chunks": 4})
fold("carries, wide groups", "segment_sum", "ragged_sorted", Sample("a8", 900, (36,), 30, samples.runs), MANY, threads=32, carries={"wide_blocks": 4})
fold("tiles, runs over tiles", *SORTED, of_runs("b", 37, 5, 12, 3, 11, 8, 9), MANY)
fold("tiles, one block", *SORTED, Sample("b2", 24, (37,), 4), 1)
fold("tiles, one block of ids below", *SORTED, Sample("b3", 72, (37,), 4, samples.all_are(-7)), 1)
fold("tiles, one block of ids above", *SORTED, Sample("b3 above", 72, (37,), 4, samples.all_are(4)), 1)
fold("tiles, chunks of vectors", *SORTED, Sample("b6", 20, (516,), 4), 1)
for blocks, multiprocessors in (("one block", 1), ("many blocks", MANY)):
    fold(f"tiles, {blocks} of ids in disorder", *SORTED, Sample("b4", 24, (37,), 4, samples.outside), multiprocessors, disordered=True)
    narrow(f"{blocks} of ids in disorder", *SORTED, Sample("b5", 2048, (1,), 40, samples.outside), multiprocessors, disordered=True)
fold("tiles, several steps", "segment_mean", "ragged_sorted", Sample("c", 300, (8,), 9, samples.runs))
fold("tiles, gaps", *SORTED, Sample("d", 8, (5,), 460, gaps), MANY)
fold("tiles, blocks of gaps among others", *SORTED, Sample("d3", 33, (37,), 4000, samples.every(150, 90)), MANY, threads=32)
fold("tiles, gaps and columns apart", *SORTED, Sample("d2", 8, (35,), 460, gaps), MANY)


def backwards(name: str, op: str, flipped: int) -> None:
    """Rows whose columns lie apart, of which operand number ``flipped`` has the last one first in memory."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        sample = Sample(name, 90, (35,), 6, samples.runs)
        given = samples.operands(OPS[op], sample)
        truth = samples.truth(op, given, sample.segments)
        placed = [kind.array(given[key][::-1])[::-1] if k == flipped else kind.array(given[key]) for k, key in enumerate(given)]
        samples.assert_close(kind.numpy(getattr(nb, op)(*placed, sample.segments)), truth, sample.element, op)

    _add(name, case)


backwards("tiles, columns apart of rows from last to first", "segment_sum", 0)
backwards("tiles, columns apart of pairs of rows from last to first", "segment_softmax_backward", 1)
fold("tiles, ids outside", *SORTED, Sample("e", 60, (6,), 9, samples.far_outside, "f32", "i64"), MANY)
fold("tiles of halves", "segment_max", "ragged_sorted", Sample("f", 60, (24,), 9, samples.runs, "f16"), MANY)
fold("tiles, permuted", "unsorted_segment_max", "ragged_permuted", Sample("g", 150, (12,), 9, samples.outside), MANY)
fold("tiles, chunks", *SORTED, Sample("h", 50, (137,), 6), MANY)
fold("norms in tiles", "segment_norm2", "ragged_sorted", Sample("h2", 50, (37,), 6), MANY)
narrow("several steps", "segment_mean", "ragged_sorted", Sample("i", 2700, (1,), 120, samples.runs))
narrow("many blocks", *SORTED, of_runs("j", 1, 1, 5, 1400, 0, 3, 700, 9), MANY)
narrow("variances of short runs", "segment_var_backward", "broadcast", of_runs("k6", 2, 1, 2, 2, 90, 1, 1, 3, 2, 1, 5, 300, 2, 1, 1, 4), MANY)
narrow("variances", "segment_var", "ragged_sorted", Sample("k3", 700, (1,), 120, samples.outside), MANY)
narrow("variances of few segments", "segment_var", "ragged_sorted", Sample("k4", 2100, (2,), 5, samples.outside))
narrow("variances of long runs", "segment_var", "ragged_sorted", of_runs("k7", 2, 3, 1, 2, 2, 3, 248, 2, 1662, 2, 7))
narrow("gaps", *SORTED, Sample("k", 8, (1,), 460, gaps), MANY)
narrow("a gap wider than a warp looks at", *SORTED, Sample("k2", 2, (1,), 2900, samples.every(2800, 3)), MANY)
narrow("ids outside", "segment_logsumexp", "ragged_sorted", Sample("l", 300, (2,), 9, samples.far_outside, "f32", "i64"), MANY)
narrow("all of one segment", *SORTED, Sample("m", 600, (3,), 3, samples.all_are(1)), MANY)
fold("tiles, first rows over tiles", "segment_argmax", "ragged_sorted", of_runs("A", 37, 5, 12, 0, 3, 11, 70, 9), MANY)
fold("tiles, first rows and gaps", "segment_argmin", "ragged_sorted", Sample("A2", 8, (8,), 460, gaps, "f16"), MANY, result="i32")
fold("tiles, first rows by a permutation", "unsorted_segment_argmax", "ragged_permuted", Sample("A3", 150, (12,), 9, samples.outside), MANY)
halves = dataclasses.replace(of_runs("A8", 37, 5, 12, 0, 3, 11, 70, 9), element="bf16", whole=True)
fold("tiles, first rows of halves", "segment_argmax", "ragged_sorted", halves, MANY)
halves = Sample("A9", 150, (5,), 9, samples.outside, "f16", whole=True)
fold("tiles, first rows of halves by a permutation", "unsorted_segment_argmin", "ragged_permuted", halves, MANY)
narrow("first rows over blocks", "segment_argmin", "ragged_sorted", of_runs("A4", 1, 1, 5, 1400, 0, 3, 700, 9), MANY)
narrow("runs of one row", "segment_logsumexp", "ragged_sorted", Sample("A7", 700, (2,), 700, samples.every()), MANY)
fold("short runs, permuted", "unsorted_segment_max", "ragged_permuted", Sample("g2", 700, (2,), 90, samples.outside), MANY)
fold("short runs, permuted in several loads", "unsorted_segment_mean", "ragged_permuted", Sample("g3", 2700, (5,), 120, samples.runs))
fold("short runs, permuted first rows", "unsorted_segment_argmax", "ragged_permuted", Sample("g4", 700, (3,), 40, samples.outside, "i32"), MANY)
fold("short runs, permuted pairs", "unsorted_segment_softmax_backward", "broadcast", Sample("g5", 700, (3,), 40, samples.outside), MANY)
for element in ("f32", "bf16", "f64"):
    pairs = Sample(f"g6 {element}", 703, (1,), 40, samples.outside, element)
    fold(f"lifted pairs of {element}", "unsorted_segment_softmax_backward", "broadcast", pairs, cached=False)
narrow("pairs", "segment_softmax_backward", "broadcast", Sample("A6", 700, (2,), 40, samples.outside), MANY)
narrow("first rows and gaps", "segment_argmax", "ragged_sorted", Sample("A5", 8, (2,), 460, gaps, "f64"), MANY, result="i32")
narrow("carries of many blocks", *SORTED, of_runs("j", 1, 1, 5, 1400, 0, 3, 700, 9), MANY, carries={})
fold("staged, carries of many blocks", "segment_var", "ragged_sorted", Sample("S", 700, (2,), 40, samples.outside), MANY, staged=512, carries={})
fold("staged, a run over many spans", "segment_var", "ragged_sorted", of_runs("S16", 3, 5, 700, 0, 3, 70, 9), MANY, staged=256)
for blocks, multiprocessors in (("one block", 1), ("many blocks", MANY)):
    fold(f"staged, {blocks}", "segment_var", "ragged_sorted", Sample("S", 700, (2,), 40, samples.outside), multiprocessors, staged=512)
    fold(f"staged, {blocks} of wide rows", "segment_norm2", "ragged_sorted", of_runs("S2", 37, 5, 12, 0, 3, 70, 9), multiprocessors, staged=1024)
    fold(f"staged, {blocks} of ids in disorder", "segment_var", "ragged_sorted", Sample("S3", 700, (3,), 40, samples.outside), multiprocessors,
        staged=256, disordered=True)  # fmt: skip
fold("staged, gaps", "segment_max", "ragged_sorted", Sample("S4", 8, (5,), 460, gaps), MANY, staged=64)
fold("staged, gaps of wide rows", "segment_max", "ragged_sorted", Sample("S5", 8, (11,), 460, gaps), MANY, staged=64)
fold("staged, ids outside", "segment_logsumexp", "ragged_sorted", Sample("S6", 300, (3,), 9, samples.far_outside, "f32", "i64"), MANY, staged=256)
fold("staged, all of one segment", "segment_var", "ragged_sorted", Sample("S7", 1100, (1,), 3, samples.all_are(1)), 1, staged=4096)
fold("staged, runs of one row", "segment_logsumexp", "ragged_sorted", Sample("S8", 300, (3,), 300, samples.every()), MANY, staged=256)
# rows end where the last warp's tile begins
fold("staged, a warp without rows", "segment_var", "ragged_sorted", Sample("S12", 60, (3,), 9, samples.runs), MANY, staged=256)
fold("staged, first rows", "segment_argmax", "ragged_sorted", of_runs("S9", 3, 5, 12, 0, 3, 11, 170, 9), 1, staged=512)
halves = dataclasses.replace(of_runs("S22", 9, 5, 12, 0, 3, 11, 170, 9), element="bf16", whole=True)
fold("staged, first rows of halves", "segment_argmax", "ragged_sorted", halves, 1, staged=512)
fold("staged, first rows of wide rows", "segment_argmin", "ragged_sorted", of_runs("S10", 7, 5, 12, 0, 3, 11, 70, 9), MANY, staged=256)
fold("staged, first rows of long runs", "segment_argmin", "ragged_sorted", of_runs("S13", 7, 5, 12, 0, 3, 40, 9), MANY, staged=2048)
fold("staged, sums about pivots of long runs", "segment_var", "ragged_sorted", of_runs("S14", 17, 50, 3, 44), MANY, staged=8192)
fold("tiles, sums about pivots", "segment_var", "ragged_sorted", of_runs("S15", 20, 5, 21, 0, 3), MANY)
for columns, element in ((17, "f32"), (19, "bf16"), (33, "f16")):
    given = dataclasses.replace(of_runs(f"S17 {columns}", columns, 5, 12, 0, 3, 65, 9), element=element)
    for name, op in (("", "segment_max"), (" of first rows", "segment_argmin")):
        fold(f"staged, {columns} columns apart{name}", op, "ragged_sorted", given, MANY, staged=2048)
        fold(f"staged, {columns} columns apart{name}, carries", op, "ragged_sorted", given, MANY, staged=2048, carries={})
for columns, element, op, staged in (
    (211, "bf16", "sum", 8192),
    (198, "f16", "max", 8192),
    (47, "f32", "argmax", 2048),
    (63, "bf16", "argmin", 2048),
):
    wide = dataclasses.replace(of_runs(f"S24 {columns}", columns, 5, 12, 0, 3, 37, 9), element=element, whole=op.startswith("arg"))
    fold(f"staged, {op} of {columns} columns of {element}", f"segment_{op}", "ragged_sorted", wide, MANY, staged=staged)
for columns, index, op in ((21, "i32", "var"), (13, "i64", "std"), (67, "i32", "norm2")):
    short = Sample(f"S25 {columns}", 120, (columns,), 60, samples.outside, "f32", index)
    fold(f"staged, {op} of {columns} columns apart", f"segment_{op}", "ragged_sorted", short, MANY, staged=2048)
for op in ("logsumexp", "softmax"):
    doubles = dataclasses.replace(of_runs("S26", 35, 5, 12, 0, 3, 37, 9), element="f64")
    fold(f"tiles, {op} of columns of doubles apart", f"segment_{op}", "ragged_sorted" if op == "logsumexp" else "broadcast", doubles, MANY)
for name, ids, index in (("gaps", samples.outside, "i32"), ("gaps, one long", one_long_gap, "i64")):
    fold(f"staged, halves between {name}", "segment_max", "ragged_sorted", Sample(f"S22 {name}", 300, (13,), 1200, ids, "bf16", index), 1,
         staged=2048)  # fmt: skip
for filled in (1, FoldGaps.range_bytes):
    for columns, element, index, op in (
        (1, "f32", "i32", "sum"), (3, "bf16", "i64", "max"), (5, "f16", "i32", "mean"), (4, "f32", "i32", "prod"), (1, "f64", "i64", "argmax"),
    ):  # fmt: skip
        sample = Sample(f"apart {columns}", 120, (columns,), 2900, apart, element, index, whole=op == "argmax")
        fold(f"short runs, {op} of {columns} columns of {element} apart, {filled}", f"segment_{op}", "ragged_sorted", sample, MANY, short=True,
             filled=filled)  # fmt: skip
    for columns, element, index, op in (
        (5, "f32", "i32", "sum"), (12, "bf16", "i64", "max"), (3, "f32", "i32", "var"), (5, "f64", "i32", "mean"), (2, "f32", "i32", "norm2"),
        (7, "f32", "i64", "argmin"),
    ):  # fmt: skip
        sample = Sample(f"staged apart {columns}", 120, (columns,), 2900, apart, element, index, whole=op == "argmin")
        fold(f"staged, {op} of {columns} columns of {element} apart, {filled}", f"segment_{op}", "ragged_sorted", sample, 1, staged=1024,
             filled=filled)  # fmt: skip
for columns, element, index, op, staged in (
    (37, "f32", "i32", "sum", 0), (9, "bf16", "i64", "max", 0), (137, "f16", "i32", "argmin", 0), (3, "f64", "i32", "argmax", 512),
    (9, "f32", "i64", "var", 1024), (1, "bf16", "i32", "mean", 0),
):  # fmt: skip
    sample = Sample(f"few {columns}", 50, (columns,), 2900, apart, element, index, whole=op.startswith("arg"))
    fold(f"filled first, {op} of {columns} columns of {element}", f"segment_{op}", "ragged_sorted", sample, MANY, short=columns == 1, staged=staged,
         sparse=1)  # fmt: skip
permuted = Sample("few, permuted", 50, (37,), 2900, samples.outside)
fold("filled first, permuted", "unsorted_segment_max", "ragged_permuted", permuted, MANY, sparse=1)
fold("staged, columns apart and gaps", "segment_logsumexp", "ragged_sorted", Sample("S19", 8, (21,), 460, gaps), MANY, staged=512)
fold("staged, pairs", "segment_softmax_backward", "broadcast", of_runs("S20", 8, 5, 12, 0, 3, 70, 9), MANY, staged=1024)
fold("staged, pairs apart", "segment_softmax_backward", "broadcast", of_runs("S21", 19, 5, 12, 0, 3, 70, 9), MANY, staged=2048)
fold("staged, halves", "segment_max", "ragged_sorted", Sample("S11", 161, (9,), 9, samples.runs, "bf16"), 1, staged=256)
fold("bins, first rows", "unsorted_segment_argmax", "bins", Sample("A6", 150, (6,), 5, samples.outside), 2)
fold("bins", "unsorted_segment_mean", "bins", Sample("n", 150, (6,), 5, samples.outside), 2)
fold("bins, chunks", "unsorted_segment_logsumexp", "bins", Sample("o", 60, (141,), 2), 2)
fold("bins, idle lanes", "unsorted_segment_sum", "bins", Sample("p", 60, (29,), 6, samples.outside), 2)
fold("ranges in several tiles", "unsorted_segment_sum", "ragged_ranges", Sample("q", RANGE_TILE + 70, (3,), RANGE + 2, samples.around_a_long_one))


def crowded(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Nine of ten rows in a few segments of the first range, the others in one of the last."""
    return np.where(rng.random(rows) < 0.9, rng.integers(0, 20, rows), segments - 3)


crowd = Sample("r", 3 * RANGE_TILE + 40, (1,), RANGE + 40, crowded)
fold("ranges in splits, carries in rounds", "unsorted_segment_logsumexp", "ragged_ranges", crowd, tiles=1)
fold("ranges in splits, carries in few blocks", "unsorted_segment_mean", "ragged_ranges", crowd, tiles=1, carries=FEW)
first = Sample("r2", RANGE_TILE + 70, (3,), RANGE + 2, samples.around_a_long_one, "i32")
fold("ranges in several tiles, first rows", "unsorted_segment_argmin", "ragged_ranges", first)
one = Sample("s", RANGE_TILE + 90, (2,), 70, samples.far_outside, "f32", "i64")
fold("one range in splits", "unsorted_segment_mean", "ragged_ranges", one, tiles=1)
fold("one range in splits, first rows", "unsorted_segment_argmax", "ragged_ranges", one, tiles=1)


def mostly_one(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Nine of ten rows in one segment of the first range, some others in the first tile, and the rest in the last range."""
    others = np.where(np.arange(rows) < RANGE_TILE, rng.integers(0, 20, rows), segments - 3)
    return np.where(rng.random(rows) < 0.9, 11, others)


for columns in (1, 3):
    crowd = Sample(f"r{columns + 3}", 3 * RANGE_TILE + 40, (columns,), RANGE + 40, mostly_one)
    fold(f"ranges, a crowd of {columns} columns", "unsorted_segment_mean", "ragged_ranges", crowd, tiles=1)
fold("ranges, first rows in a crowd", "unsorted_segment_argmax", "ragged_ranges", dataclasses.replace(crowd, element="i32"), tiles=4)


def mostly_two(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Two of five rows in one segment, as many in another, so that neither has half of them."""
    return np.where(rng.random(rows) < 0.8, np.where(rng.random(rows) < 0.5, 7, 31), rng.integers(0, segments, rows))


for columns in (1, 2):
    fold(
        f"ranges, two crowds of {columns} columns", "unsorted_segment_mean", "ragged_ranges", Sample(f"r8{columns}", 5000, (columns,), 70, mostly_two)
    )


def last_or_outside(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """A third of the rows in the last segment, another third in none."""
    return rng.choice([segments - 1, -1, 5], rows)


fold("one range, the last segment and ids outside", "unsorted_segment_mean", "ragged_ranges", Sample("r9", 700, (2,), RANGE, last_or_outside))
fold("ranges, first ones without rows", "unsorted_segment_sum", "ragged_ranges", Sample("r7", 90, (3,), 3 * RANGE, samples.all_are(3 * RANGE - 5)))


def many_ranges(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """More ranges than a block has threads, some without rows and some of several splits."""
    rows, split_rows, count = np.random.default_rng(2).integers(0, 9, 300), 3, 300
    begins = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    needed = np.maximum(-(-rows // split_rows), 1)
    cut = np.where(needed > 1, needed, 0)
    offsets, carry_offsets, range_of_split, carry_count = (np.full(size, -7, np.int32) for size in (count + 1, count, int(needed.sum()), 1))
    arguments = [begins, offsets, carry_offsets, range_of_split, carry_count, count, ((count - 1) << RANGE_BITS) + 5, split_rows]
    emulation.run(split_ranges().py_func, split_ranges().types, 2, 256, arguments, mode=emulation.Mode(SEED))
    np.testing.assert_array_equal(offsets, np.concatenate([[0], np.cumsum(needed)]))
    np.testing.assert_array_equal(carry_offsets, np.cumsum(cut) - cut)
    np.testing.assert_array_equal(range_of_split, np.repeat(np.arange(count), needed))
    assert carry_count[0] == (int(cut[:-1].sum()) << RANGE_BITS) + int(cut[-1]) * 5


_add("many ranges", many_ranges)
for k, stem in enumerate(("sum", "mean", "max", "min")):
    exact = "_exact" if stem in ("max", "min") else ""
    fold(f"atomic {stem}", f"unsorted_segment_{stem}", f"atomic{exact}", Sample(f"t{k}", 140, (3 + k,), 7, samples.outside))
fold("atomic mean, a value of empty segments", "unsorted_segment_mean", "atomic", Sample("t8", 20, (4,), 40, samples.outside), empty=7.0)
fold("atomic mean to single columns", "unsorted_segment_mean", "atomic", Sample("ta", 20, (1,), 40, samples.outside))
fold("atomic max, chunks", "unsorted_segment_max", "atomic_exact", Sample("tb", 12, (271,), 7, samples.outside, "i32"), empty=-3)


def quotients_of_views(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gradients that are divided by counts, of every other column."""
    rng = np.random.default_rng(SEED)
    given, ids = rng.random((60, 10), np.float32), rng.integers(0, 60, 90).astype(np.int32)
    with kind.schedule(SEED):
        got = kind.numpy(nb.unsorted_segment_mean_backward(kind.array(given)[:, ::2], kind.array(ids)))
    np.testing.assert_allclose(got, (given[:, ::2] / np.maximum(np.bincount(ids, minlength=60), 1)[:, None])[ids], rtol=1e-6)


_add("atomic counts, quotients of views", quotients_of_views)
fold("atomic mean of few rows", "unsorted_segment_mean", "atomic", Sample("t9", 20, (4,), 40, samples.outside))


def counts(name: str, rows: int, segments: int, ids: samples.Ids, index: str = "i32", step: int = 1) -> None:
    """Four cases: counts in the shared memory of two blocks, which take several turns, or of one for each of two ranges; and in global memory, at
    once or in passes.
    """

    def case_of(share: float = IdPasses.cache_share, **policy: int) -> Case:
        def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
            rng = np.random.default_rng(8)
            given = rng.permutation(ids(rng, rows, segments)).astype(numpy_dtype(index))
            x = rng.standard_normal((segments, 1)).astype(np.float32)
            there = (given >= 0) & (given < segments)
            wanted = x / np.maximum(np.bincount(given[there], minlength=segments), 1)[:, None]
            few = using(CountFewIds, threads_per_block=64, items_per_thread=2, min_rows_per_segment=1, **policy)
            with few, using(IdPasses, cache_share=share), kind.schedule(SEED):
                got = kind.numpy(nb.unsorted_segment_mean_backward(kind.array(x), kind.array(np.repeat(given, step))[::step]))
            np.testing.assert_allclose(got, np.where(there[:, None], wanted[np.where(there, given, 0)], 0), rtol=1e-5)

        return case

    _add(f"counts of few, {name}", case_of())
    _add(f"counts of few in ranges, {name}", case_of(shared_bytes_per_block=2 * segments))
    _add(f"counts, {name}", case_of(shared_bytes_per_block=1, max_ranges=1))
    _add(f"counts in passes, {name}", case_of(0.012, shared_bytes_per_block=1, max_ranges=1))


counts("several turns", 700, 150, samples.outside)
counts("ids far outside", 300, 40, samples.far_outside, "i64")
counts("all of one segment", 600, 70, samples.all_are(69))
counts("none of any segment", 300, 70, samples.all_are(-1))
counts("few rows", 9, 5, samples.outside, step=2)
fold("counts, a block's several steps", "unsorted_segment_mean_backward", "gather", Sample("c5", 5000, (1,), 900, samples.outside))


def chosen_passes(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass for a crowd, or ids in order, but not for less of either."""
    rng, rows, kernel = np.random.default_rng(SEED), 3000, choose_passes(index="i32")
    spread = rng.permutation(rows).astype(np.int32)
    crowd, ordered = (np.where(rng.random(rows) < share, other, spread).astype(np.int32) for share, other in ((0.3, 77), (0.97, np.arange(rows))))
    thin, mixed = (np.where(rng.random(rows) < share, other, spread).astype(np.int32) for share, other in ((0.05, 77), (0.5, np.arange(rows))))
    for ids, wanted in ((spread, 0), (crowd, 1), (thin, 0), (ordered, 1), (mixed, 0), (spread[:1], 1)):
        once, by_range = np.full(1, -7, np.int32), np.full(1, -7, np.int32)
        arguments = [np.repeat(ids, 2), once, by_range, len(ids), 25, 230, 2]
        emulation.run(kernel.py_func, kernel.types, 1, 256, arguments, mode=emulation.Mode(SEED))
        assert (once[0], by_range[0]) == (wanted, 1 - wanted)


_add("counts, chosen passes", chosen_passes)


def beyond_ids(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass over segments whose numbers have more bits than the ids."""
    kernel = scatter_rows(update="add", value="f32", index="i32", about="", pairs="", guarded=False, sampled=0, vector=1, lanes=1, cut=False, dims=1)
    x, ids, y = np.ones(4, np.float32), np.array([0, 1 << 30, (1 << 31) - 1, -1], np.int32), np.zeros(3, np.float32)
    low = 1 << 31
    emulation.run(
        kernel.py_func,
        kernel.types,
        1,
        256,
        [x, x, ids, np.zeros(1, np.float32), np.zeros(1, np.int32), y, 4, 1, 1, low, low + 3, 1, 1, 1, 1, 1, (1,), (1,), (1,), (1,)],
        mode=emulation.Mode(SEED),
    )
    assert not y.any()


def counts_beyond_ids(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of a pass that counts."""
    kernel, ids, counts = count_ids(index="i32", count="i64"), np.array([0, 1 << 30, (1 << 31) - 1, -1], np.int32), np.zeros(3, np.int64)
    low = 1 << 31
    emulation.run(kernel.py_func, kernel.types, 1, 256, [ids, np.zeros(1, np.int32), counts, 4, low, low + 3, 1], mode=emulation.Mode(SEED))
    assert not counts.any()


_add("atomic sum beyond ids", beyond_ids)
_add("counts beyond ids", counts_beyond_ids)
fold("atomic max of f64", "unsorted_segment_max", "atomic_exact", Sample("u", 140, (4,), 7, samples.outside, "f64", "i64"))
fold("atomic max of i32", "unsorted_segment_max", "atomic_exact", Sample("v", 140, (4,), 7, samples.outside, "i32"))
fold("atomic sum of halves", "unsorted_segment_sum", "atomic", Sample("w", 140, (4,), 7, samples.outside, "f16"))
for element in ("f32", "f16", "i64"):
    for which in ("max", "min"):
        fold(
            f"atomic first {which} of {element}",
            f"unsorted_segment_arg{which}",
            "atomic_first",
            Sample(f"af{which}", 300, (3,), 70, samples.outside, element),
        )
for columns, rows, element in ((4, 200, "f32"), (8, 120, "f16"), (2, 140, "i32"), (37, 60, "bf16"), (4, 140, "f64")):
    for name, ids in (("", samples.outside), (", a crowd", samples.around_a_long_one)):
        sample = Sample(f"firsts {columns}", rows, (columns,), 7, ids, element)
        fold(f"atomic first max of {columns} columns of {element}{name}", "unsorted_segment_argmax", "atomic_first", sample)
for element in ("f32", "f64"):
    sample = Sample("ag", 12, (271,), 7, samples.outside, element)
    fold(f"atomic first max of {element}, chunks", "unsorted_segment_argmax", "atomic_first", sample)
fold("atomic sum, chunks", "unsorted_segment_sum", "atomic", Sample("x", 12, (270,), 7, samples.outside))
PASSES = (
    ("sum", "sum", "atomic", 4), ("mean", "mean", "atomic", 1), ("max", "max", "atomic_exact", 1), ("first rows", "argmin", "atomic_first", 1),
    ("logsumexp", "logsumexp", "atomic_about_max", 1), ("gradients' sums", "softmax_backward", "atomic_broadcast", 3),
)  # fmt: skip
for what, stem, variant, columns in PASSES:
    for ids, crowds in ((samples.outside, ""), (mostly_one, " of a crowd"), (samples.runs, ", ids in order")):
        fold(
            f"atomic passes, {what}{crowds}",
            f"unsorted_segment_{stem}",
            variant,
            Sample(f"ps{len(CASES)}", 300, (columns,), 70, ids),
            share=0.05 if variant == "atomic_first" else 0.012 * columns,
        )
for stem, variant, element in (("sum", "atomic", "f32"), ("max", "atomic_exact", "f16"), ("sum", "atomic_exact", "i32")):
    for columns, rows in ((37, 230), (270, 70)):
        sample = Sample(f"crowd {columns}", rows, (columns,), 7, samples.around_a_long_one, element)
        fold(f"atomic {stem} of {columns} columns, a crowd of {element}", f"unsorted_segment_{stem}", variant, sample)
for columns, rows, element in ((3, 300, "f32"), (8, 120, "bf16"), (2, 90, "f64"), (270, 12, "f32")):
    for name, ids in (("", samples.outside), (", a crowd", samples.around_a_long_one)):
        sample = Sample(f"about max {columns}", rows, (columns,), 7, ids, element)
        fold(f"atomic logsumexp of {columns} columns of {element}{name}", "unsorted_segment_logsumexp", "atomic_about_max", sample)
for columns, rows, element in ((3, 300, "f32"), (8, 120, "bf16"), (2, 90, "f64"), (37, 230, "f16"), (270, 12, "f32")):
    for name, ids in (("", samples.outside), (", a crowd", samples.around_a_long_one)):
        sample = Sample(f"sums {columns}", rows, (columns,), 7, ids, element)
        for stem in ("softmax", "log_softmax"):
            fold(f"atomic sums for {stem} of {columns} columns of {element}{name}", f"unsorted_segment_{stem}_backward", "atomic_broadcast", sample)


def power_law(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
    """Ids of which a few have most rows, some outside the range."""
    return np.sort(np.minimum(rng.zipf(1.4, rows) - 2, segments + 1))


TABLED = (
    ("sum", "atomic", 1500, 1, "f32", "i32"), ("sum", "atomic", 900, 3, "bf16", "i64"), ("sum", "atomic", 700, 4, "f32", "i32"),
    ("sum", "atomic", 300, 16, "f16", "i32"), ("sum", "atomic", 500, 2, "f64", "i64"), ("sum", "atomic_exact", 900, 2, "i32", "i32"),
    ("sum", "atomic", 60, 137, "f32", "i32"), ("mean", "atomic", 2500, 1, "f32", "i32"), ("mean", "atomic", 900, 5, "f32", "i64"),
    ("logsumexp", "atomic_about_max", 900, 2, "f32", "i32"), ("softmax_backward", "atomic_broadcast", 700, 3, "f32", "i32"),
    ("prod_backward", "broadcast", 700, 2, "f32", "i32"),
)  # fmt: skip
for stem, variant, rows, columns, element, index in TABLED:
    for share, passes in ((IdPasses.cache_share, ""), (0.012 * columns, ", in passes")):
        sample = Sample(f"table {len(CASES)}", rows, (columns,), 90, power_law, element, index)
        fold(f"atomic table, {stem} of {columns} columns of {element}{passes}", f"unsorted_segment_{stem}", variant, sample, share=share, tabled=True)
fold("atomic sum of pairs", "unsorted_segment_sum", "atomic", Sample("y", 140, (2,), 7, samples.outside))
for columns, rows in ((1, 5000), (3, 900), (4, 150), (5, 200), (36, 230), (300, 9)):
    for ordered in ("", "unsorted_"):
        for stem in ("sum", "mean"):
            sample = Sample(f"z{columns}", rows, (columns,), 9, samples.outside)
            fold(f"{ordered}{stem} to {columns} columns", f"{ordered}segment_{stem}_backward", "gather", sample)
for columns in (1, 3, 8):
    sample = Sample(f"A{columns}", 40, (columns,), 90, samples.outside)
    fold(f"unsorted_mean to {columns} columns, few rows", "unsorted_segment_mean_backward", "gather", sample)
for columns in (3, 8):
    sample = Sample(f"B{columns}", 40, (columns,), 90, samples.outside)
    fold(f"mean to {columns} columns of more segments than rows", "segment_mean_backward", "gather", sample)
for columns, segments, element in ((3, 1400, "f32"), (37, 230, "f16"), (8, 1030, "f16"), (3, 700, "f64")):
    sample = Sample(f"E{columns}{element}", segments + 9, (columns,), segments, samples.outside, element)
    fold(f"quotients of {columns} columns of {element}, full tiles", "unsorted_segment_mean_backward", "gather", sample)
for columns, rows, element in ((3, 901, "f16"), (2, 500, "f32"), (37, 130, "bf16"), (5, 300, "f64")):
    for name, ids in (("inside", samples.anywhere), ("outside", samples.outside)):
        sample = Sample(f"C{columns} {name}", rows, (columns,), 9, ids, element)
        fold(f"rows of sums that end anywhere, {columns} columns, ids {name}", "segment_sum_backward", "gather", sample, tile=512)
fold("flat rows that end anywhere", "unsorted_segment_sum_backward", "gather", Sample("C", 1100, (9,), 9, samples.outside, "f16"))
fold("flat rows of full tiles", "unsorted_segment_sum_backward", "gather", Sample("C1", 4096, (9,), 9, samples.anywhere, "f16"))
fold("flat rows of full tiles, several lanes", "unsorted_segment_mean_backward", "gather", Sample("C2", 512, (37,), 9, samples.anywhere, "f16"))
fold("flat rows, divided, ids outside", "unsorted_segment_mean_backward", "gather", Sample("C6", 300, (37,), 700, samples.outside, "f16"))
fold("flat rows of full tiles, divided", "segment_mean_backward", "gather", Sample("C3", 8192, (3,), 9000, samples.anywhere))
for columns, element, op in ((8, "bf16", "softmax"), (24, "bf16", "std_backward"), (16, "f16", "logsumexp_backward"), (8, "f16", "prod_backward")):
    given = dataclasses.replace(of_runs(f"L{columns}", columns, 5, 120, 0, 3, 170, 9), element=element)
    fold(f"rows in runs, {columns} columns of {element}", f"segment_{op}", "broadcast", given, in_runs=True)
outside = Sample("L2", 700, (8,), 9, samples.far_outside, "bf16", "i64")
fold("rows in runs, ids outside", "segment_norm2_backward", "broadcast", outside, in_runs=True)
fold("rows in runs, ids in disorder", "segment_norm2_backward", "broadcast", outside, in_runs=True, disordered=True)
first = dataclasses.replace(of_runs("L4", 16, 5, 30, 0, 3, 40, 9), element="bf16")
fold("rows in runs, first rows", "segment_max_backward", "broadcast", first, in_runs=True)
fold("flat rows in parts", "unsorted_segment_sum_backward", "gather", Sample("C4", 60, (301,), 9, samples.outside))
for columns, rows in ((1, 5000), (3, 200), (36, 60)):
    sample = Sample(f"D{columns}", rows, (columns,), 9, samples.around_a_long_one)
    for stem in ("max", "prod", "logsumexp", "norm2"):
        fold(f"{stem} to {columns} columns", f"segment_{stem}_backward", "broadcast", sample)
    fold(f"unsorted max to {columns} columns", "unsorted_segment_max_backward", "broadcast", sample)
for columns, rows, element in ((2, 700, "f32"), (3, 400, "f16"), (37, 601, "bf16"), (9, 900, "f64")):
    sample = Sample(f"F{columns}", rows, (columns,), 4, samples.around_a_long_one, element)
    fold(f"winners of {columns} columns of {element}", "segment_max_backward", "broadcast", sample)
of_few = Sample("F", 603, (3,), 4, runs_of(300, 0, 302, 1), "bf16")
fold("winners and a segment without rows", "segment_min_backward", "broadcast", of_few, 2)
for stem in ("var", "std", "softmax"):
    for columns in (1, 3):
        fold(
            f"{stem} to {columns} columns", f"segment_{stem}_backward", "broadcast", Sample(f"E{stem}", 60, (columns,), 9, samples.around_a_long_one)
        )
for stem in ("max", "logsumexp"):
    fold(f"{stem} to 1 columns, ids outside", f"segment_{stem}_backward", "broadcast", Sample("D9", 4500, (1,), 9, samples.outside))
fold("norm2 to 7 columns", "segment_norm2_backward", "broadcast", Sample("D7", 200, (7,), 9, samples.around_a_long_one))
fold("softmax", "segment_softmax", "broadcast", Sample("F", 60, (3,), 9, samples.outside))
for columns, element in ((2, "f16"), (3, "f16"), (6, "f16"), (3, "f32"), (5, "f32"), (8, "f32")):  # pieces that meet many rows, two, or one
    for name, ids in ((element, samples.runs), (f"{element}, ids outside", samples.outside)):
        sample = Sample(f"flat {columns}", 1101 // columns, (columns,), 30, ids, element)
        for stem in ("max", "std"):
            fold(f"{stem} to tiles of {columns} columns of {name}", f"segment_{stem}_backward", "broadcast", sample, tile=512)
        fold(f"norm2 to tiles of {columns} columns of {name}", "unsorted_segment_norm2_backward", "broadcast", sample, tile=512)
for stem in ("softmax", "std_backward"):
    fold(
        f"{stem} to tiles of many columns of halves", f"segment_{stem}", "broadcast", Sample("many", 40, (97,), 9, samples.outside, "bf16"), tile=512
    )
for columns, element, index in ((8, "f32", "i32"), (10, "f16", "i64"), (10, "f64", "i32"), (16, "bf16", "i32")):
    for name, ids in (("runs", samples.runs), ("outside", samples.outside), ("a long one", samples.around_a_long_one)):
        sample = Sample(f"at once {columns} {name}", 130, (columns,), 30, ids, element, index)
        for stem in ("softmax", "log_softmax", "softmax_backward", "log_softmax_backward", "var_backward", "std_backward"):
            fold(f"{stem} at once, {columns} columns of {element}, {name}", f"segment_{stem}", "broadcast", sample, at_once=1 << 20)
    for stem in ("softmax", "var_backward"):
        sample = Sample(f"not at once {columns}", 130, (columns,), 30, samples.around_a_long_one, element, index)
        fold(f"{stem} of {columns} columns of {element}, too long for one launch", f"segment_{stem}", "broadcast", sample, at_once=20)
for columns, element, index, stem in (
    (6, "f32", "i32", "std_backward"), (19, "f32", "i32", "softmax"), (5, "f64", "i64", "log_softmax_backward"),
    (17, "bf16", "i32", "softmax_backward"), (2, "f32", "i32", "var_backward"), (4, "f16", "i64", "softmax"), (9, "f32", "i32", "max_backward"),
    (6, "bf16", "i64", "min_backward"),
):  # fmt: skip
    for name, ids in (("runs", samples.runs), ("outside", samples.outside), ("a long one", samples.around_a_long_one)):
        sample = Sample(f"staged at once {columns} {name}", 151, (columns,), 40, ids, element, index)
        fold(f"{stem} of {columns} columns of {element} in stages, {name}", f"segment_{stem}", "broadcast", sample, at_once=1, narrow_stage=700)
for columns, element, index, stem in (
    (67, "f32", "i32", "std_backward"),
    (129, "bf16", "i64", "softmax"),
    (33, "f64", "i32", "softmax_backward"),
    (72, "f32", "i32", "max_backward"),
):
    for name, lengths in (("short runs", [1, 3, 2, 0, 5, 1]), ("longer ones", [3, 1, 7, 32, 0, 2])):
        sample = Sample(f"wide at once, {columns} {name}", 8 * sum(lengths), (columns,), 48, runs_of(*lengths * 8), element, index)
        fold(f"{stem} of {columns} columns of {element} in stages, {name}", f"segment_{stem}", "broadcast", sample, at_once=1, narrow_stage=9000)
for name, ids in (("runs", samples.runs), ("too long for one launch", samples.around_a_long_one)):
    sample = Sample(f"staged at once or in two {name}", 151, (6,), 40, ids)
    fold(f"std_backward and a staged fold, {name}", "segment_std_backward", "broadcast", sample, at_once=1, narrow_stage=700, staged=512)
for name, lengths in (("tiles", (16, 16, 16, 16)), ("tiles and one", (16, 17, 15, 31, 1)), ("one row", (1,)), ("one segment", (30,))):
    sample = Sample(f"staged at once, {name}", sum(lengths), (6,), len(lengths), runs_of(*lengths))
    fold(f"var_backward in stages, {name}", "segment_var_backward", "broadcast", sample, at_once=1, narrow_stage=16 * 24)
sample = Sample("staged at once, tiles inside runs", 41, (6,), 4, runs_of(1, 20, 11, 9))
fold("softmax in stages, tiles inside runs", "segment_softmax", "broadcast", sample, at_once=1, narrow_stage=8 * 24)
sample = Sample("staged at once, several warps", 13 * 26, (6,), 13 * 5, runs_of(*[3, 1, 7, 13, 2] * 13))
fold("softmax in stages, heads in several warps", "segment_softmax", "broadcast", sample, at_once=1, narrow_stage=150 * 24, narrow_threads=256)
sample = Sample("staged at once, ties", 150, (6,), 40, samples.runs)
fold("shares of ties in stages", "segment_max_backward", "broadcast", sample, at_once=1, narrow_stage=700, ties="even")
fold("softmax in stages, ids not in order", "segment_softmax", "broadcast", sample, at_once=1, narrow_stage=700, disordered=True)
# a block of 64 threads stores 416 rows at a time, and reads 48 before and behind them; runs of up to 24 rows are never too long
SHORT = runs_of(*[3, 1, 24, 7, 0, 13, 2] * 24, 3)
for columns, element, index, stem in (
    (1, "f32", "i32", "softmax"), (1, "bf16", "i64", "softmax_backward"), (2, "f32", "i32", "softmax_backward"), (1, "f16", "i32", "softmax"),
    (2, "bf16", "i32", "log_softmax_backward"), (1, "f32", "i64", "log_softmax"), (1, "f64", "i64", "log_softmax_backward"),
):  # fmt: skip
    for name, ids in (("runs", SHORT), ("outside", samples.outside), ("a long one", samples.around_a_long_one)):
        sample = Sample(f"registers {columns} {name}", 1203, (columns,), 260, ids, element, index)
        fold(f"{stem} of {columns} columns of {element} in registers, {name}", f"segment_{stem}", "broadcast", sample, at_once=1, registers=8)
for name, lengths in (
    ("full blocks", [16] * 52), ("one more", [15, 17] * 26 + [1]), ("one row", [1]), ("rows of threads", [8] * 100), ("gaps", [3, 0, 1, 12] * 70),
):  # fmt: skip
    sample = Sample(f"registers, {name}", sum(lengths), (1,), len(lengths), runs_of(*lengths))
    fold(f"softmax in registers, {name}", "segment_softmax", "broadcast", sample, at_once=1, registers=8)
sample = Sample("registers, many blocks", 5000, (1,), 900, samples.around_a_long_one)
fold("softmax in registers, a long one found late", "segment_softmax", "broadcast", sample, at_once=1, registers=8)
sample = Sample("registers, disorder", 700, (1,), 140, samples.anywhere)
fold("softmax in registers, ids not in order", "segment_softmax", "broadcast", sample, at_once=1, registers=8, disordered=True)
for stem in ("softmax", "std_backward"):
    sample = Sample("at once, one", 130, (8,), 5, samples.all_are(3))
    fold(f"{stem} at once, one segment", f"segment_{stem}", "broadcast", sample, at_once=1 << 20, held=3000)
for columns, element, index in ((9, "f32", "i32"), (11, "bf16", "i64")):
    for name, ids in (("runs", samples.runs), ("outside", samples.outside), ("a long one", samples.around_a_long_one), ("one", samples.all_are(3))):
        sample = Sample(f"odd at once {columns} {name}", 130, (columns,), 30, ids, element, index)
        for stem in ("softmax", "log_softmax"):
            fold(f"{stem} at once, {columns} columns of {element}, {name}", f"segment_{stem}", "broadcast", sample, at_once=1 << 20, held=3000)
wide = Sample("at once, wide", 60, (302,), 12, samples.runs)
fold("softmax at once, wide rows", "segment_softmax", "broadcast", wide, at_once=1 << 20, held=20000)
odd = Sample("at once, wide odd", 60, (301,), 12, samples.runs)
fold("softmax at once, wide odd rows", "segment_softmax", "broadcast", odd, at_once=1 << 20, held=20000)
fold("shares of ties at once, wide rows", "segment_max_backward", "broadcast", wide, at_once=1 << 20, held=20000, ties="even")
fold("softmax at once, ids not in order", "segment_softmax", "broadcast", wide, at_once=1 << 20, held=20000, disordered=True)
few = Sample("at once, many short runs", 80, (8,), 30, runs_of(*[1] * 20, 25, *[1] * 8, 27))
fold("softmax at once, more runs than are held", "segment_softmax", "broadcast", few, at_once=1 << 20)
for columns, element, index, stem in (
    (8, "f32", "i32", "softmax"), (19, "bf16", "i32", "log_softmax"), (5, "f64", "i64", "softmax_backward"), (24, "f16", "i32", "var_backward"),
    (33, "f32", "i64", "std_backward"), (2, "bf16", "i64", "softmax"),
):  # fmt: skip
    for name, ids in (("runs", samples.runs), ("outside", samples.outside), ("a long one", samples.around_a_long_one)):
        sample = Sample(f"together {columns} {name}", 400, (columns,), 30, ids, element, index)
        fold(f"{stem} of {columns} columns of {element} together, {name}", f"segment_{stem}", "broadcast", sample, MANY, together=True)
sample = Sample("together, one block", 30, (8,), 5, samples.runs)
fold("softmax together, one block folds", "segment_softmax", "broadcast", sample, together=True)
sample = Sample("together, ties", 300, (12,), 20, samples.runs)
fold("shares of ties together", "segment_max_backward", "broadcast", sample, MANY, together=True, ties="even")
fold("softmax together, ids not in order", "segment_softmax", "broadcast", sample, MANY, together=True, disordered=True)
fold("prod to tiles of 3 columns", "segment_prod_backward", "broadcast", Sample("flat of products", 367, (3,), 30, whole=True), tile=512)
fold("softmax of tiles of halves", "segment_softmax", "broadcast", Sample("flat halves", 431, (5,), 30, samples.runs, "bf16"), tile=512)
fold("softmax of tiles of doubles", "segment_softmax", "broadcast", Sample("flat doubles", 207, (3,), 30, samples.runs, "f64", "i64"), tile=512)
for columns, rows, op, element in ((36, 45, "softmax", "f32"), (20, 77, "norm2_backward", "f32"), (7, 300, "std_backward", "f32")):
    sample = Sample(f"J{columns}", rows, (columns,), 9, samples.outside, element)
    fold(f"{op} to rows, {columns} columns", f"segment_{op}", "broadcast", sample, by_rows=True)
for columns, element in ((3, "f32"), (5, "bf16"), (8, "f64")):
    given = dataclasses.replace(of_runs(f"I{columns}", columns, 3, 700, 2, 0, 400, 1), element=element)
    fold(f"softmax to tiles of one run, {columns} columns of {element}", "segment_softmax", "broadcast", given, tile=512)
    fold(f"rows of sums to tiles of one run, {columns} columns of {element}", "segment_sum_backward", "gather", given, tile=512)
fold("rows of sums to tiles of one run, out of range", "segment_sum_backward", "gather", Sample("I1", 700, (3,), 1, samples.all_are(1)), tile=512)
fold("rows of means to tiles of one run", "segment_mean_backward", "gather", of_runs("I2", 3, *[1] * 60, 400, *[2] * 60), tile=512)
fold("rows of means to tiles, ids outside", "segment_mean_backward", "gather", Sample("I4", 300, (3,), 200, samples.outside, "f16", "i64"), tile=512)
fold("softmax to tiles, ids not in order", "segment_softmax", "broadcast", Sample("I6", 400, (3,), 9, samples.outside), tile=512, disordered=True)
for name, sample in (("of one run", of_runs("I7", 1, 5, 9000, 3, 4500)), ("out of range", Sample("I9", 5000, (1,), 1, samples.all_are(1)))):
    fold(f"var to elements {name}", "segment_var_backward", "broadcast", sample)
fold("var to elements, ids not in order", "segment_var_backward", "broadcast", Sample("I10", 5000, (1,), 9, samples.outside), disordered=True)
narrow("max to the few that win", "segment_max_backward", "broadcast", Sample("G", 700, (1,), 9, samples.runs), ties="first")
fold("zeros in products of odd rows", "segment_prod_backward", "broadcast", Sample("H2", 60, (7,), 9, samples.outside, "bf16", whole=True))
fold("zeros in products", "segment_prod_backward", "broadcast", Sample("H", 60, (8,), 9, samples.outside, whole=True))


def products_behind_their_start(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros among products whose rows begin at no multiple of 16 bytes, are wider than two blocks' shares, and end where the array does."""
    ids, columns = np.repeat(np.arange(4, dtype=np.int32), 2), 257
    x = np.full((8, columns), 2, np.float32)
    x[6, -1] = 0
    y = kind.array(np.concatenate([np.ones(1, np.float32), (x[::2] * x[1::2]).ravel()]))[1:].reshape(4, columns)
    with kind.schedule(SEED):
        got = kind.numpy(nb.segment_prod_backward(kind.array(np.ones((4, columns), np.float32)), kind.array(x), y, kind.array(ids)))
    wanted = np.full_like(x, 2)
    wanted[7, -1] = 0
    np.testing.assert_array_equal(got, wanted)


_add("zeros in products behind their start", products_behind_their_start)
for columns in (1, 3):
    sample = Sample(f"side by side {columns}", 5000 if columns == 1 else 200, (columns,), 30, samples.outside)
    fold(f"norm2 to {columns} columns, side by side", "unsorted_segment_norm2_backward", "broadcast", sample)
for columns, element in ((8, "f32"), (3, "f16")):
    for name, ids in (("", samples.outside), (", a crowd", samples.around_a_long_one)):
        sample = Sample(f"factors {columns}", 90, (columns,), 9, ids, element, whole=True)
        fold(f"factors of {element}{name}", "unsorted_segment_prod_backward", "broadcast", sample)
fold("factors without zeros", "unsorted_segment_prod_backward", "broadcast", Sample("factors", 90, (3,), 9))


def beyond_numbers(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Infinities and NaN, which enter the products of the other elements."""
    x, ids = np.array([[2], [np.inf], [3], [np.nan]], np.float32), np.array([0, 0, 1, 1], np.int32)
    given = [np.ones((2, 1), np.float32), x, np.array([[np.inf], [np.nan]], np.float32), ids]
    with kind.schedule(SEED):
        got = kind.numpy(nb.segment_prod_backward(*map(kind.array, given)))
    np.testing.assert_array_equal(got[:, 0], [np.inf, 2, np.nan, 3])


_add("infinities and NaN in products", beyond_numbers)


def tiny_products(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of products that have few bits, or none, the factors have all."""
    x, ids = np.array([[1e-20], [3e-21], [1e-30], [3e-31]], np.float32), np.array([0, 0, 1, 1], np.int32)
    given = [np.ones((2, 1), np.float32), x, np.array([[3e-41], [0]], np.float32), ids]
    with kind.schedule(SEED):
        got = kind.numpy(nb.unsorted_segment_prod_backward(*map(kind.array, given)))
    np.testing.assert_allclose(got, x[[1, 0, 3, 2]], 1e-6)


_add("factors of tiny products", tiny_products)


def unbounded(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids without ``num_segments``: negative ids and the greatest ids of their type are out of range."""
    op = OPS["segment_softmax_backward"]
    ids = np.array([-5, -5, 0, 0, 7, 7, 7, 1 << 30, (1 << 31) - 1], np.int32)
    d_output, output = np.random.default_rng(5).standard_normal((2, 9, 3)).astype(np.float32)
    given = {"d_output": d_output, "output": output, "segment_ids": ids}
    with kind.schedule(SEED):
        got = kind.numpy(samples.function(op)(*[kind.array(given[operand.name]) for operand in op.operands[:-1]]))
    there = ((ids >= 0) & (ids < (1 << 31) - 2))[:, None]
    folded = np.stack([(output * d_output)[ids == each].sum(0) for each in ids])
    np.testing.assert_allclose(got, np.where(there, output * (d_output - folded), 0), rtol=1e-4, atol=1e-5)


_add("softmax of ids without a bound", unbounded)


def indexed(name: str, op: str, rows: int, columns: int) -> None:
    """A case with an index of ids in any order."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        given = samples.operands(OPS[op], Sample(name, rows, (columns,), 20, samples.outside))
        with kind.schedule(SEED):
            index = nb.SegmentIndex(kind.array(given["segment_ids"]), 20)
            got = samples.call(OPS[op], [index if each == "segment_ids" else kind.array(array) for each, array in given.items()], 20)
        samples.assert_close(kind.numpy(got), samples.truth(op, given, 20), "f32", op)

    _add(name, case)


indexed("index of a sum", "unsorted_segment_sum", 300, 4)
indexed("index of a mean's gradient", "unsorted_segment_mean_backward", 90, 36)
indexed("index of a gradient of the greatest", "unsorted_segment_max_backward", 90, 36)


def bounds_of_short_segments(name: str, ids: samples.Ids, rows: int, segments: int, index: str = "i32", step: int = 1) -> None:
    """A case of where segments begin, by one pass over ids that lie ``step`` apart; these leave gaps for lanes, for warps and for blocks."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        rng = np.random.default_rng(SEED)
        given = np.sort(ids(rng, rows, segments)).astype(numpy_dtype(index))
        x = rng.standard_normal((segments, 2)).astype(np.float32)
        with kind.schedule(SEED):
            made = nb.SegmentIndex(kind.array(given), segments, True)
            got = kind.numpy(nb.segment_mean_backward(kind.array(x), kind.array(np.repeat(given, step))[::step]))
        wanted = np.searchsorted(given, np.arange(segments + 1))
        np.testing.assert_array_equal(kind.numpy(made.offsets), wanted)
        np.testing.assert_array_equal(kind.numpy(made.counts), np.diff(wanted))
        there = (given >= 0) & (given < segments)
        quotients = x / np.maximum(np.diff(wanted), 1)[:, None].astype(np.float32)
        np.testing.assert_array_equal(got, np.where(there[:, None], quotients[np.where(there, given, 0)], 0))

    _add(name, case)


bounds_of_short_segments("bounds, tiles", samples.outside, 4500, 900)
bounds_of_short_segments("bounds, ids apart", samples.anywhere, 600, 500, step=2)
bounds_of_short_segments("bounds, gaps of lanes", samples.anywhere, 300, 1000, "i64")
bounds_of_short_segments("bounds, gaps of warps", samples.outside, 60, 6000)
for k, places in enumerate(((), (0, 1), (1300, 5000), (70, 1094, 2118, 2119), (-9, 3071, 9000), (-2, 5200))):
    bounds_of_short_segments(f"bounds, gaps of blocks {k}", lambda rng, rows, segments, at=places: np.array(at, np.int64), len(places), 5200)


def means(name: str, ids: samples.Ids, rows: int, segments: int, element: str = "f32", index: str = "i32") -> None:
    """A case of gradients of means to single columns, whose launch finds the lengths of short runs."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        sample = Sample(name, rows, (1,), segments, ids, element, index)
        given = samples.operands(OPS["segment_mean_backward"], sample)
        with using(GatherMeans, threads_per_block=64, max_segment_rows=1 << 30), kind.schedule(SEED):
            got = samples.call(OPS["segment_mean_backward"], [kind.array(array) for array in given.values()], segments)
        samples.assert_close(kind.numpy(got), samples.truth("segment_mean_backward", given, segments), element, "segment_mean_backward")

    _add(f"single means, {name}", case)


means("tiles", samples.outside, 2100, 300)
means("runs over tiles", lambda rng, rows, segments: np.repeat(np.arange(40), rng.multinomial(rows, [1 / 40] * 40)), 2048, 40)
means("a run of several tiles", samples.around_a_long_one, 3000, 60, "f16")
means("all of one segment", samples.all_are(1), 1700, 3, "f64")
means("none of any segment", samples.all_are(-1), 600, 3, "f32", "i64")


def indices_and_checks(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices of sorted ids and of offsets, and checks of ids."""
    ids = np.sort(np.random.default_rng(3).integers(0, 300, 700)).astype(np.int32)
    offsets = np.searchsorted(ids, np.arange(301)).astype(np.int64)
    x = np.random.default_rng(4).standard_normal((700, 5)).astype(np.float32)
    with using(BoundShortSegments, max_id_bytes=1), kind.schedule(SEED):
        for rows in range(600, 680, 13):  # of which all are in the first 60 segments: one half of a warp is done before the other
            first = ids[:rows] % 60
            first.sort()
            got = kind.numpy(nb.segment_mean_backward(kind.array(x[:300]), nb.SegmentIndex(kind.array(first), 300)))
            np.testing.assert_allclose(got, (x[:300] / np.maximum(np.bincount(first, minlength=300), 1)[:, None])[first], rtol=1e-5)
        made = [nb.SegmentIndex(kind.array(ids), 300), nb.SegmentIndex.from_offsets(kind.array(offsets))]
        outside = nb.segment_sum(kind.array(x), nb.SegmentIndex(kind.array(ids - 9), 280))
        results = [kind.numpy(nb.segment_mean_backward(kind.array(x[:300]), each)) for each in made]
        for place, wrong, says in ((699, 300, "699"), (0, -3, r"\[0\]"), (9, ids[-1], "10")):
            broken = np.where(np.arange(700) == place, wrong, ids).astype(np.int32)
            for step in (1, 2):
                given = kind.array(np.repeat(broken, step))[::step]
                with pytest.raises(nb.InvalidProblem, match=says), using(FirstFault, max_blocks=1):
                    nb.segment_sum(kind.array(x), given, 300, check_ids=True)
        with using(FirstFault, max_blocks=1):  # blocks walk more than one tile; the last vector of ids is not whole
            for place in (0, 1, 1023, 1024, 2500):
                many = np.arange(2503, dtype=np.int32)
                many[place] = many[place + 1] + 1
                assert not nb.SegmentIndex(kind.array(many), 2600).is_sorted
            assert nb.SegmentIndex(kind.array(np.arange(2503, dtype=np.int32)), 2600).is_sorted
    np.testing.assert_allclose(kind.numpy(outside), np.stack([x[ids == 9 + k].sum(0) for k in range(280)]), rtol=1e-4, atol=1e-5)
    wanted = x[ids] / np.bincount(ids, minlength=300)[ids, None]
    for got in results:
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


_add("indices and checks", indices_and_checks)

# ---------------------------------------------------------------- along axes

#: of ``Passes``
WALKED = {"min_bytes": 1, "min_positions": 2, "many_positions": 4, "min_share": 1, "vectors_across": 16, "gradient_vectors_across": 16}


def reduce(
    name: str, op: str, shape: tuple[int, ...], axis: Any, element: str = "f32", zeros: float = 0, moved: bool = False, late: bool = False,
    shifted: bool = False, batches: int = 4, single_pass: bool = False, dense: bool = False, whole: bool = False, held: bool = False,
    walked: bool = False, staged: bool = False, lines: bool = False, staged_lines: int = 0, parts: int = 0,
    shared: bool = False, **options: Any,
) -> None:  # fmt: skip
    """``zeros`` is the share of elements that are 0; ``moved`` transposes the result; ``late`` rows, or the array if ``shifted``, begin after a
    multiple of 16 bytes.

    ``dense`` operands go in the order of memory. Blocks fold the columns of a gradient ``whole``, or else a launch before does; threads hold those
    that are ``shared`` by several. Threads hold rows and columns that are ``held``. Small problems are ``walked``, and few columns ``staged`` or
    folded in ``lines``, as large ones are. Blocks copy lines of a gradient, ``staged_lines`` bytes or more.
    Fewer ``batches`` make shorter splits of rows. In a ``single_pass`` the last block of a row combines them, else a second launch, in ``parts``.
    """
    policy = {"grid_blocks_per_multiprocessor": 7} if single_pass else {"max_bytes": 1}

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        found, real = OPS[f"reduce_{op}"], reduce_cases.values

        def values(*given: Any) -> Any:
            made = real(*given)
            return np.where(np.random.default_rng(4).random(made.shape) < zeros, 0, made).astype(made.dtype)

        monkeypatch.setattr(reduce_cases, "values", values)
        axes = reduced_axes(found.name, axis, len(shape))
        given = reduce_cases.operands(found, shape, axes, element, **options)
        out = {"out": kind.transpose(kind.array(np.empty(shape[::-1], given["dy"].dtype)), (1, 0))} if moved else {}
        arrays = {each: kind.array(array) for each, array in given.items()}
        if late:
            wide = np.zeros((shape[0], shape[1] + 20 - shape[1] % 4), given["x"].dtype)
            wide[:, 1 : 1 + shape[1]] = given["x"]
            arrays["x"] = kind.array(wide)[:, 1 : 1 + shape[1]]
        if shifted:
            arrays["x"] = kind.array(np.append(given["x"][:1, :1], given["x"]))[1:].reshape(shape)
        with (
            kind.schedule(SEED), using(FoldRows, min_split_batches=batches, warp_rows_per_multiprocessor=4),
            using(FoldColumns, min_split_batches=batches), using(SinglePass, **policy),
            using(BroadcastDense, items_per_thread=2, min_near_vectors=4, **({"min_bytes": 1} if dense else {})),
            using(FoldLines, **({"min_line_bytes": 1, "min_bytes": 1} if lines else {})),
            using(FoldStagedRows, **({"min_column_bytes": 1} if staged else {})),
            using(FoldHeld, **({"min_bytes": 1, "min_line_rows": 1, "max_pieces": 2} if held else {})),
            reduce_cases.staging_lines(staged_lines) if staged_lines else contextlib.nullcontext(),
            using(FoldAndBroadcastColumns, grid_blocks_per_multiprocessor=1 if whole else MANY),
            using(FoldAndBroadcastColumns, **({"min_held_bytes": 1, "min_line_bytes": 1} if shared else {"max_held_elements": 1})),
            using(Passes, **(WALKED if walked else {})),
            using(CombinePartials, **({"max_row_partials": 4, "parts": parts, "blocks_per_multiprocessor": 99} if parts else {})),
        ):  # fmt: skip
            got = kind.numpy(reduce_cases.run(found, arrays, shape, axis, **options, **out))
        more = {"ties": "all"} if "ties" in found.traits["keywords"] else {}
        reduce_cases.assert_close(got, reduce_cases.truth(found, given, shape, axes, **more | options), element, found.name)

    _add(name, case)


for op in ("sum", "var", "logsumexp", "norm2"):
    reduce(f"{op} of short rows", op, (70, 24), 1)
    reduce(f"{op} of rows of a warp", op, (9, 700), 1)
    reduce(f"{op} of columns", op, (300, 20), 0)
for op in ("sum", "var"):
    reduce(f"{op} of full short rows", op, (70, 32), 1)
    reduce(f"{op} of staged rows", op, (259, 33), 1)
    reduce(f"{op} of staged columns", op, (9, 171, 3), 1, staged=True)
    reduce(f"{op} of lines", op, (9, 171, 2), 1, lines=True)
    reduce(f"{op} of lines of halves", op, (9, 271, 4), 1, "bf16", lines=True)
    reduce(f"{op} of lines of a block in splits", op, (5001, 2), 0, batches=1, lines=True)
    reduce(f"{op} of rows of a block in splits", op, (1, 9100), 1, batches=1)
    reduce(f"{op} of rows of a block in a single pass", op, (2, 9100), 1, batches=1, single_pass=True)
    reduce(f"{op} of columns in a single pass", op, (70, 300), 0, batches=1, single_pass=True)
    reduce(f"{op} of peeled rows", op, (3, 1101), 1)
    reduce(f"{op} of columns in splits", op, (3000, 3), 0, batches=1)
    reduce(f"{op} of peeled columns", op, (40, 302), 0, late=True)
    reduce(f"{op} of columns of which some are longer", op, (263, 3), 0, batches=1, walked=True)
    reduce(f"{op} of columns whose walks begin inside a vector", op, (2, 4063, 3), 1, batches=1, walked=True)
    reduce(f"{op} of halves in such columns", op, (5, 123, 5), 1, "bf16", walked=True)
    reduce(f"{op} of columns combined in parts", op, (512, 3, 16), (0, 2), batches=1, walked=True, parts=3)
    reduce(f"{op} of very short rows", op, (300, 8), 1)
    reduce(f"{op} of staged rows for two lanes", op, (130, 49), 1)
for op in ("sum", "var", "norm2"):
    reduce(f"{op} of held rows", op, (1031, 5), 1, held=True)
    reduce(f"{op} of held columns", op, (3, 4, 301), 1, held=True)
    reduce(f"{op} of held lines", op, (5, 300, 3), (0, 2), held=True)
    reduce(f"{op} of held lines apart", op, (3, 5, 104, 3), (1, 3), held=True)
reduce("sum of held lines, two at a time", "sum", (5, 300, 2), (0, 2), held=True)
reduce("var of held rows of halves", "var", (1030, 2), 1, "bf16", held=True)
reduce("sum of columns that wrap to the next line", "sum", (40, 3, 41), 1, held=True)
# lanes and warps that have nothing to combine
reduce("var of columns in splits, the last of one element", "var", (2049, 3), 0, batches=1)
reduce("var of rows of a block in splits, the last of one element", "var", (1, 8193), 1, batches=1)
reduce("var of columns of one element", "var", (1, 20), 0, correction=0)
reduce("var of nothing", "var", (5, 0), 1)
reduce("var of nothing along all axes", "var", (0, 1), (0, 1))
reduce("var of single elements", "var", (70, 5), 1, late=True)
reduce("logsumexp of halves in short rows", "logsumexp", (70, 24), 1, "f16")
for said, shape, axis in (("short rows", (70, 24), 1), ("rows of a warp", (9, 700), 1), ("columns", (300, 20), 0)):
    reduce(f"norm2 of halves in {said}", "norm2", shape, axis, "bf16")
    reduce(f"norm2 of zeros in {said}", "norm2", shape, axis, "bf16", zeros=1)
reduce("sum of halves that lie apart", "sum", (6, 40, 6), (0, 2), "f16")
reduce("sum of staged rows, shifted", "sum", (259, 33), 1, shifted=True)
reduce("sum of columns along two axes", "sum", (21, 4, 13, 5), (0, 2))


def strided_result(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that lie side by side in the operand, and in lines of five in the result."""
    x, y = np.random.default_rng(SEED).random((12, 30, 5), np.float32), kind.array(np.empty((30, 12), np.float32))
    with kind.schedule(SEED):
        nb.reduce_sum(kind.array(x), 0, keepdims=False, out=y[:, :10:2])
    np.testing.assert_allclose(kind.numpy(y)[:, :10:2], x.sum(0), rtol=1e-6)


_add("sum of columns to a strided result", strided_result)
for op in ("sum", "mean", "max", "prod", "var", "logsumexp", "norm2"):
    reduce(f"{op} back to rows", f"{op}_backward", (20, 300), 1)
    reduce(f"{op} back to columns", f"{op}_backward", (300, 20), 0)
    reduce(f"{op} back to staged rows", f"{op}_backward", (259, 33), 1)
    reduce(f"{op} back to columns of which some are longer", f"{op}_backward", (263, 3), 0, walked=True)
    reduce(f"{op} back to columns whose walks begin inside a vector", f"{op}_backward", (3, 263, 3), 1, walked=True)
    reduce(f"{op} back to halves in such columns", f"{op}_backward", (5, 123, 5), 1, "bf16", walked=True)
for op in ("mean", "var", "prod"):
    reduce(f"{op} back to peeled rows", f"{op}_backward", (3, 1101), 1)
for op in ("var", "std"):
    reduce(f"{op} back to rows that a warp holds", f"{op}_backward", (9, 300), 1)
    reduce(f"{op} back to peeled rows that a warp holds", f"{op}_backward", (9, 301), 1)
    reduce(f"{op} back to rows that a block holds", f"{op}_backward", (2, 3100), 1)
    reduce(f"{op} back to peeled rows that a block holds", f"{op}_backward", (2, 2201), 1)
    reduce(f"{op} back to lines of rows that a warp holds", f"{op}_backward", (3, 10, 37), (0, 2))
    reduce(f"{op} back to rows of halves that a group holds", f"{op}_backward", (9, 600), 1, "bf16")
reduce("max back to rows that a warp holds, divided among equals", "max_backward", (9, 300), 1, ties="even")
for op in ("var", "prod"):
    reduce(f"{op} back to staged lines", f"{op}_backward", (2, 3, 7, 41), (1, 3), staged_lines=700)
    reduce(f"{op} back to staged lines of a block", f"{op}_backward", (3, 2, 2, 157), (1, 3), "bf16", staged_lines=1)
    reduce(f"{op} back to short staged lines", f"{op}_backward", (3, 27, 3), (0, 2), "bf16", staged_lines=200)
    reduce(f"{op} back to woven staged lines", f"{op}_backward", (7, 2, 3, 9), (1, 3), staged_lines=600)
    reduce(f"{op} back to short woven staged lines", f"{op}_backward", (9, 3, 5, 2), (1, 3), "bf16", staged_lines=200)
for said, shape, axis, element in (
    ("apart", (5, 3, 9, 5), (0, 2), "f32"), ("one unit at a time", (9, 300, 3), 1, "f32"), ("of halves", (9, 31, 3), 1, "bf16"),
):  # fmt: skip
    reduce(f"std back to few columns {said} in staged lines", "std_backward", shape, axis, element, staged_lines=500)
reduce("zeros of products back to staged lines", "prod_backward", (2, 3, 7, 41), (1, 3), zeros=0.01, staged_lines=700)
for op in ("var", "prod"):
    reduce(f"{op} back to staged rows for two lanes", f"{op}_backward", (130, 49), 1)
    reduce(f"{op} back to rows in splits", f"{op}_backward", (1, 9100), 1, batches=1)
for said, shape, axis in (("whole columns", (290, 140), 0), ("wide whole columns", (50, 140), 0), ("held columns", (3, 300, 5), 0)):
    for op in ("var", "std", "prod"):
        reduce(f"{op} back to {said}", f"{op}_backward", shape, axis, whole=True)
    reduce(f"var back to {said} of halves", "var_backward", shape, axis, "bf16", whole=True)
    reduce(f"the first of equals back to {said}", "max_backward", shape, axis, ties="first", whole=True)
for said, shape, axis, element in (
    ("", (65, 300), 0, "f32"), ("many ", (300, 140), 0, "f32"), ("ragged ", (33, 3, 5), 0, "bf16"), ("long ", (30, 2049), 0, "f32"),
    ("narrow ", (9, 70, 5), (0, 1), "f32"), ("apart ", (9, 4, 14, 40), (0, 2), "bf16"),
):  # fmt: skip
    reduce(f"var back to {said}held columns that lanes share", "var_backward", shape, axis, element, whole=True, shared=True)
    reduce(f"max back to {said}held columns that lanes share", "max_backward", shape, axis, element, whole=True, shared=True, ties="even")
for op, extent in (("sum", 2), ("max", 3), ("std", 3), ("prod", 3)):
    reduce(f"{op} back to columns of a thread", f"{op}_backward", (30, extent, 41), 1, held=True)
for op in ("sum", "max", "std", "prod"):
    reduce(f"{op} back to rows of a thread", f"{op}_backward", (1031, 2), 1, held=True)
    reduce(f"{op} back to rows of halves of a thread", f"{op}_backward", (515, 4), 1, "bf16", held=True)
reduce("zeros of products back to rows of a thread", "prod_backward", (1031, 4), 1, zeros=0.003, held=True)
reduce("the first of equals back to rows of a thread", "max_backward", (1031, 2), 1, ties="first", held=True)
reduce("zeros of products back to columns of a thread", "prod_backward", (5, 1200), 0, zeros=0.003, held=True)
reduce("the first of equals back to columns of a thread", "max_backward", (4, 600), 0, ties="first", held=True)
reduce("var back to wide whole columns apart", "var_backward", (9, 140, 5), (0, 2), whole=True)
reduce("var back to whole columns apart", "var_backward", (49, 140, 5), (0, 2), whole=True)
reduce("products back to whole columns", "prod_backward", (30, 140), 0, whole=True)
reduce("zeros of products back to whole columns", "prod_backward", (30, 300), 0, zeros=0.003, whole=True)
for op in ("var", "std"):
    reduce(f"{op} back to rows that are read twice", f"{op}_backward", (20, 300), 1, late=True)
reduce("zeros of products back to rows", "prod_backward", (20, 300), 1, zeros=0.003)
reduce("zeros of products back to staged rows", "prod_backward", (200, 7), 1, zeros=0.1)
reduce("zeros of products back to staged rows shorter than a vector", "prod_backward", (200, 3), 1, zeros=0.1)
for said, zeros in (("products", 0.0), ("zeros of products", 0.003)):
    reduce(f"{said} back to few columns in lines", "prod_backward", (9, 171, 2), 1, zeros=zeros, lines=True)
    reduce(f"{said} back to few columns, staged", "prod_backward", (9, 171, 3), 1, zeros=zeros, staged=True)
reduce("the first of equals back to staged rows", "max_backward", (259, 7), 1, ties="first")
reduce("zeros of products back to short rows", "prod_backward", (70, 24), 1, zeros=0.01)
reduce("zeros of products back to columns", "prod_backward", (300, 20), 0, zeros=0.003)
reduce("zeros of products back to rows in splits", "prod_backward", (1, 9101), 1, zeros=0.0001, batches=1)
for said, zeros in (("products", 0.0), ("zeros of products", 0.003)):
    reduce(f"{said} back to short rows that lie otherwise", "prod_backward", (70, 24), 1, zeros=zeros, moved=True)
    reduce(f"{said} back to staged rows that lie otherwise", "prod_backward", (60, 7), 1, zeros=zeros, moved=True)
for op in ("mean", "max", "logsumexp"):
    for said, shape, axis in (
        ("rows", (83, 37), 1),
        ("short rows", (1100, 3), 1),
        ("columns", (37, 83), 0),
        ("short columns", (1100, 3), 0),
        ("columns in lines", (40, 9), 0),
        ("columns in turns", (9, 301, 2), 1),
        ("columns in turns of whole vectors", (9, 302, 2), 1),
    ):
        reduce(f"{op} back to dense {said}", f"{op}_backward", shape, axis, dense=True)
    reduce(f"{op} back to dense columns of halves", f"{op}_backward", (37, 83), 0, "bf16", dense=True)
reduce("var back to dense rows apart", "var_backward", (3, 60, 2, 9), (0, 2, 3), dense=True)
reduce("the first of equals back to rows", "max_backward", (20, 300), 1, ties="first")


def places(name: str, shape: tuple[int, ...], axis: int) -> None:
    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(1).integers(0, 40, shape).astype(np.float32)
        with kind.schedule(SEED):
            got = kind.numpy(nb.reduce_argmax(kind.array(x), axis))
        np.testing.assert_array_equal(got.reshape(-1), np.argmax(x, axis))

    _add(name, case)


def in_order(name: str, shape: tuple[int, int]) -> None:
    """The last element of each row that is not 0, which depends on the order."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(1).integers(0, 4, shape).astype(np.float32)
        with kind.schedule(SEED), using(FoldRows, min_split_batches=1, warp_rows_per_multiprocessor=4):
            got = kind.numpy(nb.reduce_axis(kind.array(x), LAST, 1))
        np.testing.assert_array_equal(got[:, 0], [row[row != 0][-1] for row in x])

    _add(name, case)


in_order("rows of a warp in order", (9, 700))
in_order("whole rows of a warp in order", (9, 4096))
in_order("rows of a block in order", (2, 9101))
places("argmax of columns", (300, 20), 0)
places("argmax of rows", (9, 700), 1)

# ---------------------------------------------------------------- scans


@contextlib.contextmanager
def narrow(threads: int = 64, most: int = 1, slabs: int = 0) -> Iterator[None]:
    """Makes tiles and groups of tiles small, and few rows count as many, so that small problems have several tiles.

    ``threads`` are those of a block where blocks share rows or columns. Columns and rows of ``most`` elements at most are slices of a block.
    Blocks that share columns hold ``slabs`` of so many bytes, if that is not 0.
    """
    with (
        using(
            ScanSlices, bytes_per_thread=16, threads_per_block=64, max_extent=most, max_peeled_extent=most, max_whole_extent=3, max_row_bytes=256,
            whole_columns=True, peeled_rows=True,
        ),
        using(ScanRows, bytes_per_thread=32, threads_per_block=64),
        using(ScanColumns, bytes_per_thread=32, grid_blocks_per_multiprocessor=2, enough_blocks_per_multiprocessor=2, min_alone_elements=1),
        using(ScanLongRows, bytes_per_thread=32, threads_per_block=threads, group_tiles=2, busy_rows_per_multiprocessor=3),
        using(ScanLongColumns, bytes_per_thread=32, threads_per_block=threads, min_group_tiles=2, max_group_tiles=2),
        using(
            ScanSlabs, threads_per_block=threads, tile_bytes=slabs or 1, whole_bytes=slabs or 1, whole_columns=9, strip_columns=16,
            whole_strip_columns=32, min_whole_elements=1, min_full_percent=50 if slabs else 1 << 30,
        ),
    ):  # fmt: skip
        yield


def scan(
    name: str, op: str, shape: tuple[int, ...], axis: int, threads: int = 64, rising: bool = False, slices: bool = False, slabs: int = 0,
    element: str = "f32", **options: Any,
) -> None:  # fmt: skip
    """Of ``rising`` elements each is the greatest so far; ``threads`` are those of a block where blocks share rows or columns.

    A block has whole ``slices`` of short columns, or lanes share them; it has ``slabs`` of so many bytes of long ones, or threads load their own.
    """

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        stem = op.removesuffix("_backward")
        x = scan_cases.values(stem, shape, element)
        with narrow(threads, 64 if slices else 1, slabs), kind.schedule(SEED):
            (scan_cases.check if stem == op else scan_cases.check_backward)(kind, stem, np.sort(x, axis) if rising else x, axis, **options)

    _add(name, case)


def winners(name: str, op: str, shape: tuple[int, ...], axis: int, small: bool = True, **options: Any) -> None:
    """Values and indices of the winners so far, of numbers many of which are equal."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x = np.random.default_rng(3).integers(0, 9, shape).astype(np.float32)
        with narrow() if small else contextlib.nullcontext(), kind.schedule(SEED):
            y, places = map(kind.numpy, getattr(nb, op)(kind.array(x), axis, return_indices=True, **options))
        np.testing.assert_array_equal(y, scan_reference.scanned(op, x, axis, reverse=options.get("reverse", False)))
        np.testing.assert_array_equal(np.take_along_axis(x, places, axis), y)

    _add(name, case)


for op in ("cumsum", "cummax", "logcumsumexp", "cumprod_backward", "cummax_backward", "logcumsumexp_backward"):
    scan(f"{op} of short rows", op, (9, 37), 1)
    scan(f"{op} of very short rows", op, (203, 3), 1, reverse=True)
    scan(f"{op} of odd rows in several tiles", op, (3, 157), 1)
    scan(f"{op} of rows in several tiles", op, (3, 1104), 1)
    scan(f"{op} of columns in several tiles", op, (150, 10), 0)
    for order, said in ((True, "in order"), (False, "as they come")):
        scan(f"{op} of long rows, {said}", op, (1, 2100), 1, deterministic=order)
        scan(f"{op} of long columns, {said}", op, (1100, 3), 0, deterministic=order)
for order, said in ((True, "in order"), (False, "as they come")):
    scan(f"cumsum of long rows from a number, {said}", "cumsum", (1, 1300), 1, deterministic=order, initial=0.5)
scan("cumsum of long columns, idle threads", "cumsum", (2300, 2), 0, threads=128)
for said, shape, axis in (("rows", (3, 1101), 1), ("long rows", (2, 1631), 1), ("columns", (150, 10), 0), ("long columns", (1100, 3), 0)):
    scan(f"cummax_backward of rising {said}", "cummax_backward", shape, axis, rising=True)
    scan(f"cummax_backward of {said} below a number", "cummax_backward", shape, axis, initial=100.0)
scan("cummax_backward of very short rows, some below a number", "cummax_backward", (203, 3), 1, initial=0.5)


def late_winners(name: str, shape: tuple[int, int], most: int = 1) -> None:
    """Rows that begin with the least of all numbers, whose gradient is that of what comes before them, or nobody's."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x = scan_cases.values("cummax", shape)
        x[::2, 0] = -np.inf
        for exclusive in (False, True):
            with narrow(most=most), kind.schedule(SEED):
                scan_cases.check_backward(kind, "cummax", x, 1, exclusive=exclusive)

    _add(name, case)


for said, shape in (("rows", (9, 37)), ("aligned rows", (9, 32)), ("very short rows", (203, 3))):
    late_winners(f"cummax_backward of {said} that begin with an infinity", shape)
late_winners("cummax_backward of slices that begin with an infinity", (203, 3), 64)


def late_rows(name: str, shape: tuple[int, int]) -> None:
    """Arrays that begin and end inside a vector, outside of which nobody may read or write."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x = scan_cases.values("cumsum", shape)
        late, out = (kind.array(np.pad(x.ravel(), (1, 3)))[1 : 1 + x.size].reshape(x.shape) for _ in range(2))
        for reverse in (False, True):
            with narrow(), kind.schedule(SEED):
                nb.cumsum(late, 1, out=out, reverse=reverse)
            np.testing.assert_allclose(kind.numpy(out), scan_reference.scanned("cumsum", x, 1, reverse=reverse), atol=1e-4)

    _add(name, case)


def apart(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rows with gaps between them."""
    x = scan_cases.values("cumsum", (9, 38))[:, :37]
    with narrow(), kind.schedule(SEED):
        scan_cases.check(kind, "cumsum", x, 1, kind.array(np.ascontiguousarray(np.pad(x, ((0, 0), (0, 1)))))[:, :37])


for said, shape in (("peeled rows", (3, 1101)), ("short rows", (19, 37)), ("very short rows", (203, 3)), ("few short rows", (2, 5))):
    late_rows(f"cumsum of {said} that begin late", shape)
_add("cumsum of short rows apart", apart)
scan("cumsum of columns side by side", "cumsum", (40, 130), 0)
scan("cumsum of wide columns in several tiles", "cumsum", (150, 34), 0)
scan("cumsum of long wide columns", "cumsum", (1100, 35), 0)
for op in ("cumsum", "logcumsumexp"):
    scan(f"{op} of dense columns", op, (3, 300, 6), 1)
    scan(f"{op} of dense columns backwards", op, (2, 144, 5), 1, reverse=True)
    scan(f"{op} of long dense columns", op, (1100, 7), 0)
SLAB = 5 << 10  #: bytes of a slab that has several levels of several rows
for op in ("cumsum", "logcumsumexp", "cumprod_backward", "logcumsumexp_backward"):
    scan(f"{op} of slabs", op, (701, 7), 0, slabs=SLAB)
    scan(f"{op} of slabs backwards", op, (2, 601, 5), 1, slabs=SLAB, reverse=True)
    scan(f"{op} of slabs of strips", op, (2, 301, 21), 1, slabs=SLAB)
scan("cumsum of slabs of even strips", "cumsum", (201, 38), 0, slabs=SLAB, reverse=True, deterministic=False)
scan("cumsum of slabs of aligned strips", "cumsum", (201, 36), 0, slabs=SLAB)
scan("cumsum of slabs, the last less than a vector", "cumsum", (2, 433, 3), 1, slabs=1 << 10, element="bf16")
scan("cumsum of slabs, idle threads", "cumsum", (1301, 2), 0, slabs=SLAB, threads=128)
for element in ("f32", "bf16"):
    scan(f"cumsum of slabs of strips, the last of one column, {element}", "cumsum", (241, 49), 0, slabs=SLAB, element=element)
scan("cumsum of slabs of strips of halves", "cumsum", (2, 301, 21), 1, slabs=SLAB, element="bf16", reverse=True)
scan("cumsum of slabs of strips of pairs of halves", "cumsum", (201, 38), 0, slabs=SLAB, element="bf16")
scan("cumprod_backward of slabs of halves", "cumprod_backward", (601, 7), 0, slabs=SLAB, element="bf16")
scan("what comes before in slabs", "logcumsumexp_backward", (601, 7), 0, slabs=SLAB, exclusive=True, initial=0.5)
scan("what comes before in slabs of strips", "cumprod_backward", (201, 21), 0, slabs=SLAB, exclusive=True, reverse=True)
for said, slab, rising in (("", SLAB, False), (" that rises", 2 * SLAB, True)):
    scan(f"cummax_backward of slabs{said}", "cummax_backward", (671, 7), 0, slabs=slab, rising=rising)
    scan(f"cummin_backward of slabs backwards{said}", "cummin_backward", (2, 601, 5), 1, slabs=slab, rising=rising, reverse=True)
    scan(f"cummax_backward of slabs of strips{said}", "cummax_backward", (2, 301, 21), 1, slabs=slab, rising=rising)
scan("cummax_backward of slabs of lines", "cummax_backward", (401, 64), 0, slabs=SLAB, element="bf16", reverse=True, deterministic=False)
scan("cummax_backward of slabs below a number", "cummax_backward", (701, 7), 0, slabs=SLAB, initial=0.5)
for op in ("cumsum", "logcumsumexp", "cumprod_backward", "cummax_backward"):
    scan(f"{op} of slabs of whole columns", op, (5, 51, 7), 1, slabs=SLAB, initial=0.5)
    scan(f"{op} of slabs of whole columns backwards", op, (5, 75, 5), 1, slabs=SLAB, reverse=True, exclusive=True)
scan("cummax_backward of slabs of whole columns that rise", "cummax_backward", (5, 67, 7), 1, slabs=SLAB, rising=True)
scan("cummax_backward of slabs of whole wide columns", "cummax_backward", (5, 19, 37), 1, slabs=SLAB, rising=True)
scan("cummin_backward of slabs of one level of whole columns", "cummin_backward", (5, 11, 45), 1, slabs=SLAB, reverse=True)
scan("cummax_backward of slabs, two for a column", "cummax_backward", (3, 117, 7), 1, slabs=SLAB, rising=True)
scan("what wins before in slabs", "cummax_backward", (2, 601, 5), 1, slabs=SLAB, exclusive=True)


def slabs_apart(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first three of four slices each, which two axes count."""
    x = scan_cases.values("cumsum", (2, 4, 52, 7))
    with narrow(slabs=SLAB), kind.schedule(SEED):
        scan_cases.check(kind, "cumsum", x[:, :3], 2, kind.array(x)[:, :3])


def slabs_of_distant_numbers(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that rise so far within a batch that its elements are not scaled together."""
    x = 12 * scan_cases.values("logcumsumexp", (801, 5))
    with narrow(slabs=2 * SLAB), kind.schedule(SEED):
        scan_cases.check(kind, "logcumsumexp", x, 0)
        scan_cases.check_backward(kind, "logcumsumexp", x, 0)
        scan_cases.check_backward(kind, "logcumsumexp", x / 12 + 2 * np.arange(801, dtype=np.float32)[:, None], 0)


_add("cumsum of slabs apart", slabs_apart)
_add("logcumsumexp_backward of slabs of distant numbers", slabs_of_distant_numbers)
scan("cumsum of two dense columns", "cumsum", (3, 300, 2), 1)
scan("cumsum_backward of dense columns that begin anywhere", "cumsum_backward", (3, 141, 5), 1)
scan("cumsum_backward of long dense columns", "cumsum_backward", (1101, 3), 0, reverse=True)
for op in ("cumsum", "cummax_backward", "cumprod_backward", "logcumsumexp_backward"):
    scan(f"{op} of short columns", op, (3, 3, 131), 1)
    scan(f"{op} of columns alone", op, (19, 1100), 0)
for op in ("cumsum", "cummax_backward", "cumprod_backward"):
    scan(f"{op} of peeled rows", op, (3, 1101), 1)
    scan(f"{op} of peeled long rows", op, (2, 1631), 1, reverse=True)
for op in ("cumsum", "cummax_backward", "cumprod_backward", "logcumsumexp_backward"):
    scan(f"{op} of slices", op, (70, 5, 3), 1, slices=True)
    scan(f"{op} of short rows as slices", op, (203, 3), 1, slices=True, reverse=True)
scan("cummax_backward of rising slices", "cummax_backward", (40, 16, 2), 1, slices=True, rising=True)
scan("cummax_backward of slices below a number", "cummax_backward", (70, 5, 3), 1, slices=True, initial=0.5)
for op in ("cumprod_backward", "logcumsumexp_backward"):
    scan(f"what comes before in slices, {op}", op, (70, 5, 3), 1, slices=True, exclusive=True)
scan("what comes before in rows", "logcumsumexp_backward", (3, 1105), 1, exclusive=True)
scan("exponentials of rows that begin within a vector", "logcumsumexp", (3, 1105), 1)
for said, shape in (("rows", (3, 1104)), ("aligned rows", (3, 176)), ("long rows", (1, 2101))):
    scan(f"logcumsumexp_backward of {said} of halves", "logcumsumexp_backward", shape, 1, element="bf16")


def halves_far_apart(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that begin with negative infinities and leap in the midst of a vector."""
    x = scan_cases.values("logcumsumexp", (3, 1104), "bf16")
    x[:2, :43] = -np.inf
    x[1:, 300:303] = 400
    with narrow(), kind.schedule(SEED):
        scan_cases.check_backward(kind, "logcumsumexp", x, 1)


_add("logcumsumexp_backward of rows of halves far apart", halves_far_apart)
scan("what comes before in columns", "logcumsumexp_backward", (151, 10), 0, exclusive=True)
scan("what comes before in odd rows", "cumprod_backward", (9, 38), 1, exclusive=True)
for op in ("cummax", "cummin"):
    winners(f"{op} and places of rows", op, (3, 1108), 1)
    winners(f"{op} and places of columns", op, (151, 12), 0, reverse=True)


def places_below_a_number(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    x = kind.array(np.ones((3, 40), np.float32))
    with kind.schedule(SEED):
        for reverse in (False, True):
            assert (kind.numpy(nb.cummax(x, 1, reverse=reverse, initial=2, return_indices=True)[1]) == -1).all()


_add("places of columns below a number", places_below_a_number)
winners("places of wide rows", "cummax", (5, 300), 1, small=False, index_dtype="int64")
winners("places of peeled rows", "cummax", (3, 1103), 1, index_dtype="int32")
winners("places of short rows", "cummax", (19, 37), 1)

# ---------------------------------------------------------------- losses


def loss(name: str, rows: int, classes: int, value: str = "f32", chunk: int = 100, **options: Any) -> None:
    """Rows that are partly in shared memory, several for each block, some of them left out."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        with kind.schedule(SEED):
            loss_cases.check(kind, *loss_cases.problem(rows, 3, classes, value), value, chunk=min(chunk, rows), **options)

    _add(name, case)


loss("losses", 11, 70)
loss("losses side by side", 11, 128)
loss("losses of odd rows", 11, 127)
loss("losses of wide rows", 5, 1931)
loss("losses of halves", 10, 70, "bf16", label_smoothing=0.1, lse_square_scale=0.03, softcap=1.5, class_weight=loss_cases.CLASS_WEIGHTS)
loss("losses of rows", 10, 70, reduction="none", dy=np.linspace(0.5, 1.5, 10, dtype=np.float32))
loss("losses and entropies of rows", 10, 127, reduction="none", dy_entropy=np.linspace(-1, 1, 10, dtype=np.float32), softcap=1.5)
loss("losses and entropies of halves", 10, 70, "bf16", reduction="none", dy_entropy=np.linspace(-1, 1, 10, dtype=np.float32), label_smoothing=0.1)
loss("losses of halves, summed in float32", 10, 70, "bf16", 4, grad_weight_accum="f32")
loss("losses, gradient given", 10, 70, dy=np.array([0.375], np.float32))
loss("losses of halves, gradient given", 10, 70, "f16", 4, dy=np.array([0.375], np.float32))


def all_results(name: str, **options: Any) -> None:
    """Checked and unchecked runs give the same bits, which the tests of losses say are right."""

    def case(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
        x, w, target = map(kind.array, loss_cases.problem(11, 3, 70))
        asked = dict.fromkeys(("grad_input", "grad_weight", *(f"return_{each}" for each in loss_cases.RETURNED)), True)
        made = []
        for seed in (None, SEED):
            with kind.schedule(seed):
                result = nb.fused_linear_cross_entropy(x, w, target, lse_square_scale=0.1, **asked, **options)
                nb.fused_linear_cross_entropy_backward(0.5, result.grad_input, result.grad_weight)
                nb.fused_linear_cross_entropy_backward(kind.array(np.full(1, 3, np.float32)), result.grad_input)
            made.append([result.loss, *(getattr(result, each.removeprefix("return_")) for each in asked)])
        for a, b in zip(*made, strict=True):
            np.testing.assert_array_equal(kind.numpy(a), kind.numpy(b))

    _add(name, case)


def added(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    x, w, target = map(kind.array, loss_cases.problem(10, 3, 70, "bf16"))
    made = []
    for seed in (None, SEED):
        held = kind.array(np.ones(w.shape, w.dtype))
        with kind.schedule(seed):
            nb.fused_linear_cross_entropy(x, w, target, chunk=4, grad_weight=held, accumulate_grad_weight=True, grad_weight_accum="f32")
        made.append(kind.numpy(held).view(np.int16))
    np.testing.assert_array_equal(*made)


_add("losses, added to a gradient", added)
all_results("all results of losses", chunk=11)
all_results("all results of losses in chunks", chunk=4)
all_results("losses without ignored rows", skip_ignored=True)

# ---------------------------------------------------------------- ranks

for _name, _case in rank_cases.CASES.items():
    _add(_name, _case)
