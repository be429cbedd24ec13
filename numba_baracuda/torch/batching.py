"""``torch.func.vmap``: an op over one more axis, which is in front for reductions and scans, and the last of rows for segments."""

from __future__ import annotations

from typing import Any

import torch

from ..core import options
from ..core.errors import Unsupported
from .operators import Operator


def batched(operator: Operator, size: int, in_dims: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, Any]:
    """The results of a call whose tensors have an axis of ``size`` at ``in_dims``, and where the results have it."""
    op, named = operator.op, dict(zip(operator.roles, values, strict=True))
    dims = dict(zip(operator.roles, in_dims, strict=True))
    if isinstance(dims.get("segment_ids"), int):
        raise Unsupported(f"{op.name}: segment_ids differ along an axis of vmap, wants ids that all share")
    place = -1 if op.family == "segment" else 0
    for role in ("dy", "x", "y"):
        if isinstance(named.get(role), torch.Tensor):
            named[role] = _with_axis(named[role], dims[role], place, size)
    if "axis" in named:
        shape = named.get("input_shape")
        first = next(named[role] for role in ("x", "dy") if isinstance(named.get(role), torch.Tensor))
        rank = first.dim() - 1 if shape is None else len(shape)
        if shape is not None:
            named["input_shape"] = (size, *shape)
        one = op.family == "scan"
        given = options.axis(op.name, named["axis"], rank) if one else options.axes(op.name, named["axis"], rank)
        named["axis"] = given + 1 if isinstance(given, int) else tuple(axis + 1 for axis in given)
    made = operator.call(named)
    return made, (place,) * len(made) if isinstance(made, tuple) else place


def _with_axis(tensor: Any, dim: int | None, place: int, size: int) -> Any:
    """The tensor with the axis at its place: moved there, or new, with equal numbers along it."""
    if dim is not None:
        return tensor.movedim(dim, place)
    shape = [*tensor.shape]
    shape.insert(place % (len(shape) + 1), size)
    return tensor.unsqueeze(place).expand(shape)
