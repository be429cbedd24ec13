"""Tensors of torch that require grad: no op takes them where its result would end their graph in silence."""

from __future__ import annotations

import sys

from ..core.registry import OPS


def instead(op: str) -> str:
    """What an op wants instead of a tensor that requires grad; "" where autograd records nothing, or where the result has no gradient anyway."""
    if not sys.modules["torch"].is_grad_enabled():
        return ""
    known = OPS.get(op)
    if known is None:
        return "x.detach(): this function has no gradient"
    if not known.backward and not op.endswith("_backward"):
        return ""
    return f"x.detach(), or a call of numba_baracuda.torch.{known.traits.get('differentiable', op)}, which is differentiable"
