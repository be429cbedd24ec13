"""The table of docs/distributed.md."""

from __future__ import annotations

import re
from pathlib import Path

from numba_baracuda.distributed.model import best_chunk, step

PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def test_the_table_is_that_of_the_model() -> None:
    rows = re.findall(r"^\| ([\d,]+) \| (\d+) \| ([\d.]+) ms .* \| ([\d.]+) \|$", PAGE.read_text(), re.M)
    assert len(rows) == 6
    one = step(8192, 4096, 128256, 1, 8192).total
    for ranks, chunk, compute, ratio in rows:
        count = int(ranks.replace(",", ""))
        made = step(8192, 4096, 128256, count, int(chunk))
        assert int(chunk) == best_chunk(8192, 4096, 128256, count)
        assert abs(made.compute * 1e3 - float(compute)) <= 0.06 and abs(one / made.total - float(ratio)) <= 0.06 * float(ratio)
