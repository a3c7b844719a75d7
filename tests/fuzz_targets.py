"""What is fuzzed: each target takes any bytes, and raises if a reader does what it must not.

A reader may take what it gets or refuse it, with the error that its callers expect. Anything else that is raised is a
finding, and so is an end of the process, a minute of thinking and a gigabyte of memory. `tests/fuzz_run.py` runs the
targets with atheris, `tests/unit/test_fuzz_corpus.py` once over all that is kept in `tests/corpus`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import io
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from hayase.core.access import Access
from hayase.core.declarations import PipelineDeclaration, QueryDeclaration, StreamDeclaration
from hayase.core.errors import DeclarationError, HayaseError
from hayase.core.pipeline_file import read_pipeline
from hayase.cql.planner import plan
from hayase.engine.home import Home
from hayase.serving import Limits, Service, Status, create_app
from hayase.serving.bodies import ARROW, JSON, NDJSON, records_in
from hayase.serving.problems import Problem
from hayase.streams import csv_blocks
from hayase.streams.file_formats import Format, read_records
from hayase.streams.inference import schema_of
from hayase.streams.record_text import record_text
from hayase.streams.records import Conformed
from hayase.tables.jq import Events, Jq
from hayase.tables.jq import Limits as JqLimits

__all__ = ["TARGETS"]

NOW = 1_767_225_600_000_000
TOKEN = "a-token-for-the-fuzzer"
EVERY = (
    "t timestamp, b boolean, i int, n bigint, f float, x double, s string, day date, raw binary, a array<bigint>, "
    "m map<string, double>, c struct<p: int, q: string>, j json, o time, u ubigint"
)
PLAIN = StreamDeclaration("s", EVERY, "t", max_ahead=None)
EXACT = StreamDeclaration("s", EVERY + ", d decimal(20, 4)", "t", max_ahead=None)
IGNORED = StreamDeclaration("s", EVERY, "t", max_ahead=None, extra_fields="ignore")
BARE = StreamDeclaration("s", "t timestamp, o time, u ubigint, j json, d decimal(20, 4)", "t", max_ahead=None)
"""The columns of a CSV file without a header."""
KEPT = StreamDeclaration("s", EVERY + ", extra json", "t", max_ahead=None, extra_fields="keep")


def _sound(done: Conformed, stream: StreamDeclaration) -> None:
    done.rows.validate(full=True)
    assert done.rows.schema == stream.arrow_schema
    for each in done.refused:
        assert each.reason
        each.record.encode()
        each.reason.encode()


def _rows(done: Conformed) -> list[str]:
    return [record_text(row) for row in done.rows.to_pylist()]


def _read(data: bytes, form: str, stream: StreamDeclaration, *, header: bool = True) -> Conformed | None:
    form_ = Format(form, header=header)
    try:
        chunks = [each.conformed for each in read_records(io.BytesIO(data), form_, stream, lambda: NOW)]
    except HayaseError:
        return None
    rows = pa.concat_tables([stream.arrow_schema.empty_table(), *(each.rows for each in chunks)])
    return Conformed(rows, tuple(bad for each in chunks for bad in each.refused))


def ndjson(data: bytes) -> None:
    """Lines of JSON; with and without a column that asks for exact numbers, the same records are taken."""
    plain, exact = _read(data, "ndjson", PLAIN), _read(data, "ndjson", EXACT)
    assert (plain is None) == (exact is None)
    if plain is None or exact is None:
        return
    _sound(plain, PLAIN)
    _sound(exact, EXACT)
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line and not line.isspace()]
    assert plain.rows.num_rows + len(plain.refused) == len(lines)
    if b'"d"' not in data and b"\\u0064" not in data:
        assert _rows(plain) == _rows(Conformed(exact.rows.drop_columns(["d"])))
    _unknown_fields(data, plain, len(lines))


def _unknown_fields(data: bytes, plain: Conformed, lines: int) -> None:
    """What a stream takes that refuses unknown fields, one that ignores them takes too, and one that keeps them takes what
    that takes."""
    ignored, kept = _read(data, "ndjson", IGNORED), _read(data, "ndjson", KEPT)
    assert ignored is not None
    assert kept is not None
    _sound(ignored, IGNORED)
    _sound(kept, KEPT)
    assert ignored.rows.num_rows + len(ignored.refused) == kept.rows.num_rows + len(kept.refused) == lines
    assert Counter(_rows(plain)) <= Counter(_rows(ignored))
    if b"extra" not in data and b"\\u" not in data:
        assert _rows(ignored) == _rows(Conformed(kept.rows.drop_columns(["extra"])))
        assert kept.rows.filter(pc.is_null(kept.rows["extra"])).num_rows >= plain.rows.num_rows


def csv(data: bytes) -> None:
    """Lines of fields; the quick reader and the careful one agree."""
    for stream in (EXACT, KEPT):
        done = _read(data, "csv", stream)
        if done is not None:
            _sound(done, stream)
    bare = _read(data, "csv", BARE, header=False)
    if bare is not None:
        _sound(bare, BARE)
    quick = csv_blocks.split(data, [pa.string()] * 3, last=True, limit=0)
    careful = csv_blocks.careful_split(data, 3, last=True, limit=0)
    assert [each.to_pylist() for each in quick.columns] == [each.to_pylist() for each in careful.columns]
    assert quick.unreadable == careful.unreadable


def _body(kind: str) -> Callable[[bytes], None]:
    def target(data: bytes) -> None:
        for stream in (EXACT, KEPT):
            with contextlib.suppress(Problem, HayaseError):
                _sound(records_in(data, kind, stream, NOW), stream)

    return target


def inference(data: bytes) -> None:
    """A file whose schema is found: by the first byte CSV or NDJSON. What it says, its records can be read by."""
    form = "csv" if data[:1] < b"\x80" else "ndjson"
    path = _scratch() / f"inferred.{form}"
    path.write_bytes(data[1:])
    with contextlib.suppress(HayaseError):
        schema_of([path])


def _told(error: DeclarationError) -> None:
    assert error.mistakes
    str(error).encode()


def pipeline_file(data: bytes) -> None:
    """A pipeline file: a declaration, or mistakes with their places."""
    path = _scratch() / "pipeline.yaml"
    path.write_bytes(data)
    try:
        read_pipeline(path)
    except DeclarationError as error:
        _told(error)


def query(data: bytes) -> None:
    """The text of a query: stages, or mistakes."""
    text = data.decode("utf-8", "replace")
    streams = (
        StreamDeclaration(
            "s",
            "ts timestamp, k bigint, x double, name string, d decimal(10, 2), tags array<string>, j json, o time, u ubigint",
            "ts",
        ),
        StreamDeclaration("r", "ts timestamp, k bigint, y double", "ts"),
    )
    try:
        plan(PipelineDeclaration("p", streams=streams, queries=(QueryDeclaration("q", text),)))
    except DeclarationError as error:
        _told(error)


DOCUMENTS = [{"a": 1, "b": [1, 2.5, None], "c": {"d": "x"}}, {"a": "2026-01-31T12:00:00Z", "b": {}}, {}]


def jq(data: bytes) -> None:
    """A jq program: refused with mistakes, or it gives an answer for each document."""
    program = data.decode("utf-8", "replace")
    found = _jq()
    if not found.mistakes(program):
        assert len(found.evaluate(program, Events(DOCUMENTS))) == len(DOCUMENTS)


def http(data: bytes) -> None:
    """A request: `METHOD target`, lines of headers, an empty line, a body. It is answered, and never with a fault."""
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    path, _, asked = target.partition(b"?")
    if not method.isalpha() or b"/changes" in path or len(path) > 4000:
        return
    headers = [(b"host", b"localhost"), (b"authorization", b"Bearer " + TOKEN.encode())]
    headers += [
        (name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines[:20])
    ]
    if body:
        headers.append((b"content-length", b"%d" % len(body)))
    scope = {
        "type": "http", "method": method.decode("latin-1").upper(), "path": path.decode("latin-1"), "raw_path": path,
        "query_string": asked, "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8421),
        "scheme": "http", "http_version": "1.1", "root_path": "",
    }  # fmt: skip
    loop, app = _served()
    assert loop.run_until_complete(_asked(app, scope, body)) not in (0, 500)


async def _asked(app: Any, scope: dict[str, Any], body: bytes) -> int:
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    status = 0

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop()
        await asyncio.sleep(60)
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal status
        status = message.get("status", status)

    await app(scope, receive, send)
    return status


@functools.cache
def _scratch() -> Path:
    path = Path(tempfile.mkdtemp(prefix="hayase-fuzz-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@functools.cache
def _jq() -> Jq:
    made = Jq(JqLimits())
    made.__enter__()
    atexit.register(made.__exit__, None, None, None)
    return made


@functools.cache
def _served() -> tuple[asyncio.AbstractEventLoop, Any]:
    """The application over a small home; what is appended goes nowhere else."""
    from serving_shop import built

    home = _scratch() / "shop"
    shutil.copytree(built(), home)
    loop = asyncio.new_event_loop()

    async def made() -> Any:
        service = Service(Home(home), lambda: NOW, None, Status("running"))
        return create_app(service, limits=Limits(trial=0.1, body=64 << 10), access=Access(TOKEN), hosts=["localhost"])

    app = loop.run_until_complete(made())
    atexit.register(loop.close)
    return loop, app


TARGETS: dict[str, Callable[[bytes], None]] = {
    "ndjson": ndjson,
    "csv": csv,
    "json-body": _body(JSON),
    "ndjson-body": _body(NDJSON),
    "arrow-body": _body(ARROW),
    "inference": inference,
    "pipeline-file": pipeline_file,
    "query": query,
    "jq": jq,
    "http": http,
}
