"""What the kernels of all families share: conversions, places, and how elements become states. Needs numba."""

from .. import device  # noqa: F401 - whole, before its modules: see lazy.load
