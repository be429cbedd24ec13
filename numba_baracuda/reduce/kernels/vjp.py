"""The vector-Jacobian product of a reduction: what one lane stores to dx, made of x and of the terms of its row."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint64

from ...algebra import monoid_of
from ...algebra.gradients import GRADIENTS
from ...device.build import opaque
from ...device.vector import STORE_STREAM, aligned_span
from ...kernels.elements import accumulator_type, conversions_of, inverse_of, is_normal_of, of_type, origin_of, position_code_of
from ...runtime import jit
from .loads import vector_loads, walk_of

#: scalars that the elements of a row share: g, y, p and q as :mod:`~...algebra.gradients` names them, and the origin
ROW_TERMS = 5


@jit.device
def terms_at(row_terms: Any, offset: Any) -> Any:
    """The terms of a row, ``row_terms[offset:]``, as a tuple."""
    at = int64(offset)  # without a sign below, since Numba would wrap negative indices
    return row_terms[uint64(at)], row_terms[uint64(at + 1)], row_terms[uint64(at + 2)], row_terms[uint64(at + 3)], row_terms[uint64(at + 4)]


@jit.device
def one_of(first: Any, a: Any, b: Any) -> Any:
    """The terms ``a`` or ``b``, without a branch."""
    return a[0] if first else b[0], a[1] if first else b[1], a[2] if first else b[2], a[3] if first else b[3], a[4] if first else b[4]


class RowVjp:
    """Device functions of a gradient over elements of a type.

    ``folded`` holds the results p and q of a fold of each row, side by side. Offsets count elements of x, dy and y, and rows of ``folded``. The terms
    of a row are ``ROW_TERMS`` scalars of the accumulator's type.
    """

    def __init__(self, gradient: str, value: str) -> None:
        grad, wide = GRADIENTS[gradient], accumulator_type(value)
        (widen, narrow), is_normal, position_code = conversions_of(value), is_normal_of(value), position_code_of(value)
        has_y, results, guarded, uses_positions, shares = len(grad.segments) > 1, grad.results, grad.guarded, grad.uses_positions, grad.shares
        subtracts_origin, origin_from = bool(grad.fold) and monoid_of(grad.fold).subtracts_origin, origin_of(value)
        prepare, vjp = jit.device(of_type(grad.prepare, wide)), jit.device(of_type(grad.vjp, wide))
        scaled_inverse, inverts = inverse_of(value), grad.inverts
        self.has_x = bool(grad.rows)

        @jit.device
        def load_folded(folded: Any, folded_offset: Any, y: Any, y_offset: Any) -> Any:
            """(p, q) of a row. A guarded gradient has q = −1 where y is a normal number: it needs neither then."""
            p, q = wide(0), wide(0)
            if guarded:
                q = wide(-1)
                if not is_normal(widen(y[y_offset])):
                    p, q = folded[folded_offset * 2], folded[folded_offset * 2 + 1]
            elif results > 0:
                p = folded[folded_offset * results]
                if results > 1:
                    q = folded[folded_offset * results + 1]
            return p, q

        @jit.device
        def load_row_terms(row_terms: Any, offset: Any, x: Any, dy: Any, y: Any, x_offset: Any, dy_offset: Any, y_offset: Any, p_q: Any) -> None:
            """Stores the terms of a row to ``row_terms[offset:]``. The origin is what the fold subtracted from each element."""
            saved, origin = wide(0), wide(0)
            if has_y:
                saved = widen(y[y_offset])
            if subtracts_origin:
                origin = origin_from(x[x_offset])
            scale, inverse = wide(0), wide(0)
            if inverts:
                scale, inverse = scaled_inverse(saved)
            g, saved, p, q = prepare(widen(dy[dy_offset]), saved, p_q[0], p_q[1], scale, inverse)
            row_terms[offset], row_terms[offset + 1], row_terms[offset + 2], row_terms[offset + 3], row_terms[offset + 4] = g, saved, p, q, origin

        @jit.device
        def element_vjp(x: Any, position: Any, inverse_extent: Any, row_terms: Any) -> Any:
            """An element of dx: of the element x at a position of its row, and the terms of the row."""
            w = wide(0)
            if uses_positions:
                w = position_code(position)
            if shares:
                w = wide(inverse_extent)
            return narrow(vjp(widen(x) - row_terms[4], w, row_terms[0], row_terms[1], row_terms[2], row_terms[3], wide(0)))

        @jit.device
        def element_vjp_normal(x: Any, position: Any, inverse_extent: Any, row_terms: Any) -> Any:
            """The same of a guarded gradient where y is a normal number."""
            return element_vjp(x, position, inverse_extent, (row_terms[0], row_terms[1], row_terms[2], wide(-1), row_terms[4]))

        self.load_folded, self.load_row_terms = load_folded, load_row_terms
        self.element_vjp, self.element_vjp_normal = element_vjp, element_vjp_normal


vjp_of = functools.cache(RowVjp)


@functools.cache
def lane_vjp(gradient: str, value: str, vector: int, stride: int, dims: int, steps: int, across_rows: bool) -> Any:
    """``store_gradient(x, dx, x_offset, dx_offset, position, behind, end, jump, shape, x_strides, …, row_terms)``: one lane's share of dx.

    The lane stores a batch of ``steps`` vectors of ``vector`` elements, ``stride`` positions from one to the next, every ``jump`` positions, from
    ``position`` to ``end`` − 1. ``behind`` is the distance to the vector of the last lane of its group: the group leaves the loop of whole batches
    as one. The elements of a vector belong to one row, or, with ``across_rows``, to ``vector`` neighbouring rows; ``row_terms`` holds the terms of
    the one row, or of each. A guarded gradient has a loop without p and q for rows whose results are all normal numbers.
    """
    row_vjp, rows = vjp_of(gradient, value), vector if across_rows else 1
    if not GRADIENTS[gradient].guarded:
        return _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp, steps)[0]
    walk = _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp_normal, steps)[0]
    walk_special = _walk(gradient, value, vector, stride, dims, across_rows, row_vjp.element_vjp, 1)[0]

    @jit.device
    def store_gradient(
        x: Any, dx: Any, x_offset: Any, dx_offset: Any, position: Any, behind: Any, end: Any, jump: Any, shape: Any, x_strides: Any,
        dx_strides: Any, inverse_extent: Any, row_terms: Any,
    ) -> None:  # fmt: skip
        all_normal = True
        for v in range(rows):
            all_normal &= row_terms[v * ROW_TERMS + 3] < 0
        if all_normal:
            walk(x, dx, x_offset, dx_offset, position, behind, end, jump, shape, x_strides, dx_strides, inverse_extent, row_terms)
        else:
            s = int32(0)
            while s < steps:
                own = position + s * stride
                walk_special(x, dx, x_offset, dx_offset, own, behind, end, jump, shape, x_strides, dx_strides, inverse_extent, row_terms)
                s = int32(opaque(s + 1))

    return store_gradient


@functools.cache
def group_vjp(gradient: str, value: str, vector: int, lanes: int, dims: int, peeled: bool, steps: int) -> Any:
    """``store(x, dx, x_offset, dx_offset, split, splits, extent, lane, shape, …, row_terms)``: a group's share of a row of ``extent`` elements.

    The ``lanes`` lanes of the group store every ``splits``-th batch of the row, of ``steps`` vectors of each lane. ``peeled``: the elements before
    the first and behind the last aligned vector, which split 0 has, are stored one by one; vectors of x and dx are aligned at the same positions.
    """
    row_vjp, element = vjp_of(gradient, value), jit.SCALARS[value]
    store_vectors = lane_vjp(gradient, value, vector, lanes * vector, dims, steps, False)
    has_x, element_vjp, batch_stride = row_vjp.has_x, row_vjp.element_vjp, lanes * steps * vector

    @jit.device
    def store_one(x: Any, dx: Any, x_offset: Any, dx_offset: Any, position: Any, inverse_extent: Any, row_terms: Any) -> None:
        own = x[x_offset + position] if has_x else element(0)
        dx[dx_offset + position] = element_vjp(own, position, inverse_extent, terms_at(row_terms, 0))

    @jit.device
    def store(
        x: Any, dx: Any, x_offset: Any, dx_offset: Any, split: Any, splits: Any, extent: Any, lane: Any, shape: Any, x_strides: Any, dx_strides: Any,
        inverse_extent: Any, row_terms: Any,
    ) -> None:  # fmt: skip
        first, last, jump = int64(0), int64(extent), splits * batch_stride
        if peeled:
            first, last = aligned_span(dx, dx_offset, dx_offset + extent, vector)
            first, last = first - dx_offset, last - dx_offset
        position, behind = first + split * batch_stride + lane * vector, (lanes - 1 - lane) * vector
        store_vectors(x, dx, x_offset, dx_offset, position, behind, last, jump, shape, x_strides, dx_strides, inverse_extent, row_terms)
        if peeled and split == 0 and lane < first:
            store_one(x, dx, x_offset, dx_offset, lane, inverse_extent, row_terms)
        if peeled and split == 0 and last + lane < extent:
            store_one(x, dx, x_offset, dx_offset, last + lane, inverse_extent, row_terms)

    return store


@functools.cache
def held_vjp(gradient: str, value: str, vector: int, stride: int, dims: int, steps: int) -> Any:
    """``store(dx, batch, dx_offset, position, end, shape, dx_strides, inverse_extent, row_terms)``: :func:`lane_vjp` across rows, of held elements.

    ``batch`` [steps, vector] holds those elements of x of which the lane stores the gradient. Of a gradient that is not guarded.
    """
    return _walk(gradient, value, vector, stride, dims, True, vjp_of(gradient, value).element_vjp, steps)[1]


def _walk(gradient: str, value: str, vector: int, stride: int, dims: int, across_rows: bool, element_vjp: Any, steps: int) -> tuple[Any, Any]:
    """The loop of :func:`lane_vjp`, which loads ``steps`` vectors before it uses the first; and its end, which stores those of a batch that exist."""
    element, has_x, (start, advance), store = jit.SCALARS[value], vjp_of(gradient, value).has_x, walk_of(dims, stride), STORE_STREAM[vector]
    (fetch, fetch_some), size = vector_loads(value, vector, stride, dims, steps), steps * vector
    position_step, row_step = (0, ROW_TERMS) if across_rows else (1, 0)

    @jit.device
    def vjp_of_vector(batch: Any, s: Any, position: Any, inverse_extent: Any, row_terms: Any) -> None:
        """Replaces the elements of x in vector ``s`` of the batch by those of dx."""
        for v in range(vector):
            offset = v * row_step
            terms = terms_at(row_terms, offset)
            batch[s * vector + v] = element_vjp(batch[s * vector + v], position + v * position_step, inverse_extent, terms)

    @jit.device
    def vjp_of_batch(batch: Any, position: Any, inverse_extent: Any, row_terms: Any) -> None:
        """The same in all vectors, by one loop: of two, the compiler may leave one."""
        for k in range(size):
            terms = terms_at(row_terms, k % vector * row_step)
            batch[k] = element_vjp(batch[k], position + k // vector * stride + k % vector * position_step, inverse_extent, terms)

    @jit.device
    def store_batch(
        dx: Any, batch: Any, dx_offset: Any, position: Any, end: Any, shape: Any, dx_strides: Any, inverse_extent: Any, row_terms: Any
    ) -> None:  # fmt: skip
        if has_x:
            vjp_of_batch(batch, position, inverse_extent, row_terms)
        walk = start(dx_offset, position, shape, dx_strides)
        for s in range(steps):
            if position + s * stride < end:
                if not has_x:
                    vjp_of_vector(batch, s, position + s * stride, inverse_extent, row_terms)
                store(dx, walk[0], batch, s * vector)
            walk = advance(walk, shape, dx_strides)

    @jit.device
    def walk(
        x: Any, dx: Any, x_offset: Any, dx_offset: Any, position: Any, behind: Any, end: Any, jump: Any, shape: Any, x_strides: Any,
        dx_strides: Any, inverse_extent: Any, row_terms: Any,
    ) -> None:  # fmt: skip
        batch = cuda.local.array(size, element)
        if not has_x:
            for k in range(size):
                batch[k] = element(0)
        while position + (steps - 1) * stride + behind < end:
            if has_x:
                fetch(x, x_offset, position, shape, x_strides, batch, 0)
                vjp_of_batch(batch, position, inverse_extent, row_terms)
            walk = start(dx_offset, position, shape, dx_strides)
            for s in range(steps):
                if not has_x:  # the compiler would keep a batch of one repeated number in local memory
                    vjp_of_vector(batch, s, position + s * stride, inverse_extent, row_terms)
                store(dx, walk[0], batch, s * vector)
                walk = advance(walk, shape, dx_strides)
            position = opaque(position + jump)
        if position < end:
            if has_x:
                fetch_some(x, x_offset, position, end, position, shape, x_strides, batch, 0)
            store_batch(dx, batch, dx_offset, position, end, shape, dx_strides, inverse_extent, row_terms)

    return walk, store_batch
