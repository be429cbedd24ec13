"""What a gradient makes of the elements that a row, its segment and a fold hold."""

from __future__ import annotations

import functools
from typing import Any

from ...algebra.gradients import GRADIENTS, LARGE
from ...kernels.elements import accumulator_type, conversions_of, is_normal_of, of_type, position_code_of
from ...runtime import jit


@functools.cache
def pull_of(gradient: str, value: str, ordinary: bool = False) -> Any:
    """``pulled(x, w, g, y, at, folded, kept, where, row)``: an element of the output.

    It is made of ``x[at]``, ``w[at]``, ``g[at]``, ``y[at]`` as memory holds them, of the row's place, and of p and q: results side by side at ``at``
    in ``folded``, or for a guarded gradient ``kept[where]`` and the next, and only where y wants them; ``ordinary`` ones never do.
    """
    rule, wide = GRADIENTS[gradient], accumulator_type(value)
    widen, narrow = conversions_of(value)
    as_number, is_ordinary, large = position_code_of(value), is_normal_of(value), wide(LARGE)
    pull, prepare = jit.device(of_type(rule.vjp, wide)), jit.device(rule.prepare)
    has_x, has_w, has_g, has_y = len(rule.rows) > 0, len(rule.rows) > 1, len(rule.segments) > 0, len(rule.segments) > 1
    placed, guarded, results = rule.uses_positions, rule.guarded, rule.results

    @jit.device
    def pulled(x: Any, w: Any, g: Any, y: Any, at: Any, folded: Any, kept: Any, where: Any, row: Any) -> Any:
        zero = wide(0)
        one_x, one_w, one_g, one_y, p, q = zero, zero, zero, zero, zero, zero
        if has_x:
            one_x = widen(x[at])
        if has_w:
            one_w = widen(w[at])
        if placed:
            one_w = as_number(row)
        if has_g:
            one_g = widen(g[at])
        if has_y:
            one_y = widen(y[at])
        if guarded:
            q = wide(-1)
            if not ordinary and not is_ordinary(one_y):
                p, q = kept[where], kept[where + 1]
        elif results > 0:
            p = folded[at * results]
            if results > 1:
                q = folded[at * results + 1]
        one_g, one_y, p, q = prepare(one_g, one_y, p, q, wide(1), large)
        return narrow(pull(one_x, one_w, one_g, one_y, p, q, zero))

    return pulled
