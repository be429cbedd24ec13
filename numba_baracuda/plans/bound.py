"""Calls of a plan with fixed operands, for loops and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arrays import allocation, streams
from ..arrays.views import View
from .frames import Bound


class BoundCall:
    """A plan with its operands: ``call()`` queues the steps on the stream of ``Plan.bind``, which makes it, ``call(stream)`` on another.

    Every call uses the same arrays, with their current values.
    """

    def __init__(self, bound: Bound, views: Sequence[View], stream: Any, workspace: View | None) -> None:
        self._bound, self._views, self._stream, self._name = bound, views, stream, bound.frame.op.name
        handle = streams.stream_handle(stream, views[0], self._name)
        self._ordered = views if workspace is None else [*views, workspace]
        if workspace is None and bound.workspace:
            workspace = allocation.scratch(views[0], bound.workspace, handle)
        self._workspace = workspace
        self._steps = bound.ready([view.ptr for view in views], workspace)

    def __repr__(self) -> str:
        return f"BoundCall({self._name}, {', '.join(view.name for view in self._views)})"

    def __call__(self, stream: Any = None) -> None:
        handle = streams.stream_handle(self._stream if stream is None else stream, self._views[0], self._name)
        frame = self._bound.frame
        if frame.device < 0:
            self._bound.run(handle, [], self._views, self._workspace)
            return
        if frame.naming:
            streams.follow(self._ordered, handle, frame.device)
        for step in self._steps:
            step(handle)
