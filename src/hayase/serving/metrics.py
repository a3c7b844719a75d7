"""The metrics in the text format of Prometheus (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from hayase.connectors.status import ConnectorStatus
from hayase.core.reasons import ReasonKind
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.lane_governor import GovernorStatus
from hayase.engine.commit.manifests import Manifest
from hayase.engine.condition import State
from hayase.serving.server_figures import HttpFigures, processor_seconds
from hayase.serving.service import CommittedStatus
from hayase.storage.request_counts import counts

__all__ = ["CONTENT_TYPE", "exposition"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Mapping[str, object], float]


def exposition(
    now: CommittedStatus,
    wall: int,
    monotonic: float,
    lags: Mapping[str, Mapping[str, int]],
    http: HttpFigures,
    governors: Sequence[GovernorStatus] = (),
    connectors: Sequence[ConnectorStatus] = (),
) -> str:
    """Return all metrics as text. `wall` is the wall-clock time in microseconds, `monotonic` a monotonic time in seconds,
    `governors` the state of the lanes' governors, `connectors` that of sources and outputs."""
    manifest, ago, processor = now.manifest, now.seconds_ago(wall, monotonic), processor_seconds()
    families = [
        _family("hayase_state", "gauge", "1 for the current state of the pipeline.",
                [({"state": state}, float(state == now.state)) for state in get_args(State)]),
        _family("hayase_clock_jumps_total", "counter", "How often the wall clock was set since the start.",
                [({}, now.condition.jumps)]),
        _family("hayase_clock_jump_seconds", "gauge", "By how much it was set last; below 0: set back.",
                [({}, now.condition.jump)]),
        _family("hayase_batches_total", "counter", "Batches committed in this home.", [({}, manifest.version)]),
        _family("hayase_batch_seconds", "gauge", "How long the last batch took.", [({}, manifest.seconds)]),
        _family("hayase_committed_seconds_ago", "gauge", "Time since the last commit.",
                [({}, ago)] if ago is not None else []),
        *(_of_stages(name, kind, text, manifest) for name, kind, text in _STAGES),
        _family("hayase_stage_dead_letters_total", "counter", "Dead letters of a stage, by kind of reason.",
                list(_letters_by_kind(manifest))),
        _family("hayase_stage_lag_records", "gauge", "Records of a stream that a stage has not yet read.",
                [({"stage": stage, "stream": stream}, count)
                 for stage, inputs in lags.items() for stream, count in inputs.items()]),
        _family("hayase_stage_clock_seconds", "gauge", "The event time up to which a stage has processed its inputs.",
                list(_clocks(now))),
        _family("hayase_stage_firings_missed_total", "counter", "Firings that a stage missed because the lane was busy.",
                [({"stage": stage}, firing.missed) for stage, firing in manifest.offset.firings.items()]),
        *_of_governors(governors),
        *_of_connectors(connectors),
        _family("hayase_storage_requests_total", "counter", "Requests of this process to object stores and directories of files.",
                [({"verb": verb}, count) for verb, count in sorted(counts().items())]),
        _family("hayase_http_requests_total", "counter", "Requests answered.",
                [({"method": method, "route": route, "status": status}, count)
                 for (method, route, status), count in sorted(http.answered.items())]),
        _family("hayase_http_seconds_total", "counter", "Time spent on requests.",
                [({"method": method, "route": route}, seconds) for (method, route), seconds in sorted(http.seconds.items())]),
        _family("hayase_http_processor_seconds_total", "counter", "Processor time of the server's threads.",
                [({}, processor)] if processor is not None else []),
        _family("hayase_http_running", "gauge", "Requests in progress.", [({}, http.running)]),
        _family("hayase_http_listening", "gauge", "Streams of events in progress.", [({}, http.listening)]),
    ]  # fmt: skip
    return "".join(families)


_STAGES = (
    ("read", "counter", "Records read."),
    ("processed", "counter", "Records processed."),
    ("repeated", "counter", "Repeats of records with the same id, left out (dedupe)."),
    ("dead", "counter", "Records that became dead letters."),
    ("spoiled", "counter", "Intermediate rows of a stage that became dead letters."),
    ("waiting", "gauge", "Records that wait for the clock."),
    ("written", "counter", "Records written."),
    ("seconds", "counter", "Time spent in tasks."),
)


def _of_stages(name: str, kind: str, text: str, manifest: Manifest) -> str:
    suffix = "_total" if kind == "counter" else ""
    samples = [({"stage": stage}, getattr(figures, name)) for stage, figures in manifest.totals.items()]
    return _family(f"hayase_stage_{name}{suffix}", kind, text, samples)


def _letters_by_kind(manifest: Manifest) -> Iterable[Sample]:
    for stage, figures in manifest.totals.items():
        uncounted = figures.dead + figures.spoiled - sum(figures.kinds.values())  # from before letters had kinds
        counts = {**figures.kinds, **({ReasonKind.UNKNOWN.value: uncounted} if uncounted else {})}
        for kind, count in sorted(counts.items()):
            yield {"stage": stage, "kind": kind}, count


_QUEUES = (
    ("rate", "records_per_second", "gauge", "Arrival rate of a queue, in records per second."),
    ("service", "service_seconds", "gauge", "Mean service time of a record of a queue."),
    ("load", "load", "gauge", "Workers that a queue keeps busy."),
    ("share", "share", "gauge", "Share of the recently granted work that went to a queue."),
    ("waiting", "waiting_records", "gauge", "Records that wait in a queue."),
    ("waited", "waiting_seconds", "gauge", "Time since the oldest record that waits in a queue was written."),
    ("polls", "polls_total", "counter", "Polls of a queue since the lane was started."),
    ("empty", "empty_polls_total", "counter", "Polls of a queue that found nothing."),
)


def _of_governors(governors: Sequence[GovernorStatus]) -> Iterable[str]:
    lanes = [({"lane": governor.lane}, governor) for governor in governors]
    yield _family("hayase_governor_slots", "gauge", "Tasks of a lane that can run at once.",
                  [(labels, governor.slots) for labels, governor in lanes])  # fmt: skip
    yield _family("hayase_governor_polls_total", "counter", "Polls of queues, and of all queues at once that found nothing.",
                  [(labels, governor.polls) for labels, governor in lanes])  # fmt: skip
    yield _family("hayase_governor_empty_polls_total", "counter", "Polls that found nothing.",
                  [(labels, governor.empty) for labels, governor in lanes])  # fmt: skip
    for name, suffix, kind, text in _QUEUES:
        samples = [
            ({**labels, "stage": queue.stage, "stream": queue.stream}, getattr(queue, name))
            for labels, governor in lanes
            for queue in governor.queues
        ]
        yield _family(f"hayase_queue_{suffix}", kind, text, samples)


def _of_connectors(connectors: Sequence[ConnectorStatus]) -> Iterable[str]:
    labels = [
        ({"role": each.role.removesuffix("s"), "name": each.name, "kind": each.kind}, each) for each in connectors
    ]
    yield _family("hayase_connector_up", "gauge", "1 if a source or an output works, 0 if it is tried again, paused or stopped.",
                  [(label, float(each.state == "running")) for label, each in labels])  # fmt: skip
    yield _family("hayase_connector_records_total", "counter", "Records or changes moved since the pipeline started.",
                  [(label, each.records) for label, each in labels])  # fmt: skip
    yield _family("hayase_connector_records_per_second", "gauge", "Those per second, over the last seconds.",
                  [(label, each.rate) for label, each in labels])  # fmt: skip
    yield _family("hayase_connector_lag_records", "gauge", "What waits on the other side of a source, or in results.",
                  [(label, each.lag) for label, each in labels if each.lag is not None])  # fmt: skip
    yield _family("hayase_connector_failed_attempts", "gauge", "How often it has failed in a row.",
                  [(label, each.attempts) for label, each in labels])  # fmt: skip
    yield _family("hayase_connector_failures_total", "counter", "How often it has failed since the pipeline started.",
                  [(label, each.failures) for label, each in labels])  # fmt: skip


def _clocks(now: CommittedStatus) -> Iterable[Sample]:
    for stage in now.manifest.offset.positions:
        clock = now.clock(stage)
        if clock is not None and BEGINNING < clock < END:
            yield {"stage": stage}, clock / 1e6


def _family(name: str, kind: str, text: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for labels, value in samples:
        inside = ",".join(f'{key}="{_escaped(str(label))}"' for key, label in labels.items())
        lines.append(f"{name}{{{inside}}} {value}" if inside else f"{name} {value}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
