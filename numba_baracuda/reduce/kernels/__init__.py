"""Algorithms of the reduce family; none of them names an op.

A *row* is the elements of x that become one element of y. It spans the reduced axes; the other axes are *kept*, and each of their elements has a row.
Kernels that walk across memory call rows columns. The position of an element in its row counts over the reduced axes, in the order of ``shape``.

| kernel | what it does | the axis nearest to contiguous is |
|---|---|---|
| :func:`fold_rows` | folds each row | reduced |
| :func:`fold_short_rows` | folds each row; a group of lanes holds a whole row in registers | reduced |
| :func:`fold_held_rows` | folds each row; a thread holds whole rows, which are contiguous as a whole | reduced |
| :func:`fold_held_lines` | folds each row; a thread holds some of its lines, each of which is contiguous with those of neighbouring rows | reduced |
| :func:`fold_staged_rows` | folds each row; rows, or few neighbouring columns, are contiguous as a whole and pass through shared memory | any |
| :func:`fold_columns` | folds each column | kept |
| :func:`fold_lines` | folds two, four, … neighbouring columns, whose positions are contiguous | kept |
| :func:`fold_held_columns` | folds each column; a thread holds whole columns | kept |
| :func:`combine_partials` | folds the partials of rows or columns that are split | any |
| :func:`merge_states` | combines the states that ranks have of the same rows | any |
| :func:`broadcast_rows` | stores the gradient of each element of a row | reduced |
| :func:`fold_and_broadcast_rows` | the same, and the fold that the gradient needs | reduced |
| :func:`fold_and_broadcast_held_rows` | the same; a group of lanes holds a whole row in registers | reduced |
| :func:`fold_and_broadcast_staged_lines` | the same of rows, or few neighbouring columns, whose lines pass through shared memory | any |
| :func:`broadcast_staged_rows` | the same; rows are contiguous as a whole, and pass through shared memory | reduced |
| :func:`broadcast_held_rows` | the same; vectors hold whole rows | reduced |
| :func:`broadcast_columns` | stores the gradient of each element of a column | kept |
| :func:`fold_and_broadcast_columns` | the same, and the fold that the gradient needs | kept |
| :func:`broadcast_held_columns` | the same; a thread holds whole columns | kept |
| :func:`broadcast_dense` | stores the gradient of each element, in the order of memory | any |
| :func:`find_special_results` | tells whether a guarded gradient needs its fold | any |

Strides and extents count elements, and an element lies at Σ coordinate · stride, so any view works. Constants of all kernels:

* ``monoid``: the name of a monoid of :mod:`~...algebra`; ``gradient``: that of a gradient of :mod:`~...algebra.gradients`
* ``value``, ``result``: element types of x and of y
* ``vector``: elements of a vectorized load or store; more than 1 only where vectors are aligned in every operand, or ``peeled``
* ``lanes``: lanes that have a row, a power of two: neighbouring lanes of a warp, or the whole block where there are more than 32; of columns, lanes
  of a block that have neighbouring columns
* ``steps``: vectors of a column, or of a gradient's row, that a lane loads before it uses the first
* ``peeled``: whether rows, or the line of columns, begin or end inside an aligned vector; ``ragged``: whether columns have not all one length,
  or walks begin inside an aligned vector: see :func:`~.loads.turned_of`; ``outer``: the kept axes outside of such a walk, 0 of other columns
* ``guarded``: whether the kernel does nothing where ``guard[0]`` is 0; ``special``: whether it does only rows whose result in ``guard`` is
  special, which is one that is no normal number; a block has a row then, or combines partials
* ``reused``: whether the gradient reads the elements of the fold once more, so that its loads let caches keep them
* ``after_fold``: whether a fold ran before the gradient, whose first block then takes the last rows, which caches hold
* ``single_pass``: whether the last block of a row to finish combines the partials of its splits, so that no second launch does; not if ``guarded``
* ``kept``, ``dims``: the numbers of kept and of reduced axes

Parameters of all kernels; a row's arrays have the kept axes, full ones the reduced axes, too:

* ``x`` [full]: the elements; ``y`` [kept]: the results; ``dy`` [kept] and ``dx`` [full]: the gradients of y and of x
* ``guard`` [1]: 0 if no result is special; [kept], as ``y`` lies, if ``special``: the results; of a ``single_pass`` [rows, or blocks of columns]:
  how many blocks of each have finished, 0 before and after; else any address
* ``partials`` [rows, splits, scalars of a state]: the states of splits; any address where a row has one split; of columns in a ``single_pass``
  [blocks of columns, splits, scalars of a lane's states, lanes]
* ``folded`` [kept, results of the gradient's fold]: p and q of each row, side by side; any address where the gradient has no fold
* ``rows`` or ``columns``: their number; ``extent``: elements of a row; ``longer``: the first so many columns of ``ragged`` ones have one more
* ``splits``: blocks that have a part of the same row; ``chunk``: elements of a part of neighbours, of which the last may have fewer;
  ``across``: blocks that share a line of columns, or all where each shares lines with the next one
* ``corrected_count``: the count that the monoid's ``finish`` gets: elements of a row less the correction; 0 where ``finish`` does not use it
* ``inverse_extent``: 1 / elements of a row
* ``kept_shape`` [kept]: extents of the kept axes; ``shape`` [dims]: extents of the reduced axes
* ``x_kept_strides``, ``y_kept_strides``, ``dy_kept_strides``, ``dx_kept_strides`` [kept]: strides of the kept axes in each operand;
  ``folded_kept_strides`` [kept]: those in ``folded``, in rows; ``origin_kept_strides`` [kept]: those that lead to the first element of the row;
  ``partial_kept_strides`` [kept]: those in ``partials``, in columns
* ``x_strides``, ``dx_strides`` [dims]: strides of the reduced axes; the last is 1 if rows are contiguous and ``vector`` > 1

``launch_config`` gives blocks, threads a block and bytes of dynamic shared memory.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .broadcast import broadcast_columns, broadcast_rows, find_special_results, fold_and_broadcast_rows
from .columns import fold_columns
from .dense import broadcast_dense
from .held import fold_held_columns, fold_held_lines, fold_held_rows
from .held_by_groups import fold_and_broadcast_held_rows
from .held_gradients import broadcast_held_columns, broadcast_held_rows
from .lines import fold_lines
from .merge import merge_states
from .results import combine_partials
from .rows import fold_rows
from .short import fold_short_rows
from .staged import broadcast_staged_rows, fold_staged_rows
from .staged_lines import fold_and_broadcast_staged_lines
from .whole import fold_and_broadcast_columns

__all__ = [
    "broadcast_columns",
    "broadcast_dense",
    "broadcast_held_columns",
    "broadcast_held_rows",
    "broadcast_rows",
    "broadcast_staged_rows",
    "combine_partials",
    "find_special_results",
    "fold_and_broadcast_columns",
    "fold_and_broadcast_held_rows",
    "fold_and_broadcast_rows",
    "fold_and_broadcast_staged_lines",
    "fold_columns",
    "fold_held_columns",
    "fold_held_lines",
    "fold_held_rows",
    "fold_lines",
    "fold_rows",
    "fold_short_rows",
    "fold_staged_rows",
    "merge_states",
]
