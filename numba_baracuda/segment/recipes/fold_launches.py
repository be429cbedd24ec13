"""The launch of a fold over ids in order: of narrow rows, of rows by way of shared memory, or of tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...algebra import KernelMonoid
from ...core.axes import ceil_div
from ...core.dtypes import BY_NAME
from ...core.op import NULL, Launch, Slot, Target
from ...core.policy import constants, tuned
from ...core.sizes import least, plain
from .. import policy, policy_of
from ..staged_tiling import staged_bytes, staged_columns, staged_rows
from ..statuses import early_blocks
from ..tiling import GAP, Tiling, gap_blocks, half_reciprocal_of, longest_gap, vector_for
from .carries import carry_arguments
from .common import Rows, kernel_spec, taken
from .segment_fold import SegmentFold
from .statuses import STATUS, status_slot

if TYPE_CHECKING:
    from ..descriptor import SegmentDescriptor

FoldLaunch = tuple[Launch, Tiling, "Slot | None"]  #: a launch, its tiling, and the slot of statuses, if its blocks look back


def fold_launch(descriptor: SegmentDescriptor, target: Target, rows: Rows, narrow: policy.FoldNarrow | None, fold: SegmentFold) -> FoldLaunch:
    """The launch, of ``narrow`` rows if that is a policy for them."""
    staged = _staged(descriptor, target, rows, narrow, fold)
    return staged or (_narrow(descriptor, target, rows, narrow, fold) if narrow else _tiles(descriptor, target, rows, fold))


def _short(descriptor: SegmentDescriptor) -> bool:
    """Whether segments have so few rows in the mean that runs may be short."""
    return descriptor.num_inputs < tuned(policy.FoldTiles()).short_segment_rows * descriptor.num_segments


def _long(descriptor: SegmentDescriptor) -> bool:
    """Whether segments have so many rows in the mean that few runs end."""
    return descriptor.num_inputs >= tuned(policy.FoldTiles()).long_segment_rows * descriptor.num_segments


def _varies(descriptor: SegmentDescriptor, monoid: KernelMonoid) -> bool:
    """Whether tiles of rows in order are longer or shorter by how long segments are in the mean: only then are sizes asked for it."""
    return monoid.heavy or BY_NAME[descriptor.element].itemsize == 2


def _tile_halves(descriptor: SegmentDescriptor, monoid: KernelMonoid) -> int:
    """How many halves of the usual longest tile of rows in order a tile has at most, by arithmetic, which any sizes share: 2, or, where it varies, 1
    if segments have so few rows in the mean that long and short ones may be mixed, and 4 if they are long, or 8 of halves.
    """
    if not _varies(descriptor, monoid):
        return 2
    plan, n, segments = tuned(policy.FoldTiles()), descriptor.num_inputs, descriptor.num_segments
    of_halves = BY_NAME[descriptor.element].itemsize == 2
    mixed = plan.mixed_segment_rows if monoid.extreme or of_halves else plan.mixed_heavy_rows
    halves: int = 1 + least(1, n // (mixed * segments)) + (6 if of_halves else 2) * least(1, n // (plan.long_segment_rows * segments))
    return halves


def most_entries(descriptor: SegmentDescriptor, target: Target, monoid: KernelMonoid) -> int:
    """The most carries of a fold, whatever the layout of its rows."""
    # permuted rows have usual tiles
    plan, halves = tuned(policy.FoldTiles()), least(2, _tile_halves(descriptor, monoid))
    return Tiling.most_entries(plan, descriptor.num_inputs, target.multiprocessors, halves, _short(descriptor))


def _launch(tiling: Tiling, gaps: int) -> tuple[int, int, int]:
    """The launch of a tiling, with so many blocks more, which look for gaps."""
    blocks, threads, shared = tiling.launch
    return blocks + gaps, threads, shared


def _gaps(
    plan: policy.FoldTiles | policy.FoldNarrow | policy.FoldStaged, descriptor: SegmentDescriptor, fold: SegmentFold, gap: int = GAP
) -> int:  # fmt: skip
    """Blocks that look for gaps of more than ``gap`` segments."""
    return gap_blocks(descriptor.num_segments, plan.threads_per_block, gap) if fold.fills else 0


def _ranges(rows: Rows, fold: SegmentFold, pays: bool = True) -> dict[str, int]:
    """The constants of a fold whose warps fill empty segments as ranges of elements, if that ``pays``. Lanes do so else, and where rows of the output
    are not contiguous.
    """
    if not (pays and fold.fills and rows.is_dense(1)):
        return {"fill_vector": 0, "longest_gap": GAP}
    result = BY_NAME[fold.result]
    return {"fill_vector": result.vector if rows.addresses[1] == 0 else 1, "longest_gap": longest_gap(plain(rows.columns) * result.itemsize)}


def _arguments(descriptor: SegmentDescriptor, target: Target, fold: SegmentFold, tiling: Tiling, status: Slot | None) -> dict[str, Any]:
    """The arguments that all folds of rows by blocks take."""
    early = early_blocks(tiling.row_blocks, tiling.chunks, target.multiprocessors, bool(status))
    return {
        "input": fold.source, "ids": fold.order.ids, "guard": fold.guard, "output": fold.output,
        **carry_arguments(tiling.row_blocks > 1 and not status), STATUS: STATUS if status else NULL, "rows": descriptor.num_inputs,
        "segments": descriptor.num_segments, "tile": tiling.tile, "row_blocks": tiling.row_blocks, "early": early, "empty": fold.empty,
        "correction": taken(descriptor, fold.monoid),
    }  # fmt: skip


def _spread(rows: Rows, value: str, monoid: KernelMonoid) -> Rows | None:
    """The rows with several columns of a lane of ``fold_tiles`` apart, if they may lie so."""
    return rows.spread(policy_of.fold_apart(value, monoid), tuned(policy.FoldTiles()).min_group_apart)


def _tiles(descriptor: SegmentDescriptor, target: Target, rows: Rows, fold: SegmentFold) -> FoldLaunch:
    """The launch where lanes share the columns, its tiling, and the slot of statuses, if its blocks look back.

    Halves the vector of ``rows`` where wide loads are slower.
    """
    value, order, monoid, usual = descriptor.element, fold.order, fold.monoid, tuned(policy.FoldTiles())
    spread = _spread(rows, value, monoid)
    rows, apart = spread or rows, spread is not None
    halved = rows.vector > 1 and rows.columns < usual.split_vectors * rows.vector and rows.vector * BY_NAME[value].itemsize == usual.split_bytes
    if halved and not apart:
        rows.vector //= 2
    if monoid.heavy and BY_NAME[value].itemsize == 2:
        rows.vector = min(rows.vector, usual.heavy_halves)
    if fold.guarded:
        rows.vector = min(rows.vector, usual.guarded_columns)
    plan = policy_of.fold_tiles(
        target, value, order.index, rows.vector, monoid, dims=rows.dims, permuted=order.row_index != "", paired=fold.other is not None, apart=apart,
    )  # fmt: skip
    if order.row_index == "":
        plan = replace(plan, max_tile_rows=plan.max_tile_rows // 2 * _tile_halves(descriptor, monoid))
    state_bytes = monoid.width * BY_NAME[fold.state_of(value)].itemsize if _short(descriptor) else 0
    tiling = Tiling.of(plan, descriptor.num_inputs, rows.columns, rows.vector, BY_NAME[value].itemsize, target.multiprocessors, state_bytes)
    status = status_slot(descriptor.num_inputs, tiling.row_blocks, tiling.chunks * tiling.lanes, rows.vector, monoid, fold.state_of(value))
    spec = rows.spec(
        "fold_tiles", tiling, plan.min_blocks_per_multiprocessor, monoid=monoid.name, value=value, result=fold.result, index=order.index,
        packed=order.packed, row_index=order.row_index, input_positions=fold.input_positions, fills=fold.fills, guarded=fold.guarded,
        apart=apart, looks_back=bool(status), **constants(plan),
    )  # fmt: skip
    other, second = (fold.other[0], 2) if fold.other else (NULL, 0)
    arguments = _arguments(descriptor, target, fold, tiling, status) | {
        "other": other, "permutation": order.permutation, "columns": rows.columns, "chunks": tiling.chunks, "ids_step": order.step,
        "input_row": rows.steps[0], "other_row": rows.steps[second], "output_row": rows.steps[1], "shape": rows.shape,
        "input_strides": rows.strides[0], "other_strides": rows.strides[second], "output_strides": rows.strides[1],
    }  # fmt: skip
    return Launch(spec, _launch(tiling, _gaps(plan, descriptor, fold)), arguments), tiling, status


def _narrow(
    descriptor: SegmentDescriptor, target: Target, rows: Rows, usual: policy.FoldNarrow, fold: SegmentFold
) -> FoldLaunch:  # fmt: skip
    """The launch where lanes share the rows, its tiling, and the slot of statuses, if its blocks look back."""
    value, order, columns, results = descriptor.element, fold.order, rows.columns, fold.monoid.results
    plan = policy_of.fold_narrow(target, value, order.index, columns, fold.monoid, usual)
    name, second = (fold.other[0], 2) if fold.other else (NULL, 0)
    store_vector = vector_for(BY_NAME[fold.result].itemsize, columns * results, (rows.addresses[1], (rows.steps[1] * results, 1)))
    kernel, gap, options, more = "fold_narrow", GAP, dict[str, Any](), dict[str, Any]()
    if isinstance(plan, policy.FoldShortRuns):
        operands, permuted = [(rows.addresses[k], (rows.steps[k], 1)) for k in (0, second)], order.row_index != ""
        kernel, ranges = "fold_short_runs", _ranges(rows, fold)
        gap, options = ranges["longest_gap"], {"row_index": order.row_index, "input_positions": fold.input_positions, **ranges}
        options["vector"] = vector_for(BY_NAME[value].itemsize, columns, *operands) if permuted else 1
        more = {"permutation": order.permutation, "input_row": rows.steps[0], "other_row": rows.steps[second]}
    gaps = _gaps(plan, descriptor, fold, gap)
    tiling = Tiling.of_narrow(plan, descriptor.num_inputs, target.multiprocessors, gaps, known=not fold.monoid.heavy)
    status = status_slot(descriptor.num_inputs, tiling.row_blocks, 1, columns, fold.monoid, fold.state_of(value))
    spec = kernel_spec(
        kernel, tiling.threads, plan.min_blocks_per_multiprocessor, monoid=fold.monoid.name, value=value, result=fold.result, index=order.index,
        columns=columns, share=plan.items_per_thread, store_vector=store_vector, fills=fold.fills, guarded=fold.guarded,
        clears=fold.cleared != NULL, looks_back=bool(status), **options, **constants(plan),
    )  # fmt: skip
    arguments = _arguments(descriptor, target, fold, tiling, status) | more
    arguments |= {"other": name, "cleared": fold.cleared, "output_row": rows.steps[1]}
    return Launch(spec, _launch(tiling, gaps), arguments), tiling, status


def _staged(
    descriptor: SegmentDescriptor, target: Target, rows: Rows, narrow: policy.FoldNarrow | None, fold: SegmentFold
) -> FoldLaunch | None:  # fmt: skip
    """The launch of rows by way of shared memory, its tiling, and the slot of statuses, if its blocks look back; None where rows are not for it.

    Contiguous rows that are not wide are for it. But of ``narrow`` ones, whose policy that is, those in long runs are only with sums about a pivot;
    those in short runs only with sums about any pivot, which divide for each run, and where a lane has all columns. See :func:`_stages_pay`. Of wide
    rows those are that are neither vectors nor halves, with sums about any pivot or states of more than two scalars.
    """
    value, monoid, order = BY_NAME[descriptor.element], fold.monoid, fold.order
    direct = order.packed and not (order.row_index or monoid.foreign) and fold.cleared == NULL
    flat = rows.is_contiguous(0) and rows.strides[1] == (1,) and (not fold.other or rows.is_contiguous(2))
    if not (direct and flat) or (narrow and monoid.pivot_terms == ""):
        return None
    many = (monoid.any_pivot or monoid.width > 2) and value.itemsize > 2
    usual, odd = tuned(policy.FoldStaged()), many and rows.vector < value.vector
    row_bytes, id_bytes = plain(descriptor.row_size) * (2 if fold.other else 1), BY_NAME[order.index].itemsize
    halves = value.itemsize == 2 and not monoid.heavy
    wide_bytes = _wide_halves_bytes(usual, descriptor, rows.vector) if halves else usual.wide_row_bytes
    if row_bytes >= wide_bytes and not odd:
        return None
    spreads = value.itemsize < 8 and (not many or _spreads_pay(usual, descriptor, plain(rows.columns)))
    short = rows.vector == 1 and not halves and descriptor.num_inputs <= usual.short_segment_rows * descriptor.num_segments
    vector, apart = staged_columns(usual, plain(rows.columns), rows.vector, spreads, halves, short)
    plan = policy_of.fold_staged(value.name, vector, monoid, apart > 0)
    if isinstance(narrow, policy.FoldShortRuns) and not (monoid.any_pivot and rows.columns <= vector):
        return None
    width = ceil_div(rows.columns, vector)
    stage = staged_rows(plan, row_bytes, id_bytes, value.itemsize, descriptor.num_inputs, target.multiprocessors)
    fits = row_bytes < wide_bytes and _stages_pay(plan, descriptor, monoid, rows, apart > 0)
    if not (stage and (fits or (odd and width <= plan.max_vectors))):
        return None
    longer = descriptor.num_inputs >= plan.even_segment_rows * descriptor.num_segments
    ranges = _ranges(rows, fold, _ranges_pay(plan, descriptor, monoid, vector, width, value.itemsize == 2 and apart == 1))
    gaps, known = _gaps(plan, descriptor, fold, ranges["longest_gap"]), value.itemsize < 8
    tiling = Tiling.of_staged(plan, descriptor.num_inputs, stage, target.multiprocessors, gaps, known, longer)
    status = status_slot(descriptor.num_inputs, tiling.row_blocks, plain(width), vector, monoid, fold.state_of(value.name))
    spec = kernel_spec(
        "fold_staged", tiling.threads, plan.min_blocks_per_multiprocessor, monoid=monoid.name, value=descriptor.element, result=fold.result,
        index=order.index, vector=vector, apart=apart, fills=fold.fills, guarded=fold.guarded, looks_back=bool(status), **ranges, **constants(plan),
    )  # fmt: skip
    arguments = _arguments(descriptor, target, fold, tiling, status) | {
        "other": fold.other[0] if fold.other else NULL, "columns": rows.columns, "stage": stage, "width": width,
        "reciprocal": half_reciprocal_of(width), "output_row": rows.steps[1],
    }  # fmt: skip
    blocks, threads, _ = _launch(tiling, gaps)
    states = width * vector * monoid.width * BY_NAME[fold.state_of(value.name)].itemsize
    return Launch(spec, (blocks, threads, staged_bytes(plan, stage, row_bytes, id_bytes, states)), arguments), tiling, status


def _spreads_pay(plan: policy.FoldStaged, descriptor: SegmentDescriptor, columns: int) -> bool:
    """Whether several columns of a lane apart pay with sums about any pivot, or states of more than two scalars: in short segments, of which each
    takes a lane as long as several rows; and where a lane has all three.
    """
    if columns == 3:
        return True
    return columns <= plan.max_heavy_apart and bool(descriptor.num_inputs <= plan.heavy_apart_segment_rows * descriptor.num_segments)


def _wide_halves_bytes(plan: policy.FoldStaged, descriptor: SegmentDescriptor, vector: int) -> int:
    """The bytes from which a row of halves whose states are one scalar is wide: more of them where rows are no vectors, or vectors of two, of which
    groups of threads are as fast in long segments.
    """
    more = vector == 1 or (vector == 2 and not _long(descriptor))
    return plan.wide_odd_halves_bytes if more else plan.wide_halves_bytes


def _ranges_pay(plan: policy.FoldStaged, descriptor: SegmentDescriptor, monoid: KernelMonoid, vector: int, width: int, loose: bool) -> bool:
    """Whether warps that fold rows by way of shared memory fill empty segments as ranges.

    Lanes that store 16 bytes each, or many that store a row, are as fast. Where a lane has a row, or stores ``loose`` halves, it pays, but it takes
    registers, of which states of several scalars leave few. Where several lanes have a row, gaps must be long, and states one scalar.
    """
    n, segments = descriptor.num_inputs, descriptor.num_segments
    if width > plan.max_filling_lanes or (BY_NAME[descriptor.element].itemsize == 8 and vector > 1):
        return False
    if loose:
        return True
    if width == 1 or monoid.extreme:
        return not monoid.heavy or bool(n <= plan.filled_segment_rows * segments)
    return not monoid.heavy and bool(n <= plan.few_filled_rows * segments)


def _stages_pay(plan: policy.FoldStaged, descriptor: SegmentDescriptor, monoid: KernelMonoid, rows: Rows, apart: bool) -> bool:
    """Whether rows that are not wide are folded faster by way of shared memory.

    States of several scalars are in short segments, and in others if rows have few bytes or are pairs, and few columns where they lie ``apart``. But
    about a pivot that rows choose, of which a group of threads chooses one for more rows, only those are that have few bytes, or single columns for
    such a thread; and doubles only in short segments, if they have few bytes. Extremes of few columns apart are, and states of one scalar.
    """
    value, row_bytes, columns = BY_NAME[descriptor.element], plain(descriptor.row_size), plain(descriptor.embedding_dim)
    if not monoid.heavy:
        return True
    short = descriptor.num_inputs * descriptor.row_size <= plan.short_segment_bytes * descriptor.num_segments
    if monoid.choose_pivot is not None:
        narrow = row_bytes <= (plan.chosen_halves_bytes if value.itemsize == 2 else plan.chosen_row_bytes)
        single = rows.vector == 1 and _spread(rows, value.name, monoid) is None
        return short and row_bytes < plan.heavy_row_bytes if value.itemsize == 8 else short or narrow or single
    halves = value.itemsize == 2
    if apart and monoid.extreme and columns <= (plan.extreme_halves_apart if halves else plan.extreme_columns_apart):
        return True
    most_apart = plan.heavy_halves_apart if halves and monoid.any_pivot and not _long(descriptor) else plan.heavy_columns_apart
    spread = apart and columns > most_apart
    return short or (not spread and (monoid.pairs or row_bytes < plan.heavy_row_bytes))
