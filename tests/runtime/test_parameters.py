"""What kernels declare of their parameters, and launches that do not fit it."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.types import float64, int64, uint16

import numba_baracuda as nb
from numba_baracuda.core.op import NULL, Launch
from numba_baracuda.core.spec import Bits, Parameter, arrange
from numba_baracuda.emulator.emulated import Emulated
from numba_baracuda.runtime import jit
from numba_baracuda.runtime.parameters import Extents, Ptr, Scalar, Tuple, parameters_of, types_of


@jit.kernel
def declared(*, value: str, dims: int) -> Any:
    wide = float64

    def declared(x: Ptr[value], y: Ptr[wide], rows: int64, empty: Scalar[wide], shape: Extents[dims], cap: Tuple[value, 2]) -> None:
        y[0] = x[0]

    return declared


def test_annotations_are_the_declaration() -> None:
    kernel = declared(value="bf16", dims=3)
    assert kernel.types == (
        types.CPointer(uint16), types.CPointer(float64), int64, float64, types.UniTuple(int64, 3), types.UniTuple(uint16, 2),
    )  # fmt: skip
    names = [(each.name, each.type) for each in kernel.parameters]
    assert names == [("x", "*u16"), ("y", "*f64"), ("rows", "i64"), ("empty", "f64"), ("shape", "3xi64"), ("cap", "2xu16")]
    assert declared(value="bool", dims=1).parameters[0].type == "*u8"


def test_a_kernel_without_types_is_refused() -> None:
    def bare(x: Ptr["f32"], rows) -> None: ...  # noqa: F821

    def text(x: "Ptr[value]") -> None: ...  # noqa: F821

    def late(rows: int64, x: Ptr[float64]) -> None: ...

    with pytest.raises(TypeError, match=r"bare: rows declares no type, wants numba types as annotations, such as Ptr\[float32\] or int64"):
        types_of(bare)
    with pytest.raises(TypeError, match="text: x declares no type"):
        types_of(text)
    with pytest.raises(TypeError, match="late: x stands behind a scalar, wants pointers first"):
        parameters_of(late)


DECLARED = [Parameter("x", "*f32"), Parameter("counts", "*i64"), Parameter("rows", "i64"), Parameter("empty", "f32"), Parameter("shape", "2xi64")]
GIVEN = {"shape": (3, 4), "x": "input", "empty": 0.5, "rows": 7, "counts": "counts"}
ELEMENTS = {"input": "f32", "halves": "bf16", "counts": "i64", NULL: ""}


def test_arguments_are_bound_by_name() -> None:
    assert arrange("fold", DECLARED, GIVEN, ELEMENTS) == (("input", "counts"), (7, 0.5, (3, 4)))
    assert arrange("fold", DECLARED, GIVEN | {"counts": NULL}, ELEMENTS)[0] == ("input", NULL)
    assert arrange("fill", [Parameter("x", "*i16")], {"x": Bits("halves")}, ELEMENTS) == (("halves",), ())
    assert arrange("fold", [Parameter("x", "*u16")], {"x": "halves"}, ELEMENTS) == (("halves",), ())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"x": None}, r"fold: got no x, wants x: \*f32, counts: \*i64, rows: i64, empty: f32, shape: 2xi64"),
        ({"row": 3}, "fold: got unknown row, wants x"),
        ({"rows": None, "row": 3}, "fold: got no rows; unknown row, wants x"),
        ({"x": "counts"}, r"fold: x is 'counts' of i64, wants \*f32"),
        ({"x": "halves"}, r"fold: x is 'halves' of bf16, wants \*f32"),
        ({"x": "nowhere"}, r"fold: x is 'nowhere', wants \*f32"),
        ({"x": Bits("input")}, r"fold: x is 'input' of f32, wants \*f32"),
        ({"x": 4096}, r"fold: x is 4096, wants \*f32"),
        ({"rows": "input"}, "fold: rows is 'input' of f32, wants i64"),
        ({"rows": (1, 2)}, r"fold: rows is \(1, 2\), wants i64"),
        ({"rows": 1.5}, "fold: rows is 1.5, wants i64"),
        ({"empty": "input"}, "fold: empty is .input. of f32, wants f32"),
        ({"shape": 3}, "fold: shape is 3, wants 2xi64"),
        ({"shape": (1, 2, 3)}, r"fold: shape is \(1, 2, 3\), wants 2xi64"),
        ({"shape": (1, "input")}, r"fold: shape is \(1, 'input'\), wants 2xi64"),
    ],
)
def test_planted_mistakes_are_found(wrong: dict[str, Any], message: str) -> None:
    given = {name: value for name, value in (GIVEN | wrong).items() if value is not None}
    with pytest.raises(nb.InvalidProblem, match=message):
        arrange("fold", DECLARED, given, ELEMENTS)


@pytest.mark.parametrize("mistake", ["missing", "unknown", "element"])
def test_a_plan_is_not_bound_to_a_launch_with_a_mistake(mistake: str) -> None:
    """Before anything runs, and before anything is written."""
    descriptor = nb.SegmentDescriptor("segment_sum", 100, 4, 10)
    op = nb.OPS["segment_sum"]
    plan = nb.select(descriptor, device=-1)
    views = plan.views({"input": np.ones((100, 4), np.float32), "segment_ids": np.zeros(100, np.int32), "output": np.ones((10, 4), np.float32)})
    recipe = plan.bound(views).recipe
    elements = {"input": "f32", "segment_ids": "i32", "output": "f32", NULL: ""} | {slot.name: slot.element for slot in recipe.slots}
    first = next(step for step in recipe.steps if isinstance(step, Launch))
    Emulated(op, recipe, elements)
    wrong = dict(first.arguments)
    if mistake == "missing":
        del wrong["rows"]
    elif mistake == "unknown":
        wrong["row"] = 3
    else:
        wrong["input"] = "segment_ids"
    planted = dataclasses.replace(recipe, steps=(dataclasses.replace(first, arguments=wrong),))
    with pytest.raises(nb.InvalidProblem, match=f"{first.spec.kernel}: (got no rows|got unknown row|input is 'segment_ids' of i32)"):
        Emulated(op, planted, elements)


def test_declared_kernels_still_launch_on_arrays() -> None:
    """Numba leaves annotations alone."""
    kernel = declared(value="f64", dims=1)
    assert isinstance(kernel.dispatcher(64), cuda.dispatcher.CUDADispatcher) and kernel.dispatcher(64).py_func is kernel.py_func
