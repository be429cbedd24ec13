"""Operands against a plan: the checks of their shapes, dtypes and places, and the launches made for their layouts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from . import allocation, arrays, spans
from .dtypes import BY_NAME
from .errors import InvalidProblem, Unsupported
from .op import MAX_RANK, NULL, Clear, Gemm, Launch, Op, Operand, Recipe, Sort, Target
from .runtime import driver, launch
from .views import Form, View


def check(op: Op, descriptor: Any, views: Sequence[View]) -> None:
    """Shapes in the order of the operands, then dtypes, then what may be written."""
    trailing: tuple[int, ...] | None = None
    for operand, view in zip(op.operands, views, strict=True):
        if view.form.number is None:
            trailing = _check_shape(op, descriptor, operand, tuple(view.shape), trailing)
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


class Bound:
    """A recipe with its operands' layouts settled: what is left are addresses and a stream."""

    def __init__(self, op: Op, recipe: Recipe, views: Sequence[View], target: Target, device: int) -> None:
        self.op, self.recipe, self.target, self.device = op, recipe, target, device
        self.workspace = recipe.workspace
        pointers = (*[operand.name for operand in op.operands], *[slot.name for slot in recipe.slots], NULL)
        self.names = {name: k for k, name in enumerate(pointers)}
        self.offsets = [sum(slot.nbytes for slot in recipe.slots[:k]) for k in range(len(recipe.slots))]
        reach = [(low - view.ptr, high - view.ptr) for view, (low, high) in zip(views, map(spans.span, views), strict=True)]
        held = [low < high for low, high in reach]
        outputs = [k for k, operand in enumerate(op.operands) if operand.output and held[k]]
        inputs = [k for k, operand in enumerate(op.operands) if not operand.output and held[k]]
        self.pairs = [(out, *reach[out], k, *reach[k]) for out in outputs for k in inputs]
        self.reach = [(k, *reach[k]) for k in (*outputs, *inputs)]
        self.workspaces: set[Form] = set()  #: forms of workspaces that have been checked
        if target.emulated:
            from .runtime.emulated import Emulated

            self.acts: list[Any] = [Emulated(op, recipe)]
        else:
            self.acts = [self._act(step) for step in recipe.steps]

    def check_aliasing(self, pointers: Sequence[int]) -> None:
        """No output may overlap an input."""
        for out, out_low, out_high, k, low, high in self.pairs:
            mine, other = pointers[out], pointers[k]
            if mine + out_low < other + high and other + low < mine + out_high:
                operands = self.op.operands
                raise InvalidProblem(f"{self.op.name}: {operands[out].name} overlaps {operands[k].name}, wants memory of its own")

    def check_apart(self, first: int, pointers: Sequence[int]) -> None:
        """The workspace, which starts at ``first``, may not overlap an operand."""
        last = first + self.workspace
        for k, low, high in self.reach:
            if pointers[k] + low < last and first < pointers[k] + high:
                raise InvalidProblem(f"{self.op.name}: workspace overlaps {self.op.operands[k].name}, wants memory of its own")

    def run(self, stream: int, pointers: list[int], views: list[View], workspace: View | None) -> None:
        """Runs the steps. Slots, and what a step makes for the next ones, are appended to ``pointers``; ``views`` keep the latter alive."""
        if self.device < 0:
            if not self.recipe.steps:
                return
            arrays.warn_emulated()
            self.acts[0](views, workspace)
            return
        if self.offsets:
            base = 0 if workspace is None else workspace.ptr  # None where every slot is empty
            pointers.extend(map(base.__add__, self.offsets))
        pointers.append(0)  # NULL
        for act in self.acts:
            act(stream, pointers, views)

    def _act(self, step: Any) -> Callable[[int, list[int], list[View]], None]:
        """A step as a function of stream, pointers and what must stay alive."""
        if isinstance(step, Launch):
            return self._launch(step)
        if isinstance(step, Sort):
            return self._sort(step)
        if isinstance(step, Gemm):
            return self._gemm(step)
        slot = next(slot for slot in self.recipe.slots if slot.name == step.slot)
        place = self.names[slot.name]
        if isinstance(step, Clear):
            return lambda stream, pointers, kept: driver.memset_async(pointers[place], slot.nbytes, stream, step.byte, self.device)

        def verify(stream: int, pointers: list[int], kept: list[View]) -> None:
            step.judge(driver.read_back(pointers[place], slot.count, stream, self.device))

        return verify

    def _sort(self, step: Sort) -> Callable[[int, list[int], list[View]], None]:
        from .runtime import radix

        places = operator.itemgetter(*[self.names[name] for name in (step.keys, step.sorted_keys, step.values, step.sorted_values)])
        sorter = radix.sorter(f"u{8 * step.key_size}", f"u{8 * step.value_size}", self.device)
        nbytes = sorter.workspace(step.count, step.bits, step.first_bit)

        def sort(stream: int, pointers: list[int], kept: list[View]) -> None:
            scratch = allocation.scratch(kept[0], nbytes, stream)
            kept.append(scratch)
            keys, sorted_keys, values, sorted_values = places(pointers)
            sorter(stream, scratch.ptr, nbytes, keys, sorted_keys, values, sorted_values, step.count, step.bits, step.first_bit)

        return sort

    def _gemm(self, step: Gemm) -> Callable[[int, list[int], list[View]], None]:
        from .runtime import cublas

        room = next(slot.nbytes for slot in self.recipe.slots if slot.name == step.workspace)
        scalars = [each for each in (step.alpha, step.beta) if isinstance(each, str)]
        pick = operator.itemgetter(*[self.names[name] for name in (step.a.name, step.b.name, step.c.name, step.workspace, *scalars)])
        queue = cublas.product(step, room, self.device, self.target)
        return lambda stream, pointers, kept: queue(stream, *pick(pointers))

    def _launch(self, step: Launch) -> Callable[[int, list[int], list[View]], None]:
        from .runtime import cache

        blocks, threads, shared = step.config
        if blocks >= 1 << 31:
            raise Unsupported(f"{self.op.name}: {blocks} blocks, wants fewer than 2^31; the problem is too large for one launch")
        if not blocks:
            return lambda stream, pointers, kept: None
        kernel = launch.load(cache.cubin(step.spec, self.target.arch))
        queue = launch.Launch(kernel, step.spec.signature, (blocks, 1, 1), threads, shared, step.scalars, device=self.device).queue
        places = [self.names[name] for name in step.pointers]
        if len(places) == 1:
            return lambda stream, pointers, kept: queue(stream, (pointers[places[0]],))
        pick = operator.itemgetter(*places)
        return lambda stream, pointers, kept: queue(stream, pick(pointers))
