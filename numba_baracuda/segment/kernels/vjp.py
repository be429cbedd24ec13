"""What a gradient makes of an element, given the elements of its row and its segment."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from ...algebra.gradients import GRADIENTS
from ...kernels.elements import accumulator_type, conversions_of, inverse_of, is_normal_of, of_type, position_code_of
from ...runtime import jit


class VjpParts(NamedTuple):
    """Device functions of a gradient on one element type, of which all elements are.

    * ``prepare(g, y, at, p, q)``: what all elements of a segment's column are given, from ``g[at]`` and ``y[at]``
    * ``apply(x, w, at, row, given)``: an element of the output, from ``x[at]``, ``w[at]`` and the row's position
    * ``apply_wide``: the same before it is rounded
    """

    prepare: Any
    apply: Any
    apply_wide: Any


@functools.cache
def vjp_parts_of(gradient: str, value: str) -> VjpParts:
    """The one :class:`VjpParts` for these."""
    grad, wide = GRADIENTS[gradient], accumulator_type(value)
    (widen, narrow), position_code, scaled_inverse, inverts = conversions_of(value), position_code_of(value), inverse_of(value), grad.inverts
    vjp, prepare_wide = jit.device(of_type(grad.vjp, wide)), jit.device(of_type(grad.prepare, wide))
    has_x, has_w, has_g, has_y = len(grad.rows) > 0, len(grad.rows) > 1, len(grad.segments) > 0, len(grad.segments) > 1
    uses_positions = grad.uses_positions

    @jit.device
    def prepare(g: Any, y: Any, at: Any, p: Any, q: Any) -> Any:
        one_g, one_y, scale, inverse = wide(0), wide(0), wide(0), wide(0)
        if has_g:
            one_g = widen(g[at])
        if has_y:
            one_y = widen(y[at])
        if inverts:
            scale, inverse = scaled_inverse(one_y)
        return prepare_wide(one_g, one_y, p, q, scale, inverse)

    @jit.device
    def apply_wide(x: Any, w: Any, at: Any, row: Any, given: Any) -> Any:
        one_x, one_w = wide(0), wide(0)
        if has_x:
            one_x = widen(x[at])
        if has_w:
            one_w = widen(w[at])
        if uses_positions:
            one_w = position_code(row)
        return vjp(one_x, one_w, given[0], given[1], given[2], given[3], wide(0))

    @jit.device
    def apply(x: Any, w: Any, at: Any, row: Any, given: Any) -> Any:
        return narrow(apply_wide(x, w, at, row, given))

    return VjpParts(prepare, apply, apply_wide)


@functools.cache
def given_of(gradient: str, value: str, normal: bool = False) -> Any:
    """``given(g, y, at, batch_folded, folded, folded_index)``: what the elements of a segment's column are given, see :class:`VjpParts`.

    p and q are contiguous: from ``batch_folded[at · results]`` on, or, for a guarded gradient, from ``folded[folded_index]`` on and only where y is
    not a normal number; a ``normal`` function takes every y for one.
    """
    grad, wide, prepare = GRADIENTS[gradient], accumulator_type(value), vjp_parts_of(gradient, value).prepare
    widen, is_normal, guarded, results = conversions_of(value)[0], is_normal_of(value), grad.guarded, grad.results

    @jit.device
    def given(g: Any, y: Any, at: Any, batch_folded: Any, folded: Any, folded_index: Any) -> Any:
        p, q = wide(0), wide(0)
        if guarded:
            q = wide(-1)
            if not normal and not is_normal(widen(y[at])):
                p, q = folded[folded_index], folded[folded_index + 1]
        elif results > 0:
            p = batch_folded[at * results]
            if results > 1:
                q = batch_folded[at * results + 1]
        return prepare(g, y, at, p, q)

    return given


@functools.cache
def element_vjp_of(gradient: str, value: str, normal: bool = False) -> Any:
    """``element_vjp(x, w, g, y, at, batch_folded, folded, folded_index, row)``: an element of the output.

    The vjp gets ``x[at]``, ``w[at]``, ``g[at]``, ``y[at]``, which are of the element type, the row's position, and p and q as :func:`given_of` does.
    """
    given, apply = given_of(gradient, value, normal), vjp_parts_of(gradient, value).apply

    @jit.device
    def element_vjp(x: Any, w: Any, g: Any, y: Any, at: Any, batch_folded: Any, folded: Any, folded_index: Any, row: Any) -> Any:
        return apply(x, w, at, row, given(g, y, at, batch_folded, folded, folded_index))

    return element_vjp


@functools.cache
def special_of(value: str, count: int) -> Any:
    """``special(batch, at)``: whether one of ``count`` elements from ``at`` on is a zero, a subnormal, an infinity or NaN."""
    is_normal, (widen, _) = is_normal_of(value), conversions_of(value)

    @jit.device
    def special(batch: Any, at: Any) -> Any:
        any_special = False
        for k in range(count):
            any_special |= not is_normal(widen(batch[at + k]))
        return any_special

    return special
