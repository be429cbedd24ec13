"""What surrounds the package: its citation, its workflows, its policy of versions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import numba_baracuda as nb

ROOT = Path(__file__).resolve().parents[2]


def test_the_citation_is_of_this_version() -> None:
    (version,) = re.findall(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.M)
    assert version == nb.__version__


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_workflows_run_what_there_is(workflow: Path) -> None:
    commands = re.findall(r"^ +- run: (.+)$", workflow.read_text(encoding="utf-8"), re.M)
    named = [word for command in commands for word in command.split() if word.startswith((".ci/", "tests/"))]
    assert commands and all((ROOT / name).exists() for name in named)


def test_supported_versions_are_those_of_the_package() -> None:
    policy, project = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/versions.md", "pyproject.toml"))
    (oldest, newest), (torch,) = (
        re.findall(r"requires-python = \">=(\S+),<3\.(\d+)\"", project)[0],
        re.findall(r'^torch = \["torch>=(\S+)"\]$', project, re.M),
    )
    assert f"| Python | {oldest} | 3.{int(newest) - 1} |" in policy
    assert f"| PyTorch | {torch} |" in policy


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    recipe, project = ((ROOT / name).read_text(encoding="utf-8") for name in ("conda/recipe.yaml", "pyproject.toml"))
    assert f'version: "{nb.__version__}"' in recipe
    (listed,) = re.findall(r"^dependencies = \[\n(.*?)^\]", project, re.M | re.S)
    dependencies = [*re.findall(r'^ +"([\w-]+)(.*?)"', listed, re.M), ("python", re.findall(r'^requires-python = "(.*)"', project, re.M)[0])]
    assert len(dependencies) > 5
    assert [name for name, versions in dependencies if f"    - {name} {versions}\n" not in recipe] == []
    (cupy,), (sorts,) = re.findall(r'cupy-cuda12x(>=[\d.]+)"', project), re.findall(r'cuda-cccl\[minimal-cu12\](\S+)"', project)
    assert f"- cupy {cupy}\n" in recipe and f"- cccl-python {sorts}\n" in recipe
