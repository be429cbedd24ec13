"""Processes made by ``os.fork``: the emulator works in them, and CUDA that the parent has started is refused with the way out."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: A driver that answers like one that has been forked: ``cuda.bindings`` is CUDA's own, without its library.
FAKE = """
    import os, sys, types

    parent = os.getpid()
    alive = lambda *values: (0, *values) if os.getpid() == parent else (3, *[None] * len(values))
    driver = types.ModuleType("cuda.bindings.driver")
    driver.cuInit = lambda flags: alive()
    driver.cuDeviceGetCount = lambda: alive(1)
    driver.cuCtxGetCurrent = lambda: alive(1)
    driver.cuCtxGetDevice = lambda: alive(0)
    driver.cuDeviceGet = lambda device: alive(device)
    driver.cuLaunchKernel = lambda *arguments: alive()
    driver.cuMemAllocAsync = lambda *arguments: alive(4096)
    driver.CUfunction = driver.CUstream = lambda handle: handle
    for name in ("cuda", "cuda.bindings"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["cuda.bindings"].driver = driver
"""
CHILD = """
    def in_child(work):
        "What the child prints; its exceptions, too."
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                said = work()
            except BaseException as error:
                said = f"{[base.__name__ for base in type(error).__mro__]} {error}"
            os.write(write, str(said).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            said = pipe.read()
        assert os.waitpid(child, 0)[1] == 0
        return said
"""
REFUSED = "BaracudaError", "RuntimeError", "forked from one that had started CUDA", "multiprocessing.get_context('spawn')"


def run(*parts: str, **environment: str) -> str:
    script = "\n".join(map(textwrap.dedent, parts))
    variables = {name: value for name, value in os.environ.items() if name != "NUMBA_BARACUDA_EMULATE"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], env=variables | environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "use",
    [
        "arrays.read(Array(), ('reduce_sum', 'x', ''))",
        "nb.select(descriptor)",
        "driver.device_count()",
        "driver.ensure_context(0)",
        "launch.queue(0, (4096,), 1)",
        "driver.alloc_async(16, 0)",
    ],
)
def test_cuda_after_a_fork_is_refused(use: str) -> None:
    """Of all that an op does with the driver, whatever the parent has ready."""
    before = """
        import numba_baracuda as nb
        from numba_baracuda.arrays import arrays
        from numba_baracuda.runtime import driver
        from numba_baracuda.runtime.launch import Kernel, Launch
        from numba_baracuda.core.spec import Cubin

        class Array:
            __cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (4096, False), "strides": None, "version": 3}

        assert not arrays.emulating() and arrays.read(Array(), ("reduce_sum", "x", "")).ptr == 4096
        kernel = Kernel(Cubin("entry", b"", 1, 0, 0, 0), 1)
        kernel._ready.add(0)
        launch = Launch(kernel, "*f32", 32)
        launch.queue(0, (4096,), 1)
        descriptor = nb.SegmentDescriptor("segment_sum", 4, 3, 2)
    """
    said = run(FAKE, CHILD, before, f"print(in_child(lambda: {use}))\nlaunch.queue(0, (4096,), 1)")
    for part in REFUSED:
        assert part in said


def test_cuda_that_another_library_had_started_is_refused() -> None:
    said = run(FAKE, CHILD, "import numba_baracuda\nfrom numba_baracuda.arrays import arrays\nprint(in_child(arrays.emulating))")
    for part in REFUSED:
        assert part in said


def test_freeing_in_the_child_is_nothing() -> None:
    said = run(FAKE, CHILD, "from numba_baracuda.runtime import driver\ndriver.bindings()\nprint(in_child(lambda: driver.free_async(4096, 0)))")
    assert said == "None\n"


@pytest.mark.parametrize("used", ["", "total()"], ids=["fresh", "used"])
def test_the_emulator_works_after_a_fork(used: str) -> None:
    work = f"""
        import numpy as np
        import numba_baracuda as nb

        def total():
            return nb.reduce_sum(np.arange(6, dtype="f4").reshape(2, 3), axis=1).ravel().tolist()

        {used}
        print(in_child(total), total())
    """
    assert run("import os", CHILD, work, NUMBA_BARACUDA_EMULATE="1") == "[3.0, 12.0] [3.0, 12.0]\n"


def test_the_emulator_works_where_a_thread_was_compiling() -> None:
    """Nothing that the thread held is held in the child."""
    work = """
        import threading, time
        import numpy as np
        import numba_baracuda as nb
        from numba_baracuda.emulator import program

        x = np.arange(6, dtype="f4").reshape(2, 3)
        thread = threading.Thread(target=lambda: nb.reduce_logsumexp(x, axis=1))
        thread.start()
        while program._lock.acquire(blocking=False):
            program._lock.release()
            time.sleep(1e-4)
        print(in_child(lambda: nb.cumsum(x, axis=1)[:, -1].tolist()))
        thread.join()
    """
    assert run("import os", CHILD, work, NUMBA_BARACUDA_EMULATE="1") == "[3.0, 12.0]\n"


@pytest.mark.gpu
def test_a_real_driver_after_a_fork_is_refused() -> None:
    work = """
        import os
        import cupy, numpy
        import numba_baracuda as nb

        x, y = cupy.asarray(numpy.ones((4, 3), "f4")), cupy.zeros((4, 3), "f4")
        nb.reduce_sum(x, axis=1)
        print(in_child(lambda: nb.reduce_sum(x, axis=1)))
        print(in_child(lambda: nb.cumsum(x, axis=0, out=y)))
        print(nb.reduce_sum(x, axis=1).ravel().tolist())
    """
    *refused, last = run(CHILD, work).splitlines()
    assert len(refused) == 2 and last == "[3.0, 3.0, 3.0, 3.0]"
    for part in REFUSED:
        assert all(part in said for said in refused)
