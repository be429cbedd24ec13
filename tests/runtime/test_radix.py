"""The radix sort: on a device against NumPy, and without one its wiring, with a library that sorts host memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import subprocess
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_threads import failures_of

from numba_baracuda.arrays import arrays
from numba_baracuda.core import errors
from numba_baracuda.runtime import cache, driver, radix

DTYPES = {"i32": np.int32, "i64": np.int64, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64}


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, and no sorter in memory."""
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(radix, "_sorters", {})
    monkeypatch.setattr(cache, "_told", False)
    return tmp_path / "cache"


# ---------------------------------------------------------------- blobs


def test_blobs_are_kept_counted_and_cleared(folder: Path) -> None:
    assert cache.read_blob("name") is None
    cache.write_blob("name", b"first")
    cache.write_blob("name", b"second")
    cache.write_blob("none", b"")
    assert cache.read_blob("name") == b"second" and cache.read_blob("none") == b""
    assert cache.size() == (2, sum(path.stat().st_size for path in folder.iterdir()))
    assert cache.clear() == 2 and cache.size() == (0, 0) and cache.read_blob("name") is None


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "short": lambda raw: raw[:-1],
    "flipped": lambda raw: raw[:-40] + bytes([raw[-40] ^ 1]) + raw[-39:],
    "foreign": lambda raw: b"something else entirely",
    "long": lambda raw: raw + b"x",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_blob_is_not_read(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    cache.write_blob("name", bytes(range(100)))
    path = folder / "name.blob"
    path.write_bytes(damage(path.read_bytes()))
    assert cache.read_blob("name") is None


def test_a_blob_under_another_name_is_not_taken(folder: Path) -> None:
    cache.write_blob("name", b"content")
    (folder / "name.blob").rename(folder / "names.blob")
    assert cache.read_blob("names") is None


# ---------------------------------------------------------------- wiring


class Library:
    """Stands for ``cuda.compute``: its sorts work on host memory, at once, and take objects as the real ones do."""

    _BINDINGS_AVAILABLE = True
    SortOrder = types.SimpleNamespace(ASCENDING="ascending")

    def __init__(self) -> None:
        self.built: list[tuple[str, str, Any]] = []
        self.queries: list[tuple[int, int]] = []
        self.streams: list[int] = []
        self.failure: Exception | None = None
        self.running = 0

    def make_radix_sort(self, *, d_in_keys: Any, d_out_keys: Any, d_in_values: Any, d_out_values: Any, order: str, compute_capability: Any) -> Any:
        if self.failure:
            raise self.failure
        given = [memory.__cuda_array_interface__ for memory in (d_in_keys, d_out_keys, d_in_values, d_out_values)]
        assert order == "ascending" and all(each["data"][0] and each["strides"] is None for each in given)
        key, out_key, value, out_value = (each["typestr"] for each in given)
        assert key == out_key and value == out_value
        self.built.append((key, value, compute_capability))
        return types.SimpleNamespace(serialize=lambda: f"sort {key} {value}".encode())

    def deserialize(self, blob: bytes) -> Any:
        words = blob.decode().split()
        if words[0] != "sort":
            raise ValueError("bad magic")
        return lambda **given: self.sort(np.dtype(words[1]), np.dtype(words[2]), **given)

    def sort(self, key: Any, value: Any, *, temp_storage: Any, num_items: int, begin_bit: int, end_bit: int, stream: Any, **arrays: Any) -> int:
        if temp_storage is None:
            self.queries.append((num_items, end_bit))
            return num_items * (key.itemsize + value.itemsize) + 255
        if temp_storage.nbytes < num_items:
            raise RuntimeError("error code: 1")
        self.running += 1
        assert self.running == 1, "addresses of two calls are mixed"
        assert stream.__cuda_stream__()[0] == 0
        self.streams.append(stream.__cuda_stream__()[1])
        time.sleep(0)
        addresses = {name: memory.__cuda_array_interface__["data"][0] for name, memory in arrays.items()}
        keys, values = _at(addresses["d_in_keys"], num_items, key), _at(addresses["d_in_values"], num_items, value)
        order = np.argsort((keys & key.type((1 << end_bit) - 1)) >> key.type(begin_bit), kind="stable")
        _at(addresses["d_out_keys"], num_items, key)[:] = keys[order]
        _at(addresses["d_out_values"], num_items, value)[:] = values[order]
        self.running -= 1
        return 0


def _at(address: int, count: int, dtype: Any) -> Any:
    return np.frombuffer((ctypes.c_char * (count * dtype.itemsize)).from_address(address), dtype)


@pytest.fixture
def library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Library:
    made = Library()
    monkeypatch.setitem(sys.modules, "cuda.compute", made)  # type: ignore[arg-type]
    monkeypatch.setattr(driver, "compute_capability", lambda device: (9, device))
    monkeypatch.setattr(driver, "on_device", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(radix, "uncaptured", contextlib.nullcontext)
    return made


def _host(sort: radix.Sorter, keys: Any, values: Any, bits: int, stream: int = 7, first_bit: int = 0) -> tuple[Any, Any]:
    out_keys, out_values = np.full_like(keys, 99), np.full_like(values, 99)
    space = np.empty(sort.workspace(len(keys), bits, first_bit), np.uint8)
    pointers = [array.ctypes.data for array in (keys, out_keys, values, out_values)]
    sort(stream, space.ctypes.data, space.nbytes, *pointers, len(keys), bits, first_bit)
    return out_keys, out_values


@pytest.mark.parametrize("value", DTYPES)
@pytest.mark.parametrize("key", ["i32", "i64", "u32", "u64"])
def test_arguments_arrive(library: Library, key: str, value: str) -> None:
    keys = np.random.default_rng(0).integers(0, 1000, 300).astype(DTYPES[key])
    values = np.arange(300).astype(DTYPES[value])
    order = np.argsort(keys % 128, kind="stable")
    out_keys, out_values = _host(radix.sorter(key, value, 0), keys, values, 7)
    np.testing.assert_array_equal(out_keys, keys[order])
    np.testing.assert_array_equal(out_values, values[order])
    assert library.built == [(f"<u{keys.itemsize}", f"<u{values.itemsize}", (9, 0))]  # unsigned: the top bit of a signed key is compared flipped
    assert library.streams == [7]


@pytest.mark.usefixtures("library")
def test_the_first_bit_arrives() -> None:
    keys = np.random.default_rng(0).integers(0, 1000, 300).astype(np.int32)
    out_keys, out_values = _host(radix.sorter("i32", "u32", 0), keys, np.arange(300, dtype=np.uint32), 10, first_bit=6)
    order = np.argsort(keys >> 6, kind="stable")
    np.testing.assert_array_equal(out_keys, keys[order])
    np.testing.assert_array_equal(out_values, order)


def test_types_of_one_size_share_a_sorter_and_devices_do_not(library: Library) -> None:
    assert radix.sorter("i32", "u64", 0) is radix.sorter("u32", "i64", 0)
    assert radix.sorter("i32", "u64", 0) is not radix.sorter("i32", "u64", 1)
    assert [capability for *_, capability in library.built] == [(9, 0), (9, 1)]


def test_the_size_of_the_workspace_is_asked_once(library: Library) -> None:
    sort = radix.sorter("i32", "i32", 0)
    library.queries.clear()
    assert [sort.workspace(1 << 33, 31) for _ in range(3)] == [8 * (1 << 33) + 255] * 3
    assert sort.workspace(5, 31) == 295
    assert library.queries == [(1 << 33, 31), (5, 31)]


def test_one_build_serves_later_processes(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    first = radix.sorter("i32", "u8", 0)
    monkeypatch.setattr(radix, "_sorters", {})
    assert radix.sorter("i32", "u8", 0) is not first
    assert len(library.built) == 1


@pytest.mark.parametrize("content", [b"not sealed", None], ids=["damaged", "of another kind"])
def test_what_does_not_read_back_is_built_again(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    radix.sorter("i32", "u8", 0)
    (path,) = folder.iterdir()
    intact = path.read_bytes()
    if content is None:
        cache.write_blob(path.stem, b"other bytes")
    else:
        path.write_bytes(content)
    monkeypatch.setattr(radix, "_sorters", {})
    radix.sorter("i32", "u8", 0)
    assert len(library.built) == 2 and path.read_bytes() == intact and list(folder.iterdir()) == [path]


def test_without_a_writable_folder_it_warns_and_works(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_BARACUDA_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(cache.CacheWarning, match="NUMBA_BARACUDA_CACHE_DIR"):
        sort = radix.sorter("i32", "u8", 0)
    assert _host(sort, np.array([3, 1, 2], np.int32), np.array([0, 1, 2], np.uint8), 2)[1].tolist() == [1, 2, 0]


def test_everything_that_changes_the_code_changes_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [radix._name(*parts) for parts in ((4, 4, (9, 0)), (8, 4, (9, 0)), (4, 8, (9, 0)), (4, 4, (8, 0)))]
    monkeypatch.setattr(cache, "versions", lambda packages: {"cuda-cccl": "0"})
    names.append(radix._name(4, 4, (9, 0)))
    assert len(set(names)) == 5 and radix._name(4, 4, (9, 0)) == names[-1]


def test_threads_build_once_and_call_one_at_a_time(library: Library) -> None:
    rng = np.random.default_rng(1)
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            keys = local[number].integers(0, 100, 50, np.int32)
            order = np.argsort(keys, kind="stable")
            made = _host(radix.sorter("i32", "i64", 0), keys, np.arange(50), 7, number)[1]
            if not np.array_equal(made, order):
                wrong.append(number)

    local = rng.spawn(8)
    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(library.built) == 1 and sorted(library.streams) == sorted(list(range(8)) * 20)


# ---------------------------------------------------------------- errors


def test_a_missing_library_is_named_with_the_cure(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.compute", None)  # type: ignore[arg-type]
    with pytest.raises(errors.Unsupported, match=r"cuda.compute, which cannot be imported .*pip install 'numba-baracuda\[cuda12\]'"):
        radix.sorter("i32", "i32", 0)


def test_a_library_without_bindings_is_named_with_what_it_said(library: Library, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "compute.py").write_text("import warnings\nwarnings.warn('no libcuda.so.1', RuntimeWarning)\n_BINDINGS_AVAILABLE = False\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "cuda.compute")
    with pytest.raises(errors.Unsupported, match=r"does not work here \(no libcuda.so.1\): pip install"):
        radix.sorter("i32", "i32", 0)
    with pytest.raises(errors.Unsupported, match=r"does not work here \(its bindings are not available\): pip install"):
        radix.sorter("i32", "i32", 0)


def test_a_build_that_fails_says_why_and_can_be_tried_again(library: Library, folder: Path) -> None:
    library.failure = RuntimeError("Failed compiling radix_sort, error code: 999")
    with pytest.raises(errors.Unsupported, match=r"4-byte keys and 1-byte values for compute capability \(9, 0\): Failed compiling .* 999"):
        radix.sorter("i32", "u8", 0)
    assert not folder.exists()
    library.failure = None
    assert radix.sorter("i32", "u8", 0)


def test_calls_that_cannot_work(library: Library) -> None:
    sort = radix.sorter("i32", "i32", 0)
    with pytest.raises(errors.InvalidProblem, match="workspace is null"):
        sort(0, 0, 100, 4096, 8192, 12288, 16384, 10, 8)
    with pytest.raises(errors.KernelLaunchError, match="radix sort of 10 pairs by 8 bits on device 0: error code: 1"):
        sort(0, 256, 1, 4096, 8192, 12288, 16384, 10, 8)
    for types_ in (("f32", "i32"), ("i32", "f32")):
        with pytest.raises(errors.Unsupported, match=r"are f32, wants one of u8, u16, i32, u32, i64, u64"):
            radix.sorter(*types_, 0)


def test_importing_takes_no_library() -> None:
    code = (
        "import sys, numba_baracuda.runtime.radix; print(sorted({'cuda.compute', 'cuda.core', 'cuda.bindings', 'cupy', 'numba'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120, cwd=Path(__file__).parents[2])
    assert done.stdout == "[]\n"


# ---------------------------------------------------------------- on a device

if not arrays.emulating():
    cupy = pytest.importorskip("cupy")

gpu = pytest.mark.gpu
COUNTS = (1, 2, 1000, 300_001, 5_000_000)
BITS = (1, 7, 8, 9, 17, 20, 31)


class Pairs:
    """Operands of a sort in device memory, the outputs and what surrounds them filled with a pattern."""

    def __init__(self, keys: Any, values: Any, bits: int, sort: radix.Sorter, first_bit: int = 0) -> None:
        self.sort, self.count, self.bits = sort, len(keys), (bits, first_bit)
        self.keys, self.values = cupy.asarray(keys), cupy.asarray(values)
        self.wide = [cupy.full(len(keys) + 64, 0x5A, array.dtype) for array in (keys, values)]
        self.space = cupy.full(sort.workspace(len(keys), bits, first_bit) + 2, 0xA5, np.uint8)

    @property
    def outputs(self) -> list[Any]:
        return [array[32:-32] for array in self.wide]

    def run(self, stream: int | None = None) -> None:
        stream = cupy.cuda.get_current_stream().ptr if stream is None else stream
        keys, values = (array.data.ptr for array in self.outputs)
        nbytes = self.space.nbytes - 2
        # at an odd address
        self.sort(stream, self.space.data.ptr + 1, nbytes, self.keys.data.ptr, keys, self.values.data.ptr, values, self.count, *self.bits)

    def check(self, keys: Any, values: Any, order: Any) -> None:
        for wide, array, given in zip(self.wide, (keys, values), (self.keys, self.values), strict=True):
            made = cupy.asnumpy(wide)
            np.testing.assert_array_equal(made[32:-32], array[order])
            assert (made[:32] == 0x5A).all() and (made[-32:] == 0x5A).all()
            np.testing.assert_array_equal(cupy.asnumpy(given), array, err_msg="an input was written")
        assert int(self.space[0]) == 0xA5 and int(self.space[-1]) == 0xA5


def _pairs(key: str, value: str, count: int, bits: int, seed: int = 0) -> tuple[Any, Any]:
    keys = np.random.default_rng([seed, count, bits]).integers(0, 1 << bits, count).astype(DTYPES[key])
    return keys, np.arange(count).astype(DTYPES[value])


@gpu
@pytest.mark.parametrize(("key", "bits"), [*itertools.product(("i32", "i64"), BITS), ("i64", 45), ("i64", 63)])
def test_sorts_as_numpy_does(key: str, bits: int) -> None:
    """Values are the numbers of their pairs, as far as their type can hold them, so that the order of equal keys shows."""
    for count in COUNTS:
        keys, _ = _pairs(key, "u64", count, bits)
        order = np.argsort(keys, kind="stable")
        for value in ("u8", "u16", "u32", "i32", "u64"):
            values = np.arange(count).astype(DTYPES[value])
            pairs = Pairs(keys, values, bits, radix.sorter(key, value, 0))
            pairs.run()
            pairs.check(keys, values, order)


@gpu
@pytest.mark.parametrize("count", [1000, 300_001])
def test_higher_bits_are_carried_and_not_compared(count: int) -> None:
    keys, values = _pairs("i32", "u32", count, 31)
    pairs = Pairs(keys, values, 9, radix.sorter("i32", "u32", 0))
    pairs.run()
    pairs.check(keys, values, np.argsort(keys & 511, kind="stable"))


@gpu
@pytest.mark.parametrize("count", [1000, 300_001])
def test_lower_bits_are_carried_and_not_compared(count: int) -> None:
    keys, values = _pairs("i32", "u32", count, 31)
    pairs = Pairs(keys, values, 31, radix.sorter("i32", "u32", 0), first_bit=9)
    pairs.run()
    pairs.check(keys, values, np.argsort(keys >> 9, kind="stable"))


@gpu
@pytest.mark.parametrize("pattern", ["constant", "sorted", "reversed"])
def test_orders_that_are_there_already(pattern: str) -> None:
    keys = np.zeros(300_001, np.int32) if pattern == "constant" else np.arange(300_001, dtype=np.int32)
    keys = keys[::-1].copy() if pattern == "reversed" else keys
    values = np.arange(len(keys), dtype=np.uint32)
    pairs = Pairs(keys, values, 20, radix.sorter("i32", "u32", 0))
    pairs.run()
    pairs.check(keys, values, np.argsort(keys, kind="stable"))


@gpu
@pytest.mark.memory((1 << 28) * (4 * 4 + 8 + 8 + 4 + 6) / 1e9)  # keys and values twice, scratch, and the check's wide places, keys and truths
def test_more_pairs_than_one_pass_takes() -> None:
    """Beyond 2^28 pairs a pass is several launches; the answer is checked on the device."""
    count, bits = (1 << 28) + 12_345, 20
    sort = radix.sorter("i32", "u32", 0)
    keys = cupy.asarray(np.random.default_rng(0).integers(0, 1 << bits, count, np.int32))
    values = cupy.arange(count, dtype=np.uint32)
    out_keys, out_values = cupy.empty_like(keys), cupy.empty_like(values)
    nbytes = sort.workspace(count, bits)
    space = cupy.empty(nbytes, np.uint8)
    stream = cupy.cuda.get_current_stream().ptr
    sort(stream, space.data.ptr, nbytes, keys.data.ptr, out_keys.data.ptr, values.data.ptr, out_values.data.ptr, count, bits)
    rising = (out_keys[1:] > out_keys[:-1]) | ((out_keys[1:] == out_keys[:-1]) & (out_values[1:] > out_values[:-1]))
    assert bool(rising.all())  # so no pair occurs twice
    assert bool((keys[out_values.astype(np.int64)] == out_keys).all())


@gpu
def test_on_a_device_one_build_serves_later_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, values = _pairs("i32", "u32", 300_001, 17)
    order = np.argsort(keys, kind="stable")
    radix.sorter("i32", "u32", 0)
    (path,) = folder.iterdir()
    intact, build = path.read_bytes(), radix._build
    with monkeypatch.context() as patch:
        patch.setattr(radix, "_sorters", {})
        patch.setattr(radix, "_build", lambda *parts: pytest.fail("built again"))
        pairs = Pairs(keys, values, 17, radix.sorter("i32", "u32", 0))
        pairs.run()
        pairs.check(keys, values, order)
    path.write_bytes(intact[:5000] + b"!" + intact[5001:])
    built: list[Any] = []
    monkeypatch.setattr(radix, "_sorters", {})
    monkeypatch.setattr(radix, "_build", lambda *parts: built.append(parts) or build(*parts))
    pairs = Pairs(keys, values, 17, radix.sorter("i32", "u32", 0))
    pairs.run()
    pairs.check(keys, values, order)
    assert len(built) == 1 and cache.read_blob(path.stem)


@contextlib.contextmanager
def _capturing(stream: Any, mode: str, graphs: list[Any]) -> Iterator[None]:
    gc.collect()  # what other tests left behind may free memory, which ends a capture of the Global mode
    gc.disable()
    with stream:
        stream.begin_capture(getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}"))
        try:
            yield
        finally:
            gc.enable()
            graphs.append(stream.end_capture())


@gpu
@pytest.mark.parametrize("count", [1000, 300_001])
@pytest.mark.parametrize("mode", ["Global", "Relaxed"])
@pytest.mark.parametrize("loaded", ["before", "meanwhile"])
def test_a_sort_that_never_ran_can_be_captured(monkeypatch: pytest.MonkeyPatch, loaded: str, mode: str, count: int) -> None:
    radix.sorter("i32", "u32", 0)
    monkeypatch.setattr(radix, "_sorters", {})
    bits, graphs = 17, []
    stream = cupy.cuda.Stream(non_blocking=True)
    keys, values = _pairs("i32", "u32", count, bits)
    if loaded == "before":
        pairs = Pairs(keys, values, bits, radix.sorter("i32", "u32", 0))
    else:
        other = radix.sorter("i32", "u32", 0)
        monkeypatch.setattr(radix, "_sorters", {})
        pairs = Pairs(keys, values, bits, other)
    cupy.cuda.runtime.deviceSynchronize()
    with _capturing(stream, mode, graphs):
        if loaded == "meanwhile":
            pairs.sort = radix.sorter("i32", "u32", 0)
            assert pairs.sort is not other and pairs.sort.workspace(count, bits) <= pairs.space.nbytes - 2
        pairs.run(stream.ptr)
    for seed in range(3):
        keys, values = _pairs("i32", "u32", count, bits, seed)
        pairs.keys[...], pairs.values[...] = cupy.asarray(keys), cupy.asarray(values)
        for wide in pairs.wide:
            wide[...] = 0x5A
        cupy.cuda.runtime.deviceSynchronize()
        graphs[0].launch(stream)
        stream.synchronize()
        pairs.check(keys, values, np.argsort(keys, kind="stable"))


@gpu
def test_two_threads_at_once() -> None:
    sort = radix.sorter("i32", "u32", 0)
    start = threading.Barrier(2)

    def work(number: int) -> None:
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            sets = []
            for count in (1000, 20_000, 300_001):
                keys, values = _pairs("i32", "u32", count, 17, number)
                sets.append((Pairs(keys, values, 17, sort), keys, values, np.argsort(keys, kind="stable")))
            start.wait()
            for _ in range(50):
                for pairs, *_ in sets:
                    pairs.run(stream.ptr)
            stream.synchronize()
            for pairs, *truth in sets:
                pairs.check(*truth)

    failures = failures_of(work, 2)
    assert not failures
