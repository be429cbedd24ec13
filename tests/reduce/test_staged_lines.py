"""Gradients of rows, or of few neighbouring columns, whose lines a block copies to shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from kinds import Kind
from reduce_cases import BACKWARD, check, function, kind_of, launches_of, operands, staging_lines, truth
from samples import name_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda.core.op import Launch, Layout, Op, contiguous
from numba_baracuda.plans.tuning import using
from numba_baracuda.reduce.policy import FoldAndBroadcastStagedLines

FOLDING = [op for op in BACKWARD if kind_of(op) in ("var", "std", "max", "min", "prod")]
#: (shape, axis, bytes of a block): one row of a block and several, of which the last block has fewer; lines shorter than a vector, and those of
#: which each begins elsewhere in one; few columns on several lines, on one, and more than threads
ROWS = [
    ((5, 3, 2, 45), (1, 3), 1),
    ((2, 3, 7, 41), (1, 3), 1500),
    ((3, 27, 3), (0, 2), 300),
    ((2, 9, 2, 17), (0, 3), 700),
    ((3, 300, 3), (0, 2), 9000),
]
#: the same where the lines of a few rows alternate in one range: of one slice and several, of which the last block has fewer; pieces shorter than a
#: vector and longer; one row alone, and rows of more elements than lanes take at a time
WOVEN = [
    ((9, 3, 5, 2), (1, 3), 200),
    ((7, 2, 3, 9), (1, 3), 600),
    ((2, 5, 3, 2, 11), (2, 4), 700),
    ((5, 31, 2, 13), (1, 3), 1),
    ((11, 2, 40, 3), (1, 3), 2000),
]
COLUMNS = [((5, 3, 9, 5), (0, 2), 500), ((7, 31, 3), 1, 800), ((2, 90, 2), 1, 1), ((3, 2, 4, 7, 6), (1, 3), 600), ((90, 9, 5), 1, 16000)]
EACH = pytest.mark.parametrize(("shape", "axis", "nbytes"), [*ROWS, *WOVEN, *COLUMNS])


def launches(name: str, shape: tuple[int, ...], axis: Any, element: str = "f32", **layouts: Layout) -> list[Launch]:
    """What serves contiguous operands on a GPU, unless others are given."""
    op = nb.OPS[f"reduce_{name}"]
    return launches_of(op, nb.ReduceBackwardDescriptor(op.kind, shape, axis, element), **layouts)


def is_staged(steps: list[Launch]) -> bool:
    return [step.spec.kernel for step in steps] == ["fold_and_broadcast_staged_lines"]


@pytest.mark.parametrize("op", FOLDING, ids=name_of)
@EACH
def test_values(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any, nbytes: int) -> None:
    with staging_lines(nbytes):
        check(kind, op, shape, axis)


@pytest.mark.parametrize("element", ["f16", "bf16", "f64"])
@pytest.mark.parametrize("op", FOLDING, ids=name_of)
@pytest.mark.parametrize(("shape", "axis", "nbytes"), [ROWS[1], ROWS[2], WOVEN[0], WOVEN[1], COLUMNS[0], COLUMNS[1]])
def test_elements(kind: Kind, op: Op, shape: tuple[int, ...], axis: Any, nbytes: int, element: str) -> None:
    with staging_lines(nbytes):
        check(kind, op, shape, axis, element)


@pytest.mark.parametrize(("shape", "axis", "nbytes"), WOVEN)
def test_small_rows_are_woven(shape: tuple[int, ...], axis: Any, nbytes: int) -> None:
    with staging_lines(nbytes):
        steps = launches("std_backward", (500 * shape[0], *shape[1:]), axis)
    assert is_staged(steps) and dict(steps[0].spec.constants)["woven"]
    assert steps[0].arguments["units"] == max(1, -(-nbytes // (4 * steps[0].arguments["lines"] * steps[0].arguments["stride"])))


@pytest.mark.parametrize("ties", ["all", "even"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 4, 5, 3), (0, 2)), ((3, 4, 21), (0, 2))])
def test_ties(kind: Kind, shape: tuple[int, ...], axis: Any, ties: str) -> None:
    op = nb.OPS["reduce_max_backward"]
    with staging_lines(200):
        check(kind, op, shape, axis, ties=ties)


@pytest.mark.parametrize("place", [1, 3])
def test_operands_that_begin_inside_a_vector(kind: Kind, place: int) -> None:
    op, shape, axis = nb.OPS["reduce_std_backward"], (3, 4, 5, 3), (0, 2)
    given = operands(op, shape, axis)
    x = kind.array(np.append(given["x"].ravel()[:place], given["x"]))[place:].reshape(shape)
    dx = kind.array(np.zeros(given["x"].size + place, np.float32))[place:].reshape(shape)
    with staging_lines(200):
        function(op)(kind.array(given["dy"]), x, kind.array(given["y"]), axis=axis, out=dx)
    assert_close(kind.numpy(dx), truth(op, given, shape, axis), "f32", op.name)


@pytest.mark.parametrize(
    ("name", "shape", "axis", "element", "constants"),
    [
        ("std", (24, 13752, 70, 5), (0, 2), "f32", {"inner": 5, "columns": 8, "lanes": 32, "copiers": 32, "alone": False, "flat": False}),
        ("prod", (2069, 3, 71, 415), (1, 3), "bf16", {"inner": 1, "columns": 8, "lanes": 32, "copiers": 256, "alone": False}),
        ("var", (71416, 284, 3), 1, "bf16", {"inner": 3, "flat": True, "lanes": 8}),
        ("std", (201, 2, 77, 2125), (1, 3), "bf16", {"inner": 1, "columns": 2, "lanes": 256}),
        ("prod", (8, 6327, 1804), (0, 2), "bf16", {"inner": 1, "columns": 1, "alone": True, "lanes": 256}),
        ("prod", (2, 137, 57176, 5), (0, 3), "f32", {"inner": 1, "columns": 256, "lanes": 1}),
        ("prod", (2, 12185, 1057, 2), (0, 3), "bf16", {"inner": 1, "columns": 256, "lanes": 1}),
        ("std", (31281, 2116, 2), 1, "f32", {"inner": 2, "columns": 2, "alone": False}),
        ("var", (2, 10748, 300, 28), (0, 2), "bf16", {"inner": 28, "columns": 32, "flat": False}),
        ("var", (30330, 2, 64, 10), (1, 3), "bf16", {"woven": True, "columns": 256, "lanes": 1}),
        ("std", (51279, 53, 3, 9), (1, 3), "f32", {"woven": True, "columns": 16, "lanes": 16}),
        ("std", (125239, 2, 14, 67), (1, 3), "bf16", {"woven": True, "columns": 128, "lanes": 2, "copiers": 256}),
        ("std", (23768, 27, 3, 87), (1, 3), "f32", {"woven": True, "columns": 4, "lanes": 32}),
        ("prod", (52000, 4, 300, 3), (1, 3), "bf16", {"woven": False}),
    ],
)
def test_what_is_staged(name: str, shape: tuple[int, ...], axis: Any, element: str, constants: dict[str, int]) -> None:
    steps = launches(f"{name}_backward", shape, axis, element)
    assert is_staged(steps)
    found = dict(steps[0].spec.constants)
    assert {field: found[field] for field in constants} == constants
    blocks, threads, shared = steps[0].config
    assert threads == 256 and shared + 8 * found["columns"] * (8 if element == "f64" else 4) <= 48 << 10
    across, units, rows = steps[0].arguments["across"], steps[0].arguments["units"], np.prod(steps[0].arguments["kept_shape"])
    assert blocks == rows // (across * steps[0].arguments["unit_rows"]) * -(-across // units)


@pytest.mark.parametrize(
    ("name", "shape", "axis", "element"),
    [
        ("std", (24, 13752, 140, 5), (0, 2), "f32"),  # too many elements for a block
        ("std", (24, 137, 70, 5), (0, 2), "f32"),  # too few blocks
        ("std", (240, 13752, 7, 5), (0, 2), "f32"),  # short lines
        ("std", (4, 13752, 70, 33), (0, 2), "f32"),  # many neighbouring columns
        ("var", (7, 172460, 173), (0, 2), "f32"),  # a warp holds a row
        ("prod", (71416, 284, 3), 1, "bf16"),  # few results want the fold
        ("prod", (2069, 3, 71, 416), (1, 3), "bf16"),  # whole vectors
        ("prod", (146899, 1245), 1, "bf16"),  # one line
        ("std", (40000, 9, 5, 101), (1, 3), "f32"),  # a warp holds a row that is woven with others
        ("logsumexp", (2069, 3, 71, 415), (1, 3), "bf16"),  # no fold
        ("var", (16584, 64, 9), 1, "f32"),  # columns of more than a sector
        ("var", (50000, 60, 28), 1, "bf16"),  # the same of halves, on one line
        ("std", (3, 84130, 17, 16), (0, 2), "f32"),  # columns that lanes hold
        ("var", (1 << 20, 40, 3), 1, "f64"),  # elements of 8 bytes
        ("std", (2376, 27, 60, 87), (1, 3), "f32"),  # lines of pieces at the ends
    ],
)
def test_what_is_not_staged(name: str, shape: tuple[int, ...], axis: Any, element: str) -> None:
    assert not is_staged(launches(f"{name}_backward", shape, axis, element))


def test_operands_that_lie_otherwise() -> None:
    shape, axis = (24, 13752, 70, 5), (0, 2)
    own = contiguous(shape)
    assert is_staged(launches("std_backward", shape, axis, x=Layout(shape, own.strides, 4), dx=Layout(shape, own.strides, 20)))
    assert not is_staged(launches("std_backward", shape, axis, x=Layout(shape, own.strides, 4)))
    padded = (4813200 + 4, *own.strides[1:])
    assert not is_staged(launches("std_backward", shape, axis, x=Layout(shape, padded)))
    assert is_staged(launches("std_backward", shape, axis, x=Layout(shape, padded), dx=Layout(shape, padded)))
    downwards = Layout(shape, (-own.strides[0], *own.strides[1:]))
    assert not is_staged(launches("std_backward", shape, axis, x=downwards, dx=downwards))
    with using(FoldAndBroadcastStagedLines, min_bytes=1 << 30):
        assert not is_staged(launches("std_backward", shape, axis))
