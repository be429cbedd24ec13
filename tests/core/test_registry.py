"""The table of ops."""

from __future__ import annotations

import collections
import fnmatch
import subprocess
import sys

import pytest
import references
from references import FLOATS, INTEGERS
from samples import OPS

import numba_baracuda as nb
from numba_baracuda.core import registry
from numba_baracuda.core.op import NULL, Clear, Gemm, Launch, Operand, Sort, Verify
from numba_baracuda.core.options import Described
from numba_baracuda.core.registry import Registry, find, kernel_specs
from numba_baracuda.core.spec import arrange
from numba_baracuda.runtime import jit

ARCHS = {"sm_80": (8, 0), "sm_90": (9, 0), "sm_100": (10, 0)}


def test_it_is_a_mapping() -> None:
    assert len(nb.OPS) == len(list(nb.OPS)) == len(set(nb.OPS))
    assert "segment_sum" in nb.OPS and "nothing" not in nb.OPS and "segment_nothing" not in nb.OPS and 5 not in nb.OPS
    assert all(nb.OPS[name].name == name for name in nb.OPS)
    with pytest.raises(KeyError):
        nb.OPS["nothing"]


def test_ops_stand_in_the_order_of_the_families() -> None:
    """Whichever is imported first."""
    code = "import numba_baracuda.reduce, numba_baracuda as nb; print(*dict.fromkeys(op.family for op in nb.OPS.values()))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split() == list(registry.FAMILIES)


def test_names_tell_the_family() -> None:
    for name, op in nb.OPS.items():
        assert [family for family, pattern in registry.FAMILIES.items() if fnmatch.fnmatchcase(name, pattern)] == [op.family]


def test_an_op_that_is_read_loads_no_other_family() -> None:
    code = "import sys, numba_baracuda as nb; nb.OPS['cumsum']; print(*(f'numba_baracuda.{name}.ops' in sys.modules for name in sys.argv[1:]))"
    found = subprocess.run([sys.executable, "-c", code, *registry.FAMILIES], capture_output=True, text=True, check=True).stdout.split()
    assert found == [str(family == "scan") for family in registry.FAMILIES]


def test_kinds_are_used_once() -> None:
    kinds = collections.Counter((op.category, op.kind, variant.name) for op in nb.OPS.values() for variant in op.variants)
    assert set(kinds.values()) == {1}


def test_every_op_has_a_reference() -> None:
    assert set(OPS) == set(references.REFERENCES), "a new row wants a reference in tests/support/references.py"


def test_gradients_name_each_other() -> None:
    gradients = {op.backward for op in OPS.values()} - {None}
    for name, op in OPS.items():
        assert op.traits["backward"] == (name in gradients)
        if op.backward:
            assert op.backward == f"{name}_backward" and op.backward in OPS
            backward = OPS[op.backward]
            assert {operand.name for operand in backward.operands} <= {operand.name for operand in op.operands} | {"d_output", "d_input"}
            assert backward.indices == op.indices


def test_elements() -> None:
    for op in OPS.values():
        whole = {*op.elements} - {*FLOATS}
        assert {*FLOATS} <= {*op.elements} and whole in (set(), {*INTEGERS}) and len(op.elements) == len(set(op.elements))
        assert not whole or not op.traits["backward"]
        assert op.indices == ("i32", "i64")


def test_sorted_and_unsorted_ops_come_in_pairs() -> None:
    for name, op in OPS.items():
        twin = OPS[name.removeprefix("unsorted_") if name.startswith("unsorted_") else f"unsorted_{name}"]
        assert (twin.formula, twin.operands, twin.elements, twin.indices) == (op.formula, op.operands, op.elements, op.indices)
        assert op.traits["ordered"] != twin.traits["ordered"]


def test_every_op_has_a_deterministic_variant_and_unlike_names() -> None:
    for op in nb.OPS.values():
        assert any(variant.deterministic for variant in op.variants)
        assert len({variant.name for variant in op.variants}) == len(op.variants)


def test_a_name_is_taken_once() -> None:
    table = Registry()
    table.add(OPS["segment_sum"])
    with pytest.raises(ValueError, match="two ops are named segment_sum"):
        table.add(OPS["segment_sum"])


@pytest.mark.parametrize(
    ("wrong", "hint"), [("segment_sums", "segment_sum"), ("unsorted_segment_sun", "unsorted_segment_sum"), ("segment-mean", "segment_mean")]
)
def test_near_misses(wrong: str, hint: str) -> None:
    with pytest.raises(nb.Unsupported, match=f"op: got '{wrong}', wants one of .*; did you mean .*{hint}"):
        find(wrong)


def test_a_family_finds_the_functions_of_others() -> None:
    for name in nb.OPS:
        assert registry.function(name) is getattr(nb, name)
    with pytest.raises(nb.Unsupported, match="did you mean"):
        registry.function("segment_sums")


def element_of(operand: Operand, described: Described) -> str:
    """The type of an operand's elements; "" where it may be one of several."""
    wanted = operand.element or (described.index_name if operand.index else described.element_name)
    return "" if " " in wanted else wanted


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", nb.OPS)
def test_samples_cover_every_variant_and_recipes_hang_together(name: str, arch: str) -> None:
    """What a step names exists by then: operands, slots, and what sorting makes; a launch gives its kernel what that declares."""
    op = nb.OPS[name]
    used = set()
    samples = list(op.samples(op))
    assert {described.element_name for described, _ in samples} == set(op.elements)
    assert {described.index_name for described, _ in samples} - {""} == set(op.indices)
    for described, layouts in samples:
        assert nb.select(described, device=-1).op.name == op.name
        for variant in op.variants:
            if variant.refuses(op, described) is None:
                used.add(variant.name)
                recipe = variant.recipe(op, described, layouts, registry.Target(ARCHS[arch], 132))
                slots = {slot.name: slot for slot in recipe.slots}
                elements = {each.name: element_of(each, described) for each in described.specialise(op).operands if each.name in layouts}
                elements |= {NULL: ""} | {name: slot.element for name, slot in slots.items()}
                known = {"", *slots, *layouts}
                assert recipe.workspace == sum(slot.nbytes for slot in recipe.slots) and all(slot.nbytes % 16 == 0 for slot in recipe.slots)
                for step in recipe.steps:
                    if isinstance(step, Launch):
                        assert set(step.pointers) <= known
                        pointers, scalars = arrange(step.spec.name, jit.resolve(step.spec).parameters, step.arguments, elements)
                        assert sorted(pointers) == sorted(step.pointers) and len(pointers) + len(scalars) == len(step.arguments)
                    elif isinstance(step, Sort):
                        assert {step.keys, step.sorted_keys, step.values, step.sorted_values} <= known
                    elif isinstance(step, Gemm):
                        scalars = {each for each in (step.alpha, step.beta) if isinstance(each, str)}
                        assert {step.a.name, step.b.name, step.c.name, step.workspace} | scalars <= known
                    else:
                        assert isinstance(step, (Clear, Verify)) and step.slot in slots
                outputs = {operand.name for operand in op.operands if operand.output}
                assert any(outputs & set(step.pointers) for step in recipe.steps if isinstance(step, Launch))
    assert used == {variant.name for variant in op.variants}


def test_kernels_to_compile() -> None:
    everything = kernel_specs()
    assert len(set(everything)) == len(everything)
    sums = kernel_specs("segment_sum")
    assert 0 < len(sums) < len(everything) and set(sums) <= set(everything)
    assert kernel_specs("nothing*") == []
    assert {spec.factory.partition(":")[2] for spec in everything} >= {
        "fold_tiles",
        "fold_carries",
        "fold_narrow",
        "fold_short_runs",
        "fold_staged",
        "gather_elements",
        "gather_flat",
        "gather_rows",
        "gather_runs",
        "scatter_rows",
        "count_ids",
        "count_few_ids",
        "first_fault",
    }
    assert len({spec.name for spec in everything}) == len(everything)
