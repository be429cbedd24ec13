"""Gradients: table × samples × truth."""

from __future__ import annotations

import numpy as np
import pytest
import references
import samples
from kinds import Kind, lay
from references import stem
from samples import BACKWARD, OPS, Sample, check, name_of, variants_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import InvalidProblem
from numba_baracuda.core.dtypes import numpy_dtype
from numba_baracuda.core.op import Op, Variant
from numba_baracuda.segment.policy import BroadcastToRows

EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(BACKWARD), ids=name_of)
EVERY_OP = pytest.mark.parametrize("op", BACKWARD, ids=name_of)


def suits(op: Op, given: dict[str, np.ndarray], sample: Sample) -> dict[str, np.ndarray]:
    """The inputs with the output saved anew for the values and ids that they hold now."""
    if "output" in given and "input" in given:
        given["output"] = samples.saved(op, given["input"], given["segment_ids"], sample)
    return given


#: gradients that are the same in any order of rows, so that the sorted ops have them right for unsorted ids, too
UNORDERED = ("sum", "logsumexp", "norm2")


def shuffled(op: Op) -> tuple[Sample, dict[str, np.ndarray]]:
    """A problem whose ids are in no order."""
    sample = Sample("shuffled", 90, (3,), 20)
    given = samples.operands(op, sample)
    given["segment_ids"][...] = np.random.default_rng(1).permutation(given["segment_ids"])
    return sample, suits(op, given, sample)


def needs_order(op: Op) -> bool:
    return op.traits["ordered"] and stem(op.name) not in UNORDERED


@pytest.mark.parametrize(("op", "variant"), [each for each in variants_of(BACKWARD) if not needs_order(each[0])], ids=name_of)
def test_gradients_that_need_no_order_of_ids(kind: Kind, op: Op, variant: Variant) -> None:
    sample, given = shuffled(op)
    check(kind, op, variant, sample, given)


@pytest.mark.parametrize(("op", "variant"), [each for each in variants_of(BACKWARD) if needs_order(each[0])], ids=name_of)
def test_sorted_gradients_of_unsorted_ids_stay_inside(kind: Kind, op: Op, variant: Variant) -> None:
    """The values are anybody's guess, but nothing around the output is written, and no input."""
    sample, given = shuffled(op)
    arrays, whole = {name: kind.array(array) for name, array in given.items()}, kind.array(np.full((98, 3), 99, np.float32))
    samples.plan_of(op, variant, samples.descriptor(op, sample)).run(**arrays, **{op.operands[-1].name: whole[4:-4]})
    around = kind.numpy(whole)
    assert (around[:4] == 99).all() and (around[-4:] == 99).all()
    for name, array in given.items():
        np.testing.assert_array_equal(kind.numpy(arrays[name]), array, err_msg=f"{name} was written")


@EVERY
def test_special_values_reach_only_their_segment(kind: Kind, op: Op, variant: Variant) -> None:
    """NaN, infinities and the sign of zero of d_output come through."""
    sample = Sample("special", 120, (3,), 12, whole=True)
    given = samples.operands(op, sample)
    ids, upstream = given["segment_ids"], given["d_output"]
    places = {3: (0, np.nan), 4: (1, np.inf), 5: (2, -np.inf)}
    for segment, (column, value) in places.items():
        rows = np.flatnonzero(ids == segment)[1] if len(upstream) == len(ids) else segment
        upstream[rows, column] = value
    upstream[ids == 6 if len(upstream) == len(ids) else 6] = -0.0
    got = check(kind, op, variant, sample, given)
    calm = np.ones(got.shape, bool)
    for segment, (column, _) in places.items():
        calm[ids == segment, column] = False
    assert np.isfinite(got[calm]).all() and not np.isfinite(got[~calm]).all()
    if stem(op.name) in ("sum", "mean"):
        assert np.signbit(got[ids == 6]).all()


def lengths_of(*lengths: int) -> samples.Ids:
    """Runs of these lengths, of every second id; the first run is outside, and so is the last."""
    return lambda rng, rows, segments: np.repeat(2 * np.arange(len(lengths)) - 1, lengths)


@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", ["segment_max_backward", "segment_min_backward"])
@pytest.mark.parametrize("lengths", [(1, 1, 2, 31, 33, 128, 1, 300, 1, 257, 3), (1, 1990, 1), (40, 9000, 600, 700, 40)], ids=str)
def test_few_rows_of_long_runs_get_something(kind: Kind, lengths: tuple[int, ...], op: str, element: str) -> None:
    """Runs within a tile and across tiles, of values many of which tie; every second segment is empty."""
    sample = Sample(f"runs {lengths}", sum(lengths), (), 2 * len(lengths) - 4, lengths_of(*lengths), element=element)
    assert 4 * sample.rows >= BroadcastToRows.winner_bytes * sample.segments
    check(kind, OPS[op], OPS[op].variants[0], sample, samples.operands(OPS[op], sample))


@pytest.mark.parametrize(("op", "variant"), [each for each in variants_of(list(OPS.values())) if each[1].name == "broadcast"], ids=name_of)
def test_blocks_take_turns(kind: Kind, op: Op, variant: Variant) -> None:
    """More rows than all blocks take in one turn, the last turn a part."""
    rows = 500 if kind.emulated else 40_100
    sample = Sample("turns", rows, (128,), rows // 25, samples.outside)
    check(kind, op, variant, sample, samples.operands(op, sample))


@EVERY_OP
def test_the_function(any_kind: Kind, op: Op) -> None:
    sample = Sample("function", 90, (3, 1), 20, whole=True)
    given = samples.operands(op, sample)
    on_device = [lay(any_kind, "contiguous", array) for array in given.values()]
    made = samples.call(op, on_device, sample.segments)
    assert any_kind.owns(made)
    out = lay(any_kind, "contiguous", np.full((sample.rows, 3, 1), 99, np.float32))
    assert samples.call(op, on_device, sample.segments, out=out) is out
    assert_close(any_kind.numpy(made), references.truth(op.name, given, sample.segments), sample.element, op.name)
    np.testing.assert_array_equal(any_kind.numpy(out), any_kind.numpy(made))


@pytest.mark.parametrize("segments", [1, 13])
@pytest.mark.parametrize("behind", [0, 1])
@pytest.mark.parametrize("element", ["f32", "f64", "f16"])
def test_one_zero_among_products_is_found(kind: Kind, element: str, behind: int, segments: int) -> None:
    """By loads of whole vectors, whose last one is not whole, or of single elements: of fewer than a vector, or ``behind`` a multiple of 16 bytes."""
    columns = 3
    ids, x = np.repeat(np.arange(segments, dtype=np.int32), 2), np.full((2 * segments, columns), 2, numpy_dtype(element))
    for place in (*range(0, segments * columns, 11), *range(max(segments * columns - 8, 0), segments * columns)):
        given, row = x.copy(), place // columns
        given[2 * row, place % columns] = 0
        products = given[::2] * given[1::2]
        y = kind.array(np.concatenate([products.ravel()[:behind], products.ravel()]))[behind:].reshape(segments, columns)
        got = nb.segment_prod_backward(kind.array(np.ones_like(products)), kind.array(given), y, kind.array(ids))
        wanted = np.full_like(x, 2)
        wanted[2 * row + 1, place % columns] = 0
        np.testing.assert_array_equal(kind.numpy(got), wanted)


@EVERY_OP
def test_check_ids(kind: Kind, op: Op) -> None:
    sample = Sample("checked", 6, (3,), 5, whole=True)
    given = samples.operands(op, sample)

    def refusal(ids: list[int]) -> str:
        given["segment_ids"][...] = ids
        try:
            samples.call(op, [kind.array(array) for array in given.values()], 5, check_ids=True)
        except InvalidProblem as problem:
            return str(problem)
        return ""

    assert refusal([0, 1, 1, 2, 4, 4]) == ""
    assert "segment_ids[4] is outside [0, 5)" in refusal([0, 1, 1, 2, 5, 6])
    assert ("segment_ids[2] is less than segment_ids[1]" in refusal([0, 1, 0, 2, 3, 1])) == op.traits["ordered"]
