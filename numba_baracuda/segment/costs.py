"""What the model of the times of folds over ids in any order is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import Policy


@dataclass(frozen=True)
class Times(Policy):
    """What the variants of folds over ids in any order take, by the functions of ``times.py``.

    Picoseconds of each row, of a byte, of an element or of a pass of a sort over a row, unless said otherwise. Fitted to 777 cells of
    ``benchmarks.choice`` on an H200, of 2^26 elements in rows of 1 to 400, 1.4 to 4096 rows a segment in the mean: so that times are near those that
    were measured, and those of the variant that is chosen within 1.1 or 1.3 of the fastest, whether ids are drawn uniformly or nine of ten are the
    same.
    """

    launches: float = 10.1  #: microseconds of a few launches
    sort_launches: float = 29.0  #: microseconds of these and a sort
    cached_bytes: int = 40 << 20  #: bytes of the results up to which the level 2 cache holds those that atomics update
    bin_row: float = 3.0
    bin_element: float = 0.8
    bin_element_segment: float = 0.03  #: of an element and segment
    pair_row: float = 6.15
    pair_pass: float = 3.2
    pair_pass_byte: float = 1.16
    pair_result_byte: float = 0.955
    permuted_row: float = 17.3
    permuted_byte: float = 0.132
    permuted_element: float = 0.296
    permuted_heavy_element: float = 0.323
    permuted_result_byte: float = 0.723
    index_pass: float = 8.0
    range_row: float = 15.9
    range_byte: float = 0.148
    range_pair_row: float = 10.8  #: where rows are sorted along with the ids
    single_range_row: float = 10.0  #: computed, not timed
    single_range_element: float = 2.3  #: the same
    range_element: float = 3.3
    range_heavy_element: float = 1.69
    range_result_byte: float = 2.56
    update_row: float = 7.41
    update_element: float = 1.2
    update_single: float = 1.18  #: of an element besides where a thread has one column of several
    update_wide: float = 2.1  #: of an element of float64 besides
    update_line: float = 600.0  #: of each update of the same 128 bytes besides; computed, not fitted
    update_miss: float = 1.14  #: of 32 bytes that the level 2 cache does not hold besides
    update_byte: float = 1.34  #: of the results
    extreme_byte: float = 3.11  #: of results that are encoded
    stream_byte: float = 0.25  #: of another operand that is read in order; computed, not fitted
    count_row: float = 7.62
    count_miss: float = 58.8
