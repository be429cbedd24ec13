"""The frameworks that can be imported, and how each converts arrays, prepares calls and times them.

A peer's ``given`` picks its arguments from the operands, shared with the framework without a copy where it can. What it derives from the ids (counts,
lengths, 64-bit ids, the permutation where ours has it too) is ready before the clock starts. ``run`` does the work on whatever ``given`` returned.
CUDA events cannot be recorded on JAX's stream, so its calls are timed on the host's clock, several at a time.
"""

from __future__ import annotations

import fnmatch
import gc
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .array_peers import cupy_peers, jax_peers, kernel_peers
from .case import Case
from .peer import Given, Peer
from .timing import Events, Timing, WallClock
from .torch_peers import torch_peers
from .values import BF16

NAMES = ("torch", "compile", "jax", "cupy", "numba")
#: torch.compile takes seconds a case
DEFAULT = ("torch", "jax", "cupy", "numba")


@dataclass(frozen=True)
class Framework:
    """A framework: its peers, and the functions that convert arrays to and from ``xp`` and compile a call."""

    name: str
    peers: tuple[Peer, ...]
    share: Callable[[Any], Any]
    take: Callable[[Any], Any]
    ready: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda run: run
    wait: Callable[[Any], Any] | None = None
    note: str = ""

    def of(self, case: Case) -> list[Peer]:
        return [peer for peer in self.peers if fnmatch.fnmatchcase(case.op, peer.ops) and peer.fits(case)]

    def bind(self, peer: Peer, xp: Any, case: Case, sets: list[dict[str, Any]]) -> list[Callable[[], Any]]:
        """The peer's call for each operand set; compiled once, if at all."""
        run = self.ready(peer.run)
        given = [peer.given(Given(xp, operands, case.segments, self.share)) for operands in sets]
        return [lambda arguments=arguments: run(*arguments) for arguments in given]  # type: ignore[misc]

    def time(self, events: Events, calls: list[Callable[[], Any]], repeats: int) -> Timing:
        return WallClock(self.wait)(calls, repeats) if self.wait else events(calls, repeats)


def load(name: str, xp: Any) -> Framework:
    """A framework by name; raises what its import raises. bfloat16 is exchanged as int16, which every version supports."""
    if name in ("cupy", "numba"):
        made = cupy_peers(xp) if name == "cupy" else kernel_peers(xp)
        return Framework(name, tuple(made), lambda array: array, lambda got: got)
    if name == "jax":
        return _jax(xp)
    torch: Any = importlib.import_module("torch")

    def share(array: Any) -> Any:
        return torch.from_dlpack(array.view("i2")).view(torch.bfloat16) if array.dtype == BF16 else torch.from_dlpack(array)

    def take(got: Any) -> Any:
        return xp.from_dlpack(got.view(torch.int16)).view(BF16) if got.dtype == torch.bfloat16 else xp.from_dlpack(got)

    return Framework(name, tuple(torch_peers(torch)), share, take, torch.compile if name == "compile" else lambda run: run)


def _jax(xp: Any) -> Framework:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)
    bits, jnp, shared = jax.lax.bitcast_convert_type, jax.numpy, jax.dlpack.from_dlpack

    def share(array: Any) -> Any:
        return bits(shared(array.view("i2")), jnp.bfloat16) if array.dtype == BF16 else shared(array)

    def take(got: Any) -> Any:
        return xp.from_dlpack(bits(got, jnp.int16)).view(BF16) if got.dtype == jnp.bfloat16 else xp.from_dlpack(got)

    return Framework("jax", tuple(jax_peers(jax)), share, take, jax.jit, lambda result: result.block_until_ready(), "host clock")


def release(xp: Any) -> None:
    """Returns unused memory of all pools to the device, and drops compiled functions."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    if "torch._dynamo" in sys.modules:
        sys.modules["torch"].compiler.reset()
    trim(xp)


def trim(xp: Any) -> None:
    """Returns unused memory of all pools to the device."""
    gc.collect()
    if "torch" in sys.modules and sys.modules["torch"].cuda.is_available():
        sys.modules["torch"].cuda.empty_cache()
    if xp.__name__ == "cupy":
        xp.get_default_memory_pool().free_all_blocks()
