"""Users' monoids: functions that kernels call, the check that numba can compile them, and what becomes of no elements."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda import types

from ..algebra import Given, KernelMonoid, monoid_of
from ..algebra.given import adopted
from ..core.errors import InvalidProblem, Unsupported
from ..device.emulate import emulate
from ..device.warp import each_scalar
from ..runtime import jit
from .elements import of_type


def cast_of(kind: Any, width: int) -> Any:
    """``cast(state)``: every scalar as the state's type."""
    convert = each_scalar((jit.device(lambda scalar, nothing: kind(scalar)),) * width)
    return jit.device(lambda state: convert(state, 0))


def combine(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """A user's ``combine(a, b)``."""
    return jit.own_device(function)


def lift(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``lift(x, other, one)`` of a user's ``lift(x)``: element and state are of the state's type."""
    made, cast = jit.own_device(function), cast_of(kind, width)
    return jit.device(lambda x, other, one: cast(made(kind(x))))


def finish(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``finish(state, count, one)`` of a user's ``finish(state)``."""
    made = jit.own_device(function)
    return jit.device(lambda state, count, one: made(state))


def finish_counted(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``finish(state, count, one)`` of a user's ``finish(state, count)``."""
    made = jit.own_device(function)
    return jit.device(lambda state, count, one: made(state, count))


def check(where: str, given: Any, value: str) -> None:
    """Raises unless numba can compile the functions of a user's monoid over elements of a type, and each gives as many numbers as it should."""
    monoid, at = adopted(where, given, value), f"{where}: monoid {given.name!r}"
    (scalar, state), width = _types_of(monoid), monoid.width
    _check(f"{at}: lift", _user(monoid.lift), (scalar,), width)
    _check(f"{at}: combine", _user(monoid.combine), (state, state), width)
    _check(f"{at}: finish", _user(monoid.finish), (state, scalar)[: 1 + monoid.counts], 1)


def _types_of(monoid: KernelMonoid) -> tuple[Any, Any]:
    """The types of a scalar and of a state."""
    scalar = jit.SCALARS[monoid.kind]
    return scalar, scalar if monoid.width == 1 else types.UniTuple(scalar, monoid.width)


def _user(function: Any) -> Callable[..., Any]:
    """The Python function of a user."""
    given = function.function if isinstance(function, Given) else function
    return getattr(given, "py_func", given)  # type: ignore[no-any-return]


def _check(at: str, function: Callable[..., Any], arguments: tuple[Any, ...], width: int) -> None:
    try:
        found = jit.infer(function, arguments)[-1]
    except Exception as error:  # whatever numba raises of source that it does not take
        given = ", ".join(map(str, arguments))
        raise Unsupported(f"{at} cannot be compiled for {given}: {_reason(error)}; wants what numba.cuda compiles") from error
    several = found.types if isinstance(found, types.BaseTuple) else (found,)
    fits = len(several) == width and isinstance(found, types.BaseTuple) == (width > 1)
    if not fits or not all(isinstance(each, types.Number | types.Boolean) for each in several):
        wants = "a number" if width == 1 else f"a tuple of {width} numbers"
        raise InvalidProblem(f"{at} gives {found}, wants {wants}")


def _reason(error: Exception) -> str:
    """The line of a numba error that says what is wrong."""
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not re.match(r"Failed in|During:|File |Known signatures|There are \d+ candidate|- Of which", line)]
    return (told or lines or [type(error).__name__])[0][:300]


@functools.cache
def of_nothing(name: str) -> float:
    """``finish(identity, 0)``, by the emulator: on the host a division by zero would be an error."""
    monoid = monoid_of(name)
    (kind, state), blank = _types_of(monoid), tuple(jit.number(jit.SCALARS[monoid.kind], each) for each in monoid.identity)
    ended, cast, nothing = of_type(monoid.finish, kind), cast_of(kind, monoid.width), blank if monoid.width > 1 else blank[0]

    def store(out: Any) -> None:
        out[0] = ended(cast(nothing), kind(0), kind(1))

    found = jit.infer(_user(monoid.finish), (state, kind)[: 1 + monoid.counts])[-1]
    out = np.zeros(1, np.float64 if isinstance(found, types.Float) else np.int64)
    emulate(store)[1, 1](out)
    return out[0].item()  # type: ignore[no-any-return]
