"""The benchmark of paper 1 at tiny sizes: all methods give equal results. No time is looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from benchmarks import lifetimes
from benchmarks.insertion_queue import InsertionQueue
from benchmarks.lifetimes import KINDS, MS, QUERIES, Kind
from benchmarks.negative_tuples.kernel import NegativeKernel

from hayase.core.stages import Kernel, Outcome
from hayase.lifetimes.kernel import KernelConfig, QueryKernel
from hayase.lifetimes.tuples import TupleStore
from pictures import is_png, saved_graphs

BATCH, STEPS = 32, 4


class Inserting(QueryKernel):
    def __init__(self, length: int, config: KernelConfig) -> None:
        with patch("hayase.lifetimes.tuples.ExpiryQueue", partial(InsertionQueue, length)):
            super().__init__(config)

    def process(self, *given: Any) -> Outcome:
        with patch.object(TupleStore, "advance", lifetimes.one_by_one):
            return super().process(*given)


def inserting(length: int) -> Callable[[KernelConfig], Kernel]:
    return partial(Inserting, length)


def snapshots(name: str, kind: Kind, size: int, build: Callable[[KernelConfig], Kernel]) -> list[Counter[Any]]:
    """The result at every half millisecond of some steps."""
    query = QUERIES[name]
    plan = query.plan(kind, size)
    own = [pa.field(each, pa.int64()) for each in ("row_id", "valid_from", "valid_to", "changed_at")]
    kernel = build(KernelConfig(plan, pa.schema([*plan.schema, *own])))
    streams = len(query.schemas)
    known: dict[int, tuple[Any, int, int | None]] = {}
    for step in range(STEPS):
        since, clock = step * BATCH // streams * MS, (step + 1) * BATCH // streams * MS
        outcome = kernel.process(query.data(step * BATCH, BATCH), since, clock, step + 1)
        for *values, number, start, end, _ in (each.values() for each in outcome.rows.to_pylist()):
            known[number] = (tuple(values), start, end)
    return [
        Counter(row for row, start, end in known.values() if start <= now and (end is None or now < end))
        for now in range(0, STEPS * BATCH // streams * MS, MS // 2)
    ]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("size", [10, 50])
def test_all_methods_agree(name: str, kind: Kind, size: int) -> None:
    wanted = snapshots(name, kind, size, NegativeKernel)
    assert any(wanted)
    assert snapshots(name, kind, size, QueryKernel) == wanted
    length = size // len(QUERIES[name].schemas) * MS if kind == "time" else 0
    assert snapshots(name, kind, size, inserting(length)) == wanted


def test_a_window_cuts_out_as_many_tuples_as_its_size_says() -> None:
    for kind in KINDS:
        for name in ("projection", "union"):
            assert snapshots(name, kind, 10, QueryKernel)[-1].total() == 10


def test_the_difference_lives_for_half_a_millisecond() -> None:
    found = snapshots("except", "time", 10, QueryKernel)
    assert [each.total() for each in found] == [1, 0] * (len(found) // 2)


@pytest.mark.parametrize("name", QUERIES)
def test_every_method_is_measured(name: str) -> None:
    rates = lifetimes.measured(name, "time", 20, list(lifetimes.METHODS), steps=2, batch=BATCH)
    assert set(rates) == set(lifetimes.METHODS)
    assert all(rate > 0 for rate in rates.values())


def test_what_cannot_fill_its_windows_in_time_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifetimes, "PATIENCE", 0.0)
    rates = lifetimes.measured("join", "time", 1000, ["DT, insertion"], steps=2, batch=BATCH)
    assert rates["DT, insertion"] > 0


def test_the_table_and_the_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = saved_graphs(monkeypatch)
    rates = {
        name: {f"{method}, {kind}": {10: 1000.0, 100: 2000.0} for method in ("NT", "DT") for kind in KINDS}
        for name in QUERIES
    }
    lifetimes.print_rates(rates)
    assert "2.00" in capsys.readouterr().out
    assert is_png(lifetimes.draw(rates, tmp_path / "figure.png"))
    drawn = {graph.title: graph for graph in graphs if graph.title}
    assert drawn.keys() == QUERIES.keys()
    for graph in drawn.values():
        assert graph.lines.keys() == {f"{method}, {kind}" for method in ("NT", "DT") for kind in KINDS}
        assert all(points == [(10, 1.0), (100, 2.0)] for points in graph.lines.values())  # relative to NT at 10 rows
    assert [graph.x for graph in graphs] == [""] * 3 + ["tuples in the windows"] * 3
    assert [graph.y for graph in graphs] == ["throughput (NT, 10 rows = 1)", "", ""] * 2
    assert lifetimes.ratios_of(rates, {})["dt_over_nt_join_rows_100"] == 1.0
