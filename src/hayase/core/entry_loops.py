"""Compiled loops of `hayase.tables.entry_blocks`: the updates in entries of tables, and folds of many rows by column type.

A loop changes nothing that it is not sure about: it sets a flag of the row in `doubt` instead, and the row is folded by the
methods of its column type, which also find the reason if bytes are damaged. Positions are in the joined bytes of all entries, or
of all values of entries. Rows and updates are in the order of the store.
"""

from __future__ import annotations

from typing import Any

from hayase.core import loop_types as types
from hayase.core.machine_code import compiled, njit

__all__ = [
    "add_amounts",
    "count_changes",
    "count_updates",
    "find_best",
    "find_changes",
    "find_latest",
    "find_rows",
    "find_updates",
    "group_changes",
]

_TEXT, _END, _ESCAPE, _ZERO, _TINY, _HUGE, _MIRROR = 0xF1, 0, 1, 0x78, 0x79, 0xDF, 0xF0
_FEW_UPDATES = 240
_MOST = 1 << 61
"""Sums beyond it are left to Python's integers."""

_i64, _flag, _void = types.int64, types.boolean, types.void
_bytes = types.Array(types.uint8, 1, "C", readonly=True)
_line = types.Array(_i64, 1, "C", readonly=True)


@njit
def _equal(one: Any, start: Any, other: Any, other_start: Any, length: Any) -> Any:
    for at in range(length - 1, -1, -1):  # noqa: SIM110 - a loop; ids of events differ at their end
        if one[start + at] != other[other_start + at]:
            return False
    return True


@njit
def _less(data: Any, start: Any, end: Any, other_start: Any, other_end: Any) -> Any:
    """Whether some bytes are less than others, as Python compares them."""
    for at in range(min(end - start, other_end - other_start)):
        if data[start + at] != data[other_start + at]:
            return data[start + at] < data[other_start + at]
    return end - start < other_end - other_start


@compiled(_i64, _bytes, _line, _bytes, _line, _i64[::1], _i64[::1])
def find_rows(entries: Any, places: Any, values: Any, value_places: Any, starts: Any, cuts: Any) -> Any:
    """Divide entries with their kind in front into rows: set where each row begins and how many bytes come before a version.
    Return the number of rows; -1 if an entry is malformed."""
    rows, cut, first = 0, 0, 0
    for entry in range(len(places) - 1):
        start, size = places[entry], places[entry + 1] - places[entry]
        if rows and size >= cut and _equal(entries, start, entries, first, cut):
            continue
        at = value_places[entry]
        if value_places[entry + 1] - at < 2:
            return -1
        cut, first = 1 + (values[at] << 8 | values[at + 1]), start
        if size < cut + 10:
            return -1
        starts[rows], cuts[rows] = entry, cut
        rows += 1
    return rows


@njit
def _after_length(values: Any, at: Any, end: Any) -> Any:
    """Decode a length in base 128: the length and the position after it; -1 if it is cut off or absurd."""
    length, shift = 0, 0
    while at < end and shift < 35:
        byte = values[at]
        at += 1
        length |= (byte & 127) << shift
        if byte < 128:
            return length, at
        shift += 7
    return -1, at


@njit
def _next_update(values: Any, at: Any, end: Any) -> Any:
    """Return where the delta of the update begins whose number is at a position, and where it ends; -1 if it is malformed."""
    if at >= end:
        return -1, at
    length, start = _after_length(values, at + (1 if values[at] < _FEW_UPDATES else 5), end)
    if length < 0 or start + length > end:
        return -1, at
    return start, start + length


@compiled(_i64, _bytes, _line, _i64[::1])
def count_updates(values: Any, value_places: Any, counts: Any) -> Any:
    """Count the updates of each column; return -1 if a value is malformed."""
    total = 0
    for entry in range(len(value_places) - 1):
        at, end = value_places[entry] + 2, value_places[entry + 1]
        if at > end:
            return -1
        while at < end:
            place = values[at]
            start, at = _next_update(values, at + 1, end)
            if start < 0 or place >= len(counts):
                return -1
            counts[place] += 1
            total += 1
    return total


@compiled(_void, _bytes, _line, _i64[::1], _i64[::1], _i64[::1], _i64[::1], _i64[::1])
def find_updates(
    values: Any, value_places: Any, nexts: Any, entry_of: Any, numbers: Any, starts: Any, ends: Any
) -> None:
    """Set the entry, the position of the number, and the bounds of the delta of each update, column by column: `nexts` has where
    the updates of a column begin."""
    for entry in range(len(value_places) - 1):
        at, end = value_places[entry] + 2, value_places[entry + 1]
        while at < end:
            update = nexts[values[at]]
            nexts[values[at]] += 1
            entry_of[update], numbers[update] = entry, at + 1
            starts[update], at = _next_update(values, at + 1, end)
            ends[update] = at


@njit
def _has_head(values: Any, start: Any, end: Any, tag: Any, kind: Any) -> Any:
    return end - start >= 2 and values[start] == tag and values[start + 1] == kind


@compiled(
    _void, _bytes, _line, _line, _line, _i64, _i64, _bytes, _line, _line, _line, _line, _i64[::1], _flag[::1]
)  # fmt: skip
def find_latest(
    entries: Any, places: Any, cuts: Any, rows: Any, tag: Any, kind: Any,
    values: Any, entry_of: Any, numbers: Any, starts: Any, ends: Any, best: Any, doubt: Any,
) -> None:  # fmt: skip
    """Set in `best` the update of each row with the greatest version; -1 where there is none."""
    for update in range(len(starts)):
        entry, start, end = entry_of[update], starts[update], ends[update]
        row = rows[entry]
        if not _has_head(values, start, end, tag, kind):
            doubt[row] = True
            continue
        other = best[row]
        if other < 0:
            best[row] = update
            continue
        before = entry_of[other]
        if before != entry:
            at, size = places[entry] + cuts[row], places[entry + 1] - places[entry] - cuts[row]
            there, other_size = places[before] + cuts[row], places[before + 1] - places[before] - cuts[row]
            if size != other_size or not _equal(entries, at, entries, there, size - 1):  # without the source
                best[row] = update
                continue
        # the same event: the number of the update decides; its first byte says how long it is
        number, other_number = numbers[update], numbers[other]
        length = 1 if values[number] < _FEW_UPDATES else 5
        other_length = 1 if values[other_number] < _FEW_UPDATES else 5
        if _less(values, other_number, other_number + other_length, number, number + length) or (
            length == other_length
            and _equal(values, number, values, other_number, length)
            and _less(values, starts[other], ends[other], start, end)
        ):
            best[row] = update


@njit
def _is_plain(values: Any, start: Any, end: Any) -> Any:
    """Whether bytes are surely a value: a text of ASCII without escapes, zero, or a number of usual size."""
    if start >= end:
        return False
    head = values[start]
    if head == _TEXT:
        for at in range(start + 1, end - 1):
            if values[at] <= _ESCAPE or values[at] >= 128:
                return False
        return end - start >= 2 and values[end - 1] == _END
    if head == _ZERO:
        return end - start == 1
    negative = head < _ZERO
    usual = _MIRROR - head if negative else head
    if usual <= _TINY or usual >= _HUGE or end - start < 3:
        return False
    for at in range(start + 1, end - 1):
        byte = 255 - values[at] if negative else values[at]
        if byte == 0 or (byte - 1) >> 4 > 9 or (byte - 1) & 15 > 9:
            return False
        if (at == start + 1 and byte - 1 < 16) or (at == end - 2 and byte == 1):
            return False
    return values[end - 1] == (255 if negative else 0)


@compiled(_void, _line, _i64, _i64, _flag, _bytes, _line, _line, _line, _i64[::1], _flag[::1])
def find_best(
    rows: Any, tag: Any, kind: Any, greatest: Any,
    values: Any, entry_of: Any, starts: Any, ends: Any, best: Any, doubt: Any,
) -> None:  # fmt: skip
    """Set in `best` the update of each row with the least or the greatest value; -1 where there is none."""
    for update in range(len(starts)):
        row, start, end = rows[entry_of[update]], starts[update], ends[update]
        if not _has_head(values, start, end, tag, kind) or not _is_plain(values, start + 2, end):
            doubt[row] = True
            continue
        other = best[row]
        if other < 0:
            best[row] = update
        elif greatest:
            if _less(values, starts[other], ends[other], start, end):
                best[row] = update
        elif _less(values, start, end, starts[other], ends[other]):
            best[row] = update


@compiled(_void, _bytes, _line, _line, _line, _i64[::1], _i64[::1], _flag[::1])
def add_amounts(
    values: Any, starts: Any, ends: Any, groups: Any, sums: Any, scales: Any, doubt: Any
) -> None:  # fmt: skip
    """Add encoded amounts to the sums of their groups, each a number of units of ten to the minus its scale."""
    for amount in range(len(starts)):
        at, end, group = starts[amount], ends[amount], groups[amount]
        if doubt[group]:
            continue
        shape, at = _after_length(values, at, end)
        length, scale = end - at, shape >> 10
        if shape < 0 or scale > 15 or length == 0 or length > 8 or length != shape & 1023:
            doubt[group] = True
            continue
        number = -1 if values[at] >= 128 else 0
        while at < end:
            number = number << 8 | values[at]
            at += 1
        total, present = sums[group], scales[group]
        while present < scale and abs(total) < _MOST // 10:
            total *= 10
            present += 1
        while scale < present and abs(number) < _MOST // 10:
            number *= 10
            scale += 1
        if scale != present or abs(number) >= _MOST or abs(total) >= _MOST:
            doubt[group] = True
            continue
        sums[group], scales[group] = total + number, present


@compiled(_i64, _bytes, _line, _line)
def count_changes(values: Any, starts: Any, ends: Any) -> Any:
    """Return how many entries updates of maps have at most: the sum of the counts that they begin with."""
    total = 0
    for update in range(len(starts)):
        if ends[update] - starts[update] > 2 and values[starts[update] + 2] < 128:
            total += values[starts[update] + 2]
    return total


@compiled(
    _i64, _line, _i64, _i64, _bytes, _line, _line, _line,
    _i64[::1], _i64[::1], _i64[::1], _i64[::1], _i64[::1], _flag[::1],
)  # fmt: skip
def find_changes(
    rows: Any, tag: Any, kind: Any, values: Any, entry_of: Any, starts: Any, ends: Any,
    row_of: Any, key_starts: Any, key_ends: Any, change_starts: Any, change_ends: Any, doubt: Any,
) -> Any:  # fmt: skip
    """Set the row, the key and the change of each entry of updates of maps; return how many there are."""
    found = 0
    for update in range(len(starts)):
        row, start, end = rows[entry_of[update]], starts[update], ends[update]
        if not _has_head(values, start, end, tag, kind) or end - start < 3 or values[start + 2] >= 128:
            doubt[row] = True
            continue
        at = start + 3
        for _ in range(values[start + 2]):
            key = at
            while at < end and values[at] != _END:
                at += 1
            length, change = _after_length(values, at + 1, end)
            if length < 0 or change + length > end:
                at = -1
                break
            row_of[found], key_starts[found], key_ends[found] = row, key, at + 1
            change_starts[found], change_ends[found] = change, change + length
            found += 1
            at = change + length
        if at != end:
            doubt[row] = True
    return found


@compiled(
    types.UniTuple(_i64, 2), _line, _bytes, _line, _line, _i64[::1], _i64[::1], _i64[::1], _i64[::1],
    _i64[::1], _i64[::1],
)  # fmt: skip
def group_changes(
    row_of: Any, values: Any, key_starts: Any, key_ends: Any, slots: Any, firsts: Any, latest: Any, groups: Any,
    group_rows: Any, group_keys: Any,
) -> Any:  # fmt: skip
    """Group changes by row and key; return the number of different keys and of groups.

    `slots` is a hash table, of a size that is a power of two, of -1 for free and of keys by number; `firsts` has the first change
    of each key, `latest` the latest group of each."""
    keys, count, mask = 0, 0, len(slots) - 1
    for change in range(len(row_of)):
        start, end, row = key_starts[change], key_ends[change], row_of[change]
        mixed = 1469598103
        for at in range(start, end):
            mixed = (mixed ^ values[at]) * 16777619 & 0xFFFFFFFFFFFF
        slot = (mixed ^ mixed >> 17) & mask
        key = slots[slot]
        while key >= 0:
            other = firsts[key]
            size = key_ends[other] - key_starts[other]
            if size == end - start and _equal(values, start, values, key_starts[other], size):
                break
            slot = (slot + 1) & mask
            key = slots[slot]
        if key < 0:
            key = keys
            slots[slot], firsts[key], latest[key] = key, change, -1
            keys += 1
        group = latest[key]
        if group < 0 or group_rows[group] != row:
            group = count
            latest[key], group_rows[group], group_keys[group] = group, row, key
            count += 1
        groups[change] = group
    return keys, count
