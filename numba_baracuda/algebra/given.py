"""Monoids of users as kernels take them: checked as far as no types are needed, and named by a hash of their functions.

Kernels, their entries on disk and plans know a monoid by its name. The name of a user's is a hash of the bytecode of its functions and of all that
they capture, so that the same source finds the same machine code in another process.
"""

from __future__ import annotations

import builtins
import dis
import functools
import hashlib
import inspect
import math
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ..core.dtypes import BY_NAME, element
from ..core.errors import InvalidProblem, Unsupported
from ..core.options import choice, flag, refusal
from ..core.spec import FOREIGN
from .algebra import register
from .monoid import Given, KernelMonoid, Monoid

#: most scalars of a state
WIDEST = 4
#: types of a state's scalars
KINDS = ("f32", "f64", "i32", "i64")
#: packages whose functions are identified by name: the versions are part of the key of cache entries
_KNOWN = ("builtins", "math", "cmath", "operator", "numpy", "numba", "numba_baracuda")
#: packages whose objects, types among them, are identified by ``repr``
_TYPED = ("numpy", "numba", "numba_baracuda")
_ADAPTERS = "numba_baracuda.kernels.given"


def _itself(x: Any) -> Any:
    return x


def expected(where: str, given: Any) -> Monoid:
    """The argument if it is a monoid, else an error; ``where`` is the public function, for messages."""
    if not isinstance(given, Monoid):
        raise refusal(where, "monoid", given, "a numba_baracuda.Monoid")
    try:
        hash(given)
    except TypeError:
        raise refusal(where, "monoid", given, "a tuple as identity, and functions") from None
    return given


@functools.lru_cache(1024)
def adopted(where: str, given: Any, value: str) -> KernelMonoid:
    """The :class:`KernelMonoid` of a user's monoid over elements of a type."""
    given = expected(where, given)
    if not isinstance(given.name, str) or not given.name:
        raise refusal(where, "monoid's name", given.name, "a text")
    at = f"{where}: monoid {given.name!r}"
    kind = _kind(at, given.kind, value)
    _check_identity(at, given.identity, kind)
    functions = {
        "combine": _function(at, "combine", given.combine, (2,), "combine(a, b)"),
        "lift": _function(at, "lift", _itself if given.lift is None else given.lift, (1,), "lift(x)"),
        "finish": _function(at, "finish", _itself if given.finish is None else given.finish, (1, 2), "finish(state) or finish(state, count)"),
    }
    for name in ("lift", "finish"):
        if getattr(given, name) is None and given.width > 1:
            raise InvalidProblem(f"{at}: {name} is None, wants a function, as a state is {given.width} scalars")
    counts, commutes = _arity(functions["finish"]) == 2, flag(at, "commutes", given.commutes)
    made_of = [kind, repr(given.identity), commutes, *[fingerprint(at, name, each) for name, each in functions.items()]]
    name = f"{FOREIGN}{given.name}:{hashlib.sha256(repr(made_of).encode()).hexdigest()[:32]}"
    lift = Given(f"{_ADAPTERS}:lift", functions["lift"], given.width)
    finish = Given(f"{_ADAPTERS}:{'finish_counted' if counts else 'finish'}", functions["finish"], given.width)
    monoid = KernelMonoid(name, given.identity, given.combine, lift, finish, kind=kind, commutes=commutes, counts=counts, divides=True, foreign=True)
    return register(monoid)


def _kind(at: str, given: Any, value: str) -> str:
    """The type of a state's scalars."""
    usual = isinstance(given, str) and not given
    kind = BY_NAME[value].accumulator if usual else choice(at, "kind", element(given, at, "kind").name, KINDS)
    if BY_NAME[kind].whole and not BY_NAME[value].whole:
        raise InvalidProblem(f"{at}: kind is {kind}, wants f32 or f64 for elements of {BY_NAME[value].numpy_name}")
    return kind


def _check_identity(at: str, identity: Any, kind: str) -> None:
    numbers = isinstance(identity, tuple) and identity and all(isinstance(each, int | float | np.integer | np.floating) for each in identity)
    if not numbers:
        raise refusal(at, "identity", identity, f"a tuple of 1 to {WIDEST} numbers")
    if len(identity) > WIDEST:
        raise Unsupported(f"{at}: identity holds {len(identity)} numbers, wants at most {WIDEST}")
    least, greatest = BY_NAME[kind].limits
    for each in identity:
        if BY_NAME[kind].whole and not (math.isinf(each) or (each == each and least <= each <= greatest and each == int(each))):
            raise refusal(at, "identity", identity, f"numbers that {kind} holds, as the states do, or infinities for its least and greatest")


def _function(at: str, name: str, given: Any, arities: tuple[int, ...], form: str) -> Callable[..., Any]:
    """The Python function that was given, as such or as a device function of numba."""
    function = getattr(given, "py_func", given)
    if not isinstance(function, FunctionType):
        raise refusal(at, name, given, f"a Python function {form}")
    if _arity(function) not in arities:
        raise InvalidProblem(f"{at}: {name} takes {list(inspect.signature(function).parameters)}, wants {form}")
    return function


def _arity(function: Callable[..., Any]) -> int:
    """The number of a function's positional arguments; −1 where it needs keywords, too."""
    parameters = [each for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    return len(parameters) if all(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters) else -1


# ---------------------------------------------------------------- names


def fingerprint(at: str, name: str, function: Callable[..., Any]) -> str:
    """A text of a function's bytecode and captured values, the same in every process; raises for a value without such a text."""
    seen: dict[int, int] = {}

    def code_of(code: CodeType, scope: dict[str, Any]) -> tuple[Any, ...]:
        names = sorted({each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")})
        outside = [(each, text_of(each, scope.get(each, getattr(builtins, each, None)))) for each in names]
        constants = [code_of(each, scope) if isinstance(each, CodeType) else text_of("a constant", each) for each in code.co_consts]
        return code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, outside

    def function_of(found: FunctionType) -> tuple[Any, ...]:
        if id(found) in seen:
            return "again", seen[id(found)]
        seen[id(found)] = len(seen)
        captured = [text_of(each, cell.cell_contents) for each, cell in zip(found.__code__.co_freevars, found.__closure__ or (), strict=True)]
        return code_of(found.__code__, found.__globals__), captured, text_of("a default", found.__defaults__)

    def text_of(what: str, value: Any) -> Any:
        kind = type(value)
        if value is None or value is Ellipsis or kind in (bool, int, float, complex, str, bytes):
            return kind.__name__, repr(value)
        if kind in (tuple, frozenset):
            return kind.__name__, [text_of(what, each) for each in (sorted(value, key=repr) if kind is frozenset else value)]
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            return value.dtype.str, value.shape, value.tobytes().hex()
        function = getattr(value, "py_func", value)
        home = value.__name__ if isinstance(value, ModuleType) else getattr(function, "__module__", None) or ""
        called = getattr(function, "__qualname__", "")
        named = isinstance(function, ModuleType | BuiltinFunctionType | FunctionType | type | np.ufunc) and "<" not in called
        if named and home.partition(".")[0] in _KNOWN:
            return "known", home, called
        if isinstance(function, FunctionType):
            return function_of(function), repr(sorted(getattr(value, "targetoptions", {}).items()))
        if kind.__module__.partition(".")[0] in _TYPED:
            return "known", kind.__module__, kind.__qualname__, str(value)
        wants = "numbers, texts, tuples, NumPy arrays, functions, numba types, or modules of NumPy, numba and the device library"
        raise InvalidProblem(f"{at}: {name} uses {what}, of type {kind.__name__}, wants {wants}")

    return repr(function_of(function))  # type: ignore[arg-type]
