"""Sealed files: small JSON files whose first line names their kind and the checksum of the rest.

    hayase manifest 1f0c6b7a9d3e5f42
    {"version":3,...}

All small files of a home are written and read here: manifests, definitions, declarations of streams, producers, heads,
positions of views. A file of another kind, a changed byte or a truncated file raises `DamagedState`, with the name of the
file and what to do. Segments, state files, sorted runs of tables and shipped code have checksums of their own.
"""

from __future__ import annotations

from pathlib import Path

import xxhash

from hayase.core.errors import DamagedState

__all__ = ["is_sealed", "read_sealed", "seal", "unseal"]

_MAGIC = b"hayase "


def seal(kind: str, body: bytes) -> bytes:
    """Return the bytes of a sealed file of that kind.

    >>> seal("format", b'{"format":2}')
    b'hayase format 95fbaad0237542d8\\n{"format":2}'
    """
    return b"%s%s %s\n%s" % (_MAGIC, kind.encode(), _digest(body), body)


def unseal(data: bytes, kind: str, path: Path, remedy: str) -> bytes:
    """Return the body of a sealed file; DamagedState, which names the file, if it is not what was written."""
    line, _, body = data.partition(b"\n")
    if line == b"%s%s %s" % (_MAGIC, kind.encode(), _digest(body)):
        return body
    raise DamagedState(f"the {kind} {path} cannot be read: {_reason(line, kind)}", remedy)


def _reason(line: bytes, kind: str) -> str:
    if not line.startswith(_MAGIC):
        return "it does not begin with its checksum"
    return "it does not match its checksum" if line.startswith(_MAGIC + kind.encode()) else "it is something else"


def read_sealed(path: Path, kind: str, remedy: str) -> bytes:
    """Read a sealed file and return its body; FileNotFoundError if there is none, DamagedState if it is not what was
    written."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DamagedState(f"the {kind} {path} cannot be read: {error}", remedy) from error
    return unseal(data, kind, path, remedy)


def is_sealed(data: bytes) -> bool:
    """Return whether bytes begin like a sealed file; `unseal` checks whether they are intact."""
    return data.startswith(_MAGIC)


def _digest(body: bytes) -> bytes:
    return xxhash.xxh3_64_hexdigest(body).encode()
