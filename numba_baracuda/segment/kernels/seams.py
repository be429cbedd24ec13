"""Segments whose rows lie on several ranks, where ids ascend along the rows of all: what a rank sends of its first and last one, and the merge."""

from typing import Any

from numba import cuda
from numba.cuda.types import int64

from ...kernels.batch import state_accessors, state_functions, state_kind, typed_monoid
from ...runtime import jit
from ...runtime.parameters import Ptr
from ..tiling import THREADS


@jit.kernel
def take_seams(*, index: str, state: str, counted: bool) -> Any:
    """``entries[k]`` = (id, rows) and ``sent[k]`` = its states, of the first (k = 0) and of the last segment that this rank has rows of.

    A thread for each scalar. The id is −1 where the rank has no rows, and rows are 0 where it has none, where the id is out of range, and of the last
    segment where it is the first. Bytes: two segments' states are read and written.

    Constants and parameters as :mod:`.` lists them, and: ``state``: the type of the scalars of ``states`` [segments, ``width``]; ``counted``: whether
    rows are those of ``counts``, or 1; ``entries`` [2, 2]; ``sent`` [2, ``width``].
    """
    index_type, kind = jit.SCALARS[index], jit.SCALARS[state]

    def take_seams(
        ids: Ptr[index], counts: Ptr[int64], states: Ptr[state], entries: Ptr[int64], sent: Ptr[state],
        rows: int64, segments: int64, ids_step: int64, width: int64,
    ) -> None:  # fmt: skip
        at = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if at < 2 * max(width, int64(1)):
            which, column = at // max(width, int64(1)), at % max(width, int64(1))
            first, identifier = index_type(-1), index_type(-1)
            if rows > 0:
                first, identifier = ids[0], ids[which * (rows - 1) * ids_step]
            present = 0 <= identifier < segments and (which == 0 or identifier != first)
            if column == 0:
                entries[2 * which] = int64(identifier)
                here = int64(present)
                if counted and present:
                    here = counts[int64(identifier)]
                entries[2 * which + 1] = here
            if width > 0:
                scalar = kind(0)
                if present:
                    scalar = states[int64(identifier) * width + column]
                sent[which * width + column] = scalar

    return take_seams


@jit.kernel
def merge_seams(*, monoid: str, value: str, counted: bool) -> Any:
    """Merges the states of this rank's first and last segment with those of all ranks that have rows of them, in the order of ranks.

    A thread for each column of each of the two. Bytes: what all ranks have sent is read, two segments' states are written.

    A segment belongs to the first rank that has rows of it, and one without rows to the first rank with rows of a later one, or to the last rank:
    those from ``owned[0]`` to before ``owned[1]`` belong to this one.

    Constants and parameters as :mod:`.` lists them, and: ``entries``, ``gathered``: what :func:`take_seams` leaves on each of ``ranks`` ranks,
    ``entries_step`` and ``states_step`` elements apart, of which this one is number ``rank``; ``states`` [segments, columns, scalars of a state] and,
    if they are ``counted``, ``counts`` [segments]: those of this rank, whose two segments get those of all; ``owned`` [2].
    """
    typed, functions = typed_monoid(monoid, value), state_functions(monoid, value)
    width, identity, combine, (get, put) = typed.width, functions.identity, functions.combine, state_accessors(typed.width)

    def merge_seams(
        entries: Ptr[int64], gathered: Ptr[state_kind(monoid, value)], states: Ptr[state_kind(monoid, value)], counts: Ptr[int64], owned: Ptr[int64],
        segments: int64, columns: int64, ranks: int64, rank: int64, entries_step: int64, states_step: int64,
    ) -> None:  # fmt: skip
        at = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if at < 2 * max(columns, int64(1)):
            which, column = at // max(columns, int64(1)), at % max(columns, int64(1))
            own = entries[rank * entries_step + 2 * which]
            if entries[rank * entries_step + 2 * which + 1] > 0:
                merged, total = identity(), int64(0)
                for k in range(2 * ranks):
                    entry = (k >> 1) * entries_step + 2 * (k & 1)
                    if entries[entry] == own and entries[entry + 1] > 0:
                        total += entries[entry + 1]
                        if columns > 0:
                            merged = combine(merged, get(gathered, (k >> 1) * states_step + ((k & 1) * columns + column) * width, 1))
                if columns > 0:
                    put(states, (own * columns + column) * width, 1, merged)
                if counted and column == 0:
                    counts[own] = total
        if at == 0:
            first, end = int64(0), int64(0)
            for k in range(rank + 1):
                first = end
                end = max(end, min(max(entries[k * entries_step + 2] + 1, int64(0)), segments))
            owned[0] = first
            owned[1] = end if rank < ranks - 1 else segments

    return merge_seams


@jit.kernel
def clear_others(*, result: str) -> Any:
    """``output[s] = 0`` for all segments s but those from ``owned[0]`` to before ``owned[1]``; a thread for each element. Bytes: what is cleared.

    Constants and parameters as :mod:`.` lists them: ``output`` [segments, columns] is contiguous; ``owned`` [2] is what :func:`merge_seams` leaves.
    """
    kind = jit.SCALARS[result]

    def clear_others(owned: Ptr[int64], output: Ptr[result], segments: int64, columns: int64) -> None:
        at = int64(cuda.blockIdx.x) * THREADS + cuda.threadIdx.x
        if at < segments * columns and not owned[0] <= at // columns < owned[1]:
            output[at] = kind(0)

    return clear_others
