"""Vector access: several neighbouring elements in one instruction, between memory and a local array.

``load_4(pointer, index, local, at)`` reads ``pointer[index : index + 4]`` into ``local[at : at + 4]``; ``store_4`` writes them back. ``index`` and
``at`` count elements; the element types of both are the same, or bfloat16 in memory and uint16 in the local array. One instruction for up to 16 bytes
(8 and 16-bit elements travel packed in 32-bit words); more is refused. The address must be a multiple of the bytes moved; :func:`aligned_span` says
which part of a range that is. Any thread may call them alone. A local array indexed by constants lives in registers.

| form | memory | promise | PTX, SASS at 16 bytes on sm_90 |
|---|---|---|---|
| ``load_N``, ``store_N`` | any space | | LDG.E.128, STG.E.128; LDS, STS in shared memory |
| ``load_N_once`` | global | no thread writes the data during the kernel | invariant load: LDG.E.128.CONSTANT |
| ``load_N_direct`` | global | the same, and L1 is left to other data | ld.global.nc.L1::no_allocate: LDG.E.NA.128.CONSTANT |
| ``load_N_shared`` | shared | | LDS.128 |
| ``load_N_stream``, ``store_N_stream`` | global | none; first to be evicted | ld.global.cs, st.global.cs: LDG.E.EF.128, STG.E.EF.128 |

``prefetch`` brings memory to the L2 cache ahead of its use. All are weak accesses: they order nothing (see :mod:`.order`), and each element, not
the vector, is read or written whole. ``LOAD``, ``LOAD_ONCE``, ``LOAD_STREAM``, ``LOAD_DIRECT``, ``LOAD_SHARED``, ``STORE`` and ``STORE_STREAM`` list
the functions by their count. Source: PTX ISA, "Cache Operators", "ld", "ld.global.nc", "prefetch", "st".
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import types

from ..emulator.meanings import means
from .build import I8, I32, I64, SHARED, VOID, address, assemble, bits_of, define, element_of, expect_pointer, number_of, ptx_memory, refuse, short

COUNTS = (1, 2, 4, 8, 16)


def _layout(context: Any, element: Any, count: int) -> tuple[Any, int, int]:
    """The LLVM type of a register, the number of registers, and of elements in each: narrow elements travel in words of up to 32 bits."""
    bits = bits_of(element)
    if bits < 32 and count > 1:
        width = min(32, bits * count)
        return ir.IntType(width), bits * count // width, width // bits
    return context.get_data_type(element), count, 1


def _local_pointer(context: Any, builder: Any, signature: Any, arguments: Any, offset: int) -> Any:
    at = builder.add(context.cast(builder, arguments[3], signature.args[3], types.int64), ir.Constant(I64, offset))
    return address(context, builder, signature.args[2], arguments[2], types.int64, at)


def _unpack(context: Any, builder: Any, signature: Any, arguments: Any, words: list[Any], packed: int, count: int = 0) -> None:
    """Registers into the local array: all that they hold, or the first ``count`` elements."""
    kind = context.get_data_type(signature.args[2].dtype)
    if packed > 1:
        # hides that these are parts of one load, a word of which NVVM for sm_100 would load again; ptxas drops the moves
        words = [assemble(builder, f"mov.b{word.type.width} $0, $1;", word.type, [word]) for word in words]
    for k in range(count or len(words) * packed):
        value = words[k // packed]
        if packed > 1:
            bits = value.type.width // packed
            value = builder.trunc(builder.lshr(value, ir.Constant(value.type, bits * (k % packed))), ir.IntType(bits))
        builder.store(builder.bitcast(value, kind), _local_pointer(context, builder, signature, arguments, k))


def _pack(context: Any, builder: Any, signature: Any, arguments: Any, word: Any, count: int, packed: int) -> list[Any]:
    """The local array into registers."""
    values = [builder.load(_local_pointer(context, builder, signature, arguments, k)) for k in range(count)]
    if packed == 1:
        return values
    words = []
    for first in range(0, count, packed):
        whole = ir.Constant(word, 0)
        for k, value in enumerate(values[first : first + packed]):
            narrow = builder.bitcast(value, ir.IntType(word.width // packed))
            whole = builder.or_(whole, builder.shl(builder.zext(narrow, word), ir.Constant(word, narrow.type.width * k)))
        words.append(whole)
    return words


def _statement(operation: str, word: Any, count: int, load: bool) -> tuple[str, Any]:
    """A PTX access of registers of type ``word``, and the register type it needs: 8-bit values are held in 16 bits."""
    register = ir.IntType(16) if word == I8 else word
    kind = {"float": "f32", "double": "f64"}.get(str(word)) or f"b{word.width}"
    names = ", ".join(f"${k}" for k in range(0 if load else 1, count + (0 if load else 1)))
    vector, operand = (f".v{count}", f"{{{names}}}") if count > 1 else ("", names)
    where = f"[${count if load else 0}]"
    return f"{operation}{vector}.{kind} " + (f"{operand}, {where};" if load else f"{where}, {operand};"), register


def _check(name: str, count: int, pointer: Any, index: Any, local: Any, at: Any) -> Any:
    element = element_of(name, pointer, index)
    held = element_of(name, local, at)
    if held != element and not (element == types.bfloat16 and held == types.uint16):
        refuse(f"{name}: the local array holds {short(held)}, wants {'uint16' if element == types.bfloat16 else short(element)} as the memory does")
    if count * bits_of(element) > 128:
        refuse(f"{name}: {count} elements of {short(element)} are {count * bits_of(element) // 8} bytes, wants at most 16")
    return types.void(pointer, types.unliteral(index), local, types.unliteral(at))


def _access(name: str, count: int, operation: str, move: Callable[..., None], doc: str) -> Any:
    """An access by LLVM if ``operation`` is empty, "once" or "shared", otherwise by this PTX operation, which reaches global memory only."""
    load = name.startswith("load")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, registers, packed = _layout(context, signature.args[0].dtype, count)
        if operation not in ("", "once", "shared"):
            text, register = _statement(operation, word, registers, load)
            where = number_of(context, builder, signature, arguments)
            if load:
                several = [register] * registers if registers > 1 else register
                out = assemble(builder, text, several, [where], memory=".nc" not in operation)  # what nobody writes may be read at any time
                words = [builder.extract_value(out, k) for k in range(registers)] if registers > 1 else [out]
                narrowed = words if register == word else [builder.trunc(each, word) for each in words]
                _unpack(context, builder, signature, arguments, narrowed, packed)
            else:
                words = _pack(context, builder, signature, arguments, word, count, packed)
                widened = words if register == word else [builder.zext(each, register) for each in words]
                assemble(builder, text, VOID, [where, *widened], memory=True)
            return context.get_dummy_value()
        vector, align = ir.VectorType(word, registers), count * bits_of(signature.args[0].dtype) // 8
        pointer = builder.bitcast(address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1]), vector.as_pointer())
        if operation == "shared":
            pointer = builder.addrspacecast(pointer, vector.as_pointer(SHARED))
        if load:
            loaded = builder.load(pointer, align=align)
            if operation == "once":
                loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
            _unpack(context, builder, signature, arguments, [builder.extract_element(loaded, I32(k)) for k in range(registers)], packed)
        else:
            whole = ir.Constant(vector, ir.Undefined)
            for k, each in enumerate(_pack(context, builder, signature, arguments, word, count, packed)):
                whole = builder.insert_element(whole, each, I32(k))
            builder.store(whole, pointer, align=align)
        return context.get_dummy_value()

    made = define(name, ["pointer", "index", "local", "at"], lambda *given: (_check(name, count, *given), codegen), doc)

    @means(made, lane=True)
    def meaning(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int) -> None:
        reached = pointer.expect_shared(site) if operation == "shared" else pointer.expect_global(site) if operation else pointer
        move(lane, site, reached, index, local, at, count)

    return made


def _to_local(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int, count: int) -> None:
    for k, value in enumerate(pointer.load_vector(lane, index, count, site)):
        local.store(lane, at + k, value, site)


def _from_local(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int, count: int) -> None:
    pointer.store_vector(lane, index, tuple(local.load(lane, at + k, site) for k in range(count)), site)


def _table(form: str, operation: str, what: str) -> dict[int, Any]:
    verb, move = ("reads", _to_local) if form.startswith("load") else ("writes", _from_local)
    pair = ("``pointer[index : index + {0}]``", "``local[at : at + {0}]``")
    source, target = pair if verb == "reads" else pair[::-1]
    return {
        count: _access(
            form.replace("_N", f"_{count}"), count, operation, move,
            f"Copies {source.format(count)} to {target.format(count)} in one instruction{what}.\n\n    The address must be a multiple of the "
            f"{count} elements' bytes, at most 16. Any thread may call it alone; it orders nothing.",
        )
        for count in COUNTS
    }  # fmt: skip


LOAD = _table("load_N", "", "")
LOAD_ONCE = _table("load_N_once", "once", " by the read-only path: no thread may write the data during the kernel")
LOAD_STREAM = _table("load_N_stream", "ld.global.cs", ", first to be evicted: for global data that is read once")
LOAD_DIRECT = _table("load_N_direct", "ld.global.nc.L1::no_allocate", " by the read-only path without a line in L1: no thread may write the data")
LOAD_SHARED = _table("load_N_shared", "shared", " from shared memory, whatever of the pointer's origin the compiler knows")
STORE = _table("store_N", "", "")
STORE_STREAM = _table("store_N_stream", "st.global.cs", ", first to be evicted: for global data that is not read again soon")
STORE_SHARED = _table("store_N_shared", "shared", " to shared memory, whatever of the pointer's origin the compiler knows")

load_1, load_2, load_4, load_8, load_16 = LOAD.values()
load_1_once, load_2_once, load_4_once, load_8_once, load_16_once = LOAD_ONCE.values()
load_1_stream, load_2_stream, load_4_stream, load_8_stream, load_16_stream = LOAD_STREAM.values()
load_1_direct, load_2_direct, load_4_direct, load_8_direct, load_16_direct = LOAD_DIRECT.values()
load_1_shared, load_2_shared, load_4_shared, load_8_shared, load_16_shared = LOAD_SHARED.values()
store_1, store_2, store_4, store_8, store_16 = STORE.values()
store_1_stream, store_2_stream, store_4_stream, store_8_stream, store_16_stream = STORE_STREAM.values()
store_1_shared, store_2_shared, store_4_shared, store_8_shared, store_16_shared = STORE_SHARED.values()


@functools.cache
def load_halves(count: int) -> Any:
    """``load(pointer, index, local, at, inside)``: copies ``count`` elements of 16 bits from shared memory, from any index on, to ``local``.

    It loads the aligned words that they are in, and shifts these. Of the elements only the first ``inside``, one at least, have to be there: others
    become any number, but their words must lie in shared memory, too. Any thread may call it alone; it orders nothing.
    """
    name = f"load_{count}_halves"

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        found = address(context, builder, signature.args[0], arguments[0], signature.args[1], arguments[1])
        place = builder.ptrtoint(builder.addrspacecast(found, found.type.pointee.as_pointer(SHARED)), I32)
        first = builder.inttoptr(builder.and_(place, I32(-4)), I32.as_pointer(SHARED))
        loaded = [builder.load(builder.gep(first, [I32(k)]), align=4) for k in range(count // 2 + 1)]
        # of a shift the low 5 bits count, here those of 0 or 16
        shift, pairs = builder.shl(place, I32(3)), zip(loaded, [*loaded[1:], loaded[-1]], strict=True)
        words = [assemble(builder, "shf.r.wrap.b32 $0, $1, $2, $3;", I32, [*pair, shift]) for pair in pairs]
        _unpack(context, builder, signature, arguments, words, 2, count)
        return context.get_dummy_value()

    def body(pointer: Any, index: Any, local: Any, at: Any, inside: Any) -> Any:
        signature = _check(name, 1, pointer, index, local, at)
        if bits_of(pointer.dtype) != 16:
            refuse(f"{name}: elements are {short(pointer.dtype)}, wants 16 bits")
        return types.void(*signature.args, types.unliteral(inside)), codegen

    made = define(name, ["pointer", "index", "local", "at", "inside"], body, load_halves.__doc__)

    @means(made, lane=True)
    def meaning(lane: Any, site: str, pointer: Any, index: int, local: Any, at: int, inside: int) -> None:
        reached = pointer.expect_shared(site)
        for k in range(count):
            local.store(lane, at + k, reached.load(lane, index + min(k, inside - 1), site), site)

    return made


def _aligned_span(pointer: Any, first: Any, last: Any, count: Any) -> Any:
    expect_pointer("aligned_span", pointer)
    size = bits_of(pointer.dtype) // 8
    if not size or not all(isinstance(given, types.Integer) for given in (first, last, count)):
        refuse(f"aligned_span: got {pointer}, {first}, {last}, {count}, wants a pointer to numbers and three integers")

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        base = address(context, builder, signature.args[0], arguments[0], types.int64, I64(0))
        first, last, count = arguments[1:]
        elements = builder.lshr(builder.ptrtoint(base, I64), I64(size.bit_length() - 1))
        rest = builder.sub(count, I64(1))
        begin = builder.add(first, builder.and_(builder.sub(I64(0), builder.add(elements, first)), rest))
        begin = builder.select(builder.icmp_signed("<", begin, last), begin, last)
        end = builder.add(begin, builder.and_(builder.sub(last, begin), builder.not_(rest)))
        return context.make_tuple(builder, signature.return_type, [begin, end])

    return types.UniTuple(types.int64, 2)(pointer, *[types.int64] * 3), codegen


aligned_span = define(
    "aligned_span", ["pointer", "first", "last", "count"], _aligned_span,
    """``(begin, end)``: the part of ``[first, last)`` that aligned accesses of ``count`` elements cover.

    A kernel then runs scalars over [first, begin), vectors over [begin, end) in steps of ``count``, and scalars over [end, last); head and tail
    have fewer than ``count`` elements each, and all three may be empty. ``count`` is a power of two; elements lie at multiples of their size.
    int64 results; some ten integer instructions, no memory access. Any thread may call it alone.
    """,
)  # fmt: skip


@means(aligned_span)
def _aligned_span_meaning(pointer: Any, first: int, last: int, count: int) -> tuple[int, int]:
    begin = min(first + -(pointer.base + first) % count, last)
    return begin, begin + (last - begin) // count * count


def _touch(lane: Any, site: str, pointer: Any, index: int) -> None:
    pointer.expect_global(site)


prefetch = ptx_memory(
    "prefetch", "prefetch.global.L2 [$0];", 0, _touch,
    doc="""Brings the 128 bytes around ``pointer[index]`` to the L2 cache; nobody waits for them, and an access soon after need not go to memory.

    One CCTL.PF2. Global memory; any thread may call it alone; it orders nothing.
    """,
)  # fmt: skip
