"""The functions that users call: they make views of arrays, a descriptor of the views, and run its plan."""

from __future__ import annotations

import numbers
from typing import Any, NamedTuple

import numpy as np

from ..arrays import allocation, arrays, streams
from ..arrays.views import View, remember
from ..core.errors import InvalidProblem, Unsupported
from ..core.options import flag, key_of
from ..plans import plan
from ..plans.memos import memo
from ..plans.signatures import guarded
from . import compact
from .descriptor import FLCE_DEFAULT_IGNORE_INDEX, FusedLinearCrossEntropyBackwardDescriptor, FusedLinearCrossEntropyDescriptor

_NAME = "fused_linear_cross_entropy"
_calls: dict[Any, plan.Plan] = memo()


class FusedLinearCrossEntropyResult(NamedTuple):
    """What :func:`fused_linear_cross_entropy` returns where a caller asks for more than the loss; other fields are None."""

    loss: Any
    grad_input: Any = None
    grad_weight: Any = None
    grad_bias: Any = None
    lse: Any = None
    z_loss: Any = None
    accuracy: Any = None
    predicted: Any = None
    entropy: Any = None


def read(given: Any, op: str, name: str) -> View:
    """The view of an array; a 0-d array is seen as one of shape [1]."""
    view = arrays.read(given, (op, name, ""))
    if view.shape:
        return view
    return view.seen_as((1,), (1,))


@guarded
def fused_linear_cross_entropy(
    input: Any,
    weight: Any,
    target: Any,
    *,
    reduction: str = "mean",
    ignore_index: int = FLCE_DEFAULT_IGNORE_INDEX,
    bias: Any = None,
    label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    class_weight: Any = None,
    row_weight: Any = None,
    dy: Any = None,
    dy_entropy: Any = None,
    skip_ignored: bool = False,
    grad_input: Any = None,
    grad_weight: Any = None,
    grad_bias: Any = None,
    accumulate_grad_weight: bool = False,
    grad_weight_accum: str | None = None,
    return_lse: bool = False,
    return_z_loss: bool = False,
    return_accuracy: bool = False,
    return_predicted: bool = False,
    return_entropy: bool = False,
    chunk: str | int = "auto",
    max_workspace_bytes: int | None = None,
    out: Any = None,
    stream: Any = None,
    workspace: Any = None,
) -> Any:
    """loss[i] = log Σⱼ exp z[i, j] − z[i, target[i]] with z = input · weightᵀ + bias, and its gradients.

    ``input`` [BT, H], ``weight`` [V, H] and ``bias`` [V] are of one dtype: float16, bfloat16, float32 or float64; ``target`` [BT] is int64 or int32.
    Rows of ``input`` and ``weight`` may have any stride, their elements are contiguous. No more than ``chunk`` rows of logits exist at a time.

    ``reduction``: "mean" over the targets that are not ``ignore_index``, "sum", or "none", a loss for each row. A row whose target is ignored, or is
    no class, is left out: its loss and gradient are 0, and it adds nothing to ``grad_weight``, whatever its input holds. Where all rows are left
    out, the mean is 0.

    Numbers that are not finite count as in PyTorch, except in rows that are left out. A row with a logit that is NaN or +∞, or with no logit but
    −∞, has loss NaN and gradient NaN, which reaches all of ``grad_weight``. A class of logit −∞ has probability 0; a row whose target it is has
    loss +∞, and the gradient that belongs to this probability. A factor of 0 leaves nothing out: 0 · NaN and 0 · ∞ are NaN, for ``row_weight``,
    ``class_weight`` and ``dy``, and in products with a ``weight`` that is not finite. lse is NaN with a NaN, else +∞ with a +∞, and −∞ where all
    logits are.

    Options apply in this order: z becomes ``logit_scale`` · z, then c tanh(z / c) with the ``softcap`` c. With ``label_smoothing`` a, the loss is (1
    − a) of the above plus a / V · Σⱼ (lse − zⱼ), lse = log Σⱼ exp zⱼ. With ``class_weight`` w [V], the terms of class j are multiplied by wⱼ, and the
    mean divides by Σ w[target]. With ``lse_square_scale`` s, s · lse² is added, averaged over the count of targets. ``row_weight`` [BT] multiplies
    all of a row's loss. Weights are float32, float64 for float64. Where Σ w[target] is 0, the mean is that of s · lse² alone. Both c and 1 / c must
    be in the range of float32 (float64).

    Gradients are of the loss times ``dy``: a number or an array of one element, for "none" also one for each row (None is 1). ``grad_input`` [BT, H],
    ``grad_weight`` [V, H] and ``grad_bias`` [V] are arrays to be overwritten, or True for new ones; None leaves the gradient out. With
    ``accumulate_grad_weight`` the gradient is added to what grad_weight holds; it is rounded after every chunk but with ``grad_weight_accum="f32"``,
    which takes scratch of four bytes an element.

    ``dy_entropy`` [BT], an array, adds to the gradients those of the entropies of rows times these numbers; it wants ``reduction="none"``.

    ``skip_ignored`` leaves rows with an ignored target out of the products: the others are gathered, which is faster where many are ignored. The host
    reads their count from the device, so the call waits, cannot be captured, and takes no ``workspace``. The results are the same.

    ``chunk``: "auto", the fastest number of rows known whose scratch fits ``max_workspace_bytes``, or whose logits fit 512 MiB where that is None;
    "lean" halves this limit; "liger", :func:`pick_chunk_size`; or a number.

    Returns the loss, float32 (float64 for float64), 0-d for "mean" and "sum"; ``out=`` may also be of the input's dtype, or of one element. With new
    gradients or one of the following, returns a :class:`FusedLinearCrossEntropyResult`: ``return_lse`` [BT], 0 where the target is ignored or no
    class; ``return_z_loss``, the part of the loss that lse_square_scale adds; ``return_accuracy``, the share of targets whose logit is the greatest;
    ``return_predicted`` [BT] int64, the first class of the greatest logit, or the first that is NaN, −1 where the target is ignored or no class;
    ``return_entropy`` [BT], −Σⱼ pⱼ log pⱼ with p = exp(z − lse), 0 where the target is ignored or no class.

    Sums are kept in float32 (float64), logits and their gradient rounded to the input's dtype. Every run gives the same bits. Nothing waits for the
    device; with ``workspace=`` the call can be captured in a CUDA graph. ``stream=`` takes a stream or its handle. cuBLAS, which the extras install,
    computes the products. After Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training" (2024), and Milakov and Gimelshein, "Online
    normalizer calculation for softmax" (2018).

    Raises ``InvalidProblem`` for shapes, dtypes or options that contradict each other, ``Unsupported`` for other dtypes and layouts, and where
    cuBLAS is not found.
    """
    x, w = read(input, _NAME, "input"), read(weight, _NAME, "weight")
    for view, wants in ((x, "[BT, H]"), (w, "[V, H]")):
        if len(view.shape) != 2:
            raise InvalidProblem(f"{_NAME}: {view.name} has shape {list(view.shape)}, wants {wants}")
    if target is None:
        raise InvalidProblem(f"{_NAME}: target is None, wants an array of int64 or int32, [BT]")
    flags = {
        "skip_ignored": skip_ignored, "return_lse": return_lse, "return_z_loss": return_z_loss, "return_accuracy": return_accuracy,
        "return_predicted": return_predicted, "return_entropy": return_entropy,
    }  # fmt: skip
    gradients = {"grad_input": grad_input, "grad_weight": grad_weight, "grad_bias": grad_bias}
    wanted = {name: bool(each) if isinstance(each, np.bool_) else each for name, each in gradients.items() if each is not None}
    options = (
        reduction, ignore_index, label_smoothing, lse_square_scale, softcap, logit_scale, chunk, max_workspace_bytes, accumulate_grad_weight,
        grad_weight_accum,
    )  # fmt: skip
    made = _plan_of(x, w, options, flags)
    if accumulate_grad_weight and isinstance(wanted.get("grad_weight", False), bool):
        raise InvalidProblem(f"{_NAME}: accumulate_grad_weight adds to grad_weight, which is {grad_weight!r}, wants an array")
    problem, handle = made.descriptor, streams.stream_handle(stream, x, _NAME)
    given = {
        "input": input, "weight": weight, "target": target, "bias": bias, "class_weight": class_weight, "row_weight": row_weight, "dy": dy,
        "dy_entropy": dy_entropy,
    }  # fmt: skip
    inputs = {name: each for name, each in given.items() if each is not None}

    def empty(shape: tuple[int, ...], element: str) -> Any:
        return allocation.empty(x, shape, element, handle)

    total, wide = problem.row_shape if problem.each else (), problem.accumulator
    results = {"out": empty(total, wide) if out is None else out}
    shapes = {"grad_input": problem.input_shape, "grad_weight": problem.weight_shape, "grad_bias": problem.class_shape}
    for name, each in wanted.items():
        if each is not False:
            results[name] = empty(shapes[name], x.element) if each is True else each
    for name, asked, shape, element in (
        ("lse", return_lse, problem.row_shape, wide), ("z_loss", return_z_loss, total, wide), ("accuracy", return_accuracy, total, wide),
        ("predicted", return_predicted, problem.row_shape, "i64"), ("entropy", return_entropy, problem.row_shape, wide),
    ):  # fmt: skip
        if asked:
            results[name] = empty(shape, element)
    if skip_ignored and problem.bt:
        if workspace is not None:
            raise Unsupported(f"{_NAME}: workspace is given with skip_ignored=True, whose scratch depends on the targets; wants one of them")
        views = _operands(made, x, w, inputs | results)
        made.bound(views)  # errors come before the first write

        def run(inputs: dict[str, Any], results: dict[str, Any]) -> None:
            counted_x = read(inputs["input"], _NAME, "input")
            inner = _plan_of(counted_x, w, options, flags)
            inner.execute(_operands(inner, counted_x, w, inputs | results), handle, None)

        compact.run_compacted(compact.CountedRows(_NAME, views[2], problem.ignore_index, handle), run, inputs, results, problem.each)
    else:
        made.execute(_operands(made, x, w, inputs | results), handle, workspace)
    if True in (return_lse, return_z_loss, return_accuracy, return_predicted, return_entropy) or any(each is True for each in wanted.values()):
        loss = results.pop("out")
        return FusedLinearCrossEntropyResult(loss, **results)
    return results["out"]


def _plan_of(x: View, w: View, options: tuple[Any, ...], flags: dict[str, Any]) -> plan.Plan:
    key = (x.shape, w.shape, x.element, x.device, key_of(*options, *flags.values()))
    made = _calls.get(key)
    if made is None:
        for name, given in flags.items():
            flag(_NAME, name, given)
        (rows, width), classes = x.shape, w.shape[0]
        descriptor = FusedLinearCrossEntropyDescriptor(rows, width, classes, x.element, *options)
        made = remember(_calls, key, plan.select(descriptor, device=x.device))
    return made


def _operand(given: Any, made: plan.Plan, name: str) -> View:
    """The view of an array, or of a number where the operand may be one."""
    return made.read_operand(given, name) if isinstance(given, numbers.Real) and not isinstance(given, bool) else read(given, made.op.name, name)


def _operands(made: plan.Plan, x: View, w: View, given: dict[str, Any]) -> list[View]:
    """The plan's operands, of which input and weight are the first."""
    return [x, w, *[_operand(given[operand.name], made, operand.name) for operand in made.op.operands[2:] if operand.name in given]]


@guarded
def fused_linear_cross_entropy_backward(
    dy_scalar: Any, grad_input: Any = None, grad_weight: Any = None, *, grad_bias: Any = None, stream: Any = None, workspace: Any = None
) -> None:
    """grad = dy_scalar · grad, in place, for the gradients of :func:`fused_linear_cross_entropy` that are given; one rounding.

    ``dy_scalar`` is a number, or an array of one element on the gradients' device, of their dtype or the dtype of their loss; only the device reads
    the array. ``grad_input`` [BT, H], ``grad_weight`` [V, H], ``grad_bias`` [V]: float16, bfloat16, float32 or float64, of any strides. The number 1
    launches nothing. NaN, infinities and 0 follow IEEE arithmetic; a second call multiplies again. ``stream=`` takes a stream or its
    handle; ``workspace=`` is not needed. Raises ``InvalidProblem`` for arrays that contradict each other, ``Unsupported`` for other dtypes.
    """
    op = f"{_NAME}_backward"
    given = {"grad_input": grad_input, "grad_weight": grad_weight, "grad_bias": grad_bias}
    views = {name: arrays.read(each, (op, name, "")) for name, each in given.items() if each is not None}
    for name, rank in (("grad_input", 2), ("grad_weight", 2), ("grad_bias", 1)):
        if name in views and len(views[name].shape) != rank:
            raise InvalidProblem(f"{op}: {name} has shape {list(views[name].shape)}, wants {rank} axes")
    if not views:
        if workspace is not None:
            arrays.read(workspace, (op, "workspace", ""))
        return
    first = next(iter(views.values()))
    rows, classes = views.get("grad_input"), views.get("grad_weight", views.get("grad_bias"))
    width = rows.shape[1] if rows else classes.shape[1] if classes and len(classes.shape) == 2 else 1
    descriptor = FusedLinearCrossEntropyBackwardDescriptor(rows.shape[0] if rows else 0, width, classes.shape[0] if classes else 1, first.element)
    made = plan.select(descriptor, device=first.device)
    made.execute([*views.values(), _operand(dy_scalar, made, "dy_scalar")], streams.stream_handle(stream, first, op), workspace)
