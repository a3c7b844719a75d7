"""Who gets into the console, and what it says when the server is lost: over a small shop that is served without Spark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_checks import violations
from playwright.sync_api import Page, expect

from hayase.serving import Status, serving
from serving_shop import Shop, shop

TOKEN = "Zp-q0Jm3vYx8kT2s"


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Shop]:
    with shop(tmp_path / "shop", token=TOKEN) as made:
        yield made


def test_nothing_is_shown_without_the_token(page: Page, secured: Shop) -> None:
    page.goto(f"{secured.server.url}/#/queries/spend")
    token = page.get_by_label("Token")
    expect(token).to_be_focused()
    assert violations(page) == []
    expect(page.get_by_role("navigation")).to_have_count(0)
    token.fill("not the token of it")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_have_text("this is not the token of this server")
    token.fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="spend", level=2)).to_be_visible()
    expect(page.locator(".state")).to_have_text("running")
    (cookie,) = page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert page.evaluate("document.cookie") == ""
    page.reload()
    expect(page.get_by_role("heading", name="spend", level=2)).to_be_visible()


def test_what_changes_something_works_with_a_session_until_it_ends(page: Page, secured: Shop) -> None:
    page.goto(f"{secured.server.url}/#/streams/orders")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Insert an example").click()
    page.get_by_role("button", name="Append").click()
    expect(page.locator(".result")).to_contain_text("1 record accepted, at offset 5")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.reload()
    expect(page.get_by_label("Token")).to_be_visible()


def test_a_server_that_is_lost_and_regained(page: Page, tmp_path: Path) -> None:
    with contextlib.ExitStack() as first:
        made = first.enter_context(shop(tmp_path / "shop"))
        address, home, tables = str(made.server.address), made.pipeline.home, made.runner.tables
        page.goto(f"http://{address}/")
        expect(page.locator(".state")).to_have_text("running")
        first.close()
        expect(page.locator(".state")).to_have_text("lost")
        expect(page.get_by_role("alert")).to_contain_text("The connection to the server is lost")
        expect(page.locator(".node", has_text="spend").first).to_be_visible()  # what was known stays
    status = Status("starting")
    with serving(home, address, tables=tables, status=status):
        expect(page.locator(".state")).to_have_text("starting")
        status.committed(made.runner.manifest)
        status.set("running")
        expect(page.locator(".state")).to_have_text("running")
        expect(page.get_by_role("alert")).to_have_count(0)
