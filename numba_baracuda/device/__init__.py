"""The device library: functions for kernels, the package's own and yours.

Each can be called in any ``numba.cuda.jit`` kernel, on 1-D C-contiguous arrays or pointers, and runs in the emulator too.
"""

from .atomics import red_add, red_add_4, red_min
from .vector import load_1, load_1_once, load_2, load_2_once, load_4, load_4_once, load_8, load_8_once, store_1, store_2, store_4, store_8

__all__ = [
    "load_1", "load_1_once", "load_2", "load_2_once", "load_4", "load_4_once", "load_8", "load_8_once", "red_add", "red_add_4", "red_min",
    "store_1", "store_2", "store_4", "store_8",
]  # fmt: skip
