"""The pictures of the benchmarks of windows, tables, latency, connectors and rates show the figures that they are given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from benchmarks import connectors, latency, measure, tables, windows
from matplotlib import pyplot as plt

from pictures import Graph, is_png, saved_graphs


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    return saved_graphs(monkeypatch)


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Every picture closes its figure: a run of all benchmarks keeps none of them."""
    yield
    assert plt.get_fignums() == []


def test_windows_by_their_size(tmp_path: Path, graphs: list[Graph]) -> None:
    times = {
        name: {str(factor): base * factor for factor in windows.FACTORS}
        for name, base in (("shared", 2.0), ("FlatFIT", 9.0))
    }
    assert is_png(windows.draw(tmp_path / "windows.png", times))
    (graph,) = graphs
    assert graph.title == "Sum and max over windows of {10, 13, 19, 40} times k, slide 2"
    assert (graph.x, graph.y) == ("k", "nanoseconds per tuple")
    assert graph.legend == ["shared", "FlatFIT"]
    assert graph.lines == {
        name: [(factor, base * factor) for factor in windows.FACTORS]
        for name, base in (("shared", 2.0), ("FlatFIT", 9.0))
    }


def test_tables_by_payloads_and_by_keys(tmp_path: Path, graphs: list[Graph]) -> None:
    tables.draw(tmp_path / "tables.png", {0: 5e-6, 100: 7e-6}, {1000: 0.25, 10**6: 0.5})
    assert is_png(tmp_path / "tables.png")
    reads, batches = graphs
    assert (reads.title, reads.x) == ("reading one key", "payloads since the snapshot (the first: none)")
    assert reads.y == "microseconds"
    assert list(reads.lines.values()) == [[(0.5, pytest.approx(5)), (100, pytest.approx(7))]]
    assert batches.title == "one batch of 10,000 events, append to commit"
    assert (batches.x, batches.y) == ("keys in the table", "milliseconds")
    assert list(batches.lines.values()) == [[(1000, 250.0), (10**6, 500.0)]]


def test_latency_is_a_share_of_the_events(tmp_path: Path, graphs: list[Graph]) -> None:
    latency.draw({"idle": np.array([0.4, 0.1, 0.2, 0.3]), "busy": np.array([0.5])}, tmp_path / "latency.png")
    assert is_png(tmp_path / "latency.png")
    (graph,) = graphs
    assert (graph.x, graph.y) == ("seconds from append to visible result", "share of events")
    assert graph.lines == {"idle": [(0.1, 0.25), (0.2, 0.5), (0.3, 0.75), (0.4, 1.0)], "busy": [(0.5, 1.0)]}


def test_rates_have_a_line_for_each_repetition_and_a_label_for_each_variant(
    tmp_path: Path, graphs: list[Graph]
) -> None:
    runs = {"hayase": [[10.0, 20.0], [30.0]], "spark": [[1.0, 2.0, 3.0]]}
    assert is_png(measure.draw_rates(tmp_path / "rates.png", "Totals", "records/s", runs))
    (graph,) = graphs
    assert (graph.title, graph.x, graph.y) == ("Totals", "second", "records/s")
    assert graph.legend == ["hayase", "spark"]
    assert sorted(graph.lines.values()) == [
        [(1, 1.0), (2, 2.0), (3, 3.0)],
        [(1, 10.0), (2, 20.0)],
        [(1, 30.0)],
    ]


def test_connectors_have_a_picture_for_each_server(tmp_path: Path, graphs: list[Graph]) -> None:
    connectors.draw(tmp_path / "connectors.png", {"Kafka": 500.0, "file": 600.0}, {"mirror by key": 70.0})
    assert is_png(tmp_path / "connectors.png")
    assert [graph.title for graph in graphs] == ["Kafka: records per second", "PostgreSQL: row changes per second"]
