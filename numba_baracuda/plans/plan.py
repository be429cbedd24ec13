"""Plans: check a descriptor once, choose a variant, make its launches for each new layout, and run them."""

from __future__ import annotations

import dataclasses
import functools
import numbers
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..arrays import arrays, streams
from ..arrays.views import Bundle, View, remember
from ..core import html
from ..core.dtypes import BY_NAME
from ..core.errors import InvalidProblem, Unsupported
from ..core.op import EMULATED, Layout, Op, Operand, Recipe, Target, Variant
from ..core.options import Described, refusal, whole
from ..core.vocabulary import ArchSku, BackendKind, OpCategory
from ..runtime import driver
from . import frames
from .binding import check, check_extents, check_shapes
from .frames import Bound
from .memos import memo
from .preference import KernelSku, PlanPreference, PrecisionGuarantee

if TYPE_CHECKING:
    from .bound import BoundCall
    from .launches import KernelLaunch, LibraryStep

_DEFAULT = PlanPreference()


def target_of(device: int) -> Target:
    """The device as recipes see it; −1 is the emulator."""
    if device < 0:
        return EMULATED
    return Target(driver.compute_capability(device), driver.multiprocessors(device), driver.l2_bytes(device), ordinal=device)


class Plan:
    """An op for problems of one descriptor, on devices of one architecture. Made by :func:`select`, safe to run from any thread.

    A copy is the plan itself; loading a pickled plan selects it again.
    """

    def __init__(self, op: Op, descriptor: Any, variant: Variant, target: Target, selected_by: tuple[Any, ...] | None = None) -> None:
        self.op, self.descriptor, self.variant, self.target = op, descriptor, variant, target
        self._selected_by = selected_by
        self._labelled = [(operand.part_of or operand.name, operand.name, (op.name, operand.name, "")) for operand in op.operands]
        self._arguments = dict.fromkeys(argument for argument, _, _ in self._labelled)
        self._parts = [operand.name for operand in op.operands if operand.part_of]
        self._ids = {operand.name for operand in op.operands if operand.index}
        self._optional = {operand.name for operand in op.operands if operand.optional}
        self._numbers = {operand.name for operand in op.operands if operand.number}

    select: Callable[..., Plan]

    def __getattr__(self, name: str) -> Any:
        """Further attributes of this op's plans, which the descriptor has."""
        op = self.__dict__.get("op")  # a plan that is being made or copied has no op yet
        if op is not None and name in op.traits.get("plan_attributes", ()):
            return getattr(self.descriptor, name)
        raise AttributeError(f"a plan has no attribute {name!r}" + (f" for {op.name}" if op else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        if self._selected_by is None:
            raise TypeError(f"{self!r} was not made by select(), which a pickled plan is loaded by")
        descriptor, preference, device = self._selected_by
        return partial(select, device=device), (descriptor, preference)

    def __copy__(self) -> Plan:
        return self

    def __deepcopy__(self, memo: Any) -> Plan:
        return self

    def __repr__(self) -> str:
        return f"Plan({self.op.name}, {self.variant.name}, {self.descriptor})"

    def _repr_html_(self) -> str:
        problem = [(each.name, getattr(self.descriptor, each.name)) for each in dataclasses.fields(self.descriptor)]
        facts = [("computes", self.op.formula), *problem, ("workspace_size", f"{self.workspace_size:,} bytes")]
        return html.table((), [*facts, ("sku", html.table((), self.sku.facts()))], f"Plan of {self.op.name}")

    @functools.cached_property
    def workspace_size(self) -> int:
        """The most bytes that ``run`` needs, for any strides."""
        return _most_workspace(self.op, self.descriptor, self.variant, self.target)

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        """The accumulator's type, and whether every run gives the same bits."""
        element = BY_NAME[self.descriptor.element_name]
        stable = self.variant.deterministic
        accumulator = getattr(self.descriptor, "accumulator", element.accumulator)
        return PrecisionGuarantee(element.math, BY_NAME[accumulator].kind, stable, stable, self.op.traits.get("roundings", ""))

    @property
    def sku(self) -> KernelSku:
        """The name of what runs."""
        arch = ArchSku.EMULATOR if self.target.emulated else ArchSku.of(self.target.capability)
        element, index = self.descriptor.element_name, self.descriptor.index_name
        aux, variant = BY_NAME[index].kind if index else None, self.variant
        name = variant.named(self.op, self.descriptor, self.target) if variant.named else variant.name
        return KernelSku(self.op.category, int(self.op.kind), BY_NAME[element].kind, aux, arch, BackendKind.BESPOKE, name, self.precision_guarantee)

    def can_implement(self, **operands: Any) -> None:
        """Raises what ``run`` would raise for these operands; reads and writes nothing on the device."""
        self.bound(self.views(operands))

    def bind(self, stream: Any = None, workspace: Any = None, **operands: Any) -> BoundCall:
        """A call of ``run`` with these operands, which costs the host no more than its launches.

        Calls read the current values of the arrays. ``stream`` and ``workspace`` are as for ``run``; calls share scratch that the package allocates,
        so they must not overlap in time.
        """
        from .bound import BoundCall

        views = self.views(operands)
        bound = self.bound(views)
        return BoundCall(bound, views, stream, None if workspace is None else self._workspace(workspace, bound, views))

    def run(self, stream: Any = None, workspace: Any = None, **operands: Any) -> None:
        """Queues the op on ``stream``, by default the current one of the framework that owns the first operand.

        JAX knows nothing of that stream: its arrays must live until the stream has run the op, as must any array on a stream foreign to its
        framework. ``workspace`` is any device array of at least ``workspace_size`` bytes, 16-byte aligned; with None the package allocates
        it in stream order. While ``stream`` is captured, that memory belongs to the graph: under ``torch.cuda.graph`` it is in the graph's pool, else
        every launch of the graph allocates and frees it.

        The stream waits for arrays that come through DLPack, JAX's among them, and for those whose ``__cuda_array_interface__`` names a stream.
        Arrays of CuPy and torch must be ready on their framework's current stream; with another ``stream``, order it behind that one. A captured
        stream does not wait for streams outside of its capture.
        """
        self.execute(self.views(operands), stream, workspace)

    def launches(self, stream: Any = None, **operands: Any) -> list[KernelLaunch | LibraryStep]:
        """The steps of ``run`` for these operands, for a program that launches the kernels itself; call them in order to run the op.

        A :class:`KernelLaunch` has kernel, grid, block, shared bytes and arguments in order; a :class:`LibraryStep` is a sort, a product or a memory
        set. The steps hold the operands and scratch of their own, which is allocated on ``stream``."""
        from .launches import launches

        views = self.views(operands)
        return launches(self.bound(views), views, streams.stream_handle(stream, views[0], self.op.name))

    def views(self, operands: dict[str, Any]) -> list[View]:
        """The operands in the op's order, as views."""
        wanted, labelled = self._arguments, self._labelled
        if self._optional:
            labelled = [each for each in labelled if each[0] not in self._optional or operands.get(each[0]) is not None]
        try:
            given = [(operands[argument], name, at) for argument, name, at in labelled]
        except KeyError:
            missing = self.missing({name: self._read(operands[argument], name, at) for argument, name, at in labelled if argument in operands})
            raise InvalidProblem(f"{self.op.name}: operand '{missing}' is missing, wants {', '.join(wanted)}") from None
        if len(operands) > len(labelled) and not operands.keys() <= wanted.keys():
            unknown = ", ".join(sorted(operands.keys() - wanted.keys()))
            raise InvalidProblem(f"{self.op.name}: got unknown operands {unknown}, wants {', '.join(wanted)}")
        return [self._read(each, name, at) for each, name, at in given]

    def missing(self, given: dict[str, View], made: str = "") -> str:
        """The first missing argument, except one that will be ``made``.

        Raises instead for a wrong shape of an operand that is checked before it.
        """
        order = self.op.looked_at()
        lacking = next(operand for operand in order if not operand.optional and operand.name not in (*given, made))
        before = [operand for operand in order[: order.index(lacking)] if operand.name in given]
        check_shapes(self.op, self.descriptor, [(operand, given[operand.name]) for operand in before])
        return lacking.part_of or lacking.name

    def read_operand(self, given: Any, name: str) -> View:
        """The view of one operand."""
        return self._read(given, name, (self.op.name, name, ""))

    def _read(self, given: Any, name: str, at: tuple[str, str, str]) -> View:
        """The view of an array, of an operand that a bundle brings, or of a number where the operand may be one."""
        if name in self._parts or (name in self._ids and isinstance(given, Bundle)):
            return self.descriptor.part(self.op, given, name)  # type: ignore[no-any-return]
        if name in self._numbers and isinstance(given, numbers.Real) and not isinstance(given, bool):
            return View.of_number(float(given), name)
        return arrays.read(given, at)

    def bound(self, views: list[View], pointers: list[int] | None = None) -> Bound:
        """The launches for operands of these layouts, made at the first call for them. ``pointers`` are the views' addresses, if known."""
        pointers = pointers or [view.ptr for view in views]
        key: Any = (self, *[(view.type, view.shape, view.strides) for view in views], *[pointer & 15 for pointer in pointers])
        if self._optional:
            key = key, tuple(view.name for view in views)
        bound = frames.bounds.get(key) or frames.keep(key, self.settle(views))
        bound.check_aliasing(pointers, views)
        return bound

    def settle(self, views: list[View]) -> Bound:
        """Checks operands, and makes the launches for their layouts."""
        op = self.op
        if self._optional:
            present = {view.name for view in views}
            op = dataclasses.replace(op, operands=tuple(operand for operand in op.operands if operand.name in present))
        check(op, self.descriptor, views)
        device = arrays.check_one_device(op.name, views)
        target = self.target if device < 0 else target_of(device)
        layouts = {view.name: Layout(tuple(view.shape), tuple(view.strides), view.ptr & 15, view.element, view.number) for view in views}
        return frames.bind(op, self.variant.recipe(op, self.descriptor, layouts, target), views, target, device)

    def execute(self, views: list[View], stream: Any, workspace: Any) -> None:
        """``run`` for operands that are already views."""
        pointers = [view.ptr for view in views]
        bound = self.bound(views, pointers)
        handle = streams.stream_handle(stream, views[0], self.op.name)
        memory = None
        if workspace is not None:
            memory = self._workspace(workspace, bound, views)
            streams.follow([memory], handle, bound.frame.device)
        bound.run(handle, pointers, views, memory)

    def _workspace(self, given: Any, bound: Bound, views: list[View]) -> View:
        """The caller's workspace; on other devices than the plan's, it may have to be larger than ``workspace_size``."""
        return bound.read_workspace(given, views, max(self.workspace_size, bound.workspace))


def queue(
    name: str, recipe: Recipe | Callable[[], Recipe], views: list[View], stream: int, inputs: int = 1, updated: bool = False, key: Any = None
) -> None:
    """Queues steps that belong to no public op; ``views`` are inputs, then outputs, which may be read as well if ``updated``.

    ``name`` is for messages. With a ``key``, launches are kept for further calls with it on operands of these layouts; ``recipe`` may be a function.
    """
    pointers = [view.ptr for view in views]
    known: Any = (name, key, *[(view.name, view.type, view.shape, view.strides) for view in views], *[pointer & 15 for pointer in pointers])
    bound = None if key is None else frames.bounds.get(known)
    if bound is None:
        operands = tuple(Operand(view.name, (), output=k >= inputs, updated=updated) for k, view in enumerate(views))
        op = Op(name, OpCategory.INDEXING, OpCategory.INDEXING, "", "", operands, (), ())
        device = arrays.check_one_device(name, views)
        bound = frames.bind(op, recipe if isinstance(recipe, Recipe) else recipe(), views, target_of(device), device)
        if key is not None:
            frames.keep(known, bound)
    bound.run(stream, pointers, views, None)


_plans: dict[Any, Plan] = memo()


def select(descriptor: Any, preference: PlanPreference = _DEFAULT, *, device: int | None = None) -> Plan:
    """The plan for a descriptor: the first variant that supports it and that ``preference`` admits; the fastest first.

    ``device`` is a CUDA ordinal; by default 0, or the emulator when there is no GPU. The same arguments give the same plan.
    """
    if device is None:
        device = -1 if arrays.emulating() else 0
    key = (descriptor, preference, device if type(device) is int else whole("select", "device", device))
    try:
        plan = _plans.get(key)
    except TypeError:  # an object without a hash is neither a descriptor nor a preference
        plan = None
    if plan is None:
        plan = remember(_plans, key, choose(descriptor, preference, device))
    return plan


def _most_workspace(op: Op, descriptor: Any, variant: Variant, target: Target) -> int:
    """Bytes of the largest workspace that any usual layout of the operands needs."""
    return max(variant.recipe(op, descriptor, layouts, target).workspace for layouts in descriptor.typical_layouts(op))


def _fastest_first(op: Op, descriptor: Any, deterministic: bool) -> list[Variant]:
    """The variants of the op in the order in which they are tried. Times are not asked for where there is no choice, as each asks about sizes."""
    serving = [each for each in op.variants if (each.deterministic or not deterministic) and each.refuses(op, descriptor) is None]
    if len(serving) < 2:
        return [*op.variants]
    return sorted(serving, key=lambda variant: variant.time(op, descriptor)) + [each for each in op.variants if each not in serving]


def choose(descriptor: Any, preference: PlanPreference, device: int, target: Target | None = None) -> Plan:
    """The plan that :func:`select` makes, and keeps in its memo, for new arguments; for a ``target`` without a device, if one is given."""
    selected_by = descriptor, preference, device
    if not isinstance(descriptor, Described):
        example = 'nb.SegmentDescriptor("segment_sum", num_inputs=100, embedding_dim=8, num_segments=5)'
        raise refusal("select", "descriptor", descriptor, f"a descriptor of the problem, such as {example}")
    if not isinstance(preference, PlanPreference):
        raise refusal("select", "preference", preference, "a PlanPreference")
    op = descriptor.find_op()
    if preference.max_workspace_bytes is not None and hasattr(descriptor, "within"):
        descriptor = descriptor.within(preference.max_workspace_bytes)
    descriptor.check(op)
    op = descriptor.specialise(op)
    check_extents(op, descriptor)
    target = target or target_of(device)
    if preference.prefer_backend not in (None, BackendKind.BESPOKE):
        raise Unsupported(f"{op.name}: no kernel of backend {BackendKind.parse(preference.prefer_backend).name}, wants BESPOKE or none")
    reasons, admits, least = [], "", None
    for variant in _fastest_first(op, descriptor, preference.deterministic):
        if preference.deterministic and not variant.deterministic:
            reasons.append(f"{variant.name} is not deterministic")
            if not variant.refuses(op, descriptor):
                admits = admits or f"deterministic=False, which admits {variant.name}"
            continue
        reason = variant.refuses(op, descriptor)
        if reason:
            reasons.append(f"{variant.name} {reason}")
            continue
        if preference.max_workspace_bytes is not None:
            needed = _most_workspace(op, descriptor, variant, target)
            if needed > preference.max_workspace_bytes:
                reasons.append(f"{variant.name} needs a workspace of {needed} bytes, more than {preference.max_workspace_bytes}")
                least = min(least or (needed, variant.name), (needed, variant.name))
                continue
        return Plan(op, descriptor, variant, target, selected_by)
    room = f"max_workspace_bytes={least[0]}, which admits {least[1]}" if least else ""
    way = " or ".join(filter(None, (admits, room))) or "a smaller problem or more workspace"
    raise Unsupported(f"{op.name}: no variant serves this problem: {'; '.join(reasons)}; wants {way}")


Plan.select = staticmethod(select)
