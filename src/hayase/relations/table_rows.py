"""The rows of a table as a relation: folded, as of the batch that the manifests name, or as of an event time.

A condition on all parts of the key reads these rows only, one on its first parts those that begin with them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import product

import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import NotFinal
from hayase.core.times import instant_text
from hayase.relations.bounds import NOTHING_SAID, Bounds, Value
from hayase.tables.entries import Key
from hayase.tables.export_rows import export_rows
from hayase.tables.payloads import Json
from hayase.tables.table import Row, Table

__all__ = ["TableRows"]

_PAGE = 1000
_MOST_KEYS = 1000
"""So many keys are looked up one by one; of more, the table is read whole."""
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_WORDS: dict[str, Json] = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table at a fixed state."""

    table: Table
    clock: int | None
    """Updates up to this event time are complete, in microseconds; None if there are none."""
    kind: str = "table"

    @property
    def name(self) -> str:
        return self._declaration.name

    @property
    def schema(self) -> pa.Schema:
        return _schema(self._declaration)

    @property
    def key(self) -> tuple[str, ...]:
        """The parts of the key, in lower case."""
        return tuple(part.lower() for part in self._declaration.key)

    @property
    def scale(self) -> int | None:
        return None

    @property
    def has_clock(self) -> bool:
        return True

    def final(self) -> int | None:
        return self.clock

    @property
    def _declaration(self) -> TableDeclaration:
        return self.table.declaration

    def batches(
        self, as_of: int | None, columns: Sequence[str], bounds: Bounds = NOTHING_SAID
    ) -> Iterator[pa.RecordBatch]:
        if as_of is not None and (self.clock is None or as_of > self.clock):
            known = (
                "nothing of it is final yet" if self.clock is None else f"it is final up to {instant_text(self.clock)}"
            )
            raise NotFinal(f'table "{self.name}" cannot be read as of {instant_text(as_of)}: {known}')
        own = [name for name in self._declaration.column_names if name in columns]
        for rows in self._rows(as_of, own, bounds):
            if rows:
                yield export_rows(self._declaration, rows, own).select(list(columns))

    def _rows(self, as_of: int | None, columns: Sequence[str], bounds: Bounds) -> Iterator[Sequence[tuple[Key, Row]]]:
        """Yield the rows within the bounds on the key, in portions."""
        parts = self._declaration.key
        known: list[list[Json]] = []
        for part in parts:
            values = bounds.among.get(part.lower())
            if values is None or not all(isinstance(value, str) for value in values):
                break
            known.append([each for value in values for each in _meant(value)])
        prefixes = list(product(*known)) if _count(known) <= _MOST_KEYS else [()]
        if len(known) == len(parts) and prefixes != [()]:
            found = self.table.get_many(prefixes, columns=columns, as_of=as_of)
            yield [(key, row) for key, row in zip(prefixes, found) if row is not None]
            return
        for prefix in prefixes:
            after = None
            while True:
                page = self.table.scan(prefix, after=after, limit=_PAGE, columns=columns, as_of=as_of)
                yield page.rows
                after = page.next
                if after is None:
                    break


@lru_cache(maxsize=256)
def _schema(declaration: TableDeclaration) -> pa.Schema:
    return export_rows(declaration, ()).schema


def _meant(value: Value) -> list[Json]:
    """Return the parts of keys that are shown as a text: the text itself, and a number or a boolean that looks like it.

    >>> _meant("ann"), _meant("7"), _meant("true")
    (['ann'], ['7', Decimal('7')], ['true', True])
    """
    text = str(value)
    if _NUMBER.fullmatch(text):
        return [text, Decimal(text)]
    return [text, _WORDS[text]] if text in _WORDS else [text]


def _count(known: Sequence[Sequence[Json]]) -> int:
    count = 1
    for values in known:
        count *= len(values)
    return count
