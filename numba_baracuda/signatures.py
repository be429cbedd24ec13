"""Functions of ops: each has a signature and a docstring of its own, made of its row in the table."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .op import Op

#: the default of an argument that has none
NEEDED: Any = inspect.Parameter.empty
#: keywords that every function takes
CALL: dict[str, Any] = {"out": None, "stream": None, "workspace": None}


def function_of(
    op: Op, call: Callable[[tuple[Any, ...], dict[str, Any]], Any], positional: dict[str, Any], keywords: dict[str, Any], doc: str
) -> Callable[..., Any]:
    """The function of an op with these defaults of arguments by position and of keywords: ``call`` gets all of the former and of the latter."""
    signature, known, names, most = signature_of(positional, keywords), keywords.keys(), list(positional.items()), len(positional)
    optional = {name: default for name, default in keywords.items() if default is not NEEDED}
    needed = known - optional.keys()

    def run(*given: Any, **options: Any) -> Any:
        for name, default in names[len(given) :]:
            value = options.pop(name, default)
            if value is NEEDED:
                break
            given += (value,)
        if len(given) != most or not needed <= options.keys() <= known:
            bound = signature.bind(*given, **options)
            bound.apply_defaults()
            given, options = bound.args, bound.kwargs
        return call(given, {**optional, **options})

    return dressed(run, op, signature, doc)


def signature_of(positional: dict[str, Any], keywords: dict[str, Any]) -> inspect.Signature:
    """That of a function with these defaults."""
    plain, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, plain, default=default) for name, default in positional.items()]
    return inspect.Signature([*parameters, *[inspect.Parameter(name, named, default=default) for name, default in keywords.items()]])


def dressed(run: Callable[..., Any], op: Op, signature: inspect.Signature, doc: str) -> Callable[..., Any]:
    """The function itself, by the name of the op."""
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = op.name
    run.__module__ = f"{__package__}.{op.family}"
    run.__doc__ = doc
    return run
