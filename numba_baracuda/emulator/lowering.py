"""Typed numba IR to Python source: what the emulator runs.

Numba itself parses the kernel, prunes its dead branches and infers its types; this module writes each typed statement down as Python on plain
numbers, with every cast that numba makes. So integers wrap, float32 rounds, and types are promoted as numba promotes them. A construct that is not
listed here is an :class:`UnknownConstruct`, never a guess.
"""

from __future__ import annotations

import types as python_types
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from numba.cuda import types
from numba.cuda.core import ir
from numba.cuda.dispatcher import CUDADispatcher

from . import flow
from .conversions import INPLACE, UnknownConstruct, binary, code_of, convert, family, fit, literal, unary
from .meanings import CALLS, TYPED, VALUES

STATIC = (
    types.Module, types.Function, types.NumberClass, types.Dispatcher, types.DType, types.StringLiteral, types.TypeRef, types.IntegerLiteral,
)  # fmt: skip
POINTERS = (types.Array, types.CPointer)


class Lowering:
    """Lowers one function for one tuple of argument types; device functions it calls go through ``callee``."""

    def __init__(self, typed: Any, callee: Callable[[Any, tuple[Any, ...]], tuple[str, Any]], label: str) -> None:
        self.func_ir, self.typemap, self.calltypes, self.return_type = typed
        self.callee, self.label = callee, label
        self.constants: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        assigned = [stmt for block in self.func_ir.blocks.values() for stmt in block.body if isinstance(stmt, ir.Assign)]
        times = Counter(stmt.target.name for stmt in assigned)
        self.static = {stmt.target.name: stmt.value for stmt in assigned if times[stmt.target.name] == 1}
        self.arrays = 0

    def source(self, name: str) -> str:
        """The Python source of the function, named ``name``."""
        blocks = {label: self._block(block) for label, block in self.func_ir.blocks.items()}
        flow.join_lines(blocks)
        return flow.arrange(name, ["lane", *(f"a{k}" for k in range(self.func_ir.arg_count))], blocks, min(blocks))

    def _block(self, block: Any) -> flow.Block:
        made = flow.Block([line for stmt in block.body[:-1] for line in self._statement(stmt)])
        last = block.terminator
        made.site = self._site(last.loc)
        if isinstance(last, ir.Jump):
            made.targets = (last.target,)
        elif isinstance(last, ir.Branch):
            made.end, made.targets = self._name(last.cond), (last.truebr, last.falsebr)
        elif isinstance(last, ir.Return):
            made.end = convert(self._name(last.value), self._type(last.value), self.return_type)
        else:
            raise UnknownConstruct(f"{made.site}: {last}")
        return made

    def _statement(self, stmt: Any) -> list[flow.Line]:
        site = self._site(stmt.loc)
        if isinstance(stmt, ir.Del):
            return []
        if isinstance(stmt, ir.Assign):
            ty = self._type(stmt.target)
            return [] if isinstance(ty, STATIC) else [flow.Line(self._name(stmt.target), self._value(stmt.value, ty, site), site)]
        if isinstance(stmt, ir.SetItem | ir.StaticSetItem):
            index = stmt.index if isinstance(stmt, ir.SetItem) else stmt.index_var
            kind = self._type(stmt.target)
            if not isinstance(kind, POINTERS):
                raise UnknownConstruct(f"{site}: an assignment into {kind}")
            value = convert(self._name(stmt.value), self._type(stmt.value), kind.dtype)
            return [flow.Line("", f"{self._name(stmt.target)}.store(lane, {self._index(index)}, {value}, {site!r})", site)]
        raise UnknownConstruct(f"{site}: {stmt}")

    def _name(self, var: Any) -> str:
        ty = self._type(var)
        if isinstance(ty, types.IntegerLiteral):
            return literal(ty.literal_value, types.unliteral(ty))
        return self.names.setdefault(var.name, f"v{len(self.names)}")

    def _type(self, var: Any) -> Any:
        return self.typemap[var.name]

    def _as(self, var: Any, ty: Any) -> str:
        return convert(self._name(var), self._type(var), ty)

    def _site(self, loc: Any) -> str:
        return f"{loc.filename.rpartition('/')[2]}:{loc.line}"

    def _constant(self, value: Any) -> str:
        name = f"k{len(self.constants)}_{self.label}"
        self.constants[name] = value
        return name

    def _index(self, var: Any) -> str:
        if family(self._type(var)) != "int":
            raise UnknownConstruct(f"{self._site(var.loc)}: an index of type {self._type(var)}")
        return self._name(var)

    def _value(self, value: Any, ty: Any, site: str) -> str:
        if isinstance(value, ir.Arg):
            return convert(f"a{value.index}", self.typemap["arg." + value.name], ty)
        if isinstance(value, ir.Const | ir.Global | ir.FreeVar):
            return self._literal(value.value, ty, site)
        if isinstance(value, ir.Var):
            return self._as(value, ty)
        if isinstance(value, ir.Expr):
            handler = getattr(self, "_expr_" + value.op, None)
            if handler is not None:
                result: str = handler(value, ty, site)
                return result
        raise UnknownConstruct(f"{site}: {value}")

    def _literal(self, value: Any, ty: Any, site: str) -> str:
        if hasattr(value, "dtype") and getattr(value, "shape", None) == ():
            value = value.item()
        if value is None or isinstance(value, bool | int | float):
            return literal(value, ty)
        if isinstance(value, tuple) and isinstance(ty, types.BaseTuple):
            return f"({''.join(f'{self._literal(item, inner, site)}, ' for item, inner in zip(value, ty.types, strict=True))})"
        if any(value is known for known in VALUES):
            return "None"
        raise UnknownConstruct(f"{site}: the constant {value!r}")

    def _expr_binop(self, expr: Any, ty: Any, site: str) -> str:
        signature, operands = self.calltypes[expr], (expr.lhs, expr.rhs)
        text = binary(INPLACE.get(expr.fn, expr.fn), [self._name(v) for v in operands], [self._type(v) for v in operands], signature, site)
        return convert(text, signature.return_type, ty)

    _expr_inplace_binop = _expr_binop

    def _expr_unary(self, expr: Any, ty: Any, site: str) -> str:
        signature = self.calltypes[expr]
        return convert(unary(expr.fn, self._name(expr.value), self._type(expr.value), signature, site), signature.return_type, ty)

    def _expr_cast(self, expr: Any, ty: Any, _site: str) -> str:
        return self._as(expr.value, ty)

    _expr_exhaust_iter = _expr_cast

    def _expr_getitem(self, expr: Any, ty: Any, site: str) -> str:
        holder, index = self._type(expr.value), self._index(expr.index if expr.op == "getitem" else expr.index_var)
        if isinstance(holder, POINTERS):
            return convert(f"{self._name(expr.value)}.load(lane, {index}, {site!r})", holder.dtype, ty)
        taken = self.calltypes[expr].args[0] if expr in self.calltypes else holder
        if isinstance(taken, types.UniTuple):
            return convert(f"item_of({self._as(expr.value, taken)}, {index}, {site!r})", taken.dtype, ty)
        raise UnknownConstruct(f"{site}: an item of {holder}")

    def _expr_static_getitem(self, expr: Any, ty: Any, site: str) -> str:
        holder = self._type(expr.value)
        if isinstance(holder, types.BaseTuple) and isinstance(expr.index, int):
            return convert(f"{self._name(expr.value)}[{expr.index}]", holder.types[expr.index], ty)
        return self._expr_getitem(expr, ty, site)

    def _expr_build_tuple(self, expr: Any, ty: Any, _site: str) -> str:
        return f"({''.join(f'{self._as(v, t)}, ' for v, t in zip(expr.items, ty.types, strict=True))})"

    def _expr_getiter(self, expr: Any, _ty: Any, site: str) -> str:
        taken = self.calltypes[expr].args[0] if expr in self.calltypes else self._type(expr.value)
        if not isinstance(taken, types.RangeType | types.UniTuple):
            raise UnknownConstruct(f"{site}: a loop over {taken}")
        return f"iter({self._as(expr.value, taken)})"

    def _expr_iternext(self, expr: Any, _ty: Any, _site: str) -> str:
        return f"next({self._name(expr.value)}, None)"

    def _expr_pair_first(self, expr: Any, ty: Any, _site: str) -> str:
        return convert(self._name(expr.value), self._type(expr.value).first_type, ty)

    def _expr_pair_second(self, expr: Any, _ty: Any, _site: str) -> str:
        return f"({self._name(expr.value)} is not None)"

    def _resolve(self, var: Any) -> Any:
        """The Python object that a compile-time variable stands for."""
        value = self.static.get(var.name)
        if isinstance(value, ir.Global | ir.FreeVar | ir.Const):
            return value.value
        if isinstance(value, ir.Var):
            return self._resolve(value)
        if isinstance(value, ir.Expr) and value.op == "getattr":
            return getattr(self._resolve(value.value), value.attr)
        raise UnknownConstruct(f"{self._site(var.loc)}: {var.name} stands for something chosen at run time")

    def _expr_getattr(self, expr: Any, ty: Any, site: str) -> str:
        holder = self._type(expr.value)
        if isinstance(holder, types.Array) and holder.ndim == 1 and expr.attr in ("size", "shape"):
            length = f"{self._constant(CALLS[len][0])}({self._name(expr.value)})"
            return length if expr.attr == "size" else f"({length},)"
        known = VALUES.get((self._resolve(expr.value), expr.attr)) if isinstance(holder, types.Module) or str(holder) == "Dim3" else None
        if known is None and isinstance(holder, types.Module):
            value = getattr(self._resolve(expr.value), expr.attr)
            known = self._literal(value, ty, site) if isinstance(value, int | float) else VALUES.get(value)
        if known is None:
            raise UnknownConstruct(f"{site}: attribute {expr.attr} of {holder}")
        return known

    def _expr_call(self, expr: Any, ty: Any, site: str) -> str:
        signature, sources = self.calltypes[expr], [self._type(v) for v in expr.args]
        if isinstance(self._type(expr.func), types.NumberClass) and len(sources) == 1:
            wanted = self._type(expr.func).dtype
            return convert(self._as(expr.args[0], wanted), wanted, ty)
        function = self._resolve(expr.func)
        if getattr(function, "__name__", "") == "array" and isinstance(function, python_types.FunctionType):
            return self._allocate(function, expr, signature, site)
        if expr.kws or expr.vararg or len(sources) != len(signature.args):
            raise UnknownConstruct(f"{site}: keyword, starred or default arguments of {function}")
        arguments = ["None" if isinstance(t, types.NumberClass) else self._as(v, t) for v, t in zip(expr.args, signature.args, strict=True)]
        if isinstance(function, CUDADispatcher):
            name, returned = self.callee(function, signature.args)
            return convert(f"{name}({', '.join(['lane', *arguments])})", returned, ty)
        return convert(self._builtin(function, arguments, signature, site), signature.return_type, ty)

    def _builtin(self, function: Any, arguments: Sequence[str], signature: Any, site: str) -> str:
        """A call of a registered function; the text has the signature's return type."""
        kinds, result = [family(t) for t in signature.args], signature.return_type
        listed = ", ".join(arguments)
        if function is range:
            return f"range({listed})"
        if function in (bool, int, float) and len(arguments) == 1:
            return convert(arguments[0], signature.args[0], result)
        if function in (min, max, abs) and set(kinds) == {"int"} and family(result) == "int":
            return fit(f"{function.__name__}({listed})", result)
        if function is abs and kinds == ["float"]:
            return f"abs({listed})"
        if function is len and isinstance(signature.args[0], types.BaseTuple):
            return repr(len(signature.args[0]))
        python, needs_lane = TYPED[function](signature) if function in TYPED else CALLS.get(function, (None, False))
        if python is None:
            raise UnknownConstruct(f"{site}: a call of {function}")
        if needs_lane:
            return f"{self._constant(python)}({', '.join(['lane', repr(site), *arguments])})"
        text = f"{self._constant(python)}({listed})"
        return fit(text, result) if family(result) in ("int", "float") else text

    def _allocate(self, function: Any, expr: Any, signature: Any, site: str) -> str:
        """``cuda.shared.array`` and ``cuda.local.array``: one allocation for each place in the source, as in PTX."""
        space = {"shared": "shared", "local": "local"}.get(function.__qualname__.partition(".")[0])
        given, array = dict(expr.kws), signature.return_type
        if space is None or not isinstance(array, types.Array) or array.ndim != 1 or set(given) - {"alignment", "shape", "dtype"}:
            raise UnknownConstruct(f"{site}: {expr}")
        shape = expr.args[0] if expr.args else given["shape"]
        alignment = self._name(given["alignment"] if "alignment" in given else expr.args[2]) if "alignment" in given or len(expr.args) > 2 else "0"
        self.arrays += 1
        return f"lane.{space}('{self.label}.{self.arrays}', {self._name(shape)}, {code_of(array.dtype)!r}, {alignment})"
