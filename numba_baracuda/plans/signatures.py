"""Functions of ops, each with a signature and a docstring from its row in the table."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from ..core.errors import OutOfMemory, WrongArguments
from ..core.op import Op
from ..core.options import key_of

#: the default of an argument that has none
NEEDED: Any = inspect.Parameter.empty
#: keywords that every function takes
CALL: dict[str, Any] = {"out": None, "stream": None, "workspace": None}
#: keywords that are sizes, which are no part of keys
_SIZES = ("input_shape",)
P = ParamSpec("P")
T = TypeVar("T")


#: what a function calls: positional arguments, the op's own keywords, a key of these except sizes, ``out``, ``stream`` and ``workspace``
Call = Callable[[tuple[Any, ...], dict[str, Any], Any, Any, Any, Any], Any]


def function_of(op: Op, call: Call, positional: dict[str, Any], keywords: dict[str, Any], doc: str) -> Callable[..., Any]:
    """The function of an op with these defaults of positional arguments and of its own keywords, all of which ``call`` gets."""
    signature, known, names, most = signature_of(positional, keywords | CALL), keywords.keys(), list(positional.items()), len(positional)
    optional = {name: default for name, default in keywords.items() if default is not NEEDED}
    needed, own = known - optional.keys(), [name for name in keywords if name not in _SIZES]

    def complete(given: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any], Any]:
        """All arguments and keywords, and the key of these."""
        for name, default in names[len(given) :]:
            value = options.pop(name, default)
            if value is NEEDED:
                break
            given += (value,)
        if len(given) != most or not needed <= options.keys() <= known:
            given, options = bound(op.name, signature, given, options)
        chosen = {name: options[name] if name in options else optional[name] for name in keywords}
        return given, chosen, key_of(*[chosen[name] for name in own])

    def run(*given: Any, out: Any = None, stream: Any = None, workspace: Any = None, **options: Any) -> Any:
        chosen, key = optional, ()  # of the defaults a short key, as it is hashed at each call
        if needed or options or len(given) != most:
            given, chosen, key = complete(given, options)
        try:
            return call(given, chosen, key, out, stream, workspace)
        except MemoryError as error:
            if not type(error).__module__.startswith("numpy"):
                raise
            raise OutOfMemory(f"{op.name}: {error}, wants a smaller problem") from error

    return dressed(run, op, signature, doc)


def bound(name: str, signature: inspect.Signature, given: tuple[Any, ...], options: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional arguments and keywords with defaults filled in; raises for one that is missing or unknown."""
    try:
        found = signature.bind(*given, **options)
    except TypeError as error:
        from difflib import get_close_matches

        unknown = next((each for each in options if each not in signature.parameters), "")
        close = get_close_matches(unknown, signature.parameters, 1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise WrongArguments(f"{name}: {error}, wants {', '.join(signature.parameters)}{meant}") from None
    found.apply_defaults()
    return found.args, found.kwargs


def guarded(function: Callable[P, T], name: str = "") -> Callable[P, T]:
    """The function with an error of the package for arguments that do not match its signature; that is a ``TypeError``, too."""
    signature, called = inspect.signature(function), name or function.__name__

    @functools.wraps(function)
    def run(*given: P.args, **options: P.kwargs) -> T:
        try:
            return function(*given, **options)
        except TypeError:
            bound(called, signature, given, options)
            raise

    return run


def signature_of(positional: dict[str, Any], keywords: dict[str, Any]) -> inspect.Signature:
    """The signature of a function with these defaults."""
    plain, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, plain, default=default) for name, default in positional.items()]
    return inspect.Signature([*parameters, *[inspect.Parameter(name, named, default=default) for name, default in keywords.items()]])


def dressed(run: Callable[..., Any], op: Op, signature: inspect.Signature, doc: str) -> Callable[..., Any]:
    """The function with the name, module, signature and docstring of the op."""
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = op.name
    run.__module__ = f"{__name__.partition('.')[0]}.{op.family}"
    run.__doc__ = doc
    return run
