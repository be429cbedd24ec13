"""The ragged fold: tiles of rows, then the runs that cross them."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...algebra import KernelMonoid
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Layout, Op, Recipe, Slot, Step, Target
from ..tiling import Tiling, share_for, unroll_for, vector_for
from .common import Rows, check_slots, checks, kernel_spec, only_checks, taken
from .order import Order, key_slots, keys, order_of, scratch_slot, sort

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

#: 32-bit registers of a multiprocessor for each thread of one block of the fold
_REGISTERS = 65536 // 128
#: most scalars of a state that a lane of the narrow fold keeps
_NARROW_SCALARS = 8


@dataclass(frozen=True)
class Fold:
    """What is folded into what. With a ``result`` type the output is a slot, whose rows lie as those of ``segments``."""

    monoid: KernelMonoid
    order: Order
    source: str
    output: str
    layouts: tuple[Layout, Layout]
    other: tuple[str, Layout] | None = None  #: the second array of a monoid of pairs
    result: str = ""
    guard: str = NULL
    cleared: str = NULL  #: what becomes 0 on the way, if rows are narrow: as the source in its layout
    empty: float = 0  #: what an empty segment gets

    @property
    def guarded(self) -> bool:
        return self.guard != NULL


def _tiles_blocks(descriptor: SegmentDescriptor, rows: Rows, fold: Fold, target: Target) -> int:
    """Resident blocks that the registers leave room for without a spill; what is known of sm_90 is scaled down for the other architectures.

    Of a foreign monoid the compiler decides.
    """
    if fold.monoid.foreign:
        return 0
    if rows.dims > 1:
        return 4
    permuted = fold.order.place != ""
    wide, access = BY_NAME[descriptor.element].accumulator in ("f64", "i64"), rows.vector * BY_NAME[descriptor.element].itemsize
    if fold.monoid.heavy or BY_NAME[descriptor.element].itemsize == 2:
        unroll = unroll_for(access, BY_NAME[fold.order.index].itemsize, rows.vector, fold.monoid)
        batch = unroll * max(access, 4) // 4 * (2 if fold.other else 1)
        states = rows.vector * fold.monoid.width * (2 if wide else 1)
        return max(1, min(5, _REGISTERS // (72 + batch + 3 * states + (unroll if permuted else 0))))
    if access == 16:
        return 4 if fold.monoid.finishes or (wide and permuted) else 5
    return 8 - wide - fold.monoid.finishes - fold.monoid.lifts - 2 * permuted - (target.capability[0] != 9)


def _narrow_blocks(descriptor: SegmentDescriptor, fold: Fold, target: Target) -> int:
    """The same for narrow rows."""
    if fold.monoid.foreign:
        return 0
    size = descriptor.embedding_dim * BY_NAME[descriptor.element].itemsize
    scalars = descriptor.embedding_dim * fold.monoid.width
    most = 8 - 2 * (_share(descriptor) == 16) - (fold.order.index == "i64")
    if fold.monoid.width > 1 or BY_NAME[descriptor.element].itemsize == 2:
        return max(2, most - 1 - scalars // 2 - 2 * (descriptor.element == "f64"))
    return most - (size > 8) - (size > 12) - fold.monoid.finishes - (target.capability[0] != 9)


def _share(descriptor: SegmentDescriptor) -> int:
    return share_for(descriptor.row_size, descriptor.num_inputs, descriptor.num_segments)


def narrow_share(descriptor: SegmentDescriptor, fold: Fold) -> int:
    """Rows that a lane takes where rows are narrow and lie side by side; else 0."""
    rows, order = Rows(descriptor, *fold.layouts), fold.order
    if order.place or not order.packed or fold.monoid.pairs or descriptor.embedding_dim * fold.monoid.width > _NARROW_SCALARS:
        return 0
    return _share(descriptor) if rows.side_by_side(0) and rows.strides[1] == (1,) else 0


def fold_steps(descriptor: SegmentDescriptor, target: Target, fold: Fold) -> tuple[list[Step], list[Slot]]:
    """The launches of a fold over ids in order, and the carries between them."""
    value, n, columns = descriptor.element, descriptor.num_inputs, descriptor.embedding_dim
    others = (fold.other[1],) if fold.other else ()
    rows, monoid, share = Rows(descriptor, *fold.layouts, *others), fold.monoid, narrow_share(descriptor, fold)
    state, scalars = monoid.kind or BY_NAME[value].accumulator, columns * monoid.width
    if not share and rows.vector > 1 and columns < 4 * rows.vector and rows.vector * BY_NAME[value].itemsize == 8:
        rows.vector //= 2  # else a warp walks ten tiles, whose runs end at ten times
    if fold.guarded:
        rows.vector = min(rows.vector, 4)  # of more columns the compiler unrolls no such fold, and little of it is ever run
    tiling = Tiling.of_narrow(n, share, target.multiprocessors) if share else Tiling.of(n, columns, rows.vector, target.multiprocessors)
    launch = _narrow if share else _tiles
    steps: list[Step] = [launch(descriptor, target, rows, tiling, fold)]
    if tiling.row_blocks == 1:
        return steps, []
    steps.append(join_carries(descriptor, rows, fold, tiling.entries))
    return steps, carry_slots(tiling.entries, scalars, state)


def carry_arguments(several: bool) -> dict[str, str]:
    """The arguments of a kernel for the slots of carries, if there are ``several`` row blocks."""
    return {name: name if several else NULL for name in ("carry_ids", "carry_counts", "carry_states")}


def carry_slots(entries: int, scalars: int, state: str) -> list[Slot]:
    """A row of states for every carry."""
    return [Slot("carry_ids", "i64", entries), Slot("carry_counts", "i64", entries), Slot("carry_states", state, entries * scalars)]


def join_carries(
    descriptor: SegmentDescriptor, rows: Rows, fold: Fold, entries: int, blank: bool = False, count: str = NULL, blocks: int = 0
) -> Launch:  # fmt: skip
    """Runs that cross row blocks; ``rows`` are those of source and output.

    Of ``entries`` carries there are only ``count[0]`` if that is given, which the device knows; then at most ``blocks`` blocks look for them.
    """
    value, columns = descriptor.element, descriptor.embedding_dim
    state = fold.monoid.kind or BY_NAME[value].accumulator
    rows = copy.copy(rows)
    while rows.vector > 1 and rows.vector * fold.monoid.width * BY_NAME[state].itemsize > (8 if fold.monoid.hungry else 16):
        rows.vector //= 2  # a block of so many threads has few registers
    joins = Tiling.of_carries(entries, columns, rows.vector, fold.monoid.hungry)
    counted = count != NULL
    spec = rows.spec(
        "fold_carries", joins, 1,
        monoid=fold.monoid.name, value=value, result=fold.result, blank=blank, guarded=fold.guarded, counted=counted,
    )  # fmt: skip
    arguments = {
        **carry_arguments(True), "guard": count if counted else fold.guard, "output": fold.output, "entries": entries, "columns": columns,
        "segments": descriptor.num_segments, "chunks": joins.chunks, "empty": fold.empty, "correction": taken(descriptor, fold.monoid),
        "output_row": rows.steps[1], "shape": rows.shape, "output_strides": rows.strides[1],
    }  # fmt: skip
    needed, threads, shared = joins.launch
    return Launch(spec, (min(needed, blocks) if counted else needed, threads, shared), arguments)


def _launch(tiling: Tiling, descriptor: SegmentDescriptor, fold: Fold) -> tuple[int, int, int]:
    return tiling.launch if fold.result else tiling.fold_launch(descriptor.num_segments)


def _tiles(descriptor: SegmentDescriptor, target: Target, rows: Rows, tiling: Tiling, fold: Fold) -> Launch:
    """Lanes share out the columns."""
    value, order, monoid = descriptor.element, fold.order, fold.monoid
    spec = rows.spec(
        "fold_tiles", tiling, _tiles_blocks(descriptor, rows, fold, target),
        monoid=monoid.name, value=value, result=fold.result, index=order.index, packed=order.packed, place=order.place, guarded=fold.guarded,
    )  # fmt: skip
    other, second = (fold.other[0], 2) if fold.other else (NULL, 0)
    arguments = {
        "input": fold.source, "other": other, "ids": order.ids, "permutation": order.permutation, "guard": fold.guard, "output": fold.output,
        **carry_arguments(tiling.row_blocks > 1), "rows": descriptor.num_inputs, "columns": rows.columns, "segments": descriptor.num_segments,
        "tile": tiling.tile, "row_blocks": tiling.row_blocks, "chunks": tiling.chunks, "empty": fold.empty, "correction": taken(descriptor, monoid),
        "ids_step": order.step, "input_row": rows.steps[0], "other_row": rows.steps[second], "output_row": rows.steps[1], "shape": rows.shape,
        "input_strides": rows.strides[0], "other_strides": rows.strides[second], "output_strides": rows.strides[1],
    }  # fmt: skip
    return Launch(spec, _launch(tiling, descriptor, fold), arguments)


def _narrow(descriptor: SegmentDescriptor, target: Target, rows: Rows, tiling: Tiling, fold: Fold) -> Launch:
    """Lanes share out the rows."""
    value, index, columns = descriptor.element, fold.order.index, rows.columns
    access = vector_for(BY_NAME[value].itemsize, columns, (rows.addresses[1], (rows.steps[1], 1)))
    spec = kernel_spec(
        "fold_narrow", tiling.threads, _narrow_blocks(descriptor, fold, target),
        monoid=fold.monoid.name, value=value, result=fold.result, index=index, columns=columns, share=_share(descriptor), access=access,
        guarded=fold.guarded, clears=fold.cleared != NULL,
    )  # fmt: skip
    arguments = {
        "input": fold.source, "ids": fold.order.ids, "guard": fold.guard, "cleared": fold.cleared, "output": fold.output,
        **carry_arguments(tiling.row_blocks > 1), "rows": descriptor.num_inputs, "segments": descriptor.num_segments, "tile": tiling.tile,
        "row_blocks": tiling.row_blocks, "empty": fold.empty, "correction": taken(descriptor, fold.monoid), "output_row": rows.steps[1],
    }  # fmt: skip
    return Launch(spec, _launch(tiling, descriptor, fold), arguments)


def ragged(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """The ragged fold over ids in order, which a sort or an index may have put so."""
    if not descriptor.embedding_dim * descriptor.num_segments:
        return only_checks(op, descriptor, layouts)
    order = order_of(op, descriptor, layouts, target)
    fold = Fold(descriptor.monoid(op), order, "input", "output", (layouts["input"], layouts["output"]), empty=descriptor.empty_value(op))
    steps, slots = fold_steps(descriptor, target, fold)
    return Recipe((*checks(op, descriptor, layouts), *order.steps, *steps), (*check_slots(descriptor), *order.slots, *slots))


def moved(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Rows are sorted along with their ids, where they are as narrow as places, and lie so; then the ragged fold over them."""
    rows, source = descriptor.num_inputs, Rows(descriptor, layouts["input"])
    if not rows * descriptor.embedding_dim * descriptor.num_segments or not source.side_by_side(0):
        return ragged(op, descriptor, layouts, target)
    size = descriptor.row_size
    order = Order("sorted_ids", descriptor.key_type, 1, True)
    fold = Fold(descriptor.monoid(op), order, "moved", "output", (layouts["input"], layouts["output"]), empty=descriptor.empty_value(op))
    steps, slots = fold_steps(descriptor, target, fold)
    by_id = sort(descriptor, "input", size, "moved")
    before = (keys(descriptor, layouts, ""), by_id)
    room = (*key_slots(descriptor), Slot("moved", descriptor.element, rows * descriptor.embedding_dim), scratch_slot(by_id, target))
    return Recipe((*checks(op, descriptor, layouts), *before, *steps), (*check_slots(descriptor), *room, *slots))


def movable(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why rows are not sorted along with their ids."""
    return None if descriptor.row_size in (0, 2, 4, 8) else f"is for rows of 2, 4 or 8 bytes, not {descriptor.row_size}"
