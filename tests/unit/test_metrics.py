"""What governors, sources and outputs measure, in the text format of Prometheus."""

from __future__ import annotations

from pathlib import Path

from hayase.connectors.status import ConnectorStatus
from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
from hayase.serving.metrics import exposition
from hayase.serving.server_figures import HttpFigures
from hayase.serving.service import CommittedStatus
from hayase.storage import DirectoryStore

GOVERNORS = (
    GovernorStatus(
        "main", "informed", 4, 0, 130, 1, (QueueStatus("", "orders", 9.0, 1e-6, 9e-6, 1.0, 0, 0.0, 129, 0),)
    ),
    GovernorStatus(
        "operations", "als", 4, 0, 80, 40, (QueueStatus("scores", "orders", 2.0, 0.1, 0.2, 1.0, 3, 0.5, 80, 40),)
    ),
)


def samples(text: str) -> dict[str, str]:
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))


def test_queues_and_lanes() -> None:
    found = samples(exposition(CommittedStatus(), 0, 0.0, {}, HttpFigures(), GOVERNORS))
    of_queue = '{lane="operations",stage="scores",stream="orders"}'
    figures = {name: value for name, value in found.items() if name.endswith(of_queue)}
    assert {name.removesuffix(of_queue).removeprefix("hayase_queue_"): value for name, value in figures.items()} == {
        "records_per_second": "2.0", "service_seconds": "0.1", "load": "0.2", "share": "1.0", "waiting_records": "3",
        "waiting_seconds": "0.5", "polls_total": "80", "empty_polls_total": "40",
    }  # fmt: skip
    assert found['hayase_governor_slots{lane="main"}'] == "4"
    assert found['hayase_governor_empty_polls_total{lane="main"}'] == "1"
    assert found['hayase_queue_load{lane="main",stage="",stream="orders"}'] == "9e-06"


def test_sources_and_outputs() -> None:
    orders = ConnectorStatus("sources", "orders", "kafka", state="running", records=120, rate=2.5, lag=7, failures=4)
    totals = ConnectorStatus("outputs", "totals", "webhook", state="retrying", attempts=3, failures=3)
    found = samples(exposition(CommittedStatus(), 0, 0.0, {}, HttpFigures(), (), (orders, totals)))
    prefix, source = "hayase_connector_", '{role="source",name="orders",kind="kafka"}'
    assert {
        name.removeprefix(prefix).removesuffix(source): value for name, value in found.items() if name.endswith(source)
    } == {
        "up": "1.0", "records_total": "120", "records_per_second": "2.5", "lag_records": "7", "failed_attempts": "0",
        "failures_total": "4",
    }  # fmt: skip
    output = '{role="output",name="totals",kind="webhook"}'
    assert found[f"hayase_connector_up{output}"] == "0.0"
    assert found[f"hayase_connector_failed_attempts{output}"] == "3"
    assert f"hayase_connector_lag_records{output}" not in found  # it is not known


def test_requests_to_stores(tmp_path: Path) -> None:
    def reads() -> int:
        found = samples(exposition(CommittedStatus(), 0, 0.0, {}, HttpFigures()))
        return int(found.get('hayase_storage_requests_total{verb="read"}', 0))

    before = reads()
    DirectoryStore(tmp_path).read("name")
    assert reads() == before + 1


def test_without_any_the_families_are_empty() -> None:
    text = exposition(CommittedStatus(), 0, 0.0, {}, HttpFigures())
    assert "# TYPE hayase_queue_polls_total counter" in text
    assert not [name for name in samples(text) if name.startswith(("hayase_queue", "hayase_governor"))]
