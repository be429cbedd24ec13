"""The only door to numba: kernel factories, type inference for the emulator, and PTX to cubin for plans.

A kernel is a plain Python function made by a factory whose keywords are compile-time constants. The same function is a ``numba.cuda.jit`` dispatcher
that a user can launch on arrays, machine code for a plan (its pointers typed ``CPointer``), and the emulator's program.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from types import CodeType
from typing import Any

from numba import cuda
from numba.cuda import compiler as _compiler
from numba.cuda import dispatcher as _dispatcher  # `import numba.cuda.dispatcher` deadlocks with a thread that begins at `numba.cuda`
from numba.cuda import types
from numba.cuda.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.cuda.descriptor import cuda_target
from numba.cuda.typing import make_concrete_template, signature
from numba.cuda.utils import numba_target_override, pysignature

from ..core.lazy import load
from ..core.spec import Cubin, KernelSpec, Parameter, capability_of, check_names
from . import driver, shortcuts
from .parameters import SCALARS as SCALARS
from .parameters import parameters_of, types_of


class Kernel:
    """A kernel with its constants filled in.

    ``kernel[grid, block, stream, shared](...)`` launches it through numba on 1-D C-contiguous arrays (bfloat16 as uint16); ``parameters`` are its
    parameters by name and type, and ``kernel.ordered(...)`` puts arguments by name in their order. ``kernel.launch_config(...)`` gives grid, block
    and dynamic shared bytes; ``py_func`` is the Python function.
    """

    def __init__(self, py_func: Callable[..., None], launch_config: Callable[..., tuple[int, int, int]] | None) -> None:
        self.__name__, self.__doc__ = py_func.__name__, py_func.__doc__
        self.py_func = py_func
        self._launch_config = launch_config
        self._dispatchers: dict[int, Any] = {}

    @functools.cached_property
    def types(self) -> tuple[Any, ...]:
        """Numba types of the parameters."""
        return types_of(self.py_func)

    @functools.cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters by name."""
        return parameters_of(self.py_func)

    def ordered(self, **arguments: Any) -> tuple[Any, ...]:
        """Arguments by name in the order of the parameters; raises ``InvalidProblem`` where one is missing or unknown."""
        check_names(self.__name__, self.parameters, arguments)
        return tuple(arguments[each.name] for each in self.parameters)

    def dispatcher(self, threads: int) -> Any:
        """The ``numba.cuda.jit`` dispatcher for blocks of up to so many threads, which bounds the registers of each."""
        if threads not in self._dispatchers:
            self._dispatchers[threads] = cuda.jit(self.py_func, lto=False, launch_bounds=threads)
        return self._dispatchers[threads]

    def __getitem__(self, configuration: Any) -> Any:
        block = configuration[1]
        dispatcher = self.dispatcher(math.prod(block) if isinstance(block, tuple) else int(block))
        if len(configuration) > 3 and configuration[3]:
            return functools.partial(_launch_with_room, dispatcher, configuration)
        return dispatcher[configuration]

    def launch_config(self, *sizes: int) -> tuple[int, int, int]:
        """Blocks, threads a block and bytes of dynamic shared memory for a problem of these sizes."""
        if self._launch_config is None:
            raise NotImplementedError(f"{self.__name__} states its launch in its docstring")
        return self._launch_config(*sizes)


def _launch_with_room(dispatcher: Any, configuration: tuple[Any, ...], *arguments: Any) -> None:
    """Launches a kernel through numba with dynamic shared memory, for which it does not ask the driver: that allows 48 KiB in all."""
    specialised = dispatcher.specialize(*arguments)
    (made,) = specialised.overloads.values()
    function = made.library.get_cufunc()
    driver.allow_shared(function.handle, int(configuration[3]), cuda.current_context().device.id, function.name)
    specialised[configuration](*arguments)


def kernel(factory: Callable[..., Callable[..., None]]) -> Callable[..., Kernel]:
    """Decorates a factory: ``factory(**constants)`` then gives the one :class:`Kernel` for these constants.

    The factory returns the kernel, or the kernel and its ``launch_config``.
    """

    @functools.cache
    def make(**constants: Any) -> Kernel:
        made = factory(**constants)
        return Kernel(*made) if isinstance(made, tuple) else Kernel(made, None)

    return functools.wraps(factory)(make)


def resolve(spec: KernelSpec) -> Kernel:
    """The kernel a spec names."""
    module, _, name = spec.factory.partition(":")
    made: Kernel = getattr(load(module), name)(**dict(spec.constants))
    return made


#: by what they do, the functions that :func:`device` made
_devices: dict[Any, Any] = {}


def device(function: Any) -> Any:
    """A function that kernels call; always inlined. One of the device library may be named as ``"package.module:function"``.

    Functions of the same code that capture the same are one, so that numba infers and compiles it once, however many kernels call it. What is
    captured has its value by now. A function that allocates shared memory stays apart: its array is its own.
    """
    if isinstance(function, str):
        module, _, name = function.partition(":")
        return getattr(load(module), name)
    if hasattr(function, "py_func"):
        return function
    made = cuda.jit(device=True, forceinline=True)(function)
    if "shared" in function.__code__.co_names:
        return made
    captured = tuple(_identity(cell.cell_contents) for cell in function.__closure__ or ())
    return _devices.setdefault((function.__code__, id(function.__globals__), _identity(function.__defaults__), captured), made)


def _identity(value: Any) -> Any:
    """Equal for what numba cannot tell apart: numbers and texts of one type and value, tuples of them, and the very same object."""
    if isinstance(value, bool | int | float | str | None):
        return type(value), repr(value)
    if isinstance(value, tuple):
        return tuple(map(_identity, value))
    return id(value)


def number(kind: Any, value: float) -> Any:
    """A Python number of a numba type; an infinity becomes the least or greatest integer of an integer type."""
    if not isinstance(kind, types.Integer):
        return float(value)
    if math.isinf(value):
        return kind.maxval if value > 0 else kind.minval
    return int(value)


_real_device = _dispatcher.get_current_device


class _Assumed:
    def __init__(self, capability: tuple[int, ...]) -> None:
        self.compute_capability = capability


def _current_device() -> Any:
    """Numba asks for the current device when it types a call of a device function; while we compile for a stated architecture, that is the answer."""
    capability = shortcuts.assumed()
    return _Assumed(capability) if capability else _real_device()


_dispatcher.get_current_device = _current_device


_real_template = _dispatcher.CUDADispatcher.get_call_template


def _call_template(self: Any, arguments: Any, keywords: Any) -> Any:
    """Numba compiles a device function when it types a call of it; while we only infer types, inference of the function is enough and much faster."""
    if not shortcuts.inferring_only() or (self.py_func.__module__ or "").startswith("numba."):
        return _real_template(self, arguments, keywords)
    _, folded = self.fold_argument_types(arguments, keywords)
    return *_inferred_call(self.py_func, tuple(folded)), folded, {}


@functools.cache
def _inferred_call(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> tuple[Any, Any]:
    found = signature(infer(function, argument_types)[-1], *argument_types)
    return make_concrete_template(f"Call({function.__name__})", key=function.__name__, signatures=[found]), pysignature(function)


_dispatcher.CUDADispatcher.get_call_template = _call_template


@register_pass(mutates_CFG=False, analysis_only=True)
class _KeepTyped(FunctionPass):  # type: ignore[misc]
    """Ends a compilation with its typed IR as the result."""

    _name = "numba_baracuda_keep_typed"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.cr = (state.func_ir, state.typemap, state.calltypes, state.return_type)
        return False


#: passes that have nothing to do before type inference, or do what the emulator refuses
_IDLE = {
    "WithLifting", "RewriteDynamicRaises", "InlineInlinables", "LiteralUnroll",
    "NopythonRewrites",  # of arrays made from constants and of records
}  # fmt: skip
#: those that only functions with functions inside need
_FOR_CLOSURES = {"InlineClosureLikes", "MakeFunctionToJitFunction"}
_pipelines: dict[Any, PassManager] = {}


class _Compilation(_compiler.CUDACompiler):  # type: ignore[misc]
    """Numba's pipeline without the passes that have nothing to do; numba's own users get the whole."""

    def define_pipelines(self) -> list[Any]:
        if not shortcuts.assumed():
            return super().define_pipelines()  # type: ignore[no-any-return]
        closures = any(isinstance(constant, CodeType) for constant in self.state.func_id.code.co_consts)
        key = type(self), closures
        if key not in _pipelines:
            (whole,) = super().define_pipelines()
            idle = _IDLE if closures else _IDLE | _FOR_CLOSURES
            passes = PassManager("numba_baracuda")
            passes.passes.extend(each for each in whole.passes if each[0].__name__ not in idle)
            passes.finalize()
            _pipelines[key] = passes
        return [_pipelines[key]]


_compiler.CUDACompiler = _Compilation  # which its functions look up


class _Inference(_Compilation):
    """The same up to type inference."""

    def define_cuda_lowering_pipeline(self, state: Any) -> Any:
        passes = PassManager("numba_baracuda_inference")
        passes.add_pass(_KeepTyped, "keep the typed IR")
        passes.finalize()
        return passes


@functools.lru_cache(maxsize=256)  # a kernel is lowered at once, and with it all that it calls
def infer(function: Callable[..., Any], argument_types: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """Numba's typed IR of a function: ``(func_ir, typemap, calltypes, return_type)``. Needs no GPU and no toolchain."""
    flags = _compiler.CUDAFlags()
    flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.error_model = "numpy"
    flags.compute_capability = (9, 0)
    with _compiler.global_compiler_lock, numba_target_override(), shortcuts.assume((9, 0), inferring=True):
        typed = _compiler.compile_extra(
            cuda_target.typing_context, cuda_target.target_context, function, argument_types, None, flags, {}, pipeline_class=_Inference
        )
    return typed  # type: ignore[no-any-return]


def compile_ptx(function: Callable[..., None], argument_types: tuple[Any, ...], arch: str, bounds: Any = None) -> tuple[str, str]:
    """PTX of a kernel for these argument types, and the name of its entry; needs the toolchain but no GPU."""
    capability = capability_of(arch)
    with shortcuts.assume(capability):
        text, _ = cuda.compile_ptx(function, argument_types, cc=capability, launch_bounds=bounds)
    found = re.search(r"\.visible \.entry (\w+)", text)
    assert found is not None, f"{function.__name__}: no entry in the PTX numba made"
    return text, found.group(1)


def assemble(function: Callable[..., None], argument_types: tuple[Any, ...], arch: str, bounds: Any = None) -> Cubin:
    """Machine code of a kernel for these argument types, by numba, NVVM and nvJitLink; needs the toolchain but no GPU."""
    from cuda.core import Linker, LinkerOptions, ObjectCode

    text, entry = compile_ptx(function, argument_types, arch, bounds)
    linker = Linker(ObjectCode.from_ptx(text.encode()), options=LinkerOptions(arch=arch, ptxas_options=["-v"]))
    image = bytes(linker.link("cubin").code)
    log = linker.get_info_log()

    # numba's shared arrays are global symbols, which the linker's log leaves out
    shared = sum(map(int, re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", text)))

    def number(pattern: str) -> int:
        found = re.search(pattern, log)
        return int(found.group(1)) if found else 0

    return Cubin(
        entry,
        image,
        registers=number(r"Used (\d+) registers"),
        spills=number(r"(\d+) bytes spill stores") + number(r"(\d+) bytes spill loads"),
        stack=number(r"(\d+) bytes stack frame"),
        shared=shared,
    )


def compile_cubin(spec: KernelSpec, arch: str) -> Cubin:
    """Machine code of the kernel that a spec names."""
    bounds = (spec.max_threads, spec.min_blocks) if spec.min_blocks else spec.max_threads
    kernel = resolve(spec)
    return replace(assemble(kernel.py_func, kernel.types, arch, bounds), parameters=kernel.parameters)
