"""What the recipes share: operands seen as rows, launches over rows, and checks of ids."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ...algebra import KernelMonoid
from ...algebra.gradients import Gradient
from ...core.axes import c_strides, merge_axes
from ...core.dtypes import BY_NAME
from ...core.errors import InvalidProblem
from ...core.op import Clear, Launch, Layout, Op, Recipe, Slot, Step, Verify
from ...core.policy import constants, tuned
from ...core.sizes import plain
from ...core.spec import KernelSpec
from ..policy import BroadcastFlat, BroadcastToRows, Elements, FillRows, RowWise, ScatterRows
from ..tiling import THREADS, Tiling, columns_apart, elements_launch, fault_launch, vector_for

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


class Rows:
    """The value operands of one problem, seen as rows of ``columns`` elements, and ``vector``, the columns of a lane.

    Trailing axes are merged where their strides allow. A lane has as many columns as a 16-byte load of the values, or fewer where an operand is not
    aligned for that. A layout that names no element is of values. Elements of another size take several loads or stores of 16 bytes, or one that is
    shorter.
    """

    def __init__(self, descriptor: SegmentDescriptor, *layouts: Layout) -> None:
        self.columns = descriptor.embedding_dim
        self.shape, self.strides = merge_axes(layouts[0].shape[1:], *[layout.strides[1:] for layout in layouts])
        self.steps, self.addresses = [layout.strides[0] for layout in layouts], [layout.address for layout in layouts]
        operands = [(address, (step, *strides)) for address, step, strides in zip(self.addresses, self.steps, self.strides, strict=True)]
        self.vector = vector_for(BY_NAME[descriptor.element].itemsize, self.columns)
        for layout, operand in zip(layouts, operands, strict=True):
            element = BY_NAME[layout.element or descriptor.element]
            widest = vector_for(element.itemsize, self.columns, operand)
            self.vector = self.vector if widest == element.vector else min(self.vector, widest)
        self.dims = len(self.shape)

    def spec(self, kernel: str, tiling: Tiling, min_blocks: int = 0, **given: int | str | bool) -> KernelSpec:
        """The spec of a kernel of this family, with the constants that follow from the rows and the tiling."""
        given |= {"vector": self.vector, "lanes": tiling.lanes, "dims": self.dims}
        return kernel_spec(kernel, tiling.threads, min_blocks, **given)

    def arguments(self, names: Sequence[str]) -> dict[str, Any]:
        """Extents and strides of the rows, by the parameters of a kernel that gives the operands these names."""
        steps = {f"{name}_row": step for name, step in zip(names, self.steps, strict=True)}
        return {"shape": self.shape, **steps, **{f"{name}_strides": strides for name, strides in zip(names, self.strides, strict=True)}}

    def spread(self, counts: Iterable[int], threads: int = 1) -> Rows | None:
        """The same rows with one of ``counts`` columns of a thread that lie apart, at least ``threads`` threads a row; None where that does not fit.

        It is for rows that are contiguous, but no vectors.
        """
        fits = self.vector == 1 and all(strides == (1,) for strides in self.strides)
        rows = copy.copy(self)
        rows.vector = columns_apart(plain(self.columns), counts, threads) if fits else 1
        return rows if rows.vector > 1 else None

    def within(self, element: str) -> Rows:
        """The same rows, with a vector of at most 16 bytes of another element, too."""
        self.vector = min(self.vector, BY_NAME[element].vector)
        return self

    def is_contiguous(self, operand: int) -> bool:
        """Whether the rows of an operand are contiguous, without gaps between them, and begin at a multiple of 16 bytes."""
        return self.is_dense(operand) and self.addresses[operand] == 0

    def is_dense(self, operand: int) -> bool:
        """Whether the rows of an operand are contiguous, without gaps between them, wherever they begin."""
        return self.dims == 1 and self.strides[operand] == (1,) and self.steps[operand] == self.columns


def kernel_spec(kernel: str, max_threads: int = THREADS, min_blocks: int = 0, **given: int | str | bool) -> KernelSpec:
    return KernelSpec(f"numba_baracuda.segment.kernels:{kernel}", tuple(sorted(given.items())), max_threads, min_blocks)


def packed(layout: Layout) -> bool:
    """Whether ids are contiguous and begin at a multiple of 16 bytes."""
    return layout.strides == (1,) and layout.address == 0


def ids_step(layouts: dict[str, Layout]) -> int:
    """Elements from one id to the next."""
    return layouts["segment_ids"].strides[0]


def scratch(descriptor: SegmentDescriptor, like: Layout) -> Layout:
    """The layout of a row for each segment in the workspace, with the trailing axes of an operand."""
    shape = (descriptor.num_segments, *like.shape[1:])
    return Layout(shape, c_strides(shape))


def taken(descriptor: SegmentDescriptor, monoid: KernelMonoid) -> float:
    """What a monoid takes from counts."""
    return descriptor.correction if monoid.corrected else 0


def is_flat(descriptor: SegmentDescriptor, gradient: Gradient, layouts: dict[str, Layout], least_columns: int = 2) -> bool:
    """Whether lanes share the elements of all rows, which are contiguous: what segments have is, too, and its places are numbers of 32 bits."""
    policy, columns = tuned(BroadcastFlat()), descriptor.embedding_dim
    places = descriptor.num_segments * columns * max(gradient.results, 2)
    fits = least_columns <= columns <= policy.max_columns and 0 < places < 1 << 31
    given = [layouts[name] for name in gradient.segments if name in layouts]
    return fits and all(layout.strides == c_strides(layout.shape) and layout.address == 0 for layout in given)


def over_rows(
    kernel: str,
    rows: Rows,
    names: Sequence[str],
    extent: int,
    rows_a_group: int,
    arguments: dict[str, Any],
    persistent: BroadcastToRows | ScatterRows | None = None,
    multiprocessors: int = 0,
    **given: Any,
) -> Launch:
    """A launch of a row-wise kernel over ``extent`` rows. The operands of ``rows`` are the kernel's parameters ``names``.

    ``persistent`` is the policy of a kernel whose blocks walk the rows in a grid-stride loop; they should fill ``multiprocessors``.
    """
    policy = tuned(RowWise())
    tiling = Tiling(extent, rows.columns, rows.vector, rows_a_group, policy.threads_per_block, policy.max_group_threads)
    min_blocks = persistent.min_blocks_per_multiprocessor if persistent else 0
    return Launch(
        rows.spec(kernel, tiling, min_blocks, cut=tiling.chunks > 1, **constants(policy), **given),
        tiling.persistent_launch(persistent, multiprocessors) if persistent else tiling.launch,
        {"rows": extent, "columns": rows.columns, "chunks": tiling.chunks, **rows.arguments(names), **arguments},
    )


def fill_rows(rows: Rows, extent: int, arguments: dict[str, Any], value: str, guarded: bool) -> Launch:
    """The launch that stores one number in ``extent`` rows."""
    plan = tuned(FillRows())
    return over_rows("fill_rows", rows, ("output",), extent, plan.items_per_thread, arguments, value=value, guarded=guarded, **constants(plan))


def elements(kernel: str, extent: int, arguments: dict[str, Any], value: str, index: str, **given: Any) -> Launch:
    """A launch of a kernel over single elements, which are contiguous, as are their ids."""
    policy = tuned(Elements())
    threads, lane_items = policy.threads_per_block, max(BY_NAME[value].vector, BY_NAME[index].vector)
    spec = kernel_spec(kernel, threads, value=value, index=index, **given, **constants(policy))
    return Launch(spec, elements_launch(extent, lane_items, threads, policy.items_per_thread), arguments)


def fill_elements(output: str, extent: int, value: str, fill: float = 0, aligned: bool = True) -> Launch:
    """The launch that stores one number in ``extent`` elements, which are contiguous; ``aligned``: whether they begin at a multiple of 16 bytes."""
    plan, vector = tuned(Elements()), BY_NAME[value].vector if aligned else 1
    spec = kernel_spec("fill_elements", plan.threads_per_block, value=value, vector=vector, **constants(plan))
    config = elements_launch(extent, vector, plan.threads_per_block, plan.items_per_thread)
    return Launch(spec, config, {"output": output, "elements": extent, "fill": fill})


NO_FAULT = int.from_bytes(b"\x7f" * 8, "little")  #: more than any row
FAULT = Slot("fault", "i64", 2)  #: the first row whose id is outside, and the first whose id is less than the one before


def faults(
    descriptor: SegmentDescriptor, ids: Layout, ranged: bool, ordered: bool, judge: Callable[[Sequence[int]], None], sizeless: bool = False
) -> list[Step]:
    """One pass over the ids, after which the host waits and ``judge`` judges what it found: of what is not looked for no fault.

    ``ranged`` ids should be in range, ``ordered`` ones ascend. ``sizeless``: whether ``judge`` knows nothing of the problem.
    """
    vector = BY_NAME[descriptor.index].vector if packed(ids) else 1
    spec = kernel_spec("first_fault", index=descriptor.index, ranged=ranged, ordered=ordered, vector=vector)
    step, rows = ids.strides[0], descriptor.num_inputs
    arguments = {"ids": "segment_ids", "fault": FAULT.name, "rows": rows, "segments": descriptor.limit, "ids_step": step}
    return [Clear(FAULT.name, 0x7F), Launch(spec, fault_launch(rows, vector), arguments), Verify(FAULT.name, judge, sizeless)]


def check_slots(descriptor: SegmentDescriptor) -> list[Slot]:
    return [FAULT] if descriptor.check_ids and descriptor.num_inputs else []


def checks(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> list[Step]:
    """The steps of ``check_ids``: none, or those that raise an error which names the position."""
    limit = descriptor.limit
    if not check_slots(descriptor):
        return []

    def judge(fault: Sequence[int]) -> None:
        outside, descent = fault
        if outside < NO_FAULT:
            raise InvalidProblem(
                f"{op.name}: segment_ids[{outside}] is outside [0, {limit}), wants every id inside; the first such position is named"
            )
        if descent < NO_FAULT:
            raise InvalidProblem(f"{op.name}: segment_ids[{descent}] is less than segment_ids[{descent - 1}], wants ids in ascending order")

    return faults(descriptor, layouts["segment_ids"], True, descriptor.in_order(op), judge)


def only_checks(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> Recipe:
    """The recipe for an output without elements."""
    return Recipe(tuple(checks(op, descriptor, layouts)), tuple(check_slots(descriptor)))
