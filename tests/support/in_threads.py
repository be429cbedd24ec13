"""Work done by several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable


def failures_of(work: Callable[[int], None], count: int) -> list[BaseException]:
    """What ``work(0)`` to ``work(count − 1)`` raise, each in a thread of its own, once all have ended."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures
