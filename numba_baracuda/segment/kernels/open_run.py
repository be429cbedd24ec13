"""The run that a lane is folding row by row, as the states of its columns."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...device.build import opaque
from ...runtime import jit
from .states import RunStates


def insider_of(counted: bool) -> Any:
    """``is_inside(inside, u)``: whether row u of a batch is to be appended; see :meth:`OpenRun.append_batch`."""
    return jit.device(lambda inside, u: u < inside) if counted else jit.device(lambda inside, u: inside >> u & 1 != 0)


class OpenRun:
    """Device functions of one open run of ``vector`` columns a lane, which has it in a local array of ``scalars`` scalars.

    * ``begin(run, position)``: a run of no rows, whose first one is at ``position``
    * ``append(run, elements, other_elements, at, position, before)``: appends the row ``elements[at : at + vector]`` to ``before`` ones
    * ``append_batch(rows, indexed)``, ``begin_batch(rows, indexed)``: see there
    * ``recentre(run, count)``: after ``count`` rows, 1 at least; best called each time that their number has doubled
    * ``close(run, count, states)``: the states of ``count`` rows
    * ``close_shared(run, share, shares, own, count, states)``: the states of ``count`` rows that ``shares`` neighbouring lanes have a part of each,
      this lane part number ``share`` of ``own`` rows; only part 0 gets them. All lanes of a warp call it with the same ``shares``, a power of two
    * ``resume(run, earlier)`` and, after ``close``, ``join(states, earlier)``: the two together continue a run of which ``earlier`` are the states

    Here a run is the states themselves, which ``resume`` copies.
    """

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        scalars, append_row, combine_right, kind = states.scalars, states.append_row, states.combine_right, states.state_type
        self.vector, self._append_row = vector, append_row

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, at: Any, position: Any, before: Any) -> None:
            append_row(run, elements, other_elements, at, position)

        @jit.device
        def recentre(run: Any, count: Any) -> None:
            pass

        @jit.device
        def close(run: Any, count: Any, states: Any) -> None:
            for k in range(scalars):
                states[k] = run[k]

        @jit.device
        def close_shared(run: Any, share: Any, shares: Any, own: Any, count: Any, states: Any) -> None:
            following = cuda.local.array(scalars, kind)
            close(run, own, states)
            distance = int32(1)
            while distance < shares:
                for k in range(scalars):
                    following[k] = cuda.shfl_down_sync(-1, states[k], distance)
                combine_right(states, following, 0, 1)
                distance = int32(opaque(distance + distance))

        @jit.device
        def resume(run: Any, earlier: Any) -> None:
            for k in range(scalars):
                run[k] = earlier[k]

        @jit.device
        def join(states: Any, earlier: Any) -> None:
            pass

        self.scalars, self.begin = scalars, states.begin_run
        self.append, self.recentre, self.close, self.close_shared = append, recentre, close, close_shared
        self.resume, self.join = resume, join

    def append_batch(self, rows: int, indexed: bool, counted: bool = False, settled: bool = False) -> Any:
        """``append(run, elements, other_elements, indices, first, step, inside, before)``: appends some rows of a batch to ``before`` ones.

        Of its ``rows`` rows u is one of them if bit u of ``inside`` is set; at least one is. Its position is ``indices[u]`` where they are
        ``indexed``, else ``first`` + u · ``step``. ``counted``: ``inside`` is instead how many of them, the first ones, there are. ``settled``:
        whether a batch was appended before.
        """
        vector, append_row, is_inside = self.vector, self._append_row, insider_of(counted)

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any, before: Any) -> None:
            for u in range(rows):
                if is_inside(inside, u):
                    append_row(run, elements, other_elements, u * vector, int64(indices[u]) if indexed else first + u * step)

        return append

    def append_first(self, rows: int, indexed: bool) -> Any:
        """``append_batch(rows, indexed, counted=True)`` for the first rows of a run."""
        return self.append_batch(rows, indexed, counted=True)

    def begin_batch(self, rows: int, indexed: bool) -> Any:
        """``begin(run, elements, other_elements, indices, first, step, inside)``: a run of the first ``inside`` rows of a batch, or of none."""
        begin_run, append = self.begin, self.append_first(rows, indexed)

        @jit.device
        def begin(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any) -> None:
            begin_run(run, int64(indices[0]) if indexed else first)
            append(run, elements, other_elements, indices, first, step, inside, int32(0))

        return begin
