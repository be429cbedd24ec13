"""Tuning policies, the hook that replaces their fields, and the command that measures alternatives."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from kinds import Kind

import numba_baracuda as nb
from numba_baracuda.core import policy
from numba_baracuda.core.errors import InvalidProblem
from numba_baracuda.core.op import EMULATED
from numba_baracuda.core.registry import FAMILIES
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import Block
from numba_baracuda.segment.policy import FoldLookback, FoldTiles
from numba_baracuda.segment.policy_of import fold_tiles

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks", reason="the benchmarks are not part of a source distribution")

from benchmarks import tune
from benchmarks.tune_problems import CARD, launches_of, problem_of

POLICIES = [(family, made) for family in FAMILIES for made in policy.of_family(family).values()]
#: fields that mean the same in every family
COMMON = {
    "threads_per_block", "items_per_thread", "vector_bytes", "min_blocks_per_multiprocessor", "grid_blocks_per_multiprocessor",
    "shared_bytes_per_block", "contiguous_bytes",
}  # fmt: skip


@pytest.mark.parametrize(("family", "made"), POLICIES, ids=lambda each: getattr(each, "__name__", each))
def test_policies_are_frozen_and_take_their_own_values(family: str, made: type[policy.Policy]) -> None:
    own = made()
    with pytest.raises(dataclasses.FrozenInstanceError):
        own.threads_per_block = 1  # type: ignore[attr-defined]
    for each in dataclasses.fields(made):
        if each.metadata.get("fixed"):
            message = f"{made.__name__}.{each.name} is compiled into its kernels, wants an edit of {made.__module__}$"
            with pytest.raises(InvalidProblem, match=message):
                policy._check(made, each.name, getattr(own, each.name))
        else:
            policy._check(made, each.name, getattr(own, each.name))
    assert (made.__doc__ and made.__doc__[0].isupper()) or made.__doc__.startswith("``")


def test_families_share_their_vocabulary() -> None:
    """Each family has the common fields that its kernels need, and none has a kernel without a block size in its policies."""
    names = {family: {each.name for _, made in POLICIES if _ == family for each in dataclasses.fields(made)} for family in FAMILIES}
    for family, found in names.items():
        assert {"threads_per_block", "items_per_thread"} - found <= ({"items_per_thread"} if family == "scan" else set()), family
    assert set.union(*names.values()) >= COMMON


def test_an_alternative_lasts_as_long_as_its_block() -> None:
    described = nb.SegmentDescriptor("segment_sum", 1 << 20, 128, 1 << 14)
    before = nb.select(described, device=-1)
    with using(FoldTiles, threads_per_block=256, max_tile_rows=96):
        inside = nb.select(described, device=-1)
        assert inside is not before and policy.tuned(FoldTiles()) == FoldTiles(threads_per_block=256, max_tile_rows=96)
        with using(FoldTiles, max_tile_rows=48):
            assert policy.tuned(FoldTiles()) == FoldTiles(threads_per_block=256, max_tile_rows=48)
        assert policy.tuned(FoldTiles()).max_tile_rows == 96
    assert policy.tuned(FoldTiles()) == FoldTiles() and nb.select(described, device=-1) is not inside
    with pytest.raises(ZeroDivisionError), using(FoldTiles, max_tile_rows=96):
        raise ZeroDivisionError
    assert policy.tuned(FoldTiles()) == FoldTiles()


@pytest.mark.parametrize(
    ("made", "values", "message"),
    [
        (FoldTiles, {"threads": 64}, "FoldTiles: got field 'threads', wants one of threads_per_block, .*; did you mean threads_per_block"),
        (FoldTiles, {"threads_per_block": 100}, "FoldTiles.threads_per_block is 100, wants one of 32, 64, 128, 256, 512, 1024"),
        (FoldTiles, {"max_tile_rows": 100}, "FoldTiles.max_tile_rows is 100, wants a multiple of 16"),
        (FoldTiles, {"max_tile_rows": 0}, "FoldTiles.max_tile_rows is 0, wants a whole number of 1 or more"),
        (FoldTiles, {"max_tile_rows": "many"}, "FoldTiles.max_tile_rows is 'many', wants a whole number of 1 or more"),
        (FoldTiles, {"min_blocks_per_multiprocessor": -1}, "FoldTiles.min_blocks_per_multiprocessor is -1, wants a whole number of 0 or more"),
        (Block, {"min_peeled_bytes": True}, "Block.min_peeled_bytes is True, wants a whole number of 1 or more"),
    ],
)  # fmt: skip
def test_wrong_alternatives_are_refused(made: type[policy.Policy], values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProblem, match=message), using(made, **values):
        pass
    assert policy.tuned(made()) == made()


def test_compiled_fields_are_constants_only_where_they_are_replaced() -> None:
    problem = problem_of("segment_sum", [1 << 18, 128, 1 << 14])
    usual = launches_of(problem)[0].spec
    assert {"threads_per_block", "items_per_thread"}.isdisjoint(dict(usual.constants))
    with using(FoldTiles, threads_per_block=64, items_per_thread=16):
        other = launches_of(problem)[0].spec
    assert dict(other.constants) == dict(usual.constants) | {"threads_per_block": 64, "items_per_thread": 16}
    assert (usual.max_threads, other.max_threads) == (128, 64) and usual.min_blocks == other.min_blocks


def test_resident_blocks_are_known_of_sm_90_and_scaled_beyond() -> None:
    from numba_baracuda.algebra import monoid_of

    found = {
        each: [
            fold_tiles(dataclasses.replace(CARD, capability=each), "f32", "i32", vector, monoid_of("sum")).min_blocks_per_multiprocessor
            for vector in (1, 4)
        ]
        for each in ((8, 0), (9, 0), (10, 0))
    }
    assert found == {(8, 0): [7, 5], (9, 0): [8, 5], (10, 0): [7, 5]}


#: op, shape, options, and a change of each field that a kernel compiles in or that decides on launches
CHANGES = [
    ("segment_sum", [900, 68, 40], {}, "FoldTiles.threads_per_block=64,256"),
    ("segment_mean", [900, 36, 40], {"dtype": "f64"}, "FoldTiles.items_per_thread=4,16"),
    ("segment_max", [9000, 68, 40], {}, "FoldTiles.max_tile_rows=16"),
    ("segment_sum", [900, 3, 40], {}, "FoldNarrow.threads_per_block=32,256"),
    ("segment_sum", [3000, 1, 40], {}, "FoldNarrow.items_per_thread=8"),
    ("segment_var", [700, 20, 9], {}, "FoldCarries.threads_per_block=64"),
    ("segment_var", [700, 20, 9], {}, "FoldCarries.items_per_thread=2,8"),
    ("unsorted_segment_sum", [700, 12, 5], {}, "FoldBins.threads_per_block=64"),
    ("unsorted_segment_sum", [700, 12, 5], {}, "FoldBins.items_per_thread=2"),
    ("unsorted_segment_sum", [3000, 20, 2000], {"any_order": True}, "ScatterRows.items_per_thread=1,8"),
    ("unsorted_segment_max", [3000, 20, 2000], {"any_order": True}, "RowWise.threads_per_block=64"),
    ("segment_sum_backward", [300, 36, 20], {}, "GatherRuns.items_per_thread=2"),
    ("unsorted_segment_sum_backward", [300, 12, 20], {}, "GatherRows.items_per_thread=1,8"),
    ("unsorted_segment_sum_backward", [300, 13, 20], {}, "GatherFlat.threads_per_block=64"),
    ("unsorted_segment_sum_backward", [9000, 13, 20], {}, "GatherFlat.tile_bytes=16384"),
    ("unsorted_segment_sum_backward", [3000, 1, 20], {}, "Elements.threads_per_block=64"),
    ("unsorted_segment_sum_backward", [3000, 1, 20], {}, "Elements.items_per_thread=1"),
    ("segment_prod_backward", [300, 12, 20], {}, "FindSpecial.items_per_thread=2"),
    ("segment_prod_backward", [300, 12, 20], {}, "RowWise.threads_per_block=128"),
    ("reduce_sum", [3, 9000], {}, "FoldRows.min_split_batches=1"),
    ("reduce_max", [40, 37], {}, "FoldStagedRows.shared_bytes_per_block=1024"),
    ("cumsum", [3, 9000], {}, "ScanLongRows.threads_per_block=128"),
    ("cummax", [9, 70], {}, "ScanRows.bytes_per_thread=32"),
    ("fused_linear_cross_entropy", [12, 8, 700], {}, "CrossEntropyRows.threads_per_block=64"),
    ("fused_linear_cross_entropy", [12, 8, 70], {}, "CrossEntropyRows.items_per_thread=1"),
    ("fused_linear_cross_entropy", [12, 8, 70], {}, "Assign.threads_per_block=64"),
    ("fused_linear_cross_entropy", [12, 8, 70], {}, "Assign.items_per_thread=1"),
]


#: what plain ``pytest`` runs of these: one of each family, and kernels that share a keyword
FEW = ("FoldTiles.threads_per_block", "FoldCarries.items_per_thread", "GatherRows", "FoldRows", "ScanLongRows", "Assign.threads_per_block")


@pytest.mark.parametrize(
    ("op", "shape", "options", "field"),
    [pytest.param(*each, id=f"{each[0]} {each[3]}", marks=() if each[3].startswith(FEW) else pytest.mark.full) for each in CHANGES],
)
def test_an_alternative_changes_the_launch_and_not_the_result(emulator: Kind, op: str, shape: list[int], options: dict[str, Any], field: str) -> None:
    with using(FoldLookback, max_status_bytes=1) if field.startswith("FoldCarries") else contextlib.nullcontext():
        problem = problem_of(op, shape, **options)
        _, others = tune.alternatives(problem, [field], EMULATED)
        assert len(others) == field.count(",") + 1 and not any(isinstance(made, str) for _, made in others)
        measured = tune.Measured(problem, np, lambda calls, repeats: [call() for call in calls], 0, 1)
        assert measured.run()[1] == "chosen"
        for alternative, _ in others:
            assert measured.run(alternative)[1] in ("same bits", "rounds otherwise")


def test_a_wrong_alternative_is_told(emulator: Kind) -> None:
    measured = tune.Measured(problem_of("segment_sum", [300, 5, 7]), np, lambda calls, repeats: None, 0, 1)
    measured.run()
    measured.wanted["output"][3, 2] += 1
    assert measured.run()[1].startswith("WRONG: output: 1 of 35 elements are wrong, the worst by 1")


def test_fields_of_all_policies_that_are_read_and_their_products() -> None:
    problem = problem_of("segment_sum", [1 << 24, 128, 1 << 14])
    chosen, others = tune.alternatives(problem, ["threads_per_block=128,256"])
    names = [", ".join(map(str, alternative)) for alternative, _ in others]
    assert names == ["FoldTiles.threads_per_block=256", "FoldCarries.threads_per_block=128", "FoldCarries.threads_per_block=256"]
    _, crossed = tune.alternatives(problem, ["FoldTiles.threads_per_block=64,256", "FoldTiles.max_tile_rows=96,384"])
    assert len(crossed) == 4 and {made[0].config[1] for _, made in crossed if not isinstance(made, str)} == {64, 256}
    (_, same), _ = tune.alternatives(problem, ["FoldTiles.threads_per_block=128,64"])[1]
    assert same == tune.SAME and chosen[0].spec.kernel == "fold_tiles"


@pytest.mark.parametrize(
    ("op", "shape"),
    [
        ("segment_sum", [2_000_000, 128, 100_000]), ("reduce_sum", [4, 1 << 26]), ("cumsum", [1, 1 << 28]),
        ("fused_linear_cross_entropy", [64, 32, 999]),
    ],
)  # fmt: skip
def test_without_a_field_all_are_tried(op: str, shape: list[int]) -> None:
    chosen, others = tune.alternatives(problem_of(op, shape), [])
    assert len(others) > 3 and all(made != chosen and len(alternative) == 1 for alternative, made in others)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["segment_summ", "9", "9", "9"], "op: got 'segment_summ', wants one of .* did you mean segment_sum"),
        (["segment_sum", "9", "9"], "segment_sum: shape is [9, 9], wants ROWS COLUMNS SEGMENTS, each 1 or more"),
        (["reduce_sum", "0"], "reduce_sum: shape is [0], wants EXTENT…, each 1 or more"),
        (["segment_sum", "9", "9", "9", "--dtype", "bool"], "segment_sum: dtype is bool, wants one of f16"),
        (["segment_sum", "9", "9", "9", "--dtype", "f12"], "segment_sum: .*f12"),
        (["reduce_sum", "9", "9", "--axis", "2"], "reduce_sum: axis is 2"),
        (["segment_sum", "9", "9", "9", "--field", "threads=64"], "--field: got field 'threads', which no policy of this problem has; wants one of"),
        (["segment_sum", "9", "9", "9", "--field", "Fold.threads_per_block=64"], "--field: got policy 'Fold', wants one of"),
        (["segment_sum", "9", "9", "9", "--field", "threads_per_block"], "--field: got 'threads_per_block', wants [POLICY.]FIELD=VALUE,…"),
        (["segment_sum", "9", "9", "9", "--field", "FoldTiles.threads_per_block=7"], "FoldTiles.threads_per_block is 7, wants one of 32, 64"),
        (["segment_sum", "9", "9", "9", "--field", "FoldTiles.max_tile_rows=x"], "FoldTiles.max_tile_rows is 'x', wants a whole number"),
        (["segment_sum", "9", "9", "9", "--field", "FoldGaps.items_per_thread=7"], "FoldGaps.items_per_thread is compiled into its kernels"),
        (["fused_linear_cross_entropy_backward", "9", "9", "9"], "fused_linear_cross_entropy_backward multiplies gradients in place"),
    ],
)  # fmt: skip
def test_errors_of_the_command(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    import re

    assert tune.main(arguments) == 2
    pattern = ".*".join(map(re.escape, message.split(".*")))
    assert re.search(f"benchmarks.tune: {pattern}", " ".join(capsys.readouterr().out.split())) is not None


def test_without_a_gpu_launches_are_printed(emulator: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["segment_sum", "14000000", "128", "100000", "--field", "FoldTiles.threads_per_block=256"]) == 0
    printed = capsys.readouterr().out
    assert "*  chosen" in printed and "fold_tiles 13,728 × 128 threads, 0 B shared, ≥ 5 resident" in printed
    assert "fold_tiles 7,085 × 256 threads, 0 B shared, ≥ 5 resident; looks_back False → True; threads_per_block 256; " in printed
    assert "row_blocks 13672 → 7057" in printed
    assert "times need a GPU" in printed


def test_times_are_printed_beside_the_chosen_one(emulator: Kind) -> None:
    problem = problem_of("segment_sum", [300, 68, 7])
    _, others = tune.alternatives(problem, ["FoldTiles.threads_per_block=64,128"])
    times = iter((10.0, 20.0))

    def events(calls: Any, repeats: int) -> Any:
        each = next(times)
        return SimpleNamespace(median=each, low=each, high=each)

    table, wrong = tune.time_table(problem, tune.Measured(problem, np, events, 0, 1), others)
    columns = [list(column.cells) for column in table.columns]
    assert (
        wrong == 0
        and columns[0] == ["*", "", ""]
        and list(map(str, columns[1])) == ["chosen", *(f"FoldTiles.threads_per_block={n}" for n in (64, 128))]
    )
    assert columns[2] == ["10.00", "20.00", ""] and columns[5] == ["100.0%", "200.0%", ""] and str(columns[6][2]) == tune.SAME
