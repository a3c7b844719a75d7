"""The page of measurements, from JSON that nobody measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from benchmarks import measurements

GOVERNOR = {
    "service_seconds": 0.1,
    "empty_poll_seconds": 0.01,
    "figure_5_workers": {"50": {"round-robin": {"1": 5, "80": None}, "ALS": {"1": 5, "80": 13}}},
    "figure_8": {
        "0.0": {"empty_share": 0.988, "queue_length": 0.013, "completion_seconds": 0.11},
        "0.5": {"empty_share": 0.497, "queue_length": 0.94, "completion_seconds": 1.03},
    },
    "figure_8_informed": {"empty_share": 0.03, "queue_length": 0.055, "completion_seconds": 0.15},
    "ratios": {"share of empty polls, informed (at most 0.05)": 0.03},
    "measured": {"machine": "an abacus", "commit": "0123456789", "at": "2026-01-31 12:00Z"},
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "results").mkdir()
    (tmp_path / "docs").mkdir()
    return tmp_path


def written(place: Path, **results: Any) -> str:
    for name, data in results.items():
        (place / "results" / f"{name}.json").write_bytes(orjson.dumps(data))
    measurements.main(["--results", str(place / "results"), "--docs", str(place / "docs")])
    return (place / "docs" / "measurements.md").read_text()


def test_figures_stand_beside_those_of_the_paper(place: Path) -> None:
    text = written(place, governor=GOVERNOR)
    assert "`hayase bench governor`, 2026-01-31 12:00Z, commit `0123456789`, on an abacus." in text
    assert "| figure 8: empty polls without restraint | 98.8% | 98.8% |" in text
    assert "| round-robin | 5 | > 50 |" in text
    assert "| share of empty polls, informed | 0.0300 | at most 0.05 |" in text


def test_trials_of_linear_road_are_in_the_order_of_their_expressways(place: Path) -> None:
    trial = {"records_per_second": 1738.2, "p50_seconds": 1.4, "p99_seconds": 2.0, "largest_seconds": 2.25}
    trials = {str(each): trial | {"late": 0, "cpu_seconds_per_second": 0.5} for each in (1, 16, 8)}
    text = written(place, linear_road={"expressways": 16, "seconds": 120, "trials": trials, "ratios": {}})
    assert "16 expressways keep every answer within 5 s, for 120 s in real time:" in text
    assert [line[:5] for line in text.splitlines() if "| 1,740 |" in line] == ["| 1 |", "| 8 |", "| 16 "]


def test_the_events_of_queries_without_bids_are_told(place: Path) -> None:
    rates = {"q2": {"process": 900_000.0, "lane": 500_000.0, "flink": 400_000.0}, "q3": {"process": 1.0, "lane": 2.0}}
    told = {"events": 1_000_000, "events_without_bids": {"q3": 8_000_000}, "events_per_second": rates, "ratios": {}}
    text = written(place, nexmark=told)
    assert "1,000,000 events, for those that read no bids (q3) 8,000,000; records read/s, from CSV files" in text


def test_pictures_come_along(place: Path) -> None:
    (place / "results" / "governor.png").write_bytes(b"a picture")
    assert "![governor](figures/governor.png)" in written(place, governor=GOVERNOR)
    assert (place / "docs" / "figures" / "governor.png").read_bytes() == b"a picture"


def test_sections_that_are_not_measured_again_stay(place: Path) -> None:
    first = written(place, governor=GOVERNOR)
    assert "## Operations\n\nNot measured yet: `hayase bench operations`.\n\n## jq in rules\n\n" in first
    (place / "results" / "governor.json").unlink()
    second = written(place, windows={"ratios": {"time per tuple (at most 3)": 1.5}})
    kept = first[first.index("## Paper 3") : first.index("## Paper 4")]
    assert "0123456789" in kept
    assert kept in second
    assert "| time per tuple | 1.50 | at most 3 |" in second


def test_json_of_another_shape_still_gives_its_ratios(place: Path) -> None:
    text = written(place, windows={"ratios": {"time per tuple (at most 3)": 1.5}})
    assert "only its ratios follow" in text
    assert "| time per tuple | 1.50 | at most 3 |" in text


def test_a_file_without_circumstances_is_dated(place: Path) -> None:
    text = written(place, latency={"p50_seconds": 0.33, "ratios": {}})
    assert "`hayase bench latency`, by the date of its file" in text
    assert "| p50 seconds | 0.330 |" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"),
        (7, "7"),
        (1_991_912, "1,991,912"),
        (7.0, "7.00"),
        (12.345, "12.3"),
        (999.6, "1,000"),
        (0.000123456, "0.000123"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_have_three_figures(value: float, shown: str) -> None:
    assert measurements.number(value) == shown
