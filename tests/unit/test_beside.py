"""A changed stage is built beside the old one: what readers see before, during and after, and what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

import hayase as hy
from hayase.core.errors import StageChanged
from hayase.engine.batch import build_progress
from hayase.engine.batch.gate import Grants
from hayase.engine.definition import definitions
from hayase.engine.local import InProcess
from hayase.engine.results.query_results import Results
from hayase.streams import StreamLog
from interruptions import Granting

SPEND = "select user, sum(amount) as spent from orders group by user"
COUNTS = "select user, count(*) as n, max(amount) as most from orders group by user"
RANKS = "select spent, count(*) as users from spend group by spent"


def declared(path: Path, spend: str = SPEND, **others: str) -> hy.Pipeline:
    pipeline = hy.Pipeline("shop", home=path)
    pipeline.stream("orders", schema="at bigint not null, user string, amount bigint", time="at", time_unit="us")
    pipeline.query("spend", spend)
    for name, text in others.items():
        pipeline.query(name, text)
    return pipeline


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [{"at": at, "user": "abc"[at % 3], "amount": at} for at in range(first, first + count)]


def rows(path: Path, name: str) -> list[dict[str, Any]]:
    """What a reader sees that knows nothing but the home and the name."""
    return sorted(Results(StreamLog.open(path, name)).at(), key=str)


def clean(path: Path, records: list[dict[str, Any]], name: str = "spend", **queries: str) -> list[dict[str, Any]]:
    pipeline = declared(path, **queries)
    pipeline.append("orders", records)
    pipeline.run_until_idle(spark=False)
    return rows(path, name)


def test_the_old_version_answers_until_the_new_one_has_caught_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_progress, "NEAR", 3)
    home = tmp_path / "home"
    pipeline = declared(home)
    pipeline.append("orders", orders(0, 30))
    pipeline.run_until_idle(spark=False)
    old = rows(home, "spend")
    changed = declared(home, COUNTS)
    with pytest.raises(StageChanged, match="--beside"):
        changed.apply()
    built = changed.apply(beside=True)
    assert built.build is not None
    assert [record.name for record in built.records] == ["spend", "spend@2"]
    gate = Granting(Grants(limit=4))
    with contextlib.closing(InProcess(pipeline.home, lambda: 0, gate)) as runner:
        seen = []
        appended = 30
        while runner.step():
            now = rows(home, "spend")
            seen.append("n" in now[0])
            if not seen[-1] and appended < 60:
                pipeline.append("orders", orders(appended, 2))
                appended += 2
                if appended == 32:
                    assert now == old
    assert seen == sorted(seen) and not seen[0] and seen[-1]
    assert rows(home, "spend") == clean(tmp_path / "clean", orders(0, appended), spend=COUNTS)
    newest = definitions.latest(pipeline.home)
    assert newest is not None and newest.build is None
    assert [(record.name, record.generation) for record in newest.records] == [("spend", 2)]
    assert sorted(path.name for path in (home / "streams").iterdir()) == ["orders", "spend"]
