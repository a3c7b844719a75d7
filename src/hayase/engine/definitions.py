"""The definition is data: versions of the pipeline, as files under the home, taken up by lanes at a batch boundary.

A stage's identity is its name and *generation*, the version in which it began anew. Its state lives as long as the
identity does. What a new version may change without a new generation is decided here, and everything else is refused
with the way out.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from hayase.core.declarations import PipelineDeclaration, StreamDeclaration, TableDeclaration
from hayase.core.errors import DamagedState, DeclarationError, StageChanged, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, Stage
from hayase.engine.home import Home, writing
from hayase.streams import StreamLog
from hayase.streams.durable import write_atomic
from hayase.streams.evolution import kept_in

__all__ = ["Definition", "StageRecord", "Start", "latest", "load", "propose", "stages_of"]

Start = Literal["earliest", "now"]


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
    def identity(self) -> str:
        """The name of the stage's state."""
        return f"{self.name}.{self.generation}"


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of the pipeline, or of what a lane runs of it. The number of buckets is fixed by the first one."""

    version: int
    declaration: PipelineDeclaration
    records: tuple[StageRecord, ...]
    buckets: int
    home: Home

    def record(self, stage: str) -> StageRecord:
        for each in self.records:
            if each.name == stage:
                return each
        raise UnknownName("stage", stage, [each.name for each in self.records])

    def of_lane(self, lane: str) -> Definition:
        """The same with the stages of a lane only."""
        return replace(self, records=tuple(each for each in self.records if each.lane == lane))

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
    path = home.definitions / f"{version:010d}.json"
    try:
        data: dict[str, Any] = orjson.loads(path.read_bytes())
        return Definition(
            version=data["version"],
            declaration=PipelineDeclaration.from_json(data["declaration"]),
            records=tuple(_record_from(each) for each in data["records"]),
            buckets=data["buckets"],
            home=home,
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the definition {path} cannot be read: {error}; restore it from a copy") from error


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
    """The newest definition, if there is one."""
    version = latest_version(home)
    return load(home, version) if version else None


def stages_of(definition: Definition) -> Mapping[str, Stage]:
    """The definition's stages, ready to run; planned once per process."""
    return _planned(definition.declaration, definition.home)


@lru_cache(maxsize=16)
def _planned(declaration: PipelineDeclaration, home: Home) -> Mapping[str, Stage]:
    from hayase.engine.planning import plan  # takes its time to load, and who only plans batches does without

    planned = plan(declaration, home.path)
    if planned.mistakes:
        raise DeclarationError([mistake for _, _, mistake in planned.mistakes])
    return {stage.name: stage for stage in planned.stages}


def default_buckets() -> int:
    """As many as this machine has cores, within reason."""
    return max(2, min(os.cpu_count() or 2, 16))


def propose(home: Home, declaration: PipelineDeclaration, resets: Mapping[str, Start] | None = None) -> Definition:
    """Make a declaration the newest version, unless it is that already; streams it names are created or reconciled.

    `resets` gives stages a new generation; stages that read their output begin anew with them.
    """
    home.definitions.mkdir(parents=True, exist_ok=True)
    lock = os.open(home.definitions / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        current = latest(home)
        buckets = _bucket_count(current, declaration)
        stages = _planned(declaration, home)
        anew = _with_readers(dict(resets or {}), stages)
        version = (current.version if current else 0) + 1
        records = _records(current, stages, anew, version)
        kept = current and (current.declaration, current.records) == (declaration, records)
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
        if current and kept:
            return current
        made = Definition(version, declaration, records, buckets, home)
        with writing(f"the definition {_path(home, version)}"):
            write_atomic(_path(home, version), orjson.dumps(_as_json(made), option=orjson.OPT_INDENT_2))
        return made
    finally:
        os.close(lock)


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
    kept = kept_in(home.path / "streams" / name)
    if kept is not None and kept.mark is None and StreamLog(home.path, kept.declaration).index().next:
        raise DeclarationError(
            f'a query cannot be called "{name}": the home {home.path} has a stream of that name with records in it',
            "give the query another name, or use another home",
        )


def _path(home: Home, version: int) -> Path:
    return home.definitions / f"{version:010d}.json"


def _as_json(definition: Definition) -> dict[str, Any]:
    return {
        "version": definition.version,
        "declaration": definition.declaration.as_json(),
        "records": [asdict(each) for each in definition.records],
        "buckets": definition.buckets,
    }


def _with_readers(resets: dict[str, Start], stages: Mapping[str, Stage]) -> dict[str, Start]:
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


def _records(
    current: Definition | None, stages: Mapping[str, Stage], anew: Mapping[str, Start], version: int
) -> tuple[StageRecord, ...]:
    known = {each.name: each for each in current.records} if current else {}
    before = _planned(current.declaration, current.home) if current else {}
    records = []
    for stage in stages.values():
        record = known.get(stage.name)
        if record is None or stage.name in anew:
            records.append(_record(stage, version, anew.get(stage.name, "earliest")))
        elif record.fingerprint == stage.fingerprint or _is_safe(before[stage.name], stage):
            records.append(_record(stage, record.generation, record.start))
        else:
            raise StageChanged(
                f'stage "{stage.query}" has changed, and what it remembers does not fit its new definition; put the old '
                f"definition back, or begin anew with `hayase reset {stage.query} --from earliest` (or `--from now`)"
            )
    return tuple(records)


def _record(stage: Stage, generation: int, start: Start) -> StageRecord:
    inputs = tuple(dict.fromkeys(each.stream for each in stage.inputs))
    return StageRecord(
        stage.name, stage.fingerprint, generation, start, inputs, stage.output, stage.every, stage.meets, stage.lane
    )


def _is_safe(old: Stage, new: Stage) -> bool:
    """A stage without state, which one that fires is too unless it says what it remembers, may compute something else from
    the next record on, if its output keeps its shape; one that remembers the same goes on with that. What is in a table must
    be what its rules make of the events."""
    if isinstance(new.output, TableDeclaration):
        from hayase.tables.planning import goes_on

        return goes_on(old, new)
    if (old.output, old.lane) != (new.output, new.lane):
        return False
    if new.remembers == "" == old.remembers:
        return True  # it may also read other streams
    same_inputs = [each.stream for each in old.inputs] == [each.stream for each in new.inputs]
    stateless = all(each.kernel is None or each.every is not None for each in (old, new))
    return same_inputs and (stateless if new.remembers is None else old.remembers == new.remembers)
