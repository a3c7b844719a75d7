"""Laws of feeds of changes: every listener hears every change behind its cursor once, in order, and work is shared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.errors import CursorGone
from hayase.engine.results.live_results import Live
from hayase.serving import change_feeds
from hayase.serving.change_feeds import ChangeFeeds, Listener
from hayase.testing import Trial, trial

QUERIES = {
    "recent": "select k, v from s [Range 7 seconds]",
    "sums": "select k, sum(v) as v from s group by k",
    "all": "select k, v from s",
}
EVENTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 3)), max_size=12)


class Work:
    """Runs work at once, and counts how often changes were read."""

    def __init__(self) -> None:
        self.reads = 0

    async def __call__(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.reads += work in (change_feeds.read_events, change_feeds.read_on)
        return work(*arguments)


def listener(t: Trial, name: str, cursor: Any = None) -> Listener:
    live = Live(t.results(name).log)
    changes = live.changes_from_start() if cursor is None else live.changes_from(cursor)
    return Listener(live, changes.cursor, changes)


def append(t: Trial, now: int, batch: list[tuple[int, str, int]]) -> int:
    rows = []
    for step, k, v in batch:
        now += step
        rows.append({"at": now, "k": k, "v": v})
    t.append("s", rows)
    t.run()
    return now


def declared(t: Trial) -> None:
    t.stream("s", "at bigint, k string, v bigint", time="at", time_unit="s")
    for name, text in QUERIES.items():
        t.query(name, text)


async def everything(feeds: ChangeFeeds, one: Listener, commit: object) -> bytes:
    told = b""
    while text := await feeds.next(one, commit, 0.0):
        told += text
    return told


@settings(max_examples=examples(4))
@given(
    st.sampled_from(sorted(QUERIES)),
    st.lists(EVENTS, min_size=1, max_size=5),
    st.integers(1, 4),
    st.integers(1, 6),
    st.data(),
)
def test_every_listener_hears_every_change_once_in_order(
    name: str, batches: list[list[tuple[int, str, int]]], at_once: int, kept: int, data: st.DataObject
) -> None:
    """Whatever a feed keeps, and however seldom a listener asks, it hears what one hears who reads alone."""

    async def listen() -> None:
        feeds, now = ChangeFeeds(Work()), 0
        listeners: list[Listener] = []
        heard: list[bytes] = []
        for batch in batches:
            now = append(t, now, batch)
            commit = object()
            if not listeners or data.draw(st.booleans(), label="one more"):
                listeners.append(listener(t, name))
                heard.append(b"")
            for number, one in enumerate(listeners):
                for _ in range(data.draw(st.integers(0, 4), label="asks")):
                    heard[number] += await feeds.next(one, commit, 0.0)
        last = object()
        for number, one in enumerate(listeners):
            heard[number] += await everything(feeds, one, last)
            if data.draw(st.booleans(), label="leaves"):
                feeds.leave(one)
        alone = await everything(ChangeFeeds(Work()), listener(t, name), last)
        assert heard == [alone] * len(listeners)
        for one in listeners:
            feeds.leave(one)
        assert len(feeds) == 0

    limits = {"AT_ONCE": at_once, "KEPT_EVENTS": kept}
    with trial() as t, mock.patch.multiple(change_feeds, **limits):
        declared(t)
        asyncio.run(listen())


def test_changes_are_read_once_for_all_who_listen_at_the_end() -> None:
    async def listen(count: int) -> int:
        work = Work()
        feeds, commit = ChangeFeeds(work), object()
        listeners = [listener(t, "sums") for _ in range(count)]
        first = [await everything(feeds, one, commit) for one in listeners]
        assert len(set(first)) == 1
        append(t, 100 * count, [(1, "a", 1), (1, "b", 2)])
        commit, begun = object(), work.reads
        told = [await everything(feeds, one, commit) for one in listeners]
        assert len(set(told)) == 1
        assert b'"change":"+"' in told[0]
        return work.reads - begun

    with trial() as t:
        declared(t)
        append(t, 0, [(1, "a", 1), (1, "b", 2)])
        assert asyncio.run(listen(1)) == asyncio.run(listen(20))


def test_all_who_listen_are_told_when_the_query_is_reset() -> None:
    async def listen() -> None:
        feeds, commit = ChangeFeeds(Work()), object()
        listeners = [listener(t, "sums") for _ in range(3)]
        for one in listeners:
            await everything(feeds, one, commit)
        t.reset("sums")
        append(t, 10, [(1, "a", 1)])
        for one in listeners:
            with pytest.raises(CursorGone, match="reset"):
                await feeds.next(one, object(), 0.0)
            feeds.leave(one)
        assert len(feeds) == 0

    with trial() as t:
        declared(t)
        append(t, 0, [(1, "a", 1), (1, "b", 2)])
        asyncio.run(listen())
