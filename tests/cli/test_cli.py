"""The command line: what info says of a broken machine, and that pages and pins agree with the code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pages
import pytest

import numba_baracuda as nb
from numba_baracuda import cli
from numba_baracuda import machine as report
from numba_baracuda.arrays import emulation
from numba_baracuda.core import registry
from numba_baracuda.core.registry import OPS
from numba_baracuda.runtime import libraries

ROOT = Path(__file__).resolve().parents[2]
HEALTHY = {
    "numba-baracuda": "0.1.0",
    "numba": "0.62.0",
    "numba-cuda": "0.30.4",
    "numpy": "2.4.6",
    "cupy-cuda12x": "14.2.0",
    "nvidia-cuda-nvcc-cu12": "12.9.86",
    "nvidia-nvjitlink-cu12": "12.9.86",
}
CARD = "Some GPU, compute capability 9.0"


def machine(
    without: str = "", devices: tuple[str, ...] = (CARD,), driver: int | None = 12090, forced: bool = False, missing: dict[str, str] | None = None,
    **versions: str,
) -> report.Machine:  # fmt: skip
    """A machine in order but for what is named; ``numpy="2.5"`` sets a version, underscores standing for hyphens."""
    installed = {**HEALTHY, **{name.replace("_", "-"): version for name, version in versions.items()}}
    installed.pop(without, None)
    return report.Machine(versions=installed, devices=list(devices), driver=driver, forced=forced, missing=missing or {})


def test_no_faults() -> None:
    assert report.faults(machine()) == []
    assert report.faults(machine(driver=13000)) == []
    assert report.faults(machine(devices=(), driver=None)) == []
    assert report.faults(machine(devices=(), driver=None, missing={"libcuda": "launches"})) == []  # a driver that is missing is no fault


@pytest.mark.parametrize(
    ("state", "named", "cure"),
    [
        (machine(numpy="2.5.0"), "NumPy 2.5.0", "numpy<2.5"),
        (machine(without="cupy-cuda12x"), "no CuPy", "numba-baracuda[cuda12]"),
        (machine(without="cupy-cuda12x", driver=13010), "no CuPy", "numba-baracuda[cuda13]"),
        (machine(cupy_cuda13x="14.2.0", driver=13000), "overwrite each other", "pip uninstall cupy-cuda12x cupy-cuda13x"),
        (machine(driver=11080), "driver older than the toolkit: it serves CUDA 11.8, the packages are for CUDA 12", "newer driver"),
        (machine(driver=12040, nvidia_nvjitlink="13.0.88"), "it serves CUDA 12.4, the packages are for CUDA 13", "numba-baracuda[cuda12]"),
        (machine(forced=True), "NUMBA_BARACUDA_EMULATE", "unset NUMBA_BARACUDA_EMULATE"),
        (machine(devices=()), "no device", "CUDA_VISIBLE_DEVICES"),
        (machine(numba_cuda="0.31.0"), "numba-cuda is 0.31.0", "numba-cuda>=0.30.4,<0.31"),
        (machine(without="numba-cuda"), "numba-cuda is not installed", "numba-cuda>=0.30.4,<0.31"),
        (machine(missing={"libcublasLt": "products"}), "not found: libcublasLt (products)", "numba-baracuda[cuda12]"),
        (machine(missing={"libnvvm": "code", "libnvrtc": "sorts"}, driver=13000), "libnvvm (code), libnvrtc (sorts)", "numba-baracuda[cuda13]"),
    ],
)
def test_fault_is_named_with_its_cure(state: report.Machine, named: str, cure: str) -> None:
    (fault,) = report.faults(state)
    assert named in fault and cure in fault.partition("Cure: ")[2]


def info(capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["info"]) == 0
    return capsys.readouterr().out


def fake_driver(monkeypatch: pytest.MonkeyPatch, version: Callable[[], int], devices: int = 0) -> None:
    driver = SimpleNamespace(
        driver_version=version, device_count=lambda: devices, device_name=lambda _: "Some GPU", compute_capability=lambda _: (9, 0)
    )
    monkeypatch.setitem(sys.modules, "numba_baracuda.runtime.driver", driver)
    monkeypatch.setattr("numba_baracuda.runtime.driver", driver, raising=False)


def fake_versions(monkeypatch: pytest.MonkeyPatch, **changed: str | None) -> None:
    versions: dict[str, Any] = {**HEALTHY, **{name.replace("_", "-"): version for name, version in changed.items()}}

    def version(name: str) -> str:
        if versions.get(name) is None:
            raise metadata.PackageNotFoundError(name)
        return str(versions[name])

    monkeypatch.setattr(metadata, "version", version)


def test_info_without_driver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> int:
        raise RuntimeError("libcuda is not here")

    fake_driver(monkeypatch, missing)
    fake_versions(monkeypatch, cupy_cuda12x=None, numpy="2.5.2")
    monkeypatch.setenv("NUMBA_BARACUDA_EMULATE", "1")
    printed = info(capsys)
    assert re.search(r"^GPU +none; kernels run in the CPU emulator \(RuntimeError: libcuda is not here\)$", printed, re.M)
    for fault in ("NumPy 2.5.2", "no CuPy", "NUMBA_BARACUDA_EMULATE is set"):
        assert re.search(f"^fault: {fault}.*Cure: ", printed, re.M), printed


def test_info_with_an_old_driver(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, lambda: 12020, devices=1)
    fake_versions(monkeypatch, cupy_cuda12x=None, cupy_cuda13x="14.2.0")
    monkeypatch.delenv("NUMBA_BARACUDA_EMULATE", raising=False)
    printed = info(capsys)
    assert re.search(r"^GPU 0 +Some GPU, compute capability 9\.0$", printed, re.M)
    assert "fault: driver older than the toolkit: it serves CUDA 12.2" in printed


def test_info_when_every_import_fails(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_versions(monkeypatch, **dict.fromkeys((name.replace("-", "_") for name in HEALTHY), None))
    for name in ("numba_baracuda.runtime.driver", "numba_baracuda.runtime.cache", "numba_baracuda.core.registry", "numpy"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delattr("numba_baracuda.runtime.driver", raising=False)
    printed = info(capsys)
    assert "not installed" in printed and "not available" in printed


def test_info_says_where_each_library_was_found(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> libraries.Found:
        if name == "nvrtc":
            raise RuntimeError("not here")
        return libraries.Found(f"/somewhere/lib{name}.so.12", "wheel")

    monkeypatch.setattr(libraries, "load", load)
    printed = info(capsys)
    for name, purpose in libraries.LIBRARIES.items():
        place = "not found" if name == "nvrtc" else re.escape(f"/somewhere/lib{name}.so.12 (wheel)")
        assert re.search(f"^lib{name} +{place}, for {re.escape(purpose)}$", printed, re.M), printed
    assert re.search("^fault: not found: libnvrtc .*Cure: pip install 'numba-baracuda", printed, re.M)


def test_info_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["families"]["scan"]["ops"] == [name for name, op in OPS.items() if op.family == "scan"]
    assert "scan_rows" in found["families"]["scan"]["kernels"]
    assert found["versions"]["numpy"] == metadata.version("numpy") == found["facts"]["numpy"]
    assert isinstance(found["faults"], list)


def test_info_names_ops_and_kernels_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = re.sub(r"[^a-z0-9_]+", " ", info(capsys)).split()
    assert set(OPS) <= set(words) and {"fold_tiles", "cross_entropy_rows"} <= set(words)


def test_bench_wants_a_gpu(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulation, "decided", True)
    assert cli.main(["bench"]) == 2
    assert "bench: kernels run in the CPU emulator" in capsys.readouterr().out


def test_module_runs_as_command() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    done = subprocess.run([sys.executable, "-m", "numba_baracuda", "info"], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "numba-cuda" in done.stdout


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["polish"])
    assert stop.value.code == 2
    assert "polish" in capsys.readouterr().err


def test_warmup_wants_an_architecture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    fake_driver(monkeypatch, lambda: 0, devices=0)
    assert cli.main(["warmup"]) == 2
    assert "--arch" in capsys.readouterr().out


def test_table_of_ops_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    table = pages.TEXTS["docs/ops.md"].partition(cli.TABLE_BEGIN)[2].partition(cli.TABLE_END)[0].strip()
    assert cli.main(["ops", "--markdown"]) == 0
    assert table == capsys.readouterr().out.strip(), f"run: {cli.TABLE_BEGIN.partition('by ')[2].removesuffix(' -->')}"


def test_table_is_put_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{cli.TABLE_BEGIN}\nstale\n{cli.TABLE_END}\nafter\n", encoding="utf-8")
    assert cli.main(["ops", "--markdown", "--into", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "stale" not in text and "| `segment_sum` |" in text
    page.write_text("no markers\n", encoding="utf-8")
    assert cli.main(["ops", "--markdown", "--into", str(page)]) == 2


def test_formulas_keep_their_brackets(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    op = SimpleNamespace(formula="y[s] = Σ x[i]", elements=("f32",), indices=("i32",), variants=(), backward=None)
    monkeypatch.setattr(registry, "OPS", {"segment_sum": op})
    assert cli.main(["ops"]) == 0
    assert "y[s] = Σ x[i]" in capsys.readouterr().out


def test_markdown_table() -> None:
    forward = SimpleNamespace(
        formula="y = |x|",
        elements=("f32", "f64"),
        indices=("i32",),
        variants=(SimpleNamespace(name="tiles", deterministic=True), SimpleNamespace(name="atomics", deterministic=False)),
        backward="segment_abs_backward",
    )
    backward = SimpleNamespace(formula="", elements=(), indices=(), variants=(), backward=None)
    table = cli.markdown_table({"segment_abs": forward, "segment_abs_backward": backward}).splitlines()
    assert table[2:] == ["| `segment_abs` | y = \\|x\\| | f32 f64 | i32 | tiles, atomics (order varies) | `segment_abs_backward` |"]


def test_commands_of_readme() -> None:
    readme = pages.TEXTS["README.md"]
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("optional-dependencies]")[2], re.M))
    for marker, tail in (("demo", ".venv/bin/numba-baracuda demo"), ("test", "pytest")):
        commands = re.findall(rf"^<!-- command: {marker} -->\n```sh\n(.*)\n```$", readme, re.M)
        assert len(commands) == 1 and tail in commands[0]
        (wanted,) = re.findall(r"\.\[([\w,]+)\]", commands[0])
        assert set(wanted.split(",")) <= extras


def test_one_source_of_the_version() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version", ' in project and not re.search("^version =", project, re.M)
    assert re.search(r'^\[tool\.hatch\.version\]\npath = "numba_baracuda/__init__.py"$', project, re.M)
    assert re.fullmatch(r"\d+\.\d+\.\d+", nb.__version__)


def test_the_page_names_the_oldest_versions() -> None:
    """Those of pyproject.toml, which .ci/versions installs."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| ([\w-]+) \| ([\d.]+) \|", pages.TEXTS["docs/versions.md"], re.M))
    for name, pinned in (("NumPy", "numpy"), ("Numba", "numba"), ("numba-cuda", "numba-cuda"), ("CuPy", "cupy-cuda12x")):
        (bound,) = re.findall(rf'^[^#]*"{pinned}>=([\d.]+)', project, re.M)
        assert table[name] == bound
    assert f'requires-python = ">={table["Python"]}' in project


def test_pins_of_pre_commit() -> None:
    pins = set(re.findall(r"\b(?:ruff|mypy)==[\d.]+", (ROOT / "pyproject.toml").read_text(encoding="utf-8")))
    assert len(pins) == 2
    assert pins == set(re.findall(r"\b(?:ruff|mypy)==[\d.]+", (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")))
