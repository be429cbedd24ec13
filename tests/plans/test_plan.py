"""Plans: choice, identity, workspace, operands, threads."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
import references
import samples
from hypothesis import strategies as st
from kinds import Kind
from samples import OPS, Sample, name_of, variants_of
from tolerance import assert_close

import numba_baracuda as nb
from numba_baracuda import PlanPreference, SegmentDescriptor
from numba_baracuda.arrays import allocation, arrays, stream_scratch
from numba_baracuda.core.dtypes import BY_NAME, numpy_dtype
from numba_baracuda.core.op import Layout, Op, Sort, Target, Variant
from numba_baracuda.plans import binding, frames
from numba_baracuda.plans import plan as plans
from numba_baracuda.runtime import radix

EVERY = pytest.mark.parametrize(("op", "variant"), variants_of(list(OPS.values())), ids=name_of)
EVERY_OP = pytest.mark.parametrize("op", list(OPS.values()), ids=name_of)
#: enough rows for several blocks, hence for every slot of a workspace
LARGE = Sample("large", 150, (36,), 60, samples.runs)


def described(name: str = "segment_sum", rows: int = 6, columns: int = 4, segments: int = 3, **options: Any) -> SegmentDescriptor:
    return SegmentDescriptor(name, rows, columns, segments, **options)


def operands_for(kind: Kind, made: plans.Plan, sample: Sample) -> dict[str, Any]:
    given = {name: kind.array(array) for name, array in samples.operands(made.op, sample).items()}
    output = made.op.operands[-1]
    shape = (getattr(made.descriptor, output.axes[0]), *sample.trailing)
    return {**given, output.name: kind.poisoned(shape, samples.output_type(made.op, sample))}


# ---------------------------------------------------------------- select


def test_the_same_arguments_give_the_same_plan() -> None:
    assert nb.select(described()) is nb.select(described())
    assert nb.Plan.select(described()) is nb.select(described())
    assert nb.select(described(element="f32")) is nb.select(described(element=nb.ElementKind.F32)) is nb.select(described(element="float32"))
    assert nb.select(described(element=np.float64)) is nb.select(described(element="f64"))
    assert nb.select(described(), preference=PlanPreference()) is nb.select(described())
    assert nb.select(described("segment_sum")) is nb.select(described(nb.SegmentKind.SEGMENT_SUM))
    assert nb.select(described(rows=np.int64(6))) is nb.select(described())
    assert nb.select(described(rows=7)) is not nb.select(described())
    assert nb.select(described(), PlanPreference(deterministic=False)) is not nb.select(described())


def test_functions_use_the_plans_of_select(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    select = plans.select
    monkeypatch.setattr(frames, "bounds", {})  # with many in it, another would wait to be met again
    monkeypatch.setattr(plans, "select", lambda *arguments, **keywords: asked.append(arguments[0]) or select(*arguments, **keywords))
    x, ids = kind.array(np.ones((5, 3, 7), np.float32)), kind.array(np.zeros(5, np.int64))
    for _ in range(3):
        nb.segment_mean(x, ids, 11)
    assert asked == [SegmentDescriptor("segment_mean", 5, 21, 11, "f32", "i64")]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rows": -1, "element": "u8"}, nb.InvalidProblem, "num_inputs is -1, wants a whole number, 0 or more"),
        ({"columns": -1}, nb.InvalidProblem, "embedding_dim is -1"),
        ({"segments": -5}, nb.InvalidProblem, "num_segments is -5"),
        ({"segments": 3.0}, nb.InvalidProblem, "num_segments is 3.0"),
        ({"segments": True}, nb.InvalidProblem, "num_segments is True"),
        ({"element": "u8", "index": "f32"}, nb.Unsupported, f"element is u8, wants one of {', '.join(OPS['segment_sum'].elements)}"),
        ({"name": "segment_mean", "element": "i32"}, nb.Unsupported, f"element is i32, wants one of {', '.join(OPS['segment_mean'].elements)}"),
        ({"name": "segment_sum_backward", "element": "i64"}, nb.Unsupported, "^segment_sum_backward: element is i64"),
        ({"element": "bool"}, nb.Unsupported, "element is bool"),
        ({"index": "u8"}, nb.Unsupported, "index is u8, wants one of i32, i64"),
        ({"empty": "nothing"}, nb.InvalidProblem, "empty is 'nothing', wants a number, 'identity' or None"),
        ({"empty": 1e300}, nb.InvalidProblem, "empty is 1e\\+300, wants a number that f32 holds"),
        ({"element": "f16", "empty": 65520.0}, nb.InvalidProblem, "empty is 65520.0, wants a number that f16 holds"),
        ({"element": "i32", "empty": 1 << 31}, nb.InvalidProblem, "empty is 2147483648, wants a number that i32 holds"),
        ({"element": "i32", "empty": 0.5}, nb.InvalidProblem, "empty is 0.5, wants a number that i32 holds"),
        ({"element": "i64", "empty": np.nan}, nb.InvalidProblem, "empty is nan, wants a number that i64 holds"),
        ({"name": "segment_var", "correction": -1}, nb.InvalidProblem, "^segment_var: correction is -1, wants a finite number, 0 or more"),
        ({"name": "segment_std_backward", "correction": "1"}, nb.InvalidProblem, "^segment_std_backward: correction is '1', wants a finite number"),
        ({"name": "segment_max_backward", "ties": "last"}, nb.InvalidProblem, "^segment_max_backward: ties is 'last', wants"),
        ({"name": "segment_argmax", "result": "f32"}, nb.Unsupported, "^segment_argmax: the dtype of the result is f32, wants one of i64, i32"),
        ({"result": "f32"}, nb.Unsupported, "^segment_sum: the dtype of the result is f32, wants none"),
        ({"name": "segment_argmax", "rows": 0x7F800000}, nb.Unsupported, "wants fewer than 2139095040, the rows that f32 and i64 tell apart"),
        ({"name": "segment_argmin", "element": "f64", "result": "i32", "rows": 1 << 31}, nb.Unsupported, "wants fewer than 2147483647, the rows"),
        ({"name": "segment_argmax", "empty": "identity"}, nb.InvalidProblem, "empty is 'identity', wants a number or None"),
        ({"name": "segment_argmax", "empty": 2.5}, nb.InvalidProblem, "empty is 2.5, wants a number that i64 holds"),
        ({"indexed": "maybe"}, nb.InvalidProblem, "^segment_sum: indexed is 'maybe', wants"),
        ({"name": "segment_summ"}, nb.Unsupported, "got 'segment_summ', .* did you mean segment_sum or"),
        ({"name": "xyzzy"}, nb.Unsupported, "wants one of the \\d+ in numba_baracuda.OPS$"),
        ({"name": None}, nb.Unsupported, "op: got None"),
        ({"name": nb.SegmentKind.SEGMENT_SUM_BACKWARD, "rows": -2}, nb.InvalidProblem, "^segment_sum_backward: num_inputs is -2"),
    ],
)
def test_select_refuses(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    """In the order extents, element, index, as where two things are wrong at once."""
    with pytest.raises(error, match=message):
        nb.select(described(**changes))


def test_a_descriptor_refuses_elements_nobody_knows() -> None:
    for unknown in ("float31", None, 3.5, object()):
        with pytest.raises(nb.InvalidProblem, match=r"element: got .*, wants one of"):
            described(element=unknown)
    for kind in (nb.ElementKind.F32_STRICT, nb.ElementKind.FP8_E4M3, "Complex64"):
        with pytest.raises(nb.Unsupported, match="no kernel holds"):
            described(element=kind)


# ---------------------------------------------------------------- preference


def test_preference_for_deterministic_variants() -> None:
    for op in OPS.values():
        problem = described(op.name)
        able = [variant for variant in op.variants if not variant.refuses(op, problem)]
        admitted = sorted(able, key=lambda variant: variant.time(op, problem))
        assert nb.select(described(op.name)).variant == next(variant for variant in admitted if variant.deterministic)
        assert nb.select(described(op.name), PlanPreference(deterministic=False)).variant == admitted[0]


def test_preference_for_little_workspace() -> None:
    problem = described("unsorted_segment_sum", 2_000_000, 128, 100_000)
    needed = nb.select(problem).workspace_size
    assert needed > 0
    assert nb.select(problem, PlanPreference(max_workspace_bytes=needed)).workspace_size == needed
    with pytest.raises(nb.Unsupported, match=rf"ragged_permuted needs a workspace of {needed} bytes, more than {needed - 1}"):
        nb.select(problem, PlanPreference(max_workspace_bytes=needed - 1))
    with pytest.raises(nb.Unsupported, match=r"atomic is not deterministic; .*; ragged_permuted needs a workspace of"):
        nb.select(problem, PlanPreference(max_workspace_bytes=0))
    assert nb.select(problem, PlanPreference(max_workspace_bytes=0, deterministic=False)).variant.name == "atomic"


def test_preference_for_a_backend() -> None:
    for backend in ("BESPOKE", "bespoke", nb.BackendKind.BESPOKE):
        assert nb.select(described(), PlanPreference(prefer_backend=backend)).sku.backend == nb.BackendKind.BESPOKE
    with pytest.raises(nb.Unsupported, match="no kernel of backend CUBLAS"):
        nb.select(described(), PlanPreference(prefer_backend="cublas"))
    with pytest.raises(nb.InvalidProblem, match="BackendKind: got 'nobody'"):
        nb.select(described(), PlanPreference(prefer_backend="nobody"))


def test_preference_against_kernels_for_one_architecture() -> None:
    assert nb.select(described(), PlanPreference(allow_sm90a=False)).sku == nb.select(described()).sku
    assert nb.select(described()).sku.arch != nb.ArchSku.SM90A


# ---------------------------------------------------------------- identity


def test_skus_are_unique() -> None:
    skus = {}
    for op, variant in [(row, each) for row in OPS.values() for each in row.variants]:
        for element, index in itertools.product(op.elements, op.indices):
            for capability in ((8, 0), (8, 9), (9, 0), (10, 0), (12, 0)):
                made = plans.Plan(op, described(op.name, element=element, index=index), variant, Target(capability, 132))
                skus[made.sku] = made
                assert made.sku == plans.Plan(op, described(op.name, 99, element=element, index=index), variant, Target(capability, 7)).sku
    assert len(skus) == 5 * sum(len(op.variants) * len(op.elements) * len(op.indices) for op in OPS.values())


def test_a_sku_tells_the_dtype_of_a_result() -> None:
    skus = {result: nb.select(described("segment_argmax", result=result)).sku for result in ("", "i64", "i32")}
    assert skus[""] == skus["i64"] != skus["i32"] and skus["i32"].variant == "ragged_sorted:i32"


@EVERY
def test_a_sku_says_what_runs(op: Op, variant: Variant) -> None:
    sku = samples.plan_of(op, variant, described(op.name, element="f64", index="i64")).sku
    assert (sku.category, sku.op, sku.variant) == (nb.OpCategory.SEGMENT_OPS, int(nb.SegmentKind(op.name)), variant.name)
    assert (sku.element, sku.aux_element, sku.backend) == (nb.ElementKind.F64, nb.ElementKind.I64, nb.BackendKind.BESPOKE)
    assert (sku.arch == nb.ArchSku.EMULATOR) == arrays.emulating()
    assert sku.layout is sku.epilogue is None
    with pytest.raises(dataclasses.FrozenInstanceError):
        sku.op = 3


#: element → what sums are kept in, and the precision of the arithmetic
KEPT = {"f16": ("F32", "F32"), "bf16": ("F32", "F32"), "f32": ("F32", "F32"), "f64": ("F64", "F64"), "i32": ("I32", "INT8"), "i64": ("I64", "INT8")}


@pytest.mark.parametrize(
    ("op", "variant", "element"), [(*pair, element) for pair in variants_of(list(OPS.values())) for element in pair[0].elements], ids=name_of
)
def test_a_guarantee_says_what_the_kernel_keeps(op: Op, variant: Variant, element: str) -> None:
    """That deterministic variants are so is shown in test_determinism.py, and that one variant is not, too."""
    promised = samples.plan_of(op, variant, described(op.name, element=element)).precision_guarantee
    assert (promised.accumulator.name, promised.math_precision.name) == KEPT[element]
    assert promised.accumulator == BY_NAME[BY_NAME[element].accumulator].kind
    assert promised.bit_stable_on_same_hardware == promised.deterministic == variant.deterministic
    assert hash(promised) == hash(dataclasses.replace(promised))


# ---------------------------------------------------------------- operands


@pytest.fixture
def made(kind: Kind) -> tuple[plans.Plan, dict[str, Any]]:
    """A plan and operands that fit it."""
    plan = nb.select(described(rows=6, columns=4, segments=3))
    return plan, operands_for(kind, plan, Sample("fits", 6, (4,), 3))


def refused(
    kind: Kind, plan: plans.Plan, operands: dict[str, Any], message: str, error: type[Exception] = nb.InvalidProblem, **keywords: Any
) -> None:
    """``run`` and ``can_implement`` refuse alike; the output keeps its garbage."""
    for check in (lambda: plan.can_implement(**operands), lambda: plan.run(**operands, **keywords)):
        with pytest.raises(error, match=message) as caught:
            check()
        assert str(caught.value).startswith(plan.op.name)


def test_operands_that_fit(kind: Kind, made: Any) -> None:
    plan, operands = made
    before = kind.numpy(operands["output"]).tobytes()
    assert plan.can_implement(**operands) is None
    assert kind.numpy(operands["output"]).tobytes() == before
    assert plan.run(**operands) is None
    assert kind.numpy(operands["output"]).tobytes() != before


def test_missing_and_unknown_operands(kind: Kind, made: Any) -> None:
    plan, operands = made
    refused(
        kind,
        plan,
        {name: array for name, array in operands.items() if name != "segment_ids"},
        "operand 'segment_ids' is missing, wants input, segment_ids, output",
    )
    refused(kind, plan, {**operands, "weights": operands["input"], "bias": 3}, "got unknown operands bias, weights, wants input, segment_ids, output")
    refused(kind, plan, {**operands, "input": None}, "input is None, wants an array")
    refused(kind, plan, {**operands, "segment_ids": "001122"}, "segment_ids is of type str, wants an array")


def test_operands_are_checked_in_their_order_and_dtypes_after_shapes(kind: Kind, made: Any) -> None:
    plan = made[0]

    def array(*shape: int, dtype: Any = np.float32) -> Any:
        return kind.array(np.zeros(shape, dtype))

    wrong = {"input": array(5, 4), "segment_ids": array(7, dtype=np.int64), "output": array(4, 4, dtype=np.float64)}
    refused(kind, plan, wrong, r"input has shape \[5, 4\], wants \[6, 4\] or trailing axes of that product")
    wrong["input"] = array(6, 4, dtype=np.float64)
    refused(kind, plan, wrong, r"segment_ids has shape \[7\], wants \[6\]")
    wrong["segment_ids"] = array(6, dtype=np.int64)
    refused(kind, plan, wrong, r"output has shape \[4, 4\], wants \[3, 4\]")
    wrong["output"] = array(3, 4, dtype=np.float64)
    refused(kind, plan, wrong, "input is float64, wants float32")
    wrong["input"] = array(6, 4)
    refused(kind, plan, wrong, "segment_ids is int64, wants int32")
    wrong["segment_ids"] = array(6, dtype=np.int32)
    refused(kind, plan, wrong, "output is float64, wants float32")
    wrong["output"] = array(3, 4)
    assert plan.can_implement(**wrong) is None


@EVERY_OP
def test_every_operand_is_checked(kind: Kind, op: Op) -> None:
    """The first operand that is wrong is named, whichever it is."""
    sample = Sample("checked", 6, (3,), 4)
    plan = nb.select(samples.descriptor(op, sample))
    operands = operands_for(kind, plan, sample)
    for operand in reversed(op.operands):
        operands[operand.name] = kind.array(np.zeros((9, 3)[: len(operand.axes)], np.int32 if operand.index else np.float32))
        refused(kind, plan, operands, f"^{op.name}: {operand.name} has shape")


def test_trailing_axes_must_agree(kind: Kind, made: Any) -> None:
    plan, operands = made
    x = kind.array(np.ones((6, 2, 2), np.float32))
    refused(kind, plan, {**operands, "input": x}, r"output has trailing axes \[4\], wants \[2, 2\] as the operand before it")
    plan.run(**{**operands, "input": x, "output": kind.poisoned((3, 2, 2), np.float32)})


def test_ranks(kind: Kind) -> None:
    plan = nb.select(described(rows=6, columns=1, segments=3))
    ids = kind.array(np.zeros(6, np.int32))
    for rank in range(1, 9):
        ones = [1] * (rank - 1)
        plan.run(input=kind.array(np.ones((6, *ones), np.float32)), segment_ids=ids, output=kind.poisoned((3, *ones), np.float32))
    long = kind.array(np.ones((6, *[1] * 8), np.float32))
    refused(kind, plan, {"input": long, "segment_ids": ids, "output": long}, "input has 9 axes, wants 1 to 8", nb.Unsupported)
    flat = kind.array(np.ones((), np.float32))
    refused(kind, plan, {"input": flat, "segment_ids": ids, "output": flat}, r"input has shape \[\]")


def test_outputs_that_cannot_be_written(kind: Kind, made: Any) -> None:
    plan, operands = made
    base = operands["output"]
    wide = kind.array(np.zeros((1, 4), np.float32))
    refused(kind, plan, {**operands, "output": kind.broadcast(wide, (3, 4))}, "output is (read-only|a broadcast or overlapping view)")
    if kind.emulated:
        frozen = base.copy()
        frozen.flags.writeable = False
        refused(kind, plan, {**operands, "output": frozen}, "output is read-only, wants memory that can be written")
        sliding = np.lib.stride_tricks.as_strided(np.zeros(20, np.float32), (3, 4), (8, 4))
        refused(
            kind, plan, {**operands, "output": sliding}, "output is a broadcast or overlapping view .* wants an address of its own for each element"
        )
    frozen_inputs = kind.broadcast(kind.array(np.ones((1, 4), np.float32)), (6, 4))
    plan.run(**{**operands, "input": frozen_inputs})


@pytest.mark.parametrize(
    ("shape", "strides", "distinct"),
    [
        ((3, 4), (4, 1), True), ((3, 4), (-4, -1), True), ((3, 4), (1, 3), True), ((3, 4), (10, 2), True), ((2, 3, 4), (4, 8, 1), True),
        ((), (), True), ((3, 1), (1, 0), True), ((0, 3), (0, 0), True), ((3, 4), (0, 1), False), ((3, 4), (4, 0), False), ((3, 4), (2, 1), False),
        ((3, 4), (3, 1), False), ((4, 4), (-3, 1), False),
    ],
)  # fmt: skip
def test_an_address_for_each_element(shape: tuple[int, ...], strides: tuple[int, ...], distinct: bool) -> None:
    assert binding._distinct_addresses(shape, strides) == distinct


def test_an_output_over_an_input_is_refused(kind: Kind, made: Any) -> None:
    plan, operands = made
    base = kind.array(np.zeros((12, 4), np.float32))
    clash = "output overlaps input, wants memory of its own"
    refused(kind, plan, {**operands, "input": base[:6], "output": base[:3]}, clash)
    refused(kind, plan, {**operands, "input": base[:6], "output": base[5:8]}, clash)
    refused(kind, plan, {**operands, "input": base[::2], "output": base[9:]}, clash)
    plan.run(**{**operands, "input": base[:6], "output": base[6:9]})
    plan.run(**{**operands, "input": base[6:], "output": base[3:6]})
    plan.run(**{**operands, "input": base[5::-1], "output": base[6:9]})
    again = kind.array(np.zeros(30, np.int32))
    refused(kind, plan, {**operands, "segment_ids": again[:6], "output": again[5:17].view(np.float32).reshape(3, 4)}, "output overlaps segment_ids")


def test_an_output_between_the_rows_of_an_input_is_accepted(kind: Kind, made: Any) -> None:
    plan, operands = made
    given, expected = operands["input"], kind.numpy(plan_result(plan, operands)).copy()

    def fits(rows: Any, output: Any) -> None:
        rows[...] = given
        plan.run(**{**operands, "input": rows, "output": output})
        np.testing.assert_array_equal(kind.numpy(output), expected)
        np.testing.assert_array_equal(kind.numpy(rows), kind.numpy(given))

    base = kind.array(np.zeros((12, 8), np.float32))
    fits(base[:6, :4], base[6:9, 4:])  # apart even as spans
    fits(base[:6, :4], base[2:5, 4:])  # beside its columns
    fits(base[::2, :4], base[1:6:2, 2:6])  # between its rows
    fits(base[:6, ::2], base[:3, 1::2])  # between its columns
    for rows, output in ((base[:6, :4], base[2:5, 3:7]), (base[::2, :4], base[1:4, :4]), (base[:6, ::2], base[3:6, 2:6])):
        refused(kind, plan, {**operands, "input": rows, "output": output}, "output overlaps input, wants memory of its own")


def plan_result(plan: plans.Plan, operands: dict[str, Any]) -> Any:
    plan.run(**operands)
    return operands["output"]


@EVERY_OP
def test_every_input_is_guarded(kind: Kind, op: Op) -> None:
    sample = Sample("in place", 5, (3,), 5)
    plan = nb.select(samples.descriptor(op, sample, result="i32" if op.traits["results"] else ""))
    operands = operands_for(kind, plan, sample)
    output, dtype = op.operands[-1].name, numpy_dtype(plan.descriptor.result_of(op))
    for operand in op.operands[:-1]:
        if not operand.index:
            refused(kind, plan, {**operands, output: operands[operand.name].view(dtype)}, f"{output} overlaps {operand.name}")


def test_empty_arrays_overlap_nothing(kind: Kind) -> None:
    base = kind.array(np.zeros((4, 4), np.float32))
    plan = nb.select(described(rows=0, columns=4, segments=4))
    plan.run(input=base[:0], segment_ids=kind.array(np.zeros(0, np.int32)), output=base)
    assert (kind.numpy(base) == 0).all()


# ---------------------------------------------------------------- workspace


def test_ops_that_need_a_workspace() -> None:
    needed = {name: nb.select(samples.descriptor(op, LARGE)).workspace_size for name, op in OPS.items()}
    # counts of 60 segments and a quotient of float32 for each of their columns; along ids in order 61 offsets; all in whole lines of 128 bytes
    assert needed["segment_sum"] > 0 and needed["segment_mean_backward"] == 2 * 128
    assert needed["unsorted_segment_mean_backward"] == 2 * 128 + 68 * 128
    assert needed["segment_sum_backward"] == needed["unsorted_segment_sum_backward"] == 0


@pytest.mark.parametrize(("op", "variant"), [pair for pair in variants_of(list(OPS.values())) if samples.tells(*pair)], ids=name_of)
def test_exactly_the_stated_workspace_is_enough(kind: Kind, op: Op, variant: Variant) -> None:
    """Whatever it held before."""
    given = samples.operands(op, LARGE)
    plan = samples.plan_of(op, variant, samples.descriptor(op, LARGE))
    for skip in (0, 16):
        got = samples.run(kind, plan, given, workspace=kind.workspace(plan.workspace_size, skip))
        assert_close(got, references.truth(op.name, given, LARGE.segments), LARGE.element, op.name)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
def test_a_workspace_of_any_dtype_and_shape(kind: Kind, dtype: Any) -> None:
    op = OPS["segment_mean"]
    given = samples.operands(op, LARGE)
    plan = nb.select(samples.descriptor(op, LARGE))
    count = -(-plan.workspace_size // np.dtype(dtype).itemsize)
    got = samples.run(kind, plan, given, workspace=kind.array(np.zeros((2, count), dtype)))
    assert_close(got, references.truth(op.name, given, LARGE.segments), LARGE.element, op.name)


@hypothesis.given(data=st.data())
@EVERY
def test_the_stated_workspace_covers_every_layout(op: Op, variant: Variant, data: st.DataObject) -> None:
    rows, columns, segments = (
        data.draw(st.integers(0, 10**7)),
        data.draw(st.sampled_from([1, 2, 3, 8, 12, 37, 64, 260])),
        data.draw(st.integers(0, 10**6)),
    )
    element, multiprocessors = data.draw(st.sampled_from(["f32", "f64"])), data.draw(st.sampled_from([1, 108, 132, 148]))
    problem = described(op.name, rows, columns, segments, element=element, check_ids=data.draw(st.booleans()))
    target = Target((9, 0), multiprocessors)
    stated = max(variant.recipe(op, problem, layouts, target).workspace for layouts in problem.typical_layouts(op))
    split = data.draw(st.sampled_from([k for k in (1, 2, 4) if columns % k == 0]))
    layouts = {}
    for operand in op.operands:
        extent = getattr(problem, operand.axes[0])
        address = data.draw(st.sampled_from([0, 4, 8, 12] if element == "f32" else [0, 8]))
        if len(operand.axes) == 1:
            layouts[operand.name] = Layout((extent,), (data.draw(st.integers(-3, 3)),), address)
        else:
            inner = data.draw(st.integers(-2, 3))
            outer = data.draw(st.sampled_from([inner * columns // split, 1, 777, 0]))
            layouts[operand.name] = Layout((extent, split, columns // split), (data.draw(st.integers(-600, 600)), outer, inner), address)
    assert variant.recipe(op, problem, layouts, target).workspace <= stated


@pytest.fixture
def large(kind: Kind) -> tuple[plans.Plan, dict[str, Any]]:
    plan = nb.select(samples.descriptor(OPS["segment_sum"], LARGE))
    return plan, operands_for(kind, plan, LARGE)


def test_a_workspace_too_small(kind: Kind, large: Any) -> None:
    plan, operands = large
    for short in (0, 1, plan.workspace_size - 1):
        with pytest.raises(nb.WorkspaceTooSmall, match=f"segment_sum: workspace holds {short} bytes, wants {plan.workspace_size}") as caught:
            plan.run(**operands, workspace=kind.workspace(short))
        assert (caught.value.needed, caught.value.got) == (plan.workspace_size, short)
    plan.can_implement(**operands)


def test_a_workspace_that_cannot_be_used(kind: Kind, large: Any) -> None:
    plan, operands = large
    size = plan.workspace_size
    for skip in (1, 4, 8):
        with pytest.raises(nb.MisalignedOperand, match=r"segment_sum: workspace is at address 0x.*, wants a multiple of 16"):
            plan.run(**operands, workspace=kind.workspace(size, skip))
    with pytest.raises(nb.Unsupported, match=r"segment_sum: workspace has strides \(2,\), wants contiguous memory"):
        plan.run(**operands, workspace=kind.workspace(2 * size)[::2])
    with pytest.raises(nb.InvalidProblem, match="segment_sum: workspace is of type int, wants an array"):
        plan.run(**operands, workspace=12345)
    if kind.emulated:
        frozen = kind.workspace(size)
        frozen.flags.writeable = False
        with pytest.raises(nb.InvalidProblem, match="segment_sum: workspace is read-only"):
            plan.run(**operands, workspace=frozen)


@pytest.mark.parametrize("name", ["input", "segment_ids", "output"])
def test_a_workspace_over_an_operand(kind: Kind, large: Any, name: str) -> None:
    plan, operands = large
    nbytes = operands[name].nbytes
    whole = kind.workspace(nbytes + plan.workspace_size)
    inside = whole[:nbytes].view(operands[name].dtype).reshape(operands[name].shape)
    inside[...] = operands[name]
    where = (nbytes - 1) // 16 * 16
    with pytest.raises(nb.InvalidProblem, match=f"segment_sum: workspace overlaps {name}, wants memory of its own"):
        plan.run(**{**operands, name: inside}, workspace=whole[where : where + plan.workspace_size])


def test_a_workspace_between_the_rows_of_an_operand(kind: Kind, large: Any) -> None:
    plan, operands = large
    base = kind.array(np.zeros((150, 36 + plan.workspace_size // 4 + 36), np.float32))
    workspace = base[7, 36:-36].view(np.uint8)
    assert 0 < plan.workspace_size <= workspace.nbytes
    rows = base[:, :36]
    rows[...] = operands["input"]
    expected = kind.numpy(plan_result(plan, {**operands, "input": rows})).copy()
    plan.run(**{**operands, "input": rows}, workspace=workspace)
    np.testing.assert_array_equal(kind.numpy(operands["output"]), expected)
    with pytest.raises(nb.InvalidProblem, match="segment_sum: workspace overlaps input"):
        plan.run(**{**operands, "input": base[:, 36:72]}, workspace=workspace)


def test_a_workspace_is_checked_where_none_is_needed(kind: Kind) -> None:
    """``workspace_size`` bytes are wanted for every layout, and what is no array is none."""
    plan = nb.select(described("segment_sum_backward"))
    operands = operands_for(kind, plan, Sample("none", 6, (4,), 3))
    assert plan.workspace_size == 0
    for given in (kind.workspace(0), kind.workspace(1, 1)[1:], kind.workspace(64)):
        plan.run(**operands, workspace=given)
    for given, what in (("x", "of type str"), (64, "of type int"), ({}, "of type dict")):
        with pytest.raises(nb.InvalidProblem, match=f"^segment_sum_backward: workspace is {what}, wants an array"):
            plan.run(**operands, workspace=given)
    functions = [("reduce_sum", (kind.array(np.ones((6, 4), np.float32)), 1)), ("cumsum", (kind.array(np.ones((6, 4), np.float32)),))]
    for name, given in functions:
        with pytest.raises(nb.InvalidProblem, match=f"^{name}: workspace is of type str, wants an array"):
            getattr(nb, name)(*given, workspace="x")


def test_a_workspace_too_small_where_the_layout_needs_none(kind: Kind) -> None:
    plan = nb.select(described())
    operands = operands_for(kind, plan, Sample("none", 6, (4,), 3))
    assert plan.workspace_size == 0
    greedy = plans.Plan(plan.op, plan.descriptor, plan.variant, plan.target)
    greedy.workspace_size = 4096
    with pytest.raises(nb.WorkspaceTooSmall, match="segment_sum: workspace holds 4095 bytes, wants 4096"):
        greedy.run(**operands, workspace=kind.workspace(4095))
    greedy.run(**operands, workspace=kind.workspace(4096))


def test_a_sort_works_in_the_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the library asks for is a slot, once somebody needs its size; where there is no device, a byte that says so."""
    asked = []

    class Sorter:
        def workspace(self, *what: int) -> int:
            asked.append(what)
            return 5000

    monkeypatch.setattr(radix, "sorter", lambda *which: asked.append(which) or Sorter())
    sorting = 0
    for op in OPS.values():
        for columns in (1, 4, 64):
            described = SegmentDescriptor(op.name, 9000, columns, 3000)
            for variant in op.variants:
                if variant.refuses(op, described):
                    continue
                layouts = next(described.typical_layouts(op))
                for target, room in ((Target((9, 0), 132, ordinal=3), 5000), (Target((9, 0), 132), 1)):
                    recipe = variant.recipe(op, described, layouts, target)
                    sorts = [step for step in recipe.steps if isinstance(step, Sort)]
                    slots = [slot for slot in recipe.slots if slot.name in [step.scratch for step in sorts]]
                    assert asked == []
                    assert [slot.count for slot in slots] == [room] * len(sorts) and len(sorts) < 2
                    sorting += len(sorts)
                    if sorts and room > 1:
                        (step,) = sorts
                        assert asked == [(f"u{8 * step.key_size}", f"u{8 * step.value_size}", 3), (9000, step.bits, step.first_bit)]
                    else:
                        assert asked == []
                    asked.clear()
    assert sorting > 20


# ---------------------------------------------------------------- bound calls


@pytest.mark.parametrize("own", [False, True], ids=["scratch", "workspace"])
def test_a_bound_call_takes_what_the_arrays_hold_by_then(kind: Kind, large: Any, own: bool) -> None:
    plan, operands = large
    workspace = kind.workspace(plan.workspace_size) if own else None
    call = plan.bind(workspace=workspace, **operands)
    assert repr(call) == "BoundCall(segment_sum, input, segment_ids, output)"
    for factor in (1, 3):
        operands["input"][...] = kind.array(factor * samples.operands(plan.op, LARGE)["input"])
        call()
        expected = kind.poisoned(operands["output"].shape, np.float32)
        plan.run(**operands | {"output": expected})
        assert (kind.numpy(operands["output"]) == kind.numpy(expected)).all()


def test_a_bound_call_is_refused_before_it_is_made(kind: Kind, large: Any) -> None:
    plan, operands = large
    with pytest.raises(nb.WorkspaceTooSmall, match="segment_sum: workspace holds 16 bytes"):
        plan.bind(workspace=kind.workspace(16), **operands)
    with pytest.raises(nb.InvalidProblem, match="segment_sum: output overlaps input"):
        plan.bind(**operands | {"output": operands["input"][: operands["output"].shape[0]]})
    with pytest.raises(nb.InvalidProblem, match="segment_sum: stream is of type str"):
        plan.bind(stream="now", **operands)
    with pytest.raises(nb.InvalidProblem, match="segment_sum: stream is -1"):
        plan.bind(**operands)(-1)


# ---------------------------------------------------------------- copies


def test_a_plan_is_selected_again_where_it_is_loaded() -> None:
    for plan in (nb.select(described("unsorted_segment_max")), nb.select(described(), PlanPreference(max_workspace_bytes=1 << 20))):
        assert pickle.loads(pickle.dumps(plan)) is plan is copy.copy(plan) is copy.deepcopy(plan)
    code = "import pickle, sys; plan = pickle.load(sys.stdin.buffer); print(plan, plan.workspace_size)"
    told = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(plan), capture_output=True, check=True).stdout.decode()
    assert told.strip() == f"{plan} {plan.workspace_size}"
    forced = plans.Plan(plan.op, plan.descriptor, plan.variant, plan.target)
    with pytest.raises(TypeError, match=r"was not made by select\(\)"):
        pickle.dumps(forced)


@pytest.mark.parametrize("told", ["sku", "precision_guarantee", "descriptor"])
def test_what_a_plan_tells_can_be_pickled(told: str) -> None:
    problems = (
        described(), nb.ReduceDescriptor("var", (4, 5), 1), nb.ScanDescriptor("cumsum", (4, 5), 1), nb.FusedLinearCrossEntropyDescriptor(16, 8, 32)
    )  # fmt: skip
    for plan in map(nb.select, problems):
        given = getattr(plan, told)
        assert pickle.loads(pickle.dumps(given)) == given == copy.deepcopy(given)
        assert pickle.loads(pickle.dumps(plan)) is plan


def test_a_device_with_more_multiprocessors_may_need_more(emulator: Kind) -> None:
    """A plan made for one device and run on another of its architecture never writes past the workspace."""
    op, sample = OPS["segment_sum"], Sample("many blocks", 3000, (17,), 90, samples.runs)
    plan = samples.plan_of(op, op.variants[0], samples.descriptor(op, sample))
    needed = plan.workspace_size
    plan.target = dataclasses.replace(plan.target, multiprocessors=64)
    operands = operands_for(emulator, plan, sample)
    with pytest.raises(nb.WorkspaceTooSmall) as caught:
        plan.run(**operands, workspace=emulator.workspace(needed))
    assert caught.value.needed > needed
    plan.run(**operands, workspace=emulator.workspace(caught.value.needed))


# ---------------------------------------------------------------- threads


def test_one_plan_in_several_threads(kind: Kind) -> None:
    op = OPS["segment_mean"]
    sample = Sample("threads", 300, (4,), 20)
    given = samples.operands(op, sample)
    plan = samples.plan_of(op, op.variants[0], samples.descriptor(op, sample))
    truth = references.truth(op.name, given, sample.segments)
    problems: list[BaseException] = []
    start = threading.Barrier(6)

    def work(turn: Callable[[], np.ndarray]) -> None:
        try:
            start.wait()
            for _ in range(3):
                assert_close(turn(), truth, sample.element, op.name)
        except BaseException as problem:
            problems.append(problem)

    def by_plan() -> np.ndarray:
        return samples.run(kind, plan, given)

    def by_function() -> np.ndarray:
        return kind.numpy(samples.call(op, [kind.array(array) for array in given.values()], sample.segments))

    threads = [threading.Thread(target=work, args=(turn,)) for turn in (by_plan, by_function) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems, problems


def test_a_fresh_allocation_is_enough(kind: Kind, large: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a workspace the package takes what the layout at hand needs, and no more than is stated."""
    plan, operands = large
    taken = []
    scratch = allocation.scratch
    monkeypatch.setattr(stream_scratch, "of", lambda device, stream: None)  # a stream has none
    monkeypatch.setattr(allocation, "scratch", lambda like, nbytes, stream: taken.append(nbytes) or scratch(like, nbytes, stream))
    plan.run(**operands)
    assert len(taken) == 1 and 0 < taken[0] <= plan.workspace_size
