"""The functions of a monoid for elements of a type, and the state of a batch of elements in registers."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

from numba.cuda.types import Integer

from ..algebra import KernelMonoid, monoid_of
from ..core.dtypes import BY_NAME, FLOATS
from ..device.bits import f32_as_i32, f64_as_i64
from ..device.warp import States, states_of
from ..runtime import jit
from .elements import conversions_of, of_type, position_code_of

#: fields of a monoid that may be :class:`~..algebra.ByType`
_BY_TYPE = ("lift", "combine", "finish", "pivot_terms", "settle", "rebase", "pivot_state", "unit_pivot_suffices")


def state_kind(monoid: str, value: str) -> str:
    """Short name of the type of a state's scalars: the monoid's own, or the accumulator's."""
    return monoid_of(monoid).kind or BY_NAME[value].accumulator


@functools.cache
def typed_monoid(monoid: str, value: str) -> KernelMonoid:
    """The monoid with its identity as numbers of the state's type, and with its functions for that type."""
    kind = jit.SCALARS[state_kind(monoid, value)]
    typed = monoid_of(monoid)
    functions: dict[str, Any] = {name: of_type(getattr(typed, name), kind) for name in _BY_TYPE}
    return replace(typed, identity=tuple(jit.number(kind, each) for each in typed.identity), **functions)


@functools.cache
def state_functions(monoid: str, value: str) -> States:
    """Device functions on the states of a monoid over elements of a type: identity, combine, cast and shuffles."""
    typed = typed_monoid(monoid, value)
    return states_of(typed, (jit.SCALARS[state_kind(monoid, value)],) * typed.width)


@functools.cache
def state_accessors(width: int) -> tuple[Any, Any]:
    """``get(array, offset, stride)`` and ``put(array, offset, stride, state)``: scalar w of a state is ``array[offset + w · stride]``."""
    if width == 1:
        get = jit.device(lambda array, offset, stride: array[offset])
    elif width == 2:
        get = jit.device(lambda array, offset, stride: (array[offset], array[offset + stride]))
    elif width == 3:
        get = jit.device(lambda array, offset, stride: (array[offset], array[offset + stride], array[offset + stride + stride]))
    else:
        get = jit.device(
            lambda array, offset, stride: (array[offset], array[offset + stride], array[offset + 2 * stride], array[offset + 3 * stride])
        )

    @jit.device
    def put(array: Any, offset: Any, stride: Any, state: Any) -> None:
        if width == 1:
            array[offset] = state
        else:
            for w in range(width):
                array[offset + w * stride] = state[w]

    return get, put


@functools.cache
def narrow_of(monoid: str, value: str, result: str) -> Any:
    """``narrow(x)``: a number of the state's type as the result holds it; a position, kept as the float of its bits, becomes an integer."""
    typed, kind, state = typed_monoid(monoid, value), jit.SCALARS[result], state_kind(monoid, value)
    if typed.uses_positions and isinstance(kind, Integer) and state in FLOATS:
        bits = f32_as_i32 if state == "f32" else f64_as_i64
        return jit.device(lambda x: kind(bits(x)))
    return conversions_of(result)[1]


@functools.cache
def lift_of(monoid: str, value: str) -> Any:
    """``lift_element(x, position)``: the state of one element, as memory holds it, at a position of its row."""
    typed, widen, kind = typed_monoid(monoid, value), conversions_of(value)[0], jit.SCALARS[state_kind(monoid, value)]
    lift, uses_positions, cast = jit.device(typed.lift), typed.uses_positions, state_functions(monoid, value).cast
    position_code = position_code_of(value)
    if uses_positions:
        return jit.device(lambda x, position: cast(lift(widen(x), position_code(position), kind(1))))
    return jit.device(lambda x, position: cast(lift(widen(x), kind(1), kind(1))))


@functools.cache
def batch_of(monoid: str, value: str, vectors: int, vector: int, element_stride: int, vector_stride: int) -> Any:
    """``batch(elements, offset, position, valid)``: the state of the first ``valid`` of ``vectors`` vectors of ``vector`` elements in registers.

    Element k of vector s is ``elements[offset + (s · vector + k) · element_stride]``; its position is ``position + s · vector_stride + k``.
    """
    typed, states, lift_element = typed_monoid(monoid, value), state_functions(monoid, value), lift_of(monoid, value)
    identity, combine = states.identity, states.combine
    if typed.append:
        return _with_positions(monoid, value, vectors, vector, element_stride, vector_stride)

    @jit.device
    def batch(elements: Any, offset: Any, position: Any, valid: Any) -> Any:
        state = identity()
        for s in range(vectors):
            if s < valid:
                for k in range(vector):
                    state = combine(state, lift_element(elements[offset + (s * vector + k) * element_stride], position + s * vector_stride + k))
        return state

    return batch


def _with_positions(monoid: str, value: str, vectors: int, vector: int, element_stride: int, vector_stride: int) -> Any:
    """:func:`batch_of` for a monoid whose states hold positions: elements are appended in order."""
    states, widen, position_code = state_functions(monoid, value), conversions_of(value)[0], position_code_of(value)
    append_function: Any = typed_monoid(monoid, value).append
    append, identity, cast = jit.device(append_function), states.identity, states.cast

    @jit.device
    def batch(elements: Any, offset: Any, position: Any, valid: Any) -> Any:
        state = cast((identity()[0], position_code(position)))
        for s in range(vectors):
            if s < valid:
                for k in range(vector):
                    state = append(
                        state, widen(elements[offset + (s * vector + k) * element_stride]), position_code(position + s * vector_stride + k)
                    )
        return state if valid > 0 else identity()

    return batch
