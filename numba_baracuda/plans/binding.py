"""Operands against a plan: the checks of their shapes, dtypes and places, and the launches made for their layouts."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from ..arrays import allocation, arrays, spans, streams
from ..arrays.views import Form, View
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import MAX_RANK, NULL, Clear, Gemm, Launch, Op, Operand, Recipe, Sort, Target
from ..core.spec import arrange
from ..runtime import driver, launch

#: elements of 8 bytes that 64 bits count the bytes of, and threads in as many blocks of 256 as a launch can have
_MOST_ELEMENTS, _MOST_THREADS = 1 << 60, 1 << 39


def check(op: Op, descriptor: Any, views: Sequence[View]) -> None:
    """Shapes in the order of the op, then dtypes, then what may be written."""
    given = dict(zip(op.operands, views, strict=True))
    check_shapes(op, descriptor, [(operand, given[operand]) for operand in op.looked_at()])
    for operand, view in zip(op.operands, views, strict=True):
        wanted = (operand.element or (descriptor.index_name if operand.index else descriptor.element_name)).split()
        if view.element not in wanted and view.form.number is None:
            got = BY_NAME[view.element].numpy_name
            raise InvalidProblem(f"{op.name}: {operand.name} is {got}, wants {' or '.join(BY_NAME[each].numpy_name for each in wanted)}")
        if operand.output and view.readonly:
            raise InvalidProblem(f"{op.name}: {operand.name} is read-only, wants memory that can be written")
        if operand.output and not _one_place_each(tuple(view.shape), tuple(view.strides)):
            got = f"a broadcast or overlapping view (strides {tuple(view.strides)})"
            raise InvalidProblem(f"{op.name}: {operand.name} is {got}, wants one place for each element")


def check_shapes(op: Op, descriptor: Any, given: Sequence[tuple[Operand, View]]) -> None:
    """Raises for the first operand whose shape is not that of the descriptor."""
    trailing: tuple[int, ...] | None = None
    for operand, view in given:
        if view.form.number is None:
            trailing = _check_shape(op, descriptor, operand, tuple(view.shape), trailing)


def check_extents(op: Op, descriptor: Any) -> None:
    """Raises for extents that are more than a launch has threads, and operands whose bytes are more than 64 bits count."""
    for operand in op.operands:
        extents = {axis: getattr(descriptor, axis) for axis in (*operand.axes, *descriptor.extents)}
        for axis, each in extents.items():
            if max(each if isinstance(each, tuple) else (each,), default=0) >= _MOST_THREADS:
                raise Unsupported(f"{op.name}: {axis} is {list(each) if isinstance(each, tuple) else each}, wants extents below 2^39")
        shape = [number for axis in operand.axes for number in (extents[axis] if isinstance(extents[axis], tuple) else [extents[axis]])]
        if math.prod(shape) >= _MOST_ELEMENTS:
            raise Unsupported(f"{op.name}: {operand.name} has shape {shape}, wants fewer than 2^60 elements")


def _one_place_each(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether no two elements share an address, as far as nested strides tell; interlocking ones, which no slicing makes, are refused."""
    reach = 0
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape, strict=True) if extent > 1):
        if stride <= reach:
            return 0 in shape
        reach += stride * (extent - 1)
    return True


def _check_shape(op: Op, descriptor: Any, operand: Operand, shape: tuple[int, ...], trailing: tuple[int, ...] | None) -> tuple[int, ...] | None:
    wanted = [getattr(descriptor, axis) for axis in operand.axes]
    if len(operand.axes) == 1:
        wanted = list(wanted[0]) if isinstance(wanted[0], tuple) else wanted
        if shape != tuple(wanted):
            raise InvalidProblem(f"{op.name}: {operand.name} has shape {list(shape)}, wants {wanted}")
        return trailing
    if len(shape) > MAX_RANK:
        raise Unsupported(f"{op.name}: {operand.name} has {len(shape)} axes, wants 1 to {MAX_RANK}")
    rest = 1
    for extent in shape[1:]:
        rest *= extent
    if not shape or shape[0] != wanted[0] or rest != wanted[1]:
        raise InvalidProblem(f"{op.name}: {operand.name} has shape {list(shape)}, wants {wanted} or trailing axes of that product")
    if trailing is not None and shape[1:] != trailing:
        raise InvalidProblem(f"{op.name}: {operand.name} has trailing axes {list(shape[1:])}, wants {list(trailing)} as the operand before it")
    return shape[1:]


def elements_of(op: Op, recipe: Recipe, views: Sequence[View]) -> dict[str, str]:
    """Element types of what a launch may point to; "" for a number that was given for an array, and for ``NULL``."""
    given = {operand.name: view.element if view.form.number is None else "" for operand, view in zip(op.operands, views, strict=True)}
    return given | {slot.name: slot.element for slot in recipe.slots} | {NULL: ""}


#: a step as a function of stream and pointers
_Act = Callable[[int, list[int]], None]


class Bound:
    """A recipe with its operands' layouts settled: what is left are addresses and a stream."""

    def __init__(self, op: Op, recipe: Recipe, views: Sequence[View], target: Target, device: int) -> None:
        self.op, self.recipe, self.target, self.device = op, recipe, target, device
        self.workspace = recipe.workspace
        pointers = (*[operand.name for operand in op.operands], *[slot.name for slot in recipe.slots], NULL)
        self.names = {name: k for k, name in enumerate(pointers)}
        self.offsets = [sum(slot.nbytes for slot in recipe.slots[:k]) for k in range(len(recipe.slots))]
        blocks = [spans.blocks(view.form) for view in views]
        held = [k for k, view in enumerate(views) if not view.form.empty and view.form.number is None]
        outputs, inputs = [k for k in held if op.operands[k].output], [k for k in held if not op.operands[k].output]
        pairs = [*itertools.product(outputs, inputs), *((later, out) for out, later in itertools.combinations(outputs, 2))]
        self.pairs = [(out, *blocks[out][:2], k, *blocks[k][:2]) for out, k in pairs]
        self.reach, self.blocks = [(k, *blocks[k][:2]) for k in held if self.workspace], blocks
        self.workspaces: set[Form] = set()  #: forms of workspaces that have been checked
        self.naming = any(view.kind in streams.NAMING for view in views)
        self.elements = elements_of(op, recipe, views)
        if target.emulated:
            from ..emulator.emulated import Emulated

            self.acts: list[Any] = [Emulated(op, recipe, self.elements)]
        else:
            self.acts = [self._act(step) for step in recipe.steps]

    def check_aliasing(self, pointers: Sequence[int]) -> None:
        """No output may overlap an input or another output."""
        for out, out_low, out_high, k, low, high in self.pairs:
            mine, other = pointers[out], pointers[k]
            if (
                mine + out_low < other + high
                and other + low < mine + out_high
                and spans.touch(self.blocks[out], self.blocks[k], other - mine)
            ):  # fmt: skip
                operands = self.op.operands
                raise InvalidProblem(f"{self.op.name}: {operands[out].name} overlaps {operands[k].name}, wants memory of its own")

    def check_apart(self, first: int, pointers: Sequence[int]) -> None:
        """The workspace, which starts at ``first``, may not overlap an operand."""
        room = spans.Blocks(0, self.workspace, self.workspace, ())
        for k, low, high in self.reach:
            mine = pointers[k]
            if mine + low < first + self.workspace and first < mine + high and spans.touch(self.blocks[k], room, first - mine):
                raise InvalidProblem(f"{self.op.name}: workspace overlaps {self.op.operands[k].name}, wants memory of its own")

    def run(self, stream: int, pointers: list[int], views: list[View], workspace: View | None) -> None:
        """Runs the steps behind the producers of the operands, in scratch where no workspace is given; slots are appended to ``pointers``."""
        if workspace is None and self.workspace:
            workspace = allocation.scratch(views[0], self.workspace, stream)
        if self.device < 0:
            if not self.recipe.steps:
                return
            arrays.warn_emulated()
            self.acts[0](views, workspace)
            return
        if self.naming:
            streams.follow(views, stream, self.device)
        if self.offsets:
            base = 0 if workspace is None else workspace.ptr  # None where every slot is empty
            pointers.extend(map(base.__add__, self.offsets))
        pointers.append(0)  # NULL
        try:
            for act in self.acts:
                act(stream, pointers)
        finally:
            workspace = None  # a traceback would keep scratch beyond the capture that has to give it back

    def _act(self, step: Any) -> _Act:
        """A step as a function of stream and pointers."""
        if isinstance(step, Launch):
            return self._launch(step)
        if isinstance(step, Sort):
            return self._sort(step)
        if isinstance(step, Gemm):
            return self._gemm(step)
        slot = next(slot for slot in self.recipe.slots if slot.name == step.slot)
        place = self.names[slot.name]
        if isinstance(step, Clear):
            return lambda stream, pointers: driver.memset_async(pointers[place], slot.nbytes, stream, step.byte, self.device)

        def verify(stream: int, pointers: list[int]) -> None:
            step.judge(driver.read_back(pointers[place], slot.count, stream, self.device))

        return verify

    def _sort(self, step: Sort) -> _Act:
        from ..runtime import radix

        names = (step.scratch, step.keys, step.sorted_keys, step.values, step.sorted_values)
        pick, sorter = operator.itemgetter(*[self.names[name] for name in names]), radix.sorter_of(step, self.device)
        room = self._room(step.scratch)

        def sort(stream: int, pointers: list[int]) -> None:
            scratch, keys, sorted_keys, values, sorted_values = pick(pointers)
            sorter(stream, scratch, room, keys, sorted_keys, values, sorted_values, step.count, step.bits, step.first_bit)

        return sort

    def _gemm(self, step: Gemm) -> _Act:
        from ..runtime import cublas

        scalars = [each for each in (step.alpha, step.beta) if isinstance(each, str)]
        pick = operator.itemgetter(*[self.names[name] for name in (step.a.name, step.b.name, step.c.name, step.workspace, *scalars)])
        queue = cublas.product(step, self._room(step.workspace), self.device, self.target)
        return lambda stream, pointers: queue(stream, *pick(pointers))

    def _room(self, name: str) -> int:
        """Bytes of a slot."""
        return next(slot.nbytes for slot in self.recipe.slots if slot.name == name)

    def _launch(self, step: Launch) -> _Act:
        from ..runtime import cache

        blocks, threads, shared = step.config
        if blocks >= 1 << 31:
            raise Unsupported(f"{self.op.name}: {blocks} blocks, wants fewer than 2^31; the problem is too large for one launch")
        if not blocks:
            return lambda stream, pointers: None
        kernel = launch.load(cache.cubin(step.spec, self.target.arch))
        parameters = kernel.cubin.parameters
        names, scalars = arrange(step.spec.kernel, parameters, step.arguments, self.elements)
        signature = " ".join(each.type for each in parameters)
        queue = launch.Launch(kernel, signature, (blocks, 1, 1), threads, shared, scalars, device=self.device).queue
        places = [self.names[name] for name in names]
        if len(places) == 1:
            return lambda stream, pointers: queue(stream, (pointers[places[0]],))
        pick = operator.itemgetter(*places)
        return lambda stream, pointers: queue(stream, pick(pointers))
