"""Array kinds, the emulator's schedules, and what is skipped where."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Callable, Iterator

import device_memory
import hypothesis
import pytest
from kinds import KINDS, Kind
from references import stem

from numba_baracuda import OPS
from numba_baracuda.arrays import arrays
from numba_baracuda.core.op import Op

# by default JAX takes three quarters of the card, which the other workers share, and keeps them
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")

hypothesis.settings.register_profile(
    "suite",
    deadline=None,  # the first use of a kernel infers its types
    max_examples=12,
    derandomize=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run the tests marked full, too")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore::numba_baracuda.EmulationWarning")


def _computes(item: pytest.Item) -> str:
    """The stem of a test's op, which is a parameter as an op, a name or a benchmark's case; "" for tests without an op."""
    given = getattr(getattr(item, "callspec", None), "params", {})
    op = given.get("op", getattr(given.get("case"), "op", given.get("name")))
    name = op.name if isinstance(op, Op) else op
    return stem(name) if isinstance(name, str) and name in OPS else ""


#: modules whose tests cross ops or device functions with elements and layouts; most of their time the emulator infers the types of kernels
CROSSED = (
    "test_backward", "test_benchmarks", "test_dense", "test_determinism", "test_device_atomics", "test_device_block", "test_device_warp",
    "test_exponentials", "test_first_rows", "test_forward", "test_index", "test_layout", "test_loss", "test_loss_numbers", "test_monoids",
    "test_nonfinite", "test_passes", "test_plan", "test_ranges", "test_reduce", "test_replay", "test_samples", "test_scan", "test_scan_integers",
    "test_scan_segments", "test_scan_tiling", "test_semantics", "test_sharded_axis", "test_sharded_axis_gradients", "test_sharded_rows",
    "test_sharded_rows_indexed", "test_single_pass", "test_torch_sharded", "test_vocab_options", "test_vocab_parallel",
    "test_gpu", "test_reduce_gpu", "test_scan_gpu",
)  # fmt: skip
#: without --full one of so many cases runs of a test of these modules that has more cases than the first number says
SHARES = ((33, 11), (7, 7), (3, 3))


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """The items that only --full runs.

    Of the cases of a crossed test those at equal distances run, from a first one that differs from test to test.

    Ops have two, four or six elements: 7 and 11 divide none of these numbers, so neighbouring ops are met in different ones.
    """
    cases: dict[tuple[str, bool], list[pytest.Item]] = {}
    for item in items:
        if item.path.stem in CROSSED:
            cases.setdefault((item.nodeid.partition("[")[0], "gpu" in item.keywords), []).append(item)
    left: set[pytest.Item] = set()
    for (name, _), group in cases.items():
        share = next((share for more, share in SHARES if len(group) > more), 1)
        first = zlib.crc32(name.encode()) % share
        left.update(case for k, case in enumerate(group) if k % share != first)
    return left


def _chosen_by_hand(config: pytest.Config) -> bool:
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--full"):
        left = {item for item in items if "full" in item.keywords and "gpu" not in item.keywords}
        if not _chosen_by_hand(config):
            left |= _left_out(items)
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]
    if arrays.emulating():
        # Tests of one op side by side: the emulator infers a kernel's types in every process, and each worker has a stretch of the tests.
        items.sort(key=_computes)
        gc.set_threshold(200_000, 20, 100)  # typed IR comes in hundred thousands of objects
        for item in items:
            if "gpu" in item.keywords:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device, and NUMBA_BARACUDA_EMULATE unset"))


@pytest.fixture(autouse=True)
def _device_memory(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests on a device run one at a time if they are large, and free memory."""
    if "gpu" not in request.keywords or arrays.emulating():
        yield
        return
    marker = request.node.get_closest_marker("memory")
    if marker is not None:
        with device_memory.turn(*marker.args):
            yield
        return
    yield
    device_memory.give_back(above=device_memory.KEPT)


def _kind(request: pytest.FixtureRequest) -> Kind:
    kind = KINDS[request.param]
    if kind.emulated:
        if not arrays.emulating():
            pytest.skip("a machine with a CUDA device runs NumPy arrays only with NUMBA_BARACUDA_EMULATE=1")
    else:
        pytest.importorskip("cupy" if kind.name == "numba" else kind.name)
    return kind


def _parameters(*names: str) -> list[object]:
    return [pytest.param(name, marks=() if KINDS[name].emulated else pytest.mark.gpu) for name in names]


@pytest.fixture(params=_parameters("numpy", "cupy"))
def kind(request: pytest.FixtureRequest) -> Kind:
    """One kind of arrays for each kind of machine: kernels do not see frameworks."""
    return _kind(request)


@pytest.fixture(params=_parameters("numpy", "cupy", "torch", "numba"))
def any_kind(request: pytest.FixtureRequest) -> Kind:
    """Every kind of arrays."""
    return _kind(request)


@pytest.fixture(scope="session")
def delay() -> Callable[..., None]:
    """``delay(handle)`` keeps a stream busy for some tenths of a second."""
    import cupy
    from numba import cuda

    @cuda.jit
    def doze(times: int) -> None:
        for _ in range(times):
            cuda.nanosleep(1_000_000)

    def start(handle: int, times: int = 300) -> None:
        doze[1, 1, cuda.external_stream(handle)](times)

    start(0, 1)
    cupy.cuda.runtime.deviceSynchronize()
    return start


@pytest.fixture
def emulator() -> Kind:
    """NumPy arrays, on machines that emulate."""
    if not arrays.emulating():
        pytest.skip("a machine with a CUDA device emulates only with NUMBA_BARACUDA_EMULATE=1")
    return KINDS["numpy"]
