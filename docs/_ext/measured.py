"""Measured rates of ops, from the files of ``benchmarks/results``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.results import OURS, RESULTS, RIGHT, Record, read_csv

LOSS = "fused_linear_cross_entropy"


@dataclass(frozen=True)
class Rate:
    """One kernel of ours at one case, beside the fastest peer of the same run whose result was right."""

    case: str
    kernel: str
    us: float
    gb_s: str
    share: str
    peer: str
    file: str


def measured() -> dict[str, list[Rate]]:
    """The rates of each op. Of a case that was measured several times it is those of the newest file."""
    files = {path: read_csv(path) for path in RESULTS.glob("*.csv")}
    newest_first = sorted(files, key=lambda path: files[path][0]["date"], reverse=True)
    found: dict[str, dict[str, list[Rate]]] = {}
    for path in newest_first:
        new: dict[str, dict[str, list[Rate]]] = {}
        for op, rate in _rates(path.name, files[path][1]):
            new.setdefault(op, {}).setdefault(rate.case, []).append(rate)
        for op, cases in new.items():
            found[op] = found.get(op, {}) | {case: rates for case, rates in cases.items() if case not in found.get(op, {})}
    return {op: [rate for rates in cases.values() for rate in rates] for op, cases in found.items()}


def _rates(file: str, rows: list[Record]) -> Iterator[tuple[str, Rate]]:
    if not rows or "case" not in rows[0] or "panel" in rows[0]:  # costs of the host, and the points of a plot
        return
    rows = [row for row in rows if row.get("vs_products") != ""]  # parts of the loss
    peers: dict[tuple[str, str], tuple[float, str]] = {}
    for row in rows:
        if not _ours(row) and row["checked"] == RIGHT and _us(row):
            key = row.get("op", LOSS), row["case"]
            peers[key] = min(peers.get(key, (float("inf"), "")), (_us(row), row["who"]))
    for row in rows:
        if _ours(row) and _us(row):
            us, op = _us(row), row.get("op", LOSS)
            noted = re.match(r"(\w+) ([\d.]+)", row.get("peer_us", ""))
            best = (float(noted[2]), noted[1]) if noted else peers.get((op, row["case"]))
            doubts = row.get("checked", RIGHT)
            kernel = row.get("who", "").removeprefix(f"{OURS} ") + ("" if doubts == RIGHT else f" ({doubts.partition(':')[0]})")
            peer = f"{best[1]}: {best[0] / us:.2f}" if best else ""
            yield op, Rate(row["case"].replace("-f32", ""), kernel, us, row.get("gb_s", row.get("gb_per_s", "")), _share(row), peer, file)


def _ours(row: Record) -> bool:
    return row.get("who", OURS).startswith(OURS)


def _us(row: Record) -> float:
    """The median time, 0 where there is none."""
    return float(row.get("median_us") or row.get("us") or 0) or 1e3 * float(row.get("median_ms") or 0)


def _share(row: Record) -> str:
    if row.get("share_of_copy"):
        return f"{float(row['share_of_copy']):.0%}"
    return f"{float(row['gb_per_s']) / float(row['copy_gb_per_s']):.0%}" if row.get("gb_per_s") else ""
