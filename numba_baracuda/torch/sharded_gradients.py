"""Gradients of ops whose operands are divided among processes, and those of the gradients.

What all ranks have, results of axes and of segments, has on all ranks the same gradient, that of the sum over ranks of what is made of it; what a
rank has a part of, such as rows, has the gradient of that part.
"""

from __future__ import annotations

from typing import Any

import torch

from .. import distributed
from ..core.registry import OPS
from ..distributed import communicator, part
from ..distributed.axis import SCANS
from ..segment.descriptor import OrderedIds
from .operators import Operator, stem_of
from .second import LINEAR, RULES, once
from .sharded_scans import gathered
from .sharded_scans import gradient as scanned


class Call:
    """A call of an op: what it is given besides its input, an axis, or ids and the number of segments, and options."""

    def __init__(self, name: str, given: Any, options: dict[str, Any]) -> None:
        self.name, self.given, self.options, self.group = name, list(given), options, options["group"]
        self.op, self.stem = OPS[name], stem_of(name)
        self.back = OPS[self.op.backward or ""]
        operands = [operand for operand in self.back.operands[:-1] if operand.name != "segment_ids"]
        #: what the gradient reads, by role
        self.reads = [Operator.role(operand.name) for operand in operands]
        if name in SCANS and self.stem not in LINEAR:
            self.reads = ["dy", "x"]
        self.segments = 0
        if self.op.family == "segment":
            ids, segments = self.given
            self.segments = ids.num_segments if isinstance(ids, OrderedIds) else segments
        #: roles of what has a row for each segment
        self.by_segment = {Operator.role(operand.name) for operand in operands if operand.axes[0] == "num_segments"}
        self.shared = options.get("result") == "sharded"

    @staticmethod
    def promise(name: str) -> str:
        """What the docstring of an op says about its gradient."""
        return f"Differentiable {'twice' if stem_of(name) in RULES else 'once'}."

    def run(self, x: Any) -> Any:
        """The result."""
        return getattr(distributed, self.name)(x.detach(), *self.given, **self.options)

    def gradient(self, named: dict[str, Any], shape: Any) -> Any:
        """The gradient of this rank's part, by the values of :attr:`reads`; ``shape`` is that of the part."""
        values = {role: named[role].detach() for role in self.reads}
        if self.name in SCANS:
            return scanned(self.name, values.get("x"), values["dy"], *self.given, **self.options)
        function, keywords = getattr(distributed, self.back.name), self.back.traits["keywords"]
        chosen = {name: self.options[name] for name in ("group", *keywords) if name in self.options}
        if self.op.family == "reduce":
            ties = {"ties": "even"} if "ties" in keywords else {}
            return function(**values, axis=self.given[0], **({} if "x" in values else {"input_shape": tuple(shape)}), **chosen, **ties)
        given = [values[role].contiguous() for role in self.reads]
        return function(*given, self.given[0], *([] if self.by_segment else [self.segments]), **chosen)

    def linear(self, stem: str, keepdims: bool) -> Call:
        """The op of another stem, such as sum, or of this one, without what adds constants; ranks have the whole of its result."""
        kept = {name: each for name, each in self.options.items() if self.name in SCANS or name == "group"}
        given = [self.given[0], keepdims] if self.op.family == "reduce" else self.given
        return Call(self.name.replace(self.stem, stem), given, kept)


def differentiable(x: Any, call: Call) -> Any:
    """The result of a call, which autograd records."""
    return _Result.apply(x, call)


class _Result(torch.autograd.Function):  # type: ignore[misc]
    """An op. Its gradient is a function of its own, so that that has a gradient, too."""

    @staticmethod
    def forward(ctx: Any, x: Any, call: Call) -> Any:
        y = call.run(x)
        ctx.call, ctx.shape = call, x.shape
        ctx.save_for_backward(x if "x" in call.reads else None, y if "y" in call.reads else None)
        return y

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, None]:
        call, (x, y) = ctx.call, ctx.saved_tensors
        if call.shared:
            both = ("dy", dy), ("y", y)
            dy, y = (_Whole.apply(each, call.segments, call.group) if role in call.by_segment else each for role, each in both)
        return _Gradient.apply(dy, x, y, ctx.shape, call), None


class _Gradient(torch.autograd.Function):  # type: ignore[misc]
    """The gradient of an op, of the whole of what has a row for each segment."""

    @staticmethod
    def forward(ctx: Any, dy: Any, x: Any, y: Any, shape: Any, call: Call) -> Any:
        ctx.call, ctx.shape = call, shape
        ctx.save_for_backward(dy, x, y)
        return call.gradient({"dy": dy, "x": x, "y": y}, shape)

    @staticmethod
    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        rules = RULES.get(ctx.call.stem)
        if rules is None:
            raise once(f"distributed.{ctx.call.back.name}", ctx.call.stem)
        given, roles = _Again(ctx.call, ctx.saved_tensors, ctx.shape), ("dy", "x", "y")
        wanted = zip(roles, ctx.needs_input_grad, strict=False)
        return *[rules[role](given, g) if needed and role in rules else None for role, needed in wanted], None, None


class _Again:
    """The gradient of a call with these values, as formulas of :mod:`.second` take it."""

    def __init__(self, call: Call, values: tuple[Any, ...], shape: Any) -> None:
        self._call, self._shape, self._named = call, shape, dict(zip(("dy", "x", "y"), values, strict=True))
        self.dy, self.y, self._keepdims = self._named["dy"], self._named["y"], self._named["dy"].dim() == len(shape)

    def again(self, **replaced: Any) -> Any:
        return _Gradient.apply(*(self._named | replaced).values(), self._shape, self._call)

    def forward(self, of: Any) -> Any:
        return _Result.apply(of, self._call.linear(self._call.stem, self._keepdims))

    def fold(self, of: Any) -> Any:
        return _Result.apply(of, self._call.linear("sum", self._keepdims))

    def spread(self, of: Any) -> Any:
        return _Gradient.apply(of, None, None, self._shape, self._call.linear("sum", self._keepdims))


class _Whole(torch.autograd.Function):  # type: ignore[misc]
    """The segments of all ranks from those of each."""

    @staticmethod
    def forward(ctx: Any, own: Any, segments: int, group: Any) -> Any:
        ctx.given = segments, group
        comm = communicator("all_gather", group)
        most = -(-segments // comm.size)
        padded = own.new_zeros(most, *own.shape[1:])
        padded[: own.shape[0]] = own
        return gathered(comm, padded).reshape(comm.size * most, *own.shape[1:])[:segments]

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, None, None]:
        return _Own.apply(dy, *ctx.given), None, None


class _Own(torch.autograd.Function):  # type: ignore[misc]
    """This rank's part of the segments, of which all have the whole."""

    @staticmethod
    def forward(ctx: Any, whole: Any, segments: int, group: Any) -> Any:
        ctx.given = segments, group
        first, end = part("part", communicator("part", group), segments)
        return whole[first:end].clone()

    @staticmethod
    def backward(ctx: Any, dy: Any) -> tuple[Any, None, None]:
        return _Whole.apply(dy, *ctx.given), None, None
