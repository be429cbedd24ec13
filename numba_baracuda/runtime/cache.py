"""Cubins on disk: a kernel is compiled once on a machine and loaded everywhere after, without numba.

An entry is found by a hash of everything that could change its machine code: the sources of the package, the spec, the architecture, and the versions
of Python, numba and the CUDA compiler. Entries are never edited; one that does not read back whole is built again. Blobs, named and filled
by other modules, are kept beside them in the same way.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterable
from pathlib import Path

from ..core.lazy import uncollected
from ..core.spec import Cubin, KernelSpec
from . import entries, helpers

_SUFFIXES = (".cubin", ".blob")
_COMPILERS = (
    "numba", "numba-cuda", "llvmlite", "cuda-core",
    "nvidia-cuda-nvcc", "nvidia-cuda-nvcc-cu12", "nvidia-nvvm", "nvidia-nvjitlink-cu12", "nvidia-nvjitlink",
)  # fmt: skip
_PACKAGE = Path(__file__).parent.parent
_memory: dict[str, Cubin] = {}
_locks: dict[str, threading.Lock] = {}
os.register_at_fork(after_in_child=_locks.clear)  # whoever holds one is not there
_ABANDONED = 3600.0  #: seconds after which a file that is still being written has lost its writer
_told = False
_swept = False


class CacheWarning(UserWarning):
    """Compiled kernels cannot be kept on disk."""


def directory() -> Path:
    """Where entries are kept: ``NUMBA_BARACUDA_CACHE_DIR``, else the user's cache folder."""
    chosen = os.environ.get("NUMBA_BARACUDA_CACHE_DIR")
    if chosen:
        return Path(os.path.expanduser(chosen))
    import platformdirs

    return Path(platformdirs.user_cache_dir("numba_baracuda"))


def _status() -> os.stat_result:
    return directory().stat()


def _distrust() -> str | None:
    """Why entries are neither read nor written: others could put machine code there. None where all is well, or there is no folder yet."""
    try:
        found = _status()
    except OSError:
        return None
    if found.st_uid not in (0, os.geteuid()):
        return f"{directory()} belongs to user {found.st_uid}, wants one of your own"
    if found.st_mode & 0o022:
        return f"{directory()} can be written by others, wants chmod go-w"
    return None


def _trusted() -> bool:
    reason = _distrust()
    if reason:
        _warn(reason)
    return reason is None


def _warn(reason: object) -> None:
    """Once in a process."""
    global _told
    if not _told:
        _told = True
        cure = "set NUMBA_BARACUDA_CACHE_DIR to a folder that you alone can write"
        warnings.warn(f"compiled kernels are not kept, every process compiles its own ({reason}): {cure}", CacheWarning, stacklevel=5)


def sweep() -> int:
    """Remove the files of writers that died before they were done; their number."""
    removed = 0
    for path in _entries((".tmp",)):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED:
                path.unlink()
                removed += 1
        except OSError:  # another process was faster
            continue
    return removed


def _entries(suffixes: tuple[str, ...] = _SUFFIXES) -> list[Path]:
    try:
        return [path for path in directory().iterdir() if path.suffix in suffixes]
    except OSError:
        return []


def size() -> tuple[int, int]:
    """Number of entries on disk, and their bytes."""
    sizes = []
    for path in _entries():
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # another process cleared it
            continue
    return len(sizes), sum(sizes)


def clear() -> int:
    """Remove every entry, from this process's memory too; the number removed from disk."""
    _memory.clear()
    removed = 0
    for path in _entries((*_SUFFIXES, ".tmp")):
        try:
            path.unlink()
        except OSError:
            continue
        removed += path.suffix in _SUFFIXES
    return removed


@functools.cache
def _sources() -> str:
    """Hash of the package's Python files, by name and content."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@functools.cache
def _foreign_source(module: str) -> str:
    """Hash of the file that defines a factory outside the package."""
    found = importlib.util.find_spec(module)
    if found is None or not found.origin or not os.path.isfile(found.origin):
        return ""
    return hashlib.sha256(Path(found.origin).read_bytes()).hexdigest()


@functools.cache
def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Versions of those packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _versions() -> dict[str, str]:
    return {"python": "{}.{}".format(*sys.version_info), **versions(_COMPILERS)}


def key(spec: KernelSpec, arch: str) -> str:
    """The hash that names the entry of a kernel; equal constants of different types (``1`` and ``True``) give different ones."""
    module = spec.factory.partition(":")[0]
    outside = "" if module.partition(".")[0] == _PACKAGE.name else _foreign_source(module)
    parts = [entries.MAGIC.decode(), _sources(), outside, dataclasses.astuple(spec), arch, _versions()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _content(entry: str) -> bytes | None:
    try:
        return (directory() / entry).read_bytes() if _trusted() else None
    except OSError:
        return None


def _read(name: str) -> Cubin | None:
    raw = _content(f"{name}.cubin")
    return None if raw is None else entries.decode(raw, name)


def _write(entry: str, content: bytes) -> None:
    """Appear whole or not at all: other processes read and write the same entry."""
    global _swept
    temporary = None
    try:
        _make_directory()
        if not _trusted():
            return
        if not _swept:
            _swept = True
            sweep()
        handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=directory())
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, directory() / entry)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        _warn(error)


def read_blob(name: str) -> bytes | None:
    """What :func:`write_blob` keeps under a name; None if that is nothing, or not whole."""
    raw = _content(f"{name}.blob")
    return None if raw is None else entries.decode_blob(raw, name)


def write_blob(name: str, content: bytes) -> None:
    """Keep bytes under a name, in place of what was there; where the folder cannot be written, only a warning."""
    _write(f"{name}.blob", entries.encode_blob(content, name))


def _find(name: str) -> Cubin | None:
    found = _memory.get(name)
    if found is None:
        found = _read(name)
        if found is not None:
            _memory[name] = found
    return found


def cubin(spec: KernelSpec, arch: str) -> Cubin:
    """Machine code of a kernel for an architecture such as ``"sm_90"``: from this process, from disk, or compiled now and kept.

    Threads that ask for the same kernel wait for one compilation; processes may each compile, and the last one's entry stays.
    """
    name = key(spec, arch)
    found = _memory.get(name)
    if found is not None:
        return found
    with _locks.setdefault(name, threading.Lock()):
        found = _find(name)
        if found is None and helpers.wait(name):
            found = _find(name)
        if found is None:
            with uncollected():
                from . import jit

                found = jit.compile_cubin(spec, arch)
            _memory[name] = found
            _write(f"{name}.cubin", entries.encode(found, name))
    return found


def missing(specs: Iterable[KernelSpec], arch: str) -> dict[str, KernelSpec]:
    """Those of the kernels that are neither in this process nor on disk, by the names of their entries."""
    named = {key(spec, arch): spec for spec in specs}
    return {name: spec for name, spec in named.items() if _find(name) is None}


def shared() -> bool:
    """Whether what another process writes is found here: entries can be kept on disk."""
    try:
        _make_directory()
    except OSError:
        return False
    return _trusted() and os.access(directory(), os.W_OK | os.X_OK)


def _make_directory() -> None:
    directory().parent.mkdir(parents=True, exist_ok=True)
    directory().mkdir(mode=0o700, exist_ok=True)
