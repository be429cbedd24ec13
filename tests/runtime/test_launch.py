"""The driver and launches, against a driver that records what it is asked."""

from __future__ import annotations

import ctypes
import dataclasses
import enum
import itertools
import math
import struct
import sys
import threading
import types

import pytest

from numba_baracuda.arrays import allocation, arrays
from numba_baracuda.core import errors, op
from numba_baracuda.core.spec import Cubin, KernelSpec, Parameter
from numba_baracuda.core.vocabulary import OpCategory, ReduceKind
from numba_baracuda.plans import frames
from numba_baracuda.plans.bound import BoundCall
from numba_baracuda.runtime import cache, driver, launch, radix

CUBIN = Cubin("entry", b"image", registers=16, spills=0, stack=0, shared=0)


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906


class _AnyAttribute:
    """Stands for the driver's enums: an attribute is its own name."""

    def __getattr__(self, name: str) -> str:
        return name


class Driver:
    """A driver with contexts per thread, contexts numbered 100 + device, and a log of launches as (arguments, parameter words)."""

    CUdevice_attribute = CUfunction_attribute = CUpointer_attribute = CUstreamCaptureMode = _AnyAttribute()
    CUevent_flags = types.SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)

    def __init__(self, devices: int = 1, parameters: int = 0) -> None:
        self.devices, self.parameters = devices, parameters
        self.current = threading.local()
        self.launches: list[tuple[tuple, bytes]] = []
        self.calls: list[tuple] = []
        self.failures: list[CUresult] = []
        self.loaded = 0
        self.copies: list[tuple[int, bytes, int]] = []
        self.capturing: set[int] = set()
        self.attributes = {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0, "MULTIPROCESSOR_COUNT": 132, "L2_CACHE_SIZE": 50 << 20}
        self.capture_mode = "GLOBAL"

    def context(self) -> int:
        return getattr(self.current, "context", 0)

    def cuDeviceGetCount(self):
        return CUresult(0), self.devices

    def cuDeviceGet(self, ordinal):
        return CUresult(0), ordinal

    def cuDeviceGetAttribute(self, which, device):
        return CUresult(0), self.attributes[which.removeprefix("CU_DEVICE_ATTRIBUTE_")]

    def cuDeviceGetName(self, length, device):
        return CUresult(0), b"Card\0\0"

    def cuDriverGetVersion(self):
        return CUresult(0), 13000

    def cuDevicePrimaryCtxRetain(self, device):
        return CUresult(0), 100 + device

    def cuCtxGetCurrent(self):
        self.calls.append(("cuCtxGetCurrent",))
        return CUresult(0), self.context()

    def cuCtxGetDevice(self):
        return CUresult(0), self.context() % 100

    def cuCtxSetCurrent(self, context):
        self.current.context = context
        return (CUresult(0),)

    def cuThreadExchangeStreamCaptureMode(self, mode):
        previous, self.capture_mode = self.capture_mode, mode
        return CUresult(0), previous

    def cuLibraryLoadData(self, image, *rest):
        assert "RELAXED" in self.capture_mode
        self.loaded += 1
        return CUresult(0), ("library", image)

    def cuLibraryGetKernel(self, library, name):
        assert name == b"entry"
        return CUresult(0), 77

    def cuKernelGetFunction(self, kernel):
        return CUresult(0), 78

    def cuFuncLoad(self, function):
        assert "RELAXED" in self.capture_mode
        return (CUresult(0),)

    def CUfunction(self, number):
        return ("function", number)

    def CUstream(self, number):
        return ("stream", number)

    def cuKernelSetAttribute(self, which, value, kernel, device):
        self.calls.append((which, value, kernel, device))
        return (CUresult(0),)

    def _answer(self):
        if self.failures:
            return (self.failures.pop(0),)
        return (CUresult(0 if self.context() else 201),)

    def cuLaunchKernel(self, *arguments):
        answer = self._answer()
        if not answer[0]:
            table = (ctypes.c_void_p * self.parameters).from_address(arguments[9])
            words = b"".join(ctypes.string_at(table[k], 8) for k in range(self.parameters))
            self.launches.append(((*arguments[:9], self.context()), words))
        return answer

    def cuLaunchCooperativeKernel(self, *arguments):
        assert len(arguments) == 10
        self.calls.append(("cooperative",))
        return self.cuLaunchKernel(*arguments, 0)

    def cuMemAllocAsync(self, nbytes, stream):
        answer = self._answer()
        return (*answer, 4096)

    def cuMemFreeAsync(self, pointer, stream):
        self.calls.append(("free", pointer, stream))
        return self._answer()

    def cuMemsetD8Async(self, pointer, value, nbytes, stream):
        self.calls.append(("memset", pointer, value, nbytes, stream))
        return self._answer()

    def cuStreamIsCapturing(self, stream):
        return (*self._answer(), int(stream in self.capturing))

    def cuEventCreate(self, flags):
        self.calls.append(("event", flags))
        return (*self._answer(), 500)

    def cuEventRecord(self, event, stream):
        self.calls.append(("record", event, stream))
        return self._answer()

    def cuStreamWaitEvent(self, stream, event, flags):
        self.calls.append(("wait", stream, event, flags))
        return self._answer()

    def cuMemcpyDtoHAsync(self, host, pointer, nbytes, stream):
        self.calls.append(("copy", pointer, nbytes, stream))
        answer = self._answer()
        if not answer[0]:
            self.copies.append((host, struct.pack(f"={nbytes // 8}q", *range(-1, nbytes // 8 - 1)), stream))
        return answer

    def cuStreamSynchronize(self, stream):
        """Only now are the copies of the stream on the host."""
        for host, words, where in self.copies:
            if where == stream:
                ctypes.memmove(host, words, len(words))
        return self._answer()


@pytest.fixture(autouse=True)
def _forget():
    launch.reset()
    yield
    launch.reset()


def use(monkeypatch: pytest.MonkeyPatch, **options: int) -> Driver:
    fake = Driver(**options)
    monkeypatch.setattr(driver, "_bindings", fake)
    return fake


def test_parameters_are_packed_pointers_first_each_in_its_own_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    signature = "*f32 *i32 *f32 i64 f32 3xi64 f16 bf16 bool f64 i32"
    fake = use(monkeypatch, parameters=13)
    made = launch.Launch(launch.load(CUBIN), signature, 256)
    scalars = launch.words(signature, (-7, 0.5, (1, 2, 3), 1.5, 1.00390625, True, math.pi, -1))
    made.queue(9, (0x10, 0x20, (1 << 64) - 16), 5, 1024, scalars)
    made.ready((1, 2, 3), 5, 1024, scalars)(9)
    fixed = struct.pack("=qf4xqqqe6xH6x?7xdi4x", -7, 0.5, 1, 2, 3, 1.5, 0x3F80, True, math.pi, -1)
    (arguments, words), (_, again) = fake.launches
    assert arguments == (("function", 77), 5, 1, 1, 256, 1, 1, 1024, ("stream", 9), 100)
    assert words == struct.pack("=3Q", 0x10, 0x20, (1 << 64) - 16) + fixed
    assert again == struct.pack("=3Q", 1, 2, 3) + fixed


@pytest.mark.parametrize(("value", "bits"), [(1.0, 0x3F80), (1.01171875, 0x3F82), (-math.inf, 0xFF80), (3.4e38, 0x7F80), (-0.0, 0x8000)])
def test_a_bfloat16_scalar_is_rounded_to_nearest_even(value: float, bits: int) -> None:
    assert launch.words("bf16", (value,)) == (bits,)


def test_a_bfloat16_nan_stays_one() -> None:
    (bits,) = launch.words("bf16", (math.nan,))
    assert bits & 0x7F80 == 0x7F80 and bits & 0x7F


@pytest.mark.parametrize("scalars", [(), (1, 2), ((1, 2),)])
def test_scalars_must_match_the_signature(scalars: tuple) -> None:
    with pytest.raises(errors.InvalidProblem, match="3xi64"):
        launch.words("*f32 3xi64", scalars)


def test_a_wrong_number_of_pointers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=2)
    made = launch.Launch(launch.load(CUBIN), "*f32 *f32", 32)
    with pytest.raises(struct.error):
        made.queue(0, (1,), 1)
    made.queue(0, (1, 2), 1)
    assert [words for _, words in fake.launches] == [struct.pack("=2Q", 1, 2)]


def test_an_empty_grid_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    made = launch.Launch(launch.load(CUBIN), "*f32", 32)
    made.queue(0, (1,), 0)
    made.ready((1,), 0)(0)
    assert not fake.launches


def test_a_kernel_is_loaded_once_and_readied_for_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    first, second = launch.load(CUBIN), launch.load(Cubin("entry", b"image", 16, 0, 0, 0))
    launch.Launch(first, "", 32)
    launch.Launch(second, "", 32)
    assert first is second and fake.loaded == 1
    assert fake.capture_mode == "GLOBAL"


def test_one_device_is_asked_for_nothing_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=1)
    fake.cuCtxSetCurrent(100)
    made = launch.Launch(launch.load(CUBIN), "*f32", 32)
    fake.calls.clear()
    made.queue(0, (1,), 1)
    assert fake.calls == [] and len(fake.launches) == 1


def test_a_thread_without_a_context_gets_the_primary_one(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=1)
    made = launch.Launch(launch.load(CUBIN), "*f32", 32)
    threads = [threading.Thread(target=made.queue, args=(0, (5,), 1)) for _ in range(2)]
    for thread in threads:
        thread.start()
        thread.join()
    assert [(arguments[-1], words) for arguments, words in fake.launches] == [(100, struct.pack("=Q", 5))] * 2


def test_several_devices_launch_on_theirs_and_restore_the_context(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, devices=2, parameters=1)
    fake.cuCtxSetCurrent(100)
    made = launch.Launch(launch.load(CUBIN), "*f32", 32, device=1)
    assert fake.context() == 100
    made.queue(0, (5,), 1)
    assert fake.launches[0][0][-1] == 101 and fake.context() == 100
    fake.cuCtxSetCurrent(201)  # somebody's own context on device 1
    made.queue(0, (5,), 1)
    assert fake.launches[1][0][-1] == 201


def test_a_refused_launch_says_what_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    made = launch.Launch(launch.load(CUBIN), "", 512)
    fake.failures = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    message = r"entry: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES \(701\); 7 blocks of 512 threads, 100 bytes"
    with pytest.raises(errors.KernelLaunchError, match=message) as caught:
        made.queue(0, (), 7, 100)
    assert caught.value.code == 701
    fake.failures = [CUresult.CUDA_ERROR_INVALID_CONTEXT] * 2
    with pytest.raises(errors.KernelLaunchError, match="INVALID_CONTEXT"):
        made.queue(0, (), 7, 100)
    assert not fake.failures  # tried exactly twice


def test_scalars_are_packed_again_where_they_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also behind scalars that could not be packed, which leave no block."""
    fake = use(monkeypatch, parameters=2)
    fake.cuCtxSetCurrent(100)
    made, one, two = launch.Launch(launch.load(CUBIN), "*f32 i64", 32), (1,), (2,)
    made.queue(0, (5,), 1, 0, one)
    with pytest.raises(struct.error):
        made.queue(0, (5,), 1, 0, ("3",))
    for pointer, scalars in ((6, one), (7, two), (8, two), (9, one)):
        made.queue(0, (pointer,), 1, 0, scalars)
    packed = [struct.unpack("=2Q", words) for _, words in fake.launches]
    assert packed == [(5, 1), (6, 1), (7, 2), (8, 2), (9, 1)]


def test_threads_never_share_a_parameter_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding releases the GIL before the driver reads the block: a driver that waits there must still see its own caller's pointers."""
    fake = use(monkeypatch, parameters=2)
    seen: dict[int, set[bytes]] = {}
    inside, original = threading.Barrier(4), fake.cuLaunchKernel

    def slow(*arguments):
        inside.wait(10)
        table = (ctypes.c_void_p * 2).from_address(arguments[9])
        seen.setdefault(arguments[8], set()).add(b"".join(ctypes.string_at(table[k], 8) for k in range(2)))
        inside.wait(10)
        return original(*arguments)

    fake.cuLaunchKernel = slow
    made = launch.Launch(launch.load(CUBIN), "*f32 *f32", 32)
    fake.cuLaunchKernel = original

    def work(me: int) -> None:
        fake.cuCtxSetCurrent(100)
        for _ in range(50):
            made.queue(me, (me, me << 32), 1)

    threads = [threading.Thread(target=work, args=(me,)) for me in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {("stream", me): {struct.pack("=2Q", me, me << 32)} for me in range(1, 5)}
    assert len(fake.launches) == 200
    assert 1 <= len(made._pool) <= 4


def test_shared_memory_beyond_48_kib_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    kernel = launch.load(CUBIN)
    for nbytes in (48 << 10, 100 << 10, 64 << 10):
        launch.Launch(kernel, "", 32).queue(0, (), 1, nbytes)
    asked = [call for call in fake.calls if "SHARED" in call[0]]
    assert asked == [("CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES", 100 << 10, 77, 0)]


def test_a_cooperative_launch_takes_the_other_door(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=1)
    launch.Launch(launch.load(CUBIN), "*f32", 32, cooperative=True).queue(0, (3,), 1)
    assert ("cooperative",) in fake.calls and fake.launches[0][1] == struct.pack("=Q", 3)


def test_memory_calls_find_a_context_and_skip_nothing_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    assert driver.alloc_async(64, 5) == 4096 and fake.context() == 100
    assert driver.alloc_async(0, 5) == 0
    driver.memset_async(4096, 64, 5)
    driver.memset_async(4096, 0, 5)
    driver.free_async(4096, 5)
    driver.free_async(0, 5)
    assert [call for call in fake.calls if call[0] in ("memset", "free")] == [("memset", 4096, 0, 64, 5), ("free", 4096, 5)]
    fake.failures = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(errors.KernelLaunchError, match="cuMemAllocAsync"):
        driver.alloc_async(64, 5)


@pytest.mark.parametrize("devices", [1, 2])
def test_reading_back_waits_for_its_stream(monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    fake = use(monkeypatch, devices=devices)
    assert driver.read_back(4096, 3, 5, devices - 1) == [-1, 0, 1]
    assert ("copy", 4096, 24, 5) in fake.calls


def test_reading_back_is_refused_while_its_stream_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.capturing = {5}
    with pytest.raises(
        errors.Unsupported, match="waits for the device, which a stream that is being captured cannot; drop check_ids=True or end the capture"
    ):
        driver.read_back(4096, 1, 5)
    assert not fake.copies
    assert driver.read_back(4096, 1, 6) == [-1]


def test_a_stream_follows_another_by_an_event_that_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.cuCtxSetCurrent(100)
    driver.follow(5, 6)
    driver.follow(7, 1)
    queued = [("record", 500, 6), ("wait", 5, 500, 0), ("record", 500, 1), ("wait", 7, 500, 0)]
    assert [call for call in fake.calls if call[0] in ("record", "wait")] == queued
    assert [call for call in fake.calls if call[0] == "event"] == [("event", 2)]


def test_whether_a_stream_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.cuCtxSetCurrent(100)
    fake.capturing = {5}
    assert driver.is_capturing(5) and not driver.is_capturing(6)
    for default in (0, 1):
        assert not driver.is_capturing(default) and not driver.meets_capture(default)
        fake.failures = [CUresult.CUDA_ERROR_STREAM_CAPTURE_IMPLICIT]
        assert driver.meets_capture(default)
        fake.failures = [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
        with pytest.raises(errors.KernelLaunchError, match="cuStreamIsCapturing"):
            driver.meets_capture(default)


@pytest.mark.parametrize(("call", "name"), [(0, "cuStreamIsCapturing"), (1, "cuMemcpyDtoHAsync"), (2, "cuStreamSynchronize")])
def test_reading_back_names_the_call_that_failed(monkeypatch: pytest.MonkeyPatch, call: int, name: str) -> None:
    fake = use(monkeypatch)
    fake.cuCtxSetCurrent(100)
    fake.failures = [CUresult(0)] * call + [CUresult.CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES]
    with pytest.raises(errors.KernelLaunchError, match=name):
        driver.read_back(4096, 1, 5)


X, Y, WORKSPACE = (
    arrays.View(ptr, (4,), (1,), arrays.ArrayType.of("f32", 1, 0, "foreign", False), None, name)
    for ptr, name in ((4096, "x"), (8192, "y"), (16384, "workspace"))
)


SPEC = KernelSpec("nowhere:kernel", (), 128)


def declare(monkeypatch: pytest.MonkeyPatch, **types: str) -> None:
    """Compiles every kernel to nothing, with these parameters."""
    parameters = tuple(itertools.starmap(Parameter, types.items()))
    monkeypatch.setattr(cache, "cubin", lambda spec, arch: dataclasses.replace(CUBIN, parameters=parameters))


def bound(monkeypatch: pytest.MonkeyPatch, *steps: op.Step) -> frames.Bound:
    """Steps over operands x and y and slots ``first`` and ``second``; kernels are compiled to nothing."""
    operands = op.Operand("x", ("n",)), op.Operand("y", ("n",), output=True)
    row = op.Op("row", ReduceKind.SUM, OpCategory.SEGMENT_OPS, "none", "y = x", operands, (), ("f32",))
    recipe = op.Recipe(steps, (op.Slot("first", "i64", 3), op.Slot("second", "i64", 1)))
    return frames.bind(row, recipe, [X, Y], op.Target((9, 0), 132), 0)


def test_a_bound_plan_gives_kernels_the_addresses_they_name_and_zero_for_null(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=4)
    declare(monkeypatch, a="*f32", b="*i64", c="*i64", d="*f32")
    made = bound(monkeypatch, op.Launch(SPEC, (2, 128, 0), {"d": "x", "a": "y", "c": op.NULL, "b": "second"}))
    made.run(5, [X.ptr, Y.ptr], [X, Y], WORKSPACE)
    ((arguments, words),) = fake.launches
    assert arguments == (("function", 77), 2, 1, 1, 128, 1, 1, 0, ("stream", 5), 100)
    assert words == struct.pack("=4Q", 8192, 16384 + op.LINE_BYTES, 0, 4096)


def test_a_bound_call_packs_its_parameters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is a launch of the same block of parameters, on the stream that it is given."""
    fake = use(monkeypatch, parameters=3)
    fake.cuCtxSetCurrent(100)
    declare(monkeypatch, a="*f32", b="*i64", n="i64")
    made = bound(monkeypatch, op.Clear("second", 1), op.Launch(SPEC, (2, 128, 64), {"a": "y", "b": "second", "n": 7}))
    call = BoundCall(made, [X, Y], 5, WORKSPACE)
    monkeypatch.setattr(launch.Launch, "_block", lambda self: pytest.fail("parameters are packed again"))
    fake.calls.clear()
    call()
    call(6)
    assert [call for call in fake.calls if call[0] == "memset"] == [
        ("memset", 16384 + op.LINE_BYTES, 1, op.LINE_BYTES, 5),
        ("memset", 16384 + op.LINE_BYTES, 1, op.LINE_BYTES, 6),
    ]
    assert [arguments for arguments, _ in fake.launches] == [(("function", 77), 2, 1, 1, 128, 1, 1, 64, ("stream", stream), 100) for stream in (5, 6)]
    assert {words for _, words in fake.launches} == {struct.pack("=3Q", 8192, 16384 + op.LINE_BYTES, 7)}


def test_one_frame_serves_several_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=3)
    declare(monkeypatch, a="*f32", n="2xi64")
    made = bound(monkeypatch, op.Launch(SPEC, (2, 128, 0), {"a": "y", "n": (3, 4)}))
    for sizes in (made.sizes, ((9, 16, (5, 6)),)):
        frames.Bound(made.frame, sizes, made.offsets, made.counts, made.workspace, made.reach, made.apart).run(5, [X.ptr, Y.ptr], [X, Y], WORKSPACE)
    assert [(arguments[1], arguments[7]) for arguments, _ in fake.launches] == [(2, 0), (9, 16)]
    assert [words for _, words in fake.launches] == [struct.pack("=3Q", 8192, 3, 4), struct.pack("=3Q", 8192, 5, 6)]


def test_a_bound_plan_judges_what_it_reads_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch, parameters=1)
    fake.cuCtxSetCurrent(100)
    judged = []
    declare(monkeypatch, counts="*i64")
    made = bound(monkeypatch, op.Clear("first", 7), op.Launch(SPEC, (1, 128, 0), {"counts": "first"}), op.Verify("first", judged.append))
    made.run(5, [X.ptr, Y.ptr], [X, Y], WORKSPACE)
    assert [call for call in fake.calls if call[0] in ("memset", "copy")] == [("memset", 16384, 7, op.LINE_BYTES, 5), ("copy", 16384, 24, 5)]
    assert [words for _, words in fake.launches] == [struct.pack("=Q", 16384)]
    assert judged == [[-1, 0, 1]]
    fake.capturing = {5}
    with pytest.raises(errors.Unsupported, match="drop check_ids=True or end the capture"):
        made.run(5, [X.ptr, Y.ptr], [X, Y], WORKSPACE)


def test_a_bound_sort_works_in_its_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory of its own would be given to others between the replays of a graph."""
    use(monkeypatch)
    queued = []
    monkeypatch.setattr(radix, "sorter", lambda *types: queued.append(types) or (lambda *call: queued.append(call)))
    monkeypatch.setattr(allocation, "scratch", lambda *what: pytest.fail("a sort takes memory"))
    made = bound(monkeypatch, op.Sort("x", "y", "first", "second", 4, 8, 10, 17, 9, scratch="first"))
    made.run(5, [X.ptr, Y.ptr], [X, Y], WORKSPACE)
    assert queued == [("u32", "u64", 0), (5, 16384, op.LINE_BYTES, 4096, 8192, 16384, 16384 + op.LINE_BYTES, 10, 17, 9)]


def test_a_bound_plan_follows_the_streams_that_its_operands_name(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.cuCtxSetCurrent(100)
    made = bound(monkeypatch)
    late = Y.named("y", 6)
    for stream, operands in ((5, [X, late]), (6, [X, late]), (5, [X, Y])):
        made.run(stream, [X.ptr, Y.ptr], operands, WORKSPACE)
    assert [call for call in fake.calls if call[0] in ("record", "wait")] == [("record", 500, 6), ("wait", 5, 500, 0)]


def test_scratch_is_given_back_even_if_a_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the stream is still captured: later, the graph that it belongs to is complete."""
    fake = use(monkeypatch)
    fake.cuCtxSetCurrent(100)
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    made = bound(monkeypatch, op.Verify("first", lambda found: None))
    fake.capturing = {5}
    with pytest.raises(errors.Unsupported, match="drop check_ids=True") as caught:
        made.run(5, [X.ptr, Y.ptr], [X, Y], None)
    assert ("free", 4096, 5) in fake.calls and caught.value.__traceback__ is not None


def test_what_a_card_is(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch)
    assert driver.device_count() == 1
    assert driver.compute_capability() == (9, 0)
    assert (driver.multiprocessors(), driver.l2_bytes(), driver.driver_version(), driver.device_name()) == (132, 50 << 20, 13000, "Card")


def test_an_old_card_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = use(monkeypatch)
    fake.attributes = {"COMPUTE_CAPABILITY_MAJOR": 7, "COMPUTE_CAPABILITY_MINOR": 5}
    with pytest.raises(errors.Unsupported, match=r"is compute capability 7\.5, wants 8\.0 or above"):
        driver.compute_capability()


@pytest.mark.parametrize("broken", ["package", "library", "start"])
def test_a_machine_without_a_driver_has_no_devices(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:

    class Found:
        @staticmethod
        def cuInit(flags):
            if broken == "library":
                raise RuntimeError("no libcuda")
            return (CUresult.CUDA_ERROR_INVALID_CONTEXT,)

    module = None if broken == "package" else types.SimpleNamespace(driver=Found)
    monkeypatch.setitem(sys.modules, "cuda.bindings", module)
    cure = {"package": "cuda12.*cuda13", "library": "no libcuda", "start": "INVALID_CONTEXT"}[broken]
    with pytest.raises(errors.Unsupported, match=cure):
        driver.bindings()
    assert driver.device_count() == 0


PTX = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry %s(.param .u64 out, .param .u64 a, .param .u64 n)
{
  .reg .b64 %%r<6>;
  ld.param.u64 %%r0, [out];
  ld.param.u64 %%r1, [a];
  ld.param.u64 %%r2, [n];
  ld.global.u64 %%r3, [%%r1];
  add.u64 %%r4, %%r3, %%r2;
  st.global.u64 [%%r0], %%r4;
  ret;
}
\0"""


@pytest.mark.gpu
def test_a_real_card_runs_it_from_a_bare_thread_and_while_capturing() -> None:
    if not driver.device_count():
        pytest.skip("no CUDA device")
    cuda, failures = driver.bindings(), []

    def work() -> None:
        try:
            first = launch.load(Cubin("first", PTX % b"first", 0, 0, 0, 0))
            words = driver.alloc_async(16, 0)
            driver.memset_async(words, 16, 0, 1)
            launch.Launch(first, "*i64 *i64 i64", 1).queue(0, (words + 8, words), 1, 0, (5,))
            stream = cuda.cuStreamCreate(0)[1]
            cuda.cuStreamSynchronize(0)
            assert not cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)[0]
            late = launch.load(Cubin("second", PTX % b"second", 0, 0, 0, 0))
            launch.Launch(late, "*i64 *i64 i64", 1).queue(int(stream), (words + 8, words + 8), 1, 0, (7,))
            code, graph = cuda.cuStreamEndCapture(stream)
            assert not code
            executable = cuda.cuGraphInstantiate(graph, 0)[1]
            assert not cuda.cuGraphLaunch(executable, stream)[0]
            host = bytearray(16)
            assert not cuda.cuStreamSynchronize(stream)[0]
            assert not cuda.cuMemcpyDtoH((ctypes.c_char * 16).from_buffer(host), words, 16)[0]
            driver.free_async(words, 0)
            assert struct.unpack("=2Q", host) == (0x0101010101010101, 0x0101010101010101 + 12)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
