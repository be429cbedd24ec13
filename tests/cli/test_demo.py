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
from numba_baracuda.arrays import arrays
from numba_baracuda.demo import attention, inequality, next_byte, segments, sizes
from numba_baracuda.demo.attention import FEATURES, HEADS, SLOPE, Layer, attend, attend_float64, draw_layer
from numba_baracuda.demo.imports import ImportGraph, build_graph, find_modules, resolve, standard_library
from numba_baracuda.demo.next_byte import BYTES, CONTEXT, Model, Size
from numba_baracuda.demo.pagerank import DAMPING, pagerank_float64
from numba_baracuda.demo.stage import Stage

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


WIDE = 300  #: columns that no paragraph fills

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
    right = attention.run(Stage(Console(file=printed, width=WIDE), xp, True))
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
    right, printed = attended(build_graph(tmp_path), xp, monkeypatch)
    assert right and not printed.strip()  # a progress bar that is switched off ends its line in old versions of rich


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
    right = section.run(Stage(Console(file=printed, width=WIDE), xp, True))
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
        assert inequality.run(Stage(Console(file=printed, width=WIDE), xp, True))
        printed.seek(0)
        assert f"| {'-' * 40} |" in printed.read()


#: of the kernels that the emulated sizes have
SMALL_SIZE = Size(rows=12, features=8, steps=6)
LINES = b"def up(x):\n    return x + 1\n" * 9  #: short enough to be learned in so few steps


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree whose only source is ``LINES``, to be learned in few steps."""
    monkeypatch.setattr(next_byte, "SIZES", dict.fromkeys(next_byte.SIZES, SMALL_SIZE))
    (tmp_path / "lines.py").write_bytes(LINES)
    return tmp_path


def test_text_is_every_source_in_order_of_name(tmp_path: Path) -> None:
    for name, source in (("b.py", b"bb\n"), ("a.py", b"\xff"), ("c.py", b""), ("d.py", b"d")):
        (tmp_path / name).write_bytes(source)
    (tmp_path / "a1.py").symlink_to(tmp_path / "nowhere.py")
    text = next_byte.source_text(find_modules(tmp_path))
    assert text.dtype == np.uint8 and text.tobytes() == b"\xffbb\nd"


@pytest.mark.parametrize(
    ("text", "alone", "paired"),
    [
        (b"aaaa", 0, 0),
        (b"abab", np.log(2), 0),
        (b"aabb", np.log(2), 2 / 3 * np.log(2)),  # of the three bytes that have one before, two follow an "a", one of each kind
        (b"abacab", 2 / 3 * np.log(2) + np.log(3) / 2, 3 / 5 * np.log(3) - 2 / 5 * np.log(2)),  # "a" has b, c, b after it, the others "a"
        (bytes(range(256)), np.log(256), 0),
    ],
)
def test_entropies_of_few_bytes(text: bytes, alone: float, paired: float) -> None:
    assert next_byte.entropies(np.frombuffer(text, np.uint8)) == pytest.approx((alone, paired), abs=1e-12)


@pytest.mark.parametrize("places", [1, 2, 5])
def test_batches_stay_within_the_text(places: int, kind: Kind, xp: ModuleType) -> None:
    text = kind.array(np.arange(CONTEXT + places, dtype=np.uint8))  # each byte is its own place
    ids, target = map(kind.numpy, next_byte.draw_batch(xp, text, 100, np.random.default_rng(0)))
    assert ids.dtype == target.dtype == np.int32
    assert set(target.tolist()) == set(range(CONTEXT, CONTEXT + places))
    before = np.arange(CONTEXT)
    np.testing.assert_array_equal(ids, BYTES * before + target[:, None] - 1 - before)


def drawn(rows: int, features: int = 8) -> tuple[Model, np.ndarray, np.ndarray]:
    """A model of NumPy arrays and a batch."""
    return next_byte.draw_model(np, features), *next_byte.draw_batch(np, np.frombuffer(LINES, np.uint8), rows, np.random.default_rng(4))


def test_reference_gradients_are_slopes_of_the_loss() -> None:
    model, ids, target = drawn(5, features=3)
    model = Model(model.table.astype(np.float64), model.weight.astype(np.float64))
    _, *gradients = next_byte.differentiate_float64(model, ids, target)
    for array, gradient, rows in ((model.table, gradients[0], ids[2]), (model.weight, gradients[1], target)):
        for place in ((int(row), column) for row in rows for column in range(3)):
            losses = []
            for step in (1e-4, -2e-4):
                array[place] += step
                losses.append(next_byte.differentiate_float64(model, ids, target)[0])
            array[place] += 1e-4
            assert (losses[0] - losses[1]) / 2e-4 == pytest.approx(gradient[place], rel=1e-5, abs=1e-9)
    assert not gradients[0][np.setdiff1d(np.arange(len(model.table)), ids)].any()


def test_training_is_that_of_float64(kind: Kind, xp: ModuleType) -> None:
    told: list[tuple[int, float]] = []
    text = np.frombuffer(LINES, np.uint8)
    model = next_byte.draw_model(xp, 8)
    losses = next_byte.train(xp, kind.array(text), model, SMALL_SIZE, lambda done, loss: told.append((done, loss)))

    random = np.random.default_rng(1)
    arrays = [each.astype(np.float64) for each in vars(next_byte.draw_model(np, 8)).values()]
    squares = [np.zeros_like(each) for each in arrays]
    true_losses = []
    for _ in range(SMALL_SIZE.steps):
        loss, *gradients = next_byte.differentiate_float64(Model(*arrays), *next_byte.draw_batch(np, text, SMALL_SIZE.rows, random))
        squares = [sums + gradient**2 for sums, gradient in zip(squares, gradients, strict=True)]
        arrays = [each - 0.15 * g / (np.sqrt(sums) + 1e-6) for each, g, sums in zip(arrays, gradients, squares, strict=True)]
        true_losses.append(loss)
    np.testing.assert_allclose(losses, true_losses, rtol=1e-4)
    assert told == [(step, losses[step - 1]) for step in range(1, SMALL_SIZE.steps + 1)]
    for found, true in zip((model.table, model.weight), arrays, strict=True):
        np.testing.assert_allclose(kind.numpy(found), true, atol=1e-3)


def test_parts_of_a_training() -> None:
    assert next_byte.part_means(np.arange(8, dtype=np.float32)) == [(2, 0.5), (4, 2.5), (6, 4.5), (8, 6.5)]
    assert next_byte.part_means(np.arange(6, dtype=np.float32)) == [(2, 0.5), (4, 2.5), (5, 4), (6, 5)]


def test_writing_follows_the_bytes_before() -> None:
    table, weight = np.zeros((CONTEXT * BYTES, BYTES), np.float32), np.zeros((BYTES, CONTEXT * BYTES), np.float32)
    table[:BYTES] = np.eye(BYTES)  # only the nearest byte counts, and the next is one more
    weight[:, :BYTES] = 100 * np.roll(np.eye(BYTES), 1, axis=0)
    assert next_byte.write(Model(table, weight), 7) == b"!\"#$%&'"
    table[ord(" ")], table[7 * BYTES + ord(" "), 0] = 0, 1  # but after a blank what is eight before
    weight[ord("d"), 7 * BYTES] = 100
    assert next_byte.write(Model(table, weight), 3) == b"dde"


def test_what_is_written_can_be_printed() -> None:
    assert next_byte.printable(bytes([9, 10, 13, 27, 31, 32, 65, 126, 127, 128, 233, 255])) == "?\n??? A~????"


def test_learning_a_few_lines(lines: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    trainings: list[np.ndarray] = []
    train = next_byte.train
    monkeypatch.setattr(next_byte, "train", lambda *arguments: trainings.append(train(*arguments)) or trainings[-1])
    right, printed = _told(next_byte, lines, xp, monkeypatch)
    assert right and " within the tolerance" in printed
    assert f"Learned from {len(LINES)} bytes, 12 at each of 6 steps" in printed
    losses = trainings[0]
    last = f"{losses[-1]:.3f}"
    assert f"went from {losses[0]:.3f} to {last} nats" in printed
    assert [_row(printed, f"model {when}")[1] for when in ("at step 1", "up to step 6")] == [f"{losses[0]:.3f}", last]
    shares = np.unique(list(LINES), return_counts=True)[1] / len(LINES)
    assert _row(printed, "entropy of a byte")[1] == f"{-(shares * np.log(shares)).sum():.3f}"
    assert _row(printed, "all bytes as likely")[1:] == ["5.545", "━" * next_byte.BAR]


@pytest.mark.parametrize("factor", [1.001, float("nan")])
@pytest.mark.parametrize("name", ["loss", "grad_input", "grad_weight"])
def test_wrong_losses_are_found(name: str, factor: float, kind: Kind, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = nb.fused_linear_cross_entropy

    def off(*arguments: Any, **options: Any) -> Any:
        result = op(*arguments, **options)
        return result._replace(**{name: getattr(result, name) * xp.float32(factor)})

    text = kind.array(np.frombuffer(LINES, np.uint8))
    assert next_byte.first_error(xp, text, SMALL_SIZE) <= next_byte.RELATIVE_TOLERANCE
    monkeypatch.setattr(nb, "fused_linear_cross_entropy", off)
    assert not next_byte.first_error(xp, text, SMALL_SIZE) <= next_byte.RELATIVE_TOLERANCE


def test_gradients_of_other_bytes_are_told(lines: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    op = nb.unsorted_segment_sum
    monkeypatch.setattr(nb, "unsorted_segment_sum", lambda x, ids, count: op(x, ids[::-1].copy(), count))
    right, printed = _told(next_byte, lines, xp, monkeypatch)
    assert not right and "NOT WITHIN the tolerance" in printed


def test_learning_nothing_is_told(lines: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_byte, "RATE", 0.0)
    right, printed = _told(next_byte, lines, xp, monkeypatch)
    aim = "lower by at least 1.0" if xp is np else "below the entropy of a byte"
    assert not right and f"nats per byte, NOT {aim}." in printed and " within the tolerance" in printed


@pytest.mark.parametrize("source", [None, b"", b"x" * CONTEXT])
def test_learning_from_no_bytes(source: bytes | None, tmp_path: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    if source is not None:
        (tmp_path / "short.py").write_bytes(source)
    right, printed = _told(next_byte, tmp_path, xp, monkeypatch)
    assert right and "no bytes to learn from" in printed


def test_learning_in_ascii(lines: Path, xp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(lines)})
    with io.TextIOWrapper(io.BytesIO(), "ascii") as printed:
        assert next_byte.run(Stage(Console(file=printed, width=WIDE), xp, True))
        printed.seek(0)
        assert f"| {'-' * next_byte.BAR} |" in printed.read()


def test_graph_is_read_once_for_all_sections(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reads: list[ImportGraph] = []
    monkeypatch.setattr(segments, "standard_library", lambda on_file: reads.append(build_graph(tmp_path)) or reads[-1])
    stage = Stage(Console(file=io.StringIO()), np, True)
    assert segments.run(stage) and attention.run(stage)
    assert len(reads) == 1


@pytest.mark.parametrize("library", ["package", pytest.param("python", marks=pytest.mark.full if arrays.emulating() else ())])
def test_whole_demo(library: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """On sources that are there anywhere, and on those that the demo reads."""
    if library == "package":
        monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(Path(nb.__file__).parent)})
        monkeypatch.setattr(segments, "_EMULATED_ELEMENTS", 10_000)
    monkeypatch.setenv("COLUMNS", str(WIDE))
    assert cli.main(["demo", "--quick"]) == 0
    printed = capsys.readouterr().out
    graph = standard_library()
    if len(graph.sources):
        most = np.argsort(-np.bincount(graph.targets), kind="stable")[:10]
        for module in most:
            assert f" {graph.names[module]} " in printed
        assert printed.count(" within the tolerance") == 5
    assert library == "python" or len(graph.sources) > 100
    assert "emulator" in printed or "The kernels ran on" in printed
