"""The map side of replays: reads replayed records from `_settled` for the stages that refused them.

A letter is settled by a record in `_settled` (`hayase.streams.dead_letters.SETTLED`). Every lane reads that stream up to its lane
offset and takes the records for its own stages. A letter whose stage no longer exists becomes a dead letter again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from hayase.core.data_classes import dataclass
from hayase.core.declarations import StreamDeclaration
from hayase.core.numbers import exact_loads
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.schemas import empty_rows
from hayase.core.stages import MAIN
from hayase.engine.batch.offsets import Batch
from hayase.engine.definition.definitions import Definition, stages_of
from hayase.engine.logs import declared_streams
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, SETTLED, dead_table
from hayase.streams.records import Origin, conform_rows

__all__ = ["Replayed", "replayed_records"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """Replayed records of one stream for one stage, with their original offsets. `bad` are records that the stage cannot take."""

    stage: str
    version: str | None
    stream: str
    rows: pa.RecordBatch
    offsets: np.ndarray
    bad: tuple[tuple[int, str, Reason], ...] = ()
    """Offset (-1 if unknown), record and reason of each."""

    def refused(self, now: int) -> pa.Table:
        """Return dead letters for the bad records."""
        offsets, records, reasons = zip(*self.bad) if self.bad else ((), (), ())
        known = [offset if offset >= 0 else None for offset in offsets]
        return dead_table(self.stage, self.version, self.stream, known, records, reasons, 1, now)


def replayed_records(definition: Definition, batch: Batch) -> Iterator[Replayed]:
    """Yield the replayed records in a batch of a lane, by stage and stream; `definition` is that of the lane."""
    log = StreamLog(definition.home.path, SETTLED)
    pieces = log.read(batch.start.settled, batch.end.settled)
    rows = pa.Table.from_batches([piece.rows for piece in pieces], schema=SETTLED.arrow_schema)
    letters_of: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for row in rows.select(["stage", "stream", "offset", "record"]).to_pylist():
        if row["record"] is not None:
            offset = -1 if row["offset"] is None else row["offset"]
            letters_of.setdefault((row["stage"], row["stream"]), []).append((offset, row["record"]))
    own_stages = {record.name: record for record in definition.records}
    stages = stages_of(definition)
    for (stage, stream), letters in letters_of.items():
        if stage in own_stages and stream in own_stages[stage].inputs:
            output = own_stages[stage].output
            if isinstance(output, StreamDeclaration) and batch.start.is_finished(stage):
                yield _gone(stage, stream, letters, f'"{stage}" has come to its end, as all that it reads is finished')
            else:
                yield _conformed(definition, stage, stream, letters)
        elif definition.lane == MAIN and (
            stage not in stages or stream not in {side.stream for side in stages[stage].inputs}
        ):
            text = f'the stage "{stage}" that refused it does not read "{stream}" any more'
            yield _gone(stage, stream, letters, text)


def _gone(stage: str, stream: str, letters: list[tuple[int, str]], text: str) -> Replayed:
    """Return letters that all become dead letters again, since their stage does not take them."""
    reason = Reason(ReasonKind.GONE, text)
    bad = tuple((offset, record, reason) for offset, record in letters)
    return Replayed(stage, None, stream, empty_rows(DEAD.arrow_schema), np.empty(0, np.int64), bad)


def _conformed(definition: Definition, stage: str, stream: str, letters: list[tuple[int, str]]) -> Replayed:
    # `max_ahead` was checked when the letter was replayed; a repeated batch must not depend on the current time
    declaration = replace(declared_streams(definition)[stream], max_ahead=None)
    version = definition.record(stage).fingerprint
    parsed, records, bad = list[int](), list[object](), list[tuple[int, str, Reason]]()
    for at, (offset, text) in enumerate(letters):
        try:
            records.append(exact_loads(text))
            parsed.append(at)
        except ValueError as error:
            bad.append((offset, text, Reason(ReasonKind.UNREADABLE, f"the replayed record is not JSON: {error}")))
    conformed = conform_rows(records, declaration, 0, Origin(lambda places: [str(index) for index in places]))
    refused = {int(refusal.record): Reason(refusal.kind, refusal.reason) for refusal in conformed.refused}
    bad += [(*letters[parsed[at]], reason) for at, reason in refused.items()]
    offsets = np.array([letters[place][0] for at, place in enumerate(parsed) if at not in refused], np.int64)
    rows = conformed.rows.combine_chunks().to_batches()
    batch = rows[0] if rows else empty_rows(declaration.arrow_schema)
    return Replayed(stage, version, stream, batch, offsets, tuple(bad))
