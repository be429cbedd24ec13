"""Copies from global to shared memory that nobody waits for: a thread starts them, goes on, and waits for them later.

| function | PTX | SASS on sm_90 |
|---|---|---|
| ``copy_async`` | cp.async.cg.shared.global, 16 bytes | LDGSTS.E.BYPASS.128 |
| ``commit_copies`` | cp.async.commit_group | LDGDEPBAR |
| ``await_copies(n)()`` | cp.async.wait_group n | DEPBAR.LE SB0, n |

A thread's copies since its last ``commit_copies`` are one group, which may be empty. ``await_copies(n)()`` waits until all but the newest ``n``
groups are complete. Each thread has groups of its own: other threads see a copy after its thread has waited for it and then reached a barrier, such
as ``cuda.syncthreads()``. No thread may read the target between the start of a copy and the wait for it. Copies need no registers and leave no line
in L1, so a block can have far more bytes in flight than its registers hold. Source: PTX ISA, "Asynchronous copy".
"""

from __future__ import annotations

import functools
from typing import Any

from numba.cuda import types

from ..emulator.meanings import means
from .build import I64, SHARED, VOID, address, assemble, define, element_of, number_of, ptx_statement, refuse, short

_BYTES = 16


def _copy(pointer: Any, index: Any, shared: Any, at: Any) -> Any:
    element, held = element_of("copy_async", pointer, index), element_of("copy_async", shared, at)
    if held != element and not (element == types.bfloat16 and held == types.uint16):
        wants = "uint16" if element == types.bfloat16 else short(element)
        refuse(f"copy_async: the shared array holds {short(held)}, wants {wants} as the memory does")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        source = number_of(context, builder, signature, arguments)
        target = address(context, builder, signature.args[2], arguments[2], signature.args[3], arguments[3])
        place = builder.ptrtoint(builder.addrspacecast(target, target.type.pointee.as_pointer(SHARED)), I64)
        assemble(builder, f"cp.async.cg.shared.global [$1], [$0], {_BYTES};", VOID, [source, place], memory=True)
        return context.get_dummy_value()

    return types.void(pointer, types.unliteral(index), shared, types.unliteral(at)), codegen


copy_async = define(
    "copy_async",
    ["pointer", "index", "shared", "at"],
    _copy,
    """Starts to copy the 16 bytes at ``pointer[index]`` to ``shared[at]``, both multiples of 16 bytes; see :func:`await_copies`.

    From global memory, which no other thread may be writing, to shared memory; past L1. Any thread may call it alone.
    """,
)


@means(copy_async, lane=True)
def _copy_meaning(lane: Any, site: str, pointer: Any, index: int, shared: Any, at: int) -> None:
    count = _BYTES // pointer.size
    values = pointer.expect_global(site).load_vector(lane, index, count, site)
    shared.expect_shared(site).give_away(lane, at, count, site)
    lane.copies[-1].append((shared, at, values, site))


commit_copies = ptx_statement(
    "commit_copies", "cp.async.commit_group;", lambda lane, _site: lane.copies.append([]),
    "Closes the group of copies that the thread has started since it last did so. Any thread may call it alone.",
)  # fmt: skip


@functools.cache
def await_copies(pending: int) -> Any:
    """``f()`` waits until no more than ``pending`` groups of the thread's copies, the newest, are on their way. Any thread may call it alone."""

    def meaning(lane: Any, _site: str) -> None:
        *groups, begun = lane.copies
        done = max(len(groups) - pending, 0)
        for group in groups[:done]:
            for shared, at, values, site in group:
                shared.store_vector(lane, at, values, site)
        lane.copies = [*groups[done:], begun]

    return ptx_statement("await_copies", f"cp.async.wait_group {pending};", meaning)
