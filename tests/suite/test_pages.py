"""README.md and the pages of docs/: their code runs, their links lead somewhere, and README stays short."""

from __future__ import annotations

import re

import pages
import pytest
from kinds import Kind

WITHOUT_TORCH = [page for page in pages.PAGES if page not in pages.TORCH]


@pytest.mark.parametrize("page", WITHOUT_TORCH)
def test_the_code_runs(page: str, kind: Kind) -> None:
    if not pages.run(page, kind):
        assert not kind.emulated
        pytest.skip("every block of the page is for the emulator")


@pytest.mark.parametrize("page", pages.TEXTS)
def test_links_lead_to_files(page: str) -> None:
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", pages.TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    targets = [target.partition("#")[0] for target in re.findall(r"(?:\]\(|src=\"|srcset=\")([^)\s\"]+)", text) if "://" not in target]
    assert [target for target in targets if target and not (pages.ROOT / page).parent.joinpath(target).exists()] == []


def test_readme_is_short() -> None:
    assert len(pages.TEXTS["README.md"].split()) <= 900
