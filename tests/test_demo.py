"""The demo: its import graph on a made-up package tree, its reference, and the whole of it as a user runs it."""

from __future__ import annotations

import importlib
import io
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from kinds import Kind
from rich.console import Console

import numba_baracuda as nb
from numba_baracuda import cli
from numba_baracuda.demo import attention, inequality, segments, sizes
from numba_baracuda.demo.attention import FEATURES, HEADS, SLOPE, Layer, attend, attend_float64, draw_layer
from numba_baracuda.demo.imports import ImportGraph, build_graph, find_modules, resolve, standard_library
from numba_baracuda.demo.pagerank import DAMPING, pagerank_float64

TREE = {
    "alpha.py": "import beta.gamma\nimport sys\nimport nowhere\n",
    "beta/__init__.py": "from . import gamma\nfrom .gamma import thing\nfrom .sub import *\n",
    "beta/gamma.py": "from .. import beyond_the_top\nimport alpha, alpha\ndef f():\n    if f:\n        from . import delta, not_a_module\n",
    "beta/delta.py": "try:\n    import alpha\nexcept ImportError:\n    from .sub import leaf\n",
    "beta/sub/__init__.py": "",
    "beta/sub/leaf.py": "from ... import no\nfrom .. import delta as d\nfrom beta import gamma\nmatch 1:\n    case 1:\n        import beta.sub\n",
    "broken.py": "def (:\n",
    "nul.py": "x = 1\0\n",
    "test/__init__.py": "import alpha\n",
    "beta/tests/__init__.py": "import alpha\n",
    "site-packages/other/__init__.py": "import alpha\n",
    "no_package/module.py": "import alpha\n",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path


def edges(graph: ImportGraph) -> set[tuple[str, str]]:
    return {(graph.names[s], graph.names[t]) for s, t in zip(graph.sources, graph.targets, strict=True)}


def test_modules_found(tree: Path) -> None:
    names = [module.name for module in find_modules(tree)]
    assert names == ["alpha", "beta", "beta.delta", "beta.gamma", "beta.sub", "beta.sub.leaf", "broken", "nul"]


def test_graph_edges(tree: Path) -> None:
    graph = build_graph(tree, built_in={"sys", "time"})
    assert edges(graph) == {
        ("alpha", "beta.gamma"),
        ("alpha", "sys"),
        ("beta", "beta.gamma"),
        ("beta", "beta.sub"),
        ("beta.gamma", "alpha"),
        ("beta.gamma", "beta.delta"),
        ("beta.gamma", "beta"),
        ("beta.delta", "alpha"),
        ("beta.delta", "beta.sub.leaf"),
        ("beta.sub.leaf", "beta.delta"),
        ("beta.sub.leaf", "beta.gamma"),
        ("beta.sub.leaf", "beta.sub"),
    }
    assert len(graph.sources) == len(edges(graph))
    assert graph.sources.dtype == graph.targets.dtype == np.int32
    assert (graph.parsed, graph.unparsed) == (6, 2)
    assert "sys" in graph.names and not {"time", "broken", "nowhere"} & set(graph.names)


def test_graph_reports_progress(tree: Path) -> None:
    seen: list[tuple[int, int]] = []
    build_graph(tree, on_file=lambda done, total: seen.append((done, total)))
    assert seen == [(done, 8) for done in range(1, 9)]


def test_graph_of_nothing(tmp_path: Path) -> None:
    graph = build_graph(tmp_path)
    assert graph.names == () and len(graph.sources) == 0 and graph.parsed == 0


@pytest.mark.parametrize(
    ("base", "taken", "found"),
    [
        ("a.b", (), ["a.b"]),
        ("a.b.attribute", (), ["a.b"]),
        ("a", ("b",), ["a.b"]),
        ("a", ("b", "x"), ["a.b", "a"]),
        ("a", ("*",), ["a"]),
        ("z", ("b",), []),
        ("", ("b",), []),
    ],
)
def test_resolve(base: str, taken: tuple[str, ...], found: list[str]) -> None:
    assert list(resolve(base, taken, {"a", "a.b"})) == found


def test_standard_library_is_a_real_graph() -> None:
    graph = standard_library()
    if not graph.parsed:
        pytest.skip("this interpreter comes without the sources of its library")
    assert len(graph.names) > 300 and len(graph.sources) > 1000
    assert {"os", "sys", "re", "json.decoder"} <= set(graph.names)
    assert ("json", "json.decoder") in edges(graph)


def random_graph(nodes: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return random.integers(0, nodes // 2, count, dtype=np.int32), random.integers(0, nodes, count, dtype=np.int32)


def test_reference_keeps_the_sum() -> None:
    sources, targets = random_graph(50, 200)  # half of the nodes have no edge out
    for iterations in (0, 1, 7, 60):
        rank = pagerank_float64(sources, targets, 50, iterations)
        assert rank.sum() == pytest.approx(1, abs=1e-13)
        assert (rank > 0).all()


def test_reference_solves_the_equation() -> None:
    nodes = 40
    sources, targets = random_graph(nodes, 120)
    matrix = np.zeros((nodes, nodes))
    np.add.at(matrix, (targets, sources), 1.0)
    outgoing = matrix.sum(axis=0)
    matrix[:, outgoing == 0] = 1 / nodes
    matrix[:, outgoing > 0] /= outgoing[outgoing > 0]
    truth = np.linalg.solve(np.eye(nodes) - DAMPING * matrix, np.full(nodes, (1 - DAMPING) / nodes))
    np.testing.assert_allclose(pagerank_float64(sources, targets, nodes, 200), truth, rtol=1e-12)


def test_reference_of_a_cycle_is_even() -> None:
    ring = np.arange(6, dtype=np.int32)
    np.testing.assert_allclose(pagerank_float64(ring, (ring + 1) % 6, 6, 30), 1 / 6, rtol=1e-14)


#: targets not in order; "one" has a single importer, "top" and "alone" none
SMALL = ImportGraph(
    names=("alone", "hub", "one", "three", "top"),
    sources=np.array([4, 1, 3, 4, 2, 1], dtype=np.int32),
    targets=np.array([3, 2, 1, 1, 1, 3], dtype=np.int32),
    parsed=5,
    unparsed=0,
)


@pytest.fixture
def xp(kind: Kind) -> ModuleType:
    return importlib.import_module(kind.name)


def attended(graph: ImportGraph, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """What the section returns and prints for a graph."""
    monkeypatch.setattr(segments, "standard_library", lambda on_file: graph)
    printed = io.StringIO()
    right = attention.run(Console(file=printed, width=120), xp, True)
    return right, printed.getvalue()


def attention_by_loops(layer: Layer, graph: ImportGraph) -> tuple[np.ndarray, np.ndarray]:
    """A node and a head at a time."""
    weights, received = np.zeros((len(graph.sources), HEADS)), np.zeros((len(graph.names), HEADS, FEATURES))
    features = layer.features.astype(np.float64)
    for node in set(graph.targets):
        edges = [edge for edge, target in enumerate(graph.targets) if target == node]
        for head in range(HEADS):
            scores = [
                features[graph.sources[edge], head] @ layer.source_scores[head] + features[node, head] @ layer.target_scores[head] for edge in edges
            ]
            powers = np.exp([score if score > 0 else SLOPE * score for score in scores])
            weights[edges, head] = powers / powers.sum()
            received[node, head] = weights[edges, head] @ features[graph.sources[edges], head]
    return weights, received


def test_attention_of_a_small_graph(kind: Kind, xp: ModuleType) -> None:
    layer = draw_layer(SMALL)
    truth = attention_by_loops(layer, SMALL)
    for found, true in zip(attend_float64(layer, SMALL.sources, SMALL.targets), truth, strict=False):
        np.testing.assert_allclose(found, true, rtol=1e-12, atol=1e-13)
    on_device = Layer(*map(kind.array, (layer.features, layer.source_scores, layer.target_scores)))
    weights, received = map(kind.numpy, attend(xp, on_device, kind.array(SMALL.sources), kind.array(SMALL.targets)))
    assert weights.dtype == received.dtype == np.float32
    np.testing.assert_allclose(weights, truth[0], rtol=2e-5)
    np.testing.assert_allclose(received, truth[1], atol=2e-5)
    assert (weights[1] == 1).all()
    assert not received[[0, 4]].any()


def test_attention_prints_whom_a_module_attends_to(xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right, printed = attended(SMALL, xp, monkeypatch)
    assert right and " within the tolerance" in printed
    weights, _ = attention_by_loops(draw_layer(SMALL), SMALL)
    into_hub = [2, 3, 4]
    first = max(into_hub, key=lambda edge: weights[edge, 0])
    assert _row(printed, "hub") == ["hub", "3", SMALL.names[SMALL.sources[first]], f"{weights[first, 0]:.3f}"]


@pytest.mark.parametrize("name", ["segment_softmax", "segment_sum"])
@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_attention_says_what_is_wrong(name: str, factor: float, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = getattr(nb, name)

    def off(*arguments: Any) -> Any:
        return op(*arguments) * xp.float32(factor)

    monkeypatch.setattr(nb, name, off)
    right, printed = attended(SMALL, xp, monkeypatch)
    assert not right and "NOT WITHIN the tolerance" in printed


def test_attention_without_edges(tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert attended(build_graph(tmp_path), xp, monkeypatch) == (True, "")


def _packages(tmp_path: Path) -> Path:
    """Two packages with enough files, one of them by a file in a folder, and one with too few."""
    for package, count in (("many", 10), ("few", 3), ("large", 8)):
        folder = tmp_path / package
        folder.mkdir()
        (folder / "__init__.py").write_text("")
        for k in range(count):
            (folder / f"m{k}.py").write_text("#" * (100 * k + (5000 if package == "large" else 1)))
    return tmp_path


def _told(section: ModuleType, root: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """What a section on files returns and prints for the tree at ``root``."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(root)})
    printed = io.StringIO()
    right = section.run(Console(file=printed, width=120), xp, True)
    return right, printed.getvalue()


def _row(printed: str, first: str) -> list[str]:
    """The cells of the table row that begins with ``first``."""
    rows = ([cell.strip() for cell in line.strip("│").split("│")] for line in printed.splitlines())
    return next(row for row in rows if row[0] == first)


def test_sizes_of_files(tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    root = _packages(tmp_path)
    packages, measured = sizes.largest_files(find_modules(root))
    assert packages == ["large", "many"]
    np.testing.assert_array_equal(measured, [[5000 + 100 * k for k in range(8)], [100 * k + 1 for k in range(2, 10)]])
    right, printed = _told(sizes, root, xp, monkeypatch)
    assert right and " within the tolerance" in printed
    mean, std = 5350, measured[0].astype(np.float64).std(ddof=1)
    assert _row(printed, "large") == ["large", "42,800", f"{mean:,}", f"{std:,.0f}", f"{np.log(42800):.2f}"]


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_wrong_sizes_are_told(factor: float, tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    std = sizes.FUNCTIONS["reduce_std"]
    monkeypatch.setitem(sizes.FUNCTIONS, "reduce_std", lambda *arguments, **options: std(*arguments, **options) * xp.float32(factor))
    right, printed = _told(sizes, _packages(tmp_path), xp, monkeypatch)
    assert not right and "NOT WITHIN the tolerance" in printed


def test_sizes_of_no_files(tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right, printed = _told(sizes, tmp_path, xp, monkeypatch)
    assert right and "nothing" not in printed and "no sizes to reduce" in printed


#: bytes of each module's source; "b" and "d" are records, and so is "a", as the first; 100 bytes in all
FILE_SIZES = {"a": 5, "b": 15, "c": 10, "c.inner": 15, "d": 55, "e": 0}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "c").mkdir()
    for name, size in FILE_SIZES.items():
        path = tmp_path / ("c/__init__.py" if name == "c" else f"{name.replace('.', '/')}.py")
        path.write_bytes(b"#" * size)
    (tmp_path / "dangling.py").symlink_to(tmp_path / "nowhere.py")
    return tmp_path


def test_file_sizes_are_in_order_of_name(files: Path) -> None:
    names, measured = inequality.file_sizes(reversed(list(find_modules(files))))
    assert names == list(FILE_SIZES) and measured.tolist() == list(FILE_SIZES.values())


@pytest.mark.parametrize(
    ("measured", "index", "shares"),
    [
        ([7] * 20, 0.0, np.arange(1, 11) / 10),
        ([0, 0, 8, 0], 0.75, [0, 0, 0, 0, 0, 0, 0, 0.2, 0.6, 1]),
        ([4, 2, 3, 1], 0.25, [0.04, 0.08, 0.14, 0.22, 0.30, 0.42, 0.54, 0.68, 0.84, 1]),
        ([9], 0.0, np.arange(1, 11) / 10),
    ],
)
def test_inequality_of_few_files(measured: list[int], index: float, shares: Any, xp: ModuleType) -> None:
    sums = inequality.scans(xp, np.array(measured, np.float32))["cumsum"]
    np.testing.assert_allclose(inequality.lorenz(sums), shares, atol=1e-7)
    assert inequality.gini(sums) == pytest.approx(index, abs=1e-7)


def test_gini_is_half_the_relative_mean_difference() -> None:
    measured = np.random.default_rng(3).integers(0, 1000, 60).astype(np.float32)
    difference = np.abs(measured[:, None] - measured).mean(dtype=np.float64)
    assert inequality.gini(inequality.scans_float64(measured)["cumsum"]) == pytest.approx(difference / (2 * measured.mean(dtype=np.float64)))


@pytest.mark.parametrize(
    ("measured", "places"),
    [([5, 15, 10, 15, 55, 0], [0, 1, 4]), ([3, 3, 2], [0]), ([0, 0, 1], [0, 2]), ([1, 2, 3], [0, 1, 2])],
)
def test_records_of_few_files(measured: list[int], places: list[int], xp: ModuleType) -> None:
    assert inequality.records(inequality.scans(xp, np.array(measured, np.float32))["cummax"]).tolist() == places


def test_inequality_of_files(files: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    right, printed = _told(inequality, files, xp, monkeypatch)
    assert right and " within the tolerance" in printed
    assert "the 6 files of the standard library share its 100 bytes" in printed
    assert "Gini index 0.517 " in printed  # (7 − 2·(0 + 5 + 15 + 30 + 45 + 100)/100)/6
    assert _row(printed, "50%") == ["50%", "15.0%", "━" * 6]
    assert _row(printed, "90%") == ["90%", "67.0%", "━" * 26 + "╸"]
    assert _row(printed, "100%") == ["100%", "100.0%", "━" * 40]
    recorded = [line for line in printed.partition("Record sizes")[2].splitlines() if line.startswith("│")]
    assert [tuple(line.strip("│").split()) for line in recorded] == [("a", "│", "5"), ("b", "│", "15"), ("d", "│", "55")]


@pytest.mark.parametrize("name", ["cumsum", "cummax"])
@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_wrong_scans_are_told(name: str, factor: float, files: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = inequality.FUNCTIONS[name]
    monkeypatch.setitem(inequality.FUNCTIONS, name, lambda *arguments: scan(*arguments) * xp.float32(factor))
    right, printed = _told(inequality, files, xp, monkeypatch)
    assert not right and "NOT WITHIN the tolerance" in printed


@pytest.mark.parametrize("sources", [(), ("empty.py",)])
def test_inequality_of_no_bytes(sources: tuple[str, ...], tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in sources:
        (tmp_path / name).touch()
    right, printed = _told(inequality, tmp_path, xp, monkeypatch)
    assert right and "no sizes to scan" in printed


def test_inequality_in_ascii(files: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(files)})
    with io.TextIOWrapper(io.BytesIO(), "ascii") as printed:
        assert inequality.run(Console(file=printed, width=120), xp, True)
        printed.seek(0)
        assert f"| {'-' * 40} |" in printed.read()


def test_graph_is_read_once_for_all_sections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads: list[ImportGraph] = []
    monkeypatch.setattr(segments, "standard_library", lambda on_file: reads.append(build_graph(tmp_path)) or reads[-1])
    console = Console(file=io.StringIO())
    assert segments.run(console, np, True) and attention.run(console, np, True)
    assert len(reads) == 1


def test_whole_demo(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["demo", "--quick"]) == 0
    printed = capsys.readouterr().out
    graph = standard_library()
    if len(graph.sources):
        most = np.argsort(-np.bincount(graph.targets), kind="stable")[:10]
        for module in most:
            assert f" {graph.names[module]} " in printed
        assert printed.count(" within the tolerance") == 4
    assert "emulator" in printed or "The kernels ran on" in printed
