"""The commit: one manifest per batch, renamed into place, is the commit point of everything the batch made.

    tasks: files written and fsynced ─▶ manifest renamed ─▶ outputs published, old state dropped (can be repeated)

A manifest names all live state, so the newest one is enough to go on from. Output files lie in `staged` until they are
renamed into their streams; a part that is no longer there has been published, which makes publishing repeatable.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from hayase.core.declarations import TableDeclaration
from hayase.core.errors import DamagedState, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, query_of
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.offsets import Batch, Offset, Position, advance, begun
from hayase.engine.batch.report import Figures, Part, Report, Run, batch_marker, version_in
from hayase.engine.batch.state import SegmentRef, refs_as_json, refs_from_json, segments
from hayase.engine.commit.tables import Tables
from hayase.engine.definition.definitions import Definition, latest, latest_version, load
from hayase.engine.home import Home, writing
from hayase.engine.integrity.heads import BEGIN_ANEW, Head, head_of, tell_head
from hayase.engine.logs import Logs, settled_end
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED
from hayase.streams.durable import fsync_directory, make_directory, remove_leftovers, write_atomic
from hayase.streams.schema_evolution import kept_in
from hayase.streams.sealed import read_sealed, seal
from hayase.streams.stream_ends import Ends, ends_of, tell_ends

if TYPE_CHECKING:
    from hayase.tables.table import Table

__all__ = ["Commits", "Manifest", "check_table_read"]

_KIND = "manifest"
_REMEDY = f"put back a copy from a backup, or let all stages begin anew: {BEGIN_ANEW}"
KEPT = 8
"""Manifests that are kept, for people who want to look; only the newest is needed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything true after a batch. `epoch` and `batch` say which batch of which checkpoint made it."""

    version: int = 0
    epoch: str = ""
    batch: int = -1
    offset: Offset = field(default_factory=Offset)
    parts: tuple[Part, ...] = ()
    begun: tuple[str, ...] = ()
    clocks: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, Mapping[int, tuple[SegmentRef, ...]]] = field(default_factory=dict)
    totals: Mapping[str, Figures] = field(default_factory=dict)
    committed_at: int = 0
    seconds: float = 0.0
    runs: tuple[Run, ...] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    """Where outputs end when all of this is carried out: of a stream the offset behind its last record, of a table the version
    of the last batch that had updates for it. What this lane has not written since its stages began is not mentioned."""

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "version": self.version,
                "epoch": self.epoch,
                "batch": self.batch,
                "offset": self.offset.as_json(),
                "parts": [asdict(each) for each in self.parts],
                "begun": self.begun,
                "clocks": self.clocks,
                "states": {
                    stage: {str(bucket): refs_as_json(refs) for bucket, refs in buckets.items()}
                    for stage, buckets in self.states.items()
                },
                "totals": {stage: asdict(each) for stage, each in self.totals.items()},
                "committed_at": self.committed_at,
                "seconds": self.seconds,
                "runs": [asdict(each) for each in self.runs],
                "ends": self.ends,
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        data: dict[str, Any] = orjson.loads(text)
        return cls(
            version=data["version"],
            epoch=data["epoch"],
            batch=data["batch"],
            offset=Offset.from_json(data["offset"]),
            parts=tuple(Part(**each) for each in data["parts"]),
            begun=tuple(data["begun"]),
            clocks=data["clocks"],
            states={
                stage: {int(bucket): refs_from_json(refs) for bucket, refs in buckets.items()}
                for stage, buckets in data["states"].items()
            },
            totals={stage: Figures(**each) for stage, each in data["totals"].items()},
            committed_at=data["committed_at"],
            seconds=data["seconds"],
            runs=tuple(Run(**each) for each in data.get("runs", ())),
            ends=data.get("ends", {}),
        )

    def files(self) -> set[str]:
        """The state files that this manifest needs."""
        return {ref.file for buckets in self.states.values() for refs in buckets.values() for ref in segments(refs)}


class Commits:
    """The manifests of a lane: one process writes them, as part of a `Ledger`, anybody may look."""

    def __init__(self, home: Home, lane: str, tables: Tables | None = None):
        self.home, self.lane = home, lane
        self.directory = home.commits(lane)
        self.tables = tables or Tables(home)
        self.done = Manifest()
        """The manifest whose promises are all kept: what follows in the logs is not in the tables yet."""
        self._logs: dict[str, StreamLog] = {}

    def latest(self) -> Manifest:
        """The newest manifest; an empty one before the first batch, and one without any stage if it is lost and all stages begin
        anew; DamagedState if it is lost otherwise."""
        head = head_of(self.home, self.lane)  # before the look: it is never ahead
        version = max([head.version, *self.versions()])
        try:
            return self.load(version) if version else Manifest()
        except DamagedState:
            if not head.version or not self._is_past(head.definition):
                raise
            return self._blank(version, head.definition)

    def _is_past(self, definition: int) -> bool:
        """Whether no stage of the lane needs anything that was committed up to a definition: all have begun anew since."""
        newest = latest(self.home)
        return newest is not None and all(each.generation > definition for each in newest.of_lane(self.lane).records)

    def _anew_since(self, definition: int) -> frozenset[str]:
        """The stages that begin anew with the next batch: what they had to publish is not needed, and may be damaged."""
        newest = latest(self.home)
        return (
            frozenset(each.name for each in newest.records if each.generation > definition) if newest else frozenset()
        )

    def _blank(self, version: int, definition: int) -> Manifest:
        return Manifest(version, offset=Offset(definition, settled=settled_end(self.home)))

    def recover(self) -> Manifest:
        """After a start: finish what the newest manifest promised, and clear away what no manifest names."""
        with writing(f"the home {self.home.path}"):
            directories = (self.home.state, self.home.staged, self.home.exchange)
            for path in (self.directory, *(each(self.lane) for each in directories)):
                make_directory(path)
            remove_leftovers(self.directory)
        manifest = self.latest()
        if not manifest.version:
            self.check_not_begun()
        anew = self._anew_since(manifest.offset.definition)
        try:
            replaced = anew | self._replaced(manifest)
            self._check_tables(manifest, replaced.union(manifest.begun))
            self._carry_out(manifest, anew, replaced, again=True)
            self._check_published(manifest, anew, replaced)
        except DamagedState:
            if not self._is_past(manifest.offset.definition):
                raise
            manifest = self._blank(manifest.version, manifest.offset.definition)
        self.done = manifest
        self._tell_head(manifest)
        self.sweep(manifest, everything=True)
        return manifest

    def take_up(self, base: Manifest, now: int) -> Manifest:
        """Take up a new definition before the first batch, so that a start does not spend one on it."""
        definition = load(self.home, latest_version(self.home)).of_lane(self.lane)
        grants = FileGate(self.home.gate(self.lane)).grants()
        end = advance(base.offset, definition, Logs(self.home, definition), grants, now)
        if definition.version == base.offset.definition or end == base.offset:
            return base
        report = Report(0, Batch(base.offset, end), (), {}, {})
        return self.commit(base, "begin", base.batch + 1, [report], now)

    def commit(
        self, base: Manifest, epoch: str, batch: int, reports: Sequence[Report], now: int, seconds: float = 0.0
    ) -> Manifest:
        """Make the reports of all buckets the new truth; `seconds` is how long the batch took, for those who watch."""
        planned = reports[0].batch
        definition = load(self.home, planned.end.definition).of_lane(self.lane)
        manifest = replace(_successor(definition, base, epoch, batch, reports, now), seconds=seconds)
        manifest = replace(manifest, ends=self._ends(base, manifest))
        path = self.path_of(manifest.version)
        with writing(f"the manifest {path}"):
            for directory in (self.home.state(self.lane), self.home.staged(self.lane)):
                fsync_directory(directory)
            write_atomic(path, seal(_KIND, manifest.as_json()))
        self._tell_head(manifest)
        self._carry_out(manifest)
        if (
            base.offset.definition == planned.end.definition
        ):  # a batch that takes up a definition reads nothing of the logs
            self._tell_ends(manifest)
        self.done = manifest
        for file in base.files() - manifest.files():
            (self.home.state(self.lane) / file).unlink(missing_ok=True)
        self.path_of(manifest.version - KEPT).unlink(missing_ok=True)
        return manifest

    def _replaced(self, manifest: Manifest) -> frozenset[str]:
        """The tables of a manifest that the newest definition begins anew, or has not. Nothing is done to them any more, so
        that a damaged one does not stand in the way of its own reset."""
        version = manifest.offset.definition
        if not version or latest_version(self.home) == version:
            return frozenset()
        newest = load(self.home, latest_version(self.home))
        kept = {each.name for each in newest.records if each.generation <= version}
        return frozenset(each.name for each in load(self.home, version).records if each.name not in kept)

    def _check_tables(self, manifest: Manifest, others: frozenset[str]) -> None:
        """A table that was begun, but for some others, must be there: what it has taken in would be forgotten in silence."""
        version = manifest.offset.definition
        for each in load(self.home, version).of_lane(self.lane).records if version else ():
            begun = each.name in manifest.offset.positions and each.name not in others
            if begun and isinstance(each.output, TableDeclaration):
                self.tables.check(each.output)

    def _tell_head(self, manifest: Manifest) -> None:
        head = Head(manifest.version, manifest.offset.definition)
        if manifest.version and head != head_of(self.home, self.lane):
            tell_head(self.home, self.lane, head)

    def _ends(self, base: Manifest, manifest: Manifest) -> dict[str, int]:
        """Where the outputs of stages will end when all is carried out. Others write dead letters too: nobody knows."""
        ends = {
            stage: end
            for stage, end in base.ends.items()
            if stage in manifest.offset.positions and stage not in manifest.begun
        }
        rows: dict[str, int] = {}
        for part in manifest.parts:
            if part.stream != DEAD.name:
                rows[part.stream] = rows.get(part.stream, 0) + part.rows
        ends |= {stream: self._log(stream).index().next + count for stream, count in rows.items()}
        return ends | {run.table: manifest.version for run in manifest.runs}

    def _tell_ends(self, manifest: Manifest) -> None:
        """Tell how far the streams reach that this lane reads or writes, now that all is carried out."""
        ends = {SETTLED.name: manifest.offset.settled} if manifest.offset.settled else {}
        for inputs in manifest.offset.positions.values():
            for stream, position in inputs.items():
                ends[stream] = max(ends.get(stream, 0), position.at)
        tables = self._table_names(manifest)
        outputs = {stream: end for stream, end in manifest.ends.items() if stream not in tables}
        told = ends_of(self.home.path, self.lane)
        if any(part.stream == DEAD.name for part in manifest.parts):
            ends[DEAD.name] = self._log(DEAD.name).index().next
        elif DEAD.name in told.ends:
            ends[DEAD.name] = told.ends[DEAD.name]
        if (now := Ends({**ends, **outputs}, tuple(sorted(outputs)))) != told:
            tell_ends(self.home.path, self.lane, now)

    def _table_names(self, manifest: Manifest) -> frozenset[str]:
        """The tables among the outputs that a manifest mentions the ends of."""
        if not manifest.ends:
            return frozenset()
        records = load(self.home, manifest.offset.definition).of_lane(self.lane).records
        return frozenset(each.name for each in records if isinstance(each.output, TableDeclaration))

    def check_not_begun(self) -> None:
        """Raise DamagedState if stages of this lane have written outputs: then there was a manifest, and it is lost."""
        from hayase.tables.stores import generation_of

        newest = latest(self.home)
        for each in newest.of_lane(self.lane).records if newest is not None else ():
            if isinstance(each.output, TableDeclaration):
                begun = generation_of(self.home.table(each.name))
            else:
                begun = _mark_of(self.home.path / "streams" / each.name)
            if begun is not None and begun.isdigit() and int(begun) >= each.generation:
                raise DamagedState(
                    f'the manifests in {self.directory} are missing, although "{query_of(each.name)}" has written its output; '
                    f"{_REMEDY}"
                )

    def check_not_longer(self, manifest: Manifest) -> None:
        """Raise DamagedState if a stream has more records than a manifest, the newest, knows of."""
        tables, anew = self._table_names(manifest), self._anew_since(manifest.offset.definition)
        for stream, end in manifest.ends.items():
            if stream not in tables and stream not in anew:
                found = self._log(stream).index().next
                if found > end:
                    raise self._newer_lost(manifest, stream, f"records up to {found}")

    def _newer_lost(self, manifest: Manifest, output: str, has: str) -> DamagedState:
        return DamagedState(
            f'"{output}" has {has}, and the newest manifest of lane {self.lane}, {self.path_of(manifest.version)}, knows only of '
            f"{manifest.ends[output]}: a newer manifest is missing, or an older copy was put in its place; {_REMEDY}"
        )

    def _check_published(self, manifest: Manifest, anew: frozenset[str], replaced: frozenset[str]) -> None:
        """See that outputs are neither shorter nor longer than what was committed."""
        tables = self._table_names(manifest)
        for stream, end in manifest.ends.items():
            if stream in anew or stream in replaced:
                continue
            found = self._taken_in(stream, manifest) if stream in tables else self._log(stream).index().next
            if found > end:
                raise self._newer_lost(
                    manifest, stream, f"batch {found}" if stream in tables else f"records up to {found}"
                )
            if found < end and stream in tables:
                raise _older_copy(self.home, stream, self.lane, end)
            if found < end:
                raise DamagedState(
                    f'stream "{stream}" ends before record {found}, and batch {manifest.version} of lane {self.lane} wrote up '
                    f"to {end}: a file in {self.home.staged(self.lane)} or {self._log(stream).path} is missing; put it back from a "
                    f"backup, or let the stage begin anew: `hayase reset {query_of(stream)} --from earliest`"
                )
        if manifest.offset.settled > settled_end(self.home):
            raise DamagedState(
                f"{self.home.path / 'streams' / SETTLED.name} has fewer records than lane {self.lane} has read; put its missing "
                f"files back from a backup"
            )

    def _carry_out(
        self,
        manifest: Manifest,
        anew: frozenset[str] = frozenset(),
        replaced: frozenset[str] = frozenset(),
        again: bool = False,
    ) -> None:
        """Publish, but for streams of stages that begin `anew` and tables that are `replaced`. Every step can be repeated: a part
        that is gone is published, an emptied stream is empty."""
        if manifest.begun:
            definition = load(self.home, manifest.offset.definition)
            for name in manifest.begun:
                if name in anew:
                    continue
                output = definition.record(name).output
                if isinstance(output, TableDeclaration):
                    if name not in replaced:
                        self.tables.begin(output, f"{definition.version}", again)
                else:
                    self._logs[name] = StreamLog.anew(self.home.path, output, mark=f"{definition.version}")
        parts = [each for each in manifest.parts if each.stream not in anew]
        parts.sort(key=lambda each: (each.stream, each.order))
        last = {each.stream: each for each in parts}
        for part in parts:  # the last one says with it how far the stream is complete
            clock = manifest.clocks.get(part.stream) if part is last[part.stream] else None
            clock = None if clock is not None and clock >= END else clock  # finished in a step of its own
            self._log(part.stream).publish(self.home.staged(self.lane) / part.file, clock, again=True)
        for stream, clock in manifest.clocks.items():
            if stream in anew:
                continue
            if clock >= END:
                self._log(stream).finish(max(each.peak for each in manifest.offset.positions[stream].values()))
            else:
                if self._log(stream).index().finished:  # somebody reads it who goes on, and so does it
                    self._log(stream).reopen(clock)
                self._log(stream).advance(clock)
        if manifest.runs:
            self._take_in(manifest, replaced)

    def _take_in(self, manifest: Manifest, replaced: frozenset[str]) -> None:
        """Bring the runs into their tables, those of a table all at once, and once however often this is called."""
        definition = load(self.home, manifest.offset.definition)
        staged = self.home.staged(self.lane)
        for name in sorted({each.table for each in manifest.runs} - replaced):
            output = definition.record(name).output
            assert isinstance(output, TableDeclaration)
            files = [staged / each.file for each in manifest.runs if each.table == name]
            with writing(f'table "{name}"'):
                self.tables.own(output).ingest(files, batch_marker(self.lane, manifest.version))

    def _taken_in(self, table: str, manifest: Manifest) -> int:
        """The version of the newest batch of this lane that a table has taken in; 0 if there is none."""
        output = load(self.home, manifest.offset.definition).record(table).output
        assert isinstance(output, TableDeclaration)
        return version_in(self.tables.own(output).newest_marker(), self.lane)

    def sweep(self, manifest: Manifest, everything: bool = False) -> int:
        """Delete state and staged files that this manifest does not name: left by attempts that failed.

        While a lane runs, those of later versions are left alone: they belong to the batch at hand.
        """
        named = manifest.files()
        count = 0
        for directory in (self.home.state(self.lane), self.home.staged(self.lane)):
            for path in directory.iterdir():
                if path.name not in named and (everything or path.name[:12] <= f"{manifest.version:012d}"):
                    path.unlink(missing_ok=True)
                    count += 1
        return count

    def _log(self, stream: str) -> StreamLog:
        if stream not in self._logs:
            if stream == DEAD.name:
                self._logs[stream] = StreamLog.ensure(self.home.path, DEAD)
            else:
                self._logs[stream] = self._output(stream)
        return self._logs[stream]

    def _output(self, stream: str) -> StreamLog:
        try:
            return StreamLog.open(self.home.path, stream)
        except UnknownName as error:
            raise DamagedState(
                f'{self.home.path / "streams" / stream} is missing, although stage "{query_of(stream)}" was begun; put it back '
                f"from a backup, or let the stage begin anew: `hayase reset {query_of(stream)} --from earliest`"
            ) from error

    def versions(self) -> list[int]:
        """The versions of the manifests that are there, oldest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(int(name[:12]) for name in names if name.endswith(".json") and name[:12].isdigit())

    def path_of(self, version: int) -> Path:
        """The file of a manifest."""
        return self.directory / f"{version:012d}.json"

    def load(self, version: int) -> Manifest:
        """The manifest of a version; DamagedState if it cannot be had."""
        path = self.path_of(version)
        try:
            manifest = Manifest.from_json(read_sealed(path, _KIND, _REMEDY))
        except FileNotFoundError as error:
            raise DamagedState(f"the {_KIND} {path} is missing; {_REMEDY}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the {_KIND} {path} cannot be read: {error}; {_REMEDY}") from error
        if manifest.version != version:
            raise DamagedState(f"the {_KIND} {path} is that of version {manifest.version}; {_REMEDY}")
        return manifest


def check_table_read(home: Home, table: Table) -> None:
    """Raise DamagedState if a table that was opened for reading lacks updates of a batch that was carried out.

    A batch whose runs are still in `staged` is not: nobody has taken them in yet. A table that begins anew is left alone.
    """
    name = table.declaration.name
    for lane in (MAIN, OPERATIONS):
        commits = Commits(home, lane)
        try:
            manifest, newest = commits.latest(), latest(home)
        except DamagedState:  # reading a table needs neither
            continue
        end = manifest.ends.get(name, 0)
        runs = [each.file for each in manifest.runs if each.table == name] if end == manifest.version else []
        if not end or any((home.staged(lane) / each).exists() for each in runs):
            continue
        since = [each.generation for each in newest.records if each.name == name] if newest is not None else []
        if not since or since[0] > manifest.offset.definition:
            continue
        table.refresh()
        if version_in(table.newest_marker(), lane) < end and commits.latest().version == manifest.version:
            raise _older_copy(home, name, lane, end)


def _older_copy(home: Home, table: str, lane: str, version: int) -> DamagedState:
    path = home.table(table)
    problem = "is an older copy" if path.exists() else "is missing"
    return DamagedState(
        f'table "{table}" lacks the updates of batch {version} of lane {lane}: {path} {problem}; restore a newer copy of it and '
        f"of {path.name}.seal, or rebuild the table from its streams with `hayase reset {table} --from earliest` and the next run "
        "(rows that were loaded from files must then be loaded again)"
    )


def _mark_of(path: Path) -> str | None:
    """The mark of the stream in a directory; None if it has none or cannot be read."""
    try:
        kept = kept_in(path)
    except DamagedState:
        return None
    return None if kept is None else kept.mark


def _successor(
    definition: Definition, base: Manifest, epoch: str, batch: int, reports: Sequence[Report], now: int
) -> Manifest:
    planned = reports[0].batch
    if planned.start != base.offset and base.version:
        raise DamagedState(
            f"batch {batch} begins where manifest {base.version} does not end; the checkpoint belongs to another time. "
            f"Delete {definition.home.path / 'checkpoints'}: the manifests say where to go on"
        )
    if planned.start.definition == definition.version and len(reports) != definition.buckets:
        raise DamagedState(
            f"batch {batch} has {len(reports)} reports for {definition.buckets} buckets; this is a fault in Hayase"
        )
    begins = tuple(each.name for each in begun(planned.start, definition))
    lives = {each.identity for each in definition.records}
    states: dict[str, dict[int, tuple[SegmentRef, ...]]] = {
        identity: dict(buckets) for identity, buckets in base.states.items() if identity in lives
    }
    totals = {each.name: Figures() for each in definition.records}
    for each in definition.records:
        if each.name in base.totals and each.name not in begins:
            totals[each.name].add(base.totals[each.name])
    for report in reports:
        for identity, refs in report.states.items():
            states.setdefault(identity, {})[report.bucket] = refs
        for stage, figures in report.figures.items():
            totals[stage].add(figures)
    return Manifest(
        version=base.version + 1,
        epoch=epoch,
        batch=batch,
        offset=planned.end,
        parts=tuple(part for report in reports for part in report.parts),
        begun=begins,
        clocks={
            stage: _clock(definition, stage, inputs)
            for stage, inputs in planned.end.positions.items()
            if not isinstance(definition.record(stage).output, TableDeclaration)
        },
        states=states,
        totals=totals,
        committed_at=max(now, base.committed_at),  # a wall clock that was set back makes nothing older
        runs=tuple(run for report in reports for run in report.runs),
    )


def _clock(definition: Definition, stage: str, inputs: Mapping[str, Position]) -> int:
    """How far the output of a stage is complete: as far as its inputs are. What it reads of its own making, in a loop, does
    not count, but as long as it may go round again there is no end."""
    behind = definition.readers(stage) - {stage}
    loops = {stream for stream in inputs if stream in behind or stream == stage}
    clock = min((each.clock for stream, each in inputs.items() if stream not in loops), default=BEGINNING)
    if loops and clock >= END:
        return max(each.peak for each in inputs.values()) + 1
    return clock
