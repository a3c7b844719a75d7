"""Writes new versions of a pipeline's definition: a declaration as a whole, or an edit of the newest version."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

from hayase.core.data_classes import dataclass
from hayase.core.declarations import PipelineDeclaration, TableDeclaration
from hayase.core.errors import DamagedState, DeclarationError, Mistake, StageChanged
from hayase.engine.definition.definitions import (
    Build,
    Change,
    Definition,
    Dial,
    Start,
    latest,
    latest_readable,
    newest_version,
    planned,
    save,
)
from hayase.engine.definition.stage_comparison import records_after, with_readers
from hayase.engine.home import Home, writing
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, open_file
from hayase.streams.home_format import begin_home
from hayase.streams.schema_evolution import stored_declaration

__all__ = ["Prepared", "amend", "being_built", "only_writer", "prepare", "propose", "write_next"]


def propose(
    home: Home,
    declaration: PipelineDeclaration,
    resets: Mapping[str, Start] | None = None,
    everything: Start | None = None,
) -> Definition:
    """Write a declaration as the newest version, unless it is that already, and create or reconcile its streams.

    The code of operations and functions is shipped to the home. Changes by command stay in force unless the declaration has since
    changed the same operation, and queries added by command unless it declares something of that name. `resets` gives stages a
    new generation; stages that read their output begin anew too.
    `everything` resets all stages, and then tolerates a damaged previous definition and ends a build beside it. Otherwise, while
    there is such a build, the only declarations that are accepted are the one that runs and the one that is built.
    """
    with only_writer(home):
        try:
            current = latest(home)
        except DamagedState:
            if everything is None:
                raise
            current = latest_readable(home)
        operations = {operation.name for operation in declaration.operations} if everything else ()
        wanted = prepare(home, current, declaration, frozenset([*(resets or ()), *operations]))
        if everything is not None:
            resets = {stage.query: everything for stage in planned(wanted.declaration, home).values()}
        elif current is not None and current.build is not None:
            if not resets and wanted in (Prepared.of(current), Prepared.of(current.build)):
                return current
            raise being_built(current.build)
        return write_next(home, current, wanted, resets)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A declaration as it will run in a home, the changes of operations by command that stay in force in it, the names of the
    queries in it that were added by command, and the dial of the governor if a command has set it."""

    declaration: PipelineDeclaration
    changes: tuple[Change, ...] = ()
    added: tuple[str, ...] = ()
    dial: Dial | None = None

    @classmethod
    def of(cls, definition: Definition | Build) -> Prepared:
        """Return what a definition or a build was written from; commands replace parts of it."""
        return cls(definition.declaration, definition.changes, definition.added, definition.dial)


def prepare(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> Prepared:
    """Return the declaration with its functions and operations as they will run in the home, and with what commands have
    changed and added."""
    dial = _dial_in_force(current, declaration)
    declaration, added = _with_added_queries(current, declaration)
    if dial is not None:
        declaration = replace(declaration, governor=dial.governor)
    if any(function.sql is None for function in declaration.functions):
        from hayase.operations.shipped_code import ship_function

        shipped = tuple(ship_function(function, home.code("")) for function in declaration.functions)
        declaration = replace(declaration, functions=shipped)
    if not declaration.operations and (current is None or not current.changes):
        wanted = Prepared(declaration, (), added, dial)
    else:
        from hayase.engine.definition import operation_changes  # imported only by pipelines with operations

        wanted = Prepared(*operation_changes.prepare_operations(home, current, declaration, anew), added, dial)
    if added:
        _check_added_queries(home, wanted)
    return wanted


def _with_added_queries(
    current: Definition | None, declaration: PipelineDeclaration
) -> tuple[PipelineDeclaration, tuple[str, ...]]:
    """Return the declaration with the queries that commands have added, except those whose names it uses itself, and the
    names of these queries."""
    if current is None or not current.added:
        return declaration, ()
    if declaration == current.declaration:  # it was read from the home
        return declaration, current.added
    sections = (declaration.streams, declaration.queries, declaration.tables, declaration.jobs, declaration.operations)
    taken = {declared.name.lower() for section in sections for declared in section}
    kept = tuple(
        query
        for query in current.declaration.queries
        if query.name in current.added and query.name.lower() not in taken
    )
    return replace(declaration, queries=(*declaration.queries, *kept)), tuple(query.name for query in kept)


def _check_added_queries(home: Home, wanted: Prepared) -> None:
    """Raise DeclarationError if a query that was added by command does not fit a declaration that does not mention it."""
    from hayase.engine.definition.stage_graph import plan  # slow to import

    unfit = [
        (name, mistake)
        for kind, name, mistake in plan(wanted.declaration, home.path).mistakes
        if kind == "query" and name in wanted.added
    ]
    if unfit:
        raise DeclarationError(
            Mistake(
                f'query "{name}", which was added by command, does not fit this declaration: {mistake.message}',
                f'declare "{name}" as it should be; then that holds',
            )
            for name, mistake in unfit
        )


def _dial_in_force(current: Definition | None, declaration: PipelineDeclaration) -> Dial | None:
    """Return the dial if the declaration says of the governor what it said when the dial was set, or was itself read from
    the home."""
    if current is None or current.dial is None:
        return None
    same = declaration.governor == current.dial.declared or declaration == current.declaration
    return current.dial if same else None


def amend(
    home: Home,
    edit: Callable[[Definition], Prepared],
    resets: Mapping[str, Start] | None = None,
) -> Definition:
    """Write the result of `edit`, applied to the newest definition, as the next version, under the writers' lock."""
    with only_writer(home):
        current = latest(home)
        if current is None:
            raise DeclarationError(
                f"no pipeline was declared in the home {home.path} yet", "declare one with `hayase apply FILE`"
            )
        if current.build is not None:
            raise being_built(current.build)
        return write_next(home, current, edit(current), resets)


def being_built(build: Build) -> StageChanged:
    """Return the error of a change that comes while something is built beside what runs."""
    return StageChanged(
        f"a new version of the pipeline is being built beside this one since version {build.generation}, and replaces it when it "
        "has caught up; wait for that, replace the build with `hayase apply FILE --beside`, or give it up with "
        "`hayase apply --cancel`"
    )


@contextlib.contextmanager
def only_writer(home: Home) -> Iterator[None]:
    """Hold the lock for writing definitions. If the body raises, code that it shipped is removed again."""
    with writing(f"the home {home.path}"):
        begin_home(home.path)
        make_directory(home.definitions)
        lock = open_file(home.definitions / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = shipped_code(home)
        try:
            yield
        except BaseException:
            for name in shipped_code(home) - before:
                shutil.rmtree(home.code(name), ignore_errors=True)
            raise
    finally:
        os.close(lock)


def shipped_code(home: Home) -> set[str]:
    """Return the names of the shipped code directories in a home."""
    try:
        return set(os.listdir(home.code("")))
    except FileNotFoundError:
        return set()


def write_next(
    home: Home,
    current: Definition | None,
    wanted: Prepared,
    resets: Mapping[str, Start] | None = None,
    another: bool = False,
) -> Definition:
    """Write and return the definition that follows the current one, without its build; return the current one if nothing
    differs, unless it must be `another`. Only under the writers' lock."""
    another = another or (current is not None and current.build is not None)
    current = current.without_build() if current is not None else None
    declaration = wanted.declaration
    buckets = _bucket_count(current, declaration)
    stages = planned(declaration, home)
    anew = with_readers(dict(resets or {}), stages)
    version = newest_version(home) + 1
    records = records_after(current, stages, anew, version)
    for stream in declaration.streams:
        StreamLog.ensure(home.path, stream)
    before = {old.name: old.output for old in current.records} if current else {}
    for record in records:
        if isinstance(record.output, TableDeclaration):
            continue
        if record.generation == version:  # its lane creates the stream when it starts the stage
            _check_free(home, record.output.name)
        elif before[record.name] != record.output:
            StreamLog.ensure(home.path, record.output)
    if current and not another and current.records == records and wanted == Prepared.of(current):
        return current
    definition = Definition(
        version, declaration, records, buckets, home, changes=wanted.changes, added=wanted.added, dial=wanted.dial
    )
    save(definition)
    return definition


def _bucket_count(current: Definition | None, declaration: PipelineDeclaration) -> int:
    """Return the number of buckets. A declaration does not change it, because state is partitioned by bucket."""
    if current is None:
        return declaration.buckets or default_buckets()
    if declaration.buckets not in (None, current.buckets):
        raise StageChanged(
            f"buckets is {declaration.buckets}, and the home has its state in {current.buckets}; put {current.buckets} back, "
            f"and change the home with `hayase rebucket {declaration.buckets}`"
        )
    return current.buckets


def default_buckets() -> int:
    """Return the number of CPU cores, but at least 2 and at most 16."""
    return max(2, min(os.cpu_count() or 2, 16))


def _check_free(home: Home, name: str) -> None:
    """Raise DeclarationError if the output of a new stage, which is emptied when the stage starts, is a stream with
    appended records."""
    try:
        kept = stored_declaration(home.path / "streams" / name)
    except DamagedState:  # the output of a stage that is reset in order to repair it
        return
    if kept is not None and kept.mark is None and StreamLog(home.path, kept.declaration).index().next:
        raise DeclarationError(
            f'a query cannot be called "{name}": the home {home.path} has a stream of that name with records in it',
            "give the query another name, or use another home",
        )
