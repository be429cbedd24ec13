"""Plans: a descriptor checked once, a variant chosen, its kernels bound to layouts as they come, and then one launch after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import arrays, registry
from .arrays import View
from .dtypes import BY_NAME, ElementKind
from .errors import InvalidProblem, KernelLaunchError, MisalignedOperand, Unsupported, WorkspaceTooSmall
from .op import EMULATED, NULL, Clear, Launch, Layout, Op, Operand, Recipe, Slot, Sort, Target, Variant, Verify
from .runtime import launch
from .runtime.sorting import sort_ids
from .vocabulary import ArchSku, BackendKind, MathPrecision, OpCategory


@dataclass(frozen=True)
class PlanPreference:
    """What a caller wants of the choice of kernels.

    ``max_workspace_bytes``: only variants whose workspace fits. ``deterministic``: only variants that give the same bits in every run. ``prefer_backend``: only kernels
    of this backend. ``allow_sm90a``: whether kernels that run on nothing but compute capability 9.0 may be chosen; there are none so far.
    """

    max_workspace_bytes: int | None = None
    deterministic: bool = True
    prefer_backend: BackendKind | str | None = None
    allow_sm90a: bool = True


@dataclass(frozen=True)
class PrecisionGuarantee:
    """What a plan promises of its numbers."""

    math_precision: MathPrecision
    accumulator: ElementKind
    bit_stable_on_same_hardware: bool
    deterministic: bool


@dataclass(frozen=True)
class KernelSku:
    """Identity of what a plan runs; unique for each op, dtypes, variant and architecture."""

    category: OpCategory
    op: int
    element: ElementKind
    aux_element: ElementKind | None
    arch: ArchSku
    backend: BackendKind
    variant: str
    precision_guarantee: PrecisionGuarantee
    layout: None = None
    epilogue: None = None


_DEFAULT = PlanPreference()


def target_of(device: int) -> Target:
    """The device as recipes see it; −1 is the emulator."""
    if device < 0:
        return EMULATED
    return Target(launch.compute_capability(device), launch.multiprocessors(device))


class Plan:
    """An op for problems of one descriptor, on devices of one architecture. Made by :func:`select`, safe to run from any thread."""

    def __init__(self, op: Op, descriptor: Any, variant: Variant, target: Target, workspace_size: int) -> None:
        self.op, self.descriptor, self.variant, self.target = op, descriptor, variant, target
        self._workspace_size = workspace_size
        self._names = [operand.name for operand in op.operands]
        self._bound: dict[Any, Bound] = {}

    select: Callable[..., Plan]

    def __repr__(self) -> str:
        return f"Plan({self.op.name}, {self.variant.name}, {self.descriptor})"

    @property
    def workspace_size(self) -> int:
        """Bytes that ``run`` needs at most, whatever the strides; a sort draws its own memory from CuPy's pool."""
        return self._workspace_size

    @property
    def precision_guarantee(self) -> PrecisionGuarantee:
        element = BY_NAME[self.descriptor.element_name]
        stable = self.variant.deterministic
        return PrecisionGuarantee(element.math, BY_NAME[element.accumulator].kind, stable, stable)

    @property
    def sku(self) -> KernelSku:
        arch = ArchSku.EMULATOR if self.target.emulated else ArchSku.of(self.target.capability)
        element, index = self.descriptor.element_name, self.descriptor.index_name
        aux = BY_NAME[index].kind if index else None
        return KernelSku(
            self.op.category, int(self.op.kind), BY_NAME[element].kind, aux, arch, BackendKind.BESPOKE, self.variant.name, self.precision_guarantee
        )

    def can_implement(self, **operands: Any) -> None:
        """Raises what ``run`` would raise of these operands; reads and writes nothing on the device."""
        self.bind(self.views(operands))

    def run(self, stream: Any = None, workspace: Any = None, **operands: Any) -> None:
        """Queues the op on ``stream``, by default the current one of the framework that owns the first operand.

        ``workspace`` is any device array of at least ``workspace_size`` bytes, 16-byte aligned; None lets the package take what it needs in stream order.
        """
        self.execute(self.views(operands), stream, workspace)

    def views(self, operands: dict[str, Any]) -> list[View]:
        """The operands in the op's order, seen as addresses."""
        try:
            views = [arrays.view(operands[name], self.op.name, name) for name in self._names]
        except KeyError as missing:
            raise InvalidProblem(f"{self.op.name}: operand {missing} is missing, wants {', '.join(self._names)}") from None
        if len(operands) > len(views):
            unknown = ", ".join(sorted(set(operands) - set(self._names)))
            raise InvalidProblem(f"{self.op.name}: got unknown operands {unknown}, wants {', '.join(self._names)}")
        return views

    def bind(self, views: list[View]) -> Bound:
        """The launches for operands of these layouts, made at the first call for them."""
        key = tuple([(v.shape, v.strides, v.element, v.ptr & 15, v.device) for v in views])
        bound = self._bound.get(key)
        if bound is None:
            check(self.op, self.descriptor, views)
            device = arrays.check_one_device(self.op.name, views)
            target = self.target if device < 0 else target_of(device)
            layouts = {v.name: Layout(tuple(v.shape), tuple(v.strides), v.ptr & 15) for v in views}
            recipe = self.variant.recipe(self.op, self.descriptor, layouts, target)
            bound = self._bound[key] = Bound(self.op, recipe, views, target, device)
        bound.check_aliasing(views)
        return bound

    def execute(self, views: list[View], stream: Any, workspace: Any) -> None:
        """``run`` for operands that are already views."""
        bound = self.bind(views)
        handle = arrays.stream_handle(stream, views[0])
        bound(handle, views, self._workspace(workspace, bound, views, handle) if bound.workspace else None)

    def _workspace(self, given: Any, bound: Bound, views: list[View], handle: int) -> View:
        if given is None:
            return arrays.scratch(views[0], bound.workspace, handle)
        workspace = arrays.view(given, self.op.name, "workspace")
        arrays.check_one_device(self.op.name, [views[0], workspace])
        size = BY_NAME[workspace.element].itemsize
        for extent in workspace.shape:
            size *= extent
        if size < self._workspace_size:
            raise WorkspaceTooSmall(f"{self.op.name}: workspace", self._workspace_size, size)
        if not arrays.is_contiguous(workspace):
            raise Unsupported(f"{self.op.name}: workspace has strides {workspace.strides}, wants contiguous memory")
        if workspace.ptr % 16:
            raise MisalignedOperand(f"{self.op.name}: workspace is at address {workspace.ptr:#x}, wants a multiple of 16")
        if any(arrays.overlaps(workspace, view) for view in views):
            raise InvalidProblem(f"{self.op.name}: workspace overlaps an operand, wants memory of its own")
        return workspace


def check(op: Op, descriptor: Any, views: Sequence[View]) -> None:
    """Shapes in the order of the operands, then dtypes, then what may be written."""
    trailing: tuple[int, ...] | None = None
    for operand, view in zip(op.operands, views, strict=True):
        trailing = _check_shape(op, descriptor, operand, tuple(view.shape), trailing)
    for operand, view in zip(op.operands, views, strict=True):
        wanted = descriptor.index_name if operand.index else descriptor.element_name
        if view.element != wanted:
            got = BY_NAME[view.element].numpy_name
            raise InvalidProblem(f"{op.name}: {operand.name} is {got}, wants {BY_NAME[wanted].numpy_name}")
        if operand.output and view.readonly:
            raise InvalidProblem(f"{op.name}: {operand.name} is read-only, wants memory that can be written")
        if operand.output and any(extent > 1 and stride == 0 for extent, stride in zip(view.shape, view.strides, strict=True)):
            raise InvalidProblem(f"{op.name}: {operand.name} is a broadcast view (strides {tuple(view.strides)}), wants one place for each element")


def _check_shape(op: Op, descriptor: Any, operand: Operand, shape: tuple[int, ...], trailing: tuple[int, ...] | None) -> tuple[int, ...] | None:
    wanted = [getattr(descriptor, axis) for axis in operand.axes]
    if len(operand.axes) == 1:
        if shape != tuple(wanted):
            raise InvalidProblem(f"{op.name}: {operand.name} has shape {list(shape)}, wants {wanted}")
        return trailing
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
        self.names = {operand.name: k for k, operand in enumerate(op.operands)}
        for slot in recipe.slots:
            self.names[slot.name] = len(self.names)
        self.offsets = [sum(slot.nbytes for slot in recipe.slots[:k]) for k in range(len(recipe.slots))]
        spans = [arrays.span(view) for view in views]
        reach = [(low - view.ptr, high - view.ptr) for view, (low, high) in zip(views, spans, strict=True)]
        outputs = [k for k, operand in enumerate(op.operands) if operand.output]
        inputs = [k for k, operand in enumerate(op.operands) if not operand.output]
        self.pairs = [(out, *reach[out], k, *reach[k]) for out in outputs for k in inputs if reach[out][0] < reach[out][1] and reach[k][0] < reach[k][1]]
        if target.emulated:
            from .runtime.emulated import Emulated

            self.acts: list[Any] = [Emulated(op, recipe)]
        else:
            self.acts = [self._act(step) for step in recipe.steps]

    def check_aliasing(self, views: Sequence[View]) -> None:
        """No output may overlap an input."""
        for out, out_low, out_high, k, low, high in self.pairs:
            mine, other = views[out].ptr, views[k].ptr
            if mine + out_low < other + high and other + low < mine + out_high:
                raise InvalidProblem(f"{self.op.name}: {views[out].name} overlaps {views[k].name}, wants memory of its own")

    def __call__(self, stream: int, views: list[View], workspace: View | None) -> None:
        pointers = [view.ptr for view in views]
        if workspace is not None:
            base = workspace.ptr
            pointers += [base + offset for offset in self.offsets]
        if self.device < 0:
            arrays.warn_emulated()
            self.acts[0](views, workspace)
            return
        kept = list(views)
        for act in self.acts:
            act(stream, pointers, kept)

    def _act(self, step: Any) -> Callable[[int, list[int], list[View]], None]:
        """A step as a function of stream, pointers and what must stay alive."""
        if isinstance(step, Launch):
            return self._launch(step)
        if isinstance(step, Sort):
            where = self.names[step.operand]
            self.names["permutation"], self.names["sorted_ids"] = len(self.names), len(self.names) + 1

            def sort(stream: int, pointers: list[int], kept: list[View]) -> None:
                made = sort_ids(kept[where], stream)
                kept.extend(made)
                pointers.extend(view.ptr for view in made)

            return sort
        slot = next(slot for slot in self.recipe.slots if slot.name == step.slot)
        place = self.names[slot.name]
        if isinstance(step, Clear):
            return lambda stream, pointers, kept: launch.memset_async(pointers[place], slot.nbytes, stream, step.byte, self.device)

        def verify(stream: int, pointers: list[int], kept: list[View]) -> None:
            step.judge(launch.read_back(pointers[place], slot.count, stream, self.device))

        return verify

    def _launch(self, step: Launch) -> Callable[[int, list[int], list[View]], None]:
        from .runtime import cache

        blocks, threads, shared = step.config
        if blocks >= 1 << 31:
            raise Unsupported(f"{self.op.name}: {blocks} blocks, wants fewer than 2^31; the problem is too large for one launch")
        if not blocks:
            return lambda stream, pointers, kept: None
        kernel = launch.load(cache.cubin(step.spec, self.target.arch))
        made = launch.Launch(kernel, step.spec.signature, (blocks, 1, 1), threads, shared, step.scalars, device=self.device)
        places = [self.names.get(name, -1) if name != NULL else -1 for name in step.pointers]
        if -1 not in places and len(places) > 1:
            pick = operator.itemgetter(*places)
            return lambda stream, pointers, kept: made(stream, *pick(pointers))
        return lambda stream, pointers, kept: made(stream, *[pointers[k] if k >= 0 else 0 for k in places])


_plans: dict[Any, Plan] = {}


def select(descriptor: Any, preference: PlanPreference = _DEFAULT, *, device: int | None = None) -> Plan:
    """The plan for a descriptor: checks it, and takes the first variant that supports it and that ``preference`` admits.

    ``device`` is a CUDA ordinal; by default 0, or the emulator when there is no GPU. The same arguments give the same plan.
    """
    if device is None:
        device = -1 if arrays.emulating() else 0
    key = (descriptor, preference, device)
    plan = _plans.get(key)
    if plan is None:
        plan = _plans[key] = _select(descriptor, preference, device)
    return plan


def _select(descriptor: Any, preference: PlanPreference, device: int) -> Plan:
    op = registry.find(descriptor.op_name)
    descriptor.check(op)
    target = target_of(device)
    if preference.prefer_backend is not None and BackendKind(preference.prefer_backend) != BackendKind.BESPOKE:
        raise Unsupported(f"{op.name}: no kernel of backend {BackendKind(preference.prefer_backend).name}, wants BESPOKE or none")
    reasons = []
    for variant in op.variants:
        if preference.deterministic and not variant.deterministic:
            reasons.append(f"{variant.name} is not deterministic")
            continue
        refusal = variant.refuses(op, descriptor)
        if refusal:
            reasons.append(f"{variant.name} {refusal}")
            continue
        needed = max(variant.recipe(op, descriptor, layouts, target).workspace for layouts in descriptor.typical_layouts(op))
        if preference.max_workspace_bytes is not None and needed > preference.max_workspace_bytes:
            reasons.append(f"{variant.name} needs a workspace of {needed} bytes, more than {preference.max_workspace_bytes}")
            continue
        return Plan(op, descriptor, variant, target, needed)
    raise Unsupported(f"{op.name}: no variant serves {descriptor}: {'; '.join(reasons)}")


Plan.select = staticmethod(select)

__all__ = ["KernelLaunchError", "KernelSku", "Plan", "PlanPreference", "PrecisionGuarantee", "Slot", "select"]
