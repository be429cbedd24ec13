"""Algorithms of the segment family; none of them names an op.

Every factory takes keywords: short element names (``value="f32"``, ``index="i32"``), a monoid's name, and the geometry of :mod:`..tiling`. Operands
are addressed as ``row · row_stride + Σ coordinate · stride`` over ``dims`` trailing dimensions, in elements, so any view works; vectors longer than
1 need unit column stride. Launched by hand on arrays they take 1-D C-contiguous ones; ``launch_config`` gives blocks, threads and dynamic shared
bytes.
"""

from ... import device  # noqa: F401 - whole, before its modules: see lazy.load
from .bins import fold_bins
from .broadcast import broadcast_to_elements, broadcast_to_rows, find_special, scatter_to_winners
from .carries import fold_carries
from .fold import fold_tiles
from .gather import gather_elements, gather_flat, gather_rows, gather_runs
from .narrow import fold_narrow
from .order import bound_ranges, bound_segments, expand_offsets, first_rows, number_rows, sort_keys
from .ranges import fold_ranges, split_ranges
from .rows import count_ids, fill_rows, finish_rows, first_fault, scatter_rows

__all__ = [
    "bound_ranges",
    "bound_segments",
    "broadcast_to_elements",
    "broadcast_to_rows",
    "count_ids",
    "expand_offsets",
    "fill_rows",
    "find_special",
    "finish_rows",
    "first_fault",
    "first_rows",
    "fold_bins",
    "fold_carries",
    "fold_narrow",
    "fold_ranges",
    "fold_tiles",
    "gather_elements",
    "gather_flat",
    "gather_rows",
    "gather_runs",
    "number_rows",
    "scatter_rows",
    "scatter_to_winners",
    "sort_keys",
    "split_ranges",
]  # fmt: skip
