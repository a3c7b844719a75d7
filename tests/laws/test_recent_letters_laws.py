"""Laws of dead letters that a reader keeps in memory: however often it asks, it finds what one finds who reads everything."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from hayase.core.reasons import Reason, ReasonKind
from hayase.engine.dead_letters import recent_letters
from hayase.engine.dead_letters.letters import Filter, Letters
from hayase.streams import StreamLog
from hayase.streams.dead_letters import DEAD, dead_table
from hayase.streams.durable import without_syncs

NOW = 1_767_225_600_000_000
FILTERS = [Filter(), Filter(stage="a"), Filter(reason="odd"), Filter(first=4), Filter(stage="b", since=NOW + 3)]
STEPS = st.lists(
    st.one_of(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["odd 1", "odd 2", "late"])), min_size=1, max_size=6),
        st.integers(0, 20),
        st.none(),
    ),
    min_size=1,
    max_size=8,
)
"""Letters that come, letters that are dropped, and questions in between."""


def found(reader: Letters) -> list[object]:
    groups = [reader.groups(wanted, settled=settled) for wanted in FILTERS for settled in (False, True)]
    pages = [
        reader.newest(wanted, limit, before=before, settled=settled, look_at=look_at)
        for wanted in FILTERS[:3]
        for limit, before, look_at in ((2, None, None), (50, None, None), (3, 5, None), (50, None, 3))
        for settled in (False, True)
    ]
    return [*groups, *pages]


@settings(max_examples=examples(10))
@given(STEPS, st.integers(1, 8), st.sampled_from([0, 400, 1 << 20]))
def test_a_reader_that_asks_again_finds_what_a_new_one_finds(
    steps: list[list[tuple[str, str]] | int | None], kept: int, size: int
) -> None:
    limits = {"KEPT_LETTERS": kept, "KEPT_BYTES": size}
    with (
        tempfile.TemporaryDirectory() as directory,
        without_syncs(),
        mock.patch.multiple(recent_letters, **limits),
    ):
        home = Path(directory)
        reader = Letters(home)
        for number, step in enumerate(steps):
            if isinstance(step, list):
                for stage, reason in step:
                    rows = dead_table(
                        stage, "v1", "orders", [number], ["{}"], [Reason(ReasonKind.FUNCTION, reason)], 1, NOW + number
                    )
                    StreamLog.ensure(home, DEAD).append(rows, now=NOW + number)
            elif step is not None and step < reader.bounds()[1]:
                Letters(home).drop(Filter.of(step))
            else:
                assert found(reader) == found(Letters(home))
        assert found(reader) == found(Letters(home))
