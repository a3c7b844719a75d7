"""The definition is data: versions of the pipeline, as files under the home, taken up by lanes at a batch boundary.

A stage's identity is its name and *generation*, the version in which it began anew. Its state lives as long as the
identity does. What a new version may change without a new generation is decided here (`compare`), and everything else is
refused with the way out.

Operations are also changed by commands, one at a time, while the pipeline's file stays as it is. A definition keeps both
(`Change`): what the file said of the operation then, and what it is now. When the file says something else about it later,
that is the newer edit, and wins.
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
from hayase.engine.integrity.heads import BEGIN_ANEW, DEFINITIONS, Head, head_of, tell_head
from hayase.streams import StreamLog
from hayase.streams.durable import make_directory, opened, write_atomic
from hayase.streams.home_format import begin_home, check_home
from hayase.streams.schema_evolution import kept_in
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
    "propose",
    "readied",
    "stages_of",
    "with_readers",
]

Start = Literal["earliest", "now"]
StageChange = Literal["kept", "changed", "anew", "refused", "added", "removed"]
"""What becomes of a stage in a new version: `changed` ones go on with their state, those that must not are `refused`."""


_KIND = "definition"
_REMEDY = f"put back a copy from a backup, or let all stages begin anew: {BEGIN_ANEW}"


@dataclass(frozen=True, slots=True)
class StageRecord:
    """What the home remembers of a stage: what it computes, since which version, and from where it began.

    Its streams stand here too, so that who only plans batches need not plan queries.
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
        """What it was declared as, like `Stage.query`."""
        return query_of(self.name)

    @property
    def identity(self) -> str:
        """The name of the stage's state."""
        return f"{self.name}.{self.generation}"


@dataclass(frozen=True, slots=True)
class Change:
    """An operation that was changed by a command: what the pipeline's file said of it then, shipped (None: nothing), and
    what it is now (None: removed)."""

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
    """One version of the pipeline, or of what a `lane` runs of it: then the stages of the others stand beside. The number of
    buckets is fixed by the first one."""

    version: int
    declaration: PipelineDeclaration
    records: tuple[StageRecord, ...]
    buckets: int
    home: Home
    lane: str | None = None
    beside: tuple[StageRecord, ...] = ()
    changes: tuple[Change, ...] = ()

    def record(self, stage: str) -> StageRecord:
        for each in self.records:
            if each.name == stage:
                return each
        raise UnknownName("stage", stage, [each.name for each in self.records])

    def of_lane(self, lane: str) -> Definition:
        """What a lane runs of it."""
        mine = tuple(each for each in self.records if each.lane == lane)
        return replace(self, records=mine, lane=lane, beside=tuple(each for each in self.records if each.lane != lane))

    @property
    def lanes(self) -> tuple[str, ...]:
        """The lanes that there is something for; the main one in any case."""
        return (MAIN, OPERATIONS) if any(each.lane == OPERATIONS for each in self.records) else (MAIN,)

    def readers(self, stage: str) -> frozenset[str]:
        """A stage, and the stages that read its output, directly or through others."""
        found: set[str] = set()
        more = {stage}
        while more != found:  # once, but for loops: they stand in the order in which they read each other
            found = set(more)
            for each in self.records:
                if more.intersection(each.inputs):
                    more.add(each.name)
        return frozenset(found)


def load(home: Home, version: int) -> Definition:
    """The definition of a version, from its file."""
    path = path_of(home, version)
    try:
        data: dict[str, Any] = orjson.loads(read_sealed(path, _KIND, _REMEDY))
        if data["version"] != version:
            raise DamagedState(f"the {_KIND} {path} is that of version {data['version']}; {_REMEDY}")
        return Definition(
            version=data["version"],
            declaration=PipelineDeclaration.from_json(data["declaration"]),
            records=tuple(_record_from(each) for each in data["records"]),
            buckets=data["buckets"],
            home=home,
            changes=tuple(Change.from_json(each) for each in data.get("changes", ())),
        )
    except FileNotFoundError as error:
        raise DamagedState(f"the {_KIND} {path} is missing; {_REMEDY}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the {_KIND} {path} cannot be read: {error}; {_REMEDY}") from error


@lru_cache(maxsize=64)
def definition_of(home: Home, version: int) -> Definition:
    """The same, read once per process: the file of a version never changes."""
    return load(home, version)


def _record_from(data: Mapping[str, Any]) -> StageRecord:
    kind = TableDeclaration if "columns" in data["output"] else StreamDeclaration
    lists = {"inputs": tuple(data["inputs"]), "meets": tuple(data.get("meets", ()))}
    return StageRecord(**{**data, **lists, "output": kind.from_json(data["output"])})


def latest_version(home: Home) -> int:
    """The newest version there is, 0 if none."""
    try:
        names = os.listdir(home.definitions)
    except FileNotFoundError:
        return 0
    return max((int(name[:10]) for name in names if name.endswith(".json") and name[:10].isdigit()), default=0)


def latest(home: Home) -> Definition | None:
    """The newest definition, if there is one; DamagedState if it is missing."""
    check_home(home.path)
    told = head_of(home, DEFINITIONS).version  # before the look: it is never ahead
    version = max(latest_version(home), told)
    return load(home, version) if version else None


def _latest_readable(home: Home) -> Definition | None:
    """The newest definition that can be read, for what is to begin anew."""
    for version in range(latest_version(home), 0, -1):
        with contextlib.suppress(DamagedState):
            return load(home, version)
    return None


def stages_of(definition: Definition) -> Mapping[str, Stage]:
    """The definition's stages, ready to run; planned once per process."""
    return planned(definition.declaration, definition.home)


@lru_cache(maxsize=16)
def planned(declaration: PipelineDeclaration, home: Home) -> Mapping[str, Stage]:
    """The stages of a declaration; DeclarationError tells what is wrong with it."""
    from hayase.engine.definition.stage_graph import (
        plan,  # takes its time to load, and who only plans batches does without
    )

    made = plan(declaration, home.path)
    if made.mistakes:
        raise DeclarationError([mistake for _, _, mistake in made.mistakes])
    return {stage.name: stage for stage in made.stages}


def default_buckets() -> int:
    """As many as this machine has cores, within reason."""
    return max(2, min(os.cpu_count() or 2, 16))


def propose(
    home: Home,
    declaration: PipelineDeclaration,
    resets: Mapping[str, Start] | None = None,
    everything: Start | None = None,
) -> Definition:
    """Make a declaration the newest version, unless it is that already; streams it names are created or reconciled.

    The code of operations is shipped. What commands have changed stays so, unless the declaration has changed it since.
    `resets` gives stages a new generation; stages that read their output begin anew with them. `everything` does so with all
    stages: then the definition before need not be there.
    """
    with only_writer(home):
        try:
            current = latest(home)
        except DamagedState:
            if everything is None:
                raise
            current = _latest_readable(home)
        operations = {each.name for each in declaration.operations} if everything else ()
        declaration, changes = readied(home, current, declaration, frozenset([*(resets or ()), *operations]))
        if everything is not None:
            resets = {stage.query: everything for stage in planned(declaration, home).values()}
        return _made(home, current, declaration, changes, resets)


def readied(
    home: Home, current: Definition | None, declaration: PipelineDeclaration, anew: AbstractSet[str] = frozenset()
) -> tuple[PipelineDeclaration, tuple[Change, ...]]:
    """What a declaration comes to in a home, with its operations as they will run, and what of them is by command."""
    if not declaration.operations and (current is None or not current.changes):
        return declaration, ()
    from hayase.engine.definition import operation_trials  # which not every pipeline needs

    return operation_trials.readied(home, current, declaration, anew)


def amend(
    home: Home,
    edit: Callable[[Definition], tuple[PipelineDeclaration, tuple[Change, ...]]],
    resets: Mapping[str, Start] | None = None,
) -> Definition:
    """Make what `edit` makes of the newest definition the next one. Nobody else can come between."""
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
    """Let nobody else write a definition meanwhile. Code that was shipped for one that is refused goes again."""
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
    """The names under which code has been shipped to a home."""
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
    """The definition that follows the current one, written down; the current one itself if nothing is different."""
    buckets = _bucket_count(current, declaration)
    stages = planned(declaration, home)
    anew = with_readers(dict(resets or {}), stages)
    version = max(latest_version(home), head_of(home, DEFINITIONS).version) + 1
    records = _records(current, stages, anew, version)
    for each in declaration.streams:
        StreamLog.ensure(home.path, each)
    before = {each.name: each.output for each in current.records} if current else {}
    for record in records:
        if isinstance(record.output, TableDeclaration):
            continue
        if record.generation == version:  # it is laid out when its lane begins it
            _check_free(home, record.output.name)
        elif before[record.name] != record.output:
            StreamLog.ensure(home.path, record.output)
    if current and (current.declaration, current.records, current.changes) == (declaration, records, changes):
        return current
    made = Definition(version, declaration, records, buckets, home, changes=changes)
    with writing(f"the definition {path_of(home, version)}"):
        body = orjson.dumps(_as_json(made), option=orjson.OPT_INDENT_2)
        write_atomic(path_of(home, version), seal(_KIND, body))
    tell_head(home, DEFINITIONS, Head(version))
    return made


def _bucket_count(current: Definition | None, declaration: PipelineDeclaration) -> int:
    """State lies in buckets, so their number stays."""
    if current is None:
        return declaration.buckets or default_buckets()
    if declaration.buckets not in (None, current.buckets):
        raise StageChanged(
            f"buckets is {declaration.buckets}, and the home has its state in {current.buckets}; put {current.buckets} back, "
            "or use another home"
        )
    return current.buckets


def _check_free(home: Home, name: str) -> None:
    """A stage that begins empties its output: that must not be a stream to which somebody has appended."""
    try:
        kept = kept_in(home.path / "streams" / name)
    except DamagedState:  # it is the output of a stage that begins anew to mend it
        return
    if kept is not None and kept.mark is None and StreamLog(home.path, kept.declaration).index().next:
        raise DeclarationError(
            f'a query cannot be called "{name}": the home {home.path} has a stream of that name with records in it',
            "give the query another name, or use another home",
        )


def path_of(home: Home, version: int) -> Path:
    """The file of a version."""
    return home.definitions / f"{version:010d}.json"


def _as_json(definition: Definition) -> dict[str, Any]:
    return {
        "version": definition.version,
        "declaration": definition.declaration.as_json(),
        "records": [asdict(each) for each in definition.records],
        "buckets": definition.buckets,
        "changes": [asdict(each) for each in definition.changes],
    }


def with_readers(resets: dict[str, Start], stages: Mapping[str, Stage]) -> dict[str, Start]:
    """The stages that begin anew when some do: these, and those that read their output."""
    names = {stage.query for stage in stages.values()}
    for name in resets:
        if name not in names:
            raise UnknownName("stage", name, names)
    known = -1
    while len(resets) > known:  # once, but for loops
        known = len(resets)
        for stage in stages.values():
            if stage.query in resets:
                resets.setdefault(stage.name, resets[stage.query])
            elif stage.name not in resets and any(each.stream in resets for each in stage.inputs):
                resets[stage.name] = "earliest"
    return resets


def compare(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start] | None = None
) -> dict[str, StageChange]:
    """What becomes of every stage when these follow the current ones, and those in `anew` begin anew."""
    known = {each.name: each for each in current.records} if current else {}
    fates: dict[str, StageChange] = {}
    for name, stage in stages.items():
        if name not in known:
            fates[name] = "added"
        elif name in (anew or {}):
            fates[name] = "anew"
        elif known[name].fingerprint == stage.fingerprint:
            fates[name] = "kept"
        else:
            assert current is not None
            old = _stage_of(current, name)
            goes_on = old is not None and _is_known(known[name], old) and _is_safe(old, stage)
            fates[name] = "changed" if goes_on else "refused"
    return fates | {name: "removed" for name in known if name not in stages}


def _stage_of(current: Definition, name: str) -> Stage | None:
    """A stage of the current definition; None if that was written by a version of Hayase that took what this one refuses."""
    try:
        return stages_of(current).get(name)
    except DeclarationError:
        return None


def _records(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start], version: int
) -> tuple[StageRecord, ...]:
    known = {each.name: each for each in current.records} if current else {}
    records = []
    fates = compare(current, stages, anew)
    refused = [name for name, fate in fates.items() if fate == "refused"]
    if refused:
        raise StageChanged(_way_out(refused, known, stages))
    for name, fate in fates.items():
        if fate in ("added", "anew"):
            records.append(_record(stages[name], version, anew.get(name, "earliest")))
        elif fate in ("kept", "changed"):
            records.append(_record(stages[name], known[name].generation, known[name].start))
    return tuple(records)


def _way_out(refused: Sequence[str], known: Mapping[str, StageRecord], stages: Mapping[str, Stage]) -> str:
    """What to do about stages that cannot go on: all of them, and what would begin anew with them."""
    names = list(dict.fromkeys(stages[each].query for each in refused))
    if len(names) == 1:
        told = _way_out_of_one(known[refused[0]], stages[refused[0]])
    else:
        listed = ", ".join(f'"{each}"' for each in names)
        told = (
            f"stages {listed} have changed, and what they remember does not fit their new definitions; put the old "
            f"definitions back, or begin anew with `hayase reset {' '.join(names)} --from earliest` (or `--from now`)"
        )
    anew = with_readers(dict.fromkeys(names, "earliest"), stages)
    behind = dict.fromkeys(stages[each].query for each in anew if each in known and stages[each].query not in names)
    return told + (f"; {', '.join(behind)}, which read what they write, begin anew with them" if behind else "")


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
    """Whether a table is declared as before, and has ORSets that an earlier release wrote."""
    if not isinstance(record.output, TableDeclaration) or not isinstance(stage.output, TableDeclaration):
        return False
    same = stage.output.columns[: len(record.output.columns)] == record.output.columns
    return same and any(kind == "ORSet" for _, kind in record.output.columns)


def begin_anew(operation: str) -> str:
    """How an operation comes to write something else than before."""
    return f"let it begin anew: `hayase reset {operation} --from earliest` (or now), or `hayase ops update --reset earliest`"


def _record(stage: Stage, generation: int, start: Start) -> StageRecord:
    inputs = tuple(dict.fromkeys(each.stream for each in stage.inputs))
    return StageRecord(
        stage.name, stage.fingerprint, generation, start, inputs, stage.output, stage.every, stage.meets, stage.lane
    )


def _is_known(record: StageRecord, old: Stage) -> bool:
    """Whether a query or a table means what it meant when it was recorded. If other code recorded it, that may have kept state
    where this code needs none. Other stages are made of functions, which change without their declarations."""
    is_query = old.every is None and old.remembers is None and old.lane == MAIN
    return record.fingerprint == old.fingerprint or not is_query


def _is_safe(old: Stage, new: Stage) -> bool:
    """A stage without state, which one that fires is too unless it says what it remembers, may compute something else from
    the next record on, if its output keeps its shape; one that remembers the same goes on with that. What is in a table must
    be what its rules make of the events."""
    if isinstance(new.output, TableDeclaration):
        from hayase.tables.table_planner import goes_on

        return goes_on(old, new)
    if (old.output, old.lane) != (new.output, new.lane):
        return False
    if new.remembers == "" == old.remembers:
        return True  # it may also read other streams
    same_inputs = [each.stream for each in old.inputs] == [each.stream for each in new.inputs]
    stateless = all(each.kernel is None or each.every is not None for each in (old, new))
    return same_inputs and (stateless if new.remembers is None else old.remembers == new.remembers)
