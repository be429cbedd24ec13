"""Algorithms of the segment family. No kernel names an op: each is given the name of a monoid or of a gradient.

Operands are seen as rows: a row has one id and ``columns`` elements, in ``dims`` trailing axes. A segment is the rows of one id; a *run* is rows of
equal ids that are neighbours. Ids are *in order* where they ascend. Ids outside [0, segments) are dropped.

| kernel | what it does |
|---|---|
| :func:`fold_tiles`, :func:`fold_narrow`, :func:`fold_short_runs` | fold the runs of ids in order; lanes share columns, rows, or rows and runs |
| :func:`fold_staged` | does so by way of shared memory, where lanes share columns, runs and rows |
| :func:`fold_bins` | folds rows of ids in any order into few segments, whose states are in shared memory |
| :func:`fold_ranges` | folds rows that are partitioned by range of ids; :func:`bound_ranges`, :func:`split_ranges` prepare it |
| :func:`fold_carries` | combines the carries that these leave where their blocks do not look back, and stores the results |
| :func:`scatter_rows` | updates the output atomically; :func:`fill_rows` comes before it, and one of the next after |
| :func:`choose_passes` | tells whether these make one pass over all segments, or one for each range of them |
| :func:`finish_rows`, :func:`finish_flat`, :func:`finish_factors` | make results of what atomics have left |
| :func:`finish_pivots` | makes results of the greatest elements, and of sums about them, that atomics have left |
| :func:`scatter_positions` | finds the first row of each segment that has its extreme; :func:`finish_positions` stores what atomics have left |
| :func:`gather_rows`, :func:`gather_runs`, :func:`gather_flat`, :func:`gather_elements` | copy its segment's row to each row |
| :func:`gather_means` | copies single elements, divided by the lengths of short runs, which it finds itself |
| :func:`broadcast_to_rows`, :func:`broadcast_flat`, :func:`broadcast_to_elements` | store gradients made of each row and what its segment has |
| :func:`broadcast_runs` | does so where runs are long |
| :func:`fold_then_broadcast` | folds, and then broadcasts, in one launch of a small problem |
| :func:`fold_and_broadcast_runs` | folds short segments, and stores such gradients, in one launch |
| :func:`fold_and_broadcast_staged` | does so with narrow rows by way of shared memory |
| :func:`fold_and_broadcast_short` | does so with rows of few bytes in registers |
| :func:`pair_rows` | puts what a gradient gathers of a segment side by side |
| :func:`lift_pairs` | makes the states of a monoid of pairs |
| :func:`scatter_to_winners` | stores the gradient of each segment at one row of each column |
| :func:`fill_elements` | stores one number in all elements, before winners, or before results of few segments |
| :func:`find_special` | tells whether a guarded gradient needs its fold |
| :func:`sort_keys`, :func:`number_rows` | make what a sort puts in order |
| :func:`bound_segments`, :func:`bound_short_segments` | find where segments begin, by a search for each, or by a pass over ids |
| :func:`count_bounded`, :func:`expand_offsets`, :func:`first_rows` | turn offsets into counts or ids, and ids into first rows |
| :func:`count_ids`, :func:`count_few_ids` | count the rows of each segment, in global memory, or in shared memory where segments are few |
| :func:`take_seams`, :func:`merge_seams`, :func:`clear_others` | send, merge and own the segments whose rows lie on several ranks |
| :func:`first_fault` | finds the first id that is out of range or out of order |

An element lies at row · row_stride + Σ coordinate · stride, in elements, so any view works. Constants of all kernels:

* ``monoid``: the name of a monoid of :mod:`~...algebra`; ``gradient``: that of a gradient of :mod:`~...algebra.gradients`
* ``value``, ``result``: element types of the values and of the results; ``index``: that of ids
* ``key``: the integer type of ids that a sort has put in order; ``count``: that of counts of rows; ``row_index``: that of row indices. "" for
  ``count`` or ``row_index`` says that the kernel has no counts or no permutation
* ``vector``: elements of a vectorized load or store, and columns of a lane; more than 1 only where the columns of every operand are contiguous and
  aligned for it
* ``lanes``: neighbouring lanes that have a row together, a group; ``cut``: whether rows are wider than a group, so that blocks share their
  columns
* ``dims``: number of trailing axes
* ``differences``: whether ``counts`` are offsets, whose differences are the counts
* ``packed``: whether ids, and the permutation if there is one, are contiguous and begin at a multiple of 16 bytes
* ``looks_back``: whether row blocks look back for the rest of a run that others have begun; else they leave carries
* ``guarded``: whether the kernel does nothing where ``guard[0]`` is 0
* ``threads_per_block``: threads; ``items_per_thread``: rows, or vectors, whose loads a lane issues before it uses the first

Parameters of all kernels:

* ``input`` [rows, columns]: the values; ``output`` [segments, columns], or [rows, columns] of gradients: the results
* ``source`` [segments, columns]: what segments have; ``folded`` [segments, columns, results of the gradient's fold]: p and q of each segment, side by
  side, contiguous
* ``ids`` [rows]: the id of each row; ``permutation`` [rows]: row r in the order of ``ids`` is row ``permutation[r]`` of the operands; any address
  where there is none
* ``counts`` [segments]: rows of each segment; ``offsets`` [segments + 1]: the first row of each segment among ids in order
* ``guard`` [1]: 0 if no result is special; any address where the kernel is not ``guarded``
* ``carry_ids`` [carries], ``carry_counts`` [carries], ``carry_states`` [carries, columns, scalars of a state]: the id of each carry, the rows that it
  stands for, and its states; any address where there are none
* ``run_status``: zeros, where blocks that look back publish their last runs; see :mod:`~.lookback`. Any address where no block looks back
* ``rows``, ``columns``, ``segments``: their number
* ``tile``: rows that a group, a warp or a block walks; ``row_blocks``: blocks that share the rows; ``chunks``: blocks that share the columns;
  ``early``: how many row blocks, the last ones, start first
* ``empty``: what an empty segment gets; ``correction``: what a corrected monoid takes from a count
* ``ids_step``: elements from one id to the next; ``input_row``, ``source_row``, ``output_row``: elements from one row of the operand to the next
* ``shape`` [dims]: extents of the trailing axes; ``input_strides``, ``source_strides``, ``output_strides`` [dims]: strides of these axes

Launched by hand on arrays a kernel takes 1-D C-contiguous ones. ``launch_config`` gives blocks, threads a block and bytes of dynamic shared memory.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .bins import fold_bins
from .bounds import bound_ranges, bound_segments, bound_short_segments, count_bounded, split_ranges
from .broadcast import broadcast_to_elements, broadcast_to_rows, find_special
from .carries import fold_carries
from .counts import choose_passes, count_few_ids, count_ids
from .flat import broadcast_flat
from .fold import fold_tiles
from .fused import fold_and_broadcast_runs
from .fused_short import fold_and_broadcast_short
from .fused_staged import fold_and_broadcast_staged
from .gather import gather_elements, gather_flat, gather_rows, gather_runs
from .lift import lift_pairs, pair_rows
from .means import gather_means
from .narrow import fold_narrow
from .order import expand_offsets, first_fault, first_rows, number_rows, sort_keys
from .pivots import finish_pivots
from .positions import finish_positions, scatter_positions
from .ranges import fold_ranges
from .rows import fill_elements, fill_rows, finish_flat, finish_rows
from .runs import broadcast_runs
from .scatter import finish_factors, scatter_rows
from .seams import clear_others, merge_seams, take_seams
from .short_runs import fold_short_runs
from .small import fold_then_broadcast
from .staged import fold_staged
from .winners import scatter_to_winners

__all__ = [
    "bound_ranges",
    "bound_segments",
    "bound_short_segments",
    "broadcast_flat",
    "broadcast_runs",
    "broadcast_to_elements",
    "broadcast_to_rows",
    "choose_passes",
    "clear_others",
    "count_bounded",
    "count_few_ids",
    "count_ids",
    "expand_offsets",
    "fill_elements",
    "fill_rows",
    "find_special",
    "finish_factors",
    "finish_flat",
    "finish_pivots",
    "finish_positions",
    "finish_rows",
    "first_fault",
    "first_rows",
    "fold_and_broadcast_runs",
    "fold_and_broadcast_short",
    "fold_and_broadcast_staged",
    "fold_bins",
    "fold_carries",
    "fold_narrow",
    "fold_ranges",
    "fold_short_runs",
    "fold_staged",
    "fold_then_broadcast",
    "fold_tiles",
    "gather_elements",
    "gather_flat",
    "gather_means",
    "gather_rows",
    "gather_runs",
    "lift_pairs",
    "merge_seams",
    "number_rows",
    "pair_rows",
    "scatter_positions",
    "scatter_rows",
    "scatter_to_winners",
    "sort_keys",
    "split_ranges",
    "take_seams",
]  # fmt: skip
