"""Powers and logarithms of e in float64, beside NumPy's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from device_cases import everywhere, same
from numba import cuda

from numba_baracuda.device import doubles


def mapped(run: Any, function: Any, x: Any) -> Any:
    def kernel(x, y):
        for i in range(cuda.grid(1), x.size, cuda.gridsize(1)):
            y[i] = function(x[i])

    y = np.zeros(x.size)
    run(kernel, 2, 32, x, y)
    return y


def assert_near(got: Any, wanted: Any) -> None:
    """Off by less than 1 ulp, and half an ulp for what is wanted in float64."""
    finite = np.isfinite(wanted)
    same(got[~finite], wanted[~finite])
    assert (np.abs(got - wanted)[finite] <= 1.5 * np.spacing(np.abs(wanted[finite]))).all()


@everywhere
def test_powers_and_logarithms(run: Any) -> None:
    """Results that are subnormal, 0 or infinite too."""
    rng = np.random.default_rng(3)
    x = np.concatenate([rng.uniform(-744, 720, 4001), -np.geomspace(1e-300, 740, 4001), [0.0, -0.0, 709.7, 709.8, -708.4, -708.5]])
    with np.errstate(over="ignore"):
        assert_near(mapped(run, doubles.exp, x), np.exp(x))
    edges = np.array([math.inf, -math.inf, math.nan, 1e308, -1e308, -746.0])
    same(mapped(run, doubles.exp, edges), np.array([math.inf, 0, math.nan, math.inf, 0, 0]))
    # the sign of NaN is any, and one word of it may be that of an infinity
    nans = np.array([0x7FF8 << 48, 0xFFF8 << 48, (0xFFF << 52) + 1, (0x7FF << 52) + 1], np.uint64).view(np.float64)
    assert np.isnan(mapped(run, doubles.exp, nans)).all()
    below = x[x <= 0]
    assert_near(mapped(run, doubles.small_exp, below), np.exp(below))
    same(mapped(run, doubles.small_exp, edges[1:3]), np.zeros(2))
    positive = np.concatenate([np.exp(rng.uniform(-700, 700, 4001)), rng.uniform(0.5, 4, 4001), [1.0, 2.0, math.sqrt(2), math.nextafter(1, 2)]])
    assert_near(mapped(run, doubles.log, positive), np.log(positive))
    same(mapped(run, doubles.log, np.zeros(1)), np.array([-math.inf]))
