"""Arrays of frameworks that are not here: small classes that carry the names, modules and attributes by which the real ones are recognised."""

from __future__ import annotations

import ctypes
import functools
import itertools
import subprocess
import sys
import types
import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import numba_baracuda as nb
from numba_baracuda.arrays import allocation, arrays, emulation, glances, spans, streams, views
from numba_baracuda.core import errors
from numba_baracuda.core.axes import c_strides
from numba_baracuda.runtime import driver


def named(module: str, name: str, *bases: type, **body: Any) -> Any:
    return type(name, bases or (object,), {"__module__": module, **body})


class _TorchDtype:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


TORCH_DTYPES = {name: _TorchDtype(name) for name in ("float32", "bfloat16", "uint8", "bool", "int64", "complex64")}


def _torch_init(self: Any, shape: tuple = (4, 2), stride: tuple = (2, 1), dtype: str = "float32", device: int = 0, ptr: int = 4096) -> None:
    self.shape, self._stride, self.dtype, self.index, self._ptr = shape, stride, TORCH_DTYPES[dtype], device, ptr
    self.is_cuda, self.device, self.negated, self.sparse = device >= 0, f"cuda:{device}" if device >= 0 else "cpu", False, False
    self.is_cpu, self.requires_grad, self.is_nested = device < 0, False, False


def _torch_data_ptr(self: Any) -> int:
    if self.sparse:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    return self._ptr


Tensor = named(
    "torch",
    "Tensor",
    __init__=_torch_init,
    data_ptr=_torch_data_ptr,
    stride=lambda self: self._stride,
    get_device=lambda self: self.index,
    is_neg=lambda self: self.negated,
    layout=property(lambda self: "torch.sparse_coo" if self.sparse else "torch.strided"),
)
Parameter = named("torch.nn.parameter", "Parameter", Tensor)


class _Pointer:
    def __init__(self, ptr: int, device_id: int) -> None:
        self.ptr, self.device_id = ptr, device_id


def _cupy_init(self: Any, shape: tuple = (4, 2), strides: tuple = (8, 4), dtype: Any = "float32", device: int = 0, ptr: int = 8192) -> None:
    self.shape, self.strides, self.dtype, self.data = shape, strides, np.dtype(dtype), _Pointer(ptr, device)
    self.itemsize = self.dtype.itemsize


CupyArray = named("cupy", "ndarray", __init__=_cupy_init)
DeviceNDArray = named(
    "numba.cuda.cudadrv.devicearray",
    "DeviceNDArray",
    named(
        "numba.cuda.cudadrv.devicearray",
        "DeviceNDArrayBase",
        shape=(3,),
        strides=(4,),
        dtype=np.dtype("i4"),
        device_ctypes_pointer=ctypes.c_size_t(512),
        stream=0,
    ),
)
NumbaStream = named("numba.cuda.cudadrv.driver", "Stream", __int__=lambda self: 31)
CupyStream = named("cupy.cuda.stream", "Stream", ptr=32)
TorchStream = named("torch.cuda.streams", "Stream", named("torch", "Stream", cuda_stream=33))
CoreStream = named("cuda.core._stream", "Stream", __cuda_stream__=lambda self: (0, 34), handle=None)


class Interface:
    """An object that has ``__cuda_array_interface__`` and nothing else."""

    def __init__(self, **changes: Any) -> None:
        self.__cuda_array_interface__ = {"shape": (4, 2), "typestr": "<f4", "data": (4096, False), "version": 3, "strides": None, **changes}


class Capsule:
    """An object that has DLPack and nothing else."""

    def __init__(self, kind: int = 2) -> None:
        self.kind = kind

    def __dlpack__(self, **options: Any) -> None:
        raise NotImplementedError

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0


@pytest.fixture(autouse=True)
def _forget():
    arrays.reset()
    yield
    arrays.reset()


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> None:
    """One CUDA device is present."""
    monkeypatch.delenv("NUMBA_BARACUDA_EMULATE", raising=False)
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    monkeypatch.setattr(driver, "meets_capture", lambda stream, device: False)


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", "1")


@pytest.fixture
def fake_cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A CuPy whose pool notes the stream and the device that each block was taken on."""
    state = types.SimpleNamespace(stream=0, device=0, taken=[])

    class Current:
        def __init__(self, what: str, value: int) -> None:
            self.what, self.value, self.ptr = what, value, value

        def __enter__(self) -> None:
            self.before = getattr(state, self.what)
            setattr(state, self.what, self.value)

        def __exit__(self, *failure: object) -> None:
            setattr(state, self.what, self.before)

    class Stream(Current):
        null = Current("stream", 0)

        @staticmethod
        def from_external(other: Any) -> Current:
            return Current("stream", other.__cuda_stream__()[1])

    def take(*what: Any) -> Any:
        state.taken.append((state.device, state.stream, *what))
        return CupyArray(*what) if len(what) > 1 else _Pointer(1 << 20, state.device)

    cuda = types.SimpleNamespace(
        runtime=types.SimpleNamespace(getDevice=lambda: state.device),
        get_current_stream=lambda device=-1: Current("stream", state.stream + 1000 * max(device, 0)),
        Stream=Stream,
        Device=lambda device: Current("device", device),
        alloc=take,
    )
    module = types.SimpleNamespace(
        cuda=cuda, state=state, from_dlpack=lambda obj: CupyArray(), empty=lambda shape, dtype: take(shape, (4,) * len(shape), dtype)
    )
    monkeypatch.setitem(sys.modules, "cupy", module)
    streams._cupy_stream.cache_clear()
    return module


@pytest.fixture
def fake_torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    state = types.SimpleNamespace(stream=7, taken=[])

    class Using:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __enter__(self) -> None:
            self.before, state.stream = state.stream, self.handle

        def __exit__(self, *failure: object) -> None:
            state.stream = self.before

    def empty_strided(shape: tuple, strides: tuple, dtype: Any, device: Any) -> Any:
        state.taken.append((state.stream, shape, strides, dtype, device))
        return Tensor(shape, strides, dtype.name, device[1])

    module = types.SimpleNamespace(
        state=state,
        _C=types.SimpleNamespace(_cuda_getCurrentRawStream=lambda device: state.stream + 1000 * device),
        empty_strided=empty_strided,
        device=lambda kind, index: (kind, index),
        cuda=types.SimpleNamespace(
            stream=Using, ExternalStream=lambda handle, device: handle, default_stream=lambda device: 0, current_stream=lambda device: None
        ),
        from_dlpack=lambda obj: Tensor(),
        **TORCH_DTYPES,
    )
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(allocation, "_torch_empty", functools.cache(allocation._torch_empty.__wrapped__))
    streams.torch_stream.cache_clear()
    return module


def seen(obj: Any, wants: str = "") -> arrays.View:
    return arrays.view(obj, "segment_sum", "input", wants)


def facts(view: arrays.View) -> tuple:
    return view.ptr, view.shape, view.strides, view.element, view.device, view.kind, view.readonly, view.name


@pytest.mark.parametrize("module", ["arrays", "allocation", "dlpack", "spans", "streams", "views"])
def test_importing_it_imports_no_framework(module: str) -> None:
    frameworks = {"numba", "cupy", "torch", "jax", "ml_dtypes", "cuda.bindings"}
    code = f"import sys, numba_baracuda.arrays.{module}; print(sorted({frameworks} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout == "[]\n"


# what each framework's array is


def test_numpy(emulator: None) -> None:
    array = np.zeros((6, 4), "f4")[::-2, 1:]
    assert facts(seen(array)) == (array.ctypes.data, (3, 3), (-8, 1), "f32", -1, "numpy", False, "input")
    assert seen(array).owner is array
    array.flags.writeable = False
    assert seen(array).readonly
    assert seen(np.zeros(())).shape == ()


@pytest.mark.parametrize(
    ("dtype", "element"),
    [("f2", "f16"), (ml_dtypes.bfloat16, "bf16"), ("f4", "f32"), ("f8", "f64"), ("i4", "i32"), ("i8", "i64"), ("u1", "u8"), ("?", "bool")],
)
def test_elements(emulator: None, dtype: Any, element: str) -> None:
    view = seen(np.zeros((5, 3), dtype))
    assert (view.element, view.strides) == (element, (3, 1))


def test_torch(card: None) -> None:
    tensor = Tensor((4, 2), (1, 4), "bfloat16", 2)
    assert facts(seen(tensor)) == (4096, (4, 2), (1, 4), "bf16", 2, "torch", False, "input")
    assert seen(Parameter()).kind == "torch"
    assert seen(Tensor(dtype="bool")).element == "bool"


def test_cupy(card: None) -> None:
    assert facts(seen(CupyArray(device=3))) == (8192, (4, 2), (2, 1), "f32", 3, "cupy", False, "input")
    assert seen(named("elsewhere", "Mine", CupyArray)()).kind == "cupy"
    assert seen(CupyArray(strides=(4, 2), dtype=ml_dtypes.bfloat16)).element == "bf16"


def test_numba(card: None) -> None:
    assert facts(seen(DeviceNDArray())) == (512, (3,), (1,), "i32", 0, "numba", False, "input")


def test_cuda_array_interface(card: None) -> None:
    assert facts(seen(Interface())) == (4096, (4, 2), (2, 1), "f32", 0, "foreign", False, "input")
    assert seen(Interface(strides=(4, 16))).strides == (1, 4)
    assert seen(Interface(data=(4096, True))).readonly
    assert seen(Interface(shape=(0, 2), data=(0, False))).ptr == 0
    second = Interface(version=2)
    del second.__cuda_array_interface__["strides"]
    assert seen(second).strides == (2, 1)


def test_the_device_of_a_bare_pointer_is_asked_for_when_there_are_several(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "pointer_device", {4096: 5, 0: 0}.__getitem__)
    assert seen(Interface()).device == 5


def test_bfloat16_through_the_interface_needs_a_dtype(card: None) -> None:
    for typestr in ("<V2", "|V2"):
        bare = Interface(typestr=typestr)
        with pytest.raises(
            errors.Unsupported, match=r"segment_sum: input is a Interface of typestr '.V2', which does not say bfloat16, wants a bfloat16"
        ):
            seen(bare)
        bare.dtype = np.dtype(ml_dtypes.bfloat16)  # type: ignore[attr-defined]
        assert (seen(bare).element, seen(bare).strides) == ("bf16", (2, 1))
        bare.dtype = np.dtype("V2")  # type: ignore[attr-defined]
        with pytest.raises(errors.Unsupported, match="bfloat16"):
            seen(bare)


def test_dlpack_goes_through_cupy(card: None, fake_cupy: Any) -> None:
    view = seen(Capsule())
    assert facts(view) == (8192, (4, 2), (2, 1), "f32", 0, "foreign", False, "input")
    assert isinstance(view.owner, CupyArray)


def test_jax_goes_through_dlpack_and_is_readonly(card: None, fake_cupy: Any) -> None:
    array = named("jaxlib._jax", "ArrayImpl", Capsule)()
    array.__cuda_array_interface__ = {}
    view = seen(array)
    assert (view.kind, view.readonly) == ("jax", True)
    tracer = named("jax._src.interpreters.partial_eval", "DynamicJaxprTracer", named("jax._src.core", "Tracer", Capsule))
    with pytest.raises(errors.InvalidProblem, match="input is of type DynamicJaxprTracer, wants an array"):
        seen(tracer())


def test_dlpack_without_cupy(card: None, monkeypatch: pytest.MonkeyPatch, fake_torch: Any) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    view = seen(Capsule())
    assert (view.kind, type(view.owner)) == ("foreign", Tensor)
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(errors.Unsupported, match="cuda12"):
        seen(Capsule())


def test_dlpack_failures_name_the_argument(card: None, monkeypatch: pytest.MonkeyPatch, fake_cupy: Any) -> None:
    with pytest.raises(errors.Unsupported, match="input is a Capsule in host memory, wants one in device memory"):
        seen(Capsule(kind=1))

    def refuse(obj: Any) -> Any:
        raise BufferError("sharded")

    monkeypatch.setattr(fake_cupy, "from_dlpack", refuse)
    with pytest.raises(errors.Unsupported, match="segment_sum: input is a Capsule that cannot be shared through DLPack: sharded"):
        seen(Capsule())


# what is refused


@pytest.mark.parametrize(("obj", "what"), [(None, "None"), (3, "of type int"), ("x", "of type str")])
def test_what_is_no_array(card: None, obj: Any, what: str) -> None:
    with pytest.raises(errors.InvalidProblem, match=rf"^segment_sum: input is {what}, wants an array of int32 or int64$"):
        seen(obj, "int32 or int64")


def test_elements_nobody_knows(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for obj in (CupyArray(dtype="c8"), Tensor(dtype="complex64"), Interface(typestr="<c8")):
        with pytest.raises(errors.InvalidProblem, match=r"^segment_sum: input is complex64\[4, 2\], wants one of float16, bfloat16, float32"):
            seen(obj)
    with pytest.raises(errors.InvalidProblem, match=r"^segment_sum: input is int16\[8\], wants int32 or int64$"):
        seen(CupyArray((8,), (2,), "i2"), "int32 or int64")
    with pytest.raises(errors.InvalidProblem, match=">f4"):
        seen(Interface(typestr=">f4"))


def test_addresses_and_strides_inside_an_element(card: None) -> None:
    for obj in (CupyArray(ptr=4098), Tensor(ptr=4098), Interface(data=(4098, False))):
        with pytest.raises(errors.MisalignedOperand, match="segment_sum: input is at address 0x1002, wants a multiple of its element size 4"):
            seen(obj)
    for obj in (CupyArray((0, 2), ptr=4098), Tensor((0, 2), ptr=4098), Interface(shape=(0, 2), data=(4098, False))):
        assert seen(obj).ptr == 4098
    for obj in (CupyArray(strides=(10, 4)), Interface(strides=(10, 4))):
        with pytest.raises(errors.Unsupported, match=r"segment_sum: input is of strides \(10, 4\) bytes, wants multiples of its element size 4"):
            seen(obj)


def test_a_masked_array(card: None) -> None:
    with pytest.raises(errors.Unsupported, match="mask"):
        seen(Interface(mask=Interface()))


def test_tensors_that_are_not_what_they_point_at(card: None) -> None:
    tensor = Tensor()
    tensor.negated = True
    with pytest.raises(errors.Unsupported, match="resolve_neg"):
        seen(tensor)
    tensor.sparse = True
    with pytest.raises(errors.Unsupported, match=r"of layout torch\.sparse_coo, wants a strided one"):
        seen(tensor)


def test_host_arrays_are_refused_where_there_is_a_card(card: None) -> None:
    with pytest.raises(
        errors.Unsupported, match=r"NumPy array, wants one in device memory: cupy\.asarray.*numba\.cuda\.to_device.*NUMBA_BARACUDA_EMULATE=1"
    ):
        seen(np.zeros(3))
    with pytest.raises(errors.Unsupported, match=r"torch tensor on cpu, wants one in device memory: x\.cuda"):
        seen(Tensor(device=-1))


@pytest.mark.parametrize("make", [Tensor, CupyArray, DeviceNDArray, Interface, Capsule])
def test_device_arrays_are_refused_in_the_emulator(emulator: None, make: Any) -> None:
    with pytest.raises(
        errors.Unsupported, match=r"segment_sum: input is a .*wants a NumPy array or a torch tensor in host memory, since ops run in the CPU emulator"
    ):
        seen(make())


def test_a_tensor_that_requires_grad(card: None, fake_torch: Any) -> None:
    """Where autograd records, only ops whose results have no gradient take it."""
    tensor, recording = Tensor(), [True]
    tensor.requires_grad = True
    fake_torch.is_grad_enabled = lambda: recording[0]
    refused = {
        "segment_sum": "numba_baracuda.torch.segment_sum",
        "cumsum_backward": "numba_baracuda.torch.cumsum_backward",
        "scan_axis": "no gradient",
    }
    for op, way in refused.items():
        with pytest.raises(errors.Unsupported, match=rf"^{op}: x is a torch tensor that requires grad, wants x\.detach\(\).*{way}"):
            arrays.view(tensor, op, "x")
    assert arrays.view(tensor, "reduce_argmax", "x").ptr == tensor.data_ptr()
    recording[0] = False
    assert arrays.view(tensor, "segment_sum", "x").ptr == tensor.data_ptr()


def test_what_comes_once_leaves_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """But of the first few, which are kept at once."""
    monkeypatch.setattr(views, "_met", {})
    memo: dict[Any, int] = {}
    for key in range(views._AT_ONCE):
        views.remember_again(memo, key, key)
    views.remember_again(memo, "once", 0)
    assert list(memo) == list(range(views._AT_ONCE))
    views.remember_again(memo, "once", 1)
    assert memo["once"] == 1


def test_arrays_that_differ_only_in_sizes_have_one_type(emulator: None) -> None:
    def type_of(array: Any) -> Any:
        return arrays.view(array, "segment_sum", "input").type

    known = type_of(np.ones((3, 2), np.float32))
    assert type_of(np.ones((300, 7), np.float32)[::2]) is known
    others = [np.ones(3, np.float32), np.ones((3, 2)), np.broadcast_to(np.float32(1), (3, 2))]
    assert len({known, *map(type_of, others)}) == 4


def test_torch_in_host_memory_in_the_emulator(emulator: None) -> None:
    assert facts(seen(Tensor(device=-1))) == (4096, (4, 2), (2, 1), "f32", -1, "torch", False, "input")


# glances


def glance(array: Any) -> glances.Glance:
    return glances.glances[type(array)](array, ("segment_sum", "input", ""))


@pytest.mark.parametrize(("make", "strides"), [(Tensor, ((2, 1), (1, 4))), (Parameter, ((2, 1), (1, 4))), (CupyArray, ((8, 4), (4, 16)))])
def test_a_glance_tells_arrays_apart(card: None, make: Any, strides: tuple[Any, Any]) -> None:
    arrays.emulating()
    ptr, known, view = glance(make(ptr=4096))
    assert (ptr, view) == (4096, None) and known[0][2:] == (2, 0) and known[1:] == ((4, 2), (2, 1))
    assert glance(make(ptr=8192)) == (8192, known, None)
    changed = make((4, 3)), make((4, 2), strides[1]), make(dtype="uint8"), make(device=1), make(ptr=4100)
    assert len({known, *[glance(array)[1] for array in changed]}) == 6


def test_what_a_glance_does_not_show_is_read(card: None, fake_torch: Any) -> None:
    fake_torch.is_grad_enabled = lambda: True
    for trouble, message in {"requires_grad": "requires grad", "negated": "negation is pending", "sparse": "sparse"}.items():
        tensor = Tensor()
        setattr(tensor, trouble, True)
        with pytest.raises(errors.Unsupported, match=message):
            glance(tensor)
    with pytest.raises(errors.Unsupported, match="multiples of its element size"):
        glance(CupyArray(strides=(6, 4)))
    for array in (DeviceNDArray(), Interface()):
        ptr, known, view = glance(array)
        assert view is not None and ptr == view.ptr and known == ((view.type, 0, len(view.shape), ptr & 15), view.shape, view.strides)


def test_a_glance_in_the_emulator_is_a_reading(emulator: None) -> None:
    ptr, known, view = glance(Tensor(device=-1))
    assert view is not None and (ptr, known) == (4096, ((view.type, 0, 2, 0), (4, 2), (2, 1)))
    for make in (Tensor, CupyArray):
        with pytest.raises(errors.Unsupported, match="NUMBA_BARACUDA_EMULATE"):
            glance(make())


# emulation


@pytest.mark.parametrize(("variable", "devices", "expected"), [("1", 1, True), ("0", 1, False), (None, 1, False), (None, 0, True), ("", 0, True)])
def test_when_ops_are_emulated(monkeypatch: pytest.MonkeyPatch, variable: str | None, devices: int, expected: bool) -> None:
    monkeypatch.delenv("NUMBA_BARACUDA_EMULATE", raising=False)
    if variable is not None:
        monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", variable)
    monkeypatch.setattr(driver, "device_count", lambda: devices)
    assert arrays.emulating() is expected
    monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", "0" if expected else "1")
    monkeypatch.setattr(driver, "device_count", lambda: 1)
    assert arrays.emulating() is expected
    arrays.reset()
    assert arrays.emulating() is not expected


def test_the_emulator_warns_once() -> None:
    with pytest.warns(emulation.EmulationWarning, match=r"some 10\^4 to 10\^5 elements/s in the CPU emulator") as caught:
        emulation.warn_emulated()
        emulation.warn_emulated()
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        emulation.warn_emulated()


def test_operands_share_a_device(card: None) -> None:
    here, there, nowhere = seen(CupyArray(device=1)), arrays.view(CupyArray(), "op", "segment_ids"), seen(Interface(shape=(0,), data=(0, False)))
    assert arrays.check_one_device("op", [here, here]) == 1
    assert arrays.check_one_device("op", [nowhere, here, nowhere]) == 1
    assert arrays.check_one_device("op", []) == -1
    with pytest.raises(errors.InvalidProblem, match=r"^op: segment_ids is on device 0, wants device 1, where input is$"):
        arrays.check_one_device("op", {"input": here, "segment_ids": there}.values())
    host = arrays.View(64, (1,), (1,), arrays.ArrayType.of("f32", 1, -1, "numpy", False), None, "weight")
    with pytest.raises(errors.InvalidProblem, match="weight is on the host, wants device 1"):
        arrays.check_one_device("op", [here, host])


# allocation


def test_results_in_the_emulator_are_numpy(emulator: None) -> None:
    made = allocation.empty(seen(np.zeros(3)), (2, 5), "bf16", 0)
    assert type(made) is np.ndarray and made.shape == (2, 5) and made.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("nbytes", [0, 1, 16, 1000])
def test_scratch_in_the_emulator(emulator: None, nbytes: int) -> None:
    for _ in range(8):
        made = allocation.scratch(seen(np.zeros(3)), nbytes, 0)
        assert made.owner.dtype == np.uint32 and made.owner.nbytes == -(-nbytes // 4) * 4
        assert made.ptr % 16 == 0 and made.ptr == made.owner.ctypes.data
        assert (made.shape, made.element, made.name, made.kind) == ((nbytes,), "u8", "workspace", "numpy")


def test_cupy_memory_belongs_to_the_stream_it_is_for(card: None, fake_cupy: Any) -> None:
    like, taken = seen(CupyArray()), fake_cupy.state.taken
    made = allocation.empty(like, (2, 5), "f64", 0)
    assert made.shape == (2, 5) and made.dtype == np.float64
    allocation.empty(like, (2,), "f32", 9)
    allocation.scratch(like, 100, 9)
    allocation.scratch(seen(CupyArray(device=3)), 100, 0)
    assert [(device, stream) for device, stream, *_ in taken] == [(0, 0), (0, 9), (0, 9), (3, 0)]
    assert (fake_cupy.state.device, fake_cupy.state.stream) == (0, 0)
    fake_cupy.state.stream = 5
    assert allocation.scratch(seen(Interface()), 100, 0).ptr == 1 << 20
    assert taken[-1][:2] == (0, 0) and fake_cupy.state.stream == 5


def test_torch_memory_belongs_to_the_stream_it_is_for(card: None, fake_torch: Any) -> None:
    like = seen(Tensor())
    assert type(allocation.empty(like, (2, 5), "bf16", 7)) is Tensor
    assert allocation.scratch(like, 100, 9).ptr == 4096
    allocation.scratch(like, 100, 0)
    assert fake_torch.state.taken == [
        (7, (2, 5), (5, 1), TORCH_DTYPES["bfloat16"], ("cuda", 0)),
        (9, (100,), (1,), TORCH_DTYPES["uint8"], ("cuda", 0)),
        (0, (100,), (1,), TORCH_DTYPES["uint8"], ("cuda", 0)),
    ]
    assert fake_torch.state.stream == 7


def test_without_a_framework_the_driver_gives_memory_and_takes_it_in_stream_order(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    freed = []
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    monkeypatch.setattr(driver, "alloc_async", lambda nbytes, stream, device: 1 << 12)
    monkeypatch.setattr(driver, "free_async", lambda *what: freed.append(what))
    made = allocation.scratch(seen(DeviceNDArray()), 100, 9)
    assert made.ptr == 1 << 12 and freed == []
    del made
    assert freed == [(1 << 12, 9, 0)]


def test_results_for_foreign_arrays_need_cupy(card: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(errors.Unsupported, match="cuda12"):
        allocation.empty(seen(Interface()), (2,), "f32", 0)


# streams


@pytest.mark.parametrize(
    ("stream", "handle"), [(0, 0), (30, 30), (np.int64(30), 30), (NumbaStream(), 31), (CupyStream(), 32), (TorchStream(), 33), (CoreStream(), 34)]
)
def test_streams_in_every_spelling(card: None, stream: Any, handle: int) -> None:
    got = streams.stream_handle(stream, seen(CupyArray()))
    assert got == handle and type(got) is int


@pytest.mark.parametrize("stream", ["0", 1.0, True, np.zeros(1, int), Tensor(), object()])
def test_what_is_no_stream(card: None, stream: Any) -> None:
    with pytest.raises(errors.InvalidProblem, match=f"stream is of type {type(stream).__name__}, wants"):
        streams.stream_handle(stream, seen(CupyArray()))


def test_no_stream_is_the_current_one_of_the_owner(card: None, fake_cupy: Any, fake_torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_cupy.state.stream = 5
    assert streams.stream_handle(None, seen(CupyArray(device=2))) == 2005
    assert streams.stream_handle(None, seen(Tensor(device=3))) == 3007
    assert streams.stream_handle(None, seen(Capsule())) == 5
    assert streams.stream_handle(None, seen(DeviceNDArray())) == 0
    assert streams.stream_handle(None, seen(Interface())) == 0
    assert streams.stream_handle(None, seen(Interface(stream=77))) == 77
    assert streams.stream_handle(None, seen(Interface(stream=None))) == 0
    monkeypatch.setattr(fake_torch._C, "_cuda_getCurrentRawStream", None)
    del fake_torch._C._cuda_getCurrentRawStream
    streams.torch_stream.cache_clear()
    monkeypatch.setattr(fake_torch.cuda, "current_stream", lambda device: types.SimpleNamespace(cuda_stream=8))
    assert streams.stream_handle(None, seen(Tensor())) == 8


def test_a_numpy_array_has_no_stream(emulator: None) -> None:
    assert streams.stream_handle(None, seen(np.zeros(3))) == 0


# the streams that arrays are made on


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The driver's streams: which of them are captured, and which follow which."""
    state = types.SimpleNamespace(captured=set(), followed=[])
    monkeypatch.setattr(driver, "meets_capture", lambda stream, device: stream in state.captured)
    monkeypatch.setattr(driver, "follow", lambda *what: state.followed.append(what))
    monkeypatch.setattr(driver, "idle_stream", lambda device: 99 + device)
    return state


def test_the_stream_that_an_array_names(card: None, fake_cupy: Any) -> None:
    assert [seen(array).producer for array in (CupyArray(), Tensor(), DeviceNDArray(), Interface(), Interface(stream=None))] == [None] * 5
    assert [seen(Interface(stream=stream)).producer for stream in (1, 2, np.int64(77))] == [1, 2, 77]
    bound = named("numba.cuda.cudadrv.devicearray", "DeviceNDArray", DeviceNDArray, stream=NumbaStream())()
    assert (seen(bound).kind, seen(bound).producer) == ("numba", 31)
    assert seen(Interface(stream=77)).seen_as((1,), (1,)).producer == 77


@pytest.mark.parametrize("stream", [0, -5, True, 1.0, "1"])
def test_a_stream_that_no_array_may_name(card: None, stream: Any) -> None:
    message = rf'segment_sum: input is a Interface whose __cuda_array_interface__ has "stream": {stream!r}, wants None, 1 for the legacy default'
    with pytest.raises(errors.InvalidProblem, match=message):
        seen(Interface(stream=stream))


def test_what_comes_through_dlpack_is_made_on_the_current_stream(card: None, fake_cupy: Any, queue: Any) -> None:
    fake_cupy.state.stream = 5
    assert seen(Capsule()).producer == 5
    assert seen(named("jaxlib._jax", "ArrayImpl", Capsule)()).producer == 5


def test_dlpack_from_torch_is_made_on_its_current_stream(card: None, fake_torch: Any, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert seen(Capsule()).producer == 7


def test_dlpack_during_a_capture_orders_a_stream_that_is_not_captured(
    card: None, fake_cupy: Any, queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Exporter(Capsule):
        def __dlpack__(self, **options: Any) -> None:
            asked.append(options)

    def take(obj: Any) -> Any:
        assert obj.__dlpack_device__() == (2, 0)
        obj.__dlpack__(stream=fake_cupy.state.stream, max_version=(1, 0))
        return CupyArray()

    monkeypatch.setattr(fake_cupy, "from_dlpack", take)
    fake_cupy.state.stream = 5
    assert (seen(Exporter()).producer, asked.pop()) == (5, {"stream": 5, "max_version": (1, 0)})
    for stream in (5, 0):  # the default stream would wait for the captured one
        fake_cupy.state.stream = stream
        queue.captured = {stream}
        assert (seen(Exporter()).producer, asked.pop()) == (99, {"stream": 99, "max_version": (1, 0)})


def test_a_stream_follows_every_producer_that_is_another(card: None, queue: Any) -> None:
    operands = [seen(array) for array in (CupyArray(), Interface(stream=77), Interface(stream=5), Interface(stream=77), Interface(stream=78))]
    streams.follow(operands, 5, 0)
    assert sorted(queue.followed) == [(5, 77, 0), (5, 78, 0)]
    queue.followed.clear()
    queue.captured = {5, 78}
    streams.follow(operands, 5, 0)
    assert queue.followed == [(5, 78, 0)], "a captured stream cannot wait for what is not captured"
    queue.followed.clear()
    queue.captured = {78}
    streams.follow(operands, 5, 0)
    assert sorted(queue.followed) == [(5, 77, 0), (5, 78, 0)], "or else it would run ahead of the capture"


def test_scratch_of_a_capture_is_the_graphs(card: None, fake_cupy: Any, queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's pool would give it to the next who asks, and a replay would write there."""
    calls = []
    monkeypatch.setattr(driver, "alloc_async", lambda *what: calls.append(what) or 1 << 12)
    monkeypatch.setattr(driver, "free_async", lambda *what: calls.append(what))
    queue.captured = {9}
    made = allocation.scratch(seen(CupyArray()), 100, 9)
    assert made.ptr == 1 << 12 and calls == [(100, 9, 0)] and fake_cupy.state.taken == []
    del made
    assert calls == [(100, 9, 0), (1 << 12, 9, 0)]
    assert allocation.scratch(seen(CupyArray()), 100, 8).ptr == 1 << 20


# memory that is reached


BASE = np.zeros((6, 8), "f4")
VIEWS = {
    "all": BASE,
    "rows": BASE[2:4],
    "other rows": BASE[4:],
    "left": BASE[:, :4],
    "right": BASE[:, 4:],
    "reversed": BASE[::-1, ::-1],
    "reversed rows": BASE[3:1:-1],
    "broadcast": np.broadcast_to(BASE[5, 3], (4, 4)),
    "transposed": BASE.T,
    "empty": BASE[2:2],
    "one": BASE[5, 7, ...],
    "column of one": BASE[:1, 2:3],
}


def place(name: str) -> arrays.View:
    return seen(VIEWS[name])


def touching(a: Any, b: Any) -> bool:
    first, second = seen(a), seen(b)
    return spans.touch(spans.blocks(first), spans.blocks(second), second.ptr - first.ptr)


@pytest.mark.parametrize("name", VIEWS)
def test_the_reach_is_what_numpy_says(emulator: None, name: str) -> None:
    array = VIEWS[name]
    low, high, *_ = spans.blocks(place(name))
    if not array.size:
        assert low == high
    else:
        assert (low + array.ctypes.data, high + array.ctypes.data) == getattr(np.lib, "array_utils", np).byte_bounds(array)


@pytest.mark.parametrize(("a", "b"), list(itertools.product(VIEWS, VIEWS)))
def test_overlap_is_what_numpy_says(emulator: None, a: str, b: str) -> None:
    assert touching(VIEWS[a], VIEWS[b]) is np.shares_memory(VIEWS[a], VIEWS[b])


def test_overlap_is_what_numpy_says_of_any_slices(emulator: None) -> None:
    """Of equal steps, whose answers are exact; where steps differ, whatever may touch does."""
    rng = np.random.default_rng(5)
    apart = 0
    for _ in range(3000):
        base = np.zeros(tuple(rng.integers(1, 9, rng.integers(1, 4))), "f4")
        steps = [int(step) for step in rng.integers(1, 4, base.ndim)]

        def part(steps: list[int], base: Any = base) -> Any:
            first, length = ([int(rng.integers(0, extent)) for extent in base.shape] for _ in range(2))
            cut = base[tuple(slice(low, low + 1 + count, step) for low, count, step in zip(first, length, steps, strict=True))]
            return cut[:: rng.choice([-1, 1])].transpose(rng.permutation(base.ndim))

        a, b = part(steps), part(steps)
        assert touching(a, b) is touching(b, a) is np.shares_memory(a, b), (a.shape, a.strides, b.shape, b.strides)
        apart += not np.shares_memory(a, b) and np.may_share_memory(a, b)
        c = part([int(step) for step in rng.integers(1, 4, base.ndim)]).view(rng.choice(["f4", "i4"]))
        assert touching(a, c) or not np.shares_memory(a, c)
        thin = c.view("u1")[..., ::2] if c.strides[-1] == 4 else c
        assert touching(a, thin) or not np.shares_memory(a, thin)
    assert apart > 100


def test_arrays_of_many_blocks_and_other_pitches_are_taken_to_touch(emulator: None) -> None:
    base = np.zeros(100_000, "f4")
    assert touching(base[::6], base[1::9]) and not np.shares_memory(base[::6], base[1::9])
    assert not touching(base[:30_000:6], base[30_000::9])


@pytest.mark.parametrize("name", VIEWS)
def test_contiguity_is_what_numpy_says(emulator: None, name: str) -> None:
    assert spans.is_contiguous(place(name)) is VIEWS[name].flags.c_contiguous


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4), (0, 3), (1, 1)])
def test_c_strides_are_numpys(shape: tuple) -> None:
    array = np.empty(shape, "u1")
    assert c_strides(shape) == tuple(array.strides) or not array.size


def test_numbers_in_lists_and_tuples(emulator: Any) -> None:
    """The emulator makes arrays of them; no op writes into one."""
    np.testing.assert_array_equal(nb.segment_sum([[1.0, 2.0], [3, 4]], (1, 1), 3), [[0, 0], [4, 6], [0, 0]])
    assert nb.reduce_sum([1.5, 2.5], 0).dtype == np.float64
    for wrong in ([1, [2, 3]], ["1"], [None], (1j,)):
        with pytest.raises(
            errors.InvalidProblem, match=f"reduce_sum: x is of type {type(wrong).__name__}, not of numbers in rows of one length, wants"
        ):
            nb.reduce_sum(wrong, 0)
    with pytest.raises(errors.BaracudaError, match=r"reduce_sum: (y|out|output) is .*read-only"):
        nb.reduce_sum(np.ones(3), 0, out=[0.0])


def test_numbers_in_lists_are_no_device_arrays(card: None) -> None:
    with pytest.raises(
        errors.InvalidProblem, match=r"input is of type list, wants an array of int32 in device memory, which cupy.asarray\(x\) makes"
    ):
        arrays.view([1.0], "op", "input", "int32")


def test_a_warning_about_emulation_names_the_line_of_the_call(emulator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "_warned", False)
    with pytest.warns(emulation.EmulationWarning) as caught:
        nb.reduce_sum(np.ones((3, 2), np.float32), 0)
    assert [warning.filename for warning in caught] == [__file__]
