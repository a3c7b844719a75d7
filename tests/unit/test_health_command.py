"""`hayase health` says how a served pipeline is, and its exit code fits probes."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Command
from hayase.core.access import Access
from hayase.engine.commit.ledger import open_ledger
from hayase.pipeline import Pipeline
from hayase.serving import Status, serving

TOKEN = "a-token-for-the-tests"


@pytest.fixture
def shop(tmp_path: Path) -> Pipeline:
    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", schema="time timestamp, user string", time="time")
    pipeline.query("users", "select user, count(*) as orders from orders group by user")
    pipeline.apply()
    return pipeline


def test_well_and_not_well(hayase_: Command, shop: Pipeline) -> None:
    with open_ledger(shop.home) as ledger:
        status = Status("running", ledger.latest())
        with serving(shop.home, "127.0.0.1:0", tables=ledger.tables, status=status) as server:
            well = hayase_("health", server.url)
            assert (well.code, well.out) == (0, "running\n")
            assert hayase_("health", f"{server.url}/", "--json").rows[0]["version"] == 0
        status = Status("starting", ledger.latest())
        with serving(shop.home, "127.0.0.1:0", tables=ledger.tables, status=status) as server:
            starting = hayase_("health", server.url)
            assert starting.code == 1
            assert starting.out.startswith("starting")
    gone = hayase_("health", server.url)
    assert gone.code == 1
    assert "nothing answers at http://127.0.0.1:" in gone.err


def test_with_a_token(hayase_: Command, shop: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN)
    file.chmod(0o600)
    with open_ledger(shop.home) as ledger:
        status = Status("running", ledger.latest())
        with serving(shop.home, "127.0.0.1:0", tables=ledger.tables, status=status, access=Access(TOKEN)) as server:
            refused = hayase_("health", server.url)
            assert refused.code == 1
            assert "/health answered 401" in refused.err
            assert hayase_("health", server.url, "--token-file", file).code == 0
            monkeypatch.setenv("HAYASE_TOKEN", TOKEN)
            assert hayase_("health", server.url).code == 0


def test_not_an_address(hayase_: Command) -> None:
    wrong = hayase_("health", "file:///etc/passwd")
    assert wrong.code == 1
    assert "is no address of HTTP" in wrong.err
