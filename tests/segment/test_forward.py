"""Forward ops: table × samples × truth."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import pytest
import references
import samples
from hypothesis import strategies as st
from kinds import Kind, lay
from references import BY_ROW, POSITIONS, stem
from samples import FORWARD, Sample, cases, check, name_of, represents, runs, takes_empty, tells, variants_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import InvalidProblem
from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.core.op import Op, Variant
from numba_baracuda.plans.tuning import using
from numba_baracuda.runtime import driver
from numba_baracuda.segment.carries_tiling import carries_launch, carries_shape
from numba_baracuda.segment.policy import FoldCarries, FoldTiles
from numba_baracuda.segment.tiling import GAP, GAP_WARPS, Tiling, vector_for

MANY = 1000  #: multiprocessors with which blocks are as small as they get

EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(FORWARD), ids=name_of)
EVERY_OP = pytest.mark.parametrize("op", FORWARD, ids=name_of)
#: for each algorithm one op, where what is tested is the algorithm's
EACH = pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(FORWARD) if represents(*pair)], ids=name_of)
#: the same among deterministic ones, and states of two and of three scalars
DETERMINISTIC = [pair for pair in variants_of(FORWARD, deterministic=True) if represents(*pair)]
WIDE_STATES = [pair for pair in variants_of(FORWARD, deterministic=True) if pair[0].name in ("segment_logsumexp", "segment_var", "segment_argmax")]


@pytest.mark.parametrize(("columns", "element"), [(1, "f32"), (37, "f32"), (36, "f64")])
@pytest.mark.parametrize(("op", "variant"), DETERMINISTIC, ids=name_of)
def test_sizes_around_tiles_and_blocks(kind: Kind, op: Op, variant: Variant, columns: int, element: str) -> None:
    """Runs of all lengths, across tiles and blocks."""
    vector = vector_for(4 if element == "f32" else 8, columns, (0, (columns, 1)))
    for length in (3, 40) if columns == 1 and element == "f32" else (3,):
        for rows in samples.boundaries(columns, vector, 1 if kind.emulated else driver.multiprocessors(0), length):
            segments = rows // length + (GAP if length == 3 else 1)
            sample = Sample(f"{rows} rows, {length} to a segment", rows, (columns,), segments, runs, element, {"f32": "i32", "f64": "i64"}[element])
            check(kind, op, variant, sample, samples.operands(op, sample), MANY if kind.emulated else 0)


@pytest.mark.parametrize(("op", "variant"), DETERMINISTIC + WIDE_STATES, ids=name_of)
def test_runs_across_many_blocks(emulator: Kind, op: Op, variant: Variant) -> None:
    """A run longer than the carries that a block combines, three that several warps do, beside short ones; and as many carries as full tiles."""
    columns, few = 37, {"threads_per_block": 64, "items_per_thread": 2}
    shape = Tiling(0, columns, 1, FoldTiles.items_per_thread, FoldTiles.threads_per_block)
    block = shape.groups * shape.tile
    width, lanes, share = carries_shape(FoldCarries(**few), 0, columns, 1)
    tile = carries_launch(1 << 20, columns, width, lanes, few["threads_per_block"], share)[1] // 2 * block
    long, several = tile + 3 * block, tile // 2 + 2 * block
    lengths = [5, long, 1, 2 * block + 3, 2, 4 * block - 3, several, several + 5, 1, several, 7]
    lengths.append(-sum(lengths) % tile)
    ids = np.repeat(np.arange(len(lengths)), lengths)
    sample = Sample("long runs", len(ids), (columns,), 12, lambda rng, rows, segments: ids)
    with using(FoldCarries, **few):
        check(emulator, op, variant, sample, samples.operands(op, sample), MANY)


EMPTIES = [None, 2.5, -np.inf, np.nan, "identity"]


VALUES = [op for op in FORWARD if takes_empty(op) and stem(op.name) not in POSITIONS]


@pytest.mark.parametrize(
    ("op", "variant", "empty"),
    [*cases(VALUES, EMPTIES, [None, np.nan, "identity"]), *cases([op for op in FORWARD if stem(op.name) in POSITIONS], [], [None, 7])],
    ids=name_of,
)
def test_empty_segments(kind: Kind, op: Op, variant: Variant, empty: Any) -> None:
    """In front, in the middle, at the end, in long gaps, and all of them."""
    ids = np.array([2, 2, 3, 5, 5, 5, 120])
    for sample in (Sample("holes", 7, (3,), 200, lambda rng, rows, segments: ids), Sample("nothing", 0, (3,), 70)):
        check(kind, op, variant, sample, samples.operands(op, sample), empty=empty)


@pytest.mark.parametrize("columns", [1, 5])
def test_long_gaps_are_shared_out(kind: Kind, columns: int) -> None:
    """Of so many segments a warp looks for several pieces of gaps, of which some are found, and the last warp for fewer."""
    segments = 2 * GAP * GAP_WARPS + 2 * GAP + 7
    ids = np.array([3, GAP, segments // 2, segments // 2 + 5 * GAP, segments - 3 * GAP])
    x = np.ones((len(ids), columns), np.float32)
    wanted = np.zeros((segments, columns), np.float32)
    wanted[ids] = 1
    out = kind.array(np.full_like(wanted, 7))
    nb.segment_sum(kind.array(x), kind.array(ids), segments, out=out)
    np.testing.assert_array_equal(kind.numpy(out), wanted)


@pytest.mark.parametrize(
    ("dtype", "columns", "row", "offset"), [(np.float32, 1, 1, 1), (np.float16, 3, 3, 5), (np.float32, 5, 5, 2), (np.float32, 5, 7, 0)]
)
def test_gaps_of_outputs_that_are_no_vectors(kind: Kind, dtype: type, columns: int, row: int, offset: int) -> None:
    """Outputs that do not begin at a multiple of 16 bytes, or whose rows lie apart: what lies between and around them stays as it is."""
    ids = np.repeat(np.array([2, 3, 9, 75, 76, 300, 1500, 1501]), 2)
    segments, x = 3000, np.ones((len(ids), columns), dtype)
    memory = kind.array(np.full(segments * row + 16, 7, dtype))
    out = memory[offset : offset + segments * row].reshape(segments, row)[:, :columns]
    nb.segment_sum(kind.array(x), kind.array(ids), segments, out=out)
    wanted = np.full(segments * row + 16, 7, dtype)
    view = wanted[offset : offset + segments * row].reshape(segments, row)[:, :columns]
    view[...] = 0
    view[ids] = 2
    np.testing.assert_array_equal(kind.numpy(memory), wanted)


@EVERY
def test_nan_and_infinities_stay_in_their_segment(kind: Kind, op: Op, variant: Variant) -> None:
    sample = Sample("special", 120, (3,), 12)
    given = samples.operands(op, sample)
    ids = given["segment_ids"]
    touched = {3: ((np.nan,), 0), 4: ((np.inf,), 1), 5: ((np.inf, -np.inf), 2), 6: ((-np.inf,), 0)}
    for segment, (special, column) in touched.items():
        rows = np.flatnonzero(ids == segment)
        given["input"][rows[1 : 1 + len(special)], column] = special
    given["input"][np.flatnonzero(ids == 7), 1] = -np.inf  # nothing else
    got = check(kind, op, variant, sample, given)
    calm = np.ones(got.shape, bool)
    segments = ids if stem(op.name) in BY_ROW else np.arange(12)
    for segment, column in ((3, 0), (4, 1), (5, 2), (6, 0), (7, 1)):
        calm[segments == segment, column] = False
    assert np.isfinite(got[calm]).all()


@EVERY
def test_negative_zeros(kind: Kind, op: Op, variant: Variant) -> None:
    sample = Sample("zeros", 40, (3,), 5)
    given = samples.operands(op, sample)
    given["input"][...] = np.where(np.arange(3) % 2, -0.0, 0.0)
    got = check(kind, op, variant, sample, given)
    assert (got == 0).all() == (stem(op.name) not in ("logsumexp", *BY_ROW, *POSITIONS))


@EVERY_OP
@pytest.mark.parametrize("deterministic", [True, False], ids=["deterministic", "any"])
def test_the_function(any_kind: Kind, op: Op, deterministic: bool) -> None:
    """The one-call form: results of the caller's kind, in a new array or in ``out``."""
    sample = Sample("function", 90, (3, 1), 20, whole=True)
    given = samples.operands(op, sample)
    on_device = [lay(any_kind, "contiguous", array) for array in given.values()]
    made = samples.call(op, on_device, sample.segments, deterministic=deterministic)
    assert any_kind.owns(made)
    shape = (sample.rows if stem(op.name) in BY_ROW else sample.segments, 3, 1)
    out = lay(any_kind, "contiguous", np.full(shape, 99, samples.output_type(op, sample)))
    assert samples.call(op, on_device, sample.segments, deterministic=deterministic, out=out) is out
    assert_close(any_kind.numpy(made), references.truth(op.name, given, sample.segments), sample.element, op.name)
    np.testing.assert_array_equal(any_kind.numpy(out), any_kind.numpy(made))


@EVERY_OP
@pytest.mark.parametrize("number", [np.int32(4), np.int64(4)], ids=["int32", "int64"])
def test_numbers_of_numpy(kind: Kind, op: Op, number: Any) -> None:
    x, ids = kind.array(np.ones((4, 3), np.float32)), kind.array(np.array([0, 1, 1, 3], np.int32))
    of_numpy, of_python = ({"empty": np.float32(7)}, {"empty": 7.0}) if takes_empty(op) else ({}, {})
    got = kind.numpy(samples.call(op, [x, ids], number, **of_numpy))
    np.testing.assert_array_equal(got, kind.numpy(samples.call(op, [x, ids], 4, **of_python)))


def faulty(kind: Kind, op: Op, ids: Any, index: Any = np.int32, segments: int = 10, trailing: tuple[int, ...] = (3,), **keywords: Any) -> str:
    """The message with which ``check_ids`` refuses these ids; "" if it does not."""
    given = [kind.array(np.ones((len(ids), *trailing), np.float32)), kind.array(np.array(ids, index))]
    try:
        samples.call(op, given, segments, check_ids=True, **keywords)
    except InvalidProblem as problem:
        return str(problem)
    return ""


@pytest.mark.parametrize(
    ("op", "index"), [(op, index) for op in FORWARD for index in (np.int32, np.int64) if index is np.int32 or stem(op.name) == "sum"], ids=name_of
)
def test_check_ids_names_the_first_position(kind: Kind, op: Op, index: Any) -> None:
    assert "segment_ids[2] is outside [0, 10)" in faulty(kind, op, [0, 1, 10, 10, 11], index)
    assert "segment_ids[0] is outside [0, 10)" in faulty(kind, op, [-1, 1, 2, 10], index)
    assert faulty(kind, op, [0, 0, 3, 9], index) == ""
    assert faulty(kind, op, [], index) == ""
    ids = np.sort(np.arange(600) % 10)
    assert faulty(kind, op, ids, index) == ""
    ids[-1] = 1 << 30
    assert "segment_ids[599]" in faulty(kind, op, ids, index)


@EVERY_OP
def test_check_ids_names_the_first_descent(kind: Kind, op: Op) -> None:
    message = faulty(kind, op, [0, 4, 4, 3, 9, 1])
    assert ("segment_ids[3] is less than segment_ids[2]" in message) == op.traits["ordered"]
    assert message.startswith(op.name) == op.traits["ordered"]


@EVERY_OP
def test_check_ids_where_there_is_nothing_to_write(kind: Kind, op: Op) -> None:
    assert "segment_ids[0] is outside [0, 0)" in faulty(kind, op, [0, 1], segments=0)
    assert "segment_ids[1] is outside [0, 10)" in faulty(kind, op, [0, 10], trailing=(0,))


def test_check_ids_sees_all_of_an_int64(kind: Kind) -> None:
    for op in FORWARD:
        assert "segment_ids[1]" in faulty(kind, op, [0, (1 << 32) + 1], np.int64)


@pytest.mark.parametrize(
    ("op", "seed"),
    [(op, seed) for op in FORWARD if op.traits["ordered"] for seed in range(4) if stem(op.name) in ("sum", "softmax") or not seed % 2],
    ids=name_of,
)
def test_sorted_ops_given_unsorted_ids_stay_inside(kind: Kind, op: Op, seed: int) -> None:
    """The values are anybody's guess, and some may never be written, but nothing around the output is, and no input."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((400, 3)).astype(np.float32)
    ids = rng.integers(-50, 400, 400).astype([np.int32, np.int64][seed % 2])
    output_type = samples.output_type(op, Sample("around", 400, (3,), 400))
    whole, given = kind.array(np.full((408, 3), 99, output_type)), [kind.array(x), kind.array(ids)]
    samples.call(op, given, 400, out=whole[4:-4])
    around = kind.numpy(whole)
    assert (around[:4] == 99).all() and (around[-4:] == 99).all()
    for array, before in zip(given, (x, ids), strict=True):
        np.testing.assert_array_equal(kind.numpy(array), before)


@st.composite
def problems(draw: st.DrawFn, varied: bool) -> tuple[Sample, np.ndarray]:
    rows, segments = draw(st.integers(0, 70)), draw(st.integers(0, 150))
    ids = np.array(draw(st.lists(st.integers(-3, segments + 3), min_size=rows, max_size=rows)), np.int64)
    trailing = draw(st.sampled_from([(3,), ()][: 1 + varied]))
    element, index = draw(st.sampled_from([("f32", "i32"), ("f64", "i64")][: 1 + varied]))  # few kernels, as each costs time once
    return Sample("drawn", rows, trailing, segments, element=element, index=index), ids


def _any_problem(kind: Kind, op: Op, variant: Variant, problem: tuple[Sample, np.ndarray]) -> None:
    sample, ids = problem
    given = samples.operands(op, sample)
    given["segment_ids"][...] = np.sort(ids) if op.traits["ordered"] else ids
    check(kind, op, variant, sample, given)


@EACH
@hypothesis.given(problem=problems(varied=True))
def test_any_problem(kind: Kind, op: Op, variant: Variant, problem: tuple[Sample, np.ndarray]) -> None:
    _any_problem(kind, op, variant, problem)


@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(FORWARD) if tells(*pair) and not represents(*pair)], ids=name_of)
@hypothesis.given(problem=problems(varied=False))
@hypothesis.settings(max_examples=5)
def test_any_problem_of_other_ops(kind: Kind, op: Op, variant: Variant, problem: tuple[Sample, np.ndarray]) -> None:
    _any_problem(kind, op, variant, problem)


@pytest.mark.parametrize("columns", [3, 5, 16])
def test_variances_of_few_rows(kind: Kind, columns: int) -> None:
    """Deviations are summed about elements of their own segment: an error is a share of their squares, even where the first element lies apart."""
    rng = np.random.default_rng(columns)
    counts = rng.integers(2, 40, 60)
    ids = np.repeat(np.arange(60), counts)
    x = rng.standard_normal((len(ids), columns)).astype(np.float32)
    x[np.cumsum(counts) - counts] += rng.choice([0, 3, -8], (60, 1)).astype(np.float32)
    got = kind.numpy(nb.segment_var(kind.array(x), kind.array(ids), 60))
    apart = x - np.stack([x[ids == s].mean(0, dtype=np.float64) for s in range(60)])[ids]
    right = np.stack([(apart[ids == s] ** 2).sum(0) for s in range(60)]) / (counts - 1)[:, None]
    allowed = 2 * BY_NAME["f32"].tolerance(counts)[:, None] * right
    assert (abs(got - right) <= allowed).all(), (abs(got - right) / allowed).max()
