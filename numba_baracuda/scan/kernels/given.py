"""What the rule of a user's monoid is made of, for the type of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...kernels.given import cast_of
from ...kernels.given import lift as lift_of
from ...runtime import jit


def lift(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``lift(p, q, position, one)`` of a user's ``lift(x)``."""
    made = lift_of(function, kind, width)
    return jit.device(lambda p, q, position, one: made(p, q, one))


def begin(identity: tuple[float, ...], kind: Any, width: int) -> Any:
    """``begin(initial, position, one)``: the identity."""
    numbers, cast = tuple(jit.number(kind, each) for each in identity), cast_of(kind, width)
    blank = numbers if width > 1 else numbers[0]
    return jit.device(lambda initial, position, one: cast(blank))


def after(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``emit(before, after, p, r, position, one)``: a user's ``finish(state)`` of the state with the element."""
    made = jit.device(function)
    return jit.device(lambda before, after, p, r, position, one: made(after))


def before(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """The same of the state without the element."""
    made = jit.device(function)
    return jit.device(lambda before, after, p, r, position, one: made(before))


def after_counted(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """``emit`` of a user's ``finish(state, count)``."""
    made = jit.device(function)
    return jit.device(lambda before, after, p, r, position, one: made(after, kind(position + 1)))


def before_counted(function: Callable[..., Any], kind: Any, width: int) -> Any:
    """The same of the state without the element."""
    made = jit.device(function)
    return jit.device(lambda before, after, p, r, position, one: made(before, kind(position)))
