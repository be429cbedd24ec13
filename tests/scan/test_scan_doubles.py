"""Powers and logarithms of e in float64: the bits of the library's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from device_cases import everywhere, same
from numba import cuda

from numba_baracuda.scan.kernels import doubles


def mapped(run: Any, function: Any, x: Any) -> Any:
    def kernel(x, y):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            y[i] = function(x[i])

    y = np.zeros(x.size)
    run(kernel, 2, 32, x, y)
    return y


def library_exp(run: Any, x: Any) -> Any:
    def kernel(x, y):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            y[i] = math.exp(x[i])

    y = np.zeros(x.size)
    run(kernel, 2, 32, x, y)
    return y


def library_log(run: Any, x: Any) -> Any:
    def kernel(x, y):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            y[i] = math.log(x[i])

    y = np.zeros(x.size)
    run(kernel, 2, 32, x, y)
    return y


@everywhere
def test_powers_and_logarithms_have_the_bits_of_the_library(run: Any) -> None:
    """Results that are subnormal, 0 or infinite too."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-760, 720, 4001), -np.geomspace(1e-300, 1e3, 4001), [0.0, -0.0, 709.7, 709.8, -745.1, -745.2, -708.4, -708.5]])
    same(mapped(run, doubles.exp, x), library_exp(run, x))
    edges = np.array([math.inf, -math.inf, math.nan, 1e308, -1e308])
    same(mapped(run, doubles.exp, edges), np.array([math.inf, 0, math.nan, math.inf, 0]))
    below = x[x <= 0]
    same(mapped(run, doubles.small_exp, below), library_exp(run, below))
    same(mapped(run, doubles.small_exp, edges[1:3]), np.zeros(2))
    positive = np.concatenate([np.exp(rng.uniform(-700, 700, 4001)), rng.uniform(0.5, 4, 4001), [0.0, 1.0, 2.0, math.sqrt(2)]])
    same(mapped(run, doubles.log, positive), library_log(run, positive))
