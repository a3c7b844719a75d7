"""Columns of type json and fields that the schema does not have: every way in gives the same, and every way out gives it back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hayase import testing
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, SchemaMismatch
from hayase.core.numbers import exact_loads
from hayase.serving.bodies import ARROW, JSON, NDJSON, records_in
from hayase.serving.json_rows import json_text, plain_rows
from hayase.streams.file_formats import Format, read_records
from hayase.streams.json_columns import records
from hayase.streams.log import StreamLog
from hayase.streams.records import Conformed, conform, row_texts

DOCUMENTS = StreamDeclaration("documents", "t bigint, j json", "t", time_unit="s")

TEXTS = {
    '{"b": 1, "a": [true, null, {"x": "é"}]}': '{"b":1,"a":[true,null,{"x":"é"}]}',
    "1": "1",
    '"text"': '"text"',
    "[]": "[]",
    "false": "false",
    "0.10": "0.10",
    "[12345678901234567890123456789.000000000000000000001]": "[12345678901234567890123456789.000000000000000000001]",
    '{"n": 123456789012345678901234567890}': '{"n":123456789012345678901234567890}',
    "[1e400, 1e-99999999999]": "[1E+400,1e-99999999999]",
    "null": None,
}
"""JSON text, and how a json column stores it."""


def of_file(content: bytes, form: str, stream: StreamDeclaration) -> Conformed:
    parts = [chunk.conformed for chunk in read_records(io.BytesIO(content), Format(form), stream, lambda: 0)]
    return Conformed(pa.concat_tables([part.rows for part in parts]), sum((part.refused for part in parts), ()))


def ipc(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def table_of(texts: list[str]) -> pa.Table:
    return pa.table({"t": pa.array([1] * len(texts)), "j": texts})


READERS: dict[str, Callable[[list[str]], Conformed]] = {
    "dicts": lambda texts: conform([{"t": 1, "j": exact_loads(text)} for text in texts], DOCUMENTS, 0),
    "ndjson": lambda texts: of_file(
        "".join(f'{{"t": 1, "j": {text}}}\n' for text in texts).encode(), "ndjson", DOCUMENTS
    ),
    "csv": lambda texts: of_file(
        ("t,j\n" + "".join(f"1,{quoted(text)}\n" for text in texts)).encode(), "csv", DOCUMENTS
    ),
    "arrow": lambda texts: conform(table_of(texts), DOCUMENTS, 0),
    "dictionary": lambda texts: conform(
        table_of(texts).set_column(1, "j", pa.array(texts).dictionary_encode()), DOCUMENTS, 0
    ),
    "parquet": lambda texts: of_file(parquet(table_of(texts)), "parquet", DOCUMENTS),
    "pandas": lambda texts: conform(pd.DataFrame({"t": 1, "j": texts}), DOCUMENTS, 0),
    "http json": lambda texts: records_in(
        ("[" + ",".join(f'{{"t": 1, "j": {text}}}' for text in texts) + "]").encode(), JSON, DOCUMENTS, 0
    ),
    "http ndjson": lambda texts: records_in(
        "".join(f'{{"t": 1, "j": {text}}}\n' for text in texts).encode(), NDJSON, DOCUMENTS, 0
    ),
    "http arrow": lambda texts: records_in(ipc(table_of(texts)), ARROW, DOCUMENTS, 0),
}


@pytest.mark.parametrize("way", READERS)
def test_every_reader_stores_the_same_text_and_rounds_no_number(way: str) -> None:
    done = READERS[way](list(TEXTS))
    assert done.refused == ()
    assert done.rows.column("j").to_pylist() == list(TEXTS.values())


@pytest.mark.parametrize("way", ["csv", "arrow", "parquet", "pandas", "http arrow"])
@pytest.mark.parametrize("text", ["{", "nope", "NaN", "1 2", '{"a": Infinity}'])
def test_a_text_that_is_not_json_is_refused_alone(way: str, text: str) -> None:
    done = READERS[way](["1", text, "2"])
    assert done.rows.column("j").to_pylist() == ["1", "2"]
    assert [each.reason.partition("column")[2] for each in done.refused] == [
        f' "j" must be json, not {json.dumps(text)}; write it as JSON'
    ]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (float("nan"), "JSON has no form for it; write it as a text"),
        ({"a": {1, 2}}, "JSON has no form for it; write it as a text"),
        ({1: 2}, "the keys of an object are texts"),
        ("\ud800", "a lone surrogate is not a character"),
        ("x" * (16 << 20), "it has 16,777,218 characters as text; at most 16,777,216 are taken"),
    ],
)
def test_what_json_has_no_form_for_is_refused(value: Any, hint: str) -> None:
    (refused,) = conform([{"t": 1, "j": value}], DOCUMENTS, 0).refused
    assert refused.reason.endswith(hint)


def test_depth_is_bounded() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    assert conform([{"t": 1, "j": value}], DOCUMENTS, 0).refused == ()
    (refused,) = conform([{"t": 1, "j": [value]}], DOCUMENTS, 0).refused
    assert refused.reason.endswith("it is nested too deep; at most 200 levels are taken")


def test_nested_arrow_data_times_and_bytes_become_json() -> None:
    at = datetime(2026, 1, 31, tzinfo=UTC)
    table = pa.table({"t": [1], "j": [{"at": at, "raw": b"ab", "list": [1, None]}]})
    assert conform(table, DOCUMENTS, 0).rows.column("j").to_pylist() == [
        '{"at":"2026-01-31T00:00:00+00:00","raw":"YWI=","list":[1,null]}'
    ]


def test_a_json_column_comes_out_as_it_went_in() -> None:
    text = '{"n":[0.10,123456789012345678901234567890],"s":"é"}'
    rows = READERS["ndjson"]([text]).rows
    assert records(rows) == [{"t": 1, "j": {"n": [Decimal("0.10"), 123456789012345678901234567890], "s": "é"}}]
    assert row_texts(rows) == [f'{{"t": 1, "j": {text}}}']
    assert json_text(plain_rows(rows)).decode() == f'[{{"t":1,"j":{text}}}]'
    again = of_file(row_texts(rows)[0].encode(), "ndjson", DOCUMENTS)
    assert again.rows.equals(rows)


def test_json_is_the_type_of_a_whole_column_and_stays_it() -> None:
    assert DOCUMENTS.schema == "t bigint, j json"
    with pytest.raises(DeclarationError, match="json is the type of a whole column; declare the column json"):
        StreamDeclaration("s", "t bigint, j array<json>", "t", time_unit="s")


def test_a_stored_string_column_does_not_become_json(tmp_path: Path) -> None:
    StreamLog.ensure(tmp_path, StreamDeclaration("documents", "t bigint, j string", "t", time_unit="s"))
    with pytest.raises(SchemaMismatch, match='column "j" is json and was string'):
        StreamLog.ensure(tmp_path, DOCUMENTS)


def test_queries_rules_jobs_and_dead_letters_read_json() -> None:
    with testing.trial(name="json") as t:
        t.stream("s", "ts bigint, id string, j json", time="ts", time_unit="s", id="id")
        t.query("spend", "select j->>'user' as user, sum((j->>'amount')::bigint) as n from s group by j->>'user'")
        t.query("items", "select (j->'items'->0)::string as item, json_array_length(j, '$.items')::int as n from s")
        t.table("users", key="user", total="Counter")
        t.rules(text="{source: s, rules: [{tables: {users: {key: .j.user, columns: {total: .j.amount}}}}]}")
        job = t.job("users_of", reads="s", every="1 second")
        job.map(_pair)
        t.append("s", [{"ts": 1, "id": "a", "j": {"user": "taro", "amount": 3, "items": ["tea"]}}])
        t.append("s", [{"ts": 2, "id": "b", "j": {"user": "taro", "amount": "x", "items": []}}])
        t.finish("s")
        t.run()
        assert t.at("spend") == [{"user": "taro", "n": 3}]
        assert [(row["item"], row["n"]) for row in t.rows("items")] == [('"tea"', 1), (None, 0)]
        assert t.table("users").get("taro")["total"] == 3
        letters = [letter for letter in t.dead_letters() if letter["stage"] == "spend"]
        assert [letter["record"] for letter in letters] == [
            '{"ts": 2, "id": "b", "j": {"user":"taro","amount":"x","items":[]}}'
        ]


def _pair(record: dict[str, Any]) -> tuple[str, int]:
    return record["j"]["user"], len(record["j"]["items"])


# ------------------------------------------------------------------------------------------------- extra fields


def stream(extra_fields: str) -> StreamDeclaration:
    return StreamDeclaration("s", "t bigint, x string, extra json", "t", time_unit="s", extra_fields=extra_fields)


WAYS: dict[str, Callable[[StreamDeclaration], Conformed]] = {
    "dicts": lambda to: conform([{"t": 1, "x": "a", "y": "b"}, {"t": 2, "x": "c"}], to, 0),
    "ndjson": lambda to: of_file(b'{"t": 1, "x": "a", "y": "b"}\n{"t": 2, "x": "c"}\n', "ndjson", to),
    "http json": lambda to: records_in(b'[{"t": 1, "x": "a", "y": "b"}, {"t": 2, "x": "c"}]', JSON, to, 0),
    "csv": lambda to: of_file(b"t,y,x\n1,b,a\n2,,c\n", "csv", to),
    "arrow": lambda to: conform(pa.table({"t": [1, 2], "x": ["a", "c"], "y": ["b", None]}), to, 0),
    "parquet": lambda to: of_file(parquet(pa.table({"t": [1, 2], "x": ["a", "c"], "y": ["b", None]})), "parquet", to),
    "pandas": lambda to: conform(pd.DataFrame({"t": [1, 2], "x": ["a", "c"], "y": ["b", None]}), to, 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_extra_fields_are_kept_ignored_or_refused(way: str) -> None:
    assert WAYS[way](stream("ignore")).rows.to_pylist() == [
        {"t": 1, "x": "a", "extra": None},
        {"t": 2, "x": "c", "extra": None},
    ]
    assert WAYS[way](stream("keep")).rows.to_pylist() == [
        {"t": 1, "x": "a", "extra": '{"y":"b"}'},
        {"t": 2, "x": "c", "extra": None},
    ]
    if way in ("dicts", "ndjson", "http json"):
        done = WAYS[way](stream("refuse"))
        assert done.rows.column("t").to_pylist() == [2]
        assert 'unknown field "y"' in done.refused[0].reason
    else:
        with pytest.raises(SchemaMismatch, match='has no column "y"'):
            WAYS[way](stream("refuse"))


@pytest.mark.parametrize(
    "given",
    [
        [{"t": 1, "x": "a", "y": 1, "extra": {"z": 1}}, {"t": 2, "extra": {"z": 0.10}}],
        pa.table({"t": [1, 2], "y": [1, None], "extra": ['{"z": 1}', '{"z": 0.1}']}),
    ],
)
def test_a_record_fills_the_column_itself_or_has_extra_fields(given: Any) -> None:
    done = conform(given, stream("keep"), 0)
    assert done.rows.column("extra").to_pylist() == ['{"z":0.1}']
    assert [each.reason for each in done.refused] == [
        'the record has a value for column "extra" and fields that go there; leave out one of them'
    ]


def test_kept_fields_need_their_column() -> None:
    with pytest.raises(DeclarationError, match='has no column "extra" of type json; add "extra json" to the schema'):
        StreamDeclaration("s", "t timestamp, extra string", "t", extra_fields="keep")
    with pytest.raises(
        DeclarationError, match='extra_fields of stream "s" is "drop"; write one of refuse, ignore, keep'
    ):
        StreamDeclaration("s", "t timestamp", "t", extra_fields="drop")


def test_options_change_without_a_reset() -> None:
    with testing.trial(name="options") as t:
        t.stream("s", "ts bigint, x bigint", time="ts", time_unit="s")
        t.query("total", "select sum(x) as n from s")
        t.append("s", [{"ts": 1, "x": 1}])
        t.run()
        declared = t.declaration
        lenient = StreamDeclaration("s", "ts bigint, x bigint, extra json", "ts", time_unit="s", extra_fields="keep")
        t.declaration = replace(declared, streams=(lenient,))
        t.append("s", [{"ts": 2, "x": 2, "y": 7}])
        t.finish("s")
        t.run()
        assert t.at("total") == [{"n": 3}]
        assert t.rows("s")[-1]["extra"] == {"y": 7}
