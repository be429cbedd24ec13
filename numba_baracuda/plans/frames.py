"""A frame, the launches of a recipe without their sizes; and a :class:`Bound`, a frame with the sizes of one problem."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..arrays import allocation, arrays, emulation, spans, stream_scratch, streams
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

bounds: dict[Any, Bound] = memo()  #: of every family, by op, options and the exact layouts of operands
#: a step as a function of the stream, its addresses and its sizes, and the function that picks its addresses from all
_Act = tuple[Callable[..., None], Callable[[list[int]], tuple[int, ...]]]


def keep(key: Any, bound: Bound) -> Bound:
    """Adds a :class:`Bound` to the memo."""
    remember(bounds, key, bound)
    return bound


class Frame:
    """The steps of a recipe without their sizes. Its kernels are compiled and loaded, each with the indices of its addresses."""

    like: View  #: what the first arrays of calls have in common, where calls keep the frame

    def __init__(self, op: Op, slots: Sequence[Slot], views: Sequence[View], target: Target, device: int) -> None:
        self.op, self.target, self.device = op, target, device
        self.slots = [(slot.name, slot.element) for slot in slots]
        given = {operand.name: view.element if view.number is None else "" for operand, view in zip(op.operands, views, strict=True)}
        #: element types of operands and slots by name; "" for a number instead of an array, and for ``NULL``
        self.elements = given | dict(self.slots) | {NULL: ""}
        self.index_of = {name: k for k, name in enumerate(self.elements)}
        self.held = [k for k, view in enumerate(views) if not view.empty and view.number is None]
        outputs, inputs = [k for k in self.held if op.operands[k].output], [k for k in self.held if not op.operands[k].output]
        self.pairs = [*itertools.product(outputs, inputs), *((later, out) for out, later in itertools.combinations(outputs, 2))]
        self.naming = any(view.kind in streams.NAMING for view in views)
        self.steps: list[Any] = []
        self.acts: list[_Act] = []
        self.restored = 0  #: slots, the first of all, that the steps leave as zeros if they find zeros
        self.fresh = 0  #: slots, the first of all, that want zeros which no call has had
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
            self.fresh = sum(isinstance(step, Clear) and step.fresh for step in self.steps)
            self.uncleared = range(self.restored + self.fresh, len(self.steps))
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
        """What queues a step; matrix products are prepared for these sizes only."""
        device = self.device
        if isinstance(step, Kernel):
            return self._launch(step).queue, self._pick(*step.pointers.values())
        if isinstance(step, Sort):
            return self._sort(step)
        if isinstance(step, Gemm):
            from ..runtime import cublas

            product = cublas.product(step, sizes[0], device, self.target)
            factors = [each for each in (step.alpha, step.beta) if isinstance(each, str)]
            pick = self._pick(step.a.name, step.b.name, step.c.name, step.workspace, *factors)
            return lambda stream, addresses, room: product(stream, *addresses), pick
        if isinstance(step, Clear):
            byte = step.byte
            return lambda stream, addresses, nbytes: driver.memset_async(addresses[0], nbytes, stream, byte, device), self._pick(step.slot)
        judge = step.judge
        return lambda stream, addresses, count: judge(driver.read_back(addresses[0], count, stream, device)), self._pick(step.slot)

    def _launch(self, step: Kernel) -> launch.Launch:
        return launch.of(self._load(step.spec), step.signature, step.threads, self.device)

    def _pick(self, *names: str) -> Callable[[list[int]], tuple[int, ...]]:
        """A function that returns the addresses of operands and slots with these names."""
        indices = [self.index_of[name] for name in names]
        return operator.itemgetter(*indices) if len(indices) > 1 else lambda pointers: tuple([pointers[index] for index in indices])

    def ready(self, k: int, sizes: tuple[Any, ...], pointers: list[int]) -> Callable[[int], None]:
        """A step of these sizes and at these addresses as a function of the stream."""
        step, (act, pick) = self.steps[k], self.acts[k]
        addresses = pick(pointers)
        if isinstance(step, Kernel):
            return self._launch(step).ready(addresses, *sizes)
        return lambda stream: act(stream, addresses, *sizes)

    def _sort(self, step: Sort) -> _Act:
        from ..runtime import radix

        sorter = radix.sorter_of(step, self.device)

        def sort(stream: int, addresses: tuple[int, ...], count: int, bits: int, first_bit: int, room: int) -> None:
            scratch, keys, sorted_keys, values, sorted_values = addresses
            sorter(stream, scratch, room, keys, sorted_keys, values, sorted_values, count, bits, first_bit)

        return sort, self._pick(step.scratch, step.keys, step.sorted_keys, step.values, step.sorted_values)

    def recipe(self, sizes: Sequence[tuple[Any, ...]], counts: Sequence[int]) -> Recipe:
        """The recipe whose steps have these sizes, and whose slots so many elements."""
        steps: list[Any] = []
        for step, own in zip(self.steps, sizes, strict=True):
            if isinstance(step, Kernel):
                steps.append(step.with_sizes(*own))
            else:
                steps.append(replace(step, count=own[0], bits=own[1], first_bit=own[2]) if isinstance(step, Sort) else step)
        return Recipe(tuple(steps), tuple(Slot(name, element, count) for (name, element), count in zip(self.slots, counts, strict=True)))


class Bound:
    """A frame with the sizes of one problem; only addresses and a stream are missing.

    ``sizes`` are those of each step, ``offsets`` and ``counts`` those of each slot in the workspace, and ``reach`` the lowest byte of each operand
    and the one behind the highest, counted from its first element. ``apart`` are an output, another operand, and two numbers of bytes that the first
    may lie behind the second: with fewer than the greater and more than the less, their reaches overlap. ``results`` are shape and element of each
    array that a function makes for its outputs, and ``room`` the bytes that it wants of a caller's workspace.
    """

    __slots__ = ("_placed", "apart", "counts", "frame", "offsets", "reach", "results", "room", "sizes", "workspace")

    def __init__(
        self, frame: Frame, sizes: Any, offsets: Any, counts: Any, workspace: int, reach: Any, apart: Any, results: Any = (), room: int = 0
    ) -> None:
        self.frame, self.sizes, self.offsets, self.counts, self.workspace, self.reach = frame, sizes, offsets, counts, workspace, reach
        self.apart, self.results, self.room = apart, results, room
        self._placed: tuple[stream_scratch.Memory, list[int] | None] | None = None  #: where the slots are in the memory of the last call's stream

    @property
    def recipe(self) -> Recipe:
        """The steps, and the slots of the workspace."""
        return self.frame.recipe(self.sizes, self.counts)

    def near(self, pointers: Sequence[int]) -> bool:
        """Whether an output may overlap an input or another output."""
        for out, k, least, most in self.apart:  # noqa: SIM110 - a generator takes longer
            if least < pointers[out] - pointers[k] < most:
                return True
        return False

    def check_aliasing(self, pointers: Sequence[int], views: Sequence[View]) -> None:
        """No output may overlap an input or another output."""
        for out, k, least, most in self.apart:
            behind = pointers[out] - pointers[k]
            if least < behind < most and spans.touch(spans.blocks(views[out]), spans.blocks(views[k]), -behind):
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
            if near and room.width and spans.touch(spans.blocks(view), room, first - view.ptr):
                raise InvalidProblem(f"{name}: workspace overlaps {operand.name}, wants memory of its own")
        return workspace

    def run(self, stream: int, pointers: list[int], views: Sequence[View | None], workspace: View | None, made: Sequence[Any] = ()) -> None:
        """Runs the steps behind the producers of the operands: the views, and the arrays ``made`` for outputs. Appends slots to ``pointers``.

        None stands for the view of an array on a device that names no stream.
        """
        frame, room = self.frame, self.workspace if workspace is None else 0
        if frame.device < 0:
            workspace = allocation.scratch(views[0] or frame.like, room, stream) if room else workspace
            self._emulate([*[view.owner for view in views if view is not None], *made], workspace)
            return
        if frame.naming:
            streams.follow(views, stream, frame.device)
        memory = stream_scratch.of(frame.device, stream) if room and frame.queues else None
        if memory is not None:
            placed = self._placed
            if placed is None or placed[0] is not memory:
                placed = self._placed = memory, memory.places(self.offsets, frame.fresh, frame.restored, self.workspace)
            if placed[1] and memory.lock.acquire(False):
                self._run_in(memory, placed[1], stream, pointers)
                return
        if room:
            workspace = allocation.scratch(views[0] or frame.like, room, stream)
        self.add_slots(pointers, workspace)
        try:
            for (act, pick), sizes in zip(frame.acts, self.sizes, strict=True):
                act(stream, pick(pointers), *sizes)
        finally:
            workspace = None  # a traceback would keep scratch alive after the capture, which must free it

    def _run_in(self, memory: stream_scratch.Memory, places: list[int], stream: int, pointers: list[int]) -> None:
        """Runs the steps in the memory of the stream, whose lock this releases."""
        frame, sizes = self.frame, self.sizes
        try:
            for k in range(frame.fresh):
                pointers.append(memory.fresh.take(sizes[k][0], stream, frame.device))
            pointers += places
            for k in frame.uncleared:
                act, pick = frame.acts[k]
                act(stream, pick(pointers), *sizes[k])
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
            emulation.warn_emulated()
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
    reach = tuple(spans.reach(view.shape, view.strides, view.itemsize) if k in frame.held else (0, 0) for k, view in enumerate(views))
    apart = tuple((out, k, reach[k][0] - reach[out][1], reach[k][1] - reach[out][0]) for out, k in frame.pairs)
    return Bound(frame, sizes, ends[:-1], tuple(slot.count for slot in recipe.slots), ends[-1], reach, apart)
