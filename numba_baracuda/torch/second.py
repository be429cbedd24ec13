"""Gradients of gradients: a formula for each input of the gradient of an op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from ..core.errors import Unsupported
from .operators import Operator


class Called(Protocol):
    """A call of the gradient of an op: what formulas are made of."""

    dy: Any
    y: Any

    def again(self, **replaced: Any) -> Any:
        """The gradient itself, with other values."""

    def forward(self, of: Any) -> Any:
        """The op that this is the gradient of."""

    def fold(self, of: Any) -> Any:
        """Sums over segments or axes."""

    def spread(self, of: Any) -> Any:
        """Each segment's or row's number for all of its elements."""


class Gradient:
    """The gradient of an op of one process that was called with these values, by role; ``shape`` is that of its result."""

    def __init__(self, operator: Operator, operators: dict[str, Operator], named: dict[str, Any], shape: tuple[int, ...]) -> None:
        self._operator, self._operators, self._named = operator, operators, named
        self.dy: Any = named["dy"]
        self.y: Any = named.get("y")
        options = {role: each for role, each in named.items() if role not in ("dy", "x", "y")} | {"check_ids": False, "initial": None}
        if operator.op.operands[0].axes[0] == "num_segments":
            options["num_segments"] = self.dy.shape[0]
        self._options = options | {"input_shape": shape, "keepdims": self.dy.dim() == len(shape)}
        self._forward = operator.op.name.removesuffix("_backward")
        self._sum = self._forward.replace(operator.stem, "sum")

    def again(self, **replaced: Any) -> Any:
        return self._operator.call(self._named | replaced | {"check_ids": False})

    def forward(self, of: Any) -> Any:
        return self._operators[self._forward].call(self._options | {"x": of})

    def fold(self, of: Any) -> Any:
        return self._operators[self._sum].call(self._options | {"x": of})

    def spread(self, of: Any) -> Any:
        return self._operators[f"{self._sum}_backward"].call(self._options | {"dy": of})


Rule = Callable[[Called, Any], Any]


def _of_dy(b: Called, g: Any) -> Any:
    """The op's gradient is linear in ``dy``: this folds what one unit of it gives."""
    return b.fold(g * b.again(dy=torch.ones_like(b.dy)))


def _of_x(b: Called, g: Any) -> Any:
    """For a gradient that is linear in ``x`` while ``y`` stays."""
    return b.again(x=g)


def _of_norm(b: Called, g: Any) -> Any:
    """For a gradient that has ``y`` as its only denominator; 0 where that is 0."""
    return torch.where(b.y == 0, 0, -b.fold(g * b.again()) / b.y)


def _of_softmax(b: Called, g: Any) -> Any:
    """Rows of no segment have none, as in the next one."""
    sums = b.fold(g * b.y)
    inside = b.spread(torch.ones_like(sums))
    return inside * g * b.dy - g * b.spread(b.fold(b.dy * b.y)) - b.dy * b.spread(sums)


def _of_log_softmax_dy(b: Called, g: Any) -> Any:
    sums = b.fold(g * b.y.exp())
    return g * b.spread(torch.ones_like(sums)) - b.spread(sums)


#: stems of ops that are linear in their input, as their gradients are
LINEAR = ("sum", "mean", "cumsum")
#: stem -> the gradients of the op's gradient by role, for the cotangent g of its result
RULES: dict[str, dict[str, Rule]] = {
    **{stem: {"dy": lambda b, g: b.forward(g)} for stem in LINEAR},
    "logsumexp": {"dy": _of_dy, "x": lambda b, g: g * b.again(), "y": lambda b, g: -b.fold(g * b.again())},
    "norm2": {"dy": _of_dy, "x": _of_x, "y": _of_norm},
    "var": {"dy": _of_dy, "x": _of_x},
    "std": {"dy": _of_dy, "x": _of_x, "y": _of_norm},
    "softmax": {"dy": lambda b, g: b.again(dy=g), "y": _of_softmax},
    "log_softmax": {"dy": _of_log_softmax_dy, "y": lambda b, g: -g * b.y.exp() * b.spread(b.fold(b.dy))},
}


def once(name: str, stem: str) -> Unsupported:
    """The error of a gradient that is asked for its own."""
    return Unsupported(f"{name} has no gradient: {stem} is differentiable once; {', '.join(RULES)} are twice")
