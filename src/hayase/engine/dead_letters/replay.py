"""Dead letters that are replayed: records from the stream of settled letters, for the stages that refused them.

A letter is settled by a record in `_settled` (`hayase.streams.dead_letters.SETTLED`). Every lane reads that stream, up to where its
offset says, and takes what is for its own stages. A letter whose stage is no more goes back to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.numbers import exact_loads
from hayase.core.stages import MAIN
from hayase.engine.batch.offsets import Batch
from hayase.engine.definition.definitions import Definition, stages_of
from hayase.engine.logs import declared_streams
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED, dead_table
from hayase.streams.records import Origin, conform_rows

__all__ = ["Replayed", "replayed"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Records of one stream for one stage, with the offsets that they had; `bad` are those that it cannot have."""

    stage: str
    version: str | None
    stream: str
    rows: pa.RecordBatch
    offsets: np.ndarray
    bad: tuple[tuple[int, str, str], ...] = ()
    """Offset, record and reason of each."""

    def refused(self, now: int) -> pa.Table:
        """Dead letters of the bad ones."""
        offsets, records, reasons = zip(*self.bad) if self.bad else ((), (), ())
        known = [each if each >= 0 else None for each in offsets]
        return dead_table(self.stage, self.version, self.stream, known, records, reasons, 1, now)


def replayed(definition: Definition, batch: Batch) -> Iterator[Replayed]:
    """What the batch of a lane takes in of replayed letters; `definition` is that lane's."""
    log = StreamLog(definition.home.path, SETTLED)
    pieces = log.read(batch.start.settled, batch.end.settled)
    rows = pa.Table.from_batches([each.rows for each in pieces], schema=SETTLED.arrow_schema)
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in rows.select(["stage", "stream", "offset", "record"]).to_pylist():
        if row["record"] is not None:
            offset = -1 if row["offset"] is None else row["offset"]
            found.setdefault((row["stage"], row["stream"]), []).append((offset, row["record"]))
    mine = {each.name: each for each in definition.records}
    stages = stages_of(definition)
    for (stage, stream), letters in found.items():
        if stage in mine and stream in mine[stage].inputs:
            output = mine[stage].output
            if isinstance(output, StreamDeclaration) and batch.start.is_finished(stage):
                told = f'"{stage}" has come to its end, as all that it reads is finished'
                yield _none_of(stage, stream, letters, told)
            else:
                yield _conformed(definition, stage, stream, letters)
        elif definition.lane == MAIN and (
            stage not in stages or stream not in {each.stream for each in stages[stage].inputs}
        ):
            told = f'the stage "{stage}" that refused it does not read "{stream}" any more'
            yield _none_of(stage, stream, letters, told)


def _none_of(stage: str, stream: str, letters: list[tuple[int, str]], told: str) -> Replayed:
    """Letters that become letters again, all for one reason."""
    bad = tuple((offset, text, told) for offset, text in letters)
    return Replayed(stage, None, stream, _empty(DEAD.arrow_schema), np.empty(0, np.int64), bad)


def _conformed(definition: Definition, stage: str, stream: str, letters: list[tuple[int, str]]) -> Replayed:
    # how far ahead it may be was seen when it was let in; here a batch that is run again must see the same
    declaration = replace(declared_streams(definition)[stream], max_ahead=None)
    version = definition.record(stage).fingerprint
    kept, records, bad = list[int](), list[object](), list[tuple[int, str, str]]()
    for at, (offset, text) in enumerate(letters):
        try:
            records.append(exact_loads(text))
            kept.append(at)
        except ValueError as error:
            bad.append((offset, text, f"the replayed record is no JSON: {error}"))
    given = conform_rows(records, declaration, 0, Origin(lambda places: [str(each) for each in places]))
    wrong = {int(each.record): each.reason for each in given.refused}
    bad += [(*letters[kept[at]], reason) for at, reason in wrong.items()]
    offsets = np.array([letters[place][0] for at, place in enumerate(kept) if at not in wrong], np.int64)
    rows = given.rows.combine_chunks().to_batches()
    batch = rows[0] if rows else _empty(declaration.arrow_schema)
    return Replayed(stage, version, stream, batch, offsets, tuple(bad))


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=schema)
