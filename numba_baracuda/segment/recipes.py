"""From a segment problem to launches: which kernel, with which constants, over which grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..dtypes import BY_NAME
from ..errors import InvalidProblem
from ..op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Sort, Step, Target, Verify
from ..runtime.spec import KernelSpec
from .tiling import CARRY_THREADS, FINISHING_FOLD_BLOCKS, FOLD_BLOCKS, THREADS, UNROLL, Tiling, vector_for

if TYPE_CHECKING:
    from .family import SegmentDescriptor


def merge_axes(shape: Sequence[int], *strides: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Neighbouring axes that every operand walks as one become one; axes of extent 1 vanish. At least one axis is left."""
    extents: list[int] = []
    kept: list[list[int]] = []
    for k, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = [each[k] for each in strides]
        if extents and all(before == step * extent for before, step in zip(kept[-1], steps, strict=True)):
            extents[-1] *= extent
            kept[-1] = steps
        else:
            extents.append(extent)
            kept.append(steps)
    if not extents:
        extents, kept = [1], [[1] * len(strides)]
    return tuple(extents), [tuple(steps[k] for steps in kept) for k in range(len(strides))]


class Rows:
    """The value operands of one problem, seen as rows of ``columns`` columns: merged trailing axes, and the widest access that fits all of them."""

    def __init__(self, descriptor: SegmentDescriptor, *layouts: Layout) -> None:
        self.columns = descriptor.embedding_dim
        self.shape, self.strides = merge_axes(layouts[0].shape[1:], *[layout.strides[1:] for layout in layouts])
        self.steps = [layout.strides[0] for layout in layouts]
        places = [(layout.address, (step, *strides)) for layout, step, strides in zip(layouts, self.steps, self.strides, strict=True)]
        self.vector = vector_for(BY_NAME[descriptor.element].itemsize, self.columns, *places)
        self.dims = len(self.shape)
        self.tuples = f"{self.dims}xi64"

    def spec(self, kernel: str, signature: str, max_threads: int = THREADS, min_blocks: int = 0, **constants: int | str | bool) -> KernelSpec:
        """A kernel of this family; geometry is filled in."""
        shape = Tiling(1, self.columns, self.vector, 1)
        constants |= {"vector": self.vector, "lanes": shape.lanes, "dims": self.dims}
        return kernel_spec(kernel, signature, max_threads, min_blocks, **constants)


def kernel_spec(kernel: str, signature: str, max_threads: int = THREADS, min_blocks: int = 0, **constants: int | str | bool) -> KernelSpec:
    return KernelSpec(f"numba_baracuda.segment.kernels:{kernel}", tuple(sorted(constants.items())), signature, max_threads, min_blocks)


def ids_step(layouts: dict[str, Layout]) -> int:
    """Elements from one id to the next."""
    return layouts["segment_ids"].strides[0]


def _fold(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, permuted: bool) -> Recipe:
    rows = Rows(descriptor, layouts["input"], layouts["output"])
    value, index = descriptor.element, descriptor.index
    state = BY_NAME[value].accumulator
    monoid = op.traits["monoid"]
    n, columns, segments = descriptor.num_inputs, descriptor.embedding_dim, descriptor.num_segments
    if not columns * segments:
        return _only_checks(op, descriptor, layouts)
    tiling = Tiling.of(n, columns, rows.vector, target.multiprocessors)
    ids = "sorted_ids" if permuted else "segment_ids"
    carries = ("carry_ids", "carry_counts", "carry_states")
    crossing = tiling.row_blocks > 1
    lies = layouts["segment_ids"]
    packed = permuted or (lies.strides == (1,) and lies.address == 0)
    fold = Launch(
        rows.spec(
            "fold_tiles",
            f"*{value} *{index} *i64 *{value} *i64 *i64 *{state}"
            f" i64 i64 i64 i64 i64 i64 {state} i64 i64 i64 {rows.tuples} {rows.tuples} {rows.tuples}",
            tiling.threads, FINISHING_FOLD_BLOCKS if monoid.finishes else FOLD_BLOCKS,
            monoid=monoid.name, value=value, index=index, packed=packed, permuted=permuted,
        ),
        tiling.fold_launch(segments),
        ("input", ids, "permutation" if permuted else NULL, "output", *(carries if crossing else (NULL,) * 3)),
        (
            n, columns, segments, tiling.tile, tiling.row_blocks, tiling.chunks, descriptor.empty_value(op),
            1 if permuted else ids_step(layouts), *rows.steps, rows.shape, *rows.strides,
        ),
    )  # fmt: skip
    steps: list[Step] = [*_checks(op, descriptor, layouts), *([Sort("segment_ids")] if permuted else []), fold]
    slots = list(_check_slots(descriptor))
    if crossing:
        entries = tiling.entries
        slots += [
            Slot("carry_ids", "i64", entries),
            Slot("carry_counts", "i64", entries),
            Slot("carry_states", state, entries * columns * monoid.width),
        ]
        steps.append(
            Launch(
                rows.spec(
                    "fold_carries", f"*i64 *i64 *{state} *{value} i64 i64 i64 i64 i64 {rows.tuples} {rows.tuples}", CARRY_THREADS, 1,
                    monoid=monoid.name, value=value,
                ),
                Tiling.of_carries(entries, columns, rows.vector).launch,
                (*carries, "output"),
                (entries, columns, segments, tiling.chunks, rows.steps[1], rows.shape, rows.strides[1]),
            )
        )  # fmt: skip
    return Recipe(tuple(steps), tuple(slots))


def fold_sorted(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The ragged fold over ids in order."""
    return _fold(op, descriptor, layouts, target, permuted=False)


def fold_permuted(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Sorts the ids, then the ragged fold through the permutation."""
    return _fold(op, descriptor, layouts, target, permuted=True)


def _over_rows(
    kernel: str, rows: Rows, extent: int, rows_a_group: int, signature: str, pointers: tuple[str, ...], scalars: tuple[Any, ...], **constants: Any
) -> Launch:
    """A launch of a row-wise kernel over ``extent`` rows; its scalars are rows, columns, chunks, ``scalars``, then the strides."""
    tiling = Tiling(extent, rows.columns, rows.vector, rows_a_group)
    return Launch(
        rows.spec(kernel, signature, **constants), tiling.launch, pointers,
        (extent, rows.columns, tiling.chunks, *scalars, *rows.steps, rows.shape, *rows.strides),
    )  # fmt: skip


def scatter(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Atomic sums in the output, then counts where the op or ``empty`` asks for them."""
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not segments * descriptor.embedding_dim:
        return _only_checks(op, descriptor, layouts)
    value, index, empty = descriptor.element, descriptor.index, descriptor.empty_value(op)
    both, out = Rows(descriptor, layouts["input"], layouts["output"]), Rows(descriptor, layouts["output"])
    state = BY_NAME[value].accumulator
    wide = value == "f32" and both.vector == 4 and target.capability >= (9, 0)
    steps: list[Step] = [
        *_checks(op, descriptor, layouts),
        _over_rows(
            "fill_rows", out, segments, 1, f"*{value} i64 i64 i64 {state} i64 {out.tuples} {out.tuples}",
            ("output",), (0.0,), value=value,
        ),
        _over_rows(
            "scatter_rows", both, n, UNROLL, f"*{value} *{index} *{value} i64 i64 i64 i64 i64 i64 i64 {both.tuples} {both.tuples} {both.tuples}",
            ("input", "segment_ids", "output"), (segments, ids_step(layouts)), value=value, index=index, wide_red=wide,
        ),
    ]  # fmt: skip
    slots = list(_check_slots(descriptor))
    monoid = op.traits["monoid"]
    if op.traits["counts"] or empty != 0.0:
        count = descriptor.count_type
        slots.append(Slot("counts", count, segments))
        steps += _count(descriptor, layouts)
        steps.append(
            _over_rows(
                "finish_rows", out, segments, 1, f"*{value} *{count} i64 i64 i64 {state} i64 {out.tuples} {out.tuples}",
                ("output", "counts"), (empty,), monoid=monoid.name, value=value, count=count,
            )
        )  # fmt: skip
    return Recipe(tuple(steps), tuple(slots))


def gather(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Each row takes its segment's gradient, divided by the segment's count where the op is a mean."""
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not n * descriptor.embedding_dim:
        return _only_checks(op, descriptor, layouts)
    value, index = descriptor.element, descriptor.index
    rows = Rows(descriptor, layouts["d_output"], layouts["d_input"])
    count = descriptor.count_type if op.traits["counts"] else ""
    steps: list[Step] = [*_checks(op, descriptor, layouts)]
    slots = list(_check_slots(descriptor))
    if count and segments:
        slots.append(Slot("counts", count, segments))
        steps += _count(descriptor, layouts)
    signature = f"*{value} *{index} *{count or 'i32'} *{value} i64 i64 i64 i64 i64 i64 i64 {rows.tuples} {rows.tuples} {rows.tuples}"
    steps.append(
        _over_rows(
            "gather_rows", rows, n, UNROLL, signature, ("d_output", "segment_ids", "counts" if count and segments else NULL, "d_input"),
            (segments, ids_step(layouts)), value=value, index=index, count=count,
        )
    )  # fmt: skip
    return Recipe(tuple(steps), tuple(slots))


def _count(descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> list[Step]:
    n, index, count = descriptor.num_inputs, descriptor.index, descriptor.count_type
    spec = kernel_spec("count_ids", f"*{index} *{count} i64 i64 i64", index=index, count=count)
    scalars = (n, descriptor.num_segments, ids_step(layouts))
    return [Clear("counts"), Launch(spec, Tiling.of_ids(n).launch, ("segment_ids", "counts"), scalars)]


_NO_FAULT = int.from_bytes(b"\x7f" * 8, "little")


def _check_slots(descriptor: SegmentDescriptor) -> list[Slot]:
    return [Slot("fault", "i64", 2)] if descriptor.check_ids and descriptor.num_inputs else []


def _checks(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> list[Step]:
    """``check_ids``: one pass over the ids, and a wait for its verdict."""
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if not _check_slots(descriptor):
        return []

    def judge(fault: Sequence[int]) -> None:
        outside, descent = fault
        if outside < _NO_FAULT:
            raise InvalidProblem(
                f"{op.name}: segment_ids[{outside}] is outside [0, {segments}), wants every id inside; the first such position is named"
            )
        if descent < _NO_FAULT:
            raise InvalidProblem(f"{op.name}: segment_ids[{descent}] is less than segment_ids[{descent - 1}], wants ids in ascending order")

    spec = kernel_spec("first_fault", f"*{descriptor.index} *i64 i64 i64 i64", index=descriptor.index, ordered=op.traits["ordered"])
    launch = Launch(spec, Tiling.of_ids(n).launch, ("segment_ids", "fault"), (n, segments, ids_step(layouts)))
    return [Clear("fault", 0x7F), launch, Verify("fault", judge)]


def _only_checks(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> Recipe:
    """For an output without elements."""
    return Recipe(tuple(_checks(op, descriptor, layouts)), tuple(_check_slots(descriptor)))
