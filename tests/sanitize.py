"""Small cases of every op for ``compute-sanitizer``: ``compute-sanitizer --tool memcheck python tests/sanitize.py``, likewise racecheck.

``--report-api-errors no`` leaves out the driver bindings' look-ups of functions that an older driver lacks. Exits with the sanitizer's verdict only.
"""

from __future__ import annotations

import contextlib

import cupy as cp
import numpy as np

import numba_baracuda as nb

SHAPES = (
    (1, (), 1), (3000, (), 40), (3000, (4,), 40), (700, (128,), 9), (500, (37,), 600), (257, (100,), 3), (5000, (16,), 1), (0, (8,), 300),
    (40, (6,), 5000), (2100, (3,), 90), (1500, (1,), 1500), (900, (5,), 40),
)  # fmt: skip


def run(shape: tuple[int, tuple[int, ...], int], value: type, index: type, rng: np.random.Generator) -> None:
    rows, tail, segments = shape
    ids = np.sort(rng.integers(-2, segments + 2, rows))
    x, ordered = cp.asarray(rng.standard_normal((rows, *tail)), dtype=value), cp.asarray(ids, dtype=index)
    shuffled = cp.asarray(rng.permutation(ids), dtype=index)
    for name, op in nb.OPS.items():
        function = getattr(nb, name)
        any_order = not op.traits["ordered"]
        if name.endswith("_backward"):
            function(cp.ones((segments, *tail), value), shuffled if any_order else ordered)
            continue
        function(x, shuffled if any_order else ordered, segments)
        if any_order:
            function(x, shuffled, segments, deterministic=False, empty=2.0)
        else:
            function(x, shuffled, segments)  # out of order: values are unspecified, addresses must not be
            with contextlib.suppress(nb.InvalidProblem):
                function(x, shuffled, segments, check_ids=True)


def main() -> None:
    cp.cuda.set_allocator(None)  # every array an allocation of its own, so that its bounds are seen
    rng = np.random.default_rng(0)
    for value in (cp.float32, cp.float64):
        for index in (cp.int32, cp.int64):
            for shape in SHAPES:
                run(shape, value, index, rng)
            strided = cp.asarray(rng.standard_normal((6, 5, 900)), dtype=value).transpose(2, 1, 0)[::-2]
            nb.segment_sum(strided, cp.asarray(np.sort(rng.integers(0, 20, 450)), dtype=index), 20)
    cp.cuda.Device().synchronize()
    print("every op ran")


if __name__ == "__main__":
    main()
