"""Repairs: what is lost in a home and can be written again is, and what cannot be is given up, where its owner says so.

- The declaration of a stream (`stream.json`) stands in the newest definition too.
- Producers whose segments retention has removed (`producers.json`): without them a repeated append of such a segment is not
  recognised.
- Records of a log, by `accept_loss`: the stages that read the stream begin anew, then the log goes on where it ends now.
  A log with a gap begins behind it: what lies before the gap is given up too.
  Dead letters keep their numbers: an empty one stands in the place of each that is lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import xxhash

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DamagedState, HayaseError, StreamError, UnknownName
from hayase.core.stages import MAIN, OPERATIONS, query_of
from hayase.engine.definition.definitions import Definition, amend, latest
from hayase.engine.home import Home
from hayase.engine.results import snapshots
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import APPEND, DEAD, SETTLED, dead_table
from hayase.streams.log_directory import LogDirectory
from hayase.streams.producers import FOLDED, folded_as_bytes, folded_in
from hayase.streams.schema_evolution import DECLARATION, Kept, kept_in
from hayase.streams.stream_ends import forget_end, is_output

__all__ = ["accept_loss", "rewrite"]

LOST = "this dead letter is lost: its file was missing, and the loss was accepted"


def rewrite(home: Home) -> Iterator[str]:
    """Write again what is missing or damaged and known from elsewhere; tells of each file."""
    definition = latest(home)
    for path in sorted((home.path / "streams").glob("*/")):
        try:
            kept_in(path)
        except DamagedState:
            kept = _known(definition, path.name, home)
            if kept is None:
                yield f"{path / DECLARATION} cannot be written again: no definition names the stream; put back a copy"
                continue
            durable.write_atomic(path / DECLARATION, kept.as_bytes())
            yield f"{path / DECLARATION} is written again, from definition {definition.version if definition else 0}"
        log = LogDirectory(path, path.name)
        with log.writing():
            listing = log.listing()
            try:
                folded_in(path, path.name, listing)
            except (StreamError, DamagedState):
                durable.write_atomic(path / FOLDED, folded_as_bytes(()))
                yield f"{path / FOLDED} is written again, without the producers whose records retention has removed"


def _known(definition: Definition | None, name: str, home: Home) -> Kept | None:
    """What a stream's declaration was, by the newest definition."""
    for own in (DEAD, SETTLED):
        if own.name == name:
            return Kept(own)
    for record in definition.records if definition is not None else ():
        if record.output.name == name and isinstance(record.output, StreamDeclaration):
            assert definition is not None
            return Kept(record.output, _mark(home, record.output, range(record.generation, definition.version + 1)))
    for declared in definition.declaration.streams if definition is not None else ():
        if declared.name == name:
            return Kept(declared)
    return None


def _mark(home: Home, output: StreamDeclaration, versions: range) -> str:
    """The version with which a stage was begun: its own, or that which its lane came to first. Snapshots know."""
    told = snapshots.marks(StreamLog(home.path, output))
    found = [f"{each}" for each in versions if xxhash.xxh3_64_hexdigest(f"{each}".encode()) in told]
    return found[0] if found else f"{versions[0]}"


def accept_loss(home: Home, stream: str) -> tuple[int, tuple[str, ...]]:
    """Go on with a log that has lost records; how many are given up, and the stages that begin anew for it."""
    path = home.path / "streams" / stream
    kept = kept_in(path)
    if kept is None:
        raise UnknownName("stream", stream, [each.name for each in path.parent.glob("*/")])
    if kept.mark is not None or is_output(home.path, stream, (MAIN, OPERATIONS)):
        raise HayaseError(
            f'stream "{stream}" is written by a stage, which can write it again: `hayase reset {query_of(stream)} --from earliest`'
        )
    log = LogDirectory(path, stream)
    with log.writing():
        had, dropped = log.head(), log.drop_gaps()
        found = log.arranged()
        if not dropped and had.missing_from(found) is None:
            raise HayaseError(f'nothing is missing in stream "{stream}"')
    anew = _begin_readers_anew(home, stream)
    with log.writing():
        forget_end(home.path, stream, (MAIN, OPERATIONS))
        log.set_head()
    lost = max(had.next - found.next, 0)
    if lost and stream in (DEAD.name, SETTLED.name):
        StreamLog.open(home.path, stream).append(_placeholders(stream, lost), now=max(found.running_max, 0))
    return lost + dropped, anew


def _begin_readers_anew(home: Home, stream: str) -> tuple[str, ...]:
    definition = latest(home)
    readers = {each.query for each in definition.records if stream in each.inputs} if definition is not None else set()
    if not readers:
        return ()
    made = amend(home, lambda current: (current.declaration, current.changes), dict.fromkeys(readers, "earliest"))
    return tuple(each.name for each in made.records if each.generation == made.version)


def _placeholders(stream: str, count: int) -> pa.Table:
    """Records that stand for lost ones, so that those behind them keep their numbers."""
    if stream == DEAD.name:
        return dead_table(APPEND, None, "", None, [""] * count, [LOST] * count, 0, now=0)
    schema = SETTLED.arrow_schema
    values = {"time": 0, "letter": -1, "stage": "", "stream": "", "offset": None, "record": None}
    return pa.table(
        {name: pa.repeat(pa.scalar(values[name], schema.field(name).type), count) for name in values}, schema
    )
