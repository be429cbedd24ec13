"""Plans of the fused linear cross-entropy: chunks, scratch, steps, what they promise and what they refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from loss_cases import problem
from loss_reference import assert_close, wanted

import numba_baracuda as nb
from numba_baracuda import loss
from numba_baracuda.core.errors import BaracudaError
from numba_baracuda.core.op import Gemm, Launch, Matrix, Target, contiguous
from numba_baracuda.loss.chunking import logits_row_stride
from numba_baracuda.loss.policy import Chunks
from numba_baracuda.runtime import cublas

OP = nb.OPS["fused_linear_cross_entropy"]
CARD = Target((9, 0), 132)


@pytest.mark.parametrize(
    ("bt", "h", "v", "rows"),
    [
        (16384, 4096, 32000, 2048), (128, 4096, 1000, 128), (0, 128, 256, 1), (16384, 4096, 131072, 512), (1024, 512, 32768, 16), (256, 256, 8192, 8),
        (8, 16, 32, 4), (4, 8, 12, 2),
    ],
)  # fmt: skip
def test_the_chunks_of_liger(bt: int, h: int, v: int, rows: int) -> None:
    assert loss.pick_chunk_size(bt, h, v) == rows
    described = nb.FusedLinearCrossEntropyDescriptor(bt, h, v, "bf16", chunk="liger")
    assert described.chunk_size == min(rows, max(bt, 1))
    assert described.conceptual_scratch_bytes == described.chunk_size * v * 2 + 4 * bt + 8


@pytest.mark.parametrize(
    ("bt", "h", "v", "rows", "lean"),
    [
        (8192, 4096, 128256, 2048, 1024), (16384, 4096, 128256, 2048, 1024), (8192, 2304, 256000, 1024, 512), (4096, 3584, 152064, 1024, 768),
        (2048, 4096, 32000, 2048, 2048), (100, 8, 20, 100, 100),
    ],
)  # fmt: skip
def test_chunks_within_a_budget(bt: int, h: int, v: int, rows: int, lean: int) -> None:
    """A closed form: the same in every process."""
    described = nb.FusedLinearCrossEntropyDescriptor(bt, h, v, "bf16")
    assert described.chunk_size == rows and rows * logits_row_stride(v) * 2 <= Chunks.logits_bytes
    assert nb.FusedLinearCrossEntropyDescriptor(bt, h, v, "bf16", chunk="lean").chunk_size == lean
    assert nb.FusedLinearCrossEntropyDescriptor(bt, h, v, "bf16", chunk=77).chunk_size == min(77, bt)


def test_scratch_is_what_it_says() -> None:
    for extra in ({}, {"grad_weight_accum": "f32"}, {"lse_square_scale": 0.1, "chunk": "lean"}):
        for most in (150 << 20, 700 << 20):
            plan = nb.select(nb.FusedLinearCrossEntropyDescriptor(4096, 256, 50257, "bf16", max_workspace_bytes=most, **extra), device=-1)
            assert plan.workspace_size <= most and plan.chunk_size >= 128
    plan = nb.select(nb.FusedLinearCrossEntropyDescriptor(64, 32, 1000, "f32"), nb.PlanPreference(max_workspace_bytes=34 << 20), device=-1)
    assert plan.workspace_size <= 34 << 20 and plan.chunk_size == 64 == plan.descriptor.chunk_size
    with pytest.raises(nb.Unsupported, match=r"needs a workspace of up to \d+ bytes, more than max_workspace_bytes, 1000"):
        nb.select(nb.FusedLinearCrossEntropyDescriptor(64, 32, 1000, max_workspace_bytes=1000), device=-1)


@pytest.mark.parametrize("element", ["bf16", "f64"])
def test_no_choice_of_operands_needs_more_scratch_than_the_plan_says(element: str) -> None:
    """Nor more than a budget that the descriptor has; where there are many rows of few classes, what there is for each row counts."""
    wide = {"grad_weight_accum": "f32" if element == "bf16" else None}
    for bt, v, options in ((5000, 20, {}), (40, 3000, wide), (5000, 20, {"chunk": 64, "reduction": "none"})):
        described = nb.FusedLinearCrossEntropyDescriptor(bt, 8, v, element, **options)
        plan = nb.select(described, device=-1)
        assert plan.workspace_size <= described.other_scratch_bytes + described.chunk_size * described.row_scratch_bytes
        assert described.row_scratch_bytes == (logits_row_stride(v) + 8) * (2 if element == "bf16" else 8)
        operands = [operand for operand in plan.op.operands if operand.name not in described.refused]
        places = {operand.name: contiguous(getattr(described, operand.axes[0])) for operand in operands}
        optional = [operand.name for operand in plan.op.operands if operand.output and operand.optional]
        for count in range(len(optional) + 1):
            for left_out in itertools.combinations(optional, count):
                chosen = {name: layout for name, layout in places.items() if name not in left_out}
                assert plan.variant.recipe(plan.op, described, chosen, plan.target).workspace <= plan.workspace_size, left_out


def _recipe(*names: str, element: str = "bf16", **options: Any) -> list[Any]:
    described = nb.FusedLinearCrossEntropyDescriptor(4096, 256, 50257, element, chunk=1024, **options)
    op = described.specialise(OP)
    places = {operand.name: contiguous(getattr(described, operand.axes[0])) for operand in op.operands}
    return list(op.variants[0].recipe(op, described, {name: places[name] for name in ("input", "weight", "target", "out", *names)}, CARD).steps)


def test_what_is_not_asked_for_costs_nothing() -> None:
    """Products by gradients, the gradient pass of the kernel, and updates of the weight's gradient in the first chunk."""
    products = {names: [step for step in _recipe(*names) if isinstance(step, Gemm)] for names in ((), ("grad_input",), ("grad_weight",))}
    assert [len(each) for each in products.values()] == [8, 16, 16]  # of 50240 and of 17 classes, for each of four chunks
    assert {step.beta for step in products["grad_input",] if step.c.name == "grad_input"} == {0.0, 1.0}
    assert [step.beta for step in products["grad_weight",] if step.c.name == "grad_weight"] == [0.0] * 2 + [1.0] * 6
    for names, gradient in (((), False), (("grad_weight",), True)):
        kernels = [dict(step.spec.constants) for step in _recipe(*names) if isinstance(step, Launch) and "entropy_rows" in step.spec.name]
        assert [each["gradient"] for each in kernels] == [gradient] * 4
        kept = [step.arguments["y"] for step in _recipe(*names) if isinstance(step, Launch) and "mask_rows" in step.spec.name]
        assert kept == ["masked_input"] * (4 if gradient else 0)
    both = [step.arguments["y"] for step in _recipe("grad_input", "grad_weight") if isinstance(step, Launch) and "mask_rows" in step.spec.name]
    assert both == ["grad_input"] * 4  # rows of the input lie there until their gradient is made
    added = [step.beta for step in _recipe("grad_weight", accumulate_grad_weight=True) if isinstance(step, Gemm) and step.c.name == "grad_weight"]
    assert added == [1.0] * 8


def test_products_are_aligned() -> None:
    """Rows of logits begin at multiples of 128 bytes, and the many classes are a multiple of 64."""
    for step in _recipe("grad_input", "grad_weight"):
        if isinstance(step, Gemm):
            logits = next(each for each in (step.a, step.b, step.c) if each.name == "logits")
            assert logits.stride == 50304 and logits.columns in (50240, 17) and logits.offset in (0, 50240)
    whole = [step for step in _recipe("grad_input", element="f32") if isinstance(step, Gemm)]
    assert {step.b.rows for step in whole if step.b.name == "weight"} == {50257}


def test_scalars_of_float16_are_on_the_device() -> None:
    steps = [step for step in _recipe("grad_input", "grad_weight", element="f16") if isinstance(step, Gemm) and "logits" in (step.a.name,)]
    assert steps and {step.alpha for step in steps} == {"alpha"} and {step.beta for step in steps} == {"zero", "one"}


def test_what_a_plan_says() -> None:
    described = nb.FusedLinearCrossEntropyDescriptor(64, 32, 100, "bf16", "sum")
    assert described.with_reduction("none").reduction == nb.LossReduction.NONE and described.with_ignore_index(5).ignore_index == 5
    assert described.ignore_index == nb.FLCE_DEFAULT_IGNORE_INDEX == -100 and described.reduction == nb.LossReduction.SUM
    plan = nb.select(described, device=-1)
    assert plan.chunk_size == 64 and plan.conceptual_scratch_bytes == 64 * 100 * 2 + 4 * 64 + 8
    guarantee = plan.precision_guarantee
    assert guarantee.deterministic and guarantee.bit_stable_on_same_hardware and "every chunk" in guarantee.roundings
    assert guarantee.accumulator == nb.ElementKind.F32
    assert (plan.sku.category, plan.sku.op) == (nb.OpCategory.LOSS, int(nb.LossKind.FUSED_LINEAR_CROSS_ENTROPY))
    with pytest.raises(AttributeError, match="chunk_sizes"):
        _ = plan.chunk_sizes
    with pytest.raises(AttributeError):
        _ = nb.select(nb.ReduceDescriptor("sum", (4,), 0), device=-1).chunk_size


def test_plans_run(kind: Kind) -> None:
    """With the loss in either dtype, with scratch of the least size, twice with the same bits."""
    x, w, target = problem(kind="bf16")
    given = {"input": kind.array(x), "weight": kind.array(w), "target": kind.array(target)}
    plan = nb.select(nb.FusedLinearCrossEntropyDescriptor(21, 12, 70, "bf16", chunk=8), device=-1 if kind.emulated else 0)
    outputs: list[dict[str, Any]] = [
        {"grad_input": kind.poisoned(x.shape, x.dtype), "grad_weight": kind.poisoned(w.shape, w.dtype)} for _ in range(2)
    ]
    for each in outputs:
        each["out"] = kind.poisoned((1,), np.float32)
        plan.run(workspace=kind.workspace(plan.workspace_size), **given, **each)
    right = wanted(x, w, target)
    for name in ("grad_input", "grad_weight"):
        assert_close(kind.numpy(outputs[0][name]), right, name, "bf16", 70)
    for name in outputs[0]:
        np.testing.assert_array_equal(kind.numpy(outputs[0][name]).view(np.uint8), kind.numpy(outputs[1][name]).view(np.uint8))
    with pytest.raises(nb.WorkspaceTooSmall):
        plan.run(workspace=kind.workspace(plan.workspace_size - 16), **given, **outputs[0])
    plan.can_implement(**given, out=outputs[0]["out"], grad_weight=None)
    with pytest.raises(nb.InvalidProblem, match="unknown operands gradinput"):
        plan.can_implement(**given, out=outputs[0]["out"], gradinput=outputs[0]["grad_input"])
    with pytest.raises(nb.InvalidProblem, match="operand 'out' is missing"):
        plan.can_implement(**given)


def test_the_workspace_of_products_is_aligned() -> None:
    """To 256 bytes, within what the plan gives them."""
    for address in (0, 16, 240, 256, (1 << 40) + 128):
        assert cublas.aligned(address) % 256 == 0 and 0 <= cublas.aligned(address) - address <= 240 < cublas.WORKSPACE_ALIGNMENT
    steps = [step for step in _recipe("grad_weight") if isinstance(step, Gemm)]
    assert {step.workspace for step in steps} == {"gemm"} and Chunks.workspace_bytes - cublas.WORKSPACE_ALIGNMENT == 32 << 20


def test_the_algorithm_of_a_product() -> None:
    """Where tiles are many and sums short, the largest tile of those that are made in pairs, if it makes whole sums; else what comes first."""
    found = [cublas.Tiling(*each) for each in ((248, 1, 48.0), (24, 1, 60.0), (20, 1, 120.0), (201, 2, 88.0), (197, 1, 92.0))]
    assert cublas.choose(found, 4096) == 4 and cublas.choose(found[:3], 64) == 2
    for tilings, inner in ((found, 4097), ([found[0]._replace(rounds=9.9), *found], 64), (found[:2], 64)):
        assert cublas.choose(tilings, inner) == 0


@pytest.mark.parametrize(("address", "offset", "alignment"), [(0, 0, 16), (8, 0, 8), (8, 4, 16), (2, 1, 4), (2, 4, 2)])
def test_what_products_know_of_an_address(address: int, offset: int, alignment: int) -> None:
    form, first = cublas._described(Matrix("x", "bf16", 3, 5, 8, offset, address))
    assert (form.rows, form.columns, form.stride, form.alignment, first) == (5, 3, 8, alignment, 2 * offset)


def test_matrices_know_where_operands_begin() -> None:
    """What products and assignments may take at once depends on it."""
    described = nb.FusedLinearCrossEntropyDescriptor(300, 64, 1000, "bf16", chunk=128, grad_weight_accum="f32")
    op = described.specialise(OP)
    places = {operand.name: contiguous(getattr(described, operand.axes[0]), 2 * k % 16) for k, operand in enumerate(op.operands)}
    given = {name: place for name, place in places.items() if name not in ("dy", *described.refused)}
    steps = op.variants[0].recipe(op, described, given, CARD).steps
    found = [each for step in steps if isinstance(step, Gemm) for each in (step.a, step.b, step.c)]
    assert {each.name for each in found} >= {"input", "weight", "grad_input", "logits", "weight_sums"}
    assert all(each.address == (places[each.name].address if each.name in places else 0) for each in found)
    (rounded,) = [step for step in steps if isinstance(step, Launch) and "assign" in step.spec.name and "grad_weight" in step.pointers]
    assert dict(rounded.spec.constants)["vector"] == min(4, (places["grad_weight"].address & -places["grad_weight"].address) // 2)


def test_plans_by_their_old_names() -> None:
    described = nb.FusedLinearCrossEntropyDescriptor(64, 32, 100)
    assert nb.FusedLinearCrossEntropyPlan.select(described, device=-1) is nb.select(described, device=-1)
    assert nb.FusedLinearCrossEntropyBackwardPlan.select is nb.select


def test_a_scalar_plan(kind: Kind) -> None:
    plan = nb.select(nb.FusedLinearCrossEntropyBackwardDescriptor(3, 4, 5), device=-1 if kind.emulated else 0)
    x = kind.array(np.ones((3, 4), np.float32))
    plan.run(dy_scalar=1.0, grad_input=x)
    plan.run(dy_scalar=0.5, grad_input=x)
    plan.run(dy_scalar=kind.array(np.array([3.0], np.float32)), grad_input=x)
    plan.run(dy_scalar=7.0)
    assert (kind.numpy(x) == 1.5).all() and plan.workspace_size == 0


# ---------------------------------------------------------------- what is refused


WRONG: tuple[tuple[dict[str, Any], type[BaracudaError], str], ...] = (
    ({"input": np.ones((21, 3, 4), np.float32)}, nb.InvalidProblem, r"input has shape \[21, 3, 4\], wants \[BT, H\]"),
    ({"weight": np.ones((70, 11), np.float32)}, nb.InvalidProblem, r"weight has shape \[70, 11\], wants \[70, 12\]"),
    ({"target": np.zeros(20, np.int64)}, nb.InvalidProblem, r"target has shape \[20\], wants \[21\]"),
    ({"out": np.zeros(21, np.float32)}, nb.InvalidProblem, r"out has shape \[21\], wants \[1\]"),
    ({"grad_input": np.zeros((21, 11), np.float32)}, nb.InvalidProblem, r"grad_input has shape \[21, 11\], wants \[21, 12\]"),
    ({"grad_weight": np.zeros((69, 12), np.float32)}, nb.InvalidProblem, r"grad_weight has shape \[69, 12\], wants \[70, 12\]"),
    ({"target": np.zeros(21, np.float32)}, nb.InvalidProblem, "target is float32, wants int64 or int32"),
    ({"weight": np.ones((70, 12), np.float64)}, nb.InvalidProblem, "weight is float64, wants float32"),
    ({"class_weight": np.ones(70, np.float64)}, nb.InvalidProblem, "class_weight is float64, wants float32"),
    ({"grad_input": np.zeros((21, 12), np.float16)}, nb.InvalidProblem, "grad_input is float16, wants float32"),
    ({"bias": np.ones(69, np.float32)}, nb.InvalidProblem, r"bias has shape \[69\], wants \[70\]"),
    ({"bias": np.ones(140, np.float32)[::2]}, nb.Unsupported, "bias has stride 2, wants contiguous elements"),
    ({"input": np.ones((12, 21), np.float32).T}, nb.Unsupported, r"input has strides \[1, 21\], wants rows in ascending order, each contiguous"),
    ({"weight": np.ones((70, 24), np.float32)[:, ::2]}, nb.Unsupported, "weight has strides"),
    ({"grad_bias": np.zeros(70, np.float32)}, nb.InvalidProblem, "grad_bias is given without bias"),
    ({"row_weight": np.ones((21, 1), np.float32)}, nb.InvalidProblem, "row_weight has shape"),
    ({"dy": np.ones(21, np.float32)}, nb.InvalidProblem, r"dy has shape \[21\], wants \[1\]"),
    ({"dy_entropy": np.ones(21, np.float32)}, nb.InvalidProblem, r'dy_entropy is given with reduction="mean", wants "none"'),
    ({"dy_entropy": np.ones(21, np.float32), "reduction": "none", "dy": 2.0}, nb.InvalidProblem, r"dy is 2.0 beside dy_entropy, wants an array"),
    ({"dy_entropy": 0.5, "reduction": "none"}, nb.InvalidProblem, "dy_entropy"),
    ({"reduction": "average"}, nb.InvalidProblem, "LossReduction: got 'average'"),
    ({"chunk": 0}, nb.InvalidProblem, "chunk is 0, wants 1 or more"),
    ({"chunk": "large"}, nb.InvalidProblem, "chunk is 'large', wants a whole number or one of auto, lean, liger"),
    ({"chunk": [8]}, nb.InvalidProblem, r"chunk is \[8\], wants a whole number"),
    ({"skip_ignored": True, "grad_input": np.zeros((20, 12), np.float32)}, nb.InvalidProblem, r"grad_input has shape \[20, 12\], wants \[21, 12\]"),
    ({"chunk": 2.5}, nb.InvalidProblem, "chunk is 2.5, wants a whole number"),
    ({"label_smoothing": 1.5}, nb.InvalidProblem, "label_smoothing is 1.5, wants a number from 0 to 1"),
    ({"softcap": 1e-40}, nb.InvalidProblem, r"softcap is 1e-40, .* that f32 holds and whose inverse it holds: 2.9e-39 to 3.4e\+38"),
    ({"softcap": 0}, nb.InvalidProblem, "softcap is 0.0, wants a number above 0"),
    ({"logit_scale": np.nan}, nb.InvalidProblem, "logit_scale is nan, wants a finite number"),
    ({"ignore_index": 1.5}, nb.InvalidProblem, "ignore_index is 1.5, wants a whole number"),
    ({"grad_weight_accum": "f64"}, nb.InvalidProblem, "grad_weight_accum is f64, wants f32"),
    ({"grad_weight": True, "accumulate_grad_weight": True}, nb.InvalidProblem, "grad_weight, which is True, wants an array"),
    ({"input": np.ones((21, 12), np.int32)}, nb.Unsupported, "element is i32, wants one of f16, bf16, f32, f64"),
    ({"input": np.ones((21, 0), np.float32), "weight": np.ones((70, 0), np.float32)}, nb.InvalidProblem, "h is 0, wants 1 or more"),
    ({"weight": np.ones((0, 12), np.float32)}, nb.InvalidProblem, "v is 0, wants 1 or more"),
)


@pytest.mark.parametrize("which", range(len(WRONG)), ids=[str(next(iter(each))) + str(k) for k, (each, _, _) in enumerate(WRONG)])
def test_refusals(kind: Kind, which: int) -> None:
    wrong, error, message = WRONG[which]
    x, w, target = problem()
    given: dict[str, Any] = {"input": x, "weight": w, "target": target} | wrong
    held = {name: kind.array(each) if isinstance(each, np.ndarray) and each.flags.c_contiguous else each for name, each in given.items()}
    for name, each in held.items():
        if isinstance(each, np.ndarray) and not kind.emulated:  # a view of the kind's own
            base = kind.array(np.ascontiguousarray(each.base))
            held[name] = kind.transpose(base, (1, 0)) if each.T.flags.c_contiguous and each.ndim > 1 else base[..., ::2]
    with pytest.raises(error, match=f"(fused_linear_cross_entropy: )?{message}"):
        nb.fused_linear_cross_entropy(held.pop("input"), held.pop("weight"), held.pop("target"), **held)


def test_an_output_may_not_be_an_input(kind: Kind) -> None:
    x, w, target = map(kind.array, problem())
    with pytest.raises(nb.InvalidProblem, match="grad_input overlaps input"):
        nb.fused_linear_cross_entropy(x, w, target, grad_input=x)
    for wrong, message in (({"grad_input": target}, "grad_input"), ({"grad_input": x, "grad_weight": w[:, :5]}, "grad_weight has shape")):
        with pytest.raises(BaracudaError, match=message):
            nb.fused_linear_cross_entropy_backward(2.0, **wrong)
    with pytest.raises(nb.InvalidProblem, match="dy_scalar"):
        nb.fused_linear_cross_entropy_backward("2", x)


def test_gradients_of_one_memory_are_refused(kind: Kind) -> None:
    x, w, target = problem()
    square = kind.array(np.zeros((70, 12), np.float32))
    given = kind.array(x), kind.array(w), kind.array(target)
    for gradients, message in (
        ({"grad_weight": square, "bias": kind.array(w[:, 0].copy()), "grad_bias": square.reshape(-1)[5:75]}, "grad_bias overlaps grad_weight"),
        ({"grad_input": square[:21], "grad_weight": square}, "grad_weight overlaps grad_input"),
        ({"grad_input": square[-21:], "grad_weight": square}, "grad_weight overlaps grad_input"),
        ({"grad_weight": square, "out": square.reshape(-1)[7:8]}, "grad_weight overlaps out|out overlaps grad_weight"),
    ):
        with pytest.raises(nb.InvalidProblem, match=f"fused_linear_cross_entropy: ({message}), wants memory of its own"):
            nb.fused_linear_cross_entropy(*given, **gradients)
    ones = kind.array(np.ones((12, 12), np.float32))
    for gradients, message in (
        ({"grad_input": ones, "grad_weight": ones}, "grad_weight overlaps grad_input"),
        ({"grad_input": ones[:4], "grad_weight": ones[3:]}, "grad_weight overlaps grad_input"),
        ({"grad_weight": ones, "grad_bias": ones[:, 0]}, "grad_bias overlaps grad_weight"),
    ):
        with pytest.raises(nb.InvalidProblem, match=f"fused_linear_cross_entropy_backward: {message}, wants memory of its own"):
            nb.fused_linear_cross_entropy_backward(3.0, **gradients)
    assert (kind.numpy(ones) == 1).all(), "nothing is written before an error"
    nb.fused_linear_cross_entropy_backward(3.0, ones[:, :5], ones[:, 5:10])
    assert (kind.numpy(ones)[:, :10] == 3).all() and (kind.numpy(ones)[:, 10:] == 1).all()
