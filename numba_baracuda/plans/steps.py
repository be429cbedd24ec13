"""The launches of a frame."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..core.op import Launch
from ..core.spec import KernelSpec, Parameter


@dataclass(frozen=True)
class Kernel:
    """A launch without its sizes; pointer parameters have the names of operands or slots."""

    spec: KernelSpec
    threads: int
    parameters: tuple[Parameter, ...]
    pointers: dict[str, str]

    @property
    def signature(self) -> str:
        return " ".join(each.type for each in self.parameters)

    def with_sizes(self, blocks: int, shared: int, words: Sequence[Any]) -> Launch:
        """The launch with these sizes."""
        left, arguments = iter(words), dict[str, Any](self.pointers)
        for each in self.parameters:
            if not each.pointer:
                count = each.type.rpartition("x")[0]
                arguments[each.name] = tuple(itertools.islice(left, int(count))) if count else next(left)
        return Launch(self.spec, (blocks, self.threads, shared), arguments)
