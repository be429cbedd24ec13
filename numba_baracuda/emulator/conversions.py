"""Numba's scalar types as Python text: the casts it makes, and arithmetic that wraps and rounds as it does."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from numba.cuda import types

from ..core.errors import Unsupported
from . import scalars
from .memory import CODES

INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
CALLED = {
    (operator.truediv, "float"): "divide", (operator.floordiv, "int"): "floor_divide", (operator.mod, "int"): "modulo",
    (operator.lshift, "int"): "shift_left", (operator.rshift, "int"): "shift_right",
}  # fmt: skip
SHIFTS = (operator.lshift, operator.rshift)
BY_LITERAL = {operator.lshift: "<<", operator.rshift: ">>", operator.floordiv: "//", operator.mod: "%"}
INPLACE = {getattr(operator, "i" + name): getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift")}
INPLACE |= {operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor}
ROUND: dict[int, Callable[[float], float]] = {16: scalars.f16, 32: scalars.f32, 64: float}
UNARY = {operator.neg: "-", operator.pos: "+", operator.invert: "~", operator.not_: "not "}


class UnknownConstruct(Unsupported):
    """The emulator does not know what a construct means on a GPU."""


def code_of(ty: Any) -> str:
    """The struct code of an element type."""
    name = "uint16" if ty == types.bfloat16 else str(ty)
    if name not in CODES:
        raise UnknownConstruct(f"elements of type {ty}")
    return CODES[name]


def family(ty: Any) -> str:
    """``int``, ``float``, ``bool`` or ``other``."""
    if isinstance(ty, types.Boolean):
        return "bool"
    return "int" if isinstance(ty, types.Integer) else "float" if isinstance(ty, types.Float) else "other"


def _range_of(ty: Any) -> tuple[int, int]:
    """The least and the greatest value of an integer or boolean type, or of a literal."""
    if isinstance(ty, types.IntegerLiteral):
        return ty.literal_value, ty.literal_value
    if isinstance(ty, types.Boolean):
        return 0, 1
    return ty.minval, ty.maxval


def fit(text: str, ty: Any) -> str:
    """``text`` brought into the range and precision of ``ty``; ``t`` is a scratch name."""
    if isinstance(ty, types.Integer):
        if not ty.signed:
            return f"({text} & {ty.maxval})"
        return f"(t if {ty.minval} <= (t := {text}) <= {ty.maxval} else wrap(t, {ty.bitwidth}))"
    if isinstance(ty, types.Float):
        return f"{ROUND[ty.bitwidth].__name__}({text})"
    raise UnknownConstruct(f"arithmetic on {ty}")


def literal(value: Any, ty: Any) -> str:
    """A constant as text of type ``ty``."""
    if family(ty) == "int":
        value = scalars.wrap(int(value), ty.bitwidth, ty.signed)
    elif family(ty) == "float":
        value = ROUND[ty.bitwidth](value) if isinstance(value, float) else scalars.int_to_float(int(value), ty.bitwidth)
    elif family(ty) == "bool":
        value = bool(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), -float("inf"))):
        return f"float('{value}')"
    return repr(value) if isinstance(value, bool) or value is None or str(value)[0] != "-" else f"({value!r})"


def convert(text: str, source: Any, target: Any) -> str:
    """The cast numba makes where a value of type ``source`` is used as ``target``."""
    if isinstance(source, types.IntegerLiteral) and family(target) != "other":
        return literal(source.literal_value, types.unliteral(target))
    source, target = types.unliteral(source), types.unliteral(target)
    if source == target or target == types.none:
        return text
    pair = family(source), family(target)
    if pair == ("int", "int"):
        wider = target.bitwidth > source.bitwidth and (target.signed or not source.signed)
        return text if wider else fit(text, target)
    if pair == ("int", "float"):
        return f"int_to_float({text}, {target.bitwidth})"
    if pair == ("float", "float"):
        return text if target.bitwidth > source.bitwidth else fit(text, target)
    if pair == ("float", "int"):
        return f"float_to_int({text}, {target.bitwidth}, {target.signed})"
    if pair[0] == "bool" and pair[1] in ("int", "float"):
        return f"{pair[1]}({text})"
    if pair[1] == "bool" and pair[0] in ("int", "float"):
        return f"({text} != 0)"
    if isinstance(source, types.BaseTuple) and isinstance(target, types.BaseTuple) and len(source) == len(target):
        parts = [convert(f"{text}[{k}]", a, b) for k, (a, b) in enumerate(zip(source.types, target.types, strict=True))]
        return f"({', '.join(parts)},)" if parts else "()"
    if isinstance(source, (types.Array, types.CPointer)) and isinstance(target, (types.Array, types.CPointer)) and source.dtype == target.dtype:
        return text
    raise UnknownConstruct(f"a cast from {source} to {target}")


def _exact(fn: Any, sources: Sequence[Any], result: Any) -> bool:
    """Whether integer arithmetic on any values of these types stays inside the result's range."""
    ranges = [_range_of(ty) for ty in sources]
    low, high = _range_of(result)
    if not all(low <= each[0] and each[1] <= high for each in ranges):
        return False
    if fn in (operator.and_, operator.or_, operator.xor):
        return True
    corners = [fn(a, b) for a in ranges[0] for b in ranges[1]]
    return bool(low <= min(corners) and max(corners) <= high)


def binary(fn: Any, texts: Sequence[str], sources: Sequence[Any], signature: Any, site: str) -> str:
    """``fn`` of two values of types ``sources``, typed as in numba's ``signature``; the text has the signature's return type."""
    result = signature.return_type
    operands = [convert(text, source, ty) for text, source, ty in zip(texts, sources, signature.args, strict=True)]
    kinds = {family(ty) for ty in signature.args}
    if fn in INFIX and kinds in ({"int"}, {"float"}, {"bool"}):
        text = f"({operands[0]} {INFIX[fn]} {operands[1]})"
        if family(result) == "bool" or result == types.float64 or (family(result) == "int" and _exact(fn, sources, result)):
            return text
        return fit(text, result)
    called = CALLED.get((fn, family(result)))
    if called and kinds in ({"int"}, {"float"}):
        bits, second = result.bitwidth, getattr(sources[1], "literal_value", -1)
        if kinds == {"int"} and fn not in SHIFTS:
            operands = [convert(text, ty, result) for text, ty in zip(operands, signature.args, strict=True)]
        if fn in BY_LITERAL and (0 <= second < bits if fn in SHIFTS else second > 0):
            text = f"({operands[0]} {BY_LITERAL[fn]} {second})"
        else:
            text = f"{called}({operands[0]}, {operands[1]}, {bits})"
        return fit(text, result) if fn is operator.lshift or (family(result) == "float" and bits < 64) else text
    raise UnknownConstruct(f"{site}: {fn.__name__} on {signature.args}")


def unary(fn: Any, text: str, source: Any, signature: Any, site: str) -> str:
    """``fn`` of one value; the text has the signature's return type."""
    (taken,), result = signature.args, signature.return_type
    if fn not in UNARY or family(taken) == "other":
        raise UnknownConstruct(f"{site}: {fn.__name__} on {taken}")
    operand = convert(text, source, taken)
    if family(taken) == "bool" and fn is operator.invert:
        return f"(not {operand})"
    if family(result) == "bool":
        return f"({UNARY[fn]}{operand})"
    if family(taken) == "bool":
        operand, taken = convert(operand, taken, result), result
    # at the operand's own width: the minus of a uint32 wraps at 32 bits, although its type is uint64
    text = f"({UNARY[fn]}{operand})"
    return convert(fit(text, taken) if family(taken) == "int" else text, taken, result)
