"""How tensors may be placed that the ops of segments are given as DTensors: rules for ``torch.ops.numba_baracuda``."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

from ..algebra import SUM, monoid_of
from ..algebra.gradients import GRADIENTS
from ..core.op import Op
from ..core.registry import OPS

#: placements of results, then of arguments; None for one that is no tensor
Rule = tuple[list[Any], list[Any]]


def _rows_alone(op: Op) -> Any:
    """How the result is placed where rows, and their ids, are divided: added up, or by row where a row needs no other; None where neither is so."""
    if op.operands[-1].axes[0] == "num_segments":
        return Partial() if monoid_of(op.traits["monoid"]) is SUM else None
    gradient = GRADIENTS.get(op.traits["gradient"])
    return None if gradient is None or gradient.fold or gradient.shares else Shard(0)


def _rules(op: Op, named: dict[str, Any]) -> list[Rule]:
    """The placements of the result, and of each argument that is given; columns may be divided of all ops."""
    values, others = op.operands[:-2], [None] * (len(named) - len(op.operands) + 1)
    every = range(1, named[values[0].name].ndim)
    rules: list[Rule] = [([each], [*[each] * len(values), Replicate(), *others]) for each in (Replicate(), *map(Shard, every))]
    placed = _rows_alone(op) if named.get("empty") is None else None
    if placed:
        by_row = [Shard(0) if operand.axes[0] == "num_inputs" else Replicate() for operand in op.operands[:-1]]
        rules.append(([placed], [*by_row, *others]))
    return rules


def _register(op: Op) -> None:
    overload = getattr(torch.ops.numba_baracuda, op.name).default
    names = [argument.name for argument in overload._schema.arguments]
    register_sharding(overload)(lambda *given: _rules(op, dict(zip(names, given, strict=False))))


for _op in OPS.values():
    if _op.family == "segment":
        _register(_op)
