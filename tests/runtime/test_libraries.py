"""The shared libraries that ops load: all are found after the documented installation, and what is said where one is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

import numba_baracuda as nb
from numba_baracuda.runtime import cublas, driver, libraries

ROOT = Path(__file__).parents[2]


def in_a_clean_environment(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with no variable that could point at a toolkit."""
    environment = {"PATH": os.defpath, "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT), "NUMBA_BARACUDA_EMULATE": "1"}
    return subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def wheels() -> None:
    try:
        metadata.version("cuda-toolkit")
    except metadata.PackageNotFoundError:
        pytest.skip("wants the extra cuda12 or cuda13")


@pytest.mark.usefixtures("wheels")
def test_the_extra_brings_every_library() -> None:
    done = in_a_clean_environment(str(ROOT / "tests" / "find_libraries.py"))
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"^lib([\w.]+): ", done.stdout, re.M)) | {"cuda"} == set(libraries.LIBRARIES) | {"cuda"}


LOADED = r"/(lib(?:cu|nv|cccl)[\w.-]*?)\.so"  #: in a line of /proc/self/maps


@pytest.mark.compile
@pytest.mark.usefixtures("wheels")
def test_compiling_loads_no_library_that_is_not_listed() -> None:
    script = f"""
        import re
        from numba_baracuda.core.registry import kernel_specs
        from numba_baracuda.runtime import jit

        jit.compile_cubin(kernel_specs("reduce_sum")[0], "sm_90")
        print(sorted(set(re.findall({LOADED!r}, open("/proc/self/maps").read()))))
    """
    done = in_a_clean_environment("-c", textwrap.dedent(script))
    assert done.returncode == 0, done.stderr
    loaded = set(re.findall(r"'(lib[\w.-]+)'", done.stdout))
    assert {"libnvvm", "libnvJitLink"} <= loaded <= {f"lib{name}" for name in libraries.LIBRARIES}


@pytest.mark.gpu
def test_ops_load_no_library_that_is_not_listed() -> None:
    """A fold, a sort and matrix products on CuPy arrays, whose allocator needs no library; drivers load parts of their own."""
    script = f"""
        import re
        import cupy, numpy
        import numba_baracuda as nb

        x, ids = cupy.asarray(numpy.ones((3000, 32), "f4")), cupy.asarray(numpy.arange(3000, dtype="i4")[::-1].copy())
        nb.reduce_sum(x, axis=1), nb.cumsum(x, axis=0), nb.unsorted_segment_sum(x, ids, 3000), nb.SegmentIndex(ids, 3000)
        nb.fused_linear_cross_entropy(x, x[:64], ids % 64, grad_input=True, grad_weight=True)
        cupy.cuda.get_current_stream().synchronize()
        print(sorted(set(re.findall({LOADED!r}, open("/proc/self/maps").read()))))
    """
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_BARACUDA_EMULATE"} | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    loaded = {
        name for name in re.findall(r"'(lib[\w.-]+)'", done.stdout) if not name.startswith(("libnvidia-", "libnvrtc-builtins", "libcudadebugger"))
    }
    assert {"libcuda", "libcublasLt", "libcccl.c.parallel"} <= loaded <= {f"lib{name}" for name in libraries.LIBRARIES}


def pathfinder(monkeypatch: pytest.MonkeyPatch, path: str, via: str) -> None:
    found = SimpleNamespace(abs_path=path, found_via=via)
    monkeypatch.setattr("cuda.pathfinder.load_nvidia_dynamic_lib", lambda name: found)


def test_what_torch_or_a_toolkit_has_loaded_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder(monkeypatch, "/opt/toolkit/lib64/libcublasLt.so.12.4.5", "was-already-loaded-from-elsewhere")
    assert libraries.load("cublasLt") == ("/opt/toolkit/lib64/libcublasLt.so.12.4.5", "loaded already")
    assert libraries.load("cublasLt").major == 12


@pytest.mark.parametrize("error", [ImportError("no cuda"), RuntimeError("No such file: libcublasLt.so.13\n  listdir(...)")])
def test_a_library_that_is_missing_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(name: str) -> None:
        raise error

    monkeypatch.setattr("cuda.pathfinder.load_nvidia_dynamic_lib", fail)
    cublas._library.cache_clear()
    with pytest.raises(
        nb.Unsupported, match=r"no libcublasLt for matrix products .*(no cuda|No such file: [\w.]+)\): pip install 'numba-baracuda\[cuda12\]'"
    ):
        cublas._library()
    with pytest.raises(nb.Unsupported, match=r"no libnvrtc for .*pip install"):
        libraries.load("cccl.c.parallel")


def test_sorting_wants_the_library_of_its_own_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    pathfinder(monkeypatch, "/x/libnvrtc.so.99", "conda")
    with pytest.raises(nb.Unsupported, match=r"no libcccl.c.parallel for sorting ids .*: pip install"):
        libraries.load("cccl.c.parallel")


def test_a_library_that_the_driver_does_not_serve_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "driver_version", lambda: 12040)
    assert libraries.served(libraries.Found("/x/libcublasLt.so.12", "wheel"))
    with pytest.raises(nb.Unsupported, match=r"so.13 is of CUDA 13 and the driver serves CUDA 12: pip install 'numba-baracuda\[cuda12\]'"):
        libraries.served(libraries.Found("/x/libcublasLt.so.13", "wheel"))
