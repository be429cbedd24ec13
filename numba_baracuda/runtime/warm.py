"""Kernels compiled ahead, by as many processes as there are cores."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed

from ..core.spec import KernelSpec
from . import cache, helpers


def warm(specs: Iterable[KernelSpec], arch: str, workers: int | None = None, on_done: Callable[[KernelSpec], object] | None = None) -> int:
    """Compile the kernels that are missing, in ``workers`` processes (one for each core by default); the number compiled.

    ``on_done`` is called in this thread once for each spec given, those already present first. A kernel that does not compile does not stop the
    others; its exception is raised when they are done. Workers import the caller's ``__main__``, which needs the usual guard.
    """
    done = on_done or (lambda spec: None)
    given: dict[str, list[KernelSpec]] = {}
    for spec in specs:
        given.setdefault(cache.key(spec, arch), []).append(spec)
    waiting = cache.missing((same[0] for same in given.values()), arch)
    for name, same in given.items():
        if name not in waiting:
            for spec in same:
                done(spec)
    if not waiting:
        return 0
    failures: list[BaseException] = []
    longest_first = sorted(waiting, key=lambda name: -waiting[name].effort)
    with ProcessPoolExecutor(min(workers or helpers.cores(), len(waiting)), mp_context=multiprocessing.get_context("spawn")) as pool:
        running = {pool.submit(cache.cubin, waiting[name], arch): name for name in longest_first}
        for future in as_completed(running):
            error = future.exception()
            if error is not None:
                failures.append(error)
            for spec in given[running[future]]:
                done(spec)
    if failures:
        raise failures[0]
    return len(waiting)
