"""The loss of classes that are divided among ranks, which are threads, against that of one process and against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from loss_reference import assert_close, wanted

import numba_baracuda as nb
from numba_baracuda import distributed
from numba_baracuda.distributed import InProcessCommunicator

#: how many of 70 classes each rank has
SHARDS: dict[str, list[int]] = {"even": [35, 35], "uneven": [24, 24, 22], "empty": [0, 64, 6], "one class each at the ends": [1, 68, 1]}
RETURNED = ("lse", "z_loss", "accuracy", "predicted", "entropy")


def parallel(x: Any, w: Any, target: Any, sizes: list[int], **options: Any) -> list[Any]:
    """The results of all ranks."""
    ends = np.cumsum([0, *sizes])

    def work(comm: InProcessCommunicator) -> Any:
        own = slice(ends[comm.rank], ends[comm.rank + 1])
        given = options | ({"bias": options["bias"][own].copy()} if "bias" in options else {})
        return distributed.fused_linear_cross_entropy(x.copy(), w[own].copy(), target.copy(), group=comm, **given)

    made = InProcessCommunicator.run(len(sizes), work)
    for each in made:
        if isinstance(each, BaseException):
            raise each
    return made


def check(x: Any, w: Any, target: Any, value: str, sizes: list[int], chunk: Any = 8, **options: Any) -> None:
    """Every result against the reference, and all ranks against each other, bit by bit."""
    gradients = dict.fromkeys(("grad_input", "grad_weight", *(("grad_bias",) if "bias" in options else ())), True)
    asked = {f"return_{name}": True for name in RETURNED}
    made = parallel(x, w, target, sizes, chunk=chunk, **options, **gradients, **asked)
    right, single = wanted(x, w, target, **options), nb.fused_linear_cross_entropy(x, w, target, chunk=chunk, **options, **asked)
    for each in made:
        assert_close(each.loss, right, "out", value, x.shape[1])
        assert_close(each.grad_input, right, "grad_input", value, max(x.shape[0], w.shape[0]))
        for name in RETURNED:
            np.testing.assert_allclose(getattr(each, name), getattr(single, name), rtol=1e-5, atol=1e-7)
        for name in ("loss", "grad_input", *RETURNED):
            assert getattr(each, name).tobytes() == getattr(made[0], name).tobytes(), f"{name} differs between ranks"
    for name in gradients:
        if name != "grad_input":
            whole = np.concatenate([getattr(each, name) for each in made])
            assert_close(whole, right, name, value, max(x.shape[0], w.shape[0]))
