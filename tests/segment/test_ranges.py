"""The fold by ranges of ids where it has several tiles, parts and ranges: more rows than the problems of all ops have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import samples
from kinds import Kind
from references import truth
from samples import OPS, Sample
from tolerance import assert_close

from numba_baracuda import SegmentDescriptor
from numba_baracuda.core.op import Launch, Op, Sort, Target, Variant
from numba_baracuda.segment.descriptor import contiguous
from numba_baracuda.segment.tiling import PART_TILES, RANGE, RANGE_BITS, RANGE_TILE

PART = PART_TILES * RANGE_TILE
H200 = Target((9, 0), 132)


def variant_of(op: Op) -> Variant:
    return next(variant for variant in op.variants if variant.name == "ragged_ranges")


def launch(recipe: Any, kernel: str) -> Launch:
    return next(step for step in recipe.steps if isinstance(step, Launch) and f":{kernel}" in step.spec.factory)


def recipe_of(op: Op, described: SegmentDescriptor, address: int = 0) -> Any:
    return variant_of(op).recipe(op, described, {operand.name: contiguous(operand, described, address) for operand in op.operands}, H200)


def one_range(which: int) -> samples.Ids:
    """Three quarters of the rows in one range, which so has several parts, the others anywhere and outside."""

    def ids(rng: np.random.Generator, rows: int, segments: int) -> np.ndarray:
        crowd = rng.integers(which * RANGE, min((which + 1) * RANGE, segments), rows)
        return np.where(rng.random(rows) < 0.75, crowd, rng.integers(-9, segments + 9, rows))

    return ids


@pytest.mark.parametrize(
    ("name", "sample"),
    [
        ("unsorted_segment_sum", Sample("several tiles", 2 * RANGE_TILE + 5, (3,), 700)),
        ("unsorted_segment_sum", Sample("the last range is full", RANGE_TILE + 1, (4,), 2 * RANGE, samples.outside)),
        ("unsorted_segment_sum", Sample("the last range has one segment", RANGE_TILE - 1, (1,), 2 * RANGE + 1, samples.outside)),
        ("unsorted_segment_mean", Sample("several parts of one range", 2 * PART + 77, (1,), 3 * RANGE, one_range(1))),
        ("unsorted_segment_sum", Sample("several parts of the last range", PART + 900, (2,), RANGE + 40, one_range(1), "f16")),
        ("unsorted_segment_mean", Sample("several parts of all there are", PART + 900, (2,), RANGE, samples.skewed)),
        ("unsorted_segment_sum", Sample("one segment in a tile", PART + RANGE_TILE, (4,), 600, samples.all_are(77))),
        ("unsorted_segment_sum", Sample("the greatest and the least ids", 2 * RANGE_TILE, (3,), 2 * RANGE, samples.limits)),
        (
            "unsorted_segment_mean",
            Sample("int64 ids far outside among ranges", RANGE_TILE + 9, (3,), 2 * RANGE - 7, samples.far_outside, "f32", "i64"),
        ),
        ("unsorted_segment_sum", Sample("rows moved along with such ids", RANGE_TILE, (1,), 3 * RANGE, samples.limits)),
        ("unsorted_segment_sum", Sample("int64 ids far outside", RANGE_TILE, (2,), 40, samples.far_outside, "f64", "i64")),
        ("unsorted_segment_logsumexp", Sample("states of two scalars", PART + 300, (1,), 700, one_range(0))),
        ("unsorted_segment_max", Sample("whole numbers of i64", 3000, (5,), 1100, samples.outside, "i64", whole=True)),
    ],
    ids=samples.name_of,
)
def test_folds(kind: Kind, name: str, sample: Sample) -> None:
    op = OPS[name]
    samples.check(kind, op, variant_of(op), sample, samples.operands(op, sample))


@pytest.mark.parametrize("seed", [1, 2])
def test_tiles_and_parts_are_joined_in_order_under_every_schedule(kind: Kind, seed: int) -> None:
    """The race detector walks two tiles of which a segment holds half, so that runs cross groups."""
    op = OPS["unsorted_segment_sum"]
    sample = Sample("race", RANGE_TILE + 600, (1,), RANGE + 2, samples.around_a_long_one)
    given = samples.operands(op, sample)
    plan = samples.plan_of(op, variant_of(op), samples.descriptor(op, sample))
    got = samples.run(kind, plan, given, seed)
    assert_close(got, truth(op.name, given, sample.segments), sample.element, op.name)
    assert got.tobytes() == samples.run(kind, plan, given).tobytes()


def test_empty_segments_of_several_parts_get_what_is_asked_for(kind: Kind) -> None:
    op = OPS["unsorted_segment_sum"]
    sample = Sample("gaps", PART + 10, (1,), 90, lambda rng, rows, segments: 2 * rng.integers(0, segments // 2, rows))
    given = samples.operands(op, sample)
    got = samples.check(kind, op, variant_of(op), sample, given, empty=-7.0)
    assert np.all(got[1::2] == -7)


@pytest.mark.parametrize(("index", "address", "sorted_by"), [("i32", 0, "segment_ids"), ("i32", 4, "keys"), ("i64", 0, "keys")])
def test_little_is_sorted(index: str, address: int, sorted_by: str) -> None:
    """Bits within a range are left out, ids are keys themselves where they lie as the sort takes them, and of a single range nothing is sorted."""
    op = OPS["unsorted_segment_sum"]

    def sorts(segments: int) -> list[tuple[str, int, int]]:
        steps = recipe_of(op, SegmentDescriptor(op.name, 1 << 24, 16, segments, index=index), address).steps
        return [(step.keys, step.first_bit, step.bits) for step in steps if isinstance(step, Sort)]

    assert sorts(1 << 20) == [(sorted_by, RANGE_BITS, 20)]
    assert sorts((1 << 20) + 1) == [(sorted_by, RANGE_BITS, 21)]
    assert not sorts(RANGE)


def test_blocks_have_room_for_the_states() -> None:
    """As many columns as fit are taken, one more is refused, and no launch asks for more shared memory than a block may have."""
    op = OPS["unsorted_segment_sum"]
    widest = 32
    assert variant_of(op).refuses(op, SegmentDescriptor(op.name, 1 << 24, widest, 1 << 20)) is None
    assert "narrow rows" in str(variant_of(op).refuses(op, SegmentDescriptor(op.name, 1 << 24, widest + 1, 1 << 20)))
    for columns in (1, 3, 16, 31, widest):
        fold = launch(recipe_of(op, SegmentDescriptor(op.name, 1 << 24, columns, 1 << 20)), "fold_ranges")
        assert fold.config[2] <= 100 << 10
    assert "32 bits" in str(variant_of(op).refuses(op, SegmentDescriptor(op.name, 1 << 31, 1, 1 << 20)))
