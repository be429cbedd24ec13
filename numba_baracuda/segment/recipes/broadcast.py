"""Gradients of folds that round, choose or multiply, and softmax: a fold, if the gradient needs one, whose results are then broadcast to the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...algebra import monoid_of
from ...algebra.gradients import Gradient, gradient_named
from ...core.axes import c_strides, ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Clear, Launch, Layout, Op, Recipe, Slot, Step, Target, fresh_first
from ...core.policy import constants, tuned
from ...core.sizes import plain
from ...core.spec import Bits
from .. import policy, policy_of, times
from ..flat_tiling import broadcast_tile, flat_launch, rows_met, runs_launch, runs_tile
from ..tiling import Tiling, reciprocal_of
from .any_order import fold_any_order, lifted
from .common import Rows, check_slots, checks, elements, is_flat, kernel_spec, only_checks, over_rows, scratch
from .factors import factors_pay, products
from .first import positions, unfit_for_atomics
from .fold import fold_steps
from .fused import LONG, fold_and_broadcast
from .order import Order, as_given, order_of, order_to_gather
from .scatter import sums
from .segment_fold import SegmentFold, narrow_plan
from .small import fold_alone, together
from .winners import few_win, scatters, store_at_winners

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor


GUARD = Slot("guard", "i32", 4)  #: whether a guarded fold is needed
PAIRED = "paired"  #: rows of two operands that segments have, side by side


def gradient_of(op: Op, descriptor: SegmentDescriptor) -> Gradient:
    """The gradient of an op under the descriptor's rule of ties, or the one for results that are rounded to a half type."""
    name = op.traits["gradient"]
    return gradient_named(f"{descriptor.ties}_{name}" if name in ("max", "min") else name, BY_NAME[descriptor.element].itemsize == 2)


def broadcast_sums(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target) -> Recipe:
    """Sums by atomics, and a launch that broadcasts them."""
    return broadcast(op, descriptor, layouts, target, by_sums=True)


def unbounded(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why there is no row for each segment."""
    return None if descriptor.bounded else "is for ids below a number of segments"


def too_many(op: Op, descriptor: SegmentDescriptor) -> str | None:
    """Why the fold cannot tell positions apart, which are numbers of the accumulator's type."""
    most = BY_NAME[descriptor.element].distinct_positions
    if gradient_of(op, descriptor).uses_positions and descriptor.num_inputs >= most:
        return f"tells fewer than {most} rows apart, and there are {descriptor.num_inputs}"
    return None


def broadcast(op: Op, descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, by_sums: bool = False) -> Recipe:
    """The fold that a gradient needs, over ids in order or by atomics; then a launch that broadcasts its results to the rows.

    A caller may bring the results as the operand ``folded``. Where segments are short in the mean, a launch that does both comes first, which leaves
    nothing to the others unless there is a long one. ``by_sums``: whether atomics add up what the gradient needs, in any order.
    """
    output, gradient, value = op.operands[-1].name, gradient_of(op, descriptor), BY_NAME[descriptor.element]
    if not descriptor.num_inputs * descriptor.embedding_dim:
        return only_checks(op, descriptor, layouts)
    brought = "folded" in layouts
    folds, winners = bool(gradient.fold and descriptor.num_segments and not brought), list[Step]()
    by_atomics = folds and gradient.uses_positions and not unfit_for_atomics(op, descriptor)
    by_atomics = by_atomics and times.first(op, descriptor) < times.permuted_fold(descriptor, heavy=True)
    by_factors = folds and not op.traits["ordered"] and factors_pay(descriptor, gradient)
    by_sums = folds and by_sums
    ordered = not (by_atomics or by_factors or by_sums) and (folds or descriptor.indexed)
    order = order_of(op, descriptor, layouts, target) if ordered else as_given(descriptor, layouts)
    column_bytes = len(gradient.segments) * value.itemsize + gradient.gathered * BY_NAME[value.accumulator].itemsize
    last = order_to_gather(descriptor, layouts, target, order, column_bytes)
    steps: list[Step] = [*checks(op, descriptor, layouts)]
    slots, guard = [*check_slots(descriptor)], NULL
    if folds and (at_once := fold_and_broadcast(op, descriptor, layouts, target, gradient, order, output)):
        steps, slots, guard = [*steps, *at_once], [*slots, LONG], LONG.name
    if by_atomics:
        more, room = _positions(descriptor, layouts, target, gradient.fold)
        if few_win(descriptor, layouts, gradient, descriptor.index):
            winners = store_at_winners(descriptor, layouts, output, cleared=False)
    elif by_sums:
        more, room = sums(descriptor, layouts, target, gradient, "folded")
    elif by_factors:
        more, room = _guard(descriptor, layouts)
        made, needed = products(descriptor, layouts, target, GUARD.name, "folded")
        more, room = [*more, *made], [*room, *needed]
    elif folds:
        more, room, winners = _fold(descriptor, layouts, target, gradient, order, last, output, guard)
    else:
        more, room = [*order.steps], [*order.slots]
    if winners:
        return fresh_first((*steps, *more, *winners), (*slots, *room))
    folded = "folded" if folds or brought else NULL
    paired = _pairs(descriptor, layouts, gradient, op, last)
    if paired:
        slots.append(Slot(PAIRED, descriptor.element, 2 * descriptor.num_segments * descriptor.embedding_dim))
    alone = fold_alone(descriptor, more, guard) if folds else None
    items = tuned(policy.FoldThenBroadcast()).items_per_thread if alone else 1
    final = _broadcast(descriptor, layouts, target, gradient, last, folded, output, paired, guard, items, descriptor.in_order(op))
    if alone and (both := together(alone, room, final)):
        more, room, final = *both, []
    return fresh_first((*steps, *more, *final), (*slots, *room))


def _pairs(descriptor: SegmentDescriptor, layouts: dict[str, Layout], gradient: Gradient, op: Op, order: Order) -> bool:
    """Whether narrow rows that segments have of two operands are put side by side, as where ids in any order gather both at random."""
    random = not (order.row_index or descriptor.in_order(op)) and 2 * descriptor.num_segments <= descriptor.num_inputs
    narrow = 0 < descriptor.row_size <= tuned(policy.BroadcastToRows()).max_paired_bytes
    if len(gradient.segments) != 2 or not (random and narrow and descriptor.num_segments):
        return False
    rows = Rows(descriptor, *[layouts[name] for name in gradient.segments])
    return rows.is_contiguous(0) and rows.is_contiguous(1)


def _pair(descriptor: SegmentDescriptor, gradient: Gradient, columns: int) -> Launch:
    """Puts every ``columns`` columns of the two operands that segments have side by side."""
    (first, second), extent = gradient.segments, descriptor.num_segments * descriptor.embedding_dim
    arguments, vector = {"g": first, "y": second, "output": PAIRED, "elements": extent, "columns": columns}, BY_NAME[descriptor.element].vector
    unit = 0 if vector % plain(columns) else plain(columns)
    tiling = Tiling.of_ids(ceil_div(extent, vector if unit else 1))
    return Launch(kernel_spec("pair_rows", value=descriptor.element, unit=unit), tiling.launch, arguments)


def _positions(descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, monoid: str) -> tuple[list[Step], list[Slot]]:
    """Positions by atomics, in the bits of numbers of the accumulator's type, as a fold makes them."""
    state, size = BY_NAME[descriptor.element].accumulator, descriptor.num_segments * descriptor.embedding_dim
    destination = replace(scratch(descriptor, layouts["input"]), element=f"i{8 * BY_NAME[state].itemsize}")
    steps, slots = positions(descriptor, layouts, target, monoid, Bits("folded"), destination, -1)
    return steps, [*slots, Slot("folded", state, size)]


def _fold(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, order: Order, last: Order, output: str,
    guard: str,
) -> tuple[list[Step], list[Slot], list[Step]]:  # fmt: skip
    """The fold over ids in order, its slots, and what stores gradients where its results are the positions of few; ``last``: the order of gradients.

    The steps that put ids in order are among its steps.
    """
    state, monoid = BY_NAME[descriptor.element].accumulator, monoid_of(gradient.fold)
    first, *others = gradient.over
    state_layout, steps, slots = replace(scratch(descriptor, layouts[first]), element=state), list[Step](), list[Slot]()
    if gradient.guarded:
        guard = GUARD.name
        steps, slots = _guard(descriptor, layouts)
    slots.append(Slot("folded", state, descriptor.num_segments * descriptor.embedding_dim * monoid.results))
    fold = SegmentFold(
        monoid, order, first, "folded", (layouts[first], state_layout), (others[0], layouts[others[0]]) if others else None, guard, fills=False,
        input_positions=monoid.uses_positions and last is not order,
    )  # fmt: skip
    winners = list[Step]()
    if scatters(descriptor, layouts, gradient, fold, last is not order or order.row_index == ""):
        steps.append(Clear("folded", 0xFF))
        clears = narrow_plan(descriptor, fold) is not None
        fold, winners = replace(fold, cleared=output if clears else NULL), store_at_winners(descriptor, layouts, output, clears)
    made, alone = list[Step](), last is not order and not gradient.guarded
    if alone:
        descriptor, fold, made, needed = lifted(descriptor, target, fold)
        slots += needed
    if alone and order.steps and descriptor.bounded:
        more, room = fold_any_order(descriptor, layouts, target, fold, order, last)
    else:
        more, room = fold_steps(descriptor, target, fold)
        more, room = [*order.steps, *more], [*order.slots, *room]
    return [*steps, *made, *more], [*slots, *room], winners


def _guard(descriptor: SegmentDescriptor, layouts: dict[str, Layout]) -> tuple[list[Step], list[Slot]]:
    """Makes the guard: whether the result has a special element. Contiguous rows are seen as rows of one vector each, if that fits them."""
    plan, most = tuned(policy.FindSpecial()), BY_NAME[descriptor.element].vector
    rows, extent, tail = Rows(descriptor, layouts["output"]), descriptor.num_segments, 0
    if rows.is_contiguous(0):
        elements = extent * rows.columns
        vector = most if rows.vector < most and elements >= most else rows.vector
        extent = elements // vector
        tail = elements - extent * vector
        rows = Rows(replace(descriptor, embedding_dim=vector), Layout((extent, vector), (vector, 1)))
    arguments = {"input": "output", "guard": GUARD.name, "tail": tail}
    find = over_rows(
        "find_special", rows, ("input",), extent, plan.items_per_thread, arguments, value=descriptor.element, **constants(plan)
    )  # fmt: skip
    return [Clear(GUARD.name, fresh=True), find], [GUARD]


def _broadcast(
    descriptor: SegmentDescriptor, layouts: dict[str, Layout], target: Target, gradient: Gradient, order: Order, folded: str, output: str,
    paired: bool, guard: str, items: int, in_order: bool,
) -> list[Step]:  # fmt: skip
    """The launch that broadcasts, behind the one that pairs what it gathers, if it is ``paired``; flat, with ``items`` times as many in flight.

    ``in_order``: whether the ids are.
    """
    names = [*gradient.rows, *gradient.segments, output]
    if paired:
        shape = layouts[gradient.segments[0]].shape
        side_by_side = Layout(shape, (2 * descriptor.embedding_dim, *c_strides(shape)[1:]))
        layouts = layouts | dict.fromkeys(gradient.segments, side_by_side)
    rows = Rows(descriptor, *[layouts[name] for name in names])
    last = len(names) - 1
    at = [0 if gradient.rows else last, 1 if len(gradient.rows) > 1 else last, last, last, last]
    for k in range(len(gradient.segments)):
        at[2 + k] = len(gradient.rows) + k
    given = [names[k] if k != last else NULL for k in at[:4]]
    if paired:
        given[2:] = PAIRED, PAIRED
    value, read = descriptor.element, ("x", "w", "g", "y")
    arguments: dict[str, Any] = {
        **dict(zip(read, given, strict=True)), "ids": order.ids, "permutation": order.permutation, "folded": folded, "output": output,
        "segments": descriptor.num_segments,
    }  # fmt: skip
    common: dict[str, Any] = {"gradient": gradient.name, "value": value, "index": order.index, "paired": paired}
    contiguous = all(rows.is_contiguous(k) for k in (*range(len(gradient.rows)), last))
    if not order.row_index and order.step == 1 and contiguous and is_flat(descriptor, gradient, {} if paired else layouts):
        runs = _runs(descriptor, target, gradient, rows, arguments, common) if in_order and guard == NULL and items == 1 else None
        if runs:
            return [runs]
        # without rows of its own, a block that finds out whether ids are equal has nothing to load meanwhile
        more = common | {"guarded": guard != NULL, "ordered": in_order and gradient.rows != ()}
        flat = flat_broadcast(descriptor, target, gradient, rows, arguments | {"guard": guard, "counts": NULL}, more, items)
        return [_pair(descriptor, gradient, rows.vector), flat] if paired else [flat]
    pair: list[Step] = [_pair(descriptor, gradient, rows.columns)] if paired else []
    if rows.columns == 1 and order.packed and not order.row_index and contiguous:
        arguments |= {"rows": descriptor.num_inputs, "g_row": rows.steps[at[2]], "y_row": rows.steps[at[3]], "guard": guard}
        # one that tells special elements apart has no registers for it
        more = common | {"guarded": guard != NULL, "ordered": in_order and not gradient.guarded}
        return [*pair, elements("broadcast_to_elements", descriptor.num_inputs, arguments, **more)]
    rows.steps, rows.strides = [rows.steps[k] for k in at], [rows.strides[k] for k in at]
    arguments["ids_step"] = order.step
    spread = rows.spread(range(tuned(policy.BroadcastToRows()).columns_apart, 1, -1))
    rows, apart = spread or rows, spread is not None
    plan = policy_of.broadcast_to_rows(target, BY_NAME[value].itemsize, rows.vector, rows.dims, gradient.operands, gradient.divides, apart)
    launch = over_rows(
        "broadcast_to_rows", rows, (*read, "output"), descriptor.num_inputs, plan.items_per_thread, arguments, plan, target.multiprocessors,
        row_index=order.row_index, at_once=plan.items_per_thread, apart=apart, **common,
    )  # fmt: skip
    return [*pair, launch]


def _runs(
    descriptor: SegmentDescriptor, target: Target, gradient: Gradient, rows: Rows, arguments: dict[str, Any], common: dict[str, Any]
) -> Launch | None:  # fmt: skip
    """The launch where a lane keeps its columns, for halves of rows of whole 16 bytes, in runs that last for a turn of a block or longer.

    What their segments have is wide, and takes more loads than they do, unless it is one number for each column.
    """
    plan, value, vector = tuned(policy.BroadcastRuns()), BY_NAME[descriptor.element], rows.vector
    pieces, extent = plain(rows.columns) // vector, descriptor.num_inputs
    wide = value.itemsize == 2 and vector == value.vector and len(gradient.given) > 1
    if not wide or pieces > plan.threads_per_block:
        return None
    if extent < plan.min_segment_turns * (plan.threads_per_block // pieces) * descriptor.num_segments:
        return None
    options = {name: common[name] for name in ("gradient", "value", "index")}
    spec = kernel_spec(
        "broadcast_runs", plan.threads_per_block, plan.min_blocks_per_multiprocessor, vector=vector, **options, **constants(plan)
    )  # fmt: skip
    tile = runs_tile(plan, extent, pieces, target.multiprocessors)
    given = {name: arguments[name] for name in arguments if name != "permutation"}
    given |= {"rows": extent, "columns": rows.columns, "tile": tile, "pieces": pieces}
    return Launch(spec, runs_launch(plan.threads_per_block, extent, pieces, tile), given)


def flat_broadcast(
    descriptor: SegmentDescriptor, target: Target, gradient: Gradient, rows: Rows, arguments: dict[str, Any], common: dict[str, Any],
    items: int = 1,
) -> Launch:  # fmt: skip
    """The launch where threads share the pieces of all rows, ``items`` times as many in flight as usual.

    ``common`` are the gradient's name, element and index types, whether it is ``paired`` and ``guarded``, and by which counts it is divided, if by
    any; ``arguments`` the pointers by name.
    """
    value, columns = BY_NAME[descriptor.element], rows.columns
    policy = policy_of.broadcast_flat(target, value.itemsize, gradient.guarded)
    # neighbouring lanes gather what their segments have from neighbouring places, if no piece is longer than what one load gathers; where they gather
    # results of a fold, too, it pays to make it longer only if rows are loaded
    many = value.itemsize == 2 and rows.vector == 1 and gradient.gathered > 1 and columns >= policy.many_columns and items == 1
    piece_bytes = policy.many_halves_bytes if many else policy.vector_bytes
    longer = piece_bytes // value.itemsize if gradient.rows or not gradient.gathered else 1
    elements, vector = descriptor.num_inputs * columns, max(rows.vector, longer)
    policy = replace(policy, items_per_thread=items * policy.items_per_thread * max(1, value.vector // vector))
    span = 1 if vector == rows.vector else 2 if columns >= vector else 3
    spec = kernel_spec(
        "broadcast_flat", policy.threads_per_block, policy.min_blocks_per_multiprocessor, vector=vector, unit=rows.vector, span=span,
        items_per_thread=policy.items_per_thread, **common, **constants(policy),
    )  # fmt: skip
    if common["guarded"]:
        policy = replace(policy, tile_elements=policy.guarded_tiles * policy.tile_elements)
    tile = broadcast_tile(policy, elements, vector, target.multiprocessors)
    tile_rows = rows_met(tile, columns)
    given = {name: arguments[name] for name in arguments if name != "permutation"}
    given |= {"rows": descriptor.num_inputs, "columns": columns, "tile": tile, "tile_rows": tile_rows, "reciprocal": reciprocal_of(columns)}
    divided = common.get("count", "") != ""
    return Launch(spec, flat_launch(elements, tile, tile_rows, policy.threads_per_block, policy.ids_per_thread, divided), given)
