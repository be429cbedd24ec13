"""Typed numba IR to Python source: what the emulator runs.

Numba itself parses the kernel, prunes its dead branches and infers its types; this module writes each typed statement down as Python on plain numbers, with
every cast that numba would make. So integers wrap, float32 rounds and promotion is numba's by construction, and a construct that is not listed here
is an :class:`UnknownConstruct`, never a guess.
"""

from __future__ import annotations

import math
import operator
import types as python_types
from collections.abc import Callable
from typing import Any

from numba.cuda import types
from numba.cuda.core import ir
from numba.cuda.dispatcher import CUDADispatcher

from . import scalars
from .memory import CODES

#: stubs of ``numba.cuda`` and intrinsics of the device library -> (Python function, takes lane and site)
CALLS: dict[Any, tuple[Callable[..., Any], bool]] = {}
#: attributes of values, such as ``cuda.threadIdx.x`` -> expression on ``lane``
VALUES: dict[Any, str] = {}

INFIX = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.and_: "&", operator.or_: "|", operator.xor: "^",
    operator.lt: "<", operator.le: "<=", operator.gt: ">", operator.ge: ">=", operator.eq: "==", operator.ne: "!=",
}  # fmt: skip
CALLED = {
    (operator.truediv, "float"): "divide", (operator.floordiv, "int"): "floor_divide", (operator.mod, "int"): "modulo",
    (operator.lshift, "int"): "shift_left", (operator.rshift, "int"): "shift_right",
}  # fmt: skip
INPLACE = {getattr(operator, "i" + name): getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "lshift", "rshift")}
INPLACE |= {operator.iand: operator.and_, operator.ior: operator.or_, operator.ixor: operator.xor}
UNARY = {operator.neg: "-", operator.pos: "+", operator.invert: "~", operator.not_: "not "}
STATIC = (types.Module, types.Function, types.NumberClass, types.Dispatcher, types.DType, types.StringLiteral, types.Omitted, types.TypeRef)


class UnknownConstruct(NotImplementedError):
    """The emulator does not know what this means on a GPU, so it refuses."""


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


def fit(text: str, ty: Any) -> str:
    """``text`` brought into the range and precision of ``ty``."""
    if isinstance(ty, types.Integer):
        bits = ty.bitwidth
        if not ty.signed:
            return f"({text}) & {(1 << bits) - 1}"
        half = 1 << (bits - 1)
        return f"((({text}) + {half}) & {(1 << bits) - 1}) - {half}"
    if isinstance(ty, types.Float):
        return {32: f"f32({text})", 16: f"f16({text})", 64: f"float({text})"}[ty.bitwidth]
    raise UnknownConstruct(f"arithmetic on {ty}")


def convert(text: str, source: Any, target: Any) -> str:
    """The cast numba makes where a value of type ``source`` is used as ``target``."""
    source, target = types.unliteral(source), types.unliteral(target)
    if source == target or target == types.none:
        return text
    pair = family(source), family(target)
    if pair == ("int", "int"):
        wider = target.bitwidth > source.bitwidth and (target.signed or not source.signed)
        return text if wider else f"({fit(text, target)})"
    if pair == ("int", "float"):
        return f"int_to_float({text}, {target.bitwidth})"
    if pair == ("float", "float"):
        return text if target.bitwidth > source.bitwidth else f"({fit(text, target)})"
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


class Lowering:
    """Lowers one function for one tuple of argument types; device functions it calls go through ``callee``."""

    def __init__(self, typed: Any, callee: Callable[[Any, tuple[Any, ...]], tuple[str, Any]], label: str) -> None:
        self.func_ir, self.typemap, self.calltypes, self.return_type = typed
        self.callee, self.label = callee, label
        self.constants: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        self.blocks = self.func_ir.blocks
        self.static = {
            stmt.target.name: stmt.value for block in self.blocks.values() for stmt in block.body if isinstance(stmt, ir.Assign)
        }
        self.sites = 0

    def source(self, name: str) -> str:
        """The Python source of the function, named ``name``."""
        arguments = ", ".join(f"a{k}" for k in range(self.func_ir.arg_count))
        entered = [label for block in self.blocks.values() for label in self._targets(block)]
        first = min(self.blocks)
        joins = sorted({label for label in entered if entered.count(label) > 1} | ({first} if first in entered else set()))
        lines = [f"def {name}(lane{', ' if arguments else ''}{arguments}):"]
        if not joins:
            return "\n".join(lines + self._block(first, 1, []))
        self.order = {label: k + 1 for k, label in enumerate(joins)}
        lines += ["    at = 0", "    while True:", *self._choose([first, *joins] if first not in joins else joins, joins, 2)]
        if first in joins:
            lines[1] = f"    at = {self.order[first]}"
        return "\n".join(lines)

    def _targets(self, block: Any) -> list[int]:
        last = block.terminator
        return [last.target] if isinstance(last, ir.Jump) else [last.truebr, last.falsebr] if isinstance(last, ir.Branch) else []

    def _choose(self, labels: list[int], joins: list[int], depth: int) -> list[str]:
        """A binary decision on ``at`` over blocks that are entered from several places."""
        pad = "    " * depth
        if len(labels) == 1:
            return self._block(labels[0], depth, joins)
        middle = len(labels) // 2
        return [
            f"{pad}if at < {self.order[labels[middle]]}:",
            *self._choose(labels[:middle], joins, depth + 1),
            f"{pad}else:",
            *self._choose(labels[middle:], joins, depth + 1),
        ]

    def _block(self, label: int, depth: int, joins: list[int]) -> list[str]:
        pad = "    " * depth
        lines = [pad + text for stmt in self.blocks[label].body for text in self._statement(stmt)]
        last = self.blocks[label].terminator

        def go(target: int, inner: int) -> list[str]:
            if target in joins:
                return [f"{'    ' * inner}at = {self.order[target]}", f"{'    ' * inner}continue"]
            return self._block(target, inner, joins)

        if isinstance(last, ir.Jump):
            return lines + go(last.target, depth)
        if isinstance(last, ir.Branch):
            return [*lines, f"{pad}if {self._name(last.cond)}:", *go(last.truebr, depth + 1), *go(last.falsebr, depth)]
        if isinstance(last, ir.Return):
            return [*lines, f"{pad}return {convert(self._name(last.value), self._type(last.value), self.return_type)}"]
        raise UnknownConstruct(f"{last.loc}: {last}")

    def _name(self, var: Any) -> str:
        return self.names.setdefault(var.name, f"v{len(self.names)}")

    def _type(self, var: Any) -> Any:
        return self.typemap[var.name]

    def _site(self, loc: Any) -> str:
        return f"{loc.filename.rpartition('/')[2]}:{loc.line}"

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}_{self.label}"
        self.constants[name] = value
        return name

    def _statement(self, stmt: Any) -> list[str]:
        if isinstance(stmt, ir.Del | ir.Jump | ir.Branch | ir.Return):
            return []
        if isinstance(stmt, ir.Assign):
            ty = self._type(stmt.target)
            if isinstance(ty, STATIC):
                return []
            text = self._value(stmt.value, ty, stmt.loc)
            return [f"{self._name(stmt.target)} = {text}"]
        if isinstance(stmt, ir.SetItem | ir.StaticSetItem):
            index = stmt.index if isinstance(stmt, ir.SetItem) else stmt.index_var
            kind = self._type(stmt.target)
            if not isinstance(kind, types.Array | types.CPointer):
                raise UnknownConstruct(f"{stmt.loc}: an assignment into {kind}")
            value = convert(self._name(stmt.value), self._type(stmt.value), kind.dtype)
            return [f"{self._name(stmt.target)}.store(lane, {self._index(index)}, {value}, {self._site(stmt.loc)!r})"]
        raise UnknownConstruct(f"{stmt.loc}: {stmt}")

    def _index(self, var: Any) -> str:
        if family(self._type(var)) != "int":
            raise UnknownConstruct(f"{var.loc}: an index of type {self._type(var)}")
        return self._name(var)

    def _value(self, value: Any, ty: Any, loc: Any) -> str:
        if isinstance(value, ir.Arg):
            return convert(f"a{value.index}", self.typemap["arg." + value.name], ty)
        if isinstance(value, ir.Const | ir.Global | ir.FreeVar):
            return self._literal(value.value, ty, loc)
        if isinstance(value, ir.Var):
            return convert(self._name(value), self._type(value), ty)
        if isinstance(value, ir.Expr):
            handler = getattr(self, "_expr_" + value.op, None)
            if handler is not None:
                result: str = handler(value, ty)
                return result
        raise UnknownConstruct(f"{loc}: {value}")

    def _literal(self, value: Any, ty: Any, loc: Any) -> str:
        if value is None or isinstance(value, bool | int | float):
            text = repr(value) if value is None or math.isfinite(value) else f"float('{value}')"
            return convert(text, types.boolean if isinstance(value, bool) else ty, ty)
        if isinstance(value, tuple) and isinstance(ty, types.BaseTuple):
            return f"({''.join(f'{self._literal(item, inner, loc)}, ' for item, inner in zip(value, ty.types, strict=True))})"
        if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
            return self._literal(value.item(), ty, loc)
        if any(value is known for known in VALUES):
            return "None"
        raise UnknownConstruct(f"{loc}: the constant {value!r}")

    def _expr_binop(self, expr: Any, ty: Any) -> str:
        signature = self.calltypes[expr]
        left, right = (convert(self._name(v), self._type(v), t) for v, t in zip((expr.lhs, expr.rhs), signature.args, strict=True))
        return convert(self._binary(expr.fn, left, right, signature, expr.loc), signature.return_type, ty)

    def _expr_inplace_binop(self, expr: Any, ty: Any) -> str:
        signature = self.calltypes[expr]
        left, right = (convert(self._name(v), self._type(v), t) for v, t in zip((expr.lhs, expr.rhs), signature.args, strict=True))
        return convert(self._binary(INPLACE.get(expr.fn, expr.fn), left, right, signature, expr.loc), signature.return_type, ty)

    def _binary(self, fn: Any, left: str, right: str, signature: Any, loc: Any) -> str:
        kinds = {family(t) for t in signature.args}
        result = signature.return_type
        if kinds <= {"int", "float", "bool"} and fn in INFIX:
            text = f"({left} {INFIX[fn]} {right})"
            return text if family(result) == "bool" else f"({fit(text, result)})"
        called = CALLED.get((fn, family(result)))
        if called and kinds <= {"int", "float"}:
            text = f"{called}({left}, {right}{f', {result.bitwidth}' if family(result) == 'int' else ''})"
            return f"({fit(text, result)})"
        raise UnknownConstruct(f"{loc}: {fn.__name__} on {signature.args}")

    def _expr_unary(self, expr: Any, ty: Any) -> str:
        signature = self.calltypes[expr]
        operand = convert(self._name(expr.value), self._type(expr.value), signature.args[0])
        if expr.fn not in UNARY or family(signature.args[0]) == "other":
            raise UnknownConstruct(f"{expr.loc}: {expr}")
        text = f"({UNARY[expr.fn]}{operand})"
        if family(signature.return_type) != "bool":
            text = f"({fit(text, signature.return_type)})"
        return convert(text, signature.return_type, ty)

    def _expr_cast(self, expr: Any, ty: Any) -> str:
        return convert(self._name(expr.value), self._type(expr.value), ty)

    def _expr_getitem(self, expr: Any, ty: Any) -> str:
        return self._item(expr.value, self._index(expr.index), ty, expr.loc)

    def _expr_static_getitem(self, expr: Any, ty: Any) -> str:
        holder = self._type(expr.value)
        if isinstance(holder, types.BaseTuple):
            return convert(f"{self._name(expr.value)}[{expr.index!r}]", holder.types[expr.index], ty)
        return self._item(expr.value, self._index(expr.index_var), ty, expr.loc)

    def _item(self, holder: Any, index: str, ty: Any, loc: Any) -> str:
        kind = self._type(holder)
        if isinstance(kind, types.UniTuple):
            return convert(f"item_of({self._name(holder)}, {index}, {self._site(loc)!r})", kind.dtype, ty)
        if isinstance(kind, types.Array | types.CPointer):
            return convert(f"{self._name(holder)}.load(lane, {index}, {self._site(loc)!r})", kind.dtype, ty)
        raise UnknownConstruct(f"{loc}: an item of {kind}")

    def _expr_build_tuple(self, expr: Any, ty: Any) -> str:
        parts = [convert(self._name(v), self._type(v), t) for v, t in zip(expr.items, ty.types, strict=True)]
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    def _expr_exhaust_iter(self, expr: Any, ty: Any) -> str:
        return convert(self._name(expr.value), self._type(expr.value), ty)

    def _expr_getiter(self, expr: Any, _ty: Any) -> str:
        return f"iter({self._name(expr.value)})"

    def _expr_iternext(self, expr: Any, _ty: Any) -> str:
        return f"next({self._name(expr.value)}, None)"

    def _expr_pair_first(self, expr: Any, _ty: Any) -> str:
        return self._name(expr.value)

    def _expr_pair_second(self, expr: Any, _ty: Any) -> str:
        return f"{self._name(expr.value)} is not None"

    def _resolve(self, var: Any) -> Any:
        """The Python object that a compile-time variable stands for."""
        value = self.static.get(var.name)
        if isinstance(value, ir.Global | ir.FreeVar | ir.Const):
            return value.value
        if isinstance(value, ir.Var):
            return self._resolve(value)
        if isinstance(value, ir.Expr) and value.op == "getattr":
            return getattr(self._resolve(value.value), value.attr)
        raise UnknownConstruct(f"{var.loc}: a function chosen at run time")

    def _expr_getattr(self, expr: Any, ty: Any) -> str:
        holder = self._type(expr.value)
        known = VALUES.get((self._resolve(expr.value), expr.attr)) if isinstance(holder, types.Module) or str(holder) == "Dim3" else None
        if known is None and isinstance(holder, types.Module):
            known = VALUES.get(getattr(self._resolve(expr.value), expr.attr))
        if known is None:
            raise UnknownConstruct(f"{expr.loc}: attribute {expr.attr} of {holder}")
        return known

    def _expr_call(self, expr: Any, ty: Any) -> str:
        function = self._resolve(expr.func)
        signature = self.calltypes[expr]
        if isinstance(self._type(expr.func), types.NumberClass):
            (operand,) = expr.args
            return convert(convert(self._name(operand), self._type(operand), self._type(expr.func).dtype), self._type(expr.func).dtype, ty)
        if getattr(function, "__name__", "") == "array" and isinstance(function, python_types.FunctionType):
            return self._allocate(function, expr, signature)
        if expr.kws or expr.vararg:
            raise UnknownConstruct(f"{expr.loc}: keyword or starred arguments of {function}")
        arguments = [convert(self._name(v), self._type(v), t) for v, t in zip(expr.args, signature.args, strict=True)]
        kinds = [family(t) for t in signature.args]
        if isinstance(function, CUDADispatcher):
            name, returned = self.callee(function, signature.args)
            return convert(f"{name}({', '.join(['lane', *arguments])})", returned, ty)
        if function is range:
            return f"range({', '.join(arguments)})"
        if function is bool:
            return convert(self._name(expr.args[0]), self._type(expr.args[0]), types.boolean)
        if function in (min, max, abs) and set(kinds) == {"int"}:
            text = f"{function.__name__}({', '.join(arguments)})"
            return convert(f"({fit(text, signature.return_type)})", signature.return_type, ty)
        if function is abs and kinds == ["float"]:
            return f"abs({arguments[0]})"
        if function is len and isinstance(signature.args[0], types.BaseTuple):
            return repr(len(signature.args[0]))
        known = CALLS.get(function)
        if known is None:
            raise UnknownConstruct(f"{expr.loc}: a call of {function}")
        python, needs_lane = known
        given = ["lane", repr(self._site(expr.loc)), *arguments] if needs_lane else arguments
        text = f"{self._constant(python)}({', '.join(given)})"
        if family(signature.return_type) in ("int", "float") and not needs_lane:
            text = f"({fit(text, signature.return_type)})"
        return convert(text, signature.return_type, ty)

    def _allocate(self, function: Any, expr: Any, signature: Any) -> str:
        """``cuda.shared.array`` and ``cuda.local.array``: one allocation for each place in the code, as in PTX."""
        space = {"shared": "shared", "local": "local"}.get(function.__qualname__.partition(".")[0])
        array = signature.return_type
        if space is None or not isinstance(array, types.Array) or array.ndim != 1 or set(dict(expr.kws)) - {"alignment", "shape", "dtype"}:
            raise UnknownConstruct(f"{expr.loc}: {expr}")
        shape = expr.args[0] if expr.args else dict(expr.kws)["shape"]
        self.sites += 1
        return f"lane.{space}('{self.label}.{self.sites}', {self._name(shape)}, {code_of(array.dtype)!r})"


def namespace() -> dict[str, Any]:
    """The names that generated source uses."""
    return {name: getattr(scalars, name) for name in scalars.__all__}
