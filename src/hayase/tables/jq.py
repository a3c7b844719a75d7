"""Checks jq programs and evaluates them over many events: a known subset in this process, all others by libjq in a child process.

The result for an event is one value, `Several` (none, or more than one), or `Refused` with the reason, which is libjq's own if the
program fails. An event that fails, takes too long or takes too much memory is refused by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from types import TracebackType
from typing import Any

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.errors import Mistake
from hayase.tables.jq_columns import UNSURE, Unsure, Values, results
from hayase.tables.jq_numbers import NotPlain, read
from hayase.tables.jq_process import JqProcess, Limits
from hayase.tables.jq_refusals import refusals
from hayase.tables.jq_syntax import Node, parsed

__all__ = ["Events", "Jq", "Limits", "Refused", "Several"]

_COMPILE_ERROR = re.compile(r"jq: error: (.*?) at <top-level>, line (\d+), column (\d+):", re.DOTALL)
_UNDEFINED = re.compile(r"(\w+)/0 is not defined")


@dataclass(frozen=True, slots=True)
class Refused:
    """The result for an event on which a program failed, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Several:
    """The results of a program that has none, or more than one."""

    values: tuple[Any, ...]


class Events:
    """A batch of JSON documents, given as documents or as columns.

    Documents consist of None, bool, int, float, Decimal, str, list and dict; NaN and infinity are not allowed.
    """

    def __init__(self, documents: Sequence[Any]):
        self._length = len(documents)
        self._documents: Sequence[Any] | None = documents
        self._columns: dict[str, Sequence[Any]] = {}
        self._sources: Mapping[str, Sequence[Any] | Callable[[], Sequence[Any]]] | None = None
        self._texts: dict[int, bytes | Refused] = {}

    @classmethod
    def of_columns(cls, columns: Mapping[str, Sequence[Any] | Callable[[], Sequence[Any]]], length: int) -> Events:
        """Return objects with the same fields. A column may be a function, which is called when the column is first needed. A float
        that is not finite becomes null.

        >>> Events.of_columns({"a": [1, 2], "b": lambda: ["x", None]}, 2).values()
        [{'a': 1, 'b': 'x'}, {'a': 2, 'b': None}]
        """
        events = cls([])
        events._length, events._documents, events._sources = length, None, columns
        return events

    def __len__(self) -> int:
        return self._length

    def values(self) -> Sequence[Any]:
        """The documents."""
        if self._documents is None:
            names = tuple(self._sources or ())
            rows = zip(*map(self.field, names), strict=True) if names else [()] * len(self)
            self._documents = [dict(zip(names, row, strict=True)) for row in rows]
        return self._documents

    def field(self, name: str) -> Sequence[Any]:
        """`.name` of each document."""
        if name not in self._columns:
            if self._sources is None:
                self._columns[name] = Values(self.values()).field(name)
            else:
                source = self._sources[name] if name in self._sources else [None] * len(self)
                self._columns[name] = _finite(source() if callable(source) else source)
        return self._columns[name]

    def take(self, positions: Sequence[int]) -> SelectedEvents:
        """Return some of the events."""
        return SelectedEvents(self, positions)

    def text(self, position: int) -> bytes | Refused:
        """A document as JSON."""
        if position not in self._texts:
            self._texts[position] = _json(self.values()[position])
        return self._texts[position]


class SelectedEvents:
    """A selection of events."""

    def __init__(self, events: Events, positions: Sequence[int]):
        self._events, self._positions = events, positions
        self._columns: dict[str, Sequence[Any]] = {}

    def __len__(self) -> int:
        return len(self._positions)

    def values(self) -> Sequence[Any]:
        """The documents."""
        documents = self._events.values()
        return [documents[at] for at in self._positions]

    def field(self, name: str) -> Sequence[Any]:
        """`.name` of each document."""
        if name not in self._columns:
            column = self._events.field(name)
            self._columns[name] = [column[at] for at in self._positions]
        return self._columns[name]

    def text(self, position: int) -> bytes | Refused:
        """A document as JSON."""
        return self._events.text(self._positions[position])


def _finite(values: Sequence[Any]) -> Sequence[Any]:
    if float not in set(map(type, values)):
        return values
    return [None if type(value) is float and not math.isfinite(value) else value for value in values]


def _json(document: Any) -> bytes | Refused:
    try:
        return orjson.dumps(document, default=_decimal)
    except TypeError:  # orjson writes integers of 64 bits only: write larger ones as text
        try:
            return orjson.dumps(_written_out(document), default=_decimal)
        except (TypeError, RecursionError) as error:
            return Refused(f"the event is not JSON: {error}")


def _decimal(value: Any) -> orjson.Fragment:
    if isinstance(value, Decimal) and value.is_finite():
        return orjson.Fragment(str(value))
    raise TypeError(f"it holds a {type(value).__name__}")


def _written_out(value: Any) -> Any:
    if type(value) is int:
        return orjson.Fragment(str(value))
    if type(value) is list:
        return [_written_out(item) for item in value]
    return {key: _written_out(item) for key, item in value.items()} if type(value) is dict else value


@lru_cache(maxsize=4096)
def _parsed(program: str) -> Node | None:
    return parsed(program)


class Jq:
    """Checks and evaluates programs. The child process for libjq starts when it is first needed; `close` ends it."""

    def __init__(self, limits: Limits | None = None, known_shapes: bool = True):
        self._process = JqProcess(limits)
        self._known_shapes = known_shapes

    def __enter__(self) -> Jq:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process for libjq; the next use starts another."""
        self._process.close()

    @property
    def starts(self) -> int:
        """The number of processes started so far."""
        return self._process.starts

    @property
    def process_id(self) -> int | None:
        """The id of the process that evaluates programs; None while there is none."""
        return self._process.process_id

    def mistakes(self, program: str) -> list[Mistake]:
        """Return the mistakes in a program, with line and column."""
        refused = refusals(program)
        if refused or _parsed(program) is not None:
            return refused
        if not program.strip():
            return [Mistake("the jq program is empty", 'write one, like .amount; "." is the whole event', None, 1, 1)]
        answer = self._process.compile(program)
        return [] if answer is None else _mistakes(program, answer)

    def evaluate(self, program: str, events: Events | SelectedEvents) -> Sequence[Any]:
        """Return for each event a value, `Several` or `Refused`. The program must have no mistakes.

        >>> with Jq() as jq:
        ...     jq.evaluate(".items[]", Events([{"items": [7]}, {"items": []}, {"items": 3}]))
        [7, Several(values=()), Refused(reason='Cannot iterate over number (3)')]
        """
        node = _parsed(program) if self._known_shapes else None
        if node is None:
            return self._by_libjq(program, events, range(len(events)))
        values = results(node, events)
        if Unsure not in set(map(type, values)):
            return values
        unsure = [at for at, value in enumerate(values) if value is UNSURE]
        values = list(values)
        for at, value in zip(unsure, self._by_libjq(program, events, unsure), strict=True):
            values[at] = value
        return values

    def _by_libjq(self, program: str, events: Events | SelectedEvents, positions: Sequence[int]) -> list[Any]:
        if refusals(program):
            raise ValueError(f"a program with mistakes is not run: {program}")
        largest = self._process.limits.size
        too_large = Refused(f"the event is larger than {largest:,} bytes")
        texts = [
            text if isinstance(text, Refused) or len(text) <= largest else too_large
            for text in map(events.text, positions)
        ]
        fit = [text for text in texts if not isinstance(text, Refused)]
        answers = iter(_values(self._process.evaluate(program, fit)))
        return [text if isinstance(text, Refused) else next(answers) for text in texts]


def _values(lines: Sequence[bytes]) -> list[Any]:
    """Decode the lines that `jq_child` answers."""
    good = [line[1:].replace(b"\t", b",") for line in lines if line[:1] == b"="]
    try:
        answers = iter(read(b"[[%s]]" % b"],[".join(good)) if good else ())
    except ValueError:
        answers = iter([_value(line) for line in good])
    return [
        _one_or_several(next(answers)) if line[:1] == b"=" else Refused(line[1:].decode(errors="replace"))
        for line in lines
    ]


def _value(line: bytes) -> Any:
    try:
        return read(b"[%s]" % line)
    except NotPlain as error:
        return Refused(f"a result holds {error}")
    except ValueError as error:
        return Refused(f"a result is not JSON: {error}")


def _one_or_several(answer: Any) -> Any:
    if isinstance(answer, Refused):
        return answer
    return answer[0] if len(answer) == 1 else Several(tuple(answer))


def _mistakes(program: str, answer: str) -> list[Mistake]:
    """Parse libjq's error message; its columns count bytes."""
    mistakes = []
    lines = program.split("\n")
    for message, line, column in _COMPILE_ERROR.findall(answer):
        number = min(int(line), len(lines))
        before = lines[number - 1].encode()[: int(column) - 1].decode(errors="ignore")
        mistakes.append(Mistake(f"jq: {message}", _hint_for(message), None, number, len(before) + 1))
    return mistakes or [Mistake(f"jq: {answer}", None, None, 1, 1)]


def _hint_for(message: str) -> str | None:
    """Return a hint for libjq's error message."""
    undefined = _UNDEFINED.search(message)
    if undefined is not None:
        return f'a field is .{undefined[1]}, a text "{undefined[1]}" in quotes of its own'
    if "unexpected end of file" in message:
        return "it ends too early: something must follow, or a bracket or a quote is not closed"
    return "look at what stands right before it" if message.startswith("syntax error") else None
