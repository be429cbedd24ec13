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
    plain, named = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter(name, plain, default=default) for name, default in positional.items()]
    parameters += [inspect.Parameter(name, named, default=default) for name, default in keywords.items()]
    signature, known, most, rest = inspect.Signature(parameters), keywords.keys(), len(positional), tuple(positional.values())
    least = sum(default is NEEDED for default in rest)
    optional = {name: default for name, default in keywords.items() if default is not NEEDED}
    needed = known - optional.keys()

    def run(*given: Any, **options: Any) -> Any:
        if least <= len(given) < most and options.keys() <= known:
            given += rest[len(given) :]
        if len(given) != most or not needed <= options.keys() <= known:
            bound = signature.bind(*given, **options)
            bound.apply_defaults()
            given, options = bound.args, bound.kwargs
        return call(given, {**optional, **options})

    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__ = run.__qualname__ = op.name
    run.__module__ = f"{__package__}.{op.family}"
    run.__doc__ = doc
    return run
