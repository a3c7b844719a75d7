"""The browser and what it looks at: Debian's Chromium, driven by Playwright, and the demo shop as `hayase demo` runs it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from running_shop import RunningShop

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
expect.set_options(timeout=60_000)  # a busy machine is not a failure
CHROMIUM = os.environ.get("HAYASE_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(
            "there is no Chromium here; Debian, Ubuntu: apt-get install chromium; or name one with HAYASE_CHROMIUM=/path"
        )
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


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningShop]:
    shop = RunningShop(tmp_path_factory.mktemp("running") / "shop")
    try:
        yield shop
    finally:
        shop.close()
