"""What ops return, by shape and dtype alone: contiguous tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem
from ..core.op import Op
from ..core.options import axes


def _ids(named: dict[str, Any]) -> Any:
    ids = named["segment_ids"]
    return getattr(ids, "segment_ids", ids)


def _segments(op: Op, named: dict[str, Any], first: Any) -> tuple[Any, ...]:
    if named["num_segments"] is None:
        raise InvalidProblem(f"{op.name}: num_segments is None, wants the number of segments")
    return (named["num_segments"], *first.shape[1:])


def _rows(op: Op, named: dict[str, Any], first: Any) -> tuple[Any, ...]:
    return (_ids(named).shape[0], *first.shape[1:])


def _input(op: Op, named: dict[str, Any], first: Any) -> tuple[Any, ...]:
    """The shape of what was reduced or is scanned."""
    if op.family == "scan" or not op.traits["backward"]:
        return tuple(first.shape)
    if named["x"] is None and named["input_shape"] is None:
        raise InvalidProblem(f"{op.name}: input_shape is missing, wants the shape of the reduced array, or x")
    return tuple(named["input_shape"] if named["x"] is None else named["x"].shape)


def _reduced(op: Op, named: dict[str, Any], first: Any) -> tuple[Any, ...]:
    gone = axes(op.name, named["axis"], first.dim())
    if named["keepdims"]:
        return tuple(1 if axis in gone else extent for axis, extent in enumerate(first.shape))
    return tuple(extent for axis, extent in enumerate(first.shape) if axis not in gone)


#: the axes of an op's output -> its shape
_SHAPES: dict[tuple[str, ...], Callable[[Op, dict[str, Any], Any], tuple[Any, ...]]] = {
    ("num_segments", "embedding_dim"): _segments,
    ("num_inputs", "embedding_dim"): _rows,
    ("input_shape",): _input,
    ("output_shape",): _reduced,
}


def torch_dtype(given: Any) -> torch.dtype:
    """A dtype of torch, from itself or its name."""
    return given if isinstance(given, torch.dtype) else getattr(torch, given)


def _dtype(op: Op, named: dict[str, Any], first: Any) -> torch.dtype:
    """That of the values, unless the caller chooses it or the table says so."""
    if named.get("dtype") is not None:
        return torch_dtype(named["dtype"])
    results = op.traits.get("results") or (op.indices if op.family == "reduce" else ())
    if op.traits.get("widened") and not first.dtype.is_floating_point:
        results = ("i64",)
    return torch_dtype(BY_NAME[results[0]].numpy_name) if results else first.dtype


def outputs(op: Op, named: dict[str, Any]) -> Any:
    """The results of a call with these values by name: a tensor, or two where indices are asked for."""
    first = next(each for each in named.values() if isinstance(each, torch.Tensor))
    (output,) = (operand for operand in op.operands if operand.output)
    shape = _SHAPES[output.axes](op, named, first)
    made = first.new_empty(shape, dtype=_dtype(op, named, first))
    if not named.get("return_indices"):
        return made
    return made, first.new_empty(shape, dtype=torch_dtype(named["index_dtype"]))
