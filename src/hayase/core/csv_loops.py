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


@compiled(types.UniTuple(_i64, 3), _bytes, _bytes, _bytes, _flag[::1], _flag)
def quoting(block: Any, classes: Any, plain: Any, odd: Any, last: Any) -> Any:
    """Return whether all quotes in a block open or close a field, where its last complete record ends, and how many lines there
    are up to there. Set a flag in `odd` for each column of which a field has an odd byte; in quoted fields of columns whose flag
    is set, these bytes are not looked for: `plain` is the table of classes without them. Carriage returns outside quotes must end
    lines; a block of blank lines counts as malformed. Unless the block is the `last` one, it may end within a record."""
    at, column, count = 0, 0, len(block)
    end, lines, lines_inside = 0, 0, 0
    newlines, blank = False, True
    while at < count:
        if classes[block[at]] == _QUOTE:  # the first byte of a field
            blank = False
            at += 1
            closed = False
            table = plain if odd[column] else classes
            while not closed:
                while at + 8 <= count and (  # the look-ups do not wait for each other
                    table[block[at]] | table[block[at + 1]] | table[block[at + 2]] | table[block[at + 3]]
                    | table[block[at + 4]] | table[block[at + 5]] | table[block[at + 6]] | table[block[at + 7]]
                ) == 0:  # fmt: skip
                    at += 8
                while at < count and table[block[at]] == 0:
                    at += 1
                if at == count:
                    break
                kind = table[block[at]]
                at += 1
                if kind == _QUOTE:
                    if at == count or block[at] != 34:
                        closed = True
                    else:
                        at += 1
                elif kind == _NEWLINE:
                    lines_inside += 1
                elif kind == _ODD:
                    odd[column] = True
            if not closed:
                if last:
                    return MALFORMED, 0, 0
                break
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
            if at == count:
                if last:
                    return MALFORMED, 0, 0
                break
            if block[at] != 10:
                return MALFORMED, 0, 0
            kind = _NEWLINE
        at += 1
        if kind == _COMMA:
            column += 1
            blank = False
            if column == len(odd):
                return MALFORMED, 0, 0
        elif kind == _NEWLINE:
            column = 0
            end = at
            lines += 1 + lines_inside
            newlines |= lines_inside > 0
            lines_inside = 0
        else:
            return MALFORMED, 0, 0
    if last:
        end = count
        lines += lines_inside
        newlines |= lines_inside > 0
    if blank or end == 0:
        return MALFORMED, 0, 0
    return (WITH_NEWLINES if newlines else WITHIN_LINES), end, lines
