"""Manifests and their commit: one manifest per batch, renamed into place, is the commit point of all that the batch wrote.

    tasks: files written and fsynced ─▶ manifest renamed ─▶ outputs published, old state dropped (idempotent)

A manifest names all live state, so the newest one is enough to resume from. Output files stay in `staged` until they are
renamed into their streams; a part that is no longer there has been published, which makes publishing idempotent.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.core.errors import DamagedState, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, public_name, query_of
from hayase.core.timeline import reach
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.gate import FileGate
from hayase.engine.batch.offsets import Batch, Offset, Position, adopted, advance, begun, has_caught_up
from hayase.engine.batch.placed_rows import merge_placed
from hayase.engine.batch.report import Figures, Part, Report, Run, batch_marker, version_in
from hayase.engine.batch.state import SegmentRef, segments, states_from_json
from hayase.engine.commit.build_outputs import (
    adopt_output,
    begin_output,
    log_of_letters,
    remove_builds,
    stage_letters,
)
from hayase.engine.commit.tables import Tables
from hayase.engine.definition.definitions import Definition, StageRecord, latest, latest_version, load
from hayase.engine.home import Home, writing
from hayase.engine.integrity.heads import BEGIN_ANEW, Head, head_of, write_head
from hayase.engine.logs import Logs, settled_end
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED
from hayase.streams.durable import fsync_directory, make_directory, remove_leftovers, write_atomic
from hayase.streams.schema_evolution import stored_declaration
from hayase.streams.sealed import read_sealed, seal
from hayase.streams.segments import stage as stage_segment
from hayase.streams.stream_ends import Ends, ends_of, write_ends

if TYPE_CHECKING:
    from hayase.tables.table import Table

__all__ = ["BatchTimes", "Commits", "Manifest", "check_table_read"]

_KIND = "manifest"
_REMEDY = f"put back a copy from a backup, or let all stages begin anew: {BEGIN_ANEW}"
KEPT = 8
"""Number of manifests to keep for inspection; only the newest one is needed."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """The committed state of a lane after a batch. `epoch` and `batch` identify the Spark batch that produced it."""

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
    """Where each output ends once this manifest is applied: for a stream, the offset after its last record; for a table, the
    version of the last batch with updates for it. Outputs that this lane has not written since their stages began are absent."""
    adopted: tuple[str, ...] = ()
    """Stages that took over from their builds: the outputs of these are put in the place of their own."""
    lanes: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Of several manifests that were merged: the version of each lane. Not in the file."""

    def as_json(self) -> bytes:
        return orjson.dumps(
            {
                "version": self.version,
                "epoch": self.epoch,
                "batch": self.batch,
                "offset": self.offset.as_json(),
                "parts": self.parts,
                "begun": self.begun,
                "clocks": self.clocks,
                "states": self.states,
                "totals": self.totals,
                "committed_at": self.committed_at,
                "seconds": self.seconds,
                "runs": self.runs,
                "ends": self.ends,
                "adopted": self.adopted,
            },
            option=orjson.OPT_NON_STR_KEYS,
        )

    @classmethod
    def from_json(cls, text: bytes) -> Manifest:
        data: dict[str, Any] = orjson.loads(text)
        return cls(
            version=data["version"],
            epoch=data["epoch"],
            batch=data["batch"],
            offset=Offset.from_json(data["offset"]),
            parts=tuple(Part(**part) for part in data["parts"]),
            begun=tuple(data["begun"]),
            clocks=data["clocks"],
            states=states_from_json(data["states"]),
            totals={stage: Figures(**figures) for stage, figures in data["totals"].items()},
            committed_at=data["committed_at"],
            seconds=data["seconds"],
            runs=tuple(Run(**run) for run in data.get("runs", ())),
            ends=data.get("ends", {}),
            adopted=tuple(data.get("adopted", ())),
        )

    def files(self) -> set[str]:
        """Return the names of the state files that this manifest refers to."""
        return {ref.file for buckets in self.states.values() for refs in buckets.values() for ref in segments(refs)}


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """When a batch that was just committed was where: its reports were there, its manifest was renamed, and its outputs were
    published, by the wall clock in nanoseconds. `base` is the manifest before it."""

    lane: str
    base: Manifest
    manifest: Manifest
    reported: int
    renamed: int
    published: int


class Commits:
    """The manifests of a lane. Only the process that owns the `Ledger` writes them; any process may read them."""

    def __init__(
        self,
        home: Home,
        lane: str,
        tables: Tables | None = None,
        on_batch: Callable[[BatchTimes], None] = lambda times: None,
    ):
        self.home, self.lane, self._on_batch = home, lane, on_batch
        self.directory = home.commits(lane)
        self.tables = tables or Tables(home)
        self.done = Manifest()
        """The last manifest that is fully applied; records after it are not in the tables yet."""
        self._logs: dict[str, StreamLog] = {}

    def latest(self) -> Manifest:
        """Return the newest manifest, or an empty one before the first batch.

        If the newest manifest is lost, return one without stages when all stages have been reset since; otherwise raise
        DamagedState.
        """
        head = head_of(self.home, self.lane)  # read before listing the files: a head is never ahead of them
        version = max([head.version, *self.versions()])
        try:
            return self.load(version) if version else Manifest()
        except DamagedState:
            if not head.version or not self._is_past(head.definition):
                raise
            return self._blank(version, head.definition)

    def _is_past(self, definition: int) -> bool:
        """Whether all stages of the lane were reset after a definition, so that nothing committed up to it is needed."""
        newest = latest(self.home)
        return newest is not None and all(
            record.generation > definition for record in newest.of_lane(self.lane).records
        )

    def _anew_since(self, definition: int) -> frozenset[str]:
        """Return the stages that the next batch resets: their unpublished output is not needed, and may be damaged."""
        newest = latest(self.home)
        return (
            frozenset(record.name for record in newest.records if record.generation > definition)
            if newest
            else frozenset()
        )

    def _blank(self, version: int, definition: int) -> Manifest:
        return Manifest(version, offset=Offset(definition, settled=settled_end(self.home)))

    def recover(self) -> Manifest:
        """Finish applying the newest manifest after a start, and delete files that no manifest names."""
        with writing(f"the home {self.home.path}"):
            directories = (self.home.state, self.home.staged, self.home.exchange)
            for path in (self.directory, *(directory(self.lane) for directory in directories)):
                make_directory(path)
            for path in (self.directory, self.home.path / "heads", self.home.path / "gates"):
                remove_leftovers(path)
        manifest = self.latest()
        if not manifest.version:
            self.check_not_begun()
        anew = self._anew_since(manifest.offset.definition)
        try:
            replaced = anew | self._replaced(manifest)
            self._check_tables(manifest, replaced.union(manifest.begun))
            with self.home.committing():
                self._carry_out(manifest, anew, replaced, again=True)
            self._check_published(manifest, anew, replaced)
        except DamagedState:
            if not self._is_past(manifest.offset.definition):
                raise
            manifest = self._blank(manifest.version, manifest.offset.definition)
        self.done = manifest
        self._tell_head(manifest)
        self.sweep(manifest, everything=True)
        if self.lane == MAIN:
            with contextlib.suppress(DamagedState):  # the definition is lost, and all stages have been reset since
                remove_builds(self.home, self._definition(manifest))
        return manifest

    def _definition(self, manifest: Manifest) -> Definition | None:
        version = manifest.offset.definition
        return load(self.home, version) if version else None

    def finish_build(self, manifest: Manifest, now: int) -> None:
        """Let what is built beside the stages of the newest manifest, given here, replace these if it has caught up: from the next
        batch on, by a definition that this writes."""
        is_newest = self.lane == MAIN and manifest.offset.definition == latest_version(self.home)
        definition = self._definition(manifest) if is_newest else None
        if definition is not None and definition.build is not None:
            lane = definition.of_lane(self.lane)
            if has_caught_up(manifest.offset, lane, Logs(self.home, lane), now):
                from hayase.engine.definition.builds import finish_build  # seldom needed

                finish_build(self.home, definition.version)

    def take_up(self, base: Manifest, now: int) -> Manifest:
        """Switch to the newest definition before the first batch, so that a start needs no extra batch for it."""
        self.finish_build(base, now)
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
        """Commit the reports of all buckets as the next manifest and apply it. `seconds` is the duration of the batch."""
        planned, reported = reports[0].batch, time.time_ns()
        definition = load(self.home, planned.end.definition).of_lane(self.lane)
        merged = self._merge_placed(definition, base.version + 1, reports, now)
        manifest = _successor(definition, base, epoch, batch, reports, now)
        letters = self._letters_of_build(definition, manifest, now)
        manifest = replace(manifest, parts=(*manifest.parts, *merged, *letters), seconds=seconds)
        manifest = replace(manifest, ends=self._ends(base, manifest))
        with self.home.committing():
            renamed = self._commit(base, manifest, planned)
            published = time.time_ns()
            self._remove_superseded(base, manifest, reports)
            if self.lane == MAIN and base.offset.definition != planned.end.definition:
                remove_builds(self.home, definition)
        self.finish_build(manifest, now)
        self._on_batch(BatchTimes(self.lane, base, manifest, reported, renamed, published))
        return manifest

    def _commit(self, base: Manifest, manifest: Manifest, planned: Batch) -> int:
        """Write a manifest, which commits it, and apply it; return when it was committed, in nanoseconds."""
        path = self.path_of(manifest.version)
        with writing(f"the manifest {path}"):
            for directory in (self.home.state(self.lane), self.home.staged(self.lane)):
                fsync_directory(directory)
            reach("directories synced")
            write_atomic(path, seal(_KIND, manifest.as_json()))
        reach("manifest renamed")
        renamed = time.time_ns()
        self._tell_head(manifest)
        self._carry_out(manifest)
        reach("outputs published")
        if base.offset.definition == planned.end.definition:  # a batch that switches the definition reads no records
            self._tell_ends(manifest)
        self.done = manifest
        return renamed

    def _remove_superseded(self, base: Manifest, manifest: Manifest, reports: Sequence[Report]) -> None:
        """Delete what the manifest before needed and this one does not."""
        for placed in (placed for report in reports for placed in report.placed):
            (self.home.staged(self.lane) / placed.file).unlink(missing_ok=True)
        for file in base.files() - manifest.files():
            (self.home.state(self.lane) / file).unlink(missing_ok=True)
        self.path_of(manifest.version - KEPT).unlink(missing_ok=True)

    def _letters_of_build(self, definition: Definition, manifest: Manifest, now: int) -> Iterator[Part]:
        """Stage the dead letters of a build that this manifest finishes."""
        for generation in {definition.record(name).generation for name in manifest.adopted}:
            yield from stage_letters(self.home, self.lane, generation, manifest.version, now)

    def _merge_placed(
        self, definition: Definition, version: int, reports: Sequence[Report], now: int
    ) -> Iterator[Part]:
        """Merge the rows of all buckets that have places, to one durable part of each stream."""
        files = sorted((file for report in reports for file in report.placed), key=lambda file: file.stream)
        for stream, of_stream in groupby(files, key=lambda file: file.stream):
            output = definition.record(stream).output
            assert isinstance(output, StreamDeclaration)
            directory, name = self.home.staged(self.lane), f"{version:012d}-{uuid.uuid4().hex}.seg"
            rows = merge_placed(directory, list(of_stream), output)
            stage_segment(directory, rows, output, name, written_at=now, confirm=False)
            yield Part(stream, name, rows.num_rows, 0)

    def _replaced(self, manifest: Manifest) -> frozenset[str]:
        """Return the stages of a manifest that the newest definition resets or no longer has. Their tables are left alone, so
        that a damaged table does not prevent its own reset."""
        version = manifest.offset.definition
        if not version or latest_version(self.home) == version:
            return frozenset()
        newest = load(self.home, latest_version(self.home))
        unchanged = {record.name for record in newest.records if record.generation <= version}
        return frozenset(record.name for record in load(self.home, version).records if record.name not in unchanged)

    def _check_tables(self, manifest: Manifest, others: frozenset[str]) -> None:
        """Raise DamagedState if a table that has begun, and is not in `others`, is missing or damaged: its rows
        would be lost silently."""
        version = manifest.offset.definition
        for record in load(self.home, version).of_lane(self.lane).records if version else ():
            begun = record.name in manifest.offset.positions and record.name not in others
            if begun and isinstance(record.output, TableDeclaration):
                self.tables.check(record.output)

    def _tell_head(self, manifest: Manifest) -> None:
        head = Head(manifest.version, manifest.offset.definition)
        if manifest.version and head != head_of(self.home, self.lane):
            write_head(self.home, self.lane, head)

    def _ends(self, base: Manifest, manifest: Manifest) -> dict[str, int]:
        """Return where each output ends once the manifest is applied. `_dead` is left out: others append to it too."""
        replaced = {*manifest.begun, *manifest.adopted}
        ends = {
            stage: end
            for stage, end in base.ends.items()
            if stage in manifest.offset.positions and stage not in replaced
        }
        for record in self._adopted(manifest):
            if (build := record.as_build().name) in base.ends:
                ends[record.name] = base.ends[build]
        rows: dict[str, int] = {}
        for part in manifest.parts:
            if public_name(part.stream) != DEAD.name:
                rows[part.stream] = rows.get(part.stream, 0) + part.rows
        ends |= {stream: self._log(stream).index().next + count for stream, count in rows.items()}
        return ends | {run.table: manifest.version for run in manifest.runs}

    def _adopted(self, manifest: Manifest) -> list[StageRecord]:
        """Return the records of the stages that a manifest lets take over from their builds."""
        definition = self._definition(manifest) if manifest.adopted else None
        return [] if definition is None else [definition.record(name) for name in manifest.adopted]

    def _tell_ends(self, manifest: Manifest) -> None:
        """Note where the streams that this lane reads or writes end, after the manifest has been applied."""
        ends = {SETTLED.name: manifest.offset.settled} if manifest.offset.settled else {}
        for inputs in manifest.offset.positions.values():
            for stream, position in inputs.items():
                ends[stream] = max(ends.get(stream, 0), position.at)
        tables = self._table_names(manifest)
        outputs = {stream: end for stream, end in manifest.ends.items() if stream not in tables}
        noted = ends_of(self.home.path, self.lane)
        if any(part.stream == DEAD.name for part in manifest.parts):
            ends[DEAD.name] = self._log(DEAD.name).index().next
        elif DEAD.name in noted.ends:
            ends[DEAD.name] = noted.ends[DEAD.name]
        if (current := Ends({**ends, **outputs}, tuple(sorted(outputs)))) != noted:
            write_ends(self.home.path, self.lane, current)

    def _table_names(self, manifest: Manifest) -> frozenset[str]:
        """Return the names of the tables among the outputs in `manifest.ends`."""
        if not manifest.ends:
            return frozenset()
        records = load(self.home, manifest.offset.definition).of_lane(self.lane).records
        return frozenset(record.name for record in records if isinstance(record.output, TableDeclaration))

    def check_not_begun(self) -> None:
        """Raise DamagedState if stages of this lane have written output although there is no manifest: the manifest is lost."""
        newest = latest(self.home)
        for record in newest.of_lane(self.lane).records if newest is not None else ():
            if isinstance(record.output, TableDeclaration):
                from hayase.tables.stores import generation_of

                begun = generation_of(self.home.table(record.name))
            else:
                begun = _mark_of(self.home.path / "streams" / record.name)
            if begun is not None and begun.isdigit() and int(begun) >= record.generation:
                raise DamagedState(
                    f'the manifests in {self.directory} are missing, although "{query_of(record.name)}" has written its output',
                    _REMEDY,
                )

    def check_not_longer(self, manifest: Manifest) -> None:
        """Raise DamagedState if a stream has more records than the newest manifest, given here, has committed."""
        tables, anew = self._table_names(manifest), self._anew_since(manifest.offset.definition)
        for stream, end in manifest.ends.items():
            if stream not in tables and stream not in anew:
                actual_end = self._log(stream).index().next
                if actual_end > end:
                    raise self._newer_lost(manifest, stream, f"records up to {actual_end}")

    def _newer_lost(self, manifest: Manifest, output: str, has: str) -> DamagedState:
        return DamagedState(
            f'"{output}" has {has}, and the newest manifest of lane {self.lane}, {self.path_of(manifest.version)}, knows only of '
            f"{manifest.ends[output]}: a newer manifest is missing, or an older copy was put in its place",
            _REMEDY,
        )

    def _check_published(self, manifest: Manifest, anew: frozenset[str], replaced: frozenset[str]) -> None:
        """Raise DamagedState if an output is shorter or longer than what was committed."""
        tables = self._table_names(manifest)
        for stream, end in manifest.ends.items():
            if stream in anew or stream in replaced:
                continue
            actual_end = self._taken_in(stream, manifest) if stream in tables else self._log(stream).index().next
            if actual_end > end:
                raise self._newer_lost(
                    manifest, stream, f"batch {actual_end}" if stream in tables else f"records up to {actual_end}"
                )
            if actual_end < end and stream in tables:
                raise _older_copy(self.home, stream, self.lane, end)
            if actual_end < end:
                raise DamagedState(
                    f'stream "{stream}" ends before record {actual_end}, and batch {manifest.version} of lane {self.lane} wrote up '
                    f"to {end}: a file in {self.home.staged(self.lane)} or {self._log(stream).path} is missing",
                    f"put it back from a backup, or let the stage begin anew: `hayase reset {query_of(stream)} --from earliest`",
                )
        if manifest.offset.settled > settled_end(self.home):
            raise DamagedState(
                f"{self.home.path / 'streams' / SETTLED.name} has fewer records than lane {self.lane} has read",
                "put its missing files back from a backup",
            )

    def _carry_out(
        self,
        manifest: Manifest,
        anew: frozenset[str] = frozenset(),
        replaced: frozenset[str] = frozenset(),
        again: bool = False,
    ) -> None:
        """Apply a manifest: publish outputs, move clocks, ingest sorted runs. Streams of stages in `anew` and tables in `replaced`
        are skipped. Every step is idempotent: a missing part has been published, and emptying an empty stream does nothing."""
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
                    self._logs[name] = begin_output(self.home, definition.record(name))
        for record in self._adopted(manifest):
            if record.name not in anew:
                self._logs[record.name] = adopt_output(self.home, record)
                self._logs.pop(record.as_build().name, None)
        parts = [staged for staged in manifest.parts if staged.stream not in anew]
        parts.sort(key=lambda staged: (staged.stream, staged.order))
        for stream, in_order in groupby(parts, key=lambda staged: staged.stream):
            clock = manifest.clocks.get(stream)
            clock = None if clock is not None and clock >= END else clock  # `finish` below does that
            files = [self.home.staged(self.lane) / part.file for part in in_order]
            self._log(stream).publish_all(files, clock, again=True)
        for stream, clock in manifest.clocks.items():
            if stream in anew:
                continue
            if clock >= END:
                self._log(stream).finish(max(position.peak for position in manifest.offset.positions[stream].values()))
            else:
                if self._log(stream).index().finished:  # a new stage that reads it continues, so the stream is reopened
                    self._log(stream).reopen(clock)
                self._log(stream).advance(clock)
        if manifest.runs:
            self.take_in(manifest, replaced)

    def take_in(self, manifest: Manifest, replaced: frozenset[str]) -> None:
        """Ingest the sorted runs into their tables: atomically per table, and only once however often this is called."""
        definition = load(self.home, manifest.offset.definition)
        staged = self.home.staged(self.lane)
        for name in sorted({run.table for run in manifest.runs} - replaced):
            output = definition.record(name).output
            assert isinstance(output, TableDeclaration)
            files = [staged / run.file for run in manifest.runs if run.table == name]
            with writing(f'table "{name}"'):
                self.tables.own(output).ingest(files, batch_marker(self.lane, manifest.version))

    def _taken_in(self, table: str, manifest: Manifest) -> int:
        """Return the version of the newest batch of this lane that a table has ingested; 0 if there is none."""
        output = load(self.home, manifest.offset.definition).record(table).output
        assert isinstance(output, TableDeclaration)
        return version_in(self.tables.own(output).newest_marker(), self.lane)

    def sweep(self, manifest: Manifest, everything: bool = False) -> int:
        """Delete state and staged files that this manifest does not name, as failed attempts leave them; return how many.

        Unless `everything` is set, files of later versions are kept: while a lane runs, they belong to the current batch.
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
            if public_name(stream) == DEAD.name:
                self._logs[stream] = log_of_letters(self.home, stream)
            else:
                self._logs[stream] = self._output(stream)
        return self._logs[stream]

    def _output(self, stream: str) -> StreamLog:
        try:
            return StreamLog.open(self.home.path, stream)
        except UnknownName as error:
            raise DamagedState(
                f'{self.home.path / "streams" / stream} is missing, although stage "{query_of(stream)}" was begun',
                f"put it back from a backup, or let the stage begin anew: `hayase reset {query_of(stream)} --from earliest`",
            ) from error

    def versions(self) -> list[int]:
        """Return the versions of the existing manifests, oldest first."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return []
        return sorted(int(name[:12]) for name in names if name.endswith(".json") and name[:12].isdigit())

    def path_of(self, version: int) -> Path:
        """Return the path of a manifest."""
        return self.directory / f"{version:012d}.json"

    def load(self, version: int) -> Manifest:
        """Return the manifest of a version; raise DamagedState if it is missing or damaged."""
        path = self.path_of(version)
        try:
            manifest = Manifest.from_json(read_sealed(path, _KIND, _REMEDY))
        except FileNotFoundError as error:
            raise DamagedState(f"the {_KIND} {path} is missing", _REMEDY) from error
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(f"the {_KIND} {path} cannot be read: {error}", _REMEDY) from error
        if manifest.version != version:
            raise DamagedState(f"the {_KIND} {path} is that of version {manifest.version}", _REMEDY)
        return manifest


def check_table_read(home: Home, table: Table) -> None:
    """Raise DamagedState if a table that was opened for reading lacks updates of an applied batch.

    A batch whose sorted runs are still in `staged` is not applied yet. A table that is about to be reset is not checked.
    """
    name = table.declaration.name
    for lane in (MAIN, OPERATIONS):
        commits = Commits(home, lane)
        try:
            manifest, newest = commits.latest(), latest(home)
        except DamagedState:  # reading a table needs neither manifest nor definition
            continue
        end = manifest.ends.get(name, 0)
        runs = [run.file for run in manifest.runs if run.table == name] if end == manifest.version else []
        if not end or any((home.staged(lane) / file).exists() for file in runs):
            continue
        generations = (
            [record.generation for record in newest.records if record.name == name] if newest is not None else []
        )
        if not generations or generations[0] > manifest.offset.definition:
            continue
        table.refresh()
        if version_in(table.newest_marker(), lane) < end and commits.latest().version == manifest.version:
            raise _older_copy(home, name, lane, end)


def _older_copy(home: Home, table: str, lane: str, version: int) -> DamagedState:
    path = home.table(table)
    problem = "is an older copy" if path.exists() else "is missing"
    return DamagedState(
        f'table "{table}" lacks the updates of batch {version} of lane {lane}: {path} {problem}',
        f"restore a newer copy of it and of {path.name}.seal, or rebuild the table from its streams with "
        f"`hayase reset {table} --from earliest` and the next run (rows that were loaded from files must then be loaded again)",
    )


def _mark_of(path: Path) -> str | None:
    """Return the mark of the stream in a directory; None if it has no mark or cannot be read."""
    try:
        stored = stored_declaration(path)
    except DamagedState:
        return None
    return None if stored is None else stored.mark


def _successor(
    definition: Definition, base: Manifest, epoch: str, batch: int, reports: Sequence[Report], now: int
) -> Manifest:
    planned = reports[0].batch
    if planned.start != base.offset and base.version:
        raise DamagedState(
            f"batch {batch} begins where manifest {base.version} does not end",
            f"the checkpoint belongs to another time: delete {definition.home.path / 'checkpoints'}; manifests say where to go on",
        )
    if planned.start.definition == definition.version and len(reports) != definition.tasks:
        raise DamagedState(
            f"batch {batch} has {len(reports)} reports for {definition.tasks} buckets", "this is a fault in Hayase"
        )
    begun_stages = tuple(record.name for record in begun(planned.start, definition))
    builds = {record.name: record.as_build() for record in adopted(planned.start, definition)}
    states: dict[str, dict[int, tuple[SegmentRef, ...]]] = {}
    totals = {record.name: Figures() for record in definition.records}
    for record in definition.records:
        before = builds.get(record.name, record)
        if before.identity in base.states:
            states[record.identity] = dict(base.states[before.identity])
        if before.name in base.totals and record.name not in begun_stages:
            totals[record.name].add(base.totals[before.name])
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
        begun=begun_stages,
        clocks={
            stage: _clock(definition, stage, inputs)
            for stage, inputs in planned.end.positions.items()
            if not isinstance(definition.record(stage).output, TableDeclaration)
        },
        states=states,
        totals=totals,
        committed_at=max(now, base.committed_at),  # never earlier than before, even if the wall clock was set back
        runs=tuple(run for report in reports for run in report.runs),
        adopted=tuple(builds),
    )


def _clock(definition: Definition, stage: str, inputs: Mapping[str, Position]) -> int:
    """Return the clock of a stage's output: the least clock of its inputs. Inputs that depend on the stage's own output (loops)
    do not count, but while there is one, the clock never reaches the end of time."""
    readers = definition.readers(stage) - {stage}
    loop_streams = {stream for stream in inputs if stream in readers or stream == stage}
    clock = min(
        (position.clock for stream, position in inputs.items() if stream not in loop_streams), default=BEGINNING
    )
    if loop_streams and clock >= END:
        return max(position.peak for position in inputs.values()) + 1
    return clock
