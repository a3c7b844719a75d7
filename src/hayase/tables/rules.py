"""Update rules as frozen data: which updates of table columns an event causes. `rule_text` reads them from YAML.

    source ─ branches ─ a condition (jq), and for each table ─ updates: key (jq), column, method, value (jq)

The number of an update is its position in the file, over all sources. It is part of the version of the update's payloads. So two
updates by one event of one column do not overwrite each other, while a repeated event overwrites itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from hayase.core.data_classes import dataclass
from hayase.core.declarations import checked_name
from hayase.core.errors import DeclarationError, Mistake, suggestion

__all__ = ["Branch", "RuleMistake", "RuleSet", "SourceRules", "TableRules", "Update", "resolved"]

MOST_UPDATES = 65_536


@dataclass(frozen=True, slots=True)
class RuleMistake(Mistake):
    """A mistake in one part of one update, by its number; `rule_text.RuleFile.at` adds the line and column."""

    update: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Update:
    """One update of one column. `key` has a jq program for each part of the key; without a method, the type's first is used."""

    number: int
    key: tuple[str, ...]
    column: str
    value: str
    method: str | None = None

    def __post_init__(self) -> None:
        checked_name("column", self.column)


@dataclass(frozen=True, slots=True)
class TableRules:
    """The updates of one table."""

    table: str
    updates: tuple[Update, ...]

    def __post_init__(self) -> None:
        checked_name("table", self.table)


@dataclass(frozen=True, slots=True)
class Branch:
    """The updates by events that satisfy a condition; all events do if it is None."""

    condition: str | None
    tables: tuple[TableRules, ...]


@dataclass(frozen=True, slots=True)
class SourceRules:
    """The updates by events of one stream."""

    source: str
    branches: tuple[Branch, ...]

    def __post_init__(self) -> None:
        checked_name("stream", self.source.removeprefix("_"))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a file; a source may occur more than once."""

    sources: tuple[SourceRules, ...]

    def __post_init__(self) -> None:
        numbers = [update.number for _, update in self.updates()]
        if numbers != [*range(len(numbers))]:
            raise DeclarationError("the updates of rules are not numbered in their order", "number them from 0")
        if len(numbers) > MOST_UPDATES:
            raise DeclarationError(f"{len(numbers):,} updates are too many", f"at most {MOST_UPDATES:,} fit")

    def branches(self, source: str) -> Iterator[Branch]:
        """Yield the branches for the events of a stream."""
        for rules in self.sources:
            if rules.source == source:
                yield from rules.branches

    def updates(self) -> Iterator[tuple[str, Update]]:
        """Yield all updates with the name of their table, in the order of the file."""
        for source in self.sources:
            for branch in source.branches:
                for table in branch.tables:
                    for update in table.updates:
                        yield table.table, update

    def as_json(self) -> dict[str, Any]:
        """Return plain data, ready for a JSON writer. Fingerprints contain it: the key `operations` must stay."""
        data = asdict(self)
        for source in data["sources"]:
            for branch in source["branches"]:
                for table in branch["tables"]:
                    table["operations"] = table.pop("updates")
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleSet:
        """The inverse of `as_json`; the data may have been written as JSON and read back."""
        return cls(tuple(_source(source) for source in data["sources"]))


def _source(data: Mapping[str, Any]) -> SourceRules:
    return SourceRules(data["source"], tuple(_branch(branch) for branch in data["branches"]))


def _branch(data: Mapping[str, Any]) -> Branch:
    return Branch(data["condition"], tuple(_table(table) for table in data["tables"]))


def _table(data: Mapping[str, Any]) -> TableRules:
    updates = (Update(**{**update, "key": tuple(update["key"])}) for update in data["operations"])
    return TableRules(data["table"], tuple(updates))


def resolved(
    rules: RuleSet, tables: Mapping[str, Mapping[str, Sequence[str]]], keys: Mapping[str, int] | None = None
) -> RuleSet:
    """Check rules against the declared tables and return them with the method of every update filled in.

    `tables` maps table and column to the column's methods, the default first; `keys` maps a table to the number of parts of its
    key. Raises one DeclarationError with all `RuleMistake`s.
    """
    mistakes: list[RuleMistake] = []
    methods: dict[int, str] = {}
    for table, update in rules.updates():
        method = _method(table, update, tables, keys or {})
        if isinstance(method, RuleMistake):
            mistakes.append(method)
        else:
            methods[update.number] = method
    if mistakes:
        raise DeclarationError(mistakes)
    return RuleSet(tuple(replace(source, branches=_named(source.branches, methods)) for source in rules.sources))


def _named(branches: tuple[Branch, ...], methods: Mapping[int, str]) -> tuple[Branch, ...]:
    def of_table(table: TableRules) -> TableRules:
        named = (replace(update, method=methods[update.number]) for update in table.updates)
        return replace(table, updates=tuple(named))

    return tuple(replace(branch, tables=tuple(map(of_table, branch.tables))) for branch in branches)


def _method(
    table: str, update: Update, tables: Mapping[str, Mapping[str, Sequence[str]]], keys: Mapping[str, int]
) -> str | RuleMistake:
    number, column, method = update.number, update.column, update.method
    if table not in tables:
        return RuleMistake(f'unknown table "{table}"', suggestion(table, tables), update=number, part="table")
    if column not in tables[table]:
        message = f'unknown column "{column}" in table "{table}"'
        return RuleMistake(message, suggestion(column, tables[table]), update=number, part="column")
    parts = keys.get(table, len(update.key))
    if parts != len(update.key):
        message = f'the key of table "{table}" has {parts} parts, this one has {len(update.key)}'
        return RuleMistake(message, "write a list of jq programs", update=number, part="key")
    column_methods = tables[table][column]
    if method is not None and method not in column_methods:
        message = f'column "{column}" of table "{table}" has no method "{method}"'
        return RuleMistake(message, suggestion(method, column_methods), update=number, part="method")
    return method or column_methods[0]
