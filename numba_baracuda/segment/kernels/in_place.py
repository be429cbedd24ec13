"""How lanes fold runs that a block holds, about pivots of all their rows, and replace these rows by what becomes of them for the block to store."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...algebra.gradients import GRADIENTS
from ...core.dtypes import BY_NAME
from ...device import bits
from ...device.build import opaque
from ...device.vector import LOAD_SHARED, STORE_SHARED, STORE_STREAM
from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of
from ...runtime import jit
from .vjp import vjp_parts_of


@functools.cache
def _columns_of(vector: int, spread: bool) -> tuple[Any, Any]:
    """``load(staged, at, apart, batch, k)`` and ``store``, of ``vector`` columns in shared memory: ``apart`` elements where they are ``spread``."""
    load_vector, store_vector, load_one, store_one = LOAD_SHARED[vector], STORE_SHARED[vector], LOAD_SHARED[1], STORE_SHARED[1]

    @jit.device
    def load(staged: Any, at: Any, apart: Any, batch: Any, k: Any) -> None:
        if spread:
            for v in range(vector):
                load_one(staged, int32(at + v * apart), batch, k + v)
        else:
            load_vector(staged, at, batch, k)

    @jit.device
    def store(staged: Any, at: Any, apart: Any, batch: Any, k: Any) -> None:
        if spread:
            for v in range(vector):
                store_one(staged, int32(at + v * apart), batch, k + v)
        else:
            store_vector(staged, at, batch, k)

    return load, store


@functools.cache
def _pivots_of(monoid: str, value: str, vector: int, spread: bool) -> tuple[Any, ...]:
    """How a lane has the pivots of ``vector`` columns while it chooses them: (their type, the type of what it loads, how many there are of both,
    ``first()``, ``append(a, x)`` with what it loads, ``unpack(chosen, pivots)``). Neighbouring halves are packed where the monoid can choose so.
    """
    typed, kind, widen = typed_monoid(monoid, value), accumulator_type(value), conversions_of(value)[0]
    identity, choose = kind(typed.identity[0]), jit.device(typed.choose_pivot)
    if typed.packed_choice and BY_NAME[value].itemsize == 2 and vector % 2 == 0 and not spread:
        pairs, unpack_pair, pack = vector // 2, getattr(bits, f"{value}x2_to_f32x2"), getattr(bits, f"f32x2_to_{value}x2")
        choose_pair = getattr(bits, f"{typed.packed_choice}_{value}x2")

        @jit.device
        def unpack(chosen: Any, pivots: Any) -> None:
            for k in range(pairs):
                pivots[2 * k], pivots[2 * k + 1] = unpack_pair(chosen[k])

        return uint32, uint32, pairs, jit.device(lambda: pack(identity, identity)), choose_pair, unpack

    @jit.device
    def copy(chosen: Any, pivots: Any) -> None:
        for v in range(vector):
            pivots[v] = chosen[v]

    append = jit.device(lambda a, x: choose(a, widen(x)))
    return kind, jit.SCALARS[value], vector, jit.device(lambda: identity), append, copy


@functools.cache
def pivot_folder_of(monoid: str, value: str, vector: int, rows: int, spread: bool, keeps: bool = False) -> Any:
    """``fold(staged, at, apart, row_step, left, level, states)``: sets the ``states`` of ``vector`` columns to those of a run in shared memory.

    The columns are ``apart`` elements apart where they are ``spread``, else neighbours. A lane has ``left`` rows of it, ``row_step`` elements apart,
    the first at ``staged[at]``, of which it loads ``rows`` before it uses the first. It walks them twice, to choose the pivot and to add up.
    2^``level`` neighbouring lanes have the rows of one run, and all get its states. It ``keeps`` the term of each element in its place, of elements
    that are of the accumulator's type. All lanes of the warp call it.
    """
    typed, kind, element, widen = typed_monoid(monoid, value), accumulator_type(value), jit.SCALARS[value], conversions_of(value)[0]
    held, loaded, count, first, append, unpack = _pivots_of(monoid, value, vector, spread)
    choose, settle, terms, put = jit.device(typed.choose_pivot), jit.device(typed.settle), jit.device(typed.pivot_terms), state_accessors(2)[1]
    load_chosen, (load, store) = _columns_of(count, spread)[0], _columns_of(vector, spread)
    packing, chosen_size, batch_size = vector // count >> 1, rows * count, rows * vector

    @jit.device
    def fold(staged: Any, at: Any, apart: Any, row_step: Any, left: Any, level: Any, states: Any) -> None:
        some, chosen = cuda.local.array(chosen_size, loaded), cuda.local.array(count, held)
        batch, pivots, totals = cuda.local.array(batch_size, element), cuda.local.array(vector, kind), cuda.local.array(vector, kind)
        settled, scales = cuda.local.array(vector, kind), cuda.local.array(vector, kind)
        source, place, step, rest = bits.recast(staged, loaded), int32(at >> packing), int32(row_step >> packing), left
        for k in range(count):
            chosen[k] = first()
        while rest >= rows:
            for u in range(rows):
                load_chosen(source, int32(place + u * step), apart, some, u * count)
            for k in range(chosen_size):
                chosen[k % count] = append(chosen[k % count], some[k])
            place, rest = int32(place + rows * step), int32(opaque(rest - rows))
        while rest > 0:
            load_chosen(source, place, apart, some, 0)
            for k in range(count):
                chosen[k] = append(chosen[k], some[k])
            place, rest = int32(place + step), int32(opaque(rest - 1))
        unpack(chosen, pivots)
        for v in range(vector):
            totals[v] = kind(0)
        shares, distance = int32(1 << level), int32(1)
        while distance < shares:
            for v in range(vector):
                pivots[v] = choose(pivots[v], cuda.shfl_xor_sync(-1, pivots[v], distance))
            distance = int32(opaque(distance + distance))
        for v in range(vector):
            settled[v], scales[v] = settle(pivots[v], kind(1))
        while left >= rows:
            for u in range(rows):
                load(staged, int32(at + u * row_step), apart, batch, u * vector)
            for k in range(batch_size):
                term = terms(widen(batch[k]), settled[k % vector], scales[k % vector])[0]
                totals[k % vector] += term
                if keeps:
                    batch[k] = term
            if keeps:
                for u in range(rows):
                    store(staged, int32(at + u * row_step), apart, batch, u * vector)
            at, left = int32(at + rows * row_step), int32(opaque(left - rows))
        while left > 0:
            load(staged, at, apart, batch, 0)
            for v in range(vector):
                term = terms(widen(batch[v]), settled[v], scales[v])[0]
                totals[v] += term
                if keeps:
                    batch[v] = term
            if keeps:
                store(staged, at, apart, batch, 0)
            at, left = int32(at + row_step), int32(opaque(left - 1))
        distance = int32(1)
        while distance < shares:
            for v in range(vector):
                totals[v] += cuda.shfl_xor_sync(-1, totals[v], distance)
            distance = int32(opaque(distance + distance))
        for v in range(vector):
            put(states, 2 * v, 1, (pivots[v], totals[v]))

    return fold


@functools.cache
def replacer_of(gradient: str, value: str, vector: int, rows: int, spread: bool) -> Any:
    """``replace(staged, at, w_at, apart, row_step, left, known, given)``: a lane replaces ``vector`` columns of ``left`` rows from ``staged[at]`` on.

    By what becomes of them, where ``w`` is at ``staged[w_at]``, and ``given`` as :func:`~.held_runs.run_folder_of` sets it; by zeros unless the
    segment is ``known``. Columns are as in :func:`pivot_folder_of`. Rows are ``row_step`` elements apart; a lane loads ``rows`` before it uses the
    first.
    """
    element, apply, get = jit.SCALARS[value], vjp_parts_of(gradient, value).apply, state_accessors(4)[0]
    (load, store), has_w, size = _columns_of(vector, spread), len(GRADIENTS[gradient].rows) > 1, rows * vector

    @jit.device
    def replace(staged: Any, at: Any, w_at: Any, apart: Any, row_step: Any, left: Any, known: Any, given: Any) -> None:
        batch, others = cuda.local.array(size, element), cuda.local.array(size, element)
        while known and left >= rows:
            for u in range(rows):
                load(staged, int32(at + u * row_step), apart, batch, u * vector)
                if has_w:
                    load(staged, int32(w_at + u * row_step), apart, others, u * vector)
            for k in range(size):
                batch[k] = apply(batch, others, k, int64(0), get(given, 4 * (k % vector), 1))
            for u in range(rows):
                store(staged, int32(at + u * row_step), apart, batch, u * vector)
            at, w_at, left = int32(at + rows * row_step), int32(w_at + rows * row_step), int32(opaque(left - rows))
        while known and left > 0:
            load(staged, at, apart, batch, 0)
            if has_w:
                load(staged, w_at, apart, others, 0)
            for v in range(vector):
                batch[v] = apply(batch, others, v, int64(0), get(given, 4 * v, 1))
            store(staged, at, apart, batch, 0)
            at, w_at, left = int32(at + row_step), int32(w_at + row_step), int32(opaque(left - 1))
        while left > 0:
            for v in range(vector):
                batch[v] = element(0)
            store(staged, at, apart, batch, 0)
            at, left = int32(at + row_step), int32(opaque(left - 1))

    return replace


@functools.cache
def rows_storer_of(value: str, threads: int) -> Any:
    """``store_rows(staged, low, high, output, base, thread)``: a block of ``threads`` stores elements ``low`` to ``high`` of shared memory.

    Element k goes to ``output[base + k]``, by 16 bytes, and single elements before and behind these. Both arrays begin at multiples of 16 bytes, and
    ``base`` is one.
    """
    element, piece = jit.SCALARS[value], BY_NAME[value].vector
    load_piece, store_piece, turn, words_size = LOAD_SHARED[piece], STORE_STREAM[piece], threads * piece, 4 * piece

    @jit.device
    def store_rows(staged: Any, low: Any, high: Any, output: Any, base: Any, thread: Any) -> None:
        words, start = cuda.local.array(words_size, element), int32(low + (piece - 1) & -piece)
        if thread < int32(start - low) and int32(low + thread) < high:
            output[base + low + thread] = staged[uint32(low + thread)]
        start = int32(start + thread * piece)
        while int32(start + 3 * turn + piece) <= high:
            for k in range(4):
                load_piece(staged, start + k * turn, words, k * piece)
            for k in range(4):
                store_piece(output, base + start + k * turn, words, k * piece)
            start = int32(opaque(start + 4 * turn))
        while int32(start + piece) <= high:
            load_piece(staged, start, words, 0)
            store_piece(output, base + start, words, 0)
            start = int32(opaque(start + turn))
        start = int32(max(int32(high & -piece), low) + thread)
        if start < high:
            output[base + start] = staged[uint32(start)]

    return store_rows
