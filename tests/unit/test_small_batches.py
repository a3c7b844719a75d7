"""Which batches are reduced by one task: by records, by the work that records took, by what else a batch does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hayase.core.stages import MAIN, OPERATIONS
from hayase.core.times import END
from hayase.engine.batch.offsets import Offset, Position
from hayase.engine.batch.report import Figures
from hayase.engine.batch.small_batches import SMALL_ROWS, is_small

START = Offset(1, {"a": {"s": Position(100)}, "b": {"s": Position(100)}})


def up_to(at: int) -> Offset:
    return replace(START, positions={stage: {"s": Position(at)} for stage in ("a", "b")})


def test_records_count_for_each_stage_that_reads_them() -> None:
    assert is_small(MAIN, START, up_to(100 + SMALL_ROWS // 2), {})
    assert not is_small(MAIN, START, up_to(101 + SMALL_ROWS // 2), {})


def test_records_that_took_long_so_far_make_no_small_batch() -> None:
    quick, slow = Figures(work={"s": (1000, 0.001)}), Figures(work={"s": (1000, 10.0)})
    assert is_small(MAIN, START, up_to(200), {"a": quick, "b": quick})
    assert not is_small(MAIN, START, up_to(200), {"a": quick, "b": slow})
    assert is_small(MAIN, START, START, {"a": slow, "b": slow})  # no records


@pytest.mark.parametrize(
    "end",
    [
        None,
        replace(up_to(101), definition=2),
        replace(up_to(101), settled=1),
        replace(START, positions={"a": {"s": Position(101, clock=END)}, "b": {"s": Position(101)}}),
    ],
)
def test_an_end_that_is_unknown_or_does_more_than_take_records_is_not_small(end: Offset | None) -> None:
    assert not is_small(MAIN, START, end, {})


def test_a_stage_that_is_finished_already_does_not_matter() -> None:
    finished = replace(START, positions={"a": {"s": Position(100, clock=END)}, "b": {"s": Position(100)}})
    assert is_small(MAIN, finished, replace(finished, tick=1), {})


def test_operations_have_no_small_batches() -> None:
    assert not is_small(OPERATIONS, START, up_to(101), {})
