"""Traces of batches, as a collector of OpenTelemetry gets them: decoded by OpenTelemetry's own protocol."""

from __future__ import annotations

import gzip
import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from hayase import Pipeline


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """Yield an address that takes traces, and what was sent there."""
    taken: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            taken.extend(ExportTraceServiceRequest.FromString(body).resource_spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", taken
        server.shutdown()
        thread.join()


def shop(home: Path) -> Pipeline:
    pipeline = Pipeline("shop", home=home)
    pipeline.stream("orders", schema="time timestamp, user string, amount double", time="time")
    pipeline.query("large", "select user, amount from orders where amount >= 100")
    pipeline.append(
        "orders", [{"time": "2026-01-31T12:00:00Z", "user": "taro", "amount": each} for each in (1.0, 200.0)]
    )
    pipeline.finish("orders")
    return pipeline


def test_a_batch_is_a_trace(tmp_path: Path) -> None:
    pipeline = shop(tmp_path / "home")
    with collector() as (url, taken):
        pipeline.start(spark=False, traces=url)
        pipeline.wait_until_idle()
        pipeline.stop()
    (resource,) = {each.SerializeToString(): each for each in (spans.resource for spans in taken)}.values()
    assert {each.key: each.value.string_value for each in resource.attributes}["service.name"] == "shop"
    spans = [span for spans in taken for scope in spans.scope_spans for span in scope.spans]
    batches = [span for span in spans if not span.parent_span_id]
    read = [{each.key: each.value.int_value for each in span.attributes}["hayase.read"] for span in batches]
    assert sum(read) == 2
    (batch,) = [span for span, count in zip(batches, read, strict=True) if count]
    (event,) = batch.events
    assert event.name == "large"
    inside = sorted(
        (span for span in spans if span.parent_span_id == batch.span_id), key=lambda span: span.start_time_unix_nano
    )
    assert [span.name for span in inside] == ["process", "write manifest", "publish"]
    assert inside[0].start_time_unix_nano == batch.start_time_unix_nano
    assert inside[-1].end_time_unix_nano == batch.end_time_unix_nano
    for one, next_ in itertools.pairwise(inside):
        assert one.end_time_unix_nano == next_.start_time_unix_nano


def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    pipeline = shop(tmp_path / "home")
    with collector() as (url, _):
        pass
    pipeline.start(spark=False, traces=url)
    pipeline.wait_until_idle()
    pipeline.stop()
    assert [row["amount"] for row in pipeline.query("large").rows()] == [200.0]
