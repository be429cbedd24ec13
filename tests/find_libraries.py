"""Finds and opens every shared library that ops load, in the environment it runs in: ``python find_libraries.py``. Exit status 1 if one is missing.

Without a driver, the driver's own library and those that link to it are only searched for, not opened.
"""

from __future__ import annotations

import ctypes
import os
import sys

from numba_baracuda.core.errors import Unsupported
from numba_baracuda.runtime import libraries


def problems() -> list[str]:
    """A line for each missing library; prints where the others are."""
    wrong = []
    for name in libraries.LIBRARIES:
        try:
            found = libraries.load(name)
        except Unsupported as error:
            if name != "cuda":
                wrong.append(str(error))
            continue
        try:
            ctypes.CDLL(found.path, os.RTLD_NOW)
        except OSError as error:
            if "libcuda.so" not in str(error):
                wrong.append(f"lib{name}: {error}")
        print(f"lib{name}: {found.path} ({found.how})")
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(problems()) or 0)
