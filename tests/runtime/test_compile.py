"""The compile ring: every kernel becomes machine code for three architectures, without a GPU. Fails where the toolchain is missing."""

import re

import pytest
import sass
from numba import cuda
from numba.cuda import types
from numba.cuda.types import float32, int64

from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.runtime import cache, jit
from numba_baracuda.runtime.parameters import Ptr

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
#: ops that together use every kernel, with monoids of every width; bfloat16 stands for float16, whose kernels differ in a conversion
CHOSEN = {
    "sm_80": ("segment_sum*", "reduce_sum*", "cumsum"),
    "sm_90": (
        "*segment_sum*", "segment_max*", "unsorted_segment_max", "segment_argmax", "segment_prod_backward", "segment_softmax*", "segment_var",
        "segment_norm2", "*segment_mean_backward", "unsorted_segment_prod_backward",
        "reduce_sum", "reduce_norm2", "reduce_logsumexp_backward", "reduce_prod_backward", "reduce_std_backward",
        "cumsum", "cummax", "cummax_backward", "logcumsumexp", "cumprod_backward",
    ),
    "sm_100": ("segment_sum*", "reduce_sum*", "cumsum"),
}  # fmt: skip
#: the op whose kernels stand for the losses: options add to a kernel, so that the one with most of them needs most registers
LOSSES = "fused_linear_cross_entropy"
#: the op of which atomics add terms about a pivot
ABOUT = "unsorted_segment_logsumexp"


def _fullest(specs: list[KernelSpec]) -> list[KernelSpec]:
    """Of every kernel and element the one with most options."""
    by_options = sorted(specs, key=lambda spec: sum(value is True for _, value in spec.constants))
    return list({(spec.factory, dict(spec.constants).get("value")): spec for spec in by_options}.values())


def _chosen(arch: str) -> list[KernelSpec]:
    specs = [spec for each in CHOSEN[arch] for spec in kernel_specs(each, arch)] + _fullest(kernel_specs(LOSSES, arch))
    specs += [spec for spec in kernel_specs(ABOUT, arch) if spec.kernel in ("scatter_rows", "finish_pivots")]
    return [spec for spec in dict.fromkeys(specs) if ("value", "f16") not in spec.constants]


#: integers, whose kernels have the accesses and the registers of the floats of their size, and differ in the instruction of their operator
TWINS = {"i32": "f32", "i64": "f64"}


def _first(arch: str) -> list[KernelSpec]:
    """What runs without --full: of every kernel and element the one with most options, but for twins; for other architectures one of each kernel."""
    fullest = {(spec.factory, dict(spec.constants).get("value")): spec for spec in _fullest(SPECS[arch])}
    chosen = [spec for (factory, element), spec in fullest.items() if element not in TWINS or (factory, TWINS[element]) not in fullest]
    return chosen if arch == "sm_90" else list({spec.factory: spec for spec in chosen}.values())


SPECS = {arch: _chosen(arch) for arch in ARCHITECTURES}
FIRST = {arch: _first(arch) for arch in ARCHITECTURES}
EVERY = list(dict.fromkeys(spec for specs in SPECS.values() for spec in specs))


def _batches() -> list[object]:
    """Neighbours share device functions, which are compiled once in a process, and one run of the disassembler."""
    first = list(dict.fromkeys(spec for specs in FIRST.values() for spec in specs))
    rest = [spec for spec in EVERY if spec not in set(first)]

    def cut(specs: list[KernelSpec], *marks: pytest.MarkDecorator) -> list[object]:
        return [pytest.param(specs[k : k + 8], marks=marks, id=specs[k].name) for k in range(0, len(specs), 8)]

    return cut(first) + cut(rest, pytest.mark.full)


pytestmark = pytest.mark.compile


def test_the_registry_names_kernels() -> None:
    assert len(EVERY) > 100
    assert {spec.factory.partition(":")[2] for spec in EVERY} >= {
        "fold_tiles",
        "fold_carries",
        "gather_rows",
        "gather_runs",
        "scatter_rows",
        "broadcast_to_rows",
        "broadcast_flat",
        "fold_bins",
        "count_ids",
        "count_few_ids",
        "fold_ranges",
        "split_ranges",
        "fold_rows",
        "fold_columns",
        "combine_partials",
        "broadcast_columns",
        "broadcast_dense",
        "find_special_results",
        "scan_rows",
        "scan_long_rows",
        "scan_columns",
        "scan_slices",
        "cross_entropy_rows",
        "total_targets",
        "fold_losses",
        "assign",
        "mask_rows",
    }


@pytest.mark.parametrize("specs", _batches())
def test_kernels_compile_clean(specs: list[KernelSpec], request: pytest.FixtureRequest) -> None:
    faults: dict[str, list[str]] = {}
    chosen = SPECS if request.config.getoption("--full") else FIRST
    for arch in ARCHITECTURES:
        cubins = {spec: cache.cubin(spec, arch) for spec in specs if spec in chosen[arch]}
        faults |= {f"{spec.name} for {arch}": sass.resource_faults(cubin) for spec, cubin in cubins.items()}
        if arch == "sm_90" and cubins:
            for (spec, cubin), code in zip(cubins.items(), sass.disassemble_all(list(cubins.values()), arch), strict=True):
                faults[f"{spec.name} for {arch}"] += sass.code_faults(code, spec, cubin)
    assert {name: found for name, found in faults.items() if found} == {}


@jit.kernel
def planted(*, value: str, vector: int, bug: str):
    """A copy with one of the faults that this ring is there to find."""
    from numba_baracuda.device.vector import LOAD_ONCE, STORE

    load, store = LOAD_ONCE[vector], STORE[vector]

    def double_literal(x: Ptr[value], y: Ptr[value], n: int64):
        i = cuda.grid(1) * vector
        buffer = cuda.local.array(vector, float32)
        if i < n:
            load(x, i, buffer, 0)
            for v in range(vector):
                buffer[v] = buffer[v] * 0.1
            store(y, i, buffer, 0)

    def scalar_access(x: Ptr[value], y: Ptr[value], n: int64):
        i = cuda.grid(1) * vector
        if i < n:
            for v in range(vector):
                y[i + v] = x[i + v]

    def indexed_local(x: Ptr[value], y: Ptr[value], n: int64):
        i = cuda.grid(1) * vector
        buffer = cuda.local.array(64, float32)
        for k in range(64):
            buffer[k] = x[i + k]
        if i < n:
            for v in range(vector):
                y[i + v] = buffer[n & 63]
                buffer[(n + v) & 63] = y[v]

    def clean(x: Ptr[value], y: Ptr[value], n: int64):
        i = cuda.grid(1) * vector
        buffer = cuda.local.array(vector, float32)
        if i < n:
            load(x, i, buffer, 0)
            store(y, i, buffer, 0)

    return {"double_literal": double_literal, "scalar_access": scalar_access, "indexed_local": indexed_local, "clean": clean}[bug]


def test_planted_faults_are_found() -> None:
    """Each in its own kernel, in whatever order they are disassembled."""
    bugs = {"double_literal": "float64 arithmetic", "clean": None, "scalar_access": "no 16-byte load", "indexed_local": "local memory"}
    specs = [KernelSpec(f"{__name__}:planted", (("bug", bug), ("value", "f32"), ("vector", 4)), max_threads=256) for bug in bugs]
    cubins = [jit.compile_cubin(spec, "sm_90") for spec in specs]
    for cubin, code, spec, (bug, complaint) in zip(cubins, sass.disassemble_all(cubins, "sm_90"), specs, bugs.items(), strict=True):
        assert code and sass.code_faults(sass.disassemble(cubin), spec, cubin) == sass.code_faults(code, spec, cubin), bug
        found = sass.resource_faults(cubin) + sass.code_faults(code, spec, cubin)
        assert found == [] if complaint is None else any(complaint in each for each in found), (bug, found)


def test_threads_that_walk_down_whole_columns_load_them_first() -> None:
    """All elements of a column are on their way before one is used, and no barrier is met."""
    specs = [spec for spec in kernel_specs("cumsum", "sm_90") if spec.factory.endswith(":scan_columns") and dict(spec.constants)["whole"]]
    assert specs
    for spec in specs:
        code = sass.disassemble(cache.cubin(spec, "sm_90"))
        accesses = re.findall(r"\b(LDG|STG|BAR)\b", code)
        steps = dict(spec.constants)["steps"]
        assert accesses == ["LDG"] * steps + ["STG"] * steps


def test_too_few_registers_are_found() -> None:
    cubin = jit.compile_cubin(kernel_specs("segment_sum", "sm_90")[1], "sm_90")
    assert sass.resource_faults(cubin) == []
    assert sass.resource_faults(type(cubin)(cubin.entry, cubin.image, cubin.registers, 8, 16, 0)) == [
        "8 bytes of spills",
        "16 bytes of local memory a thread",
    ]
    assert sass.resource_faults(type(cubin)(cubin.entry, cubin.image, 0, 0, 0, 0)) != []


def _on_arrays(kernel: jit.Kernel) -> tuple[types.Type, ...]:
    """A kernel's parameters as numba types them for a user who launches it on arrays."""
    return tuple(types.Array(ty.dtype, 1, "C") if isinstance(ty, types.CPointer) else ty for ty in kernel.types)


@pytest.mark.parametrize("name", sorted({spec.factory.partition(":")[2] for spec in EVERY}))
def test_kernels_take_arrays_too(name: str) -> None:
    spec = max((spec for spec in reversed(EVERY) if spec.factory.endswith(f":{name}")), key=lambda spec: ("vector", 1) not in spec.constants)
    kernel = jit.resolve(spec)
    text, entry = jit.compile_ptx(kernel.py_func, _on_arrays(kernel), "sm_90")
    assert f".entry {entry}" in text
    assert kernel.dispatcher(spec.max_threads).py_func is kernel.py_func


def test_kernels_launched_by_hand_fit_their_blocks() -> None:
    """Without bounds the compiler may give threads more registers than a block of them has."""
    kernel = jit.resolve(next(spec for spec in EVERY if spec.kernel == "fold_tiles"))
    for block, threads in ((256, 256), ((32, 4), 128)):
        assert kernel[7, block].dispatcher is kernel.dispatcher(threads)
        assert kernel.dispatcher(threads).targetoptions["launch_bounds"] == threads
