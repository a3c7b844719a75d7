"""From declared tables and rules to stages: one for each table, reading all streams that its rules name, and jobs' own.

What is wrong is reported all at once, each mistake with its place: in a file of rules, or as a mistake of a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from hayase.core.declarations import PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DeclarationError, Mistake, nearest
from hayase.core.stages import OFFSET, Input, Stage
from hayase.tables import TYPES
from hayase.tables.emitted_rows import EmittedMapSide
from hayase.tables.entries import ENTRIES, MOST_SOURCES
from hayase.tables.jq import Jq
from hayase.tables.rule_text import RuleFile, rules_in
from hayase.tables.rules import Branch, RuleMistake, RuleSet, SourceRules, TableRules, resolved
from hayase.tables.rules_map_side import RulesMapSide, Target

__all__ = ["PlannedTables", "goes_on", "plan_tables", "read_declared"]

_MEANING = 1
"""Raised when the same rules come to mean something else, so that older tables no longer fit them."""


@dataclass(frozen=True, slots=True)
class PlannedTables:
    """The stages, and what is wrong: with the name of the table it concerns, or without one if its place is known."""

    stages: tuple[Stage, ...] = ()
    mistakes: tuple[tuple[str | None, Mistake], ...] = ()


def plan_tables(
    declaration: PipelineDeclaration,
    streams: Mapping[str, StreamDeclaration],
    emitted: Mapping[str, Sequence[str]] | None = None,
    expected: Collection[str] = (),
) -> PlannedTables:
    """The stages of all tables that are fed. `streams` are all there are, declared or made by queries and jobs; `emitted` says
    for tables which of them hold what jobs emit to them. What is `expected` is declared and could not be planned: rules may
    name it, and there are no stages then."""
    mistakes: list[tuple[str | None, Mistake]] = []
    for table in declaration.tables:
        for column, kind in table.columns:
            if kind not in TYPES:
                message = f'column "{column}" of table "{table.name}" has the unknown type "{kind}"'
                mistakes.append((f"{table.name}.{column}", Mistake(message, nearest(kind, TYPES).removeprefix("; "))))
    files: list[RuleFile] = []
    for each in declaration.rules:
        try:
            files.append(read_declared(each.name, each.text))
        except DeclarationError as error:
            mistakes += [(None, mistake) for mistake in error.mistakes]
    typed = [each for each in declaration.tables if all(kind in TYPES for _, kind in each.columns)]
    untyped = {each.name for each in declaration.tables if each not in typed}
    sources: list[SourceRules] = []
    for file in files:
        found = [
            *_source_mistakes(file.rules, streams, expected),
            *(each for each in _table_mistakes(file.rules, typed) if not _speaks_of(each, file.rules, untyped)),
        ]
        mistakes += [(None, file.at(mistake)) for mistake in sorted(found, key=lambda each: each.update)]
        if not found and not mistakes:
            sources += _with_methods(file.rules, declaration.tables).sources
    if mistakes or any(each.source not in streams for each in sources):
        return PlannedTables((), tuple(mistakes))
    jobs = emitted or {}
    stages = [_stage(table, sources, streams, jobs.get(table.name, ())) for table in declaration.tables]
    made = [stage for stage in stages if stage is not None]
    for stage in made:
        if len(stage.inputs) > MOST_SOURCES:
            message = f'{len(stage.inputs)} streams feed table "{stage.name}"'
            mistakes.append((stage.name, Mistake(message, f"at most {MOST_SOURCES} can")))
    return PlannedTables(tuple(made), tuple(mistakes))


def read_declared(name: str, text: str) -> RuleFile:
    """The rules in a text that stands somewhere, with all mistakes at their places there."""
    try:
        with Jq() as jq:
            return replace(rules_in(text, jq), path=Path(name))
    except DeclarationError as error:
        raise DeclarationError(replace(each, file=name) for each in error.mistakes) from error


def _speaks_of(mistake: RuleMistake, rules: RuleSet, tables: Collection[str]) -> bool:
    """Whether a mistake is about an update on one of these tables."""
    return any(update.number == mistake.update and table in tables for table, update in rules.updates())


def _source_mistakes(
    rules: RuleSet, streams: Mapping[str, StreamDeclaration], expected: Collection[str]
) -> Iterator[RuleMistake]:
    for source in rules.sources:
        numbers = [update.number for each in source.branches for table in each.tables for update in table.updates]
        if not numbers:
            continue
        if source.source not in streams:
            if source.source in expected:
                continue
            hint = nearest(source.source, [*streams, *expected]).removeprefix("; ")
            yield RuleMistake(f'unknown stream "{source.source}"', hint, update=numbers[0], part="source")
        elif _id_of(streams[source.source]) is None:
            message = f'stream "{source.source}" has no id, and without one a repeated event would count twice'
            hint = "declare the column that identifies an event, like id: uuid; a query must select it"
            yield RuleMistake(message, hint, update=numbers[0], part="source")


def _id_of(stream: StreamDeclaration) -> str | None:
    """The column that identifies a record; of a relation's changes, the row that comes or goes. What a stage writes it writes
    once, so that the place in the log will do."""
    return "row_id" if stream.lifetimes else stream.id or (OFFSET if stream.ordered else None)


def _facts(tables: Sequence[TableDeclaration]) -> tuple[dict[str, dict[str, tuple[str, ...]]], dict[str, int]]:
    methods = {each.name: {column: TYPES[kind].methods for column, kind in each.columns} for each in tables}
    return methods, {each.name: len(each.key) for each in tables}


def _table_mistakes(rules: RuleSet, tables: Sequence[TableDeclaration]) -> list[RuleMistake]:
    try:
        resolved(rules, *_facts(tables))
    except DeclarationError as error:
        return [each for each in error.mistakes if isinstance(each, RuleMistake)]
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
    names = list(dict.fromkeys(each.source for each in rules.sources))
    if not names and not emitted:
        return None
    inputs = []
    for number, name in enumerate(names):
        own = _id_of(streams[name])
        assert own is not None
        side = RulesMapSide(table, streams[name], own, number, rules, targets)
        inputs.append(Input(name, side, ENTRIES, horizon=table.horizon, numbered=own == OFFSET))
    for number, name in enumerate(emitted, len(names)):
        inputs.append(Input(name, EmittedMapSide(table, streams[name], number), ENTRIES, numbered=True))
    ids = [(name, streams[name].time, streams[name].time_unit, _id_of(streams[name])) for name in names]
    columns = [(column, _KINDS.get(kind, kind)) for column, kind in table.columns]
    known = [_MEANING, table.name, table.key, columns, table.horizon, ids, rules.as_json(), list(emitted)]
    fingerprint = hashlib.blake2b(orjson.dumps(known), digest_size=16).hexdigest()
    return Stage(table.name, tuple(inputs), table, fingerprint)


_KINDS = {"LWWSet": "ORSet", "ORSet": "ORSet.2"}
"""Names of types in fingerprints, where they are not those of the types: what is LWWSet now was ORSet in earlier releases, and a
table that was declared so goes on if it is declared LWWSet."""


def _of_table(table: TableDeclaration, sources: Sequence[SourceRules]) -> tuple[RuleSet, tuple[Target, ...]]:
    """The rules that concern one table, their updates numbered anew, and where each of these writes."""
    targets: list[Target] = []
    counts: dict[str, int] = {}
    places = {column: place for place, column in enumerate(table.column_names)}

    def updates(rules: TableRules) -> TableRules:
        numbered = []
        for each in rules.updates:
            within = counts[each.column] = counts.get(each.column, -1) + 1
            numbered.append(replace(each, number=len(targets)))
            targets.append(Target(places[each.column], within))
        return replace(rules, updates=tuple(numbered))

    def branches(source: SourceRules) -> Iterator[Branch]:
        for branch in source.branches:
            own = tuple(updates(each) for each in branch.tables if each.table == table.name and each.updates)
            if own:
                yield replace(branch, tables=own)

    made = [replace(source, branches=tuple(branches(source))) for source in sources]
    return RuleSet(tuple(each for each in made if each.branches)), tuple(targets)


def goes_on(old: Stage, new: Stage) -> bool:
    """Whether a table can go on under new rules: nothing that it holds would have come out differently.

    New columns, behind the others, may be fed from the next record on. The horizon may not grow, for what is older than it
    was is no longer known event by event.
    """
    before, after = old.output, new.output
    if not (isinstance(before, TableDeclaration) and isinstance(after, TableDeclaration)):
        return False
    same = before.key == after.key and after.columns[: len(before.columns)] == before.columns
    if (
        not same
        or after.horizon > before.horizon
        or [one.stream for one in old.inputs] != [two.stream for two in new.inputs]
    ):
        return False
    kept = set(before.column_names)
    for one, two in zip(old.inputs, new.inputs, strict=True):
        assert isinstance(one.map_side, RulesMapSide | EmittedMapSide)
        assert isinstance(two.map_side, RulesMapSide | EmittedMapSide)
        if one.map_side.id != two.map_side.id or list(one.map_side.updates()) != [
            each for each in two.map_side.updates() if each[0] in kept
        ]:
            return False
    return True
