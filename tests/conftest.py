"""What all tests share: one Spark session per run, the command line, and a small shop that is served."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numba  # noqa: F401 - a command in this process must not do without it (core.machine_code): other tests call loops often
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from effort import LONG, examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from command_line import Command
    from serving_shop import Shop


# No test asserts a time, and a slow machine is not a failure. CI tries the same examples every time; people and long runs try
# new ones, and a failure prints how to repeat it.
settings.register_profile(
    "hayase",
    max_examples=examples(50),
    deadline=None,
    derandomize="CI" in os.environ and not LONG,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("hayase")
if not LONG:  # no test cuts the power, and what a killed process has written stays; child processes and long runs sync
    os.fsync = lambda descriptor: None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests marked `long` to `make test-long`."""
    left_out = [] if LONG else [item for item in items if item.get_closest_marker("long")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("long")]


class SideBySide(LoadScopeScheduling):  # type: ignore[misc]
    """Of tests that run side by side, those of a file stay with one process, and so do all that start a JVM: some share a
    session, and two at once would take each other's time."""

    def _split_scope(self, nodeid: str) -> str:
        return (
            "spark"
            if nodeid.startswith(("tests/spark/", "tests/e2e/", "tests/campaign/"))
            else nodeid.partition("::")[0]
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SideBySide:
    return SideBySide(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The one session of a test run."""
    from hayase.engine.spark.session import local_master, open_session

    session = open_session(local_master(2), log=tmp_path_factory.mktemp("spark") / "spark.log")
    yield session
    session.stop()


@pytest.fixture
def hayase_(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs the command line as the entry point does."""
    from command_line import answer  # which loads much that few tests need

    return partial(answer, capsys, monkeypatch)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop that is served, for reading only."""
    from serving_shop import shop

    with shop(tmp_path_factory.mktemp("shop")) as made:
        yield made


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Shop]:
    """A shop that is served, for one test."""
    from serving_shop import shop

    with shop(tmp_path / "shop") as made:
        yield made
