"""Results of measurements: rows, the machine and versions that they hold for, and CSV files of both."""

from __future__ import annotations

import csv
import datetime
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from .timing import Timing

Record = dict[str, str]

RESULTS = Path(__file__).parent / "results"
#: environment variable with the commit, where there is no repository
COMMIT = "BENCHMARK_COMMIT"
OURS = "numba_baracuda"
RIGHT = "yes"
_NUMBERS = ("median_us", "low_us", "high_us", "samples", "gb_s", "copy_gb_s", "share_of_copy", "vs_best_peer")
_PACKAGES = (
    "numba", "numba-cuda", "numpy", "cupy", "cupy-cuda12x", "cupy-cuda13x", "torch", "triton", "jax", "jaxlib", "liger-kernel", "cut-cross-entropy",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One op, one case, one contestant; without a timing where it failed or was wrong. ``checked`` is ``yes`` or what was wrong.

    ``copy`` is the rate of a copy on the device, measured just before the case, in GB/s.
    """

    op: str
    case: str
    who: str
    nbytes: int
    timing: Timing | None
    checked: str = RIGHT
    note: str = ""
    copy: float = 0.0

    @property
    def ours(self) -> bool:
        return self.who.startswith(OURS)

    @property
    def rate(self) -> float:
        """GB/s."""
        assert self.timing is not None, "only a row that was timed has a rate"
        return self.nbytes / self.timing.median / 1e3


def best_peers(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """The peer with the least time for each op and case, among those that were right."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.timing and not row.ours and row.checked == RIGHT:
            known = best.get((row.op, row.case))
            if known is None or known.timing is None or row.timing.median < known.timing.median:
                best[row.op, row.case] = row
    return best


def records(rows: Sequence[Row]) -> list[Record]:
    """The rows as text; ``vs_best_peer`` is the speed-up over the best peer."""
    best, found = best_peers(rows), []
    for row in rows:
        record = {"op": row.op, "case": row.case, "who": row.who, "bytes": str(row.nbytes)}
        timing, peer = row.timing, best.get((row.op, row.case))
        numbers: dict[str, str] = dict.fromkeys(
            ("median_us", "low_us", "high_us", "samples", "gb_s", "copy_gb_s", "share_of_copy", "vs_best_peer"), ""
        )
        if timing:
            numbers |= {"median_us": f"{timing.median:.2f}", "low_us": f"{timing.low:.2f}", "high_us": f"{timing.high:.2f}"}
            numbers |= {"samples": str(len(timing.samples)), "gb_s": f"{row.rate:.1f}", "copy_gb_s": f"{row.copy:.1f}"}
            numbers["share_of_copy"] = f"{row.rate / row.copy:.4f}"
            if peer and peer.timing:
                numbers["vs_best_peer"] = f"{peer.timing.median / timing.median:.3f}"
        dry = ["the queue ran dry: host time may be included"] if timing and timing.dry else []
        found.append({**record, **numbers, "checked": row.checked, "note": "; ".join([*([row.note] if row.note else []), *dry])})
    return found


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str:
    """The first line that a command prints, or nothing."""
    if shutil.which(command[0]) is None:
        return ""
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent, check=False, timeout=30)
    return done.stdout.strip().partition("\n")[0] if done.returncode == 0 else ""


def commit() -> str:
    return os.environ.get(COMMIT) or _output("git", "describe", "--always", "--dirty") or "unknown"


def stamp() -> Record:
    """The machine, the versions and the day that measurements hold for."""
    from numba_baracuda.runtime import driver

    found = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "commit": commit()}
    if driver.device_count():
        cuda = driver.driver_version()
        found["gpu"] = driver.device_name()
        found["driver"] = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") or "unknown"
        found["cuda"] = f"{cuda // 1000}.{cuda % 1000 // 10}"
    versions = {package: _version(package) for package in _PACKAGES}
    return {**found, "python": sys.version.split()[0], **{package: version for package, version in versions.items() if version}}


def default_path(suite: str, gpu: str) -> Path:
    """``results/ops_h200.csv`` for the suite ``ops`` on an NVIDIA H200."""
    name = "_".join(word for word in re.findall(r"[a-z0-9]+", gpu.lower()) if word != "nvidia")
    return RESULTS / f"{suite}_{name}.csv"


def write_csv(path: Path, header: Mapping[str, str], rows: Sequence[Mapping[str, str]]) -> None:
    """Lines ``# key: value``, then the rows, which have the same keys."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        file.writelines(f"# {key}: {value}\n" for key, value in header.items())
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["op"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read_csv(path: Path) -> tuple[Record, list[Record]]:
    """Header and rows of a file of :func:`write_csv`."""
    header: Record = {}
    body: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.startswith("# ") and not body:
            key, _, value = line[2:].partition(":")
            header[key] = value.strip()
        else:
            body.append(line)
    return header, list(csv.DictReader(body))
