"""What the model of the times of folds over ids in any order is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import Policy


@dataclass(frozen=True)
class Times(Policy):
    """What the variants of folds over ids in any order take, by the functions of ``times.py``.

    Picoseconds of each row, of a byte, of an element or of a pass of a sort over a row, unless said otherwise. Fitted to 1,056 cells of
    ``benchmarks.choice`` on an H200, of 2^26 elements in rows of 1 to 400, 1.4 to 4096 rows a segment in the mean: so that times are near those that
    were measured, and those of the variant that is chosen within 1.1 or 1.3 of the fastest, whether ids are drawn uniformly or nine of ten are the
    same.
    """

    launches: float = 14.8  #: microseconds of a few launches
    sort_launches: float = 30.9  #: microseconds of these and a sort
    range_launches: float = 44.0  #: the same with those that find and combine ranges; of their times on a device, not fitted
    cached_bytes: int = 40 << 20  #: bytes of the results up to which the level 2 cache holds those that atomics update
    bin_row: float = 3.0
    bin_element: float = 0.8
    bin_element_segment: float = 0.03  #: of an element and segment
    pair_row: float = 6.15
    pair_pass: float = 3.31
    pair_pass_byte: float = 1.16
    pair_result_byte: float = 0.322
    permuted_row: float = 17.3
    permuted_byte: float = 0.135
    permuted_element: float = 0.361
    permuted_heavy_element: float = 0.211
    permuted_result_byte: float = 0.799
    index_pass: float = 8.0
    range_row: float = 13.4
    range_byte: float = 0.062
    range_pair_row: float = 9.44  #: where rows are sorted along with the ids
    single_range_row: float = 9.5  #: of two shapes, which are not among these cells
    single_range_element: float = 2.0  #: the same
    range_element: float = 1.66
    range_heavy_element: float = 1.99
    range_result_byte: float = 4.51
    update_row: float = 2.3
    update_element: float = 1.2
    update_single: float = 0.712  #: of an element besides where a thread has one column of several
    update_wide: float = 2.8  #: of an element of float64 besides
    candidate_element: float = 0.9  #: of an element besides that is found with its row
    update_line: float = 600.0  #: of each update of the same 128 bytes besides; computed, not fitted
    update_byte: float = 1.16  #: of the results
    pass_row: float = 1.26  #: of a pass besides the first
    pass_byte: float = 0.119  #: of a byte of a row in such a pass
    extreme_byte: float = 2.37  #: of results that are encoded
    stream_byte: float = 0.25  #: of another operand that is read in order; computed, not fitted
    count_row: float = 6.3
    count_miss: float = 10.9
