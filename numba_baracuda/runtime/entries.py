"""Entries of the cache as bytes: sealed by a hash, so that a damaged or foreign one is told from a whole one."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from ..core.spec import Cubin, Parameter

MAGIC = b"numba_baracuda cubin 2\n"
_BLOB_MAGIC = b"numba_baracuda blob 1\n"


def _seal(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()


def _unseal(raw: bytes, start: bytes) -> bytes | None:
    """The bytes behind ``start`` and the hash; None if one of them changed."""
    body = raw[:-32]
    return body[len(start) :] if body.startswith(start) and hashlib.sha256(body).digest() == raw[-32:] else None


def encode(cubin: Cubin, name: str) -> bytes:
    """A kernel as the bytes of its entry."""
    fields = dataclasses.asdict(cubin)
    image: bytes = fields.pop("image")
    header = json.dumps({"key": name, "bytes": len(image), "cubin": fields}).encode()
    return _seal(MAGIC + len(header).to_bytes(4, "little") + header + image)


def decode(raw: bytes, name: str) -> Cubin | None:
    """The kernel of an entry; None if that is of another name, or not whole."""
    body = _unseal(raw, MAGIC)
    if body is None:
        return None
    end = 4 + int.from_bytes(body[:4], "little")
    try:
        header = json.loads(body[4:end])
        if header["key"] != name or header["bytes"] != len(body) - end:
            return None
        parameters = tuple(Parameter(**each) for each in header["cubin"].pop("parameters"))
        return Cubin(image=body[end:], parameters=parameters, **header["cubin"])
    except (ValueError, TypeError, KeyError):
        return None


def _start_of_blob(name: str) -> bytes:
    return _BLOB_MAGIC + name.encode() + b"\n"


def encode_blob(content: bytes, name: str) -> bytes:
    """Content as the bytes of its entry."""
    return _seal(_start_of_blob(name) + content)


def decode_blob(raw: bytes, name: str) -> bytes | None:
    """The bytes of an entry; None if that is of another name, or not whole."""
    return _unseal(raw, _start_of_blob(name))
