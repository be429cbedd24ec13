"""The run that a lane is folding batch by batch as the extremes of columns of halves, and the position of the first row that has each."""

from __future__ import annotations

from typing import Any

from numba import cuda
from numba.cuda.types import int64, uint32

from ...device import bits
from ...kernels.batch import state_accessors, typed_monoid
from ...kernels.elements import accumulator_type, position_code_of
from ...runtime import jit
from .open_run import OpenRun, insider_of
from .states import RunStates


class FirstExtremeRun(OpenRun):
    """A run as states (extreme, position). The extremes of a batch are found by values alone; its rows are searched only if one beats the run's.

    Two columns are in a word, and the last of an odd number has a word of its own. All columns are tried before the one branch. The search goes from
    the last row to the first, so the first one that is equal is found last. Words of one element would take as many instructions as appending them
    one by one, since among the lanes of a warp there is nearly always one with an extreme that beats its run's.
    """

    def __init__(self, states: RunStates, monoid: str, value: str, vector: int) -> None:
        super().__init__(states, monoid, value, vector)
        typed, kind, position_code = typed_monoid(monoid, value), accumulator_type(value), position_code_of(value)
        append_one, (get, put) = jit.device(typed.append), state_accessors(2)

        @jit.device
        def beats(run: Any, v: Any, extreme: Any) -> Any:
            """Whether column v of the run takes ``extreme``, which is appended at position 1 to a state that has its own at 0."""
            return append_one((run[2 * v], kind(0)), extreme, kind(1))[1] != kind(0)

        @jit.device
        def append_extreme(run: Any, v: Any, extreme: Any, position: Any) -> None:
            put(run, 2 * v, 1, append_one(get(run, 2 * v, 1), extreme, position_code(position)))

        self._value, self._extreme, self._identity = value, typed.extreme, kind(typed.identity[0])
        self._beats, self._append_extreme = beats, append_extreme

    def append_batch(self, rows: int, indexed: bool, counted: bool = False, settled: bool = False) -> Any:
        vector, is_inside, identity, beats, append_extreme = self.vector, insider_of(counted), self._identity, self._beats, self._append_extreme
        words, kind = (vector + 1) // 2, f"{self._value}x2"
        further, equal = getattr(bits, f"{self._extreme}_{kind}"), getattr(bits, f"equal_{kind}")
        pack, unpack = getattr(bits, f"f32x2_to_{kind}"), getattr(bits, f"{kind}_to_f32x2")
        bits_of: Any = bits.f16_as_u16 if self._value == "f16" else jit.device(lambda x: x)

        @jit.device
        def word_of(elements: Any, u: Any, v: Any) -> Any:
            word = uint32(bits_of(elements[u * vector + v]))
            if v + 1 < vector:
                word = uint32(word | uint32(uint32(bits_of(elements[u * vector + v + 1])) << 16))
            return word

        @jit.device
        def position_of(u: Any, indices: Any, first: Any, step: Any) -> Any:
            if not indexed:
                return first + u * step
            # a mask selects it, since registers have no index
            position = int64(0)
            for k in range(rows):
                position |= int64(indices[k]) & -int64(k == u)
            return position

        @jit.device
        def append(run: Any, elements: Any, other_elements: Any, indices: Any, first: Any, step: Any, inside: Any, before: Any) -> None:
            extremes = cuda.local.array(words, uint32)
            # the number of a row in each half
            found = cuda.local.array(words, uint32)
            beaten, unordered = False, False
            for k in range(words):
                word = word_of(elements, 0, 2 * k) if is_inside(inside, 0) else pack(identity, identity)
                for u in range(1, rows):
                    if is_inside(inside, u):
                        word = further(word, word_of(elements, u, 2 * k))
                extremes[k] = word
                low, high = unpack(word)
                beaten |= beats(run, 2 * k, low)
                unordered |= low != low
                if 2 * k + 1 < vector:
                    beaten |= beats(run, 2 * k + 1, high)
                    unordered |= high != high
            if beaten:
                for k in range(words):
                    found[k] = uint32(0)
                    for back in range(1, rows + 1):
                        u, both = rows - back, uint32((rows - back) * 0x10001)
                        if is_inside(inside, u):
                            found[k] = uint32(found[k] ^ (equal(word_of(elements, u, 2 * k), extremes[k]) & uint32(found[k] ^ both)))
                if unordered:
                    for k in range(words):
                        for back in range(1, rows + 1):
                            u, both = rows - back, uint32((rows - back) * 0x10001)
                            if is_inside(inside, u):
                                word = word_of(elements, u, 2 * k)
                                found[k] = uint32(both ^ (equal(word, word) & uint32(found[k] ^ both)))
                for k in range(words):
                    low, high = unpack(extremes[k])
                    append_extreme(run, 2 * k, low, position_of(int64(found[k] & uint32(0xFFFF)), indices, first, step))
                    if 2 * k + 1 < vector:
                        append_extreme(run, 2 * k + 1, high, position_of(int64(found[k] >> uint32(16)), indices, first, step))

        return append

    def append_first(self, rows: int, indexed: bool) -> Any:
        # the first batch of a run nearly always beats it
        return super().append_batch(rows, indexed, counted=True)
