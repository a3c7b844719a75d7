"""What the engine logs while it runs: failures beside the batches are reported when they happen."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from unittest import mock

import pytest

from hayase.core.errors import DamagedState
from hayase.engine.commit import housekeeping
from hayase.engine.commit.housekeeping import Housekeeping
from hayase.engine.home import Home
from hayase.engine.results import subscriptions
from hayase.engine.results.subscriptions import Subscription, Subscriptions


def test_failed_housekeeping_is_logged_at_once_and_once_for_each_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reasons, rounds = ["the disk is full", "the disk is full", "a file is damaged"], threading.Event()

    def fail(*_: object) -> None:
        if not reasons:
            rounds.set()
            return
        raise DamagedState(reasons.pop(0))

    monkeypatch.setattr(housekeeping, "PAUSE", 0.001)
    monkeypatch.setattr(housekeeping, "run_housekeeping", fail)
    with caplog.at_level(logging.WARNING, "hayase"), Housekeeping(Home(tmp_path), mock.Mock()):
        rounds.wait()
    assert [record.getMessage() for record in caplog.records] == [
        "housekeeping failed and is tried again: the disk is full",
        "housekeeping failed and is tried again: a file is damaged",
    ]


def test_a_thread_of_views_that_ends_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise DamagedState("the log is damaged")

    monkeypatch.setattr(subscriptions.Reader, "catch_up", fail)
    view = Subscription("alerts", print)
    with (
        caplog.at_level(logging.ERROR, "hayase"),
        pytest.raises(DamagedState, match="the log is damaged"),
        Subscriptions(Home(tmp_path), [view], lambda: 0),
    ):
        pass
    assert "views receive nothing more until the pipeline is started again: the log is damaged" in caplog.text
