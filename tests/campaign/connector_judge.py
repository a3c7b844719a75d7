"""The verdict on a connector round: each record once in its stream, each change once in each target, and nothing left behind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import hayase as hy
from campaign import judge
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.streams.dead_letters import DEAD
from hayase.streams.log import StreamLog

if TYPE_CHECKING:
    from campaign.connectors import ConnectorRound

__all__ = ["count", "present", "verdict"]

FILES_OF_A_LANE = 126
"""State files: of three stages in two buckets, at most seven of each of three sizes (`hayase.engine.batch.state`)."""


def count(home: Path, stream: str) -> int:
    """How many records a stream has."""
    return StreamLog.open(home, stream).index().next


def records(home: Path, stream: str) -> list[dict[str, Any]]:
    log = StreamLog.open(home, stream)
    return [row for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]


def present(home: Path) -> Counter[tuple[Any, ...]]:
    """The rows of the table, by the changes in the stream."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for record in records(home, "users"):
        rows[(record["id"], record["name"], record["n"])] += 1 if record["op"] == "+" else -1
    return +rows


def verdict(round: ConnectorRound) -> list[str]:
    """Return what is wrong."""
    pipeline = round.pipeline()
    return [
        *_check_streams(round),
        *_check_answers(round, pipeline),
        *_check_targets(round, pipeline),
        *judge.check_figures(pipeline),
        *judge.check_files(round.home, FILES_OF_A_LANE),
        *_check_left(round),
    ]


def _differ(what: str, found: Iterable[Any], wanted: Iterable[Any]) -> list[str]:
    one, other = Counter(found), Counter(wanted)
    missing, extra = list((other - one).elements()), list((one - other).elements())
    if not missing and not extra:
        return []
    return [f"{what}: {len(missing)} missing, e.g. {missing[:3]}; {len(extra)} too many, e.g. {extra[:3]}"]


def _check_streams(round: ConnectorRound) -> list[str]:
    """The streams have what was sent, each record once."""
    orders = Counter(record["id"] for record in records(round.home, "orders"))
    in_topic = Counter(message["id"] for message in round.at.messages(round.name))
    wrong = _differ("orders in the stream", orders, in_topic)
    known = Counter({number: times for number, times in in_topic.items() if number not in round.traffic.unknown})
    wrong += _differ("orders in the topic", known, round.traffic.sent)  # or else the round itself is at fault
    logs = Counter(record["id"] for record in records(round.home, "logs"))
    wrong += _differ("records of files", logs.elements(), round.traffic.logged.elements())
    changes = Counter((row["op"], row["id"], row["name"], row["n"]) for row in records(round.home, "users"))
    audit = round.at.rows(f"SELECT op, id, name, n FROM {round.name}_audit")
    if round.slot_dropped:  # the steps between are not known, but nothing else may be there
        wrong += [f"changes that never were: {list((changes - audit).elements())[:3]}"] if changes - audit else []
    else:
        wrong += _differ("changes of the table", changes.elements(), audit.elements())
    table = round.at.rows(f"SELECT id, name, n FROM {round.name}")
    wrong += _differ("the table, by the stream", present(round.home).elements(), table.elements())
    letters = StreamLog.ensure(round.home, DEAD).index().next
    return wrong + ([f"{letters} dead letters"] if letters else [])


def _check_answers(round: ConnectorRound, pipeline: hy.Pipeline) -> list[str]:
    """The results are those of a clean run on the same streams, without sources and outputs, in another home."""
    clean = hy.Pipeline("clean", round.folder / "clean")
    clean.declaration = replace(pipeline.declaration, sources=(), outputs=())
    for stream in clean.declaration.streams:
        source = StreamLog.open(round.home, stream.name)
        index = source.index()
        target = StreamLog.ensure(clean.home.path, stream)
        pieces = [piece.rows for piece in source.read(0, index.next)]
        if pieces:
            target.append(pa.Table.from_batches(pieces), now=1)
        target.advance(index.clock)
        if index.finished:
            target.finish()
    forget_kernels()
    clean.run_until_idle(spark=False)
    return judge.differences(judge.answers(pipeline), judge.answers(clean))


def _check_targets(round: ConnectorRound, pipeline: hy.Pipeline) -> list[str]:
    """The targets have every change of the results once."""
    spend = [(at, sign, row["user"], row["total"]) for at, sign, row in pipeline.query("spend").changes()]
    messages = [
        (datetime.fromisoformat(one["time"]), one["change"], one["row"]["user"], one["row"]["total"])
        for one in round.at.messages(round.alerts)
    ]
    wrong = _differ("messages", messages, spend)
    delta = DeltaTable(str(round.lake / "spend")).to_pyarrow_table().to_pylist()
    wrong += _differ(
        "rows in Delta", [(row["_time"], row["_change"], row["user"], row["total"]) for row in delta], spend
    )
    files = sorted((round.lake / "orders").rglob("*.parquet"))
    rows = [row["id"] for file in files for row in pq.read_table(file).to_pylist()]
    wrong += _differ("rows in Parquet", rows, [record["id"] for record in records(round.home, "orders")])
    mirror = round.at.rows(f"SELECT id, name, n FROM {round.name}_mirror")
    wrong += _differ("the mirror", mirror.elements(), present(round.home).elements())
    history = round.at.rows(f"SELECT id, name, n, valid_from, valid_to FROM {round.name}_history")
    intervals = [
        (row["id"], row["name"], row["n"], begin, end) for row, begin, end in pipeline.query("present").intervals()
    ]
    return wrong + _differ("the history", history.elements(), intervals)


def _check_left(round: ConnectorRound) -> list[str]:
    """No transaction is open in the topics, no draft lies in the lake, no session of Hayase's is left."""
    open_ends = round.at.unstable(round.alerts)
    wrong = [f"transactions are open in {round.alerts}: {open_ends}"] if open_ends else []
    drafts = list(round.lake.rglob("*.tmp"))
    wrong += [f"{len(drafts)} drafts are left, such as {drafts[0]}"] if drafts else []
    sessions = round.at.rows("SELECT pid FROM pg_stat_activity WHERE application_name = 'hayase'")
    return wrong + ([f"{sessions.total()} sessions are left in PostgreSQL"] if sessions else [])
