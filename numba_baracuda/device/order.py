"""Words by which threads of different blocks talk to each other, in global memory and at device scope.

| function | PTX | SASS on sm_90 |
|---|---|---|
| ``load_relaxed``, ``store_relaxed`` | ld.relaxed.gpu, st.relaxed.gpu | LDG.STRONG.GPU, STG.STRONG.GPU |
| ``load_near``, ``load_near_2`` | ld.relaxed.cta, with .v2 | LDG.STRONG.SM, LDG.128.STRONG.SM |
| ``load_acquire`` | ld.acquire.gpu | LDG.STRONG.GPU, then CCTL.IVALL |
| ``store_release`` | st.release.gpu | MEMBAR.ALL.GPU, then STG.STRONG.GPU |
| ``load_relaxed_2``, ``store_relaxed_2`` | ld.volatile.b128, st.relaxed.gpu.b128 | LDG.128.STRONG.SYS, STG.128.STRONG.GPU |
| ``fetch_add``, ``fetch_add_acq_rel`` | atom.relaxed.gpu.add, atom.acq_rel.gpu.add | ATOMG.ADD.STRONG.GPU, the latter fenced |
| ``fence`` | fence.acq_rel.gpu | MEMBAR.ALL.GPU |
| ``grid_barrier`` | atom.release.gpu.add, ld.acquire.gpu | |
| ``start_number`` | %ctaid.x | S2R |

Relaxed accesses are whole and see one order of writes to their word, but order nothing else. What a thread wrote before a release (``store_release``,
``fetch_add_acq_rel``, or ``fence`` and then any of these) is seen by a thread after an acquire (``load_acquire``, ``fetch_add_acq_rel``, or any
of these and then ``fence``) that reads the released word, or what atomic updates have made of it since. Any thread may call them alone,
``grid_barrier`` excepted. ``load_near`` may find in the L1 cache of its multiprocessor what others have since overwritten: it is for elements of
which an older value is as good, such as one that only grows, where its reader wants to know whether it can make it grow.
Elements are 32- or 64-bit integers; loads and stores take float32 and float64 too. The emulator's race detector knows these rules. Source: PTX ISA,
"Memory Consistency Model".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import cuda
from numba.cuda import types
from numba.cuda.types import float32, float64, int32, int64, uint32, uint64

from ..emulator.meanings import means, means_by_type
from ..emulator.races import ACQUIRE, ATOMIC, READ, RELEASE, WRITE
from ..emulator.scalars import wrap
from ..runtime import jit
from .bits import recast
from .build import I32, I64, VOID, address, assemble, define, element_of, number_of, ptx_memory, ptx_statement, refuse

SCOPES = {"gpu": "Device", "cta": "Block"}
INTEGERS, WORDS = (int32, uint32, int64, uint64), (int32, uint32, int64, uint64, float32, float64)


def _kind(element: Any) -> str:
    return f"{'f' if isinstance(element, types.Float) else 'u'}{element.bitwidth}"


def _load(name: str, order: str, kind: int, doc: str, scope: str = "gpu") -> Any:
    def meaning(lane: Any, site: str, pointer: Any, index: int) -> Any:
        return pointer.expect_global(site).load(lane, index, site, READ | ATOMIC | kind)

    return ptx_memory(
        name, lambda element: f"ld.{order}.{scope}.global.{_kind(element)} $0, [$1];", 0, meaning, returns=True, accepts=WORDS,
        doc=f"``{name}(pointer, index)``: the element, {doc}. {SCOPES[scope]} scope, global memory; any thread may call it alone.",
    )  # fmt: skip


def _store(name: str, order: str, kind: int, doc: str) -> Any:
    def meaning(lane: Any, site: str, pointer: Any, index: int, value: Any) -> None:
        pointer.expect_global(site).store(lane, index, value, site, WRITE | ATOMIC | kind)

    return ptx_memory(
        name, lambda element: f"st.{order}.gpu.global.{_kind(element)} [$0], $1;", 1, meaning, accepts=WORDS,
        doc=f"``{name}(pointer, index, value)`` writes the element, {doc}. Device scope, global memory; any thread may call it alone.",
    )  # fmt: skip


load_relaxed = _load("load_relaxed", "relaxed", 0, "whole, but ordering nothing; one LDG.STRONG.GPU")
load_near = _load("load_near", "relaxed", 0, "whole, or an older value of it, from the L1 cache; one LDG.STRONG.SM", "cta")
load_acquire = _load(
    "load_acquire", "acquire", ACQUIRE, "and later accesses of the thread see what its writer had released; LDG.STRONG.GPU, CCTL.IVALL"
)
store_relaxed = _store("store_relaxed", "relaxed", 0, "whole, but ordering nothing; one STG.STRONG.GPU")
store_release = _store(
    "store_release", "release", RELEASE, "and who acquires it sees all that the thread did or knew before; MEMBAR.ALL.GPU, STG.STRONG.GPU"
)


def _fetch_add(name: str, order: str, ordered: bool, doc: str) -> Any:
    def body(pointer: Any, index: Any, value: Any) -> Any:
        element = element_of(name, pointer, index, INTEGERS)
        if not isinstance(value, types.Integer):
            refuse(f"{name}: value is {value}, wants an integer")
        text = f"atom.{order}.gpu.global.add.u{element.bitwidth} $0, [$1], $2;"

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return assemble(builder, text, arguments[2].type, [number_of(context, builder, signature, arguments), arguments[2]], memory=True)

        return element(pointer, types.unliteral(index), element), codegen

    made = define(name, ["pointer", "index", "value"], body, doc)

    @means_by_type(made, lane=True)
    def meaning(signature: Any) -> Callable[..., int]:
        element, (release, acquire) = signature.return_type, (ordered, order == "acq_rel")

        def add(lane: Any, site: str, pointer: Any, index: int, value: int) -> int:
            memory = pointer.expect_global(site)
            old: int = memory.update(lane, index, lambda held: wrap(held + value, element.bitwidth, element.signed), site, release, acquire)
            return old

        return add

    return made


fetch_add = _fetch_add(
    "fetch_add", "relaxed", False,
    """Adds to a 32- or 64-bit integer and gives the old value, ordering nothing: tickets. One ATOMG.ADD; wraps.

    Device scope, global memory; any thread may call it alone.
    """,
)  # fmt: skip
fetch_add_acq_rel = _fetch_add(
    "fetch_add_acq_rel", "acq_rel", True,
    """Adds to a 32- or 64-bit integer and gives the old value; releases what the thread knew, acquires what was released through the word. Wraps.

    The last block to arrive at a counter thereby sees what all others wrote before they did. MEMBAR.ALL.GPU, ATOMG.ADD, CCTL.IVALL. Device scope,
    global memory; any thread may call it alone, and speaks for its block after ``cuda.syncthreads()``.
    """,
)  # fmt: skip
_arrive = _fetch_add("arrive", "release", True, "Adds to a word and releases what the thread knew.")


def _pair(name: str, text: str, doc: str) -> Any:
    """``text`` is of a load into $0 and $1 from $2, or of a store of $1 and $2 to $0."""

    def body(pointer: Any, index: Any, local: Any, at: Any) -> Any:
        element = element_of(name, pointer, index, (int64, uint64, float64))
        if element_of(name, local, at) != element:
            refuse(f"{name}: the local array holds {local.dtype}, wants {element} as the memory does")

        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            where = number_of(context, builder, signature, arguments)
            base = address(context, builder, signature.args[2], arguments[2], signature.args[3], arguments[3])
            pointers = [builder.gep(base, [I64(k)]) for k in (0, 1)]
            kind = context.get_data_type(element)
            if "$2]" in text:
                pair = assemble(builder, text, [I64, I64], [where], memory=True)
                for k, pointer in enumerate(pointers):
                    builder.store(builder.bitcast(builder.extract_value(pair, k), kind), pointer)
            else:
                assemble(builder, text, VOID, [where, *(builder.bitcast(builder.load(pointer), I64) for pointer in pointers)], memory=True)
            return context.get_dummy_value()

        return types.void(pointer, types.unliteral(index), local, types.unliteral(at)), codegen

    return define(name, ["pointer", "index", "local", "at"], body, doc)


load_relaxed_2 = _pair(
    "load_relaxed_2",
    # of a relaxed load ptxas leaves out what is not used, in loads of 32 bits, between which the word may change
    "{ .reg .b128 pair; ld.volatile.global.b128 pair, [$2]; mov.b128 {$0, $1}, pair; }",
    """Reads ``pointer[index : index + 2]``, two 64-bit words, into ``local[at : at + 2]`` as one 128-bit word: never half of a ``store_relaxed_2``.

    Orders nothing: payload and status in one word need no fence. The address is a multiple of 16 bytes. Device scope, global memory; any thread may
    call it alone.
    """,
)  # fmt: skip
load_near_2 = _pair(
    "load_near_2", "ld.relaxed.cta.global.v2.u64 {$0, $1}, [$2];",
    """Reads ``pointer[index : index + 2]``, two 64-bit words, into ``local[at : at + 2]``: each by itself, or an older value of it, from L1.

    Orders nothing. The address is a multiple of 16 bytes. Block scope, global memory; any thread may call it alone.
    """,
)  # fmt: skip
store_relaxed_2 = _pair(
    "store_relaxed_2", "{ .reg .b128 pair; mov.b128 pair, {$1, $2}; st.relaxed.gpu.global.b128 [$0], pair; }",
    """Writes ``local[at : at + 2]`` to ``pointer[index : index + 2]``, two 64-bit words, as one 128-bit word; see ``load_relaxed_2``.

    Orders nothing. The address is a multiple of 16 bytes. Device scope, global memory; any thread may call it alone.
    """,
)  # fmt: skip


@means(load_near_2, lane=True)
@means(load_relaxed_2, lane=True)
def _load_pair(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int) -> None:
    for k, value in enumerate(pointer.expect_global(site).load_vector(lane, index, 2, site, READ | ATOMIC)):
        local.store(lane, at + k, value, site)


@means(store_relaxed_2, lane=True)
def _store_pair(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int) -> None:
    values = (local.load(lane, at, site), local.load(lane, at + 1, site))
    pointer.expect_global(site).store_vector(lane, index, values, site, WRITE | ATOMIC)


def _fence_meaning(lane: Any, _site: str) -> None:
    if lane.checked:
        lane.clock.fence()


fence = ptx_statement(
    "fence", "fence.acq_rel.gpu;", _fence_meaning,
    """Orders the thread's accesses before it and after it for other threads of the device: with relaxed words around it, a release or an acquire.

    One MEMBAR.ALL.GPU, cheaper than the sequentially consistent ``cuda.threadfence()``. It is no barrier: any thread may call it alone.
    """,
)  # fmt: skip


def _start_number(context: Any, builder: Any, _signature: Any, _arguments: Any) -> Any:
    return assemble(builder, "mov.u32 $0, %ctaid.x;", I32, [])


start_number = define(
    "start_number", [], lambda: (uint32(), _start_number),
    """The number of the caller's block in the order in which blocks start: a block may wait for those with lower numbers, which run or have run.

    It is the block's index, for a grid of one dimension starts in that order. CUDA does not promise this, but CUB's single-pass scan relies on it. In
    the emulator blocks start in random order, and the number is not the index. One register is read; any thread may call it alone.
    """,
)  # fmt: skip
means(start_number, lane=True)(lambda lane, _site: lane.block.started)


@jit.device
def grid_barrier(words):
    """Waits until all threads of all blocks have called it; what any wrote before, all see after.

    All threads of the grid call it, and all blocks must be resident at once (a cooperative launch), or it never returns. ``words`` is a 1-D array
    of int32 or uint32 in global memory, of which the first element is used: zero before its first use, then good for any number of barriers and
    launches of one kernel after another. The first block adds 2^31 less the number of others, the others 1: the top bit flips when the last has
    arrived, and after two barriers the word is what it was (the barrier of CUDA's cooperative groups). A barrier in each block before and after;
    one atomic update a block.
    """
    cuda.syncthreads()
    if cuda.threadIdx.x == 0 and cuda.threadIdx.y == 0 and cuda.threadIdx.z == 0:
        word = recast(words, uint32)
        step = int64(1)
        if cuda.blockIdx.x == 0 and cuda.blockIdx.y == 0 and cuda.blockIdx.z == 0:
            step = int64(0x80000001) - int64(cuda.gridDim.x) * cuda.gridDim.y * cuda.gridDim.z
        old = _arrive(word, 0, uint32(step))
        while ((old ^ load_acquire(word, 0)) & uint32(0x80000000)) == 0:
            pass
    cuda.syncthreads()
