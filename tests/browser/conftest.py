"""The browser and what it looks at: Debian's Chromium, driven by Playwright, and the demo shop as `hayase demo` runs it."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from running_shop import RunningShop

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
expect.set_options(timeout=60_000)  # a busy machine is not a failure
CHROMIUM = os.environ.get("HAYASE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


TOKEN = "Zp-q0Jm3vYx8kT2s"
"""The token of the running shop: without one it would run no code that a browser sends."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that do not need the running shop come first: it starts meanwhile."""
    places = [place for place, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    ordered = sorted((items[place] for place in places), key=_needs_the_shop)
    for place, item in zip(places, ordered):
        items[place] = item


def _needs_the_shop(item: pytest.Item) -> bool:
    return "running" in getattr(item, "fixturenames", ())


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    _skip_without_chromium()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def faults() -> list[str]:
    """What the pages of a test complained about: errors, and what the Content-Security-Policy refused."""
    return []


@pytest.fixture
def page(browser: Browser, faults: list[str]) -> Iterator[Page]:
    """A new page of 1280 px, whose errors fail the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield opened
    context.close()
    assert [fault for fault in faults if "net::ERR" not in fault and "status of" not in fault] == []


@pytest.fixture(scope="session", autouse=True)
def starting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningShop | None]:
    """The demo shop, from the first test on, if any of them needs it."""
    if CHROMIUM is None or not any(map(_needs_the_shop, request.session.items)):
        yield None
        return
    with contextlib.closing(RunningShop(tmp_path_factory.mktemp("running") / "shop", TOKEN)) as shop:
        yield shop


@pytest.fixture(scope="session")
def running(starting: RunningShop | None) -> RunningShop:
    """The one shop on Spark, with a token; `console_checks.open_page` opens its pages with a session."""
    _skip_without_chromium()
    assert starting is not None
    return starting.wait()


def _skip_without_chromium() -> None:
    if CHROMIUM is None:
        pytest.skip(
            "there is no Chromium here; Debian, Ubuntu: apt-get install chromium; or name one with HAYASE_CHROMIUM=/path"
        )
