"""The streams of dead letters: records that the pipeline could not process, with the reason and where it happened.

`_dead` is a stream like any other: appended, read, tailed and exported in the same way. Its event time is the moment of
the refusal. Letters are removed after 90 days, or when all of them take more than 4 GiB, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hayase.core.declarations import DAY, Retention, StreamDeclaration

__all__ = ["APPEND", "DEAD", "SETTLED", "VIEW", "dead_table"]

APPEND = "append"
"""The stage named in dead letters of records refused before they entered a stream."""
VIEW = "view "
"""Prefix of the stage in dead letters of records that a view refused; the name of its stream follows."""

DEAD = StreamDeclaration(
    name="_dead",
    schema="time timestamp, stage string, version string, stream string, offset bigint, reason string, record string, "
    "attempts int",
    time="time",
    max_ahead=None,
    retention=Retention(age=90 * DAY, size=4 << 30),
)
"""The declaration of the stream; `version` is null at an append, `offset` for a record that never had one."""

SETTLED = StreamDeclaration(
    name="_settled",
    schema="time timestamp, letter bigint, stage string, stream string, offset bigint, record string",
    time="time",
    max_ahead=None,
)
"""What became of dead letters: `letter` is the offset in `DEAD`. If there is a `record`, the letter was replayed:
`stage` processes the record as if it arrived in `stream`; without one it was dropped. An entry is kept as long as its
letter."""


def dead_table(
    stage: str,
    version: str | None,
    stream: str | Sequence[str],
    offsets: Sequence[int | None] | None,
    records: Sequence[str],
    reasons: Sequence[str],
    attempts: int | Sequence[int],
    now: int,
) -> pa.Table:
    """Return the dead letters of one stage, in the schema of `DEAD`.

    >>> dead_table(APPEND, None, "orders", None, ['{"amount": "x"}'], ["not a number"], 1, now=0).num_rows
    1
    """
    count = len(records)
    schema = DEAD.arrow_schema

    def same(value: object, column: str) -> pa.Array:
        kind = schema.field(column).type
        if isinstance(value, Sequence) and not isinstance(value, str):
            return pa.array(value, kind)
        return pa.repeat(pa.scalar(value, kind), count)

    columns = {
        "time": same(now, "time"),
        "stage": same(stage, "stage"),
        "version": same(version, "version"),
        "stream": same(stream, "stream"),
        "offset": same(None, "offset") if offsets is None else pa.array(offsets, pa.int64()),
        "reason": pa.array(reasons, pa.string()),
        "record": pa.array(records, pa.string()),
        "attempts": same(attempts, "attempts"),
    }
    return pa.table(columns, schema=schema)
