"""Repairs of a home: `rewrite` restores lost files from other sources, `accept_loss` gives up lost records at the owner's request.

- The declaration of a stream (`stream.json`) is restored from the newest definition.
- Producers whose segments retention has removed (`producers.json`) are forgotten: a repeated append of such a segment is then
  not recognised.
- Records of a log, by `accept_loss`: the stages that read the stream are reset, then the log continues at its current end.
  A log with a gap begins after it: the records before the gap are given up too.
  Dead letters keep their numbers: an empty letter replaces each lost one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import xxhash

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, HayaseError, StreamError, UnknownName
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import MAIN, OPERATIONS, query_of
from hayase.engine.definition.definitions import Definition, latest
from hayase.engine.definition.proposals import Prepared, amend
from hayase.engine.home import Home
from hayase.engine.results import snapshots
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import APPEND, DEAD, SETTLED, dead_table
from hayase.streams.log_directory import LogDirectory
from hayase.streams.producers import FOLDED, folded_as_bytes, folded_in
from hayase.streams.schema_evolution import DECLARATION, StoredDeclaration, stored_declaration
from hayase.streams.stream_ends import forget_end, is_output, known_end

__all__ = ["accept_loss", "rewrite"]

LOST = "this dead letter is lost: its file was missing, and the loss was accepted"


def rewrite(home: Home) -> Iterator[str]:
    """Rewrite missing or damaged files whose contents are known from elsewhere; yield a message for each file."""
    definition = latest(home)
    for path in sorted((home.path / "streams").glob("*/")):
        try:
            stored_declaration(path)
        except DamagedState:
            known = _known(definition, path.name, home)
            if known is None:
                yield f"{path / DECLARATION} cannot be written again: no definition names the stream; put back a copy"
                continue
            durable.write_atomic(path / DECLARATION, known.as_bytes())
            yield f"{path / DECLARATION} is written again, from definition {definition.version if definition else 0}"
        log = LogDirectory(path, path.name)
        with log.writing():
            if _rewrite_producers(log):
                yield f"{path / FOLDED} is written again, without the producers whose records retention has removed"


def _rewrite_producers(log: LogDirectory) -> bool:
    """Write an empty file of producers if the log needs one that is missing or damaged; whether it did. Only while writing."""
    try:
        folded_in(log.path, log.stream, log.listing())
    except (StreamError, DamagedState):
        durable.write_atomic(log.path / FOLDED, folded_as_bytes(()))
        return True
    return False


def _known(definition: Definition | None, name: str, home: Home) -> StoredDeclaration | None:
    """Return the declaration of a stream by the newest definition; None if no definition names it."""
    for internal in (DEAD, SETTLED):
        if internal.name == name:
            return StoredDeclaration(internal)
    for record in definition.records if definition is not None else ():
        if record.output.name == name and isinstance(record.output, StreamDeclaration):
            assert definition is not None
            return StoredDeclaration(
                record.output, _mark(home, record.output, range(record.generation, definition.version + 1))
            )
    for declaration in definition.declaration.streams if definition is not None else ():
        if declaration.name == name:
            return StoredDeclaration(declaration)
    return None


def _mark(home: Home, output: StreamDeclaration, versions: range) -> str:
    """Return the definition version with which a stage began, by the marks of its snapshots; by default the first of `versions`."""
    snapshot_marks = snapshots.marks(StreamLog(home.path, output))
    matches = [
        f"{version}" for version in versions if xxhash.xxh3_64_hexdigest(f"{version}".encode()) in snapshot_marks
    ]
    return matches[0] if matches else f"{versions[0]}"


def accept_loss(home: Home, stream: str) -> tuple[int, tuple[str, ...]]:
    """Let a log continue that has lost records; return how many are given up, and the stages that are reset for it."""
    path = home.path / "streams" / stream
    stored = stored_declaration(path)
    if stored is None and known_end(home.path, stream, (MAIN, OPERATIONS)):  # the whole directory is lost
        stored = _known(latest(home), stream, home)
    if stored is None:
        raise UnknownName("stream", stream, [directory.name for directory in path.parent.glob("*/")])
    if stored.mark is not None or is_output(home.path, stream, (MAIN, OPERATIONS)):
        raise HayaseError(
            f'stream "{stream}" is written by a stage, which can write it again: `hayase reset {query_of(stream)} --from earliest`'
        )
    if not path.is_dir():
        StreamLog.ensure(home.path, stored.declaration)
    log = LogDirectory(path, stream)
    with log.writing():
        old_head, dropped = log.head(), log.drop_gaps()
        index = log.arranged()
        if dropped:
            _rewrite_producers(log)
        if not dropped and old_head.missing_from(index) is None:
            raise HayaseError(f'nothing is missing in stream "{stream}"')
    reset = _begin_readers_anew(home, stream)
    with log.writing():
        forget_end(home.path, stream, (MAIN, OPERATIONS))
        log.set_head()
    lost = max(old_head.next - index.next, 0)
    if lost and stream in (DEAD.name, SETTLED.name):
        StreamLog.open(home.path, stream).append(_placeholders(stream, lost), now=max(index.running_max, 0))
    return lost + dropped, reset


def _begin_readers_anew(home: Home, stream: str) -> tuple[str, ...]:
    definition = latest(home)
    readers = (
        {record.query for record in definition.records if stream in record.inputs} if definition is not None else set()
    )
    if not readers:
        return ()
    amended = amend(home, Prepared.of, dict.fromkeys(readers, "earliest"))
    return tuple(record.name for record in amended.records if record.generation == amended.version)


def _placeholders(stream: str, count: int) -> pa.Table:
    """Return records in place of lost ones, so that later records keep their numbers."""
    if stream == DEAD.name:
        return dead_table(APPEND, None, "", None, [""] * count, [Reason(ReasonKind.LOST, LOST)] * count, 0, now=0)
    schema = SETTLED.arrow_schema
    values = {"time": 0, "letter": -1, "stage": "", "stream": "", "offset": None, "record": None}
    return pa.table(
        {name: pa.repeat(pa.scalar(values[name], schema.field(name).type), count) for name in values}, schema
    )
