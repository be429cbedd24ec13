"""Runs a user's own kernel in the package's emulator: on NumPy arrays, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.cuda import types
from numba.cuda.typing.typeof import typeof

from ..core.errors import InvalidProblem

_NAMES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64",
)  # fmt: skip


def emulate(kernel: Any, seed: int | None = None, resident: int | None = None) -> Emulation:
    """The kernel, to be launched as ``emulate(kernel)[blocks, threads](*arguments)``, or with ``[blocks, threads, stream, shared_bytes]``.

    ``kernel`` is a ``numba.cuda.jit`` dispatcher, a kernel of this package or a plain function. Arguments are 1-D C-contiguous NumPy arrays, changed
    in place, Python or NumPy numbers, and tuples of these, typed as in a launch of a kernel without a signature: a Python int is an int64. The stream
    is ignored; the call returns when the kernel has ended.

    Without a ``seed`` lanes run one after the other as far as they can. With one they are preempted at every access to memory, in an order that the
    seed decides, and a race detector watches. Both modes refuse wrong addresses, unwritten shared memory, barriers that some threads do not reach,
    deadlocks, and whatever of numba the emulator does not know. ``resident`` blocks run at a time, 4 if not given: a kernel whose blocks wait for
    each other, as at a barrier of the grid, wants all of its blocks. Raises :class:`InvalidProblem` for a kernel, an argument or a configuration that
    is none.
    """
    if getattr(kernel, "targetoptions", {}).get("device"):
        raise InvalidProblem(f"emulate: kernel is the device function {kernel.__name__}, wants a kernel")
    function = getattr(kernel, "py_func", kernel)
    if not callable(function):
        raise InvalidProblem(f"emulate: kernel is {kernel!r}, wants a kernel made by numba.cuda.jit, or its function")
    if resident is not None and not (isinstance(resident, int) and resident > 0):
        raise InvalidProblem(f"emulate: resident is {resident!r}, wants a number of blocks")
    return Emulation(function, seed, resident)


class Emulation:
    """A kernel in the emulator; see :func:`emulate`."""

    def __init__(self, function: Callable[..., None], seed: int | None, resident: int | None) -> None:
        self.function, self.seed, self.resident = function, seed, resident

    def __getitem__(self, configuration: Any) -> Callable[..., None]:
        """A launch of this many blocks and threads."""
        if not isinstance(configuration, tuple) or not 2 <= len(configuration) <= 4:
            wants = "[blocks, threads] or [blocks, threads, stream, shared_bytes]"
            raise InvalidProblem(f"emulate: the configuration is {configuration!r}, wants {wants}")
        blocks, threads = _extent("blocks", configuration[0], 2**31 - 1), _extent("threads", configuration[1], 1024)
        shared_bytes = configuration[3] if len(configuration) == 4 else 0
        if not isinstance(shared_bytes, int) or shared_bytes < 0:
            raise InvalidProblem(f"emulate: shared_bytes is {shared_bytes!r}, wants a number of bytes")

        def launch(*arguments: Any) -> None:
            from ..emulator import emulator  # here, so that the device library alone does not load the emulator

            mode = emulator.Mode(self.seed) if self.resident is None else emulator.Mode(self.seed, self.resident)
            kinds = tuple(_type_of(f"argument {k}", argument) for k, argument in enumerate(arguments))
            emulator.run(self.function, kinds, blocks, threads, arguments, dynamic_shared=shared_bytes, mode=mode)

        return launch


def _extent(name: str, given: Any, most: int) -> int:
    """A number of blocks or threads."""
    first, *rest = given if isinstance(given, tuple) and given else (given,)
    if any(each != 1 for each in rest) or isinstance(first, float) or first not in range(1, most + 1):
        raise InvalidProblem(f"emulate: {name} is {given!r}, wants one dimension, of 1 to {most}")
    return int(first)


def _type_of(name: str, value: Any) -> Any:
    """The numba type of an argument."""
    if isinstance(value, tuple) and value:
        return types.BaseTuple.from_types([_type_of(name, item) for item in value])
    if isinstance(value, np.ndarray):
        if value.dtype.name not in (*_NAMES, "bfloat16") or not value.dtype.isnative:
            raise InvalidProblem(f"emulate: {name} is an array of {value.dtype}, wants one of {', '.join(_NAMES)}, bfloat16")
        if value.ndim != 1 or not value.flags.c_contiguous:
            raise InvalidProblem(
                f"emulate: {name} has shape {value.shape} and strides {value.strides}, wants a 1-D C-contiguous array: x.reshape(-1)"
            )
        if value.dtype.name == "bfloat16":
            return types.Array(types.bfloat16, 1, "C", readonly=not value.flags.writeable)
    elif not isinstance(value, bool | int | float | np.generic) or np.dtype(type(value)).name not in _NAMES:
        raise InvalidProblem(f"emulate: {name} is {_described(value)}, wants a NumPy array or a number")
    return typeof(value)


def _described(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else repr(value)
