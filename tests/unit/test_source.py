"""When a batch waits for more: for a flood of records, and not for a trickle."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hayase.core.times import END
from hayase.engine.positions import Offset, Position
from hayase.engine.source import CALM, FLOOD, GLANCE, PATIENCE, after_flood

STILL = round(CALM / GLANCE)


def offset(at: int, clock: int = 0) -> Offset:
    return Offset(1, {"q": {"s": Position(at, clock)}})


@pytest.mark.parametrize(
    ("ends", "taken", "glances"),
    [
        ([0], 0, 0),
        ([FLOOD - 1, 10 * FLOOD], FLOOD - 1, 0),
        ([FLOOD] * 20, FLOOD, STILL),
        ([FLOOD, *[2 * FLOOD] * (STILL + 1), 9 * FLOOD], 2 * FLOOD, STILL + 1),
        ([FLOOD, 0], 0, 1),  # the gate was closed meanwhile
    ],
)
def test_a_batch_waits_while_a_flood_comes(ends: Sequence[int], taken: int, glances: int) -> None:
    slept: list[float] = []
    plans = iter([offset(each) for each in ends])
    end = after_flood(offset(0), next(plans), lambda: next(plans), slept.append)
    assert (end, slept) == (offset(taken), [GLANCE] * glances)


def test_a_flood_without_end_is_not_waited_for_for_ever() -> None:
    slept: list[float] = []
    end = after_flood(offset(0), offset(FLOOD), lambda: offset((len(slept) + 1) * FLOOD), slept.append)
    assert sum(slept) == pytest.approx(PATIENCE)
    assert end == offset((len(slept) + 1) * FLOOD)


def test_what_is_finished_is_not_waited_for() -> None:
    end = offset(5 * FLOOD, clock=END)
    assert after_flood(offset(0), end, lambda: pytest.fail("nothing can follow"), lambda seconds: None) == end
