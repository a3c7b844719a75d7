"""The types time and ubigint, from every way in to results; binary values in expressions."""

from __future__ import annotations

import io
from datetime import time
from typing import Any

import pyarrow as pa
import pytest

from hayase import testing
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError
from hayase.serving.json_rows import json_text, plain_rows
from hayase.streams.file_formats import Format, read_records
from hayase.streams.records import conform, row_texts

SHIFTS = StreamDeclaration("shifts", "t bigint, at time, n ubigint", "t", time_unit="s")
MOST = 2**64 - 1


def of_file(content: str, form: str) -> Any:
    (chunk,) = read_records(io.BytesIO(content.encode()), Format(form), SHIFTS, lambda: 0)
    return chunk.conformed


def test_every_reader_takes_the_same_times_and_integers() -> None:
    rows = [{"t": 1, "at": time(12, 30, 0, 5), "n": MOST}, {"t": 2, "at": time(0), "n": 0}]
    given = [
        conform(rows, SHIFTS, 0),
        conform([{**row, "at": row["at"].isoformat()} for row in rows], SHIFTS, 0),
        conform(pa.Table.from_pylist(rows, SHIFTS.arrow_schema), SHIFTS, 0),
        conform(
            pa.table({"t": [1, 2], "at": [each["at"] for each in rows], "n": pa.array([MOST, 0], pa.uint64())}),
            SHIFTS,
            0,
        ),
        of_file(f"t,at,n\n1,12:30:00.000005,{MOST}\n2,00:00:00,0\n", "csv"),
        of_file(f'{{"t":1,"at":"12:30:00.000005","n":{MOST}}}\n{{"t":2,"at":"00:00","n":0.0}}\n', "ndjson"),
    ]
    for done in given:
        assert done.refused == ()
        assert done.rows.to_pylist() == rows
    assert row_texts(given[0].rows)[0] == f'{{"t": 1, "at": "12:30:00.000005", "n": {MOST}}}'
    assert json_text(plain_rows(given[0].rows)).startswith(b'[{"t":1,"at":"12:30:00.000005","n":18446744073709551615}')


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ({"at": "25:00"}, 'column "at" must be time, not "25:00"; write it like "12:30:00"'),
        ({"at": "12:00:00.0000001"}, 'column "at" must be time, not "12:00:00.0000001"; it is finer than microseconds'),
        ({"at": "12:00:00Z"}, 'column "at" must be time, not 12:00:00+00:00; it has a zone; a time of day has none'),
        ({"at": 12}, 'column "at" must be time, not 12'),
        ({"n": -1}, f'column "n" must be ubigint, not -1; it takes 0 to {MOST}'),
        ({"n": 2**64}, f'column "n" must be ubigint, not {2**64}; it takes 0 to {MOST}'),
        ({"n": 0.5}, 'column "n" must be ubigint, not 0.5'),
    ],
)
def test_what_does_not_fit_is_refused(field: dict[str, Any], reason: str) -> None:
    (refused,) = conform([{"t": 1} | field], SHIFTS, 0).refused
    assert refused.reason == reason


def test_a_ubigint_is_no_event_time() -> None:
    with pytest.raises(DeclarationError, match="make it a timestamp or a bigint"):
        StreamDeclaration("s", "t ubigint", "t", time_unit="s")


def test_they_are_values_and_keys_of_queries() -> None:
    with testing.trial(name="types") as t:
        t.stream("s", "ts bigint, opens time, n ubigint, raw binary", time="ts", time_unit="s")
        t.stream("r", "ts bigint, n bigint", time="ts", time_unit="s")
        t.query("plain", "select opens, n, opens + interval 90 minutes as later from s where opens < time '23:00:00'")
        t.query(
            "grouped", "select n, opens, count(*) as c, min(opens) as earliest, max(n) as most from s group by n, opens"
        )
        t.query("joined", "select r.n from s join r on s.n = r.n")
        t.query(
            "bytes",
            "select octet_length(raw) as size, hex(raw) as digits, raw || raw as twice, decode(raw) as t from s",
        )
        t.append(
            "s", [{"ts": 1, "opens": "12:30", "n": MOST, "raw": b"ab"}, {"ts": 1, "opens": "23:30", "n": 5, "raw": b""}]
        )
        t.append("r", [{"ts": 1, "n": -1}, {"ts": 1, "n": 5}])
        t.finish("s")
        t.finish("r")
        t.run()
        assert [(row["opens"], row["n"], row["later"]) for row in t.rows("plain")] == [(time(12, 30), MOST, time(14))]
        assert sorted(t.at("grouped"), key=str) == sorted(
            [
                {"n": n, "opens": at, "c": 1, "earliest": at, "most": n}
                for n, at in ((MOST, time(12, 30)), (5, time(23, 30)))
            ],
            key=str,
        )
        assert t.at("joined") == [{"n": 5}]
        (first, second) = t.rows("bytes")
        assert (first["size"], first["digits"], first["twice"], first["t"]) == (2, "6162", b"abab", "ab")
        assert (second["size"], second["digits"], second["twice"], second["t"]) == (0, "", b"", "")
        assert not t.dead_letters()
