"""Rounds of faults against connectors, with fixed seeds; `HAYASE_ROUNDS=connectors make test-long` plays others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.connector_endpoints import endpoints
from campaign.connector_faults import named
from campaign.connectors import ConnectorRound
from servers.process import Missing

ROUNDS = {
    2026: ["deaths of history", "broker killed", "slot dropped", "zombie"],
    2027: ["Kafka cut in a transaction", "PostgreSQL cut in a transaction", "lake disk full", "connectors killed"],
}


@pytest.fixture(scope="module")
def servers_of_rounds() -> Iterator[None]:
    try:
        started = endpoints()
    except Missing as missing:
        pytest.skip(str(missing))
    yield
    started.close()
    endpoints.cache_clear()


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("servers_of_rounds")
@pytest.mark.parametrize("seed", ROUNDS)
def test_a_connector_round(tmp_path: Path, seed: int) -> None:
    assert ConnectorRound(seed, [named(each) for each in ROUNDS[seed]], tmp_path).run() == []
