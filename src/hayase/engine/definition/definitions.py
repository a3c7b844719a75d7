"""Definitions: numbered versions of a pipeline as files in its home. Lanes adopt a new version between two batches.

A stage is identified by its name and *generation*, the version in which it last began anew; its state belongs to that
identity. `stage_comparison` decides what a new version may change without a new generation; `proposals` writes new
versions.

Commands also change operations, one at a time, without touching the pipeline's file. A definition records both
(`Change`): what the file declared when the command ran, and what the operation is now. If the file later declares
something else, that edit is newer and wins. Queries can be added by command too (`query_changes`); a definition names them in
`added`, and an added query stays until the file declares something of its name. The governor's u can be set by command
(`Dial`), until the file says something else of the governor.

A definition may also have a `Build`: the declaration that is to replace its own, whose changed stages are built beside those
that run until they have caught up (`builds`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.declarations import (
    GovernorDeclaration,
    OperationDeclaration,
    PipelineDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.core.errors import DamagedState, DeclarationError, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, Stage, build_name, is_build, public_name, query_of
from hayase.engine.home import Home, writing
from hayase.engine.integrity.heads import BEGIN_ANEW, DEFINITIONS, Head, head_of, write_head
from hayase.streams.durable import write_atomic
from hayase.streams.home_format import check_home
from hayase.streams.sealed import read_sealed, seal

__all__ = [
    "Build",
    "Change",
    "Definition",
    "Dial",
    "StageChange",
    "StageRecord",
    "Start",
    "definition_of",
    "latest",
    "latest_readable",
    "latest_version",
    "load",
    "newest_version",
    "path_of",
    "planned",
    "save",
    "stages_of",
    "versions",
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
    """`Stage.tables_read`, by the name that it has in the file."""
    lane: str = MAIN
    closings: tuple[tuple[str, int, int, int], ...] = ()
    """`Stage.closings`, by the names of the streams."""

    @property
    def query(self) -> str:
        """The name under which it was declared, like `Stage.query`."""
        return query_of(self.name)

    @property
    def identity(self) -> str:
        """The name of the stage's state."""
        return f"{self.name}.{self.generation}"

    def as_build(self) -> StageRecord:
        """Return the record under the name that the stage had if it was built beside another version."""
        return replace(self, name=build_name(self.name, self.generation))


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
class Dial:
    """The governor's `u` as a command set it, and the governor that the pipeline's file declared at that time."""

    declared: GovernorDeclaration | None
    u: float

    @property
    def governor(self) -> GovernorDeclaration:
        """The governor with this u."""
        return (self.declared or GovernorDeclaration()).with_option("u", self.u)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Dial:
        """The inverse of `dataclasses.asdict`."""
        declared = data["declared"]
        return cls(None if declared is None else GovernorDeclaration.from_json(declared), data["u"])


@dataclass(frozen=True, slots=True)
class Build:
    """What is built beside the stages of a definition: the declaration that will replace its own, and what belongs to that (see
    `Definition`). `generation` is the version in which the build began, and part of the names of its stages; these have so many
    `buckets`."""

    generation: int
    declaration: PipelineDeclaration
    buckets: int
    changes: tuple[Change, ...] = ()
    added: tuple[str, ...] = ()
    dial: Dial | None = None

    def as_json(self) -> dict[str, Any]:
        return {"generation": self.generation, "buckets": self.buckets, **_declared_json(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Build:
        return cls(generation=data["generation"], buckets=data["buckets"], **_declared_from(data))


@dataclass(frozen=True, slots=True)
class Definition:
    """One version of a pipeline, or the part of it that one `lane` runs; the stages of other lanes are then in
    `beside`. The first version decides the number of buckets."""

    version: int
    declaration: PipelineDeclaration
    records: tuple[StageRecord, ...]
    buckets: int
    home: Home
    lane: str | None = None
    beside: tuple[StageRecord, ...] = ()
    changes: tuple[Change, ...] = ()
    added: tuple[str, ...] = ()
    """The queries that a command added; the pipeline's file does not declare them."""
    dial: Dial | None = None
    build: Build | None = None
    """What is built beside these stages; the stages of the build are among the records."""

    def without_build(self) -> Definition:
        """Return what runs, without what is built beside it."""
        records = tuple(record for record in self.records if not is_build(record.name))
        return replace(self, records=records, build=None)

    def buckets_of(self, stage: str) -> int:
        """Return the number of buckets of a stage."""
        return self.build.buckets if self.build is not None and is_build(stage) else self.buckets

    @property
    def tasks(self) -> int:
        """The number of reduce tasks of a batch: one for each bucket of the stages that have the most."""
        return self.buckets if self.build is None else max(self.buckets, self.build.buckets)

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
            raise DamagedState(f"the {_KIND} {path} is that of version {data['version']}", _REMEDY)
        return Definition(
            version=data["version"],
            records=tuple(_record_from(record) for record in data["records"]),
            buckets=data["buckets"],
            home=home,
            build=Build.from_json(data["build"]) if data.get("build") else None,
            **_declared_from(data),
        )
    except FileNotFoundError as error:
        raise DamagedState(f"the {_KIND} {path} is missing", _REMEDY) from error
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedState(f"the {_KIND} {path} cannot be read: {error}", _REMEDY) from error


def definition_of(home: Home, version: int) -> Definition:
    """Like `load`, but cached per process: the file of a version never changes, unless the home is removed and another one is
    created at its path."""
    try:
        status = path_of(home, version).stat()
    except OSError:
        return load(home, version)
    return _definition_in(home, version, (status.st_ino, status.st_mtime_ns, status.st_size))


@lru_cache(maxsize=64)
def _definition_in(home: Home, version: int, file: tuple[int, int, int]) -> Definition:
    return load(home, version)


def _declared_from(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration and what commands have changed of it, as a definition and a build have them."""
    return {
        "declaration": PipelineDeclaration.from_json(data["declaration"]),
        "changes": tuple(Change.from_json(change) for change in data.get("changes", ())),
        "added": tuple(data.get("added", ())),
        "dial": Dial.from_json(data["dial"]) if data.get("dial") else None,
    }


def _declared_json(declared: Definition | Build) -> dict[str, Any]:
    return {
        "declaration": declared.declaration.as_json(),
        "changes": [asdict(change) for change in declared.changes],
        "added": declared.added,
        "dial": None if declared.dial is None else asdict(declared.dial),
    }


def _record_from(data: Mapping[str, Any]) -> StageRecord:
    kind = TableDeclaration if "columns" in data["output"] else StreamDeclaration
    lists = {"inputs": tuple(data["inputs"]), "meets": tuple(data.get("meets", ()))}
    lists["closings"] = tuple(map(tuple, data.get("closings", ())))
    return StageRecord(**{**data, **lists, "output": kind.from_json(data["output"])})


def save(definition: Definition) -> None:
    """Write the file of a version, and note it as the newest."""
    path = path_of(definition.home, definition.version)
    with writing(f"the definition {path}"):
        body = orjson.dumps(_as_json(definition), option=orjson.OPT_INDENT_2)
        write_atomic(path, seal(_KIND, body))
    write_head(definition.home, DEFINITIONS, Head(definition.version))


def path_of(home: Home, version: int) -> Path:
    """Return the path of a version's file."""
    return home.definitions / f"{version:010d}.json"


def _as_json(definition: Definition) -> dict[str, Any]:
    return {
        "version": definition.version,
        "records": [asdict(record) for record in definition.records],
        "buckets": definition.buckets,
        **_declared_json(definition),
        "build": None if definition.build is None else definition.build.as_json(),
    }


def versions(home: Home) -> list[int]:
    """Return the versions that have a file, oldest first; `hayase home clean` removes older ones that nobody needs."""
    try:
        names = os.listdir(home.definitions)
    except FileNotFoundError:
        return []
    return sorted(int(name[:10]) for name in names if name.endswith(".json") and name[:10].isdigit())


def latest_version(home: Home) -> int:
    """Return the newest version that has a file, 0 if there is none."""
    return max(versions(home), default=0)


def newest_version(home: Home) -> int:
    """Return the newest version that has a file or that the head names, 0 if there is none."""
    head_version = head_of(home, DEFINITIONS).version  # read before the directory is listed: never ahead of the files
    return max(latest_version(home), head_version)


def latest(home: Home) -> Definition | None:
    """Return the newest definition, None if there is none; DamagedState if the head names one whose file is missing."""
    check_home(home.path)
    version = newest_version(home)
    return load(home, version) if version else None


def latest_readable(home: Home) -> Definition | None:
    """Return the newest definition that can be read; used when all stages begin anew."""
    for version in range(latest_version(home), 0, -1):
        with contextlib.suppress(DamagedState):
            return load(home, version)
    return None


def stages_of(definition: Definition) -> Mapping[str, Stage]:
    """Return the definition's stages by name, ready to run, those of its build included; planned once per process."""
    stages, build = planned(definition.declaration, definition.home), definition.build
    if build is None:
        return stages
    records = (*definition.records, *definition.beside)
    names = frozenset(public_name(record.name) for record in records if is_build(record.name))
    return {**stages, **_built(build.declaration, definition.home, names, build.generation)}


@lru_cache(maxsize=4)
def _built(declaration: PipelineDeclaration, home: Home, names: frozenset[str], generation: int) -> Mapping[str, Stage]:
    from hayase.engine.definition.build_stages import built_stages

    return built_stages(planned(declaration, home), names, generation)


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
