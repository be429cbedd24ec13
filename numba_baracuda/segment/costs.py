"""What the model of the times of folds over ids in any order is fitted to."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.policy import Policy


@dataclass(frozen=True)
class Times(Policy):
    """What the variants of folds over ids in any order take, by the functions of ``times.py``.

    Fitted to times of 2^26 elements in rows of 1 to 400, 1.4 to 4096 rows a segment in the mean, and their means over ids that are drawn uniformly
    and ids nine of ten of which are the same: picoseconds of each row, of a byte, of an element or of a pass of a sort over a row, unless said
    otherwise. Bins were timed for 41 to 128 segments.
    """

    launches: float = 10.0  #: microseconds of a few launches
    sort_launches: float = 30.0  #: microseconds of these and a sort
    cached_bytes: int = 36 << 20  #: bytes of the results up to which the level 2 cache holds those that atomics update
    bin_row: float = 3.0
    bin_element: float = 0.8
    bin_element_segment: float = 0.03  #: of an element and segment
    pair_row: float = 6.1
    pair_pass: float = 3.5
    pair_pass_byte: float = 1.07
    pair_result_byte: float = 2.1
    permuted_row: float = 20.8
    permuted_byte: float = 0.18
    permuted_element: float = 0.28
    permuted_heavy_element: float = 0.68
    permuted_result_byte: float = 0.77
    index_pass: float = 8.6
    range_row: float = 22.0
    single_range_row: float = 10.0  #: computed, not timed
    range_element: float = 2.8
    range_heavy_element: float = 5.0
    range_result_byte: float = 0.55
    update_row: float = 5.8
    update_element: float = 1.65
    update_single: float = 1.2  #: of an element besides where a thread has one column of several
    update_wide: float = 2.5  #: of an element of float64 besides
    update_line: float = 1000.0  #: of each update of the same 128 bytes besides
    update_miss: float = 15.0  #: of 32 bytes that the level 2 cache does not hold besides
    update_byte: float = 0.7  #: of the results
    extreme_byte: float = 2.7  #: of results that are encoded
    count_row: float = 9.2
    count_miss: float = 69.0
