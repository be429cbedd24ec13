"""Tensors of torch that ops do not take: those that require grad, where a result would end their graph in silence, and those without memory."""

from __future__ import annotations

import sys
from typing import Any

from ..core.registry import OPS

#: what names of ops begin with whose operands are divided among processes
_SHARDED = "distributed."


def instead(op: str) -> str:
    """What an op wants instead of a tensor that requires grad; "" where autograd records nothing, or where the result has no gradient anyway."""
    if not sys.modules["torch"].is_grad_enabled():
        return ""
    known = OPS.get(op.removeprefix(_SHARDED))
    if known is None:
        return "x.detach(): this function has no gradient"
    if not known.backward and not known.name.endswith("_backward"):
        return ""
    return f"x.detach(), or a call of {_for_torch(op)}, which is differentiable"


def layout_of(tensor: Any) -> tuple[str, str] | None:
    """What a tensor is that is no strided memory, and what an op wants instead; None of others, as far as torch says."""
    if tensor.is_nested:
        return "a nested torch tensor", "a strided one, such as its x.values()"
    if str(tensor.layout) != "torch.strided":
        return f"a torch tensor of layout {tensor.layout}", "a strided one, such as x.to_dense()"
    return None


def traced(op: str) -> tuple[str, str]:
    """The same of a strided tensor that has no memory."""
    wants = f"a call of {_for_torch(op)}" if op.removeprefix(_SHARDED) in OPS else "a call outside of transforms and compilers"
    return "a torch tensor without memory, as torch.func and compilers have them", wants


def wrapped(tensor: Any) -> tuple[str, str]:
    """The same of a tensor that stands for others, such as a DTensor."""
    return f"a torch {type(tensor).__name__} without memory of its own", "a plain tensor, such as x.to_local() of a DTensor"


def _for_torch(op: str) -> str:
    """The function of torch for an op of this name."""
    sharded = _SHARDED if op.startswith(_SHARDED) else ""
    name = op.removeprefix(_SHARDED)
    return f"numba_baracuda.torch.{sharded}{OPS[name].traits.get('differentiable', name)}"
