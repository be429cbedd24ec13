"""The list of kernels that plans may ask for holds every kernel that plans of random extents do ask for. Nothing is launched."""

from __future__ import annotations

import random

import pytest

from numba_baracuda import OPS, cli
from numba_baracuda.core.op import Target
from numba_baracuda.core.registry import kernel_specs
from numba_baracuda.core.spec import KernelSpec
from numba_baracuda.plans import inventory
from numba_baracuda.runtime import warm

H200 = Target((9, 0), 132)
#: most of each extent, as a power of two; the columns of segments are fewer
MOST = {"segment": (28, 14, 26), "reduce": (26, 28, 26), "scan": (26, 28, 26)}


def _drawn(rng: random.Random, family: str) -> list[int]:
    """Extents of every magnitude; some are multiples of a power of two, as those that vectors fit are."""
    extents = [int(2 ** rng.uniform(0, most)) for most in MOST[family]]
    return [max(1, extent >> shift << shift) for extent, shift in zip(extents, rng.choices((0, 1, 2, 5), k=3), strict=True)]


_FULL = ("unsorted_segment_sum", "segment_softmax", "reduce_sum")


@pytest.mark.parametrize("name", ["segment_sum", "cumsum", *(pytest.param(name, marks=pytest.mark.full) for name in _FULL)])
def test_no_plan_asks_for_a_kernel_that_is_not_listed(name: str, request: pytest.FixtureRequest) -> None:
    op, rng = OPS[name], random.Random(name)
    index = (op.indices or ("",))[0]
    listed = inventory.kernels(op, "f32", index, H200)
    assert len(set(listed)) == len(listed)
    asked: dict[KernelSpec, list[int]] = {}
    for _ in range(1000 if request.config.getoption("--full") else 200):
        extents = _drawn(rng, op.family)
        asked |= dict.fromkeys(inventory.specs_of(op, "f32", index, extents, H200), extents)
    assert {spec.name: extents for spec, extents in asked.items() if spec not in set(listed)} == {}
    assert len(asked) > 20


@pytest.mark.parametrize("name", [name for name, op in OPS.items() if op.grid])
def test_every_op_with_a_grid_has_plans_on_it(name: str) -> None:
    op = OPS[name]
    extents = [axis.coarse[len(axis.coarse) // 2] for axis in op.grid]
    for element in op.elements:
        for index in op.indices or ("",):
            specs = inventory.specs_of(op, element, index, extents, H200)
            assert specs and all(isinstance(spec, KernelSpec) for spec in specs)


def test_only_losses_have_no_grid() -> None:
    assert {op.family for op in OPS.values() if not op.grid} == {"loss"}


def test_classes_are_ops_by_element_and_index() -> None:
    assert inventory.classes("segment_sum", "f32") == [("segment_sum", "f32", "i32"), ("segment_sum", "f32", "i64")]
    assert inventory.classes("reduce_sum", "f*") == [("reduce_sum", "f16", ""), ("reduce_sum", "f32", ""), ("reduce_sum", "f64", "")]
    assert inventory.classes("fused_*") == [] and inventory.classes("no_such_op") == []


def test_warmup_compiles_what_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    few = kernel_specs("cumsum")[:2]
    compiled: list[KernelSpec] = []
    monkeypatch.setattr(inventory, "list_all", lambda wanted, arch, workers, on_done: dict.fromkeys(wanted, few))
    monkeypatch.setattr(warm, "warm", lambda specs, arch, workers, on_done: compiled.extend(specs) or len(specs))
    assert cli.main(["warmup", "--arch", "sm_90", "--op", "cumsum", "--every-shape", "--element", "f32"]) == 0
    assert compiled == few and "2 kernels for sm_90" in capsys.readouterr().out
    assert cli.main(["warmup", "--arch", "sm_90", "--op", "fused_*", "--every-shape", "--element", "f32"]) == 2
    assert "no op matches 'fused_*'" in capsys.readouterr().out


def test_ops_says_how_many_there_are(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(inventory, "list_all", lambda wanted, arch, workers, on_done: {wanted[0]: kernel_specs("segment_sum")})
    assert cli.main(["ops", "--kernels", "f32"]) == 0
    said = capsys.readouterr().out
    assert "segment_sum" in said and str(len(kernel_specs("segment_sum"))) in said and "fold_carries" in said
