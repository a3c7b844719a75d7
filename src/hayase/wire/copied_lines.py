"""The lines of a COPY: rows as text with escapes, or as CSV."""

from __future__ import annotations

from collections.abc import Sequence

from hayase.wire.commands import CopyOut

__all__ = ["copied_line"]

_ESCAPES = (
    (b"\\", b"\\\\"),
    (b"\b", b"\\b"),
    (b"\f", b"\\f"),
    (b"\n", b"\\n"),
    (b"\r", b"\\r"),
    (b"\t", b"\\t"),
    (b"\v", b"\\v"),
)


def copied_line(values: Sequence[bytes | None], form: CopyOut) -> bytes:
    r"""Return a line of values, with its end.

    >>> copied_line([b"a\tb", None], CopyOut("", None))
    b'a\\tb\t\\N\n'
    """
    write = _csv if form.csv else _escaped
    return form.delimiter.encode().join(write(value, form) for value in values) + b"\n"


def _csv(value: bytes | None, form: CopyOut) -> bytes:
    if value is None:
        return form.null.encode()
    if value == form.null.encode() or any(sign in value for sign in (b'"', b"\n", b"\r", form.delimiter.encode())):
        return b'"' + value.replace(b'"', b'""') + b'"'
    return value


def _escaped(value: bytes | None, form: CopyOut) -> bytes:
    if value is None:
        return form.null.encode()
    for sign, escape in _ESCAPES:
        value = value.replace(sign, escape)
    delimiter = form.delimiter.encode()
    return value if delimiter == b"\t" else value.replace(delimiter, b"\\" + delimiter)
