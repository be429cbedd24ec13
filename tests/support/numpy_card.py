"""NumPy with what the benchmark harness asks of CuPy beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np


class Xp:
    """A device of 1 GiB that is NumPy."""

    __name__ = "numpy"
    cuda = SimpleNamespace(Device=lambda: SimpleNamespace(synchronize=lambda: None), runtime=SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 30)))

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    def get_default_memory_pool(self) -> Any:
        return SimpleNamespace(free_bytes=lambda: 0)
