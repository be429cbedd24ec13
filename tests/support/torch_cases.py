"""Small calls of every op of ``numba_baracuda.torch``, for tests that import this behind ``pytest.importorskip("torch")``."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

import numba_baracuda as nb
import numba_baracuda.torch as nbt
from numba_baracuda.arrays import arrays
from numba_baracuda.torch import OPERATORS
from numba_baracuda.torch.second import RULES

#: where the tests run
DEVICE = "cpu" if arrays.emulating() else "cuda"
NAMES = list(OPERATORS)
DIFFERENTIABLE = [name for name in NAMES if nb.OPS[name].backward]
TWICE = [name for name in DIFFERENTIABLE if OPERATORS[name].stem in RULES]
SEGMENTS = 4
_ROWS, _COLUMNS = 6, 2


def rows(seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Positive numbers without ties, [6, 2]."""
    drawn = torch.rand(_ROWS, _COLUMNS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return (drawn + 0.5).to(dtype).to(DEVICE)


def ids(name: str, index: torch.dtype = torch.int64) -> torch.Tensor:
    """Ids of which the first and the last are out of range, and one segment is empty; in order for the sorted ops."""
    ordered = [-1, 0, 0, 2, 2, 4]
    given = ordered if nb.OPS[name].traits["ordered"] else [4, 2, 0, 2, 0, -1]
    return torch.tensor(given, dtype=index, device=DEVICE)


def arguments(name: str, index: torch.dtype = torch.int64, dtype: torch.dtype = torch.float64) -> dict[str, Any]:
    """A call's arguments by name; those of a gradient belong to the op whose gradient it is."""
    op, operator = nb.OPS[name], OPERATORS[name]
    given: dict[str, Any] = {"x": rows(0, dtype)}
    if op.family == "segment":
        given |= {"segment_ids": ids(name, index), "num_segments": SEGMENTS}
        if operator.stem == "logsumexp":
            given["empty"] = 0.0  # differences of −∞ are NaN
    else:
        given["axis"] = 0
    if operator.backward:
        forward = OPERATORS[name.removesuffix("_backward")]
        given["y"] = forward.call(given)
        given["dy"] = torch.rand(given["y"].shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype).to(DEVICE)
        if op.family == "reduce" and "x" not in reads(name):
            given["input_shape"] = (_ROWS, _COLUMNS)
            del given["x"], given["y"]
    names = inspect.signature(getattr(nbt, name)).parameters
    return {each: given[role] for each in names if (role := operator.role(each)) in given}


def reads(name: str) -> set[str]:
    """The roles of what a kernel of the op reads."""
    return {OPERATORS[name].role(operand.name) for operand in nb.OPS[name].operands if not operand.output}


def function(name: str, given: dict[str, Any], inputs: list[str]) -> Callable[..., Any]:
    """The op as a function of some of its arguments."""
    return lambda *values: getattr(nbt, name)(**(given | dict(zip(inputs, values, strict=True))))


def inputs(name: str, given: dict[str, Any]) -> list[str]:
    """The arguments that have a gradient."""
    return [each for each, value in given.items() if isinstance(value, torch.Tensor) and value.is_floating_point()]
