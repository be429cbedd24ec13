"""A frame, the launches of a recipe without their sizes; and a :class:`Bound`, a frame with the sizes of one problem."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..arrays import allocation, arrays, spans, stream_scratch, streams
from ..arrays.views import View, remember
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import NULL, Clear, Gemm, Launch, Op, Recipe, Slot, Sort, Target
from ..core.sizes import plain
from ..core.spec import KernelSpec, Parameter, arrange
from ..runtime import driver, launch
from . import first
from .binding import check_workspace
from .memos import memo
from .steps import Kernel

if TYPE_CHECKING:
    from ..emulator.emulated import Emulated

_bounds: dict[Any, Bound] = memo()  #: of every family, by op, options and the exact layouts of operands
#: a step as a function of stream, addresses and its sizes
_Act = Callable[[int, list[int], tuple[Any, ...]], None]


def found(key: Any) -> Bound | None:
    """The :class:`Bound` of a call and its layouts, if the memo has it."""
    return _bounds.get(key)


def keep(key: Any, bound: Bound) -> Bound:
    """Adds a :class:`Bound` to the memo."""
    remember(_bounds, key, bound)
    return bound


class Frame:
    """The steps of a recipe without their sizes. Its kernels are compiled and loaded, each with the indices of its addresses."""

    def __init__(self, op: Op, slots: Sequence[Slot], views: Sequence[View], target: Target, device: int) -> None:
        self.op, self.target, self.device = op, target, device
        self.slots = [(slot.name, slot.element) for slot in slots]
        given = {operand.name: view.element if view.form.number is None else "" for operand, view in zip(op.operands, views, strict=True)}
        #: element types of operands and slots by name; "" for a number instead of an array, and for ``NULL``
        self.elements = given | dict(self.slots) | {NULL: ""}
        self.index_of = {name: k for k, name in enumerate(self.elements)}
        self.held = [k for k, view in enumerate(views) if not view.form.empty and view.form.number is None]
        outputs, inputs = [k for k in self.held if op.operands[k].output], [k for k in self.held if not op.operands[k].output]
        self.pairs = [*itertools.product(outputs, inputs), *((later, out) for out, later in itertools.combinations(outputs, 2))]
        self.naming = any(view.kind in streams.NAMING for view in views)
        self.steps: list[Any] = []
        self.acts: list[_Act] = []
        self.restored = 0  #: slots, the first of all, that the steps leave as zeros if they find zeros
        self.twins = False  #: whether the first two slots take turns
        self.uncleared = range(0)  #: the steps that are left where a stream's memory has zeros
        self.queues = False  #: whether all steps are queued on the stream, for a device, without waiting for it

    def take(self, recipe: Recipe) -> tuple[tuple[Any, ...], ...]:
        """Takes over the steps of a recipe; returns the sizes of each."""
        slots = {slot.name: slot for slot in recipe.slots}
        steps = [step for step in recipe.steps if not self._idle(step)]
        if not self.target.emulated:
            first.prepare(steps, self.target, self.device)
        apart = [self._apart(step, slots) for step in steps]
        self.steps = [step for step, _ in apart]
        if not self.target.emulated:
            self.acts = [self._act(step, sizes) for step, sizes in apart]
            self.restored = sum(isinstance(step, Clear) and step.restored for step in self.steps)
            self.twins = any(isinstance(step, Clear) and step.twin != "" for step in self.steps)
            self.uncleared = range(self.restored + self.twins, len(self.steps))
            self.queues = all(isinstance(step, (Kernel, Clear, Sort)) for step in self.steps)
        return tuple(sizes for _, sizes in apart)

    def _idle(self, step: Any) -> bool:
        """Whether a step launches nothing, and so needs no kernel."""
        if not isinstance(step, Launch) or self.target.emulated:
            return False
        blocks = step.config[0]
        if blocks >= 1 << 31:
            raise Unsupported(f"{self.op.name}: {blocks} blocks, wants fewer than 2^31; the problem is too large for one launch")
        return not blocks

    def _apart(self, step: Any, slots: dict[str, Slot]) -> tuple[Any, tuple[Any, ...]]:
        """A step and its sizes: the numbers that recipes compute from extents and strides."""
        if isinstance(step, Launch):
            blocks, threads, shared = step.config
            spec = step.spec.plain()
            parameters = self._parameters(spec)
            _, scalars = arrange(spec.kernel, parameters, step.arguments, self.elements)
            made = Kernel(spec, plain(threads), parameters, {each.name: step.arguments[each.name] for each in parameters if each.pointer})
            return made, (blocks, shared, launch.words(made.signature, scalars))
        if isinstance(step, Sort):
            fixed = replace(step, count=0, bits=0, first_bit=0, key_size=plain(step.key_size), value_size=plain(step.value_size))
            return fixed, (step.count, step.bits, step.first_bit, slots[step.scratch].nbytes)
        if isinstance(step, Gemm):
            return step, (slots[step.workspace].nbytes,)
        return step, (slots[step.slot].nbytes,) if isinstance(step, Clear) else (slots[step.slot].count,)

    def _parameters(self, spec: KernelSpec) -> tuple[Parameter, ...]:
        if self.target.emulated:
            from ..runtime import jit

            return jit.resolve(spec).parameters
        return self._load(spec).cubin.parameters

    def _load(self, spec: KernelSpec) -> launch.Kernel:
        from ..runtime import cache

        return launch.load(cache.cubin(spec, self.target.arch))

    def _act(self, step: Any, sizes: tuple[Any, ...]) -> _Act:
        """A step as a function of stream, addresses and sizes; matrix products are prepared for these sizes only."""
        index_of, device = self.index_of, self.device
        if isinstance(step, Kernel):
            queue, pick = self._launch(step).queue, self._pick(step)
            return lambda stream, pointers, sizes: queue(stream, pick(pointers), *sizes)
        if isinstance(step, Sort):
            return self._sort(step)
        if isinstance(step, Gemm):
            from ..runtime import cublas

            names = [step.a.name, step.b.name, step.c.name, step.workspace, *[each for each in (step.alpha, step.beta) if isinstance(each, str)]]
            pick, product = _picker([index_of[name] for name in names]), cublas.product(step, sizes[0], device, self.target)
            return lambda stream, pointers, sizes: product(stream, *pick(pointers))
        index = index_of[step.slot]
        if isinstance(step, Clear):
            byte = step.byte
            return lambda stream, pointers, sizes: driver.memset_async(pointers[index], sizes[0], stream, byte, device)
        judge = step.judge
        return lambda stream, pointers, sizes: judge(driver.read_back(pointers[index], sizes[0], stream, device))

    def _launch(self, step: Kernel) -> launch.Launch:
        return launch.of(self._load(step.spec), step.signature, step.threads, self.device)

    def _pick(self, step: Kernel) -> Callable[[list[int]], tuple[int, ...]]:
        return _picker([self.index_of[name] for name in step.pointers.values()])

    def ready(self, k: int, sizes: tuple[Any, ...], pointers: list[int]) -> Callable[[int], None]:
        """A step of these sizes and at these addresses as a function of the stream."""
        step, act = self.steps[k], self.acts[k]
        if isinstance(step, Kernel):
            return self._launch(step).ready(self._pick(step)(pointers), *sizes)
        return lambda stream: act(stream, pointers, sizes)

    def _sort(self, step: Sort) -> _Act:
        from ..runtime import radix

        names = (step.scratch, step.keys, step.sorted_keys, step.values, step.sorted_values)
        pick, sorter = _picker([self.index_of[name] for name in names]), radix.sorter_of(step, self.device)

        def sort(stream: int, pointers: list[int], sizes: tuple[Any, ...]) -> None:
            scratch, keys, sorted_keys, values, sorted_values = pick(pointers)
            count, bits, first_bit, room = sizes
            sorter(stream, scratch, room, keys, sorted_keys, values, sorted_values, count, bits, first_bit)

        return sort

    def recipe(self, sizes: Sequence[tuple[Any, ...]], counts: Sequence[int]) -> Recipe:
        """The recipe whose steps have these sizes, and whose slots so many elements."""
        steps: list[Any] = []
        for step, own in zip(self.steps, sizes, strict=True):
            if isinstance(step, Kernel):
                steps.append(step.with_sizes(*own))
            else:
                steps.append(replace(step, count=own[0], bits=own[1], first_bit=own[2]) if isinstance(step, Sort) else step)
        return Recipe(tuple(steps), tuple(Slot(name, element, count) for (name, element), count in zip(self.slots, counts, strict=True)))


def _picker(indices: list[int]) -> Callable[[list[int]], tuple[int, ...]]:
    """A function that returns the addresses with these indices."""
    if len(indices) > 1:
        return operator.itemgetter(*indices)
    return lambda pointers: tuple([pointers[index] for index in indices])


class Bound:
    """A frame with the sizes of one problem; only addresses and a stream are missing.

    ``sizes`` are those of each step, ``offsets`` and ``counts`` those of each slot in the workspace, and ``reach`` the lowest byte of each operand
    and the one behind the highest, counted from its first element. ``results`` are shape and element of each array that a function makes for its
    outputs, and ``room`` the bytes that it wants of a caller's workspace.
    """

    __slots__ = ("_placed", "counts", "frame", "offsets", "reach", "results", "room", "sizes", "workspace")

    def __init__(self, frame: Frame, sizes: Any, offsets: Any, counts: Any, workspace: int, reach: Any, results: Any = (), room: int = 0) -> None:
        self.frame, self.sizes, self.offsets, self.counts, self.workspace, self.reach = frame, sizes, offsets, counts, workspace, reach
        self.results, self.room = results, room
        self._placed: tuple[stream_scratch.Memory, list[int] | None] | None = None  #: where the slots are in the memory of the last call's stream

    @property
    def recipe(self) -> Recipe:
        """The steps, and the slots of the workspace."""
        return self.frame.recipe(self.sizes, self.counts)

    def check_aliasing(self, pointers: Sequence[int], views: Sequence[View]) -> None:
        """No output may overlap an input or another output."""
        reach = self.reach
        for out, k in self.frame.pairs:
            mine, other, (out_low, out_high), (low, high) = pointers[out], pointers[k], reach[out], reach[k]
            if (
                mine + out_low < other + high
                and other + low < mine + out_high
                and spans.touch(spans.blocks(views[out].form), spans.blocks(views[k].form), other - mine)
            ):  # fmt: skip
                op = self.frame.op
                raise InvalidProblem(f"{op.name}: {op.operands[out].name} overlaps {op.operands[k].name}, wants memory of its own")

    def read_workspace(self, given: Any, views: Sequence[View], needed: int) -> View:
        """The view of the workspace that a caller gave; raises unless it may be that of these operands, of which it overlaps none."""
        name = self.frame.op.name
        workspace = arrays.read(given, (name, "workspace", ""))
        check_workspace(name, workspace, views[0], needed)
        first, room = workspace.ptr, spans.Blocks(0, self.workspace, self.workspace, ())
        for view, (low, high), operand in zip(views, self.reach, self.frame.op.operands, strict=False):
            near = low < high and view.ptr + low < first + self.workspace and first < view.ptr + high
            if near and room.width and spans.touch(spans.blocks(view.form), room, first - view.ptr):
                raise InvalidProblem(f"{name}: workspace overlaps {operand.name}, wants memory of its own")
        return workspace

    def run(self, stream: int, pointers: list[int], views: Sequence[View], workspace: View | None, made: Sequence[Any] = ()) -> None:
        """Runs the steps behind the producers of the operands: the views, and the arrays ``made`` for outputs. Appends slots to ``pointers``."""
        frame, room = self.frame, self.workspace if workspace is None else 0
        if frame.device < 0:
            self._emulate([*[view.owner for view in views], *made], allocation.scratch(views[0], room, stream) if room else workspace)
            return
        if frame.naming:
            streams.follow(views, stream, frame.device)
        memory = stream_scratch.of(frame.device, stream) if room and frame.queues else None
        places = None if memory is None else self._places(memory)
        if memory and places and memory.lock.acquire(False):
            self._run_in(memory, places, stream, pointers)
            return
        if room:
            workspace = allocation.scratch(views[0], room, stream)
        self.add_slots(pointers, workspace)
        try:
            for act, sizes in zip(frame.acts, self.sizes, strict=True):
                act(stream, pointers, sizes)
        finally:
            workspace = None  # a traceback would keep scratch alive after the capture, which must free it

    def _places(self, memory: stream_scratch.Memory) -> list[int] | None:
        """The addresses of the slots in the memory of a stream, followed by NULL; None where they do not fit."""
        placed = self._placed
        if placed is None or placed[0] is not memory:
            found = memory.places(self.offsets, self.frame.restored, self.workspace)
            placed = self._placed = memory, found and [*found, 0]
        return placed[1]

    def _run_in(self, memory: stream_scratch.Memory, places: list[int], stream: int, pointers: list[int]) -> None:
        """Runs the steps in the memory of the stream, whose lock this releases."""
        frame, sizes, first = self.frame, self.sizes, len(pointers)
        try:
            pointers += places
            if frame.twins:
                pointers[first : first + 2] = memory.twins.take(self.offsets[1], stream, frame.device)
            for k in frame.uncleared:
                frame.acts[k](stream, pointers, sizes[k])
        except BaseException:
            stream_scratch.drop(frame.device, stream)
            raise
        finally:
            memory.lock.release()

    def ready(self, pointers: list[int], workspace: View | None) -> list[Callable[[int], None]]:
        """The steps as functions of the stream; none in the emulator."""
        self.add_slots(pointers, workspace)
        return [self.frame.ready(k, sizes, pointers) for k, sizes in enumerate(self.sizes)] if self.frame.device >= 0 else []

    def add_slots(self, pointers: list[int], workspace: View | None) -> None:
        """Appends the addresses of the slots and NULL to those of the operands."""
        if self.offsets:
            base = 0 if workspace is None else workspace.ptr  # None where every slot is empty
            pointers.extend(map(base.__add__, self.offsets))
        pointers.append(0)

    def _emulate(self, owners: Sequence[Any], workspace: View | None) -> None:
        if self.frame.steps:
            arrays.warn_emulated()
            self.emulated()(owners, workspace)

    def emulated(self) -> Emulated:
        """The steps for the emulator."""
        from ..emulator.emulated import Emulated

        return Emulated(self.frame.op, self.recipe, self.frame.elements)


def bind(op: Op, recipe: Recipe, views: Sequence[View], target: Target, device: int) -> Bound:
    """A recipe for operands of these forms; where they are traced, its sizes are."""
    frame = Frame(op, recipe.slots, views, target, device)
    sizes = frame.take(recipe)
    ends = tuple(itertools.accumulate((slot.nbytes for slot in recipe.slots), initial=0))
    reach = tuple(spans.reach(view.form) if k in frame.held else (0, 0) for k, view in enumerate(views))
    return Bound(frame, sizes, ends[:-1], tuple(slot.count for slot in recipe.slots), ends[-1], reach)
