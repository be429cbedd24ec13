"""How many rows of logits exist at a time."""

from __future__ import annotations

from ..core.axes import ceil_div, power_of_two
from ..core.policy import tuned
from .policy import Chunks


def logits_row_stride(v: int) -> int:
    """Elements from one row of logits to the next."""
    return ceil_div(v, row_elements()) * row_elements()


def row_elements() -> int:
    """The number of elements that the row stride of logits is a multiple of."""
    return tuned(Chunks()).row_elements


def pick_chunk_size(bt: int, h: int, v: int) -> int:
    """Rows so that the logits take about as much memory as the input does: next_pow2(⌈bt / ⌈v / h⌉⌉), 1 to 2048.

    After Hsu et al., "Liger Kernel: Efficient Triton Kernels for LLM Training" (2024).
    """
    return min(power_of_two(ceil_div(max(bt, 0), ceil_div(v, h))), 2048)


def _cost(bt: int, h: int, v: int, rows: int) -> int:
    """The cost of the three products, in multiply-adds, in chunks of ``rows`` rows.

    The gradient of the input has few tiles of long sums, which fill the card in whole rounds; that of the weight is updated by all chunks but one.
    """
    whole, rest = divmod(bt, rows)
    filled = whole * _filled(rows, h) + (_filled(rest, h) if rest else 0)
    chunks = whole + bool(rest)
    return 2 * bt * h * v + filled * v + (chunks - 1) * tuned(Chunks()).update_cost * v * h


def _filled(rows: int, h: int) -> int:
    """Elements of the output of a product, rounded up to whole waves of tiles."""
    policy = tuned(Chunks())
    tiles_at_once = policy.concurrent_tiles
    return min(ceil_div(ceil_div(rows, high) * ceil_div(h, wide), tiles_at_once) * tiles_at_once * high * wide for high, wide in policy.product_tiles)


def rows_of_chunk(bt: int, h: int, v: int, most: int) -> int:
    """The number of rows, from 1 to ``most``, whose products cost least; of equals the least."""
    most = max(most, 1)
    if most >= bt:
        return max(bt, 1)
    step = tuned(Chunks()).row_multiple
    candidates = range(step, most + 1, step) if most >= step else [most]
    return min(candidates, key=lambda rows: _cost(bt, h, v, rows))
