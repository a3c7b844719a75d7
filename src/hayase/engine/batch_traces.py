"""Traces of batches for OpenTelemetry: where the time of a batch goes, in the tool that shows the traces of other services too.

A batch is a span with three inside: its records are processed (planned, mapped, reduced), its manifest is written, its outputs are
published. Each stage is an event of the batch, with what it read, wrote and refused. Spans are sent by a thread of their own;
a collector that is slow or away costs traces and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hayase.core.errors import HayaseError
from hayase.engine.batch.report import Figures
from hayase.engine.commit.ledger import Ledger
from hayase.engine.commit.manifests import BatchTimes
from hayase.engine.definition.definitions import latest

__all__ = ["traced_batches"]

END = 5_000
"""Milliseconds that the last spans have to be sent in when a run ends."""


@contextmanager
def traced_batches(ledger: Ledger, url: str | None) -> Iterator[None]:
    """Inside the block, send a trace of every batch that the ledger commits to the collector at this address, if there is one."""
    if url is None:
        yield
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise HayaseError('traces need another package; install it: pip install "hayase[traces]"') from error
    if not url.startswith(("http://", "https://")):
        raise HayaseError(f'"{url}" is no address of a collector; write it like http://127.0.0.1:4318')
    definition = latest(ledger.home)
    name = "hayase" if definition is None else definition.declaration.name
    provider = TracerProvider(
        resource=Resource.create({"service.name": name, "service.namespace": "hayase"}), shutdown_on_exit=False
    )
    exporter = OTLPSpanExporter(f"{url.rstrip('/')}/v1/traces", timeout=10)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("hayase")
    before, ledger.on_batch = ledger.on_batch, lambda times: _record(tracer, times)
    try:
        yield
    finally:
        ledger.on_batch = before
        provider.force_flush(END)
        provider.shutdown()


def _record(tracer: Any, times: BatchTimes) -> None:
    """Record the spans of a batch."""
    from opentelemetry.trace import set_span_in_context

    began = times.reported - round(times.manifest.seconds * 1e9)
    stages = {stage: _difference(times, stage) for stage in times.manifest.totals}
    attributes = {
        "hayase.lane": times.lane,
        "hayase.version": times.manifest.version,
        "hayase.definition": times.manifest.offset.definition,
        **{
            f"hayase.{name}": sum(getattr(each, name) for each in stages.values())
            for name in ("read", "written", "dead")
        },
    }
    batch = tracer.start_span(f"batch of {times.lane}", start_time=began, attributes=attributes)
    for stage, figures in stages.items():
        if figures.read or figures.written or figures.dead:
            done = {"read": figures.read, "written": figures.written, "dead": figures.dead, "seconds": figures.seconds}
            batch.add_event(stage, {f"hayase.{name}": value for name, value in done.items()}, times.reported)
    inside = set_span_in_context(batch)
    for name, start, end in (
        ("process", began, times.reported),
        ("write manifest", times.reported, times.renamed),
        ("publish", times.renamed, times.published),
    ):
        tracer.start_span(name, context=inside, start_time=start).end(end)
    batch.end(times.published)


def _difference(times: BatchTimes, stage: str) -> Figures:
    """Return what a stage did in the batch. Totals begin anew when a stage is reset."""
    now, before = times.manifest.totals[stage], times.base.totals.get(stage, Figures())
    if now.read < before.read:
        return now
    return Figures(
        read=now.read - before.read, written=now.written - before.written, dead=now.dead - before.dead,
        seconds=now.seconds - before.seconds,
    )  # fmt: skip
