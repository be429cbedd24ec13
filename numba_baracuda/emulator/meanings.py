"""What names mean in the emulator: the registry that ``builtins`` and the device library fill and the lowering reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: stubs of ``numba.cuda``, functions of :mod:`math` and intrinsics of the device library -> (Python function, takes lane and site)
CALLS: dict[Any, tuple[Callable[..., Any], bool]] = {}
#: intrinsics whose meaning depends on types: stub -> function of numba's signature that returns an entry as in CALLS
TYPED: dict[Any, Callable[[Any], tuple[Callable[..., Any], bool]]] = {}
#: values that are no numbers, such as ``cuda.threadIdx``, and their attributes ``(cuda.threadIdx, "x")`` -> expression on ``lane``
VALUES: dict[Any, str] = {}


def means(*stubs: Any, lane: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a Python function as the meaning of stubs; with ``lane`` it takes the lane and the source site first."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for stub in stubs:
            CALLS[stub] = function, lane
        return function

    return register


def means_by_type(*stubs: Any, lane: bool = False) -> Callable[[Callable[[Any], Callable[..., Any]]], Callable[[Any], Callable[..., Any]]]:
    """Registers a function that returns the meaning of stubs for numba's signature of a call; ``lane`` as in :func:`means`."""

    def register(make: Callable[[Any], Callable[..., Any]]) -> Callable[[Any], Callable[..., Any]]:
        for stub in stubs:
            TYPED[stub] = lambda signature: (make(signature), lane)
        return make

    return register
