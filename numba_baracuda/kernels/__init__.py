"""Device functions that kernels of several families share: conversions, strided offsets, states and thread accumulators. Needs Numba."""

from .. import device  # noqa: F401 - whole, before its modules: see lazy.load
