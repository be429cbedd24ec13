"""States of runs in a lane's registers, and how they are saved for other lanes and launches."""

from __future__ import annotations

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64, uint32

from ...core.dtypes import BY_NAME
from ...device.build import opaque
from ...device.vector import STORE
from ...kernels.batch import narrow_of, state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, conversions_of, position_code_of
from ...runtime import jit
from .columns import columns_storer


class RunStates:
    """Device functions of one monoid on one element type, for ``vector`` columns a lane, neighbours or ``apart`` columns apart.

    A lane has its states in a local array [vector, scalars of a state]. In the arrays of edges and carries the scalars of one lane are ``step``
    elements apart. Results are of type ``result``, contiguous where there are several; a store has ``store_vector`` elements.
    """

    def __init__(self, name: str, value: str, vector: int, store_vector: int, result: str, apart: int) -> None:
        monoid, state_type = typed_monoid(name, value), accumulator_type(value)
        width, scalars, results = monoid.width, monoid.width * vector, monoid.results
        lift, combine, finish = jit.device(monoid.lift), jit.device(monoid.combine), jit.device(monoid.finish)
        identity, corrected = tuple(jit.number(state_type, each) for each in monoid.identity), monoid.corrected
        paired, uses_positions = monoid.pairs, monoid.uses_positions
        append: Any = jit.device(monoid.append) if monoid.append else None
        (widen, _), narrow = conversions_of(value), narrow_of(name, value, result)
        result_type, position_code, result_elements = jit.SCALARS[result], position_code_of(value), vector * results
        store = columns_storer(STORE[store_vector], store_vector, vector, apart, results)
        self.state_type, self.scalars, self.store_vector, self.results = state_type, scalars, store_vector, results

        get, put = state_accessors(width)

        @jit.device
        def reset(states: Any) -> None:
            """Sets every column's state to the identity."""
            for v in range(vector):
                for w in range(width):
                    states[v * width + w] = state_type(identity[w])

        @jit.device
        def begin_run(states: Any, position: Any) -> None:
            """Sets every column's state to that of a run whose first row is at ``position``."""
            reset(states)
            if uses_positions:
                for v in range(vector):
                    states[v * width + width - 1] = position_code(position)

        @jit.device
        def add_row(states: Any, elements: Any, other_elements: Any, at: Any, position: Any) -> None:
            """Folds the row ``elements[at : at + vector]`` into the states. ``other_elements`` is the second array of a monoid of pairs, else any
            array; ``position`` is the position of the row.
            """
            for v in range(vector):
                other = state_type(1)
                if paired:
                    other = widen(other_elements[at + v])
                if uses_positions:
                    other = position_code(position)
                put(states, v * width, 1, combine(get(states, v * width, 1), lift(widen(elements[at + v]), other, state_type(1))))

        @jit.device
        def append_row(states: Any, elements: Any, other_elements: Any, at: Any, position: Any) -> None:
            """``add_row`` for a row of a run that ``begin_run`` has begun."""
            for v in range(vector):
                put(states, v * width, 1, append(get(states, v * width, 1), widen(elements[at + v]), position_code(position)))

        @jit.device
        def combine_right(states: Any, other_states: Any, base: Any, step: Any) -> None:
            """Combines these states with saved ones, which come after them."""
            for v in range(vector):
                put(states, v * width, 1, combine(get(states, v * width, 1), get(other_states, base + v * width * step, step)))

        @jit.device
        def combine_left(states: Any, other_states: Any) -> None:
            """Combines these states with other ones, which come before them."""
            for v in range(vector):
                put(states, v * width, 1, combine(get(other_states, v * width, 1), get(states, v * width, 1)))

        @jit.device
        def finish_states(states: Any, count: Any, correction: Any, result: Any) -> None:
            """The results of ``count`` rows, those of a column side by side. A corrected monoid's ``finish`` gets the count less the correction."""
            corrected_count = state_type(count)
            if corrected:
                corrected_count = state_type(corrected_count - correction)
            for v in range(vector):
                finished = finish(get(states, v * width, 1), corrected_count, state_type(1))
                if results == 1:
                    result[v] = narrow(finished)
                else:
                    for w in range(results):
                        result[v * results + w] = narrow(finished[w])

        @jit.device
        def store_result(output: Any, at: Any, left: Any, states: Any, count: Any, correction: Any) -> None:
            """Stores the results of ``count`` rows at column ``at`` of a row that has ``left`` columns from there on."""
            result = cuda.local.array(result_elements, result_type)
            finish_states(states, count, correction, result)
            store(output, at * results, result, 0, left)

        @jit.device
        def save_run(
            ids: Any, counts: Any, saved_states: Any, entry: Any, base: Any, step: Any, leads: Any, identifier: Any, count: Any, states: Any
        ) -> None:
            """Saves a run as entry ``entry``: each lane its states from element ``base`` on, the lane that ``leads`` the id and the count."""
            for k in range(scalars):
                saved_states[base + k * step] = states[k]
            if leads:
                ids[entry] = identifier
                counts[entry] = count

        self.reset, self.begin_run, self.add_row, self.combine_right = reset, begin_run, add_row, combine_right
        self.combine_left, self.finish_states, self.store_result, self.save_run = combine_left, finish_states, store_result, save_run
        self.append_row: Any = append_row if uses_positions else add_row


@functools.cache
def run_states_of(monoid: str, value: str, vector: int, result: str, store_vector: int = 0, apart: int = 0) -> RunStates:
    """The one :class:`RunStates` for these, so that kernels share its functions. By default stores are as wide as the results of a lane allow."""
    together = typed_monoid(monoid, value).results * (1 if apart else vector)
    return RunStates(monoid, value, vector, store_vector or min(BY_NAME[result].vector, together & -together), result, apart)


@functools.cache
def elements_storer(monoid: str, value: str, columns: int, result: str, threads: int) -> Any:
    """``store_elements(output, identifier, output_row, states, count, correction)``: a warp stores the results of its lanes, each of one run.

    Lanes take neighbouring elements, by way of shared memory. Those with an ``identifier`` of −1 have no results. A block has ``threads``.
    """
    fold, element = run_states_of(monoid, value, columns, result), jit.SCALARS[result]
    finish_states, results, each = fold.finish_states, fold.results, columns * fold.results
    size = threads * each

    @jit.device
    def store_elements(output: Any, identifier: Any, output_row: Any, states: Any, count: Any, correction: Any) -> None:
        held, own = cuda.shared.array(size, element), cuda.local.array(each, element)
        lane, base = int32(cuda.laneid), int32(int32(cuda.threadIdx.x - cuda.laneid) * each)
        finish_states(states, count, correction, own)
        for k in range(each):
            held[uint32(base + lane * each + k)] = own[k]
        cuda.syncwarp()
        at = lane
        while int32(at - lane) < 32 * each:  # not unrolled, which would take registers
            run = int32(uint32(at) // uint32(each))
            row = cuda.shfl_sync(-1, identifier, run)
            if row >= 0:
                output[int64(row) * output_row * results + (at - run * each)] = held[uint32(base + at)]
            at = int32(opaque(at + 32))
        cuda.syncwarp()

    return store_elements


@functools.cache
def heads_behind(share: int) -> Any:
    """``heads(batch_ids, previous)``: bit u is set where row u of a lane's ``share`` rows has another id than the row before it, the first than
    ``previous``.
    """

    @jit.device
    def heads(batch_ids: Any, previous: Any) -> Any:
        found = int32(batch_ids[0] != previous)
        for u in range(1, share):
            if batch_ids[u] != batch_ids[u - 1]:
                found = int32(found | 1 << u)
        return found

    return heads


@functools.cache
def heads_of(share: int) -> Any:
    """``heads(batch_ids, current)``: the same where a lane's rows follow those of the lane below; ``current`` is the id before the first lane's.

    All lanes of a warp call it.
    """
    behind = heads_behind(share)

    @jit.device
    def heads(batch_ids: Any, current: Any) -> Any:
        previous = cuda.shfl_up_sync(-1, batch_ids[share - 1], 1)
        if cuda.laneid == 0:
            previous = current
        return behind(batch_ids, previous)

    return heads


@functools.cache
def lane_scan(states: RunStates, lanes: int = 1) -> Any:
    """``scan(states, scratch, start)``: an inclusive scan of states over the lanes from ``start`` to this one, of those that lie a multiple of
    ``lanes`` apart.
    """
    scalars, combine_left, steps = states.scalars, states.combine_left, (32 // lanes).bit_length() - 1

    @jit.device
    def scan(states: Any, scratch: Any, start: Any) -> None:
        for step in range(steps):
            distance = lanes << step
            for k in range(scalars):
                scratch[k] = cuda.shfl_up_sync(-1, states[k], distance)
            if int32(cuda.laneid - distance) >= start:
                combine_left(states, scratch)

    return scan


@functools.cache
def states_below(scalars: int) -> Any:
    """``fetch(states, first_states, scratch)``: ``scratch`` gets the states of the lane below, and in lane 0 ``first_states``. All lanes call it."""

    @jit.device
    def fetch(states: Any, first_states: Any, scratch: Any) -> None:
        for k in range(scalars):
            scratch[k] = cuda.shfl_up_sync(-1, states[k], 1)
        # behind all shuffles: between them, the compiler would make branches of which each has the others
        if cuda.laneid == 0:
            for k in range(scalars):
                scratch[k] = first_states[k]

    return fetch
