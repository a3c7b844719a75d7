"""Parquet files and webhooks as outputs: the laws of sinks, types, partitions, interruptions, intervals, requests."""

from __future__ import annotations

import datetime as dt
import json
import os
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from every_type import VALUES, changes_of, column_of
from hayase import Parquet, Pipeline
from hayase.connectors import delivery
from hayase.connectors.laws import check_sink
from hayase.connectors.parquet_sink import ParquetSink
from hayase.connectors.sink import HEADS, Changes, Position, Sink, SinkSetting
from hayase.connectors.webhook_sink import WebhookSink
from hayase.core.connector_data import declared_output
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, EndpointError, PositionMoved
from hayase.engine.home import Home
from hayase.engine.integrity.verification import verify
from hayase.streams import durable

SPEND = StreamDeclaration("spend", "time timestamp, user string, total bigint", "time")
ROWS = pa.schema({"user": pa.string(), "total": pa.int64()})


def setting(
    kind: str, options: dict[str, Any], keep: Path | None, rows: pa.Schema = ROWS, home: str = "h"
) -> SinkSetting:
    values = declared_output("mart", {"reads": "spend", "to": {kind: options}}).values
    return SinkSetting(SPEND, rows, values, "shop", "mart", home, keep)


def parquet(directory: Path, rows: pa.Schema = ROWS, home: str = "h", **options: Any) -> ParquetSink:
    keep = directory.parent / "keep"
    return ParquetSink(setting("parquet", {"path": str(directory), **options}, keep, rows, home))


def changes(*rows: tuple[int, bool, str, int]) -> pa.Table:
    """Changes of (time in seconds, whether the row appears, user, total)."""
    columns = list(zip(*rows))
    heads = [pa.array([time * 1_000_000 for time in columns[0]]), pa.array(columns[1]), pa.array(range(len(rows)))]
    return pa.table([*heads, pa.array(columns[2]), pa.array(columns[3])], names=[*HEADS, *ROWS.names])


def written(directory: Path) -> list[dict[str, Any]]:
    """All rows of the files, as another reader sees them."""
    if not list(directory.rglob("*.parquet")):
        return []
    rows = duckdb.sql(f"SELECT * FROM read_parquet('{directory}/**/*.parquet', hive_partitioning=false)").fetchall()
    return sorted(rows)  # type: ignore[return-value]


# ---------------------------------------------------------------------------------------------------- Parquet
def test_the_laws_of_a_sink(tmp_path: Path) -> None:
    rows = pa.table({"user": ["taro", "hana"], "total": [1, 2]})
    check_sink(lambda: parquet(tmp_path / "out"), rows, lambda: written(tmp_path / "out"))


@pytest.mark.parametrize("kind", VALUES)
def test_every_type_of_column(kind: str, tmp_path: Path) -> None:
    sink = parquet(tmp_path / "out", column_of(kind), emit="rows")
    sink.position()
    sink.write(Changes(changes_of(kind), None, Position(1, "a.1.1")))
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).column("value").to_pylist() == [VALUES[kind], None]
    (found,), (nothing,) = duckdb.sql(f"SELECT value FROM read_parquet('{file}')").fetchall()
    value = VALUES[kind]
    assert found == (dict(value) if kind.startswith("map") else value)
    assert nothing is None


def test_changes_and_rows(tmp_path: Path) -> None:
    table = changes((1, True, "taro", 1), (2, False, "taro", 1), (2, True, "taro", 3))
    for emit in ("changes", "rows"):
        sink = parquet(tmp_path / emit, emit=emit)
        sink.position()
        sink.write(Changes(table, None, Position(1, "a.1.1")))
    (file,) = (tmp_path / "changes").glob("*.parquet")
    first = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert pq.read_table(file).to_pylist()[0] == {"_time": first, "_change": "+", "user": "taro", "total": 1}
    assert [row[1] for row in written(tmp_path / "changes")] == ["+", "+", "-"]
    assert written(tmp_path / "rows") == [("taro", 1), ("taro", 3)]


def test_partitions_by_the_date_of_the_event_time_and_of_a_column(tmp_path: Path) -> None:
    day = 86_400
    sink = parquet(tmp_path / "event", partition_by="date", emit="rows")
    sink.position()
    sink.write(
        Changes(changes((1, True, "a", 1), (day, True, "b", 2), (day + 1, True, "c", 3)), None, Position(1, "a.1.1"))
    )
    counts = duckdb.sql(
        f"SELECT date, count(*) FROM read_parquet('{tmp_path}/event/**/*.parquet') GROUP BY 1 ORDER BY 1"
    )
    assert counts.fetchall() == [(dt.date(1970, 1, 1), 1), (dt.date(1970, 1, 2), 2)]
    table = changes_of("timestamp")
    sink = parquet(tmp_path / "column", column_of("timestamp"), partition_by="value", emit="rows")
    sink.position()
    sink.write(Changes(table, None, Position(1, "a.1.1")))
    directories = sorted(path.name for path in (tmp_path / "column").iterdir() if "=" in path.name)
    assert directories == ["value_date=2026-01-31", "value_date=__HIVE_DEFAULT_PARTITION__"]


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("anew", [False, True])
def test_a_write_that_is_interrupted_at_any_step_is_taken_back(anew: bool, tmp_path: Path) -> None:
    first, second = changes((1, True, "a", 1)), changes((2, True, "b", 2), (90_000, True, "c", 3))
    left = 0

    def strike(step: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    for step in range(1000):
        out = tmp_path / f"{step}" / "out"
        sink = parquet(out, partition_by="date", emit="rows")
        sink.position()
        sink.write(Changes(first, None, Position(1, "a.1.1")))
        left = step
        died = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable, "reached", strike)
            try:
                sink.write(Changes(second, Position(1, "a.1.1"), Position(2, "a.2.1"), anew))
            except Killed:
                died = True
        again = parquet(out, partition_by="date", emit="rows")
        position = again.position()
        if position == Position(1, "a.1.1"):
            if not anew:
                assert written(out) == [("a", 1)]
            again.write(Changes(second, position, Position(2, "a.2.1"), anew))
        expected = [("b", 2), ("c", 3)] if anew else [("a", 1), ("b", 2), ("c", 3)]
        assert written(out) == expected
        if not died:
            return
    raise AssertionError("the write has no end")


def test_a_process_that_was_thought_dead_cannot_write(tmp_path: Path) -> None:
    zombie, successor = parquet(tmp_path / "out"), parquet(tmp_path / "out")
    zombie.position()
    successor.position()
    successor.write(Changes(changes((1, True, "a", 1)), None, Position(1, "a.1.1")))
    held = written(tmp_path / "out")
    with pytest.raises(PositionMoved, match="another process"):
        zombie.write(Changes(changes((1, True, "b", 1)), None, Position(1, "a.1.1")))
    assert written(tmp_path / "out") == held


def test_a_file_that_a_dead_process_named_cannot_be_created_later(tmp_path: Path) -> None:
    zombie = parquet(tmp_path / "out")
    zombie.position()
    table = Changes(changes((1, True, "a", 1)), None, Position(1, "a.1.1"))

    def strike(step: str) -> None:
        if (tmp_path / "out" / "_hayase" / "mart.json").exists() and step == "before create":
            raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(durable, "reached", strike)
        with pytest.raises(Killed):
            zombie.write(table)
    successor = parquet(tmp_path / "out")
    assert successor.position() is None
    (file,) = (tmp_path / "out").glob("*.parquet")
    assert pq.read_table(file).num_rows == 0, "its name is taken"
    successor.write(table)
    assert len(written(tmp_path / "out")) == 1


def test_the_draft_of_a_killed_process_is_no_file_for_readers_and_is_removed(tmp_path: Path) -> None:
    """A draft may be complete: a reader of the directory that took it would see its rows twice."""
    out = tmp_path / "out"
    child = os.fork()
    if not child:
        durable.reached = lambda step: os._exit(9) if step == "before rename" and drafts(".parquet") else None

        def drafts(text: str) -> bool:
            return any(text in path.name for path in out.rglob("*.tmp"))

        sink = parquet(out)
        sink.position()
        sink.write(Changes(changes((1, True, "taro", 1)), None, Position(1, "a.1.1")))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    (draft,) = out.rglob("*.tmp")
    assert draft.parent.name.startswith("_")  # readers of directories leave these out
    sink = parquet(out)
    sink.position()
    sink.write(Changes(changes((1, True, "taro", 1)), None, Position(1, "a.1.1")))
    assert list(out.rglob("*.tmp")) == []
    assert len(written(out)) == 1


def test_a_directory_has_one_home(tmp_path: Path) -> None:
    sink = parquet(tmp_path / "out")
    sink.position()
    sink.write(Changes(changes((1, True, "a", 1)), None, Position(1, "a.1.1")))
    with pytest.raises(EndpointError, match="another home"):
        parquet(tmp_path / "out", home="other").position()


def test_a_pipeline_collects_and_writes_what_is_left_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "MOST_CHANGES", 3)
    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", "time bigint, user string, amount bigint", time="time", time_unit="s")
    pipeline.query("spend", "SELECT user, sum(amount) AS total FROM orders [RANGE UNBOUNDED] GROUP BY user")
    pipeline.output("lake", reads="orders", to=Parquet(str(tmp_path / "out"), emit="rows"))
    pipeline.append("orders", [{"time": at, "user": "taro", "amount": at} for at in range(10)])
    pipeline.run_until_idle(spark=False)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1, "what was collected is one write"
    pipeline.append("orders", [{"time": at, "user": "hana", "amount": at} for at in range(10, 15)])
    pipeline.run_until_idle(spark=False)
    assert sorted(row[2] for row in written(tmp_path / "out")) == list(range(15))
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("parquet", {"path": "out/*"}, "a pattern as the path"),
        ("parquet", {"path": "hdfs://x/y"}, "unknown scheme"),
        ("delta", {"path": "out", "emit": "mirror"}, "a mirror without a key"),
        ("delta", {"path": "out", "key": "user"}, "a key without a mirror"),
        ("iceberg", {"table": "spend", "path": "out"}, "NAMESPACE.NAME"),
        ("iceberg", {"table": "a.b"}, "give one of the two"),
        ("webhook", {"url": "ftp://x"}, "https://host/path"),
        ("webhook", {"url": "https://u:p@x/"}, "token_env"),
        ("webhook", {"url": "http://example.org/", "token_env": "T"}, "use https"),
        ("webhook", {"url": "http://localhost/", "most": 0}, "from 1 to 20000"),
    ],
)
def test_mistakes_in_declarations(kind: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared_output("mart", {"reads": "spend", "to": {kind: options}})


@pytest.mark.parametrize(("column", "message"), [("usr", "unknown column"), ("user", "neither a timestamp nor a date")])
def test_a_partition_column_is_checked(column: str, message: str, tmp_path: Path) -> None:
    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", "time timestamp, user string", time="time")
    with pytest.raises(DeclarationError, match=message):
        pipeline.output("lake", reads="orders", to=Parquet("out", partition_by=column))


# ---------------------------------------------------------------------------------------------------- webhooks
class Receiver:
    """A server that notes requests and answers what it is told."""

    def __init__(self) -> None:
        self.requests: list[tuple[dict[str, str], Any]] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.requests.append((dict(self.headers), json.loads(body)))
                code = receiver.answers.pop(0) if receiver.answers else 204
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    @contextmanager
    def serving(self) -> Iterator[Receiver]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver().serving() as receiver:
        yield receiver


def webhook(receiver: Receiver, keep: Path, **options: Any) -> Sink:
    return WebhookSink(setting("webhook", {"url": receiver.url, **options}, keep))


def test_the_laws_of_a_webhook(receiver: Receiver, tmp_path: Path) -> None:
    rows = pa.table({"user": ["taro", "hana"], "total": [1, 2]})
    check_sink(lambda: webhook(receiver, tmp_path), rows, lambda: [body for _, body in receiver.requests])


def test_a_request(receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "secret")
    with closing(webhook(receiver, tmp_path, token_env="HOOK_TOKEN")) as sink:
        sink.position()
        sink.write(Changes(changes((1, True, "taro", 1), (2, False, "taro", 1)), None, Position(1, "a.1.1")))
    ((headers, body),) = receiver.requests
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Idempotency-Key"].startswith("h/mart/")
    assert headers["Idempotency-Key"].endswith("-1")
    row = {"user": "taro", "total": 1}
    assert body == {
        "pipeline": "shop", "output": "mart", "number": 1, "anew": False,
        "changes": [
            {"time": "1970-01-01T00:00:01Z", "change": "+", "row": row},
            {"time": "1970-01-01T00:00:02Z", "change": "-", "row": row},
        ],
    }  # fmt: skip


def test_a_request_that_fails_is_sent_again_as_it_was(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [503, 302]
    sink = webhook(receiver, tmp_path / "outputs" / "mart", emit="rows")
    assert sink.position() is None
    with pytest.raises(EndpointError, match="answers 503"):
        sink.write(Changes(changes((1, True, "taro", 1)), None, Position(1, "a.1.1")))
    with pytest.raises(EndpointError, match="answers 302"):
        webhook(receiver, tmp_path / "outputs" / "mart", emit="rows").position()
    sink = webhook(receiver, tmp_path / "outputs" / "mart", emit="rows")
    assert sink.position() == Position(1, "a.1.1")
    assert len({headers["Idempotency-Key"] for headers, _ in receiver.requests}) == 1
    assert [body["rows"] for _, body in receiver.requests] == [[{"user": "taro", "total": 1}]] * 3
    sink.position()
    assert len(receiver.requests) == 3, "what was answered is not sent again"
    file = tmp_path / "outputs" / "mart" / "request.json"
    file.write_bytes(file.read_bytes() + b" ")
    assert ["request of an output" in finding.problem for finding in verify(Home(tmp_path))] == [True]


def test_a_server_that_is_not_there(receiver: Receiver, tmp_path: Path) -> None:
    sink = WebhookSink(setting("webhook", {"url": "http://127.0.0.1:9/"}, tmp_path))
    sink.position()
    with pytest.raises(EndpointError, match="cannot be reached"):
        sink.write(Changes(changes((1, True, "taro", 1)), None, Position(1, "a.1.1")))


def test_rows_that_only_end_are_no_request(receiver: Receiver, tmp_path: Path) -> None:
    sink = webhook(receiver, tmp_path, emit="rows")
    sink.position()
    sink.write(Changes(changes((1, False, "taro", 1)), None, Position(1, "a.1.1")))
    assert receiver.requests == []
    assert webhook(receiver, tmp_path).position() == Position(1, "a.1.1")


def test_a_pipeline_sends_requests_of_a_few_changes(receiver: Receiver, tmp_path: Path) -> None:
    from hayase import Webhook

    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", "time bigint, user string", time="time", time_unit="s")
    pipeline.query("users", "SELECT user FROM orders [RANGE UNBOUNDED]")
    pipeline.output("hook", reads="orders", to=Webhook(receiver.url, most=4, emit="rows"))
    pipeline.append("orders", [{"time": 1, "user": str(at)} for at in range(10)])
    pipeline.run_until_idle(spark=False)
    assert [len(body["rows"]) for _, body in receiver.requests] == [4, 4, 2]
