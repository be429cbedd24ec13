"""Checks of every op on a device: it writes its result and nothing else, and gives the same bits in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def check_only_the_result_is_written(call: Callable[[dict[str, Any], Any], Any], given: dict[str, Any], shape: tuple[int, ...]) -> None:
    """``call(operands, out)`` writes all of ``out``, a view between other rows, and nothing else."""
    import cupy

    whole = cupy.full((shape[0] + 8, shape[1]), np.nan, np.float32)
    inputs = {name: cupy.asarray(array) for name, array in given.items()}
    call(inputs, whole[4:-4])
    assert bool(cupy.isnan(whole[:4]).all()) and bool(cupy.isnan(whole[-4:]).all()) and not bool(cupy.isnan(whole[4:-4]).any())
    for name, array in given.items():
        np.testing.assert_array_equal(cupy.asnumpy(inputs[name]), array, err_msg=f"{name} was written")


def check_graph(plan: Any, given: dict[str, Any], shape: tuple[int, ...]) -> None:
    """A captured plan for float32 gives the same bits as the plan, at every launch of the graph."""
    import cupy

    out, workspace = cupy.full(shape, np.nan, np.float32), cupy.empty(max(plan.workspace_size, 16), np.uint8)
    operands = {name: cupy.asarray(array) for name, array in given.items()} | {plan.op.operands[-1].name: out}
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    plan.run(stream=stream, workspace=workspace, **operands)
    stream.synchronize()
    once = out.copy()
    with stream:
        stream.begin_capture()
        plan.run(stream=stream, workspace=workspace, **operands)
        graph = stream.end_capture()
    for _ in range(3):
        out[...] = np.nan
        cupy.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        assert bool((out.view(np.int32) == once.view(np.int32)).all())
