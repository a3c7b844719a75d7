"""Short chains of partials have, bit for bit, the folds of `Folds`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hayase.core.algebra import Aggregate
from hayase.windows.folds import Folds
from hayase.windows.panes import ShortChains
from hayase.windows.partials import Lifting

CHAINS = st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=4), min_size=1, max_size=6)


@pytest.mark.parametrize("name", ["count", "sum", "avg", "min", "first", "stddev", "approx_count_distinct"])
@given(chains=CHAINS, reused=CHAINS)
def test_folds_of_short_chains_are_those_of_long_ones(
    name: str, chains: list[list[float]], reused: list[list[float]]
) -> None:
    lifting = Lifting(Aggregate.from_name(name), [pa.float64()])
    short, long = ShortChains(lifting, 4), Folds(lifting)
    for values in (chains, reused):
        of = np.repeat(np.arange(len(values)), [len(chain) for chain in values])
        places = np.concatenate([np.arange(len(chain)) for chain in values])
        partials = lifting.lift([pa.array([value for chain in values for value in chain], pa.float64())])
        short.put(of, places, partials)
        long.append(of, partials)
        ranges = [
            (chain, first, last)
            for chain, entries in enumerate(values)
            for first in range(len(entries))
            for last in range(first - 1, len(entries))
        ]
        asked = [np.array(column) for column in zip(*ranges)]
        expected, folded = (lifting.lower(folds.fold(*asked))[0] for folds in (long, short))
        assert folded.equals(expected)
        for folds in (short, long):
            folds.drop(np.arange(len(values)))
