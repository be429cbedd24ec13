"""Which rows of a result file do not hold any more: what was measured then, by the file's header, beside what there is now."""

from __future__ import annotations

import functools
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from numba_baracuda import OPS

from .results import OURS, Record

ROOT = Path(__file__).parents[1]
#: of the header, what every time depends on
MACHINE = ("gpu", "driver", "cuda")
#: packages that the times of each contestant depend on
PACKAGES = {
    OURS: ("numba-cuda",),
    "numba": ("numba", "numba-cuda"),
    "torch": ("torch", "triton"),
    "compile": ("torch", "triton"),
    "torch.compile": ("torch", "triton"),
    "jax": ("jax", "jaxlib"),
    "cupy": ("cupy-cuda12x", "cupy-cuda13x"),
    "liger": ("liger-kernel", "torch", "triton"),
    "cut-cross-entropy": ("cut-cross-entropy", "torch", "triton"),
}
#: folders that every kernel is compiled from, beside that of its family
SHARED = ("algebra", "device", "kernels")


@functools.cache
def changed(commit: str) -> tuple[str, ...] | None:
    """Files of the package that differ from those of a commit, by path within it; None where the commit is unknown."""
    command = ["git", "diff", "--name-only", "--relative", commit.removesuffix("-dirty"), "--", "."]
    try:
        done = subprocess.run(command, cwd=ROOT / "numba_baracuda", capture_output=True, text=True, check=False)
    except OSError:  # there is no git
        return None
    return tuple(done.stdout.split()) if done.returncode == 0 else None


def folders(row: Record) -> tuple[str, ...]:
    """Folders of the package whose sources decide how long ours takes; none for peers, and "" for all of it."""
    who, op = row.get("who", OURS), row.get("op", "")
    if not who.startswith(OURS):
        return ()
    if op in OPS:
        return (OPS[op].family, *SHARED)
    return ("",) if op or "what" in row else ("loss", *SHARED)


def reasons(row: Record, header: Record, now: Record) -> list[str]:
    """Why a row does not hold; what is unknown now, such as the GPU where there is none, is no reason."""
    who = row.get("who", OURS).partition(" ")[0].rstrip(",")
    versions = (*MACHINE, *PACKAGES.get(who, ()))
    found = [f"{key} {header[key]} -> {now[key]}" for key in versions if key in header and key in now and header[key] != now[key]]
    wanted = folders(row)
    if not wanted:
        return found
    commit = header.get("commit", "unknown").split(";")[0].split(" ")[0]
    files = changed(commit)
    if files is None:
        return [*found, f"commit {commit} is unknown"]
    touched = sorted({folder or "numba_baracuda" for folder in wanted for file in files if file.startswith(f"{folder}/") or not folder})
    return [*found, f"{', '.join(touched)} changed since {commit}"] if touched else found


def stale(header: Record, rows: Sequence[Record], now: Record) -> tuple[int, Counter[str]]:
    """How many rows do not hold, and how many each reason concerns."""
    found = [reasons(row, header, now) for row in rows]
    return sum(map(bool, found)), Counter(reason for each in found for reason in each)
