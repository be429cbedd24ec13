"""The gradient of products of several elements together: a function that scan operators want for the accumulator's type."""

from __future__ import annotations

import functools
import math
from typing import Any

from ...runtime import jit


@functools.cache
def products_together(kind: Any) -> Any:
    """``make(count)``: (fold, fits, scan) of ``count`` elements of an inclusive scan's gradient, as :func:`.exponentials.shares_together` says.

    The numbers of one by one, in the same order, without asking each factor whether it is 0: they ``fit`` where the product of all is neither 0 nor
    out of range. What is added to a term of 0 makes that +0.
    """
    zero, infinity = kind(0), kind(math.inf)

    def make(count: int) -> Any:
        @jit.device
        def fits(numbers: Any) -> Any:
            product = numbers[1][0]
            for k in range(1, count):
                product *= numbers[1][k]
            return (abs(product) > zero) & (abs(product) < infinity)

        @jit.device
        def fold(state: Any, numbers: Any, following: Any) -> Any:
            factor, total = state[0], state[1]
            for k in range(count):
                factor *= numbers[1][k]
                total = (numbers[1][k] * numbers[0][k] + zero) + numbers[1][k] * total
            return factor, total

        @jit.device
        def scan(state: Any, numbers: Any, following: Any) -> Any:
            total = state[1]
            for k in range(count):
                after = (numbers[1][k] * numbers[0][k] + zero) + numbers[1][k] * total
                numbers[0][k] = (numbers[2][k + 1] if k + 1 < count else following) * (numbers[0][k] + total)
                total = after
            return state[0], total

        return fold, fits, scan

    return make
