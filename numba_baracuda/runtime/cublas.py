"""Matrix products by the lower layer of cuBLAS, which needs no framework. CuPy's wrappers refuse a stream that is being captured.

Between calls this module keeps descriptors and algorithms, and no device memory. The workspace is the caller's, so that a captured product owns no
memory and equal calls give equal bits.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..core.dtypes import BY_NAME, numpy_dtype
from ..core.errors import KernelLaunchError
from . import driver, libraries
from .launch import uncaptured

if TYPE_CHECKING:
    from ..core.op import Gemm, Matrix, Target

#: cudaDataType_t, and cublasComputeType_t by the accumulator
_TYPES, _COMPUTE = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}, {"f32": 68, "f64": 70}
_HALVES, _HOPPER = (2, 14), (9, 0)
#: attributes of cublasLtMatmulDesc_t, cublasLtMatmulPreference_t and cublasLtMatmulAlgo_t
_POINTER_MODE, _TRANSPOSE_A, _TRANSPOSE_B = 2, 3, 4
_WORKSPACE, _ALIGNMENTS = 1, (5, 6, 7, 8)
_TILE, _SPLIT = 1, 2
#: algorithms that cuBLAS is asked to propose
_PROPOSALS = 8
#: bytes; a workspace begins at a multiple of them, so it has to be as many bytes larger
WORKSPACE_ALIGNMENT = 256
_STATUS = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    (_NOT_SUPPORTED := 15): "NOT_SUPPORTED",
}
#: cublasLtMatmulTile_t of tiles of which two are resident on a multiprocessor of a Hopper card: 176 x 128 and 128 x 176, then 168, 160, 152, 144, 128
_PAIRED = (201, 409, 197, 408, 30, 29, 189, 407, 184, 406, 20)
#: a product is large from so many waves of tiles on, by the first proposal; sums are short, and stores much of the work, up to so many terms
_MANY_ROUNDS, _SHORT_SUMS = 10.0, 4096


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class Tiling(NamedTuple):
    """How an algorithm tiles a product: its cublasLtMatmulTile_t, the number of parts that each sum is split into (split-K), and waves of tiles."""

    tile: int
    parts: int
    rounds: float


def choose(found: Sequence[Tiling], inner: int) -> int:
    """The index of the algorithm to use, of those that cuBLAS proposes for halves, best first, on a Hopper card for sums of ``inner`` terms.

    cuBLAS puts large tiles first, of which one is resident on a multiprocessor: nothing is multiplied while its result is read and written. With two
    smaller tiles, one is written while the other is multiplied. Where sums are short and tiles many, that takes up to a quarter less time.
    """
    if found[0].rounds >= _MANY_ROUNDS and inner <= _SHORT_SUMS:
        paired = [k for k, each in enumerate(found) if each.tile in _PAIRED and each.parts == 1]
        return min(paired, key=lambda k: _PAIRED.index(found[k].tile), default=0)
    return 0


@functools.cache
def _library() -> Any:
    """The lower layer of cuBLAS: one that torch or CuPy has loaded, else where :mod:`.libraries` finds it."""
    found = ctypes.CDLL(libraries.served(libraries.load("cublasLt")).path)
    pointer, number, size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
    made_of = {"MatmulDesc": (number, number), "MatrixLayout": (number, *[ctypes.c_uint64] * 2, ctypes.c_int64), "MatmulPreference": ()}
    for kind, arguments in made_of.items():
        getattr(found, f"cublasLt{kind}Create").argtypes = (pointer, *arguments)
        getattr(found, f"cublasLt{kind}Destroy").argtypes = (pointer,)
        getattr(found, f"cublasLt{kind}SetAttribute").argtypes = (pointer, number, pointer, size)
    found.cublasLtMatmulAlgoGetHeuristic.argtypes = (*[pointer] * 7, number, pointer, pointer)
    found.cublasLtMatmulAlgoConfigGetAttribute.argtypes = (pointer, number, pointer, size, pointer)
    found.cublasLtMatmul.argtypes = (*[pointer] * 14, size, pointer)
    return found


def _check(status: int, what: str) -> None:
    if status:
        raise KernelLaunchError(f"{what}: CUBLAS_STATUS_{_STATUS.get(status, status)}", status)


@functools.cache
def _handle(device: int) -> Any:
    """A device's handle. It has no settings, so all threads share it."""
    handle = ctypes.c_void_p()
    with driver.on_device(device), uncaptured():
        _check(_library().cublasLtCreate(ctypes.byref(handle)), "cublasLtCreate")
    return handle


class _Description:
    """A cuBLAS descriptor of a matrix, a product or a preference, which is destroyed with this object."""

    def __init__(self, kind: str, *arguments: int) -> None:
        library, self._kind, self.handle = _library(), kind, ctypes.c_void_p()
        _check(getattr(library, f"cublasLt{kind}Create")(ctypes.byref(self.handle), *arguments), f"cublasLt{kind}Create")
        weakref.finalize(self, getattr(library, f"cublasLt{kind}Destroy"), self.handle).atexit = False

    def set(self, attribute: int, value: Any) -> None:
        """Sets an attribute to a ctypes number."""
        name = f"cublasLt{self._kind}SetAttribute"
        _check(getattr(_library(), name)(self.handle, attribute, ctypes.byref(value), ctypes.sizeof(value)), name)


@dataclass(frozen=True)
class _Form:
    """A column-major matrix: cudaDataType_t, rows, columns, elements from one column to the next, and bytes that its address is a multiple of."""

    kind: int
    rows: int
    columns: int
    stride: int
    alignment: int


@dataclass(frozen=True)
class _Algorithm:
    """The descriptors of a product and its matrices, and the algorithm."""

    product: _Description
    matrices: tuple[_Description, ...]
    proposal: _Proposal


@functools.lru_cache(1024)
def _algorithm(
    device: int, capability: tuple[int, int], compute: str, transposed: tuple[bool, bool], forms: tuple[_Form, _Form, _Form],
    on_device: bool, room: int,
) -> _Algorithm:  # fmt: skip
    """The algorithm for a product of such matrices on a device, with ``room`` bytes of workspace; ``on_device``: its scalars are there."""
    library, handle = _library(), _handle(device)
    with driver.on_device(device), uncaptured():
        product = _Description("MatmulDesc", _COMPUTE[compute], _TYPES[compute])
        for attribute, number in ((_POINTER_MODE, on_device), (_TRANSPOSE_A, transposed[0]), (_TRANSPOSE_B, transposed[1])):
            product.set(attribute, ctypes.c_int32(number))
        matrices = tuple(_Description("MatrixLayout", form.kind, form.rows, form.columns, form.stride) for form in forms)
        wanted = _Description("MatmulPreference")
        wanted.set(_WORKSPACE, ctypes.c_uint64(room))
        for attribute, form in zip(_ALIGNMENTS, (*forms, forms[2]), strict=True):
            wanted.set(attribute, ctypes.c_uint32(form.alignment))
        found, count = (_Proposal * _PROPOSALS)(), ctypes.c_int()
        descriptors = [each.handle for each in (product, *matrices, matrices[2], wanted)]
        status = library.cublasLtMatmulAlgoGetHeuristic(handle, *descriptors, _PROPOSALS, found, ctypes.byref(count))
        proposals = [each for each in found[: count.value] if each.state == 0]
        _check(status or (0 if proposals else _NOT_SUPPORTED), f"cublasLtMatmulAlgoGetHeuristic of {forms}")
        inner, judged = forms[0].rows if transposed[0] else forms[0].columns, capability == _HOPPER and forms[0].kind in _HALVES
        return _Algorithm(product, matrices, proposals[choose([_tiling(each) for each in proposals], inner) if judged else 0])


def _tiling(proposal: _Proposal) -> Tiling:
    got = []
    for attribute in (_TILE, _SPLIT):
        value, written = ctypes.c_uint32(), ctypes.c_size_t()
        _library().cublasLtMatmulAlgoConfigGetAttribute(
            ctypes.addressof(proposal), attribute, ctypes.byref(value), ctypes.sizeof(value), ctypes.byref(written)
        )
        got.append(value.value)
    return Tiling(got[0], max(got[1], 1), proposal.waves)


def product(step: Gemm, room: int, device: int, target: Target) -> Callable[..., None]:
    """``queue(stream, a, b, c, workspace[, alpha, beta])`` for addresses, with ``room`` bytes of workspace."""
    several = driver.device_count() > 1
    compute = BY_NAME[step.a.element].accumulator
    on_device = isinstance(step.alpha, str)
    scalars = np.array([0.0, 0.0] if on_device else [step.alpha, step.beta], numpy_dtype(compute))
    alpha, beta = scalars.ctypes.data, scalars.ctypes.data + scalars.itemsize
    # cuBLAS is column-major, and reads a row-major matrix as its transpose: cᵀ = b'ᵀ a'ᵀ
    matrices, transposed, room = (step.b, step.a, step.c), (step.transpose_b, step.transpose_a), room - WORKSPACE_ALIGNMENT
    (b_form, b_first), (a_form, a_first), (c_form, c_first) = map(_described, matrices)
    found = _algorithm(device, target.capability, compute, transposed, (b_form, a_form, c_form), on_device, room)
    call, handle, algorithm = _library().cublasLtMatmul, _handle(device), ctypes.addressof(found.proposal)
    described, (b_is, a_is, c_is) = found.product.handle, [each.handle for each in found.matrices]

    def queue(stream: int, a: int, b: int, c: int, workspace: int, alpha: int = alpha, beta: int = beta) -> None:
        if several and not driver.is_current(device):
            with driver.on_device(device):
                return queue(stream, a, b, c, workspace, alpha, beta)
        first, second, sums, start = b + b_first, a + a_first, c + c_first, aligned(workspace)
        status = call(handle, described, alpha, first, b_is, second, a_is, beta, sums, c_is, sums, c_is, algorithm, start, room, stream)
        _check(status, f"cublasLtMatmul of {step.c.rows} x {step.c.columns}")

    queue.kept = scalars, found  # type: ignore[attr-defined]  # the addresses live as long as the function
    return queue


def aligned(address: int) -> int:
    """The first address, this one or above, at which a workspace may begin."""
    return -(-address // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT


def _described(matrix: Matrix) -> tuple[_Form, int]:
    """A matrix's form, and the bytes from the start of its operand or slot to its first element."""
    first = matrix.offset * BY_NAME[matrix.element].itemsize
    offset = (matrix.address + first) % 16 or 16
    return _Form(_TYPES[matrix.element], matrix.columns, matrix.rows, max(matrix.stride, matrix.columns, 1), offset & -offset), first
