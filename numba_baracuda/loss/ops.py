"""The table of the loss family: an op is a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..core.dtypes import BY_NAME, FLOATS
from ..core.op import Layout, Op, Operand, Variant, contiguous
from ..core.registry import OPS
from ..core.vocabulary import LossKind, OpCategory
from . import recipes
from .calls import fused_linear_cross_entropy, fused_linear_cross_entropy_backward
from .descriptor import FusedLinearCrossEntropyBackwardDescriptor, FusedLinearCrossEntropyDescriptor

_NAME = "fused_linear_cross_entropy"
_ROUNDINGS = (
    "Logits and their gradient are rounded to the element's type, and so are both gradients, that of the weight once more for every chunk of rows "
    'but the first, unless grad_weight_accum is "f32"; losses and sums are not.'
)


def _wanted(name: str, axes: str, **more: Any) -> Operand:
    return Operand(name, (axes,), optional=True, **more)


#: operands in the order in which their shapes are checked
GIVEN = (
    Operand("input", ("input_shape",)), Operand("weight", ("weight_shape",)), Operand("target", ("row_shape",), element="i64 i32"),
    _wanted("bias", "class_shape"), _wanted("class_weight", "class_shape", element="accumulator"),
    _wanted("row_weight", "row_shape", element="accumulator"), _wanted("dy", "out_shape", element="either", number=True),
    _wanted("dy_entropy", "row_shape", element="either"),
)  # fmt: skip
MADE = (
    Operand("out", ("out_shape",), element="either", output=True), _wanted("grad_input", "input_shape", output=True),
    _wanted("grad_weight", "weight_shape", output=True), _wanted("grad_bias", "class_shape", output=True),
    _wanted("lse", "row_shape", element="accumulator", output=True), _wanted("z_loss", "out_shape", element="accumulator", output=True),
    _wanted("accuracy", "out_shape", element="accumulator", output=True), _wanted("predicted", "row_shape", element="i64", output=True),
    _wanted("entropy", "row_shape", element="accumulator", output=True),
)  # fmt: skip
UPDATED = (
    _wanted("grad_input", "input_shape", output=True, updated=True), _wanted("grad_weight", "weight_shape", output=True, updated=True),
    _wanted("grad_bias", "class_shape", output=True, updated=True), Operand("dy_scalar", ("out_shape",), element="either", number=True),
)  # fmt: skip

_PLAIN = ("input", "weight", "target", "out")
_GRADIENTS = (*_PLAIN, "grad_input", "grad_weight")


def _samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    """Training and inference at a language model's size in every type, an odd vocabulary, and options one by one and all together."""

    def problem(names: tuple[str, ...], bt: int, h: int, v: int, **options: Any) -> tuple[Any, dict[str, Layout]]:
        described = FusedLinearCrossEntropyDescriptor(bt, h, v, **options)
        layouts = {operand.name: contiguous(getattr(described, operand.axes[0])) for operand in op.operands if operand.name not in described.refused}
        return described, {name: layout for name, layout in layouts.items() if name in names}

    everything, large = tuple(operand.name for operand in op.operands), (8192, 4096, 128256)
    for element in op.elements:
        yield problem(_GRADIENTS, *large, element=element)
        yield problem(_PLAIN, *large, element=element)
        yield problem(everything, 2048, 1024, 50257, element=element, label_smoothing=0.1, lse_square_scale=1e-4, softcap=30.0)
        yield problem((*_GRADIENTS, "dy", "dy_entropy", "entropy"), *large, element=element, reduction="none", logit_scale=0.8)
    yield problem(_GRADIENTS, 8192, 2304, 256000, element="bf16", softcap=30.0)
    yield problem((*_GRADIENTS, "bias", "grad_bias"), 8192, 768, 50257, element="bf16", label_smoothing=0.1)
    for extents in ((2048, 4096, 32000), (4096, 256, 4096), (1024, 64, 256)):
        yield problem(_GRADIENTS, *extents, element="bf16")
    yield problem((*_GRADIENTS, "dy", "lse"), 2048, 4096, 32000, element="bf16", reduction="none", grad_weight_accum="f32")
    yield problem(_GRADIENTS, 2048, 4096, 32000, element="bf16", reduction="sum")


def _backward_samples(op: Op) -> Iterator[tuple[Any, dict[str, Layout]]]:
    for element in op.elements:
        described = FusedLinearCrossEntropyBackwardDescriptor(8192, 4096, 128256, element)
        for upstream in dict.fromkeys((element, BY_NAME[element].accumulator)):
            layouts = {operand.name: contiguous(getattr(described, operand.axes[0])) for operand in op.operands}
            yield described, layouts | {"dy_scalar": Layout((1,), (1,), 0, upstream)}
        yield described, layouts | {"dy_scalar": Layout((), (), number=0.5)}


OPS.add(
    Op(
        _NAME, LossKind.FUSED_LINEAR_CROSS_ENTROPY, OpCategory.LOSS, "loss", "loss[i] = log Σⱼ exp(x[i] · w[j]) − x[i] · w[target[i]]",
        (*GIVEN, *MADE), (Variant("chunked", True, recipes.chunked, recipes.too_large),), FLOATS, backward=f"{_NAME}_backward", samples=_samples,
        traits={"plan_attributes": ("chunk_size", "conceptual_scratch_bytes"), "roundings": _ROUNDINGS, "differentiable": "linear_cross_entropy"},
    )
)  # fmt: skip
OPS.add(
    Op(
        f"{_NAME}_backward", LossKind.FUSED_LINEAR_CROSS_ENTROPY, OpCategory.LOSS, "loss", "grad = dy · grad", UPDATED,
        (Variant("scaled", True, recipes.scaled),), FLOATS, samples=_backward_samples,
        traits={"differentiable": "linear_cross_entropy"},
    )
)  # fmt: skip

FUNCTIONS = {each.__name__: each for each in (fused_linear_cross_entropy, fused_linear_cross_entropy_backward)}
