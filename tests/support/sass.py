"""Reads machine code: instructions that a kernel must not have, and those that its constants require."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from numba_baracuda.core.dtypes import BY_NAME
from numba_baracuda.core.spec import Cubin, KernelSpec

DOUBLE = re.compile(r"\b(DADD|DMUL|DFMA|DSETP|DMNMX|MUFU\.\w+64H|F2F\.F64\.\w+|F2F\.\w+\.F64|I2F\.F64\S*|F2I\.\S*F64\S*)\b")
_LOCAL = re.compile(r"\b(LDL|STL)\b")
_WIDE_LOAD = re.compile(r"\bLDG\.E\S*\.128\b")
_WIDE_STORE = re.compile(r"\bSTG\.E\S*\.128\b")
#: bytes of an instruction, and the flag of an ELF section that holds them
_INSTRUCTION, _EXECUTABLE = 16, 4
#: kernels with vectorized loads, and with vectorized stores
LOADS_WIDE = (
    "cross_entropy_rows", "first_fault", "fold_ranges", "fold_tiles", "gather_rows", "gather_runs", "mask_rows", "scatter_rows", "finish_flat",
    "finish_rows", "sort_keys", "planted",
)  # fmt: skip
STORES_WIDE = (
    "assign", "cross_entropy_rows", "fold_tiles", "fold_carries", "gather_rows", "gather_runs", "mask_rows", "finish_flat", "finish_rows",
    "fill_rows", "number_rows", "sort_keys", "broadcast_dense", "planted",
)  # fmt: skip


def disassembler() -> str:
    """The path of nvdisasm, which the wheel nvidia-cuda-nvdisasm brings; its absence is an error, not a reason to skip."""
    for file in metadata.files("nvidia-cuda-nvdisasm") or ():
        if file.name == "nvdisasm":
            return str(file.locate())
    raise FileNotFoundError("nvidia-cuda-nvdisasm is installed without its program")


def _nvdisasm(image: bytes, *options: str) -> str:
    """What nvdisasm prints; without the data-flow analysis, which is needed for branch targets only."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code")
        path.write_bytes(image)
        done = subprocess.run([disassembler(), "-ndf", *options, str(path)], capture_output=True, text=True, check=True)
    return done.stdout


def disassemble(cubin: Cubin) -> str:
    """The SASS of a kernel."""
    return _nvdisasm(cubin.image, "-c")


def disassemble_all(cubins: Sequence[Cubin], arch: str) -> list[str]:
    """The SASS of each kernel of one architecture by a single run: nvdisasm takes longer to start than to read a kernel."""
    codes = [_code(cubin.image) for cubin in cubins]
    lines = re.findall(r"^ *(/\*[0-9a-f]{4,}\*/ .*;)", _nvdisasm(b"".join(codes), "-b", arch.upper().replace("_", "")), re.M)
    if len(lines) != sum(map(len, codes)) // _INSTRUCTION:
        raise ValueError(f"{len(lines)} instructions in {sum(map(len, codes))} bytes of code")
    ends = list(itertools.accumulate(len(code) // _INSTRUCTION for code in codes))
    return ["\n".join(lines[begin:end]) for begin, end in itertools.pairwise([0, *ends])]


def _code(image: bytes) -> bytes:
    """The sections of an ELF image that hold instructions."""
    (table,), (size, count) = struct.unpack_from("<Q", image, 40), struct.unpack_from("<HH", image, 58)
    sections = [struct.unpack_from("<IIQQQQ", image, table + k * size) for k in range(count)]
    return b"".join(image[offset : offset + length] for _, _, flags, _, offset, length in sections if flags & _EXECUTABLE)


def resource_faults(cubin: Cubin) -> list[str]:
    """Faults of a kernel in the linker's report."""
    found = []
    if cubin.registers <= 0:
        found.append("the linker's report names no registers")
    if cubin.spills:
        found.append(f"{cubin.spills} bytes of spills")
    if cubin.stack:
        found.append(f"{cubin.stack} bytes of local memory a thread")
    return found


def _vector_type(constants: dict[str, int | str | bool]) -> str:
    """The type of the elements of vectorized loads and stores."""
    return str(next(constants[role] for role in ("value", "key", "row_index", "index") if constants.get(role)))


def code_faults(sass: str, spec: KernelSpec, cubin: Cubin) -> list[str]:
    """Faults in the machine code of a kernel: local memory, float64 where no value is float64, narrow loads where the constants require vectors."""
    constants, name = dict(spec.constants), spec.kernel
    found = [f"local memory: {match}" for match in set(_LOCAL.findall(sass))]
    logarithms = name == "finish_factors" or constants.get("update") == "factor"  # of products out of range, to 2^-27 and better: float64 on purpose
    if not logarithms and not any("f64" in each.type for each in cubin.parameters):
        found += [f"float64 arithmetic: {match}" for match in sorted(set(DOUBLE.findall(sass)))]
    if "vector" in constants and constants["vector"] * BY_NAME[_vector_type(constants)].itemsize == 16:
        if name in LOADS_WIDE and not _WIDE_LOAD.search(sass):
            found.append("no 16-byte load")
        if name in STORES_WIDE and not _WIDE_STORE.search(sass):
            found.append("no 16-byte store")
    return found
