"""The plot of losses whose classes are divided among GPUs: what was measured, and what ``numba_baracuda.distributed.model`` computes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from numba_baracuda import FusedLinearCrossEntropyDescriptor
from numba_baracuda.distributed.model import step

from .results import OURS, RIGHT, Record

#: of a name of :mod:`.distributed_cases`
_LOSS = re.compile(r"loss, (\d+) x (\d+) x (\d+), bf16")
_MARKS = "osD^v<>P"


def numbers(files: Sequence[Sequence[Record]]) -> dict[str, Any]:
    """For each loss: by ranks, measured and computed milliseconds of a step, of which ranks wait; those of one GPU are the first file's."""
    made: dict[str, Any] = {}
    for rows in files:
        for row in rows:
            named = _LOSS.fullmatch(row["case"])
            if not named or row["checked"] != RIGHT:
                continue
            (bt, width, classes), ranks = map(int, named.groups()), int(row["ranks"]) if row["who"] == OURS else 1
            chunk = FusedLinearCrossEntropyDescriptor(bt, width, -(-classes // ranks), "bf16").chunk_size
            computed = step(bt, width, classes, ranks, chunk)
            waits = [float(row["exposed_ms"] or 0), round((computed.exchange + computed.reduction) * 1e3, 3)]
            made.setdefault(" x ".join(named.groups()), {}).setdefault(str(ranks), [float(row["ms"]), round(computed.total * 1e3, 3), *waits])
    return made


def paint(figure: Any, found: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """Left, times as fast as one GPU over ranks; right, the part of a step that ranks wait: marks as measured, lines as computed."""
    ratios, waits = figure.subplots(1, 2)
    names = list(colours)
    for k, (case, by_ranks) in enumerate(found.items()):
        colour, marker = colours[names[k % len(names)]], _MARKS[k % len(_MARKS)]
        ranks = sorted(map(int, by_ranks))
        several = [each for each in ranks if each > 1]
        shift = 1 + 0.01 * (k - len(found) / 2)
        for axes, at, shown in ((ratios, ranks, _ratio), (waits, several, _share)):
            axes.plot([each * shift for each in at], [shown(by_ranks, each, 0) for each in at], marker, color=colour, markersize=5, label=case)
            axes.plot(at, [shown(by_ranks, each, 1) for each in at], "-", color=colour, linewidth=0.8)
    for axes in (ratios, waits):
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set(xlabel="GPUs")
        axes.grid()
    ratios.set_yscale("log", base=2)
    ratios.yaxis.set_major_formatter("{x:g}")
    ratios.set(ylabel="times as fast as one GPU")
    waits.set(ylabel="% of a step that ranks wait for each other")
    ratios.legend(title="rows x width x classes; lines: computed")


def _ratio(by_ranks: Mapping[str, Any], ranks: int, which: int) -> float:
    return float(by_ranks["1"][which] / by_ranks[str(ranks)][which])


def _share(by_ranks: Mapping[str, Any], ranks: int, which: int) -> float:
    found = by_ranks[str(ranks)]
    return float(100 * found[2 + which] / found[which])
