"""The reader of update rules in YAML. It reports all mistakes of a file at once, with file, line, column and hint.

    source: stream1                          # the stream whose events cause updates
    branches:                                # or: rules
      - condition: '.type == "purchase"'     # or: when; jq; without it, every event
        tables:
          - tableName: user_purchase_status  # or: table
            key: .user_id                    # optional: the key of updates that have none of their own
            ops:
              - {key: .user_id, columnName: total, method: incr, paramJq: .amount}    # or: column, value
              - {key: [.country, .user_id], columnName: seen, paramJq: .time}         # a composite key

Without `method`, the default method of the column's type is used. A shorter form has tables and columns by name; a value is jq,
or jq for each method:

    source: stream1
    rules:
      - when: .type == "purchase"
        tables:
          user_purchase_status:
            key: .user_id
            columns:
              last_purchase_time: .time
              total: .amount
              tags: {add: .tag, remove: .old_tag}

A file has several sources as a list or as YAML documents (`---`). Values are taken as the text in the file. In YAML, jq that
begins with `{`, `[` or a quote must be quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any, TypeVar

import yaml

from hayase.core.data_classes import dataclass
from hayase.core.declarations import checked_name
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.yaml_nodes import (
    NodeReading,
    Place,
    Written,
    compose,
    file_text,
    is_null,
    key_text,
    kind_of,
    place_of,
    text_of,
)
from hayase.tables.jq import Jq
from hayase.tables.rules import MOST_UPDATES, Branch, RuleMistake, RuleSet, SourceRules, TableRules, Update

__all__ = ["RuleFile", "read_rules", "rules_in"]

_DOCUMENT = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_METHOD = re.compile(r"[a-z][a-z_]{0,30}")
_T = TypeVar("_T")

_SOURCE = {"source": "source", "branches": "branches", "rules": "branches"}
_BRANCH = {"condition": "condition", "when": "condition", "tables": "tables"}
_TABLE = {"tableName": "table", "table": "table", "key": "key", "ops": "ops", "columns": "columns"}
_UPDATE = {
    "key": "key",
    "columnName": "column",
    "column": "column",
    "method": "method",
    "paramJq": "value",
    "value": "value",
}
"""The keys of each level of the file, and the part that each one sets."""


@dataclass(frozen=True, slots=True)
class RuleFile:
    """The rules of a file, and the place of every part of every update in it."""

    rules: RuleSet
    path: Path
    places: Mapping[tuple[int, str], Place] = field(default_factory=dict, repr=False)

    def at(self, mistake: Mistake) -> Mistake:
        """Return the mistake with its place in this file."""
        if not isinstance(mistake, RuleMistake):
            return replace(mistake, file=str(self.path))
        number = mistake.update
        place = self.places.get((number, mistake.part)) or self.places.get((number, "column"))
        line, column = (place.line, place.column) if place else (None, None)
        return Mistake(mistake.message, mistake.hint, str(self.path), line, column)


def read_rules(path: Path, jq: Jq) -> RuleFile:
    """Read the rules in a file. DeclarationError has all mistakes, in the order of the file."""
    try:
        return replace(rules_in(file_text(path, "rule", "write one; rules begin with source: STREAM"), jq), path=path)
    except DeclarationError as error:
        raise DeclarationError(replace(mistake, file=str(path)) for mistake in error.mistakes) from error


def rules_in(text: str, jq: Jq) -> RuleFile:
    """Read rules from a text. DeclarationError has all mistakes, in the order of the text.

    >>> rules_in("source: events", Jq())
    Traceback (most recent call last):
    hayase.core.errors.DeclarationError: 1:1: the rules have no "branches"; add "branches:" and a list below it
    """
    reading = _Reading(jq)
    for document in _documents(text):
        reading.document(document)
    if not reading.mistakes and not reading.sources:
        reading.mistakes.append(Mistake("there are no rules", 'begin with "source: STREAM"', None, 1, 1))
    if reading.mistakes:
        raise DeclarationError(sorted(reading.mistakes, key=lambda mistake: (mistake.line or 0, mistake.column or 0)))
    return RuleFile(RuleSet(tuple(reading.sources)), Path(), reading.places)


def _documents(text: str) -> Iterator[str]:
    """Yield the YAML documents, padded with empty lines at the top so that line numbers are those of the whole text."""
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    if starts and not _says_something(text[: starts[0]]):
        starts[0] = 0
    elif not starts or starts[0] > 0:
        starts.insert(0, 0)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        yield "\n" * text.count("\n", 0, start) + text[start:end]


def _says_something(text: str) -> bool:
    return any(line.strip() and line.lstrip()[0] not in "#%" for line in text.splitlines())


class _Reading(NodeReading):
    """One pass over the nodes of a file. Collects rules, places and mistakes, and continues after a mistake."""

    def __init__(self, jq: Jq):
        super().__init__()
        self.jq = jq
        self.source_node: yaml.Node | None = None
        self.sources: list[SourceRules] = []
        self.places: dict[tuple[int, str], Place] = {}
        self.checked: dict[str, list[Mistake]] = {}
        self.number = 0

    def document(self, text: str) -> None:
        self.source = text
        try:
            root = compose(text)
        except DeclarationError as error:
            self.mistakes += error.mistakes
            return
        if root is None or is_null(root):
            return
        nodes = root.value if isinstance(root, yaml.SequenceNode) else [root]
        for node in nodes:
            rules = self.source_rules(node)
            if rules is not None:
                self.sources.append(rules)

    def source_rules(self, node: yaml.Node) -> SourceRules | None:
        if self.is_foreign(node, _SOURCE, "file of rules", 'rules begin with "source: STREAM"'):
            return None
        parts = self.parts(node, "the rules", _SOURCE, 'write "source: STREAM" and "branches:"')
        needed = {"source": 'add "source: STREAM"', "branches": 'add "branches:" and a list below it'}
        self.missing(node, parts, "the rules have", needed)
        name = self.attempt(parts.get("source"), lambda value: _stream(text_of(value)))
        self.source_node = parts.get("source", node)
        branches = self.items(parts.get("branches"), '"branches"', self.branch)
        return SourceRules(name, branches) if name is not None else None

    def branch(self, node: yaml.Node) -> Branch | None:
        example = 'write "condition: JQ" and "tables:"'
        parts = self.parts(node, "a branch", _BRANCH, example)
        self.missing(node, parts, "a branch has", {"tables": 'add "tables:" and a list below it'})
        condition = self.program(parts["condition"], "the condition") if "condition" in parts else None
        nodes = parts.get("tables")
        if isinstance(nodes, yaml.MappingNode):
            tables = [
                self.table(value, key) for key, value in self.pairs(nodes, '"tables"').values() if key is not None
            ]
            return Branch(condition, tuple(table for table in tables if table is not None))
        return Branch(condition, self.items(nodes, '"tables"', self.table))

    def table(self, node: yaml.Node, named: yaml.Node | None = None) -> TableRules | None:
        keys = _TABLE if named is None else {key: _TABLE[key] for key in ("key", "ops", "columns")}
        parts = self.parts(node, "a table", keys, 'write "tableName: NAME" and "ops:"')
        if named is not None:
            parts["table"] = named
        self.missing(node, parts, "a table has", {"table": 'add "tableName: NAME"'})
        if "ops" not in parts and "columns" not in parts and isinstance(node, yaml.MappingNode):
            self.wrong(node, 'a table has no "ops"', 'add "ops:" and a list below it, or "columns:"')
        name = self.attempt(parts.get("table"), lambda item: checked_name("table", text_of(item)))
        key = self.key(parts["key"]) if "key" in parts else None
        place = parts.get("table", node)
        updates = self.items(parts.get("ops"), '"ops"', lambda item: self.update(item, key, place))
        updates += tuple(self.columns(parts["columns"], key, place) if "columns" in parts else ())
        return TableRules(name, updates) if name is not None else None

    def update(self, node: yaml.Node, key: tuple[str, ...] | None, table: yaml.Node) -> Update | None:
        example = "write it like {key: .user_id, columnName: total, method: incr, paramJq: .amount}"
        parts = self.parts(node, "an update", _UPDATE, example)
        needed = {"column": 'add "columnName: NAME"', "value": 'add "paramJq: JQ"'}
        if key is None:
            needed = {"key": 'add "key: JQ", here or to the table', **needed}
        self.missing(node, parts, "an update has", needed)
        if "key" in parts:
            key = self.key(parts["key"])
        column = self.attempt(parts.get("column"), lambda name: checked_name("column", text_of(name)))
        method = self.attempt(parts.get("method"), _method)
        value = self.program(parts["value"], "the value") if "value" in parts else None
        return self.add_update(node, {"table": table, **parts}, key, column, value, method)

    def columns(self, node: yaml.Node, key: tuple[str, ...] | None, table: yaml.Node) -> Iterator[Update]:
        """Yield the updates of the shorter form: for each column a value, or a value for each method."""
        if key is None:
            self.wrong(table, 'the table has "columns" but no "key"', 'add "key: JQ" beside "columns:"')
        for named, value in self.pairs(node, '"columns"').values():
            column = self.attempt(named, lambda name: checked_name("column", text_of(name)))
            methods = self.pairs(value, f'column "{column}"').values() if _is_mapping(value) else [(None, value)]
            for method_node, program in methods:
                method = self.attempt(method_node, _method)
                written = self.program(program, "the value")
                nodes = {"table": table, "column": named, "method": method_node or named, "value": program}
                update = self.add_update(named, nodes, key, column, written, method)
                if update is not None:
                    yield update

    def add_update(
        self,
        node: yaml.Node,
        nodes: Mapping[str, yaml.Node],
        key: tuple[str, ...] | None,
        column: str | None,
        value: str | None,
        method: str | None,
    ) -> Update | None:
        """Return an update with the next number and note the places of its parts; None if a part could not be read."""
        if key is None or column is None or value is None:
            return None
        if self.number == MOST_UPDATES:
            self.wrong(node, f"the file has more than {MOST_UPDATES:,} updates", "use several files")
        if self.source_node is not None:
            nodes = {"source": self.source_node, **nodes}
        self.places |= {(self.number, part): place_of(part_node, self.source) for part, part_node in nodes.items()}
        self.number += 1
        return Update(self.number - 1, key, column, value, method)

    def key(self, node: yaml.Node) -> tuple[str, ...] | None:
        """Read one jq program or a list of them. For one with mistakes, note these and use an empty text."""
        if not isinstance(node, yaml.SequenceNode):
            return (self.program(node, "the key") or "",)
        if not node.value:
            self.wrong(node, "the key is an empty list", "write jq programs in it, like [.country, .user_id]")
        return tuple(self.program(part, "a part of the key") or "" for part in node.value)

    def program(self, node: yaml.Node, what: str) -> str | None:
        """Read a jq program; note its mistakes at their places in the file."""
        text = self.attempt(node, lambda scalar: _program(scalar, what))
        if text is None:
            return None
        if text not in self.checked:
            self.checked[text] = self.jq.mistakes(text)
        assert isinstance(node, yaml.ScalarNode)
        for mistake in self.checked[text]:
            place = Written.of(node, self.source).place(mistake.line or 1, mistake.column or 1)
            message = f"{what}: {mistake.message}"
            self.mistakes.append(Mistake(message, mistake.hint, None, place.line, place.column))
        return text

    def attempt(self, node: yaml.Node | None, read: Callable[[yaml.Node], _T]) -> _T | None:
        """Return what `read` returns for the node; if it raises DeclarationError, note the mistakes and return None."""
        if node is None:
            return None
        try:
            return read(node)
        except DeclarationError as error:
            for mistake in error.mistakes:
                self.wrong(node, mistake.message, mistake.hint)
        return None

    def items(self, node: yaml.Node | None, what: str, read: Callable[[yaml.Node], _T | None]) -> tuple[_T, ...]:
        """Return what `read` returns for the items of a list, without None."""
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            shown = "an empty list" if isinstance(node, yaml.SequenceNode) else kind_of(node)
            self.wrong(node, f"{what} must be a list, not {shown}", 'begin each item with "- "')
            return ()
        return tuple(item for item in map(read, node.value) if item is not None)

    def pairs(self, node: yaml.Node, where: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return key -> (node of the key, node of the value) of a mapping."""
        if not isinstance(node, yaml.MappingNode) or not node.value:
            shown = "an empty one" if isinstance(node, yaml.MappingNode) else kind_of(node)
            self.wrong(node, f"{where} must be a mapping, not {shown}", 'write "NAME: ..." below it')
            return {}
        return self.entries(node, where)

    def parts(self, node: yaml.Node, where: str, names: Mapping[str, str], example: str) -> dict[str, yaml.Node]:
        """Return part -> node of the value, for the keys in `names`; note the unknown ones as mistakes."""
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"{where} must be a mapping, not {kind_of(node)}", example)
            return {}
        nodes: dict[str, yaml.Node] = {}
        first: dict[str, str] = {}
        for name, (key, value) in self.pairs(node, where).items():
            meaning = names.get(name)
            if meaning is None:
                self.wrong(key, f"unknown key {key_text(name)} in {where}", suggestion(name, names))
            elif meaning in nodes:
                self.wrong(key, f'"{name}" and "{first[meaning]}" in {where} mean the same', "remove one of them")
            else:
                nodes[meaning], first[meaning] = value, name
        return nodes

    def missing(self, node: yaml.Node, parts: Mapping[str, Any], who: str, needed: Mapping[str, str]) -> None:
        for part, hint in needed.items() if _is_mapping(node) else ():
            if part not in parts:
                self.wrong(node, f'{who} no "{_NAMES.get(part, part)}"', hint)


_NAMES = {"table": "tableName", "column": "columnName", "value": "paramJq"}


def _is_mapping(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode)


def _program(node: yaml.Node, what: str) -> str:
    if not isinstance(node, yaml.ScalarNode):
        hint = "put jq that begins with { or [ in quotes"
        raise DeclarationError(f"{what} must be a jq program, not {kind_of(node)}", hint)
    if is_null(node):
        raise DeclarationError(f"{what} is missing", 'write jq after the colon; the jq program null in quotes, "null"')
    return str(node.value)


def _stream(name: str) -> str:
    checked_name("stream", name.removeprefix("_"))
    return name


def _method(node: yaml.Node) -> str:
    text = text_of(node)
    if not _METHOD.fullmatch(text):
        raise DeclarationError(f'"{text}" cannot be the name of a method', "methods are incr, set, add, remove, ...")
    return text
