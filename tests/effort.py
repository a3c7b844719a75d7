"""How much a test run explores: `make test` takes a sample of the expensive cases, `make test-long` takes all of them."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LONG = "HAYASE_LONG" in os.environ
"""Whether this is a long run: every case, and examples that were never tried before."""
_random = random.Random(2026 if "CI" in os.environ else None)


def examples(usual: int, long: int | None = None) -> int:
    """How many hypothesis examples to try: `usual` in `make test`, `long` in a long run, by default ten times as many."""
    return (long or usual * 10) if LONG else usual


def sample(cases: Sequence[T], most: int) -> list[T]:
    """All cases in a long run. Otherwise the first, the last and others drawn at random, `most` in all and in order: CI draws
    the same ones every time, people draw new ones."""
    if LONG or len(cases) <= most:
        return list(cases)
    inner = _random.sample(range(1, len(cases) - 1), most - 2)
    return [cases[index] for index in (0, *sorted(inner), len(cases) - 1)]
