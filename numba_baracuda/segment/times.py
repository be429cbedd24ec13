"""How long each variant of a fold takes over ids in any order, in microseconds, by which ``select`` chooses. The constants are in :class:`Times`.

Whether ids crowd in few segments is not known. So a time lies in the middle between that of ids drawn uniformly and that of ids nine of ten of which
are the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..algebra.gradients import GRADIENTS
from ..core.axes import ceil_div
from ..core.dtypes import BY_NAME
from ..core.op import Op, Target
from ..core.policy import tuned
from .pairing import unpairable
from .policy import FoldRanges, Times
from .policy_of import pass_bytes, passes
from .tiling import RANGE, RANGE_BITS

if TYPE_CHECKING:
    from .descriptor import SegmentDescriptor

_MICROSECONDS = 1e-6  #: of a picosecond


def _state_bytes(descriptor: SegmentDescriptor) -> int:
    """Bytes of a segment's row in the accumulator's type."""
    return descriptor.embedding_dim * BY_NAME[BY_NAME[descriptor.element].accumulator].itemsize


def _result_bytes(descriptor: SegmentDescriptor) -> int:
    return descriptor.num_segments * descriptor.row_size


def _missing(nbytes: float) -> float:
    """The share of random accesses to so many bytes that the level 2 cache does not hold."""
    cache = tuned(Times()).cached_bytes
    return 1 - cache / max(nbytes, cache)


def _again(number: int, row_bytes: int) -> float:
    """Picoseconds of a row of so many bytes, its id included, in all of a number of passes but one."""
    times = tuned(Times())
    return (number - 1) * (times.pass_row + row_bytes * times.pass_byte)


def _passes(bits: int) -> int:
    """Passes of a sort by so many bits."""
    return max(1, ceil_div(bits, tuned(FoldRanges()).sort_pass_bits))


def bins(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of a fold in shared memory, where more segments leave fewer resident threads."""
    times, scalars = tuned(Times()), descriptor.monoid(op).width * ceil_div(_state_bytes(descriptor), 4)
    element = times.bin_element + times.bin_element_segment * descriptor.num_segments
    return times.launches + _MICROSECONDS * descriptor.num_inputs * (scalars * element + times.bin_row)


def pairs(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of a sort of rows along with their ids, and of the fold of sorted rows."""
    return paired_fold(descriptor)


def paired_fold(descriptor: SegmentDescriptor) -> float:
    """The same for any states."""
    times = tuned(Times())
    row = times.pair_row + _passes(descriptor.limit.bit_length()) * (times.pair_pass + times.pair_pass_byte * descriptor.row_size)
    return times.sort_launches + _MICROSECONDS * (descriptor.num_inputs * row + times.pair_result_byte * _result_bytes(descriptor))


def permuted(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of a sort of ids with the indices of their rows, and of the fold through this permutation."""
    return permuted_fold(descriptor, descriptor.monoid(op).heavy)


def permuted_fold(descriptor: SegmentDescriptor, heavy: bool, operands: int = 1) -> float:
    """The same for states that are ``heavy`` or not, of rows of one operand or two; with an index, of the fold alone."""
    times = tuned(Times())
    row = times.permuted_row + times.permuted_byte * descriptor.row_size
    row += (times.permuted_element + (times.permuted_heavy_element if heavy else 0)) * descriptor.embedding_dim
    row, launches = operands * row, times.launches
    if not descriptor.indexed:
        row, launches = row + times.index_pass * _passes(descriptor.limit.bit_length()), times.sort_launches
    return launches + _MICROSECONDS * (descriptor.num_inputs * row + times.permuted_result_byte * _result_bytes(descriptor))


def ranges(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of a sort by ranges of ids and the folds of ranges in shared memory; of all rows where one range has them, which is not sorted.

    Rows as narrow as row indices are sorted along.
    """
    times, plan, segments, size = tuned(Times()), tuned(FoldRanges()), descriptor.num_segments, descriptor.row_size
    row, element, launches = times.single_range_row, times.single_range_element, times.launches
    if segments > RANGE:
        if size > plan.max_row_bytes:
            return math.inf
        element, launches = times.range_element, times.range_launches
        row, each = times.range_row + times.range_byte * size, times.index_pass
        if unpairable(op, descriptor) is None:
            row, each = times.range_pair_row, times.pair_pass + times.pair_pass_byte * size
        row += each * _passes((segments - 1).bit_length() - RANGE_BITS)
    row += (element + (times.range_heavy_element if descriptor.monoid(op).heavy else 0)) * descriptor.embedding_dim
    return launches + _MICROSECONDS * (descriptor.num_inputs * row + times.range_result_byte * _result_bytes(descriptor))


def scatter(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of atomics, and of a count where the result needs it."""
    times, rows, element = tuned(Times()), descriptor.num_inputs, BY_NAME[descriptor.element]
    extreme = op.traits["monoid"] in ("max", "min")
    found = _updates(descriptor, extreme)
    if descriptor.counted(op) and not (extreme and not element.whole):
        segments, size = descriptor.num_segments, BY_NAME[descriptor.count_type].itemsize
        number = passes(segments, size, pass_bytes("add", size, 1), Target.l2_bytes)
        missing, again = _missing(segments * size / number), _again(number, BY_NAME[descriptor.index].itemsize)
        found += rows * (times.count_row + times.count_miss * missing + again)
    return times.launches + _MICROSECONDS * found


def about_greatest(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of atomics that find the greatest elements, and of others that add what rows, which read them again, are about these."""
    times, found = tuned(Times()), _updates(descriptor, True) + _updates(descriptor, False)
    return times.launches + _MICROSECONDS * (found + descriptor.num_inputs * times.update_row)


def gradient_fold(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of a fold over ids in order that adds up rows, or products of two, for a gradient; without the launch behind it."""
    operands = len(GRADIENTS[op.traits["gradient"]].over)
    fold = permuted_fold(descriptor, False, operands)
    return min(fold, paired_fold(descriptor)) if descriptor.embedding_dim == operands == 1 else fold


def gradient_atomics(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of atomics that add them up."""
    times, rows, others = tuned(Times()), descriptor.num_inputs, len(GRADIENTS[op.traits["gradient"]].over) - 1
    found = _updates(descriptor, False)
    return times.launches + _MICROSECONDS * (found + rows * descriptor.row_size * others * times.stream_byte)


def first(op: Op, descriptor: SegmentDescriptor) -> float:
    """Of atomics that find the extremes with their positions, or, after those that find extremes of 64 bits, their positions: about as long again."""
    at_once = descriptor.finds_first_at_once
    found = _updates(descriptor, True, 2) if at_once else 2 * _updates(descriptor, True)
    return tuned(Times()).launches + _MICROSECONDS * found


def _updates(descriptor: SegmentDescriptor, extreme: bool, words: int = 1) -> float:
    """Picoseconds of atomics that find extremes or add, and of what comes before and after them.

    States have so many ``words`` of the accumulator's type: two are a candidate, of which results have one.
    """
    times, columns, state = tuned(Times()), descriptor.embedding_dim, words * _state_bytes(descriptor)
    results, wide = descriptor.num_segments * state, not extreme and BY_NAME[descriptor.element].accumulator == "f64"
    most = pass_bytes("max" if extreme else "add", BY_NAME[descriptor.element].itemsize, columns)
    number = passes(descriptor.num_segments, state, most, Target.l2_bytes)
    row = times.update_row + _again(number, descriptor.row_size + BY_NAME[descriptor.index].itemsize)
    single = columns > 4 and columns % 4 != 0
    more = (times.update_single if single else 0) + (times.update_wide if wide else 0) + (times.candidate_element if words > 1 else 0)
    row += columns * (times.update_element + more)
    row += times.update_line * max(state / 16, 1) / max(results / 128, 1)
    return descriptor.num_inputs * row + results / words * (times.extreme_byte if extreme else times.update_byte)
