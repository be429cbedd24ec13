"""One atomic update of some elements of a segment's row, and what a row adds to them."""

import functools
from typing import Any

from numba import cuda
from numba.cuda.types import Integer, float32, int32, int64

from ...device.atomics import red_add, red_add_2, red_add_4, red_max, red_max_value, red_min
from ...device.bits import f32_as_i32, f64_as_i64, i32_as_f32, i64_as_f64, recast
from ...device.order import load_near, load_near_2
from ...kernels.batch import typed_monoid
from ...kernels.elements import accumulator_type, conversions_of
from ...kernels.factors import add_tally, word_of
from ...runtime import jit
from ..first_rows import FIRST
from .candidates import candidate_of


@functools.cache
def updates_of(update: str, value: str, vector: int) -> Any:
    """``change(output, at, batch, first)`` updates ``vector`` elements of the output, which is of the accumulator's type, each by one atomic.

    "factor" takes words, and adds each to the first of two sums. Sums of float32 go by as many elements as one vectorized atomic takes. For extremes
    the lane loads the element first, or what it was, and updates it only where that may change something: most do not. Of candidates the greatest
    word is wanted.
    """
    wide, widen = accumulator_type(value), conversions_of(value)[0]
    if update == "add":
        pairs, fours = wide == float32 and vector == 2, wide == float32 and vector % 4 == 0

        @jit.device
        def add(output: Any, at: Any, batch: Any, first: Any) -> None:
            if fours:
                for v in range(0, vector, 4):
                    k = first + v
                    red_add_4(output, at + v, widen(batch[k]), widen(batch[k + 1]), widen(batch[k + 2]), widen(batch[k + 3]))
            elif pairs:
                red_add_2(output, at, widen(batch[first]), widen(batch[first + 1]))
            else:
                for v in range(vector):
                    red_add(output, at + v, widen(batch[first + v]))

        return add
    if update == "factor":

        @jit.device
        def add_word(output: Any, at: Any, batch: Any, first: Any) -> None:
            for v in range(vector):
                red_add(output, 2 * (at + v), batch[first + v])

        return add_word
    red, is_max = (red_min, False) if update == "min" else (red_max, True)
    whole, narrow_words = isinstance(wide, Integer), wide.bitwidth == 32
    nan = (1 << (wide.bitwidth - 1)) - 1 if is_max else -1  #: the bits that an update by NaN leaves
    word_type = int32 if narrow_words else int64
    per_load = 128 // wide.bitwidth if vector * wide.bitwidth >= 128 else 1
    shift = 1 if narrow_words else 0  #: from elements to words of 64 bits

    if whole:
        bits = from_bits = jit.device(lambda word: word)
    elif narrow_words:
        bits, from_bits = f32_as_i32, i32_as_f32
    else:
        bits, from_bits = f64_as_i64, i64_as_f64

    @jit.device
    def beaten(x: Any, word: Any) -> Any:
        """Whether an update by x would leave the element that has these bits as it is; NaN may have the bits that memory starts from."""
        current = from_bits(word)
        return (x < current if is_max else x > current) or (bits(x) == word if x == x else word == nan)

    @jit.device
    def extend(output: Any, at: Any, batch: Any, first: Any) -> None:
        pair = cuda.local.array(2, int64)
        for v in range(0, vector, per_load):
            if per_load == 1:
                x = widen(batch[first + v])
                if not beaten(x, load_near(recast(output, word_type), at + v)):
                    red(output, at + v, x)
            else:
                load_near_2(recast(output, int64), (at + v) >> shift, pair, 0)
                for w in range(per_load):
                    x = widen(batch[first + v + w])
                    if not beaten(x, word_type(pair[w >> shift] >> (32 * (w & shift)))):
                        red(output, at + v + w, x)

    return extend


@functools.cache
def lift_of(update: str, value: str, vector: int, about: str = "", pairs: str = "") -> Any:
    """``lift(states, batch, others, first, row, output, at, scale, pivots)`` sets ``vector`` states to what the elements of a batch, which are those
    of row ``row``, add to the output at ``at``.

    Factors that are 0, infinite or NaN are counted there at once. Candidates for a first extreme become words with their row. Where ``about`` names a
    monoid, elements become its terms about ``pivots[first]`` and the next; where ``pairs`` does, what it makes of an element and of the one in
    ``others``.
    """
    (widen, _), wide, factors, pivoted = conversions_of(value), accumulator_type(value), update == "factor", about != ""
    terms = jit.device(typed_monoid(about, value).pivot_terms) if pivoted else widen
    paired, of_pair = pairs != "", jit.device(typed_monoid(pairs, value).lift) if pairs else widen
    located, candidate = update in FIRST, candidate_of(update, wide) if update in FIRST else widen

    @jit.device
    def lift(states: Any, batch: Any, others: Any, first: Any, row: Any, output: Any, at: Any, scale: Any, pivots: Any) -> None:
        for v in range(vector):
            x = widen(batch[first + v])
            if factors:
                add_tally(output, at + v, x)
                states[v] = word_of(x, scale)
            elif located:
                states[v] = candidate(x, row)
            elif pivoted:
                states[v] = terms(x, red_max_value(pivots[first + v], wide(0)), wide(1))[0]
            elif paired:
                states[v] = of_pair(x, widen(others[first + v]), wide(1))
            else:
                states[v] = x

    return lift
