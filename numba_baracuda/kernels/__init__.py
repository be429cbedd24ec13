"""What the kernels of all families share: conversions, places, and how elements become states. Needs numba."""
