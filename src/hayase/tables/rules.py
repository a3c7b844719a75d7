"""Update rules: which operations on the columns of tables an event causes. Frozen data; `rule_text` reads them.

    source ─ branches ─ a condition (jq), and for each table ─ operations: key (jq), column, method, value (jq)

An operation's number is its position in the file, over all sources. It is part of the version of what it writes, so
two operations of one event on one column do not overwrite each other, and the same event again overwrites itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hayase.core.declarations import checked_name
from hayase.core.errors import DeclarationError, Mistake, nearest

__all__ = ["Branch", "Operation", "RuleMistake", "RuleSet", "SourceRules", "TableRules", "resolved"]

MOST_OPERATIONS = 65_536


@dataclass(frozen=True, slots=True)
class RuleMistake(Mistake):
    """A mistake in one part of one operation: whoever read the rules from a file knows where that stands."""

    operation: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One update of one column. Several programs in `key` make a composite key; no method: the type's first."""

    number: int
    key: tuple[str, ...]
    column: str
    value: str
    method: str | None = None

    def __post_init__(self) -> None:
        checked_name("column", self.column)


@dataclass(frozen=True, slots=True)
class TableRules:
    """The operations on one table."""

    table: str
    operations: tuple[Operation, ...]

    def __post_init__(self) -> None:
        checked_name("table", self.table)


@dataclass(frozen=True, slots=True)
class Branch:
    """What the events cause that fulfil a condition; without one, all do."""

    condition: str | None
    tables: tuple[TableRules, ...]


@dataclass(frozen=True, slots=True)
class SourceRules:
    """What the events of one stream cause."""

    source: str
    branches: tuple[Branch, ...]

    def __post_init__(self) -> None:
        checked_name("stream", self.source.removeprefix("_"))


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All rules of a file; a source may stand there more than once."""

    sources: tuple[SourceRules, ...]

    def __post_init__(self) -> None:
        numbers = [operation.number for _, operation in self.operations()]
        if numbers != [*range(len(numbers))]:
            raise DeclarationError("the operations of rules are not numbered in their order", "number them from 0")
        if len(numbers) > MOST_OPERATIONS:
            raise DeclarationError(f"{len(numbers):,} operations are too many", f"at most {MOST_OPERATIONS:,} fit")

    def branches(self, source: str) -> Iterator[Branch]:
        """The branches for the events of a stream."""
        for each in self.sources:
            if each.source == source:
                yield from each.branches

    def operations(self) -> Iterator[tuple[str, Operation]]:
        """All operations, each with its table, in their order."""
        for source in self.sources:
            for branch in source.branches:
                for table in branch.tables:
                    for operation in table.operations:
                        yield table.table, operation

    def as_json(self) -> dict[str, Any]:
        """Plain data, ready for a JSON writer."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RuleSet:
        """The inverse of `as_json`, also after a trip through JSON text."""
        return cls(tuple(_source(each) for each in data["sources"]))


def _source(data: Mapping[str, Any]) -> SourceRules:
    return SourceRules(data["source"], tuple(_branch(each) for each in data["branches"]))


def _branch(data: Mapping[str, Any]) -> Branch:
    return Branch(data["condition"], tuple(_table(each) for each in data["tables"]))


def _table(data: Mapping[str, Any]) -> TableRules:
    operations = (Operation(**{**each, "key": tuple(each["key"])}) for each in data["operations"])
    return TableRules(data["table"], tuple(operations))


def resolved(
    rules: RuleSet, tables: Mapping[str, Mapping[str, Sequence[str]]], keys: Mapping[str, int] | None = None
) -> RuleSet:
    """The rules with every method named, checked against the tables there are.

    `tables` says for each table and column which methods it has, the first being the one meant when none is named;
    `keys` how many parts the key of a table has. All mistakes are raised at once, as `RuleMistake`s.
    """
    mistakes: list[RuleMistake] = []
    methods: dict[int, str] = {}
    for table, operation in rules.operations():
        found = _method(table, operation, tables, keys or {})
        if isinstance(found, RuleMistake):
            mistakes.append(found)
        else:
            methods[operation.number] = found
    if mistakes:
        raise DeclarationError(mistakes)
    return RuleSet(tuple(replace(source, branches=_named(source.branches, methods)) for source in rules.sources))


def _named(branches: tuple[Branch, ...], methods: Mapping[int, str]) -> tuple[Branch, ...]:
    def of_table(table: TableRules) -> TableRules:
        named = (replace(operation, method=methods[operation.number]) for operation in table.operations)
        return replace(table, operations=tuple(named))

    return tuple(replace(branch, tables=tuple(map(of_table, branch.tables))) for branch in branches)


def _method(
    table: str, operation: Operation, tables: Mapping[str, Mapping[str, Sequence[str]]], keys: Mapping[str, int]
) -> str | RuleMistake:
    number, column, method = operation.number, operation.column, operation.method
    if table not in tables:
        return RuleMistake(f'unknown table "{table}"', _hint(table, tables), operation=number, part="table")
    if column not in tables[table]:
        message = f'unknown column "{column}" in table "{table}"'
        return RuleMistake(message, _hint(column, tables[table]), operation=number, part="column")
    parts = keys.get(table, len(operation.key))
    if parts != len(operation.key):
        message = f'the key of table "{table}" has {parts} parts, this one has {len(operation.key)}'
        return RuleMistake(message, "write a list of jq programs", operation=number, part="key")
    known = tables[table][column]
    if method is not None and method not in known:
        message = f'column "{column}" of table "{table}" has no method "{method}"'
        return RuleMistake(message, _hint(method, known), operation=number, part="method")
    return method or known[0]


def _hint(name: str, known: Mapping[str, Any] | Sequence[str]) -> str:
    return nearest(name, known).removeprefix("; ")
