"""The streams of dead letters: records that the pipeline could not process, with the reason and where it happened.

`_dead` is a stream like any other: appended, read, tailed and exported in the same way. Its event time is the moment of
the refusal. Letters are removed after 90 days, or when all of them take more than 4 GiB, oldest first.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.declarations import DAY, Retention, StreamDeclaration
from hayase.core.reasons import Reason, ReasonKind
from hayase.core.stages import build_name, is_build
from hayase.streams.records import Refused

__all__ = ["APPEND", "DEAD", "SETTLED", "VIEW", "append_letters", "dead_table", "letters_by_stream", "with_kinds"]

APPEND = "append"
"""The stage named in dead letters of records refused before they entered a stream."""
VIEW = "view "
"""Prefix of the stage in dead letters of records that a view refused; the name of its stream follows."""

DEAD = StreamDeclaration(
    name="_dead",
    schema="time timestamp, stage string, version string, stream string, offset bigint, kind string, reason string, "
    "record string, attempts int",
    time="time",
    max_ahead=None,
    retention=Retention(age=90 * DAY, size=4 << 30),
)
"""The declaration of the stream; `version` is null at an append, `offset` for a record that never had one. `kind` is a
`core.reasons.ReasonKind`; it is null in letters that were written before there were kinds (`with_kinds`)."""

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
    reasons: Sequence[Reason],
    attempts: int | Sequence[int],
    now: int,
) -> pa.Table:
    """Return the dead letters of one stage, in the schema of `DEAD`.

    >>> reason = Reason(ReasonKind.SCHEMA, "not a number")
    >>> dead_table(APPEND, None, "orders", None, ['{"amount": "x"}'], [reason], 1, now=0)["kind"].to_pylist()
    ['schema']
    """
    count = len(records)
    schema = DEAD.arrow_schema

    def same(value: object, column: str) -> pa.Array:
        type_ = schema.field(column).type
        if isinstance(value, Sequence) and not isinstance(value, str):
            return pa.array(value, type_)
        return pa.repeat(pa.scalar(value, type_), count)

    columns = {
        "time": same(now, "time"),
        "stage": same(stage, "stage"),
        "version": same(version, "version"),
        "stream": same(stream, "stream"),
        "offset": same(None, "offset") if offsets is None else pa.array(offsets, pa.int64()),
        "kind": pa.array([reason.kind.value for reason in reasons], pa.string()),
        "reason": pa.array([reason.text for reason in reasons], pa.string()),
        "record": pa.array(records, pa.string()),
        "attempts": same(attempts, "attempts"),
    }
    return pa.table(columns, schema=schema)


def letters_by_stream(letters: pa.Table) -> dict[str, pa.Table]:
    """Return letters by the stream that takes them: those of stages of a build wait in `_dead@N` until the build is finished, with
    the names that its stages and streams have then; the others go to `_dead`.

    >>> letters = dead_table("spend@7", "f", "orders", [3], ["{}"], [Reason(ReasonKind.LATE, "late")], 1, now=0)
    >>> {name: rows["stage"].to_pylist() for name, rows in letters_by_stream(letters).items()}
    {'_dead@7': ['spend']}
    """
    stages = letters.column("stage")
    builds = [name for name in stages.unique().to_pylist() if is_build(name)]
    if not builds:
        return {DEAD.name: letters}
    by_stream = {DEAD.name: letters.filter(pc.invert(pc.is_in(stages, pa.array(builds))))}
    for generation in sorted({name.partition("@")[2] for name in builds}):
        rows = letters.filter(pc.ends_with(stages, f"@{generation}"))
        for column in ("stage", "stream"):
            names = pc.replace_substring_regex(rows.column(column), "@.*$", "")
            rows = rows.set_column(rows.schema.get_field_index(column), rows.schema.field(column), names)
        by_stream[build_name(DEAD.name, int(generation))] = rows
    return {name: rows for name, rows in by_stream.items() if rows.num_rows}


def append_letters(stream: str, refused: Sequence[Refused], now: int) -> pa.Table:
    """Return the dead letters of records that a stream did not accept."""
    reasons = [Reason(refusal.kind, refusal.reason) for refusal in refused]
    return dead_table(APPEND, None, stream, None, [refusal.record for refusal in refused], reasons, 1, now)


_FORMER_REASONS = {
    ReasonKind.LATE: "^late: ",
    ReasonKind.TOO_OLD: "^too old: ",
    ReasonKind.AHEAD: "; max_ahead is [^;]*$",
}
"""How the reasons of some kinds read before letters had kinds. These are the kinds on which the treatment of a letter depends."""


def with_kinds(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Return letters with a kind for each. A letter from before there were kinds is `late`, `too_old` or `ahead` if its reason
    says so in the words of that time, else `unknown`."""
    kinds = letters.column("kind")
    if not kinds.null_count:
        return letters
    former = pa.scalar(ReasonKind.UNKNOWN.value)
    for kind, pattern in _FORMER_REASONS.items():
        former = pc.if_else(pc.match_substring_regex(letters.column("reason"), pattern), kind.value, former)
    return letters.set_column(letters.schema.get_field_index("kind"), "kind", pc.coalesce(kinds, former))
