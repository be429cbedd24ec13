"""Arrays of foreign frameworks, taken over through DLPack by CuPy or torch."""

from __future__ import annotations

import sys
from typing import Any

from ..core.errors import Unsupported
from ..runtime import driver
from . import streams

INSTALL_CUPY = "pip install 'numba-baracuda[cuda12]' or 'numba-baracuda[cuda13]' brings CuPy"


def take(obj: Any, at: tuple[str, str, str]) -> tuple[Any, int]:
    """The same memory as an array of CuPy or torch, and the stream that its values are ready on; ``at`` is for messages."""
    framework = _importer(at)
    ordinal = obj.__dlpack_device__()[1]
    producer = streams.current(framework, ordinal)
    if driver.meets_capture(producer, ordinal):
        producer = driver.idle_stream(ordinal)
        return framework.from_dlpack(_On(producer, obj)), producer
    return framework.from_dlpack(obj), producer


def _importer(at: tuple[str, str, str]) -> Any:
    """A framework that takes DLPack capsules."""
    try:
        import cupy

        return cupy
    except ImportError as error:
        if "torch" in sys.modules:
            return sys.modules["torch"]
        raise Unsupported(f"{at[0]}: {at[1]} can be read through DLPack only, which takes CuPy, or torch if imported: {INSTALL_CUPY}") from error


class _On:
    """An object with ``__dlpack__`` that is exported for a given stream.

    A framework that imports an object names its own current stream, which cannot wait for earlier work while it is captured.
    """

    def __init__(self, stream: int, obj: Any) -> None:
        self.stream, self.obj = stream, obj

    def __dlpack_device__(self) -> Any:
        return self.obj.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.obj.__dlpack__(**(options | {"stream": self.stream}))
