"""Every error that Hayase raises on purpose, as one tree.

    HayaseError
    ├── DeclarationError        the pipeline is declared wrongly; carries the list of mistakes with file, line, hint
    ├── SchemaMismatch          data, or a declaration, does not fit the stream that is on disk
    ├── UnknownName             no such stream, stage or column; carries the nearest name
    ├── StreamError
    │   ├── DamagedSegment      a file of a stream does not match its checksum
    │   ├── OffsetGone          the records asked for were removed by retention
    │   ├── OutOfTurn           an append does not follow its producer's last one
    │   └── StreamFinished      an append to a stream that was declared complete
    ├── NotFinal                results were asked for at an instant that is not final yet
    ├── InvalidCursor           a text is not a cursor
    ├── CursorGone              the changes behind a cursor can no longer be read
    ├── EndpointError           the other side of a source or an output cannot be reached, or refuses; it is tried again
    ├── PositionMoved           another process has written to the target of an output
    ├── FormatMismatch          a home was written by another version of Hayase; carries the way to upgrade it
    ├── HomeInUse               another process runs a pipeline on this home
    ├── StageChanged            a stage's definition changed in a way its state does not survive
    ├── DamagedState            a manifest, a definition or a state file cannot be used
    ├── LaneFailed              the Spark query of a lane ended with an error
    └── EnvironmentUnfit        Java, memory, disk or a package is missing

A message says what, where and what to do. Foreign errors (Arrow, DuckDB, Spark) are translated where they enter.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from hayase.core.data_classes import dataclass

__all__ = [
    "CursorGone",
    "DamagedSegment",
    "DamagedState",
    "DeclarationError",
    "EndpointError",
    "EnvironmentUnfit",
    "FormatMismatch",
    "HayaseError",
    "HomeInUse",
    "InvalidCursor",
    "LaneFailed",
    "Mistake",
    "NotFinal",
    "OffsetGone",
    "OutOfTurn",
    "PositionMoved",
    "SchemaMismatch",
    "StageChanged",
    "StreamError",
    "StreamFinished",
    "UnknownName",
    "by_place",
    "nearest",
    "suggestion",
]


class HayaseError(Exception):
    """The base of all errors that Hayase raises on purpose. Its text, fit for users, is the problem and what to do about it."""

    def __init__(self, problem: str = "", remedy: str | None = None):
        self.problem, self.remedy = problem, remedy
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake in a declaration: the message, a hint what to do, and the place.

    `subject` is the part of the declaration that it is about: a field, such as `slack` or `steps.0.window`; empty if it is the
    declaration as a whole. Whoever has read the declaration from a file, or from options, knows where that part stands. As long
    as there is no `file`, the line and column count within the text of that part.

    >>> print(Mistake('unknown column "prise"', hint='did you mean "price"?', file="shop.yaml", line=3, column=8))
    shop.yaml:3:8: unknown column "prise"; did you mean "price"?
    """

    message: str
    hint: str | None = None
    file: str | None = None
    line: int | None = None
    column: int | None = None
    subject: str = ""

    @property
    def place(self) -> str:
        """The place as the beginning of a line, such as `shop.yaml:3:8: `; empty if it is not known."""
        parts = [str(part) for part in (self.file, self.line, self.column) if part is not None]
        return f"{':'.join(parts)}: " if parts else ""

    def __str__(self) -> str:
        return self.place + self.message + (f"; {self.hint}" if self.hint else "")


def by_place(mistake: Mistake) -> tuple[int, int]:
    """Return the line and column of a mistake, as a key to sort by; 0 for what is not known."""
    return mistake.line or 0, mistake.column or 0


class DeclarationError(HayaseError):
    """A pipeline is declared wrongly; `mistakes` holds all mistakes at once."""

    def __init__(self, mistakes: Iterable[Mistake] | str, hint: str | None = None):
        self.mistakes = (Mistake(mistakes, hint),) if isinstance(mistakes, str) else tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class SchemaMismatch(HayaseError):
    """Data, or a declaration, does not fit the stream on disk."""


class UnknownName(HayaseError):
    """There is nothing of that name; the message suggests the nearest known one.

    >>> raise UnknownName("stream", "event", ["events", "orders"])
    Traceback (most recent call last):
    hayase.core.errors.UnknownName: unknown stream "event"; did you mean "events"?
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], where: str = ""):
        self.kind, self.name, self.known = kind, name, tuple(known)
        super().__init__(f'unknown {kind} "{name}"{where}' + nearest(name, self.known))


class StreamError(HayaseError):
    """An error in the log of a stream; `stream` is its name."""

    def __init__(self, stream: str, problem: str, remedy: str | None = None):
        self.stream = stream
        super().__init__(problem, remedy)


class DamagedSegment(StreamError):
    """A file of a stream does not match its checksum."""


class OffsetGone(StreamError):
    """The requested records were removed by retention."""


class OutOfTurn(StreamError):
    """An append names another append before it than its producer's last one: another process appends in its place."""


class NotFinal(HayaseError):
    """Results were asked for at an instant that is not final yet."""


class InvalidCursor(HayaseError):
    """A text is not a cursor."""


class CursorGone(HayaseError):
    """The changes behind a cursor can no longer be read: the query was reset, or retention has removed records."""


class EndpointError(HayaseError):
    """The other side of a source or an output cannot be reached, or refuses. Hayase tries again."""


class PositionMoved(HayaseError):
    """The target of an output does not hold what its writer believes: another process has written to it."""


class StreamFinished(StreamError):
    """An append to a stream that is finished."""


class FormatMismatch(HayaseError):
    """The format of a home is not the one that this version of Hayase runs on."""


class HomeInUse(HayaseError):
    """Another process runs a pipeline on this home."""


class StageChanged(HayaseError):
    """A stage's new definition cannot continue with the state of the old one."""


class DamagedState(HayaseError):
    """A manifest, a definition or a state file cannot be used."""


class LaneFailed(HayaseError):
    """The Spark query behind a lane ended with an error."""


class EnvironmentUnfit(HayaseError):
    """The machine lacks something: Java, memory, disk space or a package."""


_LONGEST_NAME = 1000
"""Characters of a name that is compared with others, which takes much more memory than the name."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: "; " and the `suggestion`.

    >>> nearest("prise", ["price", "time"])
    '; did you mean "price"?'
    >>> nearest("zzz", ["price", "time"])
    '; known are: price, time'
    """
    hint = suggestion(name, known)
    return f"; {hint}" if hint else ""


def suggestion(name: str, known: Iterable[str]) -> str | None:
    """Return a hint for an unknown name: the nearest known one, else a list of up to 20 of them; None if there are none."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1) if len(name) <= _LONGEST_NAME else []
    if close:
        return f'did you mean "{close[0]}"?'
    return f"known are: {', '.join(names[:20])}" if names else None
