"""Plans the stages of tables: one stage per table, which reads the streams that the table's rules and jobs name.

All mistakes are reported at once: those in rules with file, line and column, the others with the name of the table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.stages import OFFSET, Input, Stage
from hayase.tables import TYPES
from hayase.tables.emitted_rows import EmittedMapSide
from hayase.tables.entries import ENTRIES, MOST_SOURCES
from hayase.tables.jq import Jq
from hayase.tables.rule_text import RuleFile, rules_in
from hayase.tables.rules import Branch, RuleMistake, RuleSet, SourceRules, TableRules, resolved
from hayase.tables.rules_map_side import RulesMapSide, Target

__all__ = ["PlannedTables", "can_continue", "plan_tables", "read_declared"]

_MEANING = 1
"""Part of fingerprints; incremented when the meaning of rules changes, so that existing tables no longer match."""


@dataclass(frozen=True, slots=True)
class PlannedTables:
    """The stages and the mistakes: each with the name of its table, or None if it has a place in a file."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str | None, Mistake], ...] = ()


def plan_tables(
    declaration: PipelineDeclaration,
    streams: Mapping[str, StreamDeclaration],
    emitted: Mapping[str, Sequence[str]] | None = None,
    expected: Collection[str] = (),
    unread: Collection[str] = (),
) -> PlannedTables:
    """Plan the stages of all tables that have an input. `streams` are all streams, declared or written by queries and jobs;
    `emitted` maps tables to the streams in which jobs emit to them. `expected` are streams of declarations that could not be
    planned: rules may name them, but then no stages are returned. `unread` are names of declarations that could not be read:
    rules about such tables are not checked."""
    mistakes: list[tuple[str | None, Mistake]] = []
    for table in declaration.tables:
        for column, kind in table.columns:
            if kind not in TYPES:
                message = f'column "{column}" of table "{table.name}" has the unknown type "{kind}"'
                mistakes.append((f"{table.name}.{column}", Mistake(message, suggestion(kind, TYPES))))
    files: list[RuleFile] = []
    for declared in declaration.rules:
        try:
            files.append(read_declared(declared.name, declared.text))
        except DeclarationError as error:
            mistakes += [(None, mistake) for mistake in error.mistakes]
    typed = [known for known in declaration.tables if all(kind in TYPES for _, kind in known.columns)]
    untyped = {*unread, *(unknown.name for unknown in declaration.tables if unknown not in typed)}
    sources: list[SourceRules] = []
    for file in files:
        file_mistakes = [
            *_source_mistakes(file.rules, streams, expected),
            *(wrong for wrong in _table_mistakes(file.rules, typed) if not _concerns(wrong, file.rules, untyped)),
        ]
        mistakes += [(None, file.at(mistake)) for mistake in sorted(file_mistakes, key=lambda wrong: wrong.update)]
        if not file_mistakes and not mistakes and not unread:
            sources += _with_methods(file.rules, declaration.tables).sources
    if mistakes or any(rules.source not in streams for rules in sources):
        return PlannedTables((), tuple(mistakes))
    jobs = emitted or {}
    stages = [_stage(table, sources, streams, jobs.get(table.name, ())) for table in declaration.tables]
    planned = [stage for stage in stages if stage is not None]
    for stage in planned:
        if len(stage.inputs) > MOST_SOURCES:
            message = f'{len(stage.inputs)} streams feed table "{stage.name}"'
            mistakes.append((stage.name, Mistake(message, f"at most {MOST_SOURCES} can")))
    return PlannedTables(tuple(planned), tuple(mistakes))


def read_declared(name: str, text: str) -> RuleFile:
    """Read rules from a text; mistakes have the given file name."""
    try:
        with Jq() as jq:
            return replace(rules_in(text, jq), path=Path(name))
    except DeclarationError as error:
        raise DeclarationError(replace(mistake, file=name) for mistake in error.mistakes) from error


def _concerns(mistake: RuleMistake, rules: RuleSet, tables: Collection[str]) -> bool:
    """Whether a mistake is in an update of one of these tables."""
    return any(update.number == mistake.update and table in tables for table, update in rules.updates())


def _source_mistakes(
    rules: RuleSet, streams: Mapping[str, StreamDeclaration], expected: Collection[str]
) -> Iterator[RuleMistake]:
    for source in rules.sources:
        numbers = [update.number for branch in source.branches for table in branch.tables for update in table.updates]
        if not numbers:
            continue
        if source.source not in streams:
            if source.source in expected:
                continue
            hint = suggestion(source.source, [*streams, *expected])
            yield RuleMistake(f'unknown stream "{source.source}"', hint, update=numbers[0], part="source")
        elif _id_column(streams[source.source]) is None:
            message = f'stream "{source.source}" has no id, and without one a repeated event would count twice'
            hint = "declare the column that identifies an event, like id: uuid; a query must select it"
            yield RuleMistake(message, hint, update=numbers[0], part="source")
        elif not _identifies(streams[source.source]):
            stream = streams[source.source]
            kind = stream.arrow_schema.field(stream.id or "").type
            message = f'id column "{stream.id}" of stream "{stream.name}", which feeds a table, is a {kind}'
            hint = "a table recognises a repeated event by a string or an integer; declare such a column as the id"
            yield RuleMistake(message, hint, update=numbers[0], part="source")


def _id_column(stream: StreamDeclaration) -> str | None:
    """Return the column that identifies a record; for changes of a relation, the id of the row. A stage writes its records exactly
    once, so for its output the offset suffices."""
    return "row_id" if stream.lifetimes else stream.id or (OFFSET if stream.ordered else None)


def _identifies(stream: StreamDeclaration) -> bool:
    """Return whether the values of a stream's id can be part of a version (`tables.versions`)."""
    if stream.lifetimes or stream.id is None:
        return True
    kind = stream.arrow_schema.field(stream.id).type
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind))


def _facts(tables: Sequence[TableDeclaration]) -> tuple[dict[str, dict[str, tuple[str, ...]]], dict[str, int]]:
    methods = {table.name: {column: TYPES[kind].methods for column, kind in table.columns} for table in tables}
    return methods, {table.name: len(table.key) for table in tables}


def _table_mistakes(rules: RuleSet, tables: Sequence[TableDeclaration]) -> list[RuleMistake]:
    try:
        resolved(rules, *_facts(tables))
    except DeclarationError as error:
        return [mistake for mistake in error.mistakes if isinstance(mistake, RuleMistake)]
    return []


def _with_methods(rules: RuleSet, tables: Sequence[TableDeclaration]) -> RuleSet:
    return resolved(rules, *_facts(tables))


def _stage(
    table: TableDeclaration,
    sources: Sequence[SourceRules],
    streams: Mapping[str, StreamDeclaration],
    emitted: Sequence[str],
) -> Stage | None:
    rules, targets = _of_table(table, sources)
    names = list(dict.fromkeys(source.source for source in rules.sources))
    if not names and not emitted:
        return None
    inputs = []
    for number, name in enumerate(names):
        own = _id_column(streams[name])
        assert own is not None
        side = RulesMapSide(table, streams[name], own, number, rules, targets)
        inputs.append(Input(name, side, ENTRIES, horizon=table.horizon, numbered=own == OFFSET))
    for number, name in enumerate(emitted, len(names)):
        inputs.append(Input(name, EmittedMapSide(table, streams[name], number), ENTRIES, numbered=True))
    ids = [(name, streams[name].time, streams[name].time_unit, _id_column(streams[name])) for name in names]
    columns = [(column, _KINDS.get(kind, kind)) for column, kind in table.columns]
    identity = [_MEANING, table.name, table.key, columns, table.horizon, ids, rules.as_json(), list(emitted)]
    fingerprint = hashlib.blake2b(orjson.dumps(identity), digest_size=16).hexdigest()
    return Stage(table.name, tuple(inputs), table, fingerprint)


_KINDS = {"LWWSet": "ORSet", "ORSet": "ORSet.2"}
"""Names in fingerprints of types whose name has changed: earlier releases called LWWSet ORSet, and a table that was declared so
continues if it is declared LWWSet."""


def _of_table(table: TableDeclaration, sources: Sequence[SourceRules]) -> tuple[RuleSet, tuple[Target, ...]]:
    """Return the rules of one table, their updates numbered from 0, and where each update writes."""
    targets: list[Target] = []
    counts: dict[str, int] = {}
    places = {column: place for place, column in enumerate(table.column_names)}

    def updates(rules: TableRules) -> TableRules:
        numbered = []
        for update in rules.updates:
            within = counts[update.column] = counts.get(update.column, -1) + 1
            numbered.append(replace(update, number=len(targets)))
            targets.append(Target(places[update.column], within))
        return replace(rules, updates=tuple(numbered))

    def branches(source: SourceRules) -> Iterator[Branch]:
        for branch in source.branches:
            own = tuple(updates(part) for part in branch.tables if part.table == table.name and part.updates)
            if own:
                yield replace(branch, tables=own)

    own_sources = [replace(source, branches=tuple(branches(source))) for source in sources]
    return RuleSet(tuple(filtered for filtered in own_sources if filtered.branches)), tuple(targets)


def can_continue(old: Stage, new: Stage) -> bool:
    """Whether a table can continue under new rules, because its contents would be the same under them.

    New columns at the end may be fed from the next record on. The horizon may not grow, because events older than the previous
    horizon are no longer known one by one.
    """
    before, after = old.output, new.output
    if not (isinstance(before, TableDeclaration) and isinstance(after, TableDeclaration)):
        return False
    same = before.key == after.key and after.columns[: len(before.columns)] == before.columns
    if (
        not same
        or after.horizon > before.horizon
        or [earlier.stream for earlier in old.inputs] != [later.stream for later in new.inputs]
    ):
        return False
    kept = set(before.column_names)
    for earlier, later in zip(old.inputs, new.inputs, strict=True):
        assert isinstance(earlier.map_side, RulesMapSide | EmittedMapSide)
        assert isinstance(later.map_side, RulesMapSide | EmittedMapSide)
        if earlier.map_side.id != later.map_side.id or list(earlier.map_side.updates()) != [
            update for update in later.map_side.updates() if update[0] in kept
        ]:
            return False
    return True
