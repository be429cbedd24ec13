"""Matrix products by cuBLAS: the library that CuPy has loaded, called without CuPy's wrappers, which refuse a stream that is being captured.

A thread has a handle of its own for each device. Its workspace is the caller's, so that a captured product owns no memory and equal calls give equal
bits.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import INSTALL_CUPY
from ..dtypes import BY_NAME, numpy_dtype
from ..errors import KernelLaunchError, Unsupported
from . import driver
from .launch import uncaptured

if TYPE_CHECKING:
    from ..op import Gemm, Matrix

#: cudaDataType_t, cublasComputeType_t by the accumulator, cublasOperation_t by whether a matrix is transposed
_TYPES, _COMPUTE, _OPERATIONS = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}, {"f32": 68, "f64": 70}, (0, 1)
_HOST, _DEVICE, _DEFAULT_ALGORITHM = 0, 1, -1
#: bytes that a workspace begins at a multiple of, and that one has to be larger for it
WORKSPACE_ALIGNMENT = 256
_STATUS = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
}


@functools.cache
def _library() -> Any:
    """The cuBLAS that CuPy runs on."""
    try:
        import cupy
        from cupy_backends.cuda.libs import cublas  # noqa: F401 - loads the library, wherever it was installed
    except ImportError as error:
        raise Unsupported(f"matrix products want the cuBLAS that CuPy brings ({error}): {INSTALL_CUPY}") from error
    name = f"libcublas.so.{cupy.cuda.runtime.runtimeGetVersion() // 1000}"
    try:
        found = ctypes.CDLL(name)
    except OSError as error:
        raise Unsupported(f"matrix products want {name}, which cannot be loaded: {error}") from error
    pointer, number = ctypes.c_void_p, ctypes.c_int
    matrix = (pointer, number, number)
    found.cublasGemmEx.argtypes = (pointer, *[number] * 5, pointer, *matrix, *matrix, pointer, *matrix, number, number)
    found.cublasSetStream_v2.argtypes = (pointer, pointer)
    found.cublasSetWorkspace_v2.argtypes = (pointer, pointer, ctypes.c_size_t)
    found.cublasSetPointerMode_v2.argtypes = (pointer, number)
    return found


def _check(status: int, what: str) -> None:
    if status:
        raise KernelLaunchError(f"{what}: CUBLAS_STATUS_{_STATUS.get(status, status)}", status)


class _Handles(threading.local):
    """A thread's handles by device, each with what it was last told: stream, workspace and where scalars are."""

    def __init__(self) -> None:
        self.of_device: dict[int, Any] = {}


_handles = _Handles()


def _handle(device: int) -> Any:
    found = _handles.of_device.get(device)
    if found is None:
        handle = ctypes.c_void_p()
        with driver.on_device(device), uncaptured():
            _check(_library().cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
        found = _handles.of_device[device] = handle
    return found


def product(step: Gemm, room: int, device: int) -> Callable[..., None]:
    """``queue(stream, a, b, c, workspace[, alpha, beta])`` for addresses, with ``room`` bytes of workspace."""
    library, several = _library(), driver.device_count() > 1
    compute = BY_NAME[step.a.element].accumulator
    held = isinstance(step.alpha, str)
    scalars = np.array([0.0, 0.0] if held else [step.alpha, step.beta], numpy_dtype(compute))
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    inner = step.a.rows if step.transpose_a else step.a.columns
    # cuBLAS counts by columns, where a matrix of rows is its own transpose: cᵀ = b'ᵀ a'ᵀ
    shape = (_OPERATIONS[step.transpose_b], _OPERATIONS[step.transpose_a], step.c.columns, step.c.rows, inner)
    (a_first, *a_form), (b_first, *b_form), (c_first, *c_form) = map(_described, (step.a, step.b, step.c))

    def queue(stream: int, a: int, b: int, c: int, workspace: int, alpha: int = alpha, beta: int = beta) -> None:
        if several and not driver.is_current(device):
            with driver.on_device(device):
                return queue(stream, a, b, c, workspace, alpha, beta)
        handle = _handle(device)
        _check(library.cublasSetStream_v2(handle, stream), "cublasSetStream")  # takes the workspace away
        _check(library.cublasSetWorkspace_v2(handle, aligned(workspace), room - WORKSPACE_ALIGNMENT), "cublasSetWorkspace")
        _check(library.cublasSetPointerMode_v2(handle, _DEVICE if held else _HOST), "cublasSetPointerMode")
        status = library.cublasGemmEx(
            handle, *shape, alpha, b + b_first, *b_form, a + a_first, *a_form, beta, c + c_first, *c_form, _COMPUTE[compute], _DEFAULT_ALGORITHM
        )
        _check(status, f"cublasGemmEx of {step.c.rows} x {step.c.columns} x {inner}")

    queue.scalars = scalars  # type: ignore[attr-defined]  # the addresses live as long as the function
    return queue


def aligned(address: int) -> int:
    """The first address from this one on at which a workspace may begin."""
    return -(-address // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def _described(matrix: Matrix) -> tuple[int, int, int]:
    """Bytes to the first element, element type, and elements from row to row."""
    return matrix.offset * BY_NAME[matrix.element].itemsize, _TYPES[matrix.element], max(matrix.stride, matrix.columns, 1)
