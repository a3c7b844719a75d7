"""What the browser tests of the console share: opening a page, its panels, and a look at it by axe in both themes."""

from __future__ import annotations

import os
import re
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, expect
from running_shop import RunningShop

PICTURES = os.environ.get("HAYASE_SCREENSHOTS")
"""The directory for the pictures of the guide, if they are to be made anew."""
_AXE = Axe()


def check(page: Page, picture: str, tmp_path: Path, *, keep: bool = True) -> None:
    """Let axe look at a page in both themes, and take a picture of each; the guide has those of the light one, if `keep`."""
    for theme in ("light", "dark"):
        if page.locator("html").get_attribute("data-theme") != theme:
            page.get_by_role("button", name=f"Use the {theme} theme").click()
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        assert violations(page) == []
        page.mouse.move(0, 0)
        directory = Path(PICTURES) if PICTURES and keep and theme == "light" else tmp_path
        page.screenshot(path=directory / f"console-{picture}-{theme}.png")
    page.get_by_role("button", name="Use the light theme").click()


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """What axe finds on a page by all its rules: each rule with the elements that break it. Of what is right, it reports little."""
    found = _AXE.run(page, options={"resultTypes": ["violations"]}).response["violations"]
    return [(fault["id"], [node["html"] for node in fault["nodes"]]) for fault in found]


def open_page(page: Page, running: RunningShop, hash_: str = "") -> None:
    running.log_in(page.context)
    page.goto(f"{running.url}/{hash_}")
    expect(page.locator(".state")).to_have_text("running", timeout=120_000)


def panel(page: Page, title: str | re.Pattern[str]) -> Locator:
    return page.locator(".panel", has=page.get_by_role("heading", name=title))
