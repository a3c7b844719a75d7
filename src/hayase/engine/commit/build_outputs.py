"""The output of builds: logs that take the place of others at the switch, dead letters that wait for it, and their removal."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import StreamDeclaration
from hayase.core.stages import MAIN, OPERATIONS, build_name, is_build
from hayase.engine.batch.report import Part
from hayase.engine.definition.definitions import Definition, StageRecord
from hayase.engine.home import Home, writing
from hayase.engine.logs import first_of_build
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD
from hayase.streams.durable import remove_tree
from hayase.streams.segments import stage as stage_segment
from hayase.streams.stream_ends import forget_end

__all__ = ["adopt_output", "begin_output", "log_of_letters", "remove_builds", "stage_letters"]

_AT_ONCE = 65_536
"""Dead letters that are written to one file."""


def begin_output(home: Home, record: StageRecord) -> StreamLog:
    """Create or empty the log of a stage that begins. Its mark is the generation of the stage."""
    output = record.output
    assert isinstance(output, StreamDeclaration)
    first = first_of_build(home, output) if is_build(record.name) else 0
    return StreamLog.open_emptied(home.path, output, mark=f"{record.generation}", first=first)


def adopt_output(home: Home, record: StageRecord) -> StreamLog:
    """Put the log of a stage's build in the place of its own."""
    output = record.output
    assert isinstance(output, StreamDeclaration)
    build = build_name(output.name, record.generation)
    return StreamLog.open_replaced(home.path, output, build, mark=f"{record.generation}")


def log_of_letters(home: Home, name: str) -> StreamLog:
    """Return the log of dead letters, by its name: `_dead`, or the one in which those of a build wait."""
    return StreamLog.ensure(home.path, replace(DEAD, name=name))


def stage_letters(home: Home, lane: str, generation: int, version: int, now: int) -> Iterator[Part]:
    """Write the dead letters that a build has left to staged files, as parts of `_dead`; but none that is there already: a stage
    that is built again without a change refuses the same records again."""
    name = build_name(DEAD.name, generation)
    if not (home.path / "streams" / name).is_dir():
        return
    log = log_of_letters(home, name)
    index = log.index()
    pieces = log.read(index.start, index.next) if index.start < index.next else iter(())
    rows = pa.Table.from_batches([piece.rows for piece in pieces], schema=DEAD.arrow_schema)
    rows = rows.take(pa.array(_not_among(rows, _letters_of(home, pc.unique(rows.column("version")))), pa.int64()))
    for order, first in enumerate(range(0, rows.num_rows, _AT_ONCE)):
        part = rows.slice(first, _AT_ONCE)
        file = f"{version:012d}-{uuid.uuid4().hex}.seg"
        stage_segment(home.staged(lane), part, DEAD, file, written_at=now, confirm=False)
        yield Part(DEAD.name, file, part.num_rows, order)


def _letters_of(home: Home, versions: pa.Array) -> Counter[tuple[str, ...]]:
    """Count the letters of some versions of stages in `_dead`."""
    log = log_of_letters(home, DEAD.name)
    index, counts = log.index(), Counter[tuple[str, ...]]()
    for piece in log.read(index.start, index.next) if index.start < index.next and len(versions) else ():
        counts.update(_same(piece.rows.filter(pc.is_in(piece.rows.column("version"), versions))))
    return counts


def _not_among(rows: pa.Table, known: Counter[tuple[str, ...]]) -> list[int]:
    """Return the positions of letters, without as many of each as are known."""
    positions = []
    for position, letter in enumerate(_same(rows)):
        if known[letter]:
            known[letter] -= 1
        else:
            positions.append(position)
    return positions


def _same(letters: pa.Table | pa.RecordBatch) -> list[tuple[str, ...]]:
    """Return what makes letters the same, whichever run of a stage wrote them. The offset is not among it: the records of a stream
    that is built anew have others."""
    columns = ("stage", "version", "stream", "kind", "record")
    return list(zip(*(letters.column(column).to_pylist() for column in columns), strict=True))


def remove_builds(home: Home, definition: Definition | None) -> None:
    """Remove what builds have written that a definition does not have: they are finished or given up."""
    kept = set()
    if definition is not None and definition.build is not None:
        names = {record.output.name for record in definition.records}
        kept = {*names, build_name(DEAD.name, definition.build.generation)}
    with writing(f"the streams in {home.path}"):
        for path in (home.path / "streams").glob("*@*"):
            if path.name not in kept:
                forget_end(home.path, path.name, (MAIN, OPERATIONS))
                remove_tree(path)
