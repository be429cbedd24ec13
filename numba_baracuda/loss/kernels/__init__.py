"""Algorithms of the loss family; none of them names an op.

The logits of one chunk of rows lie in the workspace, ``row_stride`` elements from one row to the next, and become their own gradients there. A row
*counts* where its target is not ``ignore``; where it is no class either, from 0 to ``classes`` − 1, the row has neither loss nor gradient. For each
row, z[j] is the logit of class j as the loss uses it, after bias, scale and cap, and lse = log Σⱼ exp z[j].

| kernel | what it does |
|---|---|
| :func:`total_targets` | counts the targets and computes the ``factors`` of losses and gradients from their count |
| :func:`cross_entropy_rows` | stores the loss of each row, and the gradients of its logits in their place |
| :func:`row_statistics`, :func:`merge_statistics`, :func:`row_gradients` | the same where ranks have parts of the classes and exchange statistics |
| :func:`fold_losses` | sums the losses of all rows, or stores each |
| :func:`assign` | sets, scales, converts or adds matrices |
| :func:`mask_rows` | copies a matrix, with zeros for rows that have no gradient |
| :func:`compact_rows` | lists the rows that count |
| :func:`gather_values` | stores to all rows what the list of those that count has for them |

Strides and offsets count elements. Constants of all kernels:

* ``value``: the element type of inputs, logits and gradients; sums are in its accumulator, float32 or float64
* ``label``: the element type of targets, i64 or i32; ``upstream``: that of ``dy``, or "" where no array of it is multiplied
* ``vector``: elements of a vectorized load or store; more than 1 only where each is aligned
* ``biased``, ``scaled``, ``capped``: whether logits get a bias, then a factor, then a softcap c · tanh(z / c)
* ``smoothed``, ``weighted``: whether the loss of a row with target t is (1 − a) · wₜ · (lse − zₜ) + a / classes · Σⱼ wⱼ (lse − zⱼ), with label
  smoothing a, and the weights of classes wⱼ; else a = 0 and wⱼ = 1
* ``squared``: whether ``lse_square_scale`` · lse² is added; ``row_weighted``: whether all of it is multiplied by the row's weight
* ``exact_tanh``: tanh without an error of its own, for large caps; ``argmax``: whether ``predicted`` and ``hits`` are stored; ``threads`` of a block,
  and ``steps`` vectors that each has in flight; ``gradient``: whether gradients are wanted
* ``entropy``: whether ``entropies`` are stored; ``entropic``: whether gradients are those of entropies, too; ``entropy_upstream``: the element type
  of ``dy_entropy``, or "" where there is none
* ``threads_per_block`` threads, and ``items_per_thread`` vectors of each thread, of kernels on matrices

Parameters of all kernels, where a pointer that a constant leaves unused is any address:

* ``target`` [rows of the input]: the class of each row; ``target_stride``: elements from one target to the next; ``ignore``: the target of rows that
  do not count
* ``bias`` [classes], ``class_weight`` [classes], ``row_weight`` [rows of the input]: the operands of these names
* ``dy``: the upstream gradient of the loss, one element, or one for each row of the input
* ``dy_entropy``: the upstream gradient of ``entropies``, one for each row of the input
* ``factors`` [7]: what losses and gradients are multiplied by; :mod:`..geometry` names the elements
* ``losses``, ``squares`` [rows of the input]: the loss of each row before the mean, and the part of it that the square adds
* ``hits``, ``predicted`` [rows of the input]: 1 where the target has the greatest logit, else 0; the first class that has it
* ``lse``, ``entropies`` [rows of the input]: log Σⱼ exp zⱼ, and the entropy of the classes
* ``x`` [rows, classes]: the products, then the gradients; ``first_row``: the input's row that row 0 of x belongs to; ``row_stride``: elements from
  one row of x to the next; ``strides``: elements from one row to the next of target, row_weight, dy, lse, predicted, entropies and
  dy_entropy
* ``statistics``: what ranks exchange of each row; ``row_terms`` [rows, 5]: what the gradients of a row's logits are made of
* ``rows``: how many rows the launch has; ``classes``: how many classes, of which ``first_class`` is the first of ``total_classes`` where ranks have
  parts of them; ``shard_weight``: the part of ``class_weight`` that belongs to them; ``columns``: columns of a matrix
* ``blocks_per_row``: blocks that share a row of a matrix
* ``scale``: the factor of logits; ``cap``: (c, 1 / c); ``smoothing``: a; ``lse_square_scale``: the factor of lse²

``launch_config`` gives blocks, threads a block and bytes of dynamic shared memory.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .assign import assign
from .compact import compact_rows, gather_values, mask_rows
from .rows import cross_entropy_rows
from .shards import merge_statistics, row_gradients, row_statistics
from .totals import fold_losses, total_targets

__all__ = [
    "assign",
    "compact_rows",
    "cross_entropy_rows",
    "fold_losses",
    "gather_values",
    "mask_rows",
    "merge_statistics",
    "row_gradients",
    "row_statistics",
    "total_targets",
]
