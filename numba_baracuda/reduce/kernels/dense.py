"""Gradients of dense operands in the order of memory: aligned vectors, which need not begin or end with a row or a line of columns."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...device.build import opaque
from ...device.vector import LOAD, LOAD_STREAM, STORE_STREAM, aligned_span
from ...kernels.elements import accumulator_type
from ...runtime import jit
from ...runtime.parameters import Extents, Ptr, Scalar
from ..tiling import THREADS
from .loads import block_of
from .vjp import ROW_TERMS, one_of, terms_at, vjp_of

#: operands of rows: dy, y, the folded results, and x at the first element of the row
OPERANDS = 4


@functools.cache
def coordinates_along(axes: int, counted: int) -> tuple[Any, Any, Any]:
    """(``locate``, ``advance``, ``offsets``) of coordinates along axes of extents ``shape``, in C order; all numbers are of 32 bits.

    ``locate(index, shape, found)`` stores those of the element number ``index`` to ``found``. ``advance(found, shape, step, new)`` stores to ``new``
    those of an element further on, by coordinates ``step`` inside the shape. ``offsets(found, strides)`` is a tuple of the offsets in all operands
    along the first ``counted`` axes.
    """

    @jit.device
    def locate(index: Any, shape: Any, found: Any) -> None:
        rest = uint32(index)
        for back in range(axes - 1):
            k = axes - 1 - back
            outer = uint32(rest // uint32(shape[k]))
            found[k] = int32(rest - outer * uint32(shape[k]))
            rest = outer
        found[0] = int32(rest)

    @jit.device
    def advance(found: Any, shape: Any, step: Any, new: Any) -> None:
        carry = int32(0)
        for back in range(axes - 1):
            k = axes - 1 - back
            moved = int32(found[k] + int32(step[k]) + carry)
            wraps = moved >= int32(shape[k])
            new[k] = int32(moved - int32(shape[k])) if wraps else moved
            carry = int32(wraps)
        new[0] = int32(found[0] + int32(step[0]) + carry)

    @jit.device
    def offset(found: Any, strides: Any) -> Any:
        total = int32(0)
        for k in range(counted):
            total = int32(total + found[k] * int32(strides[k]))
        return total

    @jit.device
    def offsets(found: Any, strides: Any) -> Any:
        return offset(found, strides[0]), offset(found, strides[1]), offset(found, strides[2]), offset(found, strides[3])

    return locate, advance, offsets


@functools.cache
def neighbours_of(value: str, count: int) -> Any:
    """``load_all(pointer, offset, out)``: ``pointer[offset : offset + count]`` to ``out``, most of them two at a time wherever they begin."""
    load_one, load_two, pairs = LOAD[1], LOAD[2], count // 2

    @jit.device
    def load_all(pointer: Any, offset: Any, out: Any) -> None:
        if aligned_span(pointer, offset, offset + count, 2)[0] == offset:
            for k in range(pairs):
                load_two(pointer, offset + 2 * k, out, 2 * k)
        else:
            load_one(pointer, offset, out, 0)
            for k in range(pairs - 1):
                load_two(pointer, offset + 2 * k + 1, out, 2 * k + 1)
            load_one(pointer, offset + count - 1, out, count - 1)

    return load_all


@jit.kernel
def broadcast_dense(
    *, gradient: str, value: str, vector: int, axes: int, columns: int, kept_line: bool, whole: bool, short: bool, near: bool, after_fold: bool
) -> Any:  # fmt: skip
    """:func:`broadcast_rows` for dense dx and x, whatever is reduced: each thread stores aligned vectors, and finds the rows of their elements.

    A block stores ``THREADS · vectors`` neighbouring vectors. A thread divides once, for its first one; from then on it counts. The elements of a
    vector belong to one line along the innermost axis and to the next one, or to several where lines are ``short``. Where the innermost axis is
    reduced, or has the positions of few columns side by side, a thread keeps the terms of one line. Bytes: elements · value written, and as many read
    where the gradient uses x; what belongs to rows comes from the caches.

    Constants and parameters as :mod:`.` lists them, and: ``axes``: the number of all axes, in the order of memory; ``kept_line``: whether the
    innermost one is kept; ``columns``: elsewhere, to which its elements belong by turns, as many as divide ``vector``; ``whole``: elsewhere, whether
    no vector reaches the next line; ``short``: whether vectors reach several lines; ``near``: whether a line has many vectors, and neighbours on it
    are neighbours in dy and y. ``elements``: their number, of 31 bits; ``head``: those before the first aligned vector; ``vectors``: those that a
    thread stores; ``shape`` [axes]: the extents; ``step`` [axes]: coordinates of the element number ``THREADS · vector``; ``dy_strides``,
    ``y_strides``, ``folded_strides``, ``origin_strides`` [axes]: those of the operands of rows, the last ones leading to a row's first element; 0
    along reduced axes, and the last one from one of the ``columns`` to the next.
    """
    element, row_vjp, wide, terms_size = jit.SCALARS[value], vjp_of(gradient, value), accumulator_type(value), 2 * ROW_TERMS * columns
    load, store, stride = LOAD_STREAM[vector], STORE_STREAM[vector], THREADS * vector
    locate, advance, offsets = coordinates_along(axes, axes if kept_line else axes - 1)
    load_folded, load_row_terms, element_vjp, has_x = row_vjp.load_folded, row_vjp.load_row_terms, row_vjp.element_vjp, row_vjp.has_x
    load_neighbours: Any = neighbours_of(value, vector) if near else None
    has_y = len(GRADIENTS[gradient].segments) > 1
    inner, one, block, next_terms = axes - 1, (0,) * (axes - 1) + (1,), block_of(after_fold), ROW_TERMS * columns

    @jit.device
    def load_terms(terms: Any, at: Any, x: Any, dy: Any, y: Any, folded: Any, places: Any) -> Any:
        """The terms of a row."""
        load_row_terms(terms, at, x, dy, y, places[3], places[0], places[1], load_folded(folded, places[2], y, places[1]))
        return terms_at(terms, at)

    @jit.device
    def of_column(places: Any, c: Any, strides: Any) -> Any:
        """The offsets of column c of a line, given those of the first."""
        if columns == 1:
            return places
        first, second, third, fourth = strides
        return (
            int32(places[0] + c * int32(first[inner])), int32(places[1] + c * int32(second[inner])), int32(places[2] + c * int32(third[inner])),
            int32(places[3] + c * int32(fourth[inner])),
        )  # fmt: skip

    @jit.device
    def load_columns(terms: Any, at: Any, x: Any, dy: Any, y: Any, folded: Any, places: Any, strides: Any) -> None:
        """The terms of each of the columns of a line."""
        for c in range(columns):
            load_terms(terms, at + c * ROW_TERMS, x, dy, y, folded, of_column(places, c, strides))

    @jit.device
    def place(first: Any, here: Any, behind: Any, left: Any, v: Any, stride: Any) -> Any:
        """The offset of element v of a vector: on the line that begins at ``here`` − its position, or on the next one."""
        return int32((here if first else int32(behind - left * int32(stride))) + v * int32(stride))

    @jit.device
    def offsets_behind(found: Any, behind: Any, shape: Any, strides: Any) -> Any:
        """The offsets of the first element of the next line; ``behind`` becomes its coordinates."""
        for k in range(inner):
            behind[k] = found[k]
        behind[inner] = int32(int32(shape[inner]) - 1)
        advance(behind, shape, one, behind)
        return offsets(behind, strides)

    @jit.device
    def store_one(
        position: Any, x: Any, dy: Any, y: Any, folded: Any, dx: Any, inverse_extent: Any, terms: Any, found: Any, shape: Any, strides: Any
    ) -> None:
        locate(position, shape, found)
        c = int32(found[inner] & (columns - 1))
        own = load_terms(terms, 0, x, dy, y, folded, of_column(offsets(found, strides), c, strides))
        dx[position] = element_vjp(x[position] if has_x else element(0), int64(0), inverse_extent, own)

    def broadcast_dense(
        x: Ptr[value], dy: Ptr[value], y: Ptr[value], folded: Ptr[wide], dx: Ptr[value],
        elements: int64, head: int64, vectors: int64, inverse_extent: Scalar[wide],
        shape: Extents[axes], step: Extents[axes], dy_strides: Extents[axes], y_strides: Extents[axes], folded_strides: Extents[axes],
        origin_strides: Extents[axes],
    ) -> None:  # fmt: skip
        terms, batch = cuda.local.array(terms_size, wide), cuda.local.array(vector, element)
        found, behind, places = cuda.local.array(axes, int32), cuda.local.array(axes, int32), cuda.local.array(OPERANDS, int32)
        strides, dys, ys = (
            (dy_strides, y_strides, folded_strides, origin_strides),
            cuda.local.array(vector, element),
            cuda.local.array(vector, element),
        )
        first, second = cuda.local.array(columns, element), cuda.local.array(columns, element)
        begin = head + block() * vectors * stride
        position, end = int32(begin + cuda.threadIdx.x * vector), int32(min(int64(elements), begin + vectors * stride))
        locate(position, shape, found)
        row = int32(-1)  # whose terms are those at 0
        for k in range(terms_size):
            terms[k] = wide(0)
        if not has_x:
            for v in range(vector):
                batch[v] = element(0)
        while position <= int32(end - vector):
            if has_x:
                load(x, position, batch, 0)
            here = offsets(found, strides)
            if short:
                for k in range(axes):
                    behind[k] = found[k]
                for v in range(vector):
                    own = load_terms(terms, 0, x, dy, y, folded, offsets(behind, strides))
                    batch[v] = element_vjp(batch[v], int64(0), inverse_extent, own)
                    advance(behind, shape, one, behind)
            elif kept_line:
                left = int32(int32(shape[inner]) - found[inner])
                after = offsets_behind(found, behind, shape, strides)
                if left >= vector:
                    after = here
                if near and left >= vector:
                    load_neighbours(dy, here[0], dys)
                    if has_y:
                        load_neighbours(y, here[1], ys)
                    for v in range(vector):
                        load_row_terms(terms, 0, x, dys, ys, int32(0), v, v, (wide(0), wide(0)))
                        batch[v] = element_vjp(batch[v], int64(0), inverse_extent, terms_at(terms, 0))
                else:
                    for v in range(vector):
                        for j in range(OPERANDS):
                            places[j] = place(v < left, here[j], after[j], left, v, strides[j][inner])
                        own = load_terms(terms, 0, x, dy, y, folded, (places[0], places[1], places[2], places[3]))
                        batch[v] = element_vjp(batch[v], int64(0), inverse_extent, own)
            else:
                left = int32(int32(shape[inner]) - found[inner])
                if here[2] != row:
                    load_columns(terms, 0, x, dy, y, folded, here, strides)
                    row = here[2]
                if not whole and left < vector:
                    load_columns(terms, next_terms, x, dy, y, folded, offsets_behind(found, behind, shape, strides), strides)
                if has_x:
                    for v in range(vector):
                        own = terms_at(terms, v % columns * ROW_TERMS)
                        if not whole:
                            own = one_of(v < left, own, terms_at(terms, next_terms + v % columns * ROW_TERMS))
                        batch[v] = element_vjp(batch[v], int64(0), inverse_extent, own)
                else:
                    for c in range(columns):
                        first[c] = element_vjp(element(0), int64(0), inverse_extent, terms_at(terms, c * ROW_TERMS))
                        second[c] = element_vjp(element(0), int64(0), inverse_extent, terms_at(terms, next_terms + c * ROW_TERMS))
                    for v in range(vector):
                        batch[v] = first[v % columns] if whole or v < left else second[v % columns]
            store(dx, position, batch, 0)
            advance(found, shape, step, found)
            position = opaque(int32(position + stride))
        for each in range(position, end):  # the elements behind the last whole vector
            store_one(each, x, dy, y, folded, dx, inverse_extent, terms, found, shape, strides)
        if cuda.blockIdx.x == 0 and cuda.threadIdx.x < head:
            store_one(cuda.threadIdx.x, x, dy, y, folded, dx, inverse_extent, terms, found, shape, strides)

    return broadcast_dense, lambda elements: (-(-elements // stride), THREADS, 0)
