"""What the kernels of all families share: conversions, places, states of folds, and what a gradient makes of them. Needs numba."""
