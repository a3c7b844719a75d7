"""Random streams and windows for the judge, and the snapshot of a window at an instant by its definition.

Nothing here depends on how Hayase computes; times are microseconds. The definitions are those of the design: a tuple is valid
in [start, end); time windows with a slide round both ends up to its multiples; a window of N rows drops a tuple when the N-th
later one arrives, and with a slide S moves only at every S-th tuple.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

ALWAYS = 2**61
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SECOND = 1_000_000
TYPES = {"a": "int", "b": "int", "x": "float", "s": "text"}
COLUMNS = tuple(TYPES)
SCHEMA = "a bigint, b int, x double, s string"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Stream:
    """A stream with the columns of `COLUMNS` and a time; a stream of changes also has a column with `+` or `-`.

    `rows` are in time order, ties in order of arrival; `times` are their event times in microseconds.
    """

    name: str
    unit: str | None
    """The unit of the integer time column; None if it is a timestamp."""
    times: tuple[int, ...]
    rows: tuple[Row, ...]
    signs: tuple[str, ...] | None = None
    bare: bool = False
    """Whether the time is not among the columns, as in the records of a query."""

    @property
    def grain(self) -> int:
        return grain_of(self.unit)

    @property
    def schema(self) -> str:
        return f"time {'timestamp' if self.unit is None else 'bigint'}, {SCHEMA}" + (
            ", op string" if self.signs is not None else ""
        )

    @property
    def types(self) -> dict[str, str]:
        """The columns that a query can name, with their types; a relation has no time."""
        return TYPES if self.signs is not None else {"time": f"time:{self.unit or 'timestamp'}", **TYPES}

    def records(self) -> list[dict[str, Any]]:
        """Return the records to append to the stream."""
        signs = self.signs or [None] * len(self.rows)
        return [
            {"time": time_value(at, self.unit), **dict(zip(COLUMNS, row)), **({"op": sign} if sign else {})}
            for at, row, sign in zip(self.times, self.rows, signs)
        ]

    def values(self) -> list[Row]:
        """Return the rows for SQLite, with timestamps as microseconds."""
        if self.signs is not None or self.bare:
            return list(self.rows)
        return [(at // self.grain, *row) for at, row in zip(self.times, self.rows)]


def grain_of(unit: str | None) -> int:
    """Return the microseconds in a unit; None is the unit of timestamps."""
    return {None: 1, "us": 1, "ms": 1000, "s": SECOND}[unit]


def time_value(at: int, unit: str | None) -> datetime | int:
    """Return a time as the value of a time column."""
    return EPOCH + timedelta(microseconds=at) if unit is None else at // grain_of(unit)


_BOUNDED = ("tumble", "hop", "cumulate", "session")


@dataclass(frozen=True)
class Window:
    """A window and its text. `length` and `slide` are microseconds or numbers of tuples."""

    kind: str
    text: str
    length: int = 0
    slide: int = 1
    keys: tuple[str, ...] = ()
    offset: int = 0
    keep: int | None = None
    early: int | None = None
    order: tuple[tuple[str, bool, bool], ...] = ()
    """The columns of Order By, whether they are descending, and whether NULLs come first."""

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns that a window with bounds adds to those of its stream."""
        if self.kind not in _BOUNDED:
            return ()
        return ("window_start", "window_end") if self.early is None else ("window_start", "window_end", "is_final")

    def types(self, unit: str | None) -> dict[str, str]:
        """The types of these columns; `unit` is that of the stream."""
        times = f"time:{unit or 'timestamp'}"
        return dict(zip(self.bounds, (times, times, "bool")))

    def closes(self, at: int) -> int:
        """Return the end of the last window that can contain a record before or at an instant."""
        if not self.bounds:
            return at
        if self.kind == "session":
            return at + self.length
        step = self.slide if self.kind == "hop" else self.length
        return max(at, (at - self.offset) // step * step + self.offset + self.length)

    def _with_bounds(self, stream: Stream) -> list[tuple[int, int, Row]]:
        """Return the rows of a window with bounds: every record in every window that contains it."""
        intervals: list[tuple[int, int, Row]] = []
        keep = (self.length if self.kind in ("tumble", "session") else self.slide) if self.keep is None else self.keep
        for at, row, begin, end in self._contained(stream):
            bounds = begin // stream.grain, end // stream.grain
            flags = ((True,), (False,)) if self.early else ((), ())
            intervals.append((end, min(end + keep, ALWAYS), (*row, *bounds, *flags[0])))
            if self.early and self.kind != "session" and (first := (at // self.early + 1) * self.early) < end:
                intervals.append((first, end, (*row, *bounds, *flags[1])))
        return intervals + (self._early_sessions(stream) if self.early and self.kind == "session" else [])

    def _contained(self, stream: Stream) -> list[tuple[int, Row, int, int]]:
        """Return every record with the bounds of every window that contains it."""
        if self.kind == "session":
            return [
                (at, row, session[0][0], session[-1][0] + self.length)
                for session in self._sessions(stream)
                for at, row in session
            ]
        contained = []
        for at, row in zip(stream.times, stream.values()):
            step = self.length if self.kind == "cumulate" else self.slide
            begin = (at - self.offset) // step * step + self.offset
            while begin + self.length > at:
                lengths = range(self.slide, self.length + 1, self.slide) if self.kind == "cumulate" else [self.length]
                contained += [(at, row, begin, begin + length) for length in lengths if begin + length > at]
                begin -= step
        return contained

    def _sessions(self, stream: Stream) -> list[list[tuple[int, Row]]]:
        values, sessions = stream.values(), []
        for numbers in self._groups(stream):
            latest = -ALWAYS
            for number in numbers:
                if stream.times[number] - latest >= self.length:
                    sessions.append([])
                latest = stream.times[number]
                sessions[-1].append((latest, values[number]))
        return sessions

    def _early_sessions(self, stream: Stream) -> list[tuple[int, int, Row]]:
        """Return the rows that appear early: at each multiple inside of a session, its records so far."""
        assert self.early
        intervals: list[tuple[int, int, Row]] = []
        for session in self._sessions(stream):
            begin, end = session[0][0], session[-1][0] + self.length
            for instant in range((begin // self.early + 1) * self.early, end, self.early):
                so_far = [(at, row) for at, row in session if at < instant]
                until = so_far[-1][0] + self.length
                bounds = begin // stream.grain, until // stream.grain, False
                intervals += [(instant, min(instant + self.early, until), (*row, *bounds)) for _, row in so_far]
        return intervals

    def lifetimes(self, stream: Stream, grain: int) -> list[tuple[int, int, Row]]:
        """Return every row of a stream with its start and end; `grain` is the resolution of the result's times."""
        if stream.signs is not None:
            return _relation(stream)
        if self.kind in _BOUNDED:
            return self._with_bounds(stream)
        values = stream.values()
        match self.kind:
            case "unbounded":
                return [(at, ALWAYS, row) for at, row in zip(stream.times, values)]
            case "now":
                return [(at, at + grain, row) for at, row in zip(stream.times, values)]
            case "range":
                step = max(self.slide, 1)
                moved = [at - self.offset for at in stream.times]
                return [
                    (
                        _up(_up(at, step) + self.offset, grain),
                        _up(_up(at + self.length, step) + self.offset, grain),
                        row,
                    )
                    for at, row in zip(moved, values)
                ]
        intervals: list[tuple[int, int, Row]] = []
        for numbers in self._groups(stream):
            times = [stream.times[number] for number in numbers]
            for place, number in enumerate(numbers, 1):
                start, end = (_up(place + more, self.slide) for more in (0, self.length))
                intervals.append((_time(times, start), _time(times, end), values[number]))
        return intervals

    def moves(self, stream: Stream, grain: int) -> list[int]:
        """Return the instants at which the window moves.

        A window by time moves at the time and at the end of every record, rounded up to the slide. A window by rows moves at
        every slide-th record of the stream, or of the partition.
        """
        if stream.signs is not None or self.kind == "unbounded" or self.kind in _BOUNDED:
            return list(stream.times)
        if self.kind in ("now", "range"):
            length = grain if self.kind == "now" else self.length
            instants = [at - self.offset for time in stream.times for at in (time, time + length)]
            return [_up(_up(at, self.slide) + self.offset, grain) for at in instants]
        return [
            stream.times[number]
            for numbers in self._groups(stream)
            for place, number in enumerate(numbers, 1)
            if place % self.slide == 0
        ]

    def _groups(self, stream: Stream) -> list[list[int]]:
        """Return the numbers of the tuples of every partition, in the order of the window."""
        numbers = list(range(len(stream.rows)))
        for column, descending, nulls_first in reversed(self.order):
            place = COLUMNS.index(column)
            there = [number for number in numbers if stream.rows[number][place] is not None]
            there = sorted(there, key=lambda number: stream.rows[number][place], reverse=descending)
            nulls = [number for number in numbers if stream.rows[number][place] is None]
            numbers = nulls + there if nulls_first else there + nulls
        numbers.sort(key=lambda number: stream.times[number])
        groups: dict[Row, list[int]] = {}
        for number in numbers:
            row = stream.rows[number]
            groups.setdefault(tuple(row[COLUMNS.index(key)] for key in self.keys), []).append(number)
        return list(groups.values())


def snapshot(lifetimes: Sequence[tuple[int, int, Row]], at: int) -> list[Row]:
    """Return the rows that are valid at an instant."""
    return [row for start, end, row in lifetimes if start <= at < end]


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _time(times: Sequence[int], place: int) -> int:
    """Return the time of the tuple with that number, from 1; ALWAYS if there are fewer tuples."""
    return times[place - 1] if place <= len(times) else ALWAYS


def _relation(stream: Stream) -> list[tuple[int, int, Row]]:
    """Return the lifetimes of a relation read as changes; a `-` ends the newest equal row."""
    intervals: list[list[Any]] = []
    for at, row, sign in zip(stream.times, stream.rows, stream.signs or ()):
        if sign == "+":
            intervals.append([at, ALWAYS, row])
        else:
            next(interval for interval in reversed(intervals) if interval[1] == ALWAYS and interval[2] == row)[1] = at
    return [(start, end, row) for start, end, row in intervals]


# ---------------------------------------------------------------------------------------------------- strategies

_INTEGERS = st.one_of(st.none(), st.integers(-1, 3))
_FLOATS = st.one_of(st.none(), st.sampled_from([-1.5, -0.25, 0.0, 0.5, 1.0, 2.75]))
_TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "ab", "é"]))
ROWS = st.tuples(_INTEGERS, _INTEGERS, _FLOATS, _TEXTS)
BASE = 1_767_225_600 * SECOND
"""2026-01-01, and a multiple of every slide."""


@st.composite
def streams(draw: st.DrawFn, name: str, *, unit: str | None, most: int = 12, relation: bool = False) -> Stream:
    """Draw a stream of up to `most` tuples; about half of the time steps are zero."""
    count = draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, most))
    tick = 500_000 if unit != "s" else SECOND
    gaps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 7]), min_size=count, max_size=count))
    times, now = [], BASE + draw(st.integers(0, 4)) * tick
    for gap in gaps:
        now += gap * tick
        times.append(now)
    rows = draw(st.lists(ROWS, min_size=count, max_size=count))
    if not relation:
        return Stream(name, unit, tuple(times), tuple(rows))
    signs: list[str] = []
    alive: list[Row] = []
    for number in range(count):
        if alive and draw(st.integers(0, 2)) == 0:
            rows[number] = alive.pop(draw(st.integers(0, len(alive) - 1)))
            signs.append("-")
        else:
            alive.append(rows[number])
            signs.append("+")
    return Stream(name, unit, tuple(times), tuple(rows), tuple(signs))


_LENGTHS = [
    (SECOND, "1 second"), (1_500_000, "1500 ms"), (2 * SECOND, "2 seconds"), (5 * SECOND, "5 sec"),
    (500_000, "500 milliseconds"), (60 * SECOND, "1 minute"), (250_000, "250 ms"),
]  # fmt: skip
_SLIDES = [
    (SECOND, "1 second"), (2 * SECOND, "2 seconds"), (500_000, "500 ms"), (3 * SECOND, "3 s"), (10 * SECOND, "10 s"),
    (1_500_000, "1500 ms"),
]  # fmt: skip


_KINDS = ["range", "range", "range slide", "now", "unbounded", "none", "tumble", "hop", "cumulate", "session", "session",
          "rows", "rows", "rows slide", "partition", "partition", "partition slide"]  # fmt: skip
_WHOLE = [
    (SECOND, "1 second"),
    (2 * SECOND, "2 s"),
    (3 * SECOND, "3 seconds"),
    (5 * SECOND, "5000 ms"),
    (10 * SECOND, "10 s"),
]
"""Durations that are whole numbers of every unit of time."""


@st.composite
def bounded_windows(draw: st.DrawFn, kind: str) -> Window:
    """Draw a window with bounds; sessions have keys."""
    length, written = draw(st.sampled_from(_WHOLE))
    slide, front, keys, text = length, "", (), f"{kind.upper()} {written}"
    if kind == "session" or draw(st.integers(0, 4)) == 0:
        keys = tuple(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=2, unique=True)))
        front = f"PARTITION BY {', '.join(keys)} "
    if kind == "hop":
        slide, step = draw(st.sampled_from(_WHOLE))
        text += f" EVERY {step}"
    elif kind == "cumulate":
        slide, step = draw(st.sampled_from(_WHOLE[:3]))
        length = slide * draw(st.integers(1, 3))
        text = f"CUMULATE {length // SECOND} s BY {step}"
    offset, moved = draw(st.sampled_from([(0, ""), (0, ""), (SECOND, "1 s"), (-4 * SECOND, "- 4 seconds")]))
    if kind == "session":
        offset = 0
    keep, kept = draw(
        st.sampled_from([(None, ""), (None, ""), (SECOND, "1 s"), (7 * SECOND, "7 s"), (ALWAYS, "UNBOUNDED")])
    )
    early, soon = draw(st.sampled_from([(None, ""), (None, ""), (SECOND, "1 s"), (3 * SECOND, "3 s")]))
    text += f" OFFSET {moved}" if offset else ""
    text += (f" KEEP {kept}" if kept else "") + (f" EARLY {soon}" if soon else "")
    return Window(kind, f" [{front}{text}]", length, slide, keys, offset, keep, early)


@st.composite
def windows(draw: st.DrawFn, *, by_time: bool = False) -> Window:
    """A window of any kind, or one that does not count."""
    kind = draw(st.sampled_from(_KINDS[:6] if by_time else _KINDS))
    if kind in _BOUNDED:
        return draw(bounded_windows(kind))
    if kind.startswith("range"):
        length, text = draw(st.sampled_from(_LENGTHS))
        if kind == "range":
            return Window("range", f" [RANGE {text}]", length)
        slide, slide_text = draw(st.sampled_from(_SLIDES))
        offset, moved = draw(st.sampled_from([(0, ""), (0, ""), (SECOND, " OFFSET 1 s"), (500_000, " OFFSET 500 ms")]))
        return Window("range", f" [RANGE {text} SLIDE {slide_text}{moved}]", length, slide, offset=offset)
    if kind.startswith(("rows", "partition")):
        count, keys, front = draw(st.integers(1, 4)), (), ""
        if kind.startswith("partition"):
            keys = tuple(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, max_size=2, unique=True)))
            front = f"PARTITION BY {', '.join(keys)} "
        slide = draw(st.integers(1, 5)) if kind.endswith("slide") else 1
        text = f"{front}ROWS {count}{f' SLIDE {slide}' if kind.endswith('slide') else ''}"
        listed = draw(st.lists(st.sampled_from(COLUMNS), max_size=2, unique=True)) if draw(st.booleans()) else []
        order = tuple((column, draw(st.booleans()), draw(st.booleans())) for column in listed)
        if order:
            ways = [f"{name}{' DESC' * down}{' NULLS FIRST' * first}" for name, down, first in order]
            text += f" ORDER BY {', '.join(ways)}"
        return Window("rows", f" [{text}]", count, slide, keys, order=order)
    if kind == "now":
        return Window("now", " [NOW]")
    return Window("unbounded", " [UNBOUNDED]" if kind == "unbounded" else "")


_SEVERAL = st.sampled_from(
    ["rows", "rows slide", "partition", "partition slide", "range", "range slide", "range slide"]
)


@st.composite
def several(draw: st.DrawFn, most: int = 4) -> tuple[str, tuple[tuple[int | str, Window], ...]]:
    """Draw several windows of one kind and slide, written together: the text, and each window with its name."""
    kind = draw(_SEVERAL)
    if kind.startswith("range"):
        chosen = draw(st.lists(st.sampled_from(_LENGTHS), min_size=2, max_size=most, unique_by=lambda each: each[0]))
        slide, text = draw(st.sampled_from(_SLIDES)) if kind.endswith("slide") else (1, "")
        written = f" [Range {', '.join(each for _, each in chosen)}{f' Slide {text}' if text else ''}]"
        return written, tuple((each, Window("range", "", length, slide)) for length, each in chosen)
    counts = draw(st.lists(st.integers(1, 7), min_size=2, max_size=most, unique=True))
    slide = draw(st.integers(1, 5)) if kind.endswith("slide") else 1
    keys = ("s",) if kind.startswith("partition") else ()
    front = "Partition By s " if keys else ""
    written = f" [{front}Rows {', '.join(map(str, counts))}{f' Slide {slide}' if slide > 1 else ''}]"
    return written, tuple((count, Window("rows", "", count, slide, keys)) for count in counts)
