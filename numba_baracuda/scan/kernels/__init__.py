"""Algorithms of the scan family. No kernel names an op: each is given the name of a :class:`~..operators.ScanOperator`.

A scan runs along one axis of an array; the other axes are *kept*. Each element of the kept axes has a row: the elements along the scanned axis.
Kernels that scan across memory call the rows columns.

| kernel | the scanned axis | a row or column belongs to |
|---|---|---|
| :func:`scan_rows` | has the smallest stride | a group of lanes, or a block; a warp has several rows that are short and odd |
| :func:`scan_long_rows` | has the smallest stride | all blocks, a tile each |
| :func:`scan_columns` | has a larger stride than a kept axis | one lane of each level of a block, or a thread |
| :func:`scan_long_columns` | has a larger stride than a kept axis | all blocks, a tile each |
| :func:`scan_slabs` | has a larger stride than a kept axis | a thread of each level of a block; all blocks, a slab in shared memory each, or one |
| :func:`scan_slices` | has a larger stride than a kept axis | a thread; a block has whole slices in shared memory |

Strides and extents count elements. Constants of all kernels:

* ``operator``: the operator's name, such as ``cumsum``, ``cummax_indices`` or ``cumprod_backward``
* ``value``, ``result``: element types of the inputs and of ``output``; ``index``: that of ``indices``, "" without them
* ``position``: "i32" or "i64", the type that positions along the scanned axis have in a state
* ``vector``: elements of a vectorized load or store; more than 1 only where vectors are aligned in every operand
* ``threads``: threads of a block
* ``reverse``: whether the scan begins at the end of a row; ``exclusive``: whether an element is left out of its own result
* ``kept``: the number of kept axes
* ``carried``: whether each row has a number of its own before its first element

Parameters of all kernels:

* ``a``, ``b``, ``c`` [any shape]: what the operator's ``inputs`` name, in that order; any address where it has fewer. A third that can be
  ``remade`` of the second is not read by threads that have a whole column
* ``output`` [same shape]: the results; ``indices`` [same shape]: the winners' positions in memory along the axis, −1 for none; not written where
  ``index`` is ""
* ``initials`` [rows]: these numbers, where rows are ``carried``
* ``extent``: elements of a row; ``initial``: the number before the first element; ``initial_position``: its position, ``INITIAL`` of
  :mod:`..operators` if a caller gave it, else ``NOTHING``
* ``kept_shape`` [kept]: extents of the kept axes
* ``a_strides``, ``b_strides``, ``c_strides``, ``output_strides``, ``indices_strides`` [kept]: strides of the kept axes in each operand
* ``axis_strides`` [5]: strides of the scanned axis in ``a``, ``b``, ``c``, ``output`` and ``indices``; 1 if rows are contiguous and ``vector`` > 1

Both long kernels, and :func:`scan_slabs`, also have:

* ``group_tiles``: tiles whose aggregates are combined in one fixed order; 0 combines tiles in the order in which they are done
* ``tile_status`` [words]: 64-bit words of workspace, zero before the launch: the statuses of tiles; see :mod:`.lookback`
* ``tiles``: tiles of a row, or of a strip of columns
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .columns import scan_columns, scan_long_columns
from .rows import scan_long_rows, scan_rows
from .slabs import scan_slabs
from .slices import scan_slices

__all__ = ["scan_columns", "scan_long_columns", "scan_long_rows", "scan_rows", "scan_slabs", "scan_slices"]
