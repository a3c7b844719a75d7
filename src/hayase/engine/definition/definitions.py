"""Definitions: numbered versions of a pipeline as files in its home, and the rules for replacing one by the next. Lanes
adopt a new version between two batches.

A stage is identified by its name and *generation*, the version in which it last began anew; its state belongs to that
identity. `compare` decides what a new version may change without a new generation. Any other change is refused, with a
message that says what to do.

Commands also change operations, one at a time, without touching the pipeline's file. A definition records both
(`Change`): what the file declared when the command ran, and what the operation is now. If the file later declares
something else, that edit is newer and wins.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from hayase.core.declarations import OperationDeclaration, PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DamagedState, DeclarationError, StageChanged, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, Stage, query_of
from hayase.engine.home import Home, writing
from hayase.engine.integrity.heads import BEGIN_ANEW, DEFINITIONS, Head, head_of, write_head
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, opened, write_atomic
from hayase.streams.home_format import begin_home, check_home
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.sealed import read_sealed, seal

__all__ = [
    "Change",
    "Definition",
    "StageChange",
    "StageRecord",
    "Start",
    "amend",
    "begin_anew",
    "compare",
    "definition_of",
    "latest",
    "latest_version",
    "load",
    "only_writer",
    "path_of",
    "planned",
    "prepare_operations",
    "propose",
    "stages_of",
    "with_readers",
]

Start = Literal["earliest", "now"]
StageChange = Literal["kept", "changed", "anew", "refused", "added", "removed"]
"""What becomes of a stage in a new version. A `changed` stage keeps its state; a `refused` one would need a reset."""


_KIND = "definition"
_REMEDY = f"put back a copy from a backup, or let all stages begin anew: {BEGIN_ANEW}"


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What the home records of a stage: its fingerprint, its generation, and where it started to read.

    It also names the stage's streams, so that planning a batch does not require planning queries.
    """

    name: str
    fingerprint: str
    generation: int
    start: Start
    inputs: tuple[str, ...]
    output: StreamDeclaration | TableDeclaration
    every: int | None = None
    meets: tuple[str, ...] = ()
    lane: str = MAIN

    @property
    def query(self) -> str:
        """The name under which it was declared, like `Stage.query`."""
        return query_of(self.name)

    @property
    def identity(self) -> str:
        """The name of the stage's state."""
        return f"{self.name}.{self.generation}"


@dataclass(frozen=True, slots=True)
class Change:
    """An operation that a command changed: what the pipeline's file declared at that time, shipped (None: nothing), and
    what the operation is now (None: removed)."""

    name: str
    declared: OperationDeclaration | None
    now: OperationDeclaration | None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Change:
        """The inverse of `dataclasses.asdict`."""
        sides = {
            side: OperationDeclaration.from_json(data[side]) if data[side] else None for side in ("declared", "now")
        }
        return cls(data["name"], **sides)


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a pipeline, or the part of it that one `lane` runs; the stages of other lanes are then in
    `beside`. The first version fixes the number of buckets."""

    version: int
    declaration: PipelineDeclaration
    records: tuple[StageRecord, ...]
    buckets: int
    home: Home
    lane: str | None = None
    beside: tuple[StageRecord, ...] = ()
    changes: tuple[Change, ...] = ()

    def record(self, stage: str) -> StageRecord:
        for record in self.records:
            if record.name == stage:
                return record
        raise UnknownName("stage", stage, [record.name for record in self.records])

    def of_lane(self, lane: str) -> Definition:
        """Return the part of the definition that a lane runs."""
        records = tuple(record for record in self.records if record.lane == lane)
        return replace(
            self, records=records, lane=lane, beside=tuple(record for record in self.records if record.lane != lane)
        )

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that have stages; the main lane is always included."""
        return (MAIN, OPERATIONS) if any(record.lane == OPERATIONS for record in self.records) else (MAIN,)

    def readers(self, stage: str) -> frozenset[str]:
        """Return a stage and all stages that read its output, directly or through others."""
        before: set[str] = set()
        readers = {stage}
        while readers != before:  # records are in reading order, so only loops of jobs need more than one pass
            before = set(readers)
            for record in self.records:
                if readers.intersection(record.inputs):
                    readers.add(record.name)
        return frozenset(before)


def load(home: Home, version: int) -> Definition:
    """Read the definition of a version from its file; DamagedState if it is missing or unreadable."""
    path = path_of(home, version)
    try:
        data: dict[str, Any] = orjson.loads(read_sealed(path, _KIND, _REMEDY))
        if data["version"] != version:
            raise DamagedState(f"the {_KIND} {path} is that of version {data['version']}; {_REMEDY}")
        return Definition(
            version=data["version"],
            declaration=PipelineDeclaration.from_json(data["declaration"]),
            records=tuple(_record_from(record) for record in data["records"]),
            buckets=data["buckets"],
            home=home,
            changes=tuple(Change.from_json(change) for change in data.get("changes", ())),
        )
    except FileNotFoundError as error:
        raise DamagedState(f"the {_KIND} {path} is missing; {_REMEDY}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the {_KIND} {path} cannot be read: {error}; {_REMEDY}") from error


@lru_cache(maxsize=64)
def definition_of(home: Home, version: int) -> Definition:
    """Like `load`, but cached per process: the file of a version never changes."""
    return load(home, version)


def _record_from(data: Mapping[str, Any]) -> StageRecord:
    kind = TableDeclaration if "columns" in data["output"] else StreamDeclaration
    lists = {"inputs": tuple(data["inputs"]), "meets": tuple(data.get("meets", ()))}
    return StageRecord(**{**data, **lists, "output": kind.from_json(data["output"])})


def latest_version(home: Home) -> int:
    """Return the newest version that has a file, 0 if there is none."""
    try:
        names = os.listdir(home.definitions)
    except FileNotFoundError:
        return 0
    return max((int(name[:10]) for name in names if name.endswith(".json") and name[:10].isdigit()), default=0)


def latest(home: Home) -> Definition | None:
    """Return the newest definition, None if there is none; DamagedState if the head names one whose file is missing."""
    check_home(home.path)
    # The head is read before the directory is listed: it is never ahead of the files.
    head_version = head_of(home, DEFINITIONS).version
    version = max(latest_version(home), head_version)
    return load(home, version) if version else None


def _latest_readable(home: Home) -> Definition | None:
    """Return the newest definition that can be read; used when all stages begin anew."""
    for version in range(latest_version(home), 0, -1):
        with contextlib.suppress(DamagedState):
            return load(home, version)
    return None


def stages_of(definition: Definition) -> Mapping[str, Stage]:
    """Return the definition's stages by name, ready to run; planned once per process."""
    return planned(definition.declaration, definition.home)


@lru_cache(maxsize=16)
def planned(declaration: PipelineDeclaration, home: Home) -> Mapping[str, Stage]:
    """Return the stages of a declaration by name; DeclarationError lists its mistakes."""
    from hayase.engine.definition.stage_graph import (
        plan,  # slow to import, and planning a batch does not need it
    )

    result = plan(declaration, home.path)
    if result.mistakes:
        raise DeclarationError([mistake for _, _, mistake in result.mistakes])
    return {stage.name: stage for stage in result.stages}


def default_buckets() -> int:
    """Return the number of CPU cores, but at least 2 and at most 16."""
    return max(2, min(os.cpu_count() or 2, 16))


def propose(
    home: Home,
    declaration: PipelineDeclaration,
    resets: Mapping[str, Start] | None = None,
    everything: Start | None = None,
) -> Definition:
    """Write a declaration as the newest version, unless it is that already, and create or reconcile its streams.

    The code of operations is shipped to the home. Changes by command stay in force unless the declaration has since
    changed the same operation. `resets` gives stages a new generation; stages that read their output begin anew too.
    `everything` resets all stages, and then tolerates a damaged previous definition.
    """
    with only_writer(home):
        try:
            current = latest(home)
        except DamagedState:
            if everything is None:
                raise
            current = _latest_readable(home)
        operations = {operation.name for operation in declaration.operations} if everything else ()
        declaration, changes = prepare_operations(home, current, declaration, frozenset([*(resets or ()), *operations]))
        if everything is not None:
            resets = {stage.query: everything for stage in planned(declaration, home).values()}
        return _made(home, current, declaration, changes, resets)


def prepare_operations(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> tuple[PipelineDeclaration, tuple[Change, ...]]:
    """Return the declaration with its operations as they will run in the home, and the changes by command that stay in
    force."""
    if not declaration.operations and (current is None or not current.changes):
        return declaration, ()
    from hayase.engine.definition import operation_trials  # imported only by pipelines with operations

    return operation_trials.prepare_operations(home, current, declaration, anew)


def amend(
    home: Home,
    edit: Callable[[Definition], tuple[PipelineDeclaration, tuple[Change, ...]]],
    resets: Mapping[str, Start] | None = None,
) -> Definition:
    """Write the result of `edit`, applied to the newest definition, as the next version, under the writers' lock."""
    with only_writer(home):
        current = latest(home)
        if current is None:
            raise DeclarationError(
                f"no pipeline was declared in the home {home.path} yet", "declare one with `hayase apply FILE`"
            )
        declaration, changes = edit(current)
        return _made(home, current, declaration, changes, resets)


@contextlib.contextmanager
def only_writer(home: Home) -> Iterator[None]:
    """Hold the lock for writing definitions. If the body raises, code that it shipped is removed again."""
    with writing(f"the home {home.path}"):
        begin_home(home.path)
        make_directory(home.definitions)
        lock = opened(home.definitions / "lock", os.O_RDWR | os.O_CREAT)
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


def _made(
    home: Home,
    current: Definition | None,
    declaration: PipelineDeclaration,
    changes: tuple[Change, ...],
    resets: Mapping[str, Start] | None,
) -> Definition:
    """Write and return the definition that follows the current one; return the current one if nothing differs."""
    buckets = _bucket_count(current, declaration)
    stages = planned(declaration, home)
    anew = with_readers(dict(resets or {}), stages)
    version = max(latest_version(home), head_of(home, DEFINITIONS).version) + 1
    records = _records(current, stages, anew, version)
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
    if current and (current.declaration, current.records, current.changes) == (declaration, records, changes):
        return current
    definition = Definition(version, declaration, records, buckets, home, changes=changes)
    with writing(f"the definition {path_of(home, version)}"):
        body = orjson.dumps(_as_json(definition), option=orjson.OPT_INDENT_2)
        write_atomic(path_of(home, version), seal(_KIND, body))
    write_head(home, DEFINITIONS, Head(version))
    return definition


def _bucket_count(current: Definition | None, declaration: PipelineDeclaration) -> int:
    """Return the number of buckets. It cannot change, because state is partitioned by bucket."""
    if current is None:
        return declaration.buckets or default_buckets()
    if declaration.buckets not in (None, current.buckets):
        raise StageChanged(
            f"buckets is {declaration.buckets}, and the home has its state in {current.buckets}; put {current.buckets} back, "
            "or use another home"
        )
    return current.buckets


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


def path_of(home: Home, version: int) -> Path:
    """Return the path of a version's file."""
    return home.definitions / f"{version:010d}.json"


def _as_json(definition: Definition) -> dict[str, Any]:
    return {
        "version": definition.version,
        "declaration": definition.declaration.as_json(),
        "records": [asdict(record) for record in definition.records],
        "buckets": definition.buckets,
        "changes": [asdict(change) for change in definition.changes],
    }


def with_readers(resets: dict[str, Start], stages: Mapping[str, Stage]) -> dict[str, Start]:
    """Return `resets`, extended by all stages that read the output of a reset stage, directly or through others."""
    names = {stage.query for stage in stages.values()}
    for name in resets:
        if name not in names:
            raise UnknownName("stage", name, names)
    known = -1
    while len(resets) > known:  # more than one pass only for loops of jobs
        known = len(resets)
        for stage in stages.values():
            if stage.query in resets:
                resets.setdefault(stage.name, resets[stage.query])
            elif stage.name not in resets and any(input_.stream in resets for input_ in stage.inputs):
                resets[stage.name] = "earliest"
    return resets


def compare(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start] | None = None
) -> dict[str, StageChange]:
    """Return what becomes of every stage when `stages` replace the current ones and those in `anew` begin anew."""
    known = {record.name: record for record in current.records} if current else {}
    changes: dict[str, StageChange] = {}
    for name, stage in stages.items():
        if name not in known:
            changes[name] = "added"
        elif name in (anew or {}):
            changes[name] = "anew"
        elif known[name].fingerprint == stage.fingerprint:
            changes[name] = "kept"
        else:
            assert current is not None
            old = _stage_of(current, name)
            goes_on = old is not None and _is_known(known[name], old) and _is_safe(old, stage)
            changes[name] = "changed" if goes_on else "refused"
    return changes | {name: "removed" for name in known if name not in stages}


def _stage_of(current: Definition, name: str) -> Stage | None:
    """Return a stage of the current definition; None if an earlier release of Hayase accepted a declaration that this
    one refuses."""
    try:
        return stages_of(current).get(name)
    except DeclarationError:
        return None


def _records(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start], version: int
) -> tuple[StageRecord, ...]:
    known = {record.name: record for record in current.records} if current else {}
    records = []
    changes = compare(current, stages, anew)
    refused = [name for name, change in changes.items() if change == "refused"]
    if refused:
        raise StageChanged(_way_out(refused, known, stages))
    for name, change in changes.items():
        if change in ("added", "anew"):
            records.append(_record(stages[name], version, anew.get(name, "earliest")))
        elif change in ("kept", "changed"):
            records.append(_record(stages[name], known[name].generation, known[name].start))
    return tuple(records)


def _way_out(refused: Sequence[str], known: Mapping[str, StageRecord], stages: Mapping[str, Stage]) -> str:
    """Return the error message for refused stages: what to do about them, and which readers would begin anew with them."""
    names = list(dict.fromkeys(stages[stage].query for stage in refused))
    if len(names) == 1:
        message = _way_out_of_one(known[refused[0]], stages[refused[0]])
    else:
        listed = ", ".join(f'"{name}"' for name in names)
        message = (
            f"stages {listed} have changed, and what they remember does not fit their new definitions; put the old "
            f"definitions back, or begin anew with `hayase reset {' '.join(names)} --from earliest` (or `--from now`)"
        )
    anew = with_readers(dict.fromkeys(names, "earliest"), stages)
    behind = dict.fromkeys(stages[stage].query for stage in anew if stage in known and stages[stage].query not in names)
    return message + (f"; {', '.join(behind)}, which read what they write, begin anew with them" if behind else "")


def _way_out_of_one(record: StageRecord, stage: Stage) -> str:
    name = stage.query
    if stage.lane == OPERATIONS and record.output != stage.output:
        return (
            f'operation "{name}" would write ({stage.stream.schema}), and what it has written is '
            f"({record.output.schema if isinstance(record.output, StreamDeclaration) else 'a table'}); call what writes "
            f"something else by another name, or {begin_anew(name)}"
        )
    if _has_old_sets(record, stage):
        return (
            f'table "{name}" has columns that were declared ORSet when that was the last-writer-wins set, which is LWWSet now; '
            f"declare them LWWSet, and the table goes on as it was, or rebuild it with observed removals: `hayase reset {name} "
            "--from earliest`"
        )
    return (
        f'stage "{name}" has changed, and what it remembers does not fit its new definition; put the old '
        f"definition back, or begin anew with `hayase reset {name} --from earliest` (or `--from now`)"
    )


def _has_old_sets(record: StageRecord, stage: Stage) -> bool:
    """Return whether a table's declaration is unchanged and has ORSet columns that an earlier release wrote."""
    if not isinstance(record.output, TableDeclaration) or not isinstance(stage.output, TableDeclaration):
        return False
    same = stage.output.columns[: len(record.output.columns)] == record.output.columns
    return same and any(kind == "ORSet" for _, kind in record.output.columns)


def begin_anew(operation: str) -> str:
    """Return the advice for an operation that is to write another schema than before."""
    return f"let it begin anew: `hayase reset {operation} --from earliest` (or now), or `hayase ops update --reset earliest`"


def _record(stage: Stage, generation: int, start: Start) -> StageRecord:
    inputs = tuple(dict.fromkeys(input_.stream for input_ in stage.inputs))
    return StageRecord(
        stage.name, stage.fingerprint, generation, start, inputs, stage.output, stage.every, stage.meets, stage.lane
    )


def _is_known(record: StageRecord, old: Stage) -> bool:
    """Return whether a query or table has the same fingerprint as when it was recorded. If another release of Hayase
    recorded it, that release may have kept state where this one needs none. Stages of other kinds run functions, which
    can change without their declarations, so they always pass."""
    is_query = old.every is None and old.remembers is None and old.lane == MAIN
    return record.fingerprint == old.fingerprint or not is_query


def _is_safe(old: Stage, new: Stage) -> bool:
    """Return whether `new` can continue with the state of `old`.

    A stateless stage, or a firing one that does not say what it remembers, may compute something else from the next
    record on if its output schema is the same. A stage that remembers the same as before continues with it. The content
    of a table must be what its rules make of the events.
    """
    if isinstance(new.output, TableDeclaration):
        from hayase.tables.table_planner import goes_on

        return goes_on(old, new)
    if (old.output, old.lane) != (new.output, new.lane):
        return False
    if new.remembers == "" == old.remembers:
        return True  # it may also read other streams
    same_inputs = [input_.stream for input_ in old.inputs] == [input_.stream for input_ in new.inputs]
    stateless = all(stage.kernel is None or stage.every is not None for stage in (old, new))
    return same_inputs and (stateless if new.remembers is None else old.remembers == new.remembers)
