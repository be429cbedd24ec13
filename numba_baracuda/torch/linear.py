"""The fused linear cross-entropy for PyTorch: a function with the arguments of torch's own, and a module that owns the weight."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch

from ..core.errors import InvalidProblem, Unsupported, WrongArguments
from ..core.registry import function
from .operators import define, plain, record

_NAME = "fused_linear_cross_entropy"
_SCHEMA = f"""{_NAME}(Tensor input, Tensor weight, Tensor target, Tensor? bias, Tensor? class_weight, Tensor? row_weight, Tensor? dy, bool[3] wanted,
    str reduction, SymInt ignore_index, float label_smoothing, float lse_square_scale, float? softcap, float logit_scale, str chunk,
    int? max_workspace_bytes, str? grad_weight_accum) -> (Tensor loss, Tensor grad_input, Tensor grad_weight, Tensor grad_bias)"""
_OPTIONS = (
    "reduction", "ignore_index", "label_smoothing", "lse_square_scale", "softcap", "logit_scale", "chunk", "max_workspace_bytes", "grad_weight_accum",
)  # fmt: skip
_GRADIENTS = ("grad_input", "grad_weight", "grad_bias")


def _run(
    input: Any, weight: Any, target: Any, bias: Any, class_weight: Any, row_weight: Any, dy: Any, wanted: Sequence[bool], *given: Any,
    outs: Sequence[Any] = (),
) -> Any:  # fmt: skip
    """The loss and the wanted gradients, in ``outs`` if they are given; those that are not wanted are empty."""
    options = dict(zip(_OPTIONS, given, strict=True))
    options["chunk"] = int(options["chunk"]) if options["chunk"].isdecimal() else options["chunk"]
    loss, *given_gradients = outs or (None, True, True, True)
    gradients = {name: out for name, each, out in zip(_GRADIENTS, wanted, given_gradients, strict=True) if each}
    arrays = {"bias": bias, "class_weight": class_weight, "row_weight": row_weight, "dy": dy, "out": loss}
    made = function(_NAME)(input, weight, target, **arrays, **gradients, **options)
    if outs:
        return tuple(outs)
    if not gradients:
        return made, *[input.new_empty(0) for _ in _GRADIENTS]
    return made.loss, *[input.new_empty(0) if getattr(made, name) is None else getattr(made, name) for name in _GRADIENTS]


def _fake(
    input: Any, weight: Any, target: Any, bias: Any, class_weight: Any, row_weight: Any, dy: Any, wanted: Sequence[bool], reduction: str, *given: Any
) -> Any:
    wide = torch.float64 if input.dtype is torch.float64 else torch.float32
    loss = input.new_empty(tuple(input.shape[:1]) if reduction == "none" else (), dtype=wide)
    shapes = input.shape, weight.shape, weight.shape[:1]
    return loss, *[input.new_empty(tuple(shape) if each else (0,)) for shape, each in zip(shapes, wanted, strict=True)]


_overload, _compute = define(_SCHEMA, _run, _fake, out=True)
_DY, _WANTED, _REDUCTION = 6, 7, 8


class _Loss(torch.autograd.Function):  # type: ignore[misc]
    """A mean or a sum has its gradients ready, which backward scales; losses of rows are computed once more, with the gradient of each."""

    @staticmethod
    def forward(ctx: Any, *values: Any) -> Any:
        later = values[_REDUCTION] == "none"
        asked = [*values[:_WANTED], (False,) * 3 if later else values[_WANTED], *values[_REDUCTION:]]
        loss, *gradients = _compute(*asked)
        ctx.ready = None if later else gradients
        ctx.tensors = [isinstance(each, torch.Tensor) for each in values]
        ctx.rest = [None if isinstance(each, torch.Tensor) else each for each in values]
        ctx.save_for_backward(*[each for each in values if isinstance(each, torch.Tensor)])
        ctx.mark_non_differentiable(*gradients)
        return loss, *gradients

    @staticmethod
    def backward(ctx: Any, dy: Any, *others: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise Unsupported("linear_cross_entropy: create_graph=True asks for a gradient that is differentiable, wants it False")
        wanted = ctx.rest[_WANTED]
        ready, ctx.ready = ctx.ready, None  # scaled in place, these serve once
        if ready is None:
            tensors = iter(ctx.saved_tensors)
            values = [next(tensors) if there else each for there, each in zip(ctx.tensors, ctx.rest, strict=True)]
            values[_DY] = dy
            ready = _compute(*values)[1:]
        elif plain(dy) and not torch._C._len_torch_dispatch_stack():
            function(f"{_NAME}_backward")(dy, **{name: each for name, each, asked in zip(_GRADIENTS, ready, wanted, strict=True) if asked})
        else:
            ready = [each * dy for each in ready]
        x, w, b = (each if asked else None for each, asked in zip(ready, wanted, strict=True))
        return x, w, None, b, *[None] * (len(ctx.rest) - 4)


record(_overload, _Loss)


def layer_of(name: str, **given: Any) -> tuple[Any, Any, Any, Any]:
    """Input [rows, H], weight [V, H], target [rows] and bias [V] of a layer, which the caller has under names of its own; a bias may be None.

    They are cast as autocast says. Raises where they cannot be those.
    """
    _, by_weight, by_target, by_bias = given
    for argument, each in given.items():
        if each is not None or argument != by_bias:
            strided(name, argument, each)
    input, weight, target, bias = given.values()
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise Unsupported(f"{name}: input is under a transform of torch.func, wants a call outside of it")
    if target.requires_grad:
        raise InvalidProblem(f"{name}: {by_target} requires grad, wants int64 or int32, which have no gradient")
    if target.dtype not in (torch.int64, torch.int32):
        raise InvalidProblem(f"{name}: {by_target} is {target.dtype}, wants int64 or int32, a class for each row")
    if not input.dim() or tuple(target.shape) != tuple(input.shape[:-1]):
        got, wants = [*target.shape], [*input.shape[:-1]]
        raise InvalidProblem(f"{name}: {by_target} has shape {got}, wants {wants}, a class for each row of input")
    if weight.dim() != 2 or weight.shape[1] != input.shape[-1]:
        raise InvalidProblem(f"{name}: {by_weight} has shape {[*weight.shape]}, wants [V, {input.shape[-1]}], as input has {[*input.shape]}")
    if bias is not None and tuple(bias.shape) != (weight.shape[0],):
        raise InvalidProblem(f"{name}: {by_bias} has shape {[*bias.shape]}, wants [{weight.shape[0]}], a number for each class")
    if torch.amp.is_autocast_available(input.device.type) and torch.is_autocast_enabled(input.device.type):
        dtype = torch.get_autocast_dtype(input.device.type)
        input, weight, bias = (each if each is None or each.dtype is torch.float64 else each.to(dtype) for each in (input, weight, bias))
    for argument, each in ((by_weight, weight), (by_target, target), (by_bias, bias)):
        if each is not None and each.device != input.device:
            raise InvalidProblem(f"{name}: {argument} is on {each.device}, wants {input.device}, where input is")
        if each is not None and argument != by_target and each.dtype != input.dtype:
            raise InvalidProblem(f"{name}: {argument} is {each.dtype}, wants {input.dtype}, as input")
    return input.reshape(-1, input.shape[-1]), weight, target.reshape(-1), bias


def strided(name: str, argument: str, given: Any) -> None:
    """Raises for what is no strided tensor with memory of its own."""
    if not isinstance(given, torch.Tensor):
        raise InvalidProblem(f"{name}: {argument} is a {type(given).__name__}, wants a torch tensor")
    if given.is_nested or given.layout is not torch.strided:
        raise Unsupported(f"{name}: {argument} is {'nested' if given.is_nested else given.layout}, wants a strided tensor")
    if is_dtensor(given):
        raise Unsupported(
            f"{name}: {argument} is a DTensor, wants a plain tensor, or a call of numba_baracuda.torch.distributed.linear_cross_entropy"
        )


def is_dtensor(given: Any) -> bool:
    """Whether this is a ``DTensor``, of which torch may have no module yet."""
    return type(given).__name__ == "DTensor"


def factors_of(name: str, input: Any, **given: Any) -> list[Any]:
    """Factors that the loss multiplies by, None where there are none, in the type that it is computed in; raises for those that require grad."""
    wide, made = torch.float64 if input.dtype is torch.float64 else torch.float32, []
    for argument, (each, shape) in given.items():
        if each is not None:
            strided(name, argument, each)
            if each.requires_grad:
                raise InvalidProblem(f"{name}: {argument} requires grad, wants {argument}.detach(), as the loss has no gradient for it")
            if shape is not None and tuple(each.shape) != tuple(shape):
                raise InvalidProblem(f"{name}: {argument} has shape {[*each.shape]}, wants {[*shape]}")
            if each.device != input.device:
                raise InvalidProblem(f"{name}: {argument} is on {each.device}, wants {input.device}, where input is")
        made.append(None if each is None else each.to(wide).reshape(-1))
    return made


def wanted_of(*tensors: Any) -> list[bool]:
    """Which of these tensors autograd wants a gradient of."""
    return [torch.is_grad_enabled() and each is not None and each.requires_grad for each in tensors]


def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    softcap: float | None = None,
    logit_scale: float = 1.0,
    lse_square_scale: float = 0.0,
    row_weight: Any = None,
    chunk: str | int = "auto",
    max_workspace_bytes: int | None = None,
    grad_weight_accum: str | None = None,
) -> Any:
    """loss = cross_entropy(linear(input, linear_weight, linear_bias), target), without the logits of all rows in memory.

    ``input`` […, H], ``linear_weight`` [V, H] and ``linear_bias`` [V] are of one floating dtype; under autocast they are cast to its dtype, as for
    ``nn.Linear``. ``target`` […] int64 or int32 holds classes. Arguments are those of ``torch.nn.functional.linear_cross_entropy`` where it has them
    (``weight`` is a factor for each class), else those of :func:`numba_baracuda.fused_linear_cross_entropy`, which says what each does. The loss is
    float32, float64 for float64: 0-d, or of the target's shape for ``reduction="none"``.

    DTensors go to :func:`numba_baracuda.torch.distributed.linear_cross_entropy`, by which their classes or rows may be divided among ranks.

    Gradients go to ``input``, ``linear_weight`` and ``linear_bias``; those that do not require grad cost no product. They are computed with the loss,
    and backward scales them in place; a second backward computes them again. With ``"none"``, backward computes logits again, and each row's
    gradient with its own factor. They are differentiable once. ``torch.func`` is refused.

    Raises ``InvalidProblem`` for shapes, dtypes or options that contradict each other, ``Unsupported`` for other dtypes.
    """
    name = "linear_cross_entropy"
    if is_dtensor(input) and is_dtensor(linear_weight):
        from .distributed import linear_cross_entropy as sharded

        return sharded(
            input, linear_weight, target, linear_bias=linear_bias, weight=weight, reduction=reduction, ignore_index=ignore_index,
            label_smoothing=label_smoothing, softcap=softcap, logit_scale=logit_scale, lse_square_scale=lse_square_scale, row_weight=row_weight,
            chunk=chunk, max_workspace_bytes=max_workspace_bytes, grad_weight_accum=grad_weight_accum,
        )  # fmt: skip
    rows, linear_weight, classes, linear_bias = layer_of(name, input=input, linear_weight=linear_weight, target=target, linear_bias=linear_bias)
    by_class, by_row = factors_of(name, rows, weight=(weight, linear_weight.shape[:1]), row_weight=(row_weight, target.shape))
    wanted = wanted_of(rows, linear_weight, linear_bias)
    values = [
        rows, linear_weight, classes, linear_bias, by_class, by_row, None, wanted, reduction,
        -100 if ignore_index is None else ignore_index, label_smoothing, lse_square_scale, softcap, logit_scale, str(chunk), max_workspace_bytes,
        grad_weight_accum,
    ]  # fmt: skip
    run = _overload if torch.compiler.is_compiling() else _Loss.apply if any(wanted) else _compute
    loss = run(*values)[0]
    return loss.reshape(target.shape) if reduction == "none" else loss


_LAYER = {"input", "linear_weight", "target", "linear_bias", "weight"}
_KEYWORDS = [name for name in inspect.signature(linear_cross_entropy).parameters if name not in _LAYER]


class FusedLinearCrossEntropyLoss(torch.nn.Module):  # type: ignore[misc]
    """:func:`linear_cross_entropy` with a weight [num_classes, in_features] of its own, in ``linear``.

    Takes the arguments of ``torch.nn.CrossEntropyLoss``, ``bias``, ``device`` and ``dtype`` of the linear layer, and keywords of the function.
    ``forward(input, target)`` returns the loss. FSDP shards the module as a whole, by ``fully_shard(module)``, since the weight is used here.
    """

    def __init__(
        self, in_features: int, num_classes: int, *, bias: bool = False, device: Any = None, dtype: Any = None, weight: Any = None, **options: Any
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for each in options.keys() - _KEYWORDS:
            raise WrongArguments(
                f"{name}: got an argument {each}, wants in_features, num_classes, bias, device, dtype, weight, {', '.join(_KEYWORDS)}"
            )
        if weight is not None and (not isinstance(weight, torch.Tensor) or tuple(weight.shape) != (num_classes,)):
            got = f"has shape {[*weight.shape]}" if isinstance(weight, torch.Tensor) else f"is a {type(weight).__name__}"
            raise InvalidProblem(f"{name}: weight {got}, wants a tensor [{num_classes}], a factor for each class")
        self.linear = torch.nn.Linear(in_features, num_classes, bias=bias, device=device, dtype=dtype)
        self.register_buffer("weight", weight)
        self.options = options

    def forward(self, input: Any, target: Any) -> Any:
        """The loss of inputs […, in_features] and classes […]."""
        return linear_cross_entropy(input, self.linear.weight, target, linear_bias=self.linear.bias, weight=self.weight, **self.options)

    def extra_repr(self) -> str:
        """The options, as a module's representation shows them."""
        return ", ".join(f"{name}={each!r}" for name, each in self.options.items())
