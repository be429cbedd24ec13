"""The ``autograd.Function`` of each op, in two forms: what it saves, its gradient, and its rules under ``torch.func``."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad

from ..core.errors import InvalidProblem, Unsupported
from . import batching
from .operators import Operator
from .second import LINEAR, RULES, Gradient, once

#: the rule of ties where autograd asks for a gradient, by family: that of torch.amax
_TIES = {"reduce": "even"}
#: inputs of a linear op that add a constant
_CONSTANTS = ("empty", "initial")


def _saved(operator: Operator, operators: dict[str, Operator]) -> list[str]:
    """The roles of what the gradient of an op reads besides the gradient of its result."""
    op = operator.op
    reader = op if operator.backward and operator.stem in RULES else operators[op.backward].op if op.backward else None
    read = [operator.role(each.name) for each in reader.operands if not each.output] if reader else []
    return read if operator.backward else [role for role in read if role != "dy"]


def functions_of(operator: Operator, operators: dict[str, Operator]) -> tuple[Any, Any]:
    """The two classes of an op, whose gradient is another of these ops: one for ``torch.func`` and the dispatcher, one for tensors with memory.

    ``torch.func`` wants a forward without a context. With one, a call costs less.
    """
    op, roles, saved, linear = operator.op, operator.roles, _saved(operator, operators), operator.stem in LINEAR
    nothing, tensors = (None,) * len(roles), operator.schema.tensors
    sources = [roles.index(role) if operator.backward or role != "y" else -1 for role in saved]
    ids_at = roles.index("segment_ids") if "segment_ids" in roles else None

    def checked(values: tuple[Any, ...]) -> None:
        if ids_at is not None and getattr(values[ids_at], "requires_grad", False):
            raise InvalidProblem(f"{op.name}: segment_ids requires grad, wants int32 or int64, which have no gradient")

    def forward(*values: Any) -> Any:
        checked(values)
        return operator.compute(*values)

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        first = output
        if isinstance(output, tuple):
            first, *others = output
            ctx.mark_non_differentiable(*others)
        if not operator.differentiable:
            ctx.mark_non_differentiable(first)
        ctx.shape = (first if operator.backward else inputs[0]).shape
        ctx.rest = [*nothing[:tensors], *inputs[tensors:]]
        kept = [first if k < 0 else inputs[k] for k in sources]
        if ids_at is not None and not isinstance(inputs[ids_at], torch.Tensor):
            ctx.rest[ids_at] = inputs[ids_at]
            kept = [None if each is inputs[ids_at] else each for each in kept]
        ctx.save_for_backward(*kept)
        if linear and forward_ad._current_level >= 0:
            ctx.save_for_forward(*kept)

    def eager_forward(ctx: Any, *values: Any) -> Any:
        checked(values)
        output = operator.schema.call(values)
        setup_context(ctx, values, output)
        return output

    def restored(ctx: Any) -> dict[str, Any]:
        named = dict(zip(roles, ctx.rest, strict=True))
        for role, tensor in zip(saved, ctx.saved_tensors, strict=True):
            if tensor is not None:
                named[role] = tensor
        return named

    known = ["dy", "input_shape", "y", *roles]
    constants: dict[str, Any] = {"check_ids": False} | ({"ties": _TIES[op.family]} if op.family in _TIES else {})
    gradient = operators[op.backward] if op.backward else None
    if gradient is not None:
        of = zip(gradient.roles, gradient.schema.names, strict=True)
        constants |= {role: gradient.schema.defaults.get(name) for role, name in of if role not in known and role not in constants}
    places = {role: k for k, role in enumerate([*known, *constants])}
    saved_places, order = [known.index(role) for role in saved], [places[role] for role in gradient.roles] if gradient else []

    def backward(ctx: Any, grad: Any, *others: Any) -> tuple[Any, ...]:
        if gradient is None or not ctx.needs_input_grad[0]:
            return nothing
        found = [grad, ctx.shape, None, *ctx.rest, *constants.values()]
        for k, tensor in zip(saved_places, ctx.saved_tensors, strict=True):
            if tensor is not None:
                found[k] = tensor
        return gradient.on([found[k] for k in order]), *nothing[1:]

    def backward_again(ctx: Any, grad: Any) -> tuple[Any, ...]:
        rules = RULES.get(operator.stem)
        if rules is None:
            raise once(op.name, operator.stem)
        given = Gradient(operator, operators, restored(ctx), ctx.shape)
        wanted = zip(roles, ctx.needs_input_grad, strict=True)
        return tuple(rules[role](given, grad) if needed and role in rules else None for role, needed in wanted)

    def jvp(ctx: Any, tangent: Any, *others: Any) -> Any:
        constants = dict.fromkeys(_CONSTANTS) | {"check_ids": False}
        return operator.call(restored(ctx) | {roles[0]: tangent} | constants)

    def no_jvp(ctx: Any, *tangents: Any) -> Any:
        raise Unsupported(
            f"{op.name} has no gradient in forward mode, which {', '.join(LINEAR)} and their gradients have; wants torch.func.vjp or grad"
        )

    def vmap(info: Any, in_dims: tuple[Any, ...], *values: Any) -> tuple[Any, Any]:
        return batching.batched(operator, info.batch_size, in_dims, values)

    members = {"forward": forward, "setup_context": setup_context, "backward": backward_again if operator.backward else backward, "vmap": vmap}
    members["jvp"] = jvp if linear else no_jvp
    eager = {name: each for name, each in members.items() if name not in ("setup_context", "vmap")} | {"forward": eager_forward}
    name = "".join(part.capitalize() for part in op.name.split("_"))
    function, fast = (type(name, (torch.autograd.Function,), {each: staticmethod(member) for each, member in of.items()}) for of in (members, eager))
    return function, fast
