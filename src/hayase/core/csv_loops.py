"""Compiled loop of `hayase.streams.csv_blocks`, compiled on import (see `hayase.core.machine_code`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled

__all__ = ["MALFORMED", "WITHIN_LINES", "WITH_NEWLINES", "classes", "quoting"]

MALFORMED, WITHIN_LINES, WITH_NEWLINES = -1, 0, 1
"""What `quoting` returns: a line is malformed, or may be; every field is within a line; a quoted field has a line end."""

_QUOTE, _COMMA, _NEWLINE, _RETURN, _ODD = 1, 2, 3, 4, 5

_i64, _flag = types.int64, types.boolean
_bytes = types.Array(types.uint8, 1, "C", readonly=True)


def classes(odd: bytes) -> Any:
    """Return the table of what each byte means in CSV; `odd` has the bytes that make a column odd."""
    table = np.zeros(256, np.uint8)
    table[[*odd]] = _ODD
    table[[*b'",\n\r']] = _QUOTE, _COMMA, _NEWLINE, _RETURN
    return table


@compiled(_i64, _bytes, _bytes, _flag[::1])
def quoting(block: Any, classes: Any, odd: Any) -> int:
    """Return whether all quotes in a block open or close a field, with one flag in `odd` for each column of a record: whether a
    field of it has an odd byte. Carriage returns outside quotes must end lines; a block of blank lines counts as malformed."""
    at, column, count = 0, 0, len(block)
    newlines, blank = False, True
    while at < count:
        kind = classes[block[at]]  # of the first byte of a field
        if kind == _QUOTE:
            blank = False
            at += 1
            while True:
                while at < count and classes[block[at]] == 0:
                    at += 1
                if at == count:
                    return MALFORMED
                kind = classes[block[at]]
                at += 1
                if kind == _QUOTE:
                    if at == count or block[at] != 34:
                        break
                    at += 1
                elif kind == _NEWLINE:
                    newlines = True
                elif kind == _ODD:
                    odd[column] = True
        else:
            start = at
            while at < count:
                kind = classes[block[at]]
                if kind == _ODD:
                    odd[column] = True
                elif kind != 0:
                    break
                at += 1
            blank &= start == at
        if at == count:
            break
        kind = classes[block[at]]
        if kind == _RETURN:
            at += 1
            if at == count or block[at] != 10:
                return MALFORMED
            kind = _NEWLINE
        at += 1
        if kind == _COMMA:
            column += 1
            blank = False
            if column == len(odd):
                return MALFORMED
        elif kind == _NEWLINE:
            column = 0
        else:
            return MALFORMED
    if blank:
        return MALFORMED
    return WITH_NEWLINES if newlines else WITHIN_LINES
