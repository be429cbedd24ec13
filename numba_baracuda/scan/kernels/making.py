"""What the rule of a scan makes of a lane's part of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numba import cuda
from numba.cuda.types import int32, int64

from ...runtime import jit
from .access import Accesses
from .law import Law


class Making:
    """What a rule makes of the ``steps`` accesses of a lane's part, which :class:`Accesses` of a, b and c have in shared memory, one at a time.

    ``ends(start, extent)`` are the lane's places before the row, or −1, and those before its end, or one more. ``make(shared, lane, s, ends, initial,
    beside, made)`` fills arrays of ``sizes`` in the scan's order, access by access; ``beside`` is the element beside the part, and becomes the last
    one of those made where the rule looks back. Of a costly rule whose elements are as wide as what is made, ``make`` leaves that in their place, and
    ``again``, for a second walk, finds it there; of others it is ``make``.
    """

    def __init__(self, law: Law, vector: int, steps: int, reverse: bool, accesses: Sequence[Accesses]) -> None:
        self.sizes = [vector if k < law.rule.items else 1 for k in range(3)]
        self.keeps = law.rule.costly and law.element == law.wide
        self._law, self._vector, self._steps, self._reverse, self._accesses = law, vector, steps, reverse, accesses
        self.ends, self.make = self._ends(), self._make()
        self.again = self._again() if self.keeps else self.make

    def _ends(self) -> Any:
        most = self._vector * self._steps + 1

        @jit.device
        def ends(start: Any, extent: Any) -> Any:
            return int32(min(max(-start, int64(-1)), int64(most))), int32(max(min(extent - start, int64(most)), int64(-1)))

        return ends

    def _make(self) -> Any:
        law, vector, steps, reverse, accesses = self._law, self._vector, self._steps, self._reverse, self._accesses
        element, widen, note, wide, reads, near = law.element, law.widen, law.note, law.wide, len(law.rule.reads), law.rule.near
        (get_a, get_b, get_c), (_, put_b, put_c), get_first = [each.get for each in accesses], [each.put for each in accesses], accesses[2].get_first
        keeps = self.keeps
        size_b, size_c = vector if reads > 1 else 1, vector if reads > 2 else 1

        @jit.device
        def make(shared: Any, lane: Any, s: Any, ends: Any, initial: Any, beside: Any, made: Any) -> None:
            raw_a = cuda.local.array(vector, element)
            raw_b = cuda.local.array(size_b, element)
            raw_c = cuda.local.array(size_c, element)
            get_a(shared, lane, s, raw_a)
            if reads > 1:
                get_b(shared, lane, s, raw_b)
            if reads > 2:
                get_c(shared, lane, s, raw_c)
            for v in range(vector):
                k = vector - 1 - v if reverse else v
                a = widen(raw_a[k])
                b = widen(raw_b[k]) if reads > 1 else a
                c = widen(raw_c[k]) if reads > 2 else a
                other = c
                if near > 0:
                    if v < vector - 1:
                        other = widen(raw_c[k - 1 if reverse else k + 1])
                    else:
                        other = widen(get_first(shared, lane, min(s + 1, steps - 1)))
                        if s == steps - 1:
                            other = beside[0]
                    if int32(s * vector + v + 1) >= ends[1]:
                        other = wide(initial)
                if near < 0:
                    other = widen(raw_c[k + 1 if reverse else k - 1]) if v > 0 else beside[0]
                    if int32(s * vector + v) <= ends[0]:
                        other = c
                note(made, v, a, b, c, other)
            if near < 0:
                beside[0] = widen(raw_c[0 if reverse else vector - 1])
            if keeps:
                for v in range(vector):
                    k = vector - 1 - v if reverse else v
                    raw_b[k], raw_c[k] = made[1][v], made[2][v]
                put_b(shared, lane, s, raw_b)
                put_c(shared, lane, s, raw_c)

        return make

    def _again(self) -> Any:
        element, vector, reverse, (get_a, get_b, get_c) = self._law.element, self._vector, self._reverse, [each.get for each in self._accesses]

        @jit.device
        def again(shared: Any, lane: Any, s: Any, ends: Any, initial: Any, beside: Any, made: Any) -> None:
            raw_a = cuda.local.array(vector, element)
            raw_b = cuda.local.array(vector, element)
            raw_c = cuda.local.array(vector, element)
            get_a(shared, lane, s, raw_a)
            get_b(shared, lane, s, raw_b)
            get_c(shared, lane, s, raw_c)
            for v in range(vector):
                k = vector - 1 - v if reverse else v
                made[0][v], made[1][v], made[2][v] = raw_a[k], raw_b[k], raw_c[k]

        return again
