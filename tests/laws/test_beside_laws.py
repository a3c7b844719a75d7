"""A build beside the old version: before the switch readers see what the old definition answers, from it on what the new one does,
for any records, batches, moment of the change and deaths; and every dead letter is there once."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import hayase as hy
import shop
from effort import examples
from hayase.engine.batch import build_progress
from hayase.engine.batch.gate import Grants
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.definition import definitions
from hayase.engine.local import InProcess
from hayase.engine.results.query_results import Results
from hayase.streams import StreamLog, durable
from hayase.streams.dead_letters import DEAD
from hayase.streams.schema_evolution import stored_declaration
from interruptions import Granting, passing_home

TEXTS = {
    "spend": shop.SPEND,
    "large": shop.SPEND.replace("from events", "from events where amount > 3"),
    "counts": "select user, count(*) as n, max(amount) as most from events group by user",
    "wide": "select user, amount, count(*) as n from events [Rows 9] group by user, amount",
} | {
    name: shop.WINDOWED[name]
    for name in ("recent", "latest", "crowds", "hours", "visits", "entered", "pairs", "leaders")
}
READER = "select n, count(*) as users from seen group by n"
WITH_N = [name for name in TEXTS if " n" in TEXTS[name].partition("from")[0]]


class Died(BaseException):
    """The process was killed."""


class Pipeline:
    """A home with the query `seen`, perhaps one that reads it, and one that the change does not touch."""

    def __init__(self, path: Path):
        self.path = path

    def declared(self, text: str, reader: bool) -> hy.Pipeline:
        pipeline = hy.Pipeline("shop", home=self.path)
        pipeline.stream("events", schema=shop.EVENTS, time="at", time_unit="us", slack="6 microseconds")
        pipeline.query("seen", TEXTS[text])
        if reader:
            pipeline.query("readers", READER)
        pipeline.query("aside", shop.COPY)
        return pipeline

    def log(self, name: str) -> StreamLog:
        return StreamLog.open(self.path, name)

    def changes(self, name: str) -> list[Any]:
        return Results(self.log(name)).changes()

    def intervals(self, name: str) -> Counter[str]:
        return Counter(map(str, Results(self.log(name)).intervals()))

    def mark(self, name: str) -> str | None:
        stored = stored_declaration(self.path / "streams" / name)
        return None if stored is None else stored.mark

    def letters(self) -> Counter[tuple[Any, ...]]:
        log = StreamLog.ensure(self.path, DEAD)
        pieces = log.read(log.index().start, log.index().next) if log.index().next else ()
        rows = [row for piece in pieces for row in piece.rows.to_pylist()]
        return Counter((row["stage"], row["version"], row["stream"], row["offset"], row["kind"]) for row in rows)


def clean(path: Path, text: str, reader: bool, records: list[dict[str, Any]]) -> Pipeline:
    whole = Pipeline(path)
    pipeline = whole.declared(text, reader)
    pipeline.append("events", records)
    pipeline.finish("events")
    pipeline.run_until_idle(spark=False)
    return whole


records_ = st.lists(
    st.builds(
        lambda step, user, amount: (step, user, amount),
        st.integers(-9, 7),
        st.sampled_from(["anna", "ben", None]),
        st.integers(0, 9) | st.just(shop.LARGEST),
    ),
    min_size=4,
    max_size=45,
)


def timed(steps: list[tuple[int, str | None, int]]) -> list[dict[str, Any]]:
    now, records = 100, []
    for step, user, amount in steps:
        now += step
        records.append({"at": max(now, 0), "user": user, "amount": amount})
    return records


@contextlib.contextmanager
def dying(after: int | None) -> Iterator[None]:
    """The process dies at the durable step with that number."""
    left = after

    def reached(step: str) -> None:
        nonlocal left
        if left is not None:
            left -= 1
            if left < 0:
                left = None
                raise Died(step)

    before, durable.reached = durable.reached, reached
    try:
        yield
    finally:
        durable.reached = before


class History:
    """What happens to a home: records come, a change comes, batches run, the process dies. Every part can be repeated."""

    def __init__(
        self,
        home: Pipeline,
        old: str,
        new: str,
        reader: bool,
        records: list[dict[str, Any]],
        buckets: int | None = None,
    ):
        self.home, self.old, self.new, self.reader, self.records = home, old, new, reader, records
        self.buckets = buckets
        self.names = ["seen", "readers"] if reader else ["seen"]
        self.pipeline = home.declared(old, reader)
        self.pipeline.apply()
        self.count = self.taken = 0

    def run(self, portions: list[tuple[int, int]], change_at: int, answers: dict[str, Pipeline]) -> None:
        """Go on until everything is done."""
        gate, moved = Granting(), True
        forget_kernels()
        with contextlib.closing(InProcess(self.pipeline.home, lambda: 0, gate)) as runner:
            while moved or self.taken < len(self.records) or self.count <= change_at:
                if self.count >= change_at:
                    self.change()
                size, limit = portions[self.count % len(portions)]
                gate.now = Grants(limit=limit)
                self.append(size)
                moved = runner.step()
                self.check(answers)
                self.count += 1

    def change(self) -> None:
        """Declare the new version, or change the number of buckets, unless that is done or under way."""
        if self.buckets is None:
            self.home.declared(self.new, self.reader).apply(beside=True)
        elif self.newest().build is None:
            self.pipeline.rebucket(self.buckets)

    def newest(self) -> definitions.Definition:
        newest = definitions.latest(self.pipeline.home)
        assert newest is not None
        return newest

    def append(self, size: int) -> None:
        if self.taken < len(self.records):
            portion = self.records[self.taken : self.taken + size]
            self.pipeline.append("events", portion, producer="test", sequence=self.taken)
            self.taken += len(portion)
        if self.taken == len(self.records):
            self.pipeline.finish("events")

    def check(self, answers: dict[str, Pipeline]) -> None:
        """Every query has answered so far as a clean run of one of the two definitions, and all of the same one."""
        versions = set()
        for name in self.names:
            mark = self.home.mark(name)
            if mark is not None:
                text = self.old if mark == "1" else self.new
                versions.add(text)
                whole, seen = answers[text].changes(name), self.home.changes(name)
                assert Counter(map(str, seen)) == Counter(map(str, whole[: len(seen)]))
        assert len(versions) <= 1


@given(
    steps=records_,
    old=st.sampled_from(sorted(TEXTS)),
    new=st.sampled_from(sorted(TEXTS)),
    reader=st.booleans(),
    near=st.integers(0, 20),
    portions=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=6),
    change_at=st.integers(0, 5),
    deaths=st.lists(st.integers(0, 150), max_size=4),
)
@settings(max_examples=examples(6, long=150), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_the_switch_is_exact(
    steps: list[tuple[int, str | None, int]],
    old: str,
    new: str,
    reader: bool,
    near: int,
    portions: list[tuple[int, int]],
    change_at: int,
    deaths: list[int],
) -> None:
    records, reader = timed(steps), reader and {old, new} <= set(WITH_N)
    with pytest.MonkeyPatch.context() as patch, passing_home() as room:
        patch.setattr(build_progress, "NEAR", near)
        answers = {text: clean(room / text, text, reader, records) for text in {old, new}}
        home = Pipeline(room / "home")
        history = History(home, old, new, reader, records)
        for death in [*deaths, None]:
            with contextlib.suppress(Died), dying(death):
                history.run(portions, change_at, answers)
        newest = history.newest()
        assert newest.build is None
        for name in [*history.names, "aside"]:
            assert home.intervals(name) == answers[new].intervals(name)
        versions = {record.fingerprint for record in newest.records}
        letters = Counter({letter: count for letter, count in home.letters().items() if letter[1] in versions})
        assert letters == answers[new].letters()
        assert not [path.name for path in (home.path / "streams").iterdir() if "@" in path.name]


@given(
    steps=records_,
    text=st.sampled_from(sorted(TEXTS)),
    buckets=st.sampled_from([1, 3, 5]),
    near=st.integers(0, 20),
    portions=st.lists(st.tuples(st.integers(1, 12), st.integers(1, 9)), min_size=1, max_size=6),
    change_at=st.integers(0, 5),
    deaths=st.lists(st.integers(0, 150), max_size=4),
)
@settings(max_examples=examples(4, long=100), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_another_number_of_buckets_changes_no_answer(
    steps: list[tuple[int, str | None, int]],
    text: str,
    buckets: int,
    near: int,
    portions: list[tuple[int, int]],
    change_at: int,
    deaths: list[int],
) -> None:
    records, reader = timed(steps), text in WITH_N
    with pytest.MonkeyPatch.context() as patch, passing_home() as room:
        patch.setattr(build_progress, "NEAR", near)
        answers = {text: clean(room / "clean", text, reader, records)}
        home = Pipeline(room / "home")
        history = History(home, text, text, reader, records, buckets)
        for death in [*deaths, None]:
            with contextlib.suppress(Died), dying(death):
                history.run(portions, change_at, answers)
        newest = history.newest()
        assert (newest.build, newest.buckets) == (None, buckets)
        letters, wanted = (
            Counter(letter[:3] for letter in each.letters().elements()) for each in (home, answers[text])
        )
        assert letters == wanted, "each is there once"
        used = {bucket for states in history.pipeline.progress().states.values() for bucket in states}
        assert used <= {*range(buckets)}
        for name in [*history.names, "aside"]:
            assert home.intervals(name) == answers[text].intervals(name)
