"""The laws of tables, without a JVM: what a table holds depends on the events that were taken in, and on nothing else.

However they are shuffled, repeated, cut into appends, batches, tasks and buckets, whatever is folded in between: answers,
dead letters and figures are those of the plain model.
"""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from unittest import mock

import pytest
from hypothesis import HealthCheck, Phase, event, example, given, settings
from hypothesis import strategies as st

import hayase as hy
from effort import examples
from hayase.engine import local
from hayase.engine.batch import offsets
from hayase.engine.batch.gate import Grants
from hayase.engine.commit.housekeeping import fold_tables, run_housekeeping
from hayase.engine.commit.manifests import Commits, Manifest
from hayase.engine.definition.definitions import latest
from hayase.engine.local import InProcess
from hayase.tables.stores import open_readable
from hayase.tables.table import TooOld
from interruptions import Granting, passing_home
from purchases import TABLES, Log, Row, answers_of, check, expected, market

LAW = settings(
    max_examples=examples(8, 120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a run is a hundred fsyncs: shrinking would take minutes
)
FOR_EVER = 2**40

countries, users = st.sampled_from(["jp", "fr", "日本", None]), st.sampled_from(["a", "b", "", "a\0", None])
times = st.integers(-4, 12).map(lambda each: 5 * each)
money = st.none() | st.decimals(-5, 9, places=2) | st.sampled_from([Decimal("9999999.99"), Decimal(0)])
sales = st.fixed_dictionaries(
    {
        "at": times,
        "id": st.sampled_from(["x", "y", "z", "1", "0b8f7a6e"]),
        "kind": st.sampled_from(["purchase", "purchase", "refund", "view", None]),
        "country": countries,
        "user": users,
        "amount": money,
    }
)
visits = st.fixed_dictionaries(
    {
        "at": times,
        "id": st.integers(-2, 2),
        "country": countries,
        "user": users,
        "page": st.sampled_from(["basket", "bin", "home", None]),
    }
)


def different(rows: st.SearchStrategy[Row]) -> st.SearchStrategy[list[Row]]:
    """Events, each of which has a time and an id of its own: what comes again is equal."""
    return st.lists(rows, min_size=1, max_size=12, unique_by=lambda row: (row["at"], row["id"]))


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """The streams as they arrive: in any order, some events several times."""
    made = {}
    for source, rows in (("sales", draw(different(sales))), ("visits", draw(different(visits)))):
        again = draw(st.lists(st.sampled_from(rows), max_size=12))
        made[source] = draw(st.permutations(rows + again))
    return made


_SALE = {"at": 0, "id": "x", "kind": "purchase", "country": "jp", "user": "a", "amount": Decimal(1)}
_VISIT = {"at": 0, "id": 1, "country": "jp", "user": "a", "page": "home"}
_BOUGHT = [{**_SALE, "at": at} for at in (0, 20, 40)]
_VISITED = [{**_VISIT, "at": at} for at in (0, 20, 40)]
_AGAIN_AND_FAR_LATER = {
    "sales": [_SALE, _SALE, {**_SALE, "at": 100}],
    "visits": [_VISIT, _VISIT, {**_VISIT, "at": 100}],
}


@dataclass(frozen=True)
class Moment:
    """What happens between two appends: batches, a fold, a new runner."""

    sales: int
    visits: int
    steps: int = 0
    limit: int = 100
    fold: bool = False
    restart: bool = False


moments = st.lists(
    st.builds(
        Moment,
        st.integers(1, 8),
        st.integers(1, 8),
        st.integers(1, 3),
        st.sampled_from([1, 3, 100]),
        st.sampled_from([True, True, False]),
        st.booleans(),
    ),
    max_size=6,
)


def fold(pipeline: hy.Pipeline, runner: InProcess) -> int:
    """Fold everything that is old enough."""
    definition = latest(pipeline.home)
    assert definition is not None
    return fold_tables(runner.tables, runner.manifest, definition, lambda: False)


def disturbed(pipeline: hy.Pipeline, log: Log, script: list[Moment], tasks: int = 1) -> None:
    """Append and run by a script, then to the end, then fold once more."""
    gate = Granting()
    pipeline.apply()
    at = dict.fromkeys(log, 0)
    with mock.patch.object(local, "ranges", partial(offsets.ranges, least=1)):
        runner = InProcess(pipeline.home, lambda: 0, gate=gate, tasks=tasks)
        runner.step()  # begins the tables
        for moment in script:
            for source, count in (("sales", moment.sales), ("visits", moment.visits)):
                if count:
                    pipeline.append(source, log[source][at[source] : at[source] + count])
                    at[source] += count
            gate.now = Grants(limit=moment.limit)
            for _ in range(moment.steps):
                runner.step()
            if moment.fold:
                event(f"folded: {fold(pipeline, runner) > 0}")
            if moment.restart:
                runner.close()
                runner = InProcess(pipeline.home, lambda: 0, gate=gate, tasks=tasks)
        for source, rows in log.items():
            pipeline.append(source, rows[at[source] :])
        gate.now = Grants()
        runner.run_until_idle()
        runner.close()


def fold_at_last(pipeline: hy.Pipeline) -> int:
    with closing(InProcess(pipeline.home, lambda: 0)) as runner:
        return fold(pipeline, runner)


@LAW
@given(logs(), moments, st.integers(1, 3), st.integers(1, 3), st.booleans())
@example(  # folded, folded again when more has become old, and only then repeated
    {"sales": [*_BOUGHT, *_BOUGHT], "visits": [*_VISITED, *_VISITED]},
    [Moment(1, 1, 1, fold=True)] * 3,
    1,
    1,
    False,
)
def test_a_table_depends_on_the_events_alone(
    log: Log, script: list[Moment], tasks: int, buckets: int, together: bool
) -> None:
    with passing_home() as home:
        pipeline = market(home, fold_after=10, horizon=FOR_EVER, buckets=buckets, together=together)
        disturbed(pipeline, log, script, tasks)
        check(pipeline, log, FOR_EVER)
        fold_at_last(pipeline)
        check(pipeline, log, FOR_EVER)


@LAW
@given(logs(), moments, st.sampled_from([0, 5, 10, 20, 40]), st.sampled_from([0, 5, 20]))
def test_what_is_older_than_the_horizon_is_a_dead_letter_and_everything_else_counts_once(
    log: Log, script: list[Moment], horizon: int, fold_after: int
) -> None:
    with passing_home() as home:
        pipeline = market(home, min(fold_after, horizon), horizon)
        disturbed(pipeline, log, script)
        check(pipeline, log, horizon)
        fold_at_last(pipeline)
        check(pipeline, log, horizon)


@LAW
@given(logs(), moments, st.integers(0, 80), st.integers(0, 2**32))
def test_as_of_is_a_replay_of_the_log_up_to_then(log: Log, script: list[Moment], fold_after: int, seed: int) -> None:
    """An answer as of a time is there as far back as nothing is folded, and is what a table is that never saw more."""
    with passing_home() as home:
        pipeline = market(home, fold_after, FOR_EVER)
        disturbed(pipeline, log, script)
        fold_at_last(pipeline)
        wanted = expected(log, FOR_EVER)
        draw = random.Random(seed)
        oldest = -22
        with closing(InProcess(pipeline.home, lambda: 0)) as runner:
            for name in TABLES:
                table = runner.tables.table(name)
                folded_before = table.folded_before()
                first = -22 if folded_before is None else folded_before - 1
                oldest = max(oldest, first)
                for moment in {first - 1, first, *draw.sample(range(-22, 63), 12)}:
                    if moment < first and folded_before is not None:
                        with pytest.raises(TooOld):
                            table.scan(as_of=moment)
                    else:
                        assert dict(table.scan(as_of=moment).rows) == wanted[name].answers(name, moment), moment
        until = draw.randint(oldest, 62)
        replayed = market(home / "replay")
        disturbed(replayed, {source: [row for row in rows if row["at"] <= until] for source, rows in log.items()}, [])
        for name in TABLES:
            assert answers_of(replayed, name) == answers_of(pipeline, name, as_of=until)


@LAW
@given(logs(), moments, moments, st.integers(0, 2**32))
def test_two_orders_of_arrival_give_the_same_bytes(log: Log, one: list[Moment], other: list[Moment], seed: int) -> None:
    """Without a fold also the stores are equal, entry for entry; folded, snapshot for snapshot."""
    draw = random.Random(seed)
    shuffled = {source: draw.sample([*rows, *rows[::2]], len(rows) + len(rows[::2])) for source, rows in log.items()}
    with passing_home() as home:
        found = []
        for name, given_log, script in (("one", log, one), ("other", shuffled, other)):
            pipeline = market(home / name, fold_after=20, horizon=FOR_EVER, buckets=len(script) % 3 + 1)
            disturbed(pipeline, given_log, [replace(each, fold=False) for each in script])
            before = {table: stored(pipeline, table, b"p") for table in TABLES}
            fold_at_last(pipeline)
            found.append((before, {table: stored(pipeline, table, b"p", b"z", b"s") for table in TABLES}))
        assert found[0] == found[1]


def stored(pipeline: hy.Pipeline, table: str, *kinds: bytes) -> list[tuple[bytes, bytes]]:
    """What a table's store holds of some kinds: payloads, snapshots of rows, marks of what is in these."""
    with closing(open_readable(pipeline.home.table(table))) as store:
        return store.read(lambda view: [each for kind in kinds for each in view.scan(kind, bytes((kind[0] + 1,)))])


@LAW
@given(logs(), st.integers(0, 30), st.lists(st.integers(1, 6), max_size=12), st.integers(0, 10))
@example(_AGAIN_AND_FAR_LATER, 50, [1, 1], 0)  # the repetition is taken in when its time is past the horizon
def test_folding_between_the_manifest_and_the_table_counts_nothing_twice(
    log: Log, horizon: int, limits: list[int], fold_after: int
) -> None:
    """Upkeep is a thread of its own: it may look when a batch is committed that is not in the tables yet."""
    with passing_home() as home:
        pipeline = market(home, min(fold_after, horizon), horizon)
        pipeline.apply()
        for source, rows in log.items():
            pipeline.append(source, rows)
        gate = Granting()
        runner = InProcess(pipeline.home, lambda: 0, gate=gate)
        plain = Commits.take_in

        def after_upkeep(self: Commits, manifest: Manifest, replaced: frozenset[str]) -> None:
            run_housekeeping(pipeline.home, 0, runner.commits)
            plain(self, manifest, replaced)

        with mock.patch.object(Commits, "take_in", after_upkeep):
            for limit in limits:
                gate.now = Grants(limit=limit)
                runner.step()
            gate.now = Grants()
            runner.run_until_idle()
        runner.close()
        check(pipeline, log, horizon)


RULES_THAT_BREAK = r"""
source: events
rules:
  - when: if .amount == 13 then error("unlucky") else .kind != "other" end
    tables:
      counts:
        key: .user
        columns: {total: .amount, items: '.items / "," | .[]', n: "1"}
  - tables:
      counts:
        key: .user
        columns: {seen: .at}
"""


def test_an_event_that_breaks_one_rule_counts_for_the_others() -> None:
    rows: list[Row] = [
        {"at": 1, "id": "a", "user": "taro", "amount": 5, "items": "x,y", "kind": None},
        {"at": 2, "id": "b", "user": "taro", "amount": 6, "items": None, "kind": None},
        {"at": 3, "id": "c", "user": "taro", "amount": None, "items": "", "kind": None},
        {"at": 4, "id": "d", "user": "taro", "amount": 13, "items": "z", "kind": None},
        {"at": 5, "id": "e", "user": None, "amount": 7, "items": "z", "kind": None},
        {"at": 6, "id": "f", "user": "jiro", "amount": 8, "items": "z", "kind": "other"},
        {"at": 7, "id": None, "user": "jiro", "amount": 8, "items": "z", "kind": None},
        {"at": None, "id": "g", "user": "jiro", "amount": 8, "items": "z", "kind": None},
        {"at": 8, "id": "h" * 2000, "user": "jiro", "amount": 8, "items": "z", "kind": None},
        {"at": 9, "id": "i", "user": "j" * 2000, "amount": 8, "items": "z", "kind": None},
    ]
    with passing_home() as home:
        pipeline = hy.Pipeline("events", home, clock=lambda: 0)
        schema = "at bigint, id string, user string, amount bigint, items string, kind string"
        pipeline.stream("events", schema, "at", id="id", time_unit="us", max_ahead=None)
        pipeline.table("counts", key="user", total=hy.Counter(), items=hy.GSet(), n=hy.Counter(), seen=hy.Register())
        pipeline.rules(text=RULES_THAT_BREAK)
        pipeline.append("events", rows)
        pipeline.run_until_idle(spark=False)
        assert answers_of(pipeline, "counts") == {
            ("taro",): {"total": 11, "items": ["x", "y"], "n": 3, "seen": 4},
            ("jiro",): {"total": 0, "items": [], "n": 0, "seen": 6},
        }
        letters = pipeline.dead_letters()
        told = {row["offset"]: row["reason"] for row in letters if row["stage"] == "counts"}
        assert len(told) == sum(row["stage"] == "counts" for row in letters)
        for offset, *words in (
            (1, "counts.items", "null"),
            (2, "counts.total", "null"),
            (3, "branch 1", "unlucky"),
            (4, "counts.total", "counts.items", "counts.n", "counts.seen", "key is null"),
            (6, "id"),
            (7, "counts.total", "counts.seen", "key"),
        ):
            for word in words:
                assert word in told[offset], (told[offset], word)
        assert sorted(told) == [1, 2, 3, 4, 6, 7]
        appended = [row for row in letters if row["stage"] == "append"]
        assert ["id" in row["reason"] or "at" in row["reason"] for row in appended] == [True, True]
        each = pipeline.progress().totals["counts"]
        assert (each.read, each.processed, each.dead) == (8, 2, 6)
