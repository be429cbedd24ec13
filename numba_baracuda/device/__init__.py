"""The device library: functions for kernels, the package's own and yours.

Each can be called in any ``numba.cuda.jit`` kernel, on 1-D C-contiguous arrays or pointers, and runs in the emulator too. The collectives of warps
and blocks are made by factories, called outside of kernels; :func:`emulate` launches a kernel without a GPU. ``docs/device.md`` has an overview.
"""

# fmt: off
# isort: off
from .atomics import (
    RED_MAX_FILL, RED_MIN_FILL, atomic_add, atomic_max, atomic_min, atomic_mul, red_add, red_add_2, red_add_4, red_add_8, red_add_shared, red_max,
    red_max_value, red_min, red_min_value,
)
from .bits import (
    add_bf16x2, add_f16x2, bf16_as_i16, bf16_as_u16, bf16_to_f32, bf16x2_to_f32x2, equal_bf16x2, equal_f16x2, f16_as_i16, f16_as_u16, f16_to_f32,
    f16x2_to_f32x2, f32_as_i32, f32_as_u32, f32_to_bf16, f32_to_f16, f32x2_to_bf16x2, f32x2_to_f16x2, f64_as_i64, f64_as_u64, fma_bf16x2, fma_f16x2,
    i16_as_bf16, i16_as_f16, i32_as_f32, i64_as_f64, max_bf16x2, max_f16x2, min_bf16x2, min_f16x2, mul_bf16x2, mul_f16x2, recast, u16_as_bf16,
    u16_as_f16, u32_as_f32, u64_as_f64,
)
from .block import block_reduce, block_scan
from .build import opaque, opaque_pointer
from .emulate import emulate
from .numbers import exp2_approx, log2_approx, maximum, minimum, reciprocal_approx
from .order import (
    fence, fetch_add, fetch_add_acq_rel, grid_barrier, load_acquire, load_near, load_near_2, load_relaxed, load_relaxed_2, store_relaxed,
    store_relaxed_2, store_release,
)
from .stage import await_copies, commit_copies, copy_async
from .vector import (
    LOAD, LOAD_DIRECT, LOAD_ONCE, LOAD_SHARED, LOAD_STREAM, STORE, STORE_SHARED, STORE_STREAM, aligned_span, load_1, load_1_direct, load_1_once,
    load_1_shared, load_1_stream, load_2, load_2_direct, load_2_once, load_2_shared, load_2_stream, load_4, load_4_direct, load_4_once,
    load_4_shared, load_4_stream, load_8, load_8_direct, load_8_once, load_8_shared, load_8_stream, load_16, load_16_direct, load_16_once,
    load_16_shared, load_16_stream, prefetch, store_1, store_1_shared, store_1_stream, store_2, store_2_shared, store_2_stream, store_4,
    store_4_shared, store_4_stream, store_8, store_8_shared, store_8_stream, store_16, store_16_shared, store_16_stream,
)
from .warp import segmented_warp_scan, warp_reduce, warp_scan
# isort: on

__all__ = [
    "LOAD", "LOAD_DIRECT", "LOAD_ONCE", "LOAD_SHARED", "LOAD_STREAM", "RED_MAX_FILL", "RED_MIN_FILL", "STORE", "STORE_SHARED", "STORE_STREAM",
    "add_bf16x2", "add_f16x2", "aligned_span", "atomic_add", "atomic_max", "atomic_min", "atomic_mul", "await_copies", "bf16_as_i16", "bf16_as_u16",
    "bf16_to_f32", "bf16x2_to_f32x2", "block_reduce", "block_scan", "commit_copies", "copy_async", "emulate", "equal_bf16x2", "equal_f16x2",
    "exp2_approx", "f16_as_i16", "f16_as_u16", "f16_to_f32", "f16x2_to_f32x2", "f32_as_i32", "f32_as_u32", "f32_to_bf16", "f32_to_f16",
    "f32x2_to_bf16x2", "f32x2_to_f16x2", "f64_as_i64", "f64_as_u64", "fence", "fetch_add", "fetch_add_acq_rel", "fma_bf16x2", "fma_f16x2",
    "grid_barrier", "i16_as_bf16", "i16_as_f16", "i32_as_f32", "i64_as_f64", "load_1", "load_1_direct", "load_1_once", "load_1_shared",
    "load_1_stream", "load_2", "load_2_direct", "load_2_once", "load_2_shared", "load_2_stream", "load_4", "load_4_direct", "load_4_once",
    "load_4_shared", "load_4_stream", "load_8", "load_8_direct", "load_8_once", "load_8_shared", "load_8_stream", "load_16", "load_16_direct",
    "load_16_once", "load_16_shared", "load_16_stream", "load_acquire", "load_near", "load_near_2", "load_relaxed", "load_relaxed_2", "log2_approx",
    "max_bf16x2", "max_f16x2", "maximum", "min_bf16x2", "min_f16x2", "minimum", "mul_bf16x2", "mul_f16x2", "opaque", "opaque_pointer", "prefetch",
    "recast", "reciprocal_approx", "red_add", "red_add_2", "red_add_4", "red_add_8", "red_add_shared", "red_max", "red_max_value", "red_min",
    "red_min_value", "segmented_warp_scan", "store_1", "store_1_shared", "store_1_stream", "store_2", "store_2_shared", "store_2_stream", "store_4",
    "store_4_shared", "store_4_stream", "store_8", "store_8_shared", "store_8_stream", "store_16", "store_16_shared", "store_16_stream",
    "store_relaxed", "store_relaxed_2", "store_release", "u16_as_bf16", "u16_as_f16", "u32_as_f32", "u64_as_f64", "warp_reduce", "warp_scan",
]
# fmt: on
