"""Memos of results that numba computes again at every use of a function. They are active only while this package infers types or compiles."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from numba.cuda import types
from numba.cuda.core import interpreter as _interpreter
from numba.cuda.core.byteflow import Flow
from numba.cuda.core.postproc import PostProcessor, VariableLifetime
from numba.cuda.core.transforms import canonicalize_cfg
from numba.cuda.descriptor import cuda_target

_assumed = threading.local()
_typing_context = cuda_target.typing_context
_real_resolve, _real_process = _typing_context.resolve_function_type, PostProcessor.run
_resolved: dict[Any, Any] = {}
_flows: dict[Any, tuple[Any, Any]] = {}


@contextlib.contextmanager
def assume(capability: tuple[int, ...], *, inferring: bool = False) -> Iterator[None]:
    """Inside the block this thread compiles for a stated architecture, or only infers types."""
    before = assumed(), inferring_only()
    _assumed.capability, _assumed.inferring = capability, inferring
    try:
        yield
    finally:
        _assumed.capability, _assumed.inferring = before


def assumed() -> Any:
    """The compute capability that this package compiles for in this thread; None outside of :func:`assume`."""
    return getattr(_assumed, "capability", None)


def inferring_only() -> bool:
    return getattr(_assumed, "inferring", False)


def _resolve_function_type(function: Any, arguments: Any, keywords: Any) -> Any:
    """A memo of the search through all definitions of an operator or a built-in function."""
    builtin = isinstance(function, types.Function) or not isinstance(function, types.Type)
    if not (assumed() and builtin and not keywords and all(isinstance(given, types.Type) for given in arguments)):
        return _real_resolve(function, arguments, keywords)  # numba may pass a constant index as a value
    key = function, tuple(arguments), inferring_only()
    found = _resolved.get(key)
    if found is None:
        found = _resolved[key] = _real_resolve(function, arguments, keywords)
    return found


class _KeptFlow(Flow):  # type: ignore[misc]
    """A memo of the flow analysis of bytecode, which is the same for all closures of one function."""

    def run(self) -> None:
        code = self._bytecode.func_id.code
        if assumed() and code in _flows:
            self.block_infos, self.cfgraph = _flows[code]
            return
        super().run()
        if assumed():
            _flows[code] = self.block_infos, self.cfgraph


def _process(self: Any, emit_dels: bool = False, extend_lifetimes: bool = False) -> None:
    """Leaves out the variables' lifetimes, which numba recomputes after several passes: only the pass that emits ``del`` needs them."""
    if not assumed() or emit_dels or self.func_ir.is_generator:
        _real_process(self, emit_dels, extend_lifetimes)
        return
    self.func_ir.blocks = canonicalize_cfg(self.func_ir.blocks)
    self.func_ir.variable_lifetime, self.func_ir.generator_info = VariableLifetime(self.func_ir.blocks), None


_typing_context.resolve_function_type = _resolve_function_type
_interpreter.Flow = _KeptFlow
PostProcessor.run = _process
