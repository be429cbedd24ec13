"""The calls of functions: a memo has the launches for known sizes, and replays compute those for new sizes of the same class."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any

from ..arrays import allocation, arrays, streams
from ..arrays.glances import glances
from ..arrays.views import ArrayType, View, remember, remember_again
from ..core.axes import c_strides
from ..core.errors import BaracudaError, InvalidProblem, Unsupported
from ..core.op import Gemm, Op, Verify
from ..core.trace import Trace
from . import frames, plan
from .frames import Bound, Frame
from .memos import memo
from .preference import PlanPreference

Problem = tuple[Any, PlanPreference]  #: a descriptor, and the caller's preference
Results = tuple[tuple[tuple[int, ...], str], ...]  #: shape and element type of each new output
_Numbers = tuple[tuple[int, ...], ...]  #: integer arguments that are sizes, then each array's shape and strides
_New = tuple[tuple[tuple[int, ...], tuple[int, ...], str], ...]  #: shape, strides and element type of each
#: calls of a class, without a program that serves them, after which one is traced; most programs of a class, and such calls when it has as many
PATIENCE, MOST_PROGRAMS, MOST_PATIENCE = 2, 256, 64

_SOMEWHERE = 1 << 12  #: an address of no array
_SEEN = slice(5, None)  #: where the key of a call has what was seen of its arrays
_KIND, _LAID_OUT = itemgetter(0), itemgetter(1, 2)  #: of what was seen of an array


def _like(view: View) -> View:
    """What arrays of a type have in common, by which new ones are made, without one of them."""
    return View(0, (), (), view.type, None, view.name)


class Program:
    """A frame, and the function that computes the sizes of a :class:`Bound` where its guards hold."""

    def __init__(self, frame: Frame, replay: Callable[..., Any]) -> None:
        self.frame, self.replay, self.served = frame, replay, 0


_SERVED = attrgetter("served")


class CallClass:
    """Calls that differ only in sizes, with their programs, the most used first."""

    def __init__(self) -> None:
        self.programs: list[Program] = []
        self.missed = 0
        self.last: _Numbers = ()  #: sizes of the last call that no program served
        self.untraceable: Exception | None = None
        self.lock = threading.Lock()

    def settle(self, sizes: tuple[int, ...], seen: Sequence[Any]) -> Bound | None:
        """The launches for these sizes and what was seen of arrays, if a program serves them."""
        for program in self.programs:
            try:
                made = program.replay(sizes, *seen)
            except (ArithmeticError, BaracudaError):
                continue
            if made is not None:
                program.served = served = program.served + 1
                if not served & (served - 1):  # so seldom that sorting takes no time
                    self.programs = sorted(self.programs, key=_SERVED, reverse=True)
                return Bound(program.frame, *made)
        return None

    def learn(self, numbers: _Numbers, trace: Callable[[_Numbers], Program]) -> None:
        """Traces a program after several calls that no program served, for the sizes in which the last two of these are alike.

        A second call with the same sizes tells nothing: the memo serves further ones.
        """
        if numbers == self.last:
            return
        last, self.last = self.last, numbers
        self.missed += 1
        patience = PATIENCE if len(self.programs) < MOST_PROGRAMS else MOST_PATIENCE
        if self.missed < patience or self.untraceable or not self.lock.acquire(blocking=False):
            return
        try:
            self.programs = [trace(last), *self.programs[: MOST_PROGRAMS - 1]]
            self.missed = 0
        except Exception as error:  # a plan has served the call, and will serve later ones
            self.untraceable = error
        finally:
            self.lock.release()


_classes: dict[Any, CallClass] = memo()
_MOST_CLASSES = 1024


class Calls:
    """The calls of one op's function, by functions of its family that serve calls and traces alike.

    ``inputs`` and ``outputs`` are the names of the arrays. ``describe(views, sizes, context)`` returns the problem of the inputs,
    ``results(descriptor, views, context)`` the shapes and element types of new outputs, and ``operands(descriptor, views, context)`` all operands in
    the op's order. ``sizes`` are integer arguments that are sizes, and ``context`` is all else; a call's ``key`` stands for its context in memos.
    ``fixed`` are the axes of the first input whose extents all calls of a class share.
    """

    def __init__(
        self, op: Op, inputs: Sequence[str], outputs: Sequence[str], describe: Callable[..., Problem], results: Callable[..., Results],
        operands: Callable[..., list[View]] = lambda descriptor, views, context: views, fixed: slice = slice(0),
    ) -> None:  # fmt: skip
        self.name, self.describe, self.results, self.operands, self.fixed = op.name, describe, results, operands, fixed
        self._outputs = [(op.name, name, "") for name in outputs]
        self._labels = [*[(op.name, name, "") for name in inputs], *self._outputs]

    def __call__(
        self, inputs: tuple[Any, ...], sizes: tuple[int, ...], key: Any, context: Any, outs: tuple[Any, ...] | None, stream: Any, workspace: Any
    ) -> tuple[Any, ...]:
        """Runs the op on inputs and writes ``outs``, or new arrays where these are None; returns the outputs."""
        labels = self._labels
        known: list[Any] = [self, key, outs is None, workspace is None, sizes]
        views: list[View | None] = []
        pointers: list[int] = []
        given = inputs if outs is None else inputs + outs
        try:
            for array in given:
                pointer, glance, view = glances[type(array)](array, labels[len(views)])
                pointers.append(pointer)
                known.append(glance)
                views.append(view)
        except (BaracudaError, IndexError):  # no array, or one more than there are outputs
            if len(views) < len(inputs):
                raise
            return self._exactly(None, self._views(inputs, views), sizes, context, outs, stream, workspace)  # the plan may raise another error first
        exact = tuple(known)
        bound = frames.bounds.get(exact)
        if bound is None:
            seen = known[_SEEN]
            alike = (self, key, outs is None, workspace is None, len(sizes), tuple(seen[0][1])[self.fixed], *map(_KIND, seen))
            calls = _classes.get(alike)
            bound = None if calls is None else calls.settle(sizes, seen)
            if bound is None:
                read = self._views(given, views)
                done = self._exactly(exact, read[: len(inputs)], sizes, context, outs, stream, workspace)
                numbers = (sizes, *itertools.chain.from_iterable(map(_LAID_OUT, seen)))
                # a lambda would slow all calls
                calls = calls or remember(_classes, alike, CallClass(), _MOST_CLASSES)
                calls.learn(numbers, partial(self._trace, read, len(inputs), numbers, context, workspace is not None))
                return done
            remember_again(frames.bounds, exact, bound)
        if outs is not None and bound.near(pointers):
            bound.check_aliasing(pointers, self._views(given, views))
        first = views[0]
        if first is None:
            first, owner = bound.frame.like, inputs[0]
        else:
            owner = first.owner
        handle = streams.currents[type(owner)](first) if stream is None else streams.stream_handle(stream, first, self.name)
        made: tuple[Any, ...] = ()
        if outs is None:
            bits = 0
            for shape, strides, element in bound.results:
                out = allocation.empty(first, shape, element, handle, strides)
                pointer = allocation.address(out, first.type.kind)
                made += (out,)
                pointers.append(pointer)
                bits |= pointer
            outs = made
            if bits & 15:
                return self(inputs, sizes, key, context, outs, stream, workspace)
        memory = None if workspace is None else self._workspace(bound, handle, self._views(given, views), workspace)
        bound.run(handle, pointers, views, memory, made)
        return outs

    def _views(self, given: Sequence[Any], views: Sequence[View | None]) -> list[View]:
        """The views of arrays, also of those for which a glance was enough so far."""
        return [arrays.read(array, at) if view is None else view for array, view, at in zip(given, views, self._labels, strict=False)]

    def _results(self, descriptor: Any, views: list[View], context: Any) -> _New:
        """Shape, strides and element type of each new output."""
        return tuple((shape, c_strides(shape), element) for shape, element in self.results(descriptor, views, context))

    def read(self, inputs: Sequence[Any]) -> tuple[View, ...]:
        """The views of inputs, which a call takes in their place."""
        return tuple(map(arrays.read, inputs, self._labels))

    def _workspace(self, bound: Bound, handle: int, views: list[View], given: Any) -> View:
        """The view of the workspace that a caller gave, behind whose producer the stream works."""
        memory = bound.read_workspace(given, views, bound.room)
        streams.follow([memory], handle, bound.frame.device)
        return memory

    def _exactly(
        self, exact: Any, inputs: list[View], sizes: tuple[int, ...], context: Any, outs: tuple[Any, ...] | None, stream: Any, workspace: Any
    ) -> tuple[Any, ...]:  # fmt: skip
        """Runs a call by a plan for exactly these sizes, which raises all errors. ``exact``, if given, is the key of the memo."""
        first, results = inputs[0], _New()
        descriptor, preference = self.describe(inputs, sizes, context)
        made = plan.select(descriptor, preference, device=first.device)
        handle = streams.stream_handle(stream, first, self.name)
        if outs is None:
            results = self._results(made.descriptor, inputs, context)
            outs = tuple([allocation.empty(first, shape, element, handle) for shape, _, element in results])
        elif len(outs) != len(self.results(made.descriptor, inputs, context)):
            raise InvalidProblem(f"{self.name}: out is {len(outs)} array, wants a pair of values and indices")
        views = [*inputs, *map(arrays.read, outs, self._outputs)]
        bound = made.settle(self.operands(made.descriptor, views, context))
        pointers = [view.ptr for view in views]
        bound.check_aliasing(pointers, views)
        bound.results, bound.room = results, 0 if workspace is None else max(made.workspace_size, bound.workspace)
        if exact is not None and not (results and any(pointer & 15 for pointer in pointers[len(inputs) :])):
            bound.frame.like = _like(first)
            remember_again(frames.bounds, exact, bound)
        bound.run(handle, pointers, views, None if workspace is None else self._workspace(bound, handle, views, workspace))
        return outs

    def _trace(self, views: list[View], inputs: int, now: _Numbers, context: Any, room: bool, last: _Numbers) -> Program:
        """The program of calls whose comparisons are decided alike, and whose sizes are these where the ``last`` call had the same.

        New outputs begin at multiples of 16 bytes.
        """
        trace, most = Trace(), len(views)
        lows = [-math.inf, *[0, -math.inf] * most]  # frameworks have no extents below 0
        sizes, *laid_out = map(trace.sizes, now, lows, last or [()] * len(now))
        seen = [
            View(_SOMEWHERE + (view.ptr & 15), shape, strides, view.type, None, view.name)
            for view, shape, strides in zip(views, laid_out[::2], laid_out[1::2], strict=True)
        ]
        descriptor, preference = self.describe(seen[:inputs], sizes, context)
        made = plan.choose(descriptor, preference, views[0].device)
        results = _New()
        if len(seen) == inputs:
            results = self._results(made.descriptor, seen, context)
            for (shape, strides, element), (_, name, _) in zip(results, self._outputs, strict=False):
                of_type = ArrayType.of(element, len(shape), views[0].device, views[0].kind, False)
                seen.append(View(_SOMEWHERE, shape, strides, of_type, None, name))
        bound = made.settle(self.operands(made.descriptor, seen, context))
        if any(isinstance(step, Gemm) or (isinstance(step, Verify) and not step.sizeless) for step in bound.frame.steps):
            raise Unsupported(f"{self.name}: a check or a product is made for the sizes of one problem")
        wanted = max(made.workspace_size, bound.workspace) if room else 0
        reach, apart = bound.reach if room else (), () if results else bound.apart  # new memory overlaps no other
        made_of = (bound.sizes, bound.offsets, bound.counts, bound.workspace, reach, apart, results, wanted)
        bound.frame.like = _like(views[0])
        return Program(bound.frame, trace.compile(made_of, ["{}", *["(_, {}, {})"] * most]))
