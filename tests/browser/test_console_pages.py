"""The console in a real browser, over the demo shop on Spark: what is done there happens, and no page has faults.

Every page is checked by axe, in both themes. With HAYASE_SCREENSHOTS=docs/figures the pictures of the guide are made anew.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from console_checks import check, open_page, panel
from playwright.sync_api import Browser, Page, expect
from running_shop import RunningShop


def test_a_query_with_its_timeline_and_the_time_cursor(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/queries/spree")
    timeline = page.get_by_role("slider", name="Time cursor")
    rows = panel(page, re.compile("^Rows"))
    expect(timeline).to_be_visible(timeout=120_000)
    expect(panel(page, "Timeline")).to_contain_text("rows")
    expect(timeline).to_have_attribute("aria-valuetext", "the present")
    expect(rows.locator("tbody tr").first).to_be_visible(timeout=120_000)
    expect(panel(page, "Changes").locator("tbody tr").first).to_be_visible(timeout=120_000)
    box = timeline.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 120)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 120, steps=5)
    page.mouse.up()
    expect(rows.get_by_role("heading")).to_have_text("Rows at the cursor")
    at = page.get_by_label("Instant of the time cursor, UTC")
    expect(rows.locator(".panel-aside")).to_contain_text(at.input_value())
    told = running.get(f"/queries/spree?at={at.input_value().replace(' ', 'T')}Z")["rows"]
    expect(rows.locator("tbody tr")).to_have_count(len(told))
    moved = at.input_value()
    timeline.focus()
    page.keyboard.press("ArrowLeft")
    expect(at).not_to_have_value(moved)
    page.keyboard.press("+")
    expect(page.get_by_role("button", name="follow")).to_have_attribute("aria-pressed", "false")
    page.get_by_role("button", name="follow").click()
    check(page, "query", tmp_path)
    timeline.focus()
    page.keyboard.press("End")
    expect(rows.get_by_role("heading")).to_have_text("Rows at present")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_role("region", name="Explanation")).to_contain_text("Stage spree")


def test_a_record_that_is_appended_comes_out(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/streams/orders")
    latest = running.get("/streams/orders")["latest"]
    record = {
        "time": latest,
        "uuid": "browser-1",
        "type": "purchase",
        "user_id": "browser",
        "item": "tea",
        "amount": 41,
    }
    wrong = {**record, "uuid": "browser-2", "amount": "a lot"}
    box = page.get_by_role("textbox", name="Records for orders")
    box.fill(f"{json.dumps(record)}\n{json.dumps(wrong)}")
    page.get_by_role("button", name="Check").click()
    expect(page.locator(".result")).to_contain_text("1 record would be accepted, 1 refused")
    expect(page.locator(".refusal")).to_contain_text('column "amount" must be bigint')
    check(page, "stream", tmp_path)
    box.fill(json.dumps(record))
    page.get_by_role("button", name="Append").click()
    expect(page.locator(".result")).to_contain_text("1 record accepted")
    expect(page.get_by_role("region", name="Newest records").locator("thead")).to_contain_text("user_id")
    page.goto(f'{running.url}/#/tables/purchases?key=["browser"]')
    expect(page.locator(".facts", has_text="total")).to_contain_text("41", timeout=60_000)
    page.goto(f"{running.url}/#/streams/scores")
    expect(page.locator(".panel", has_text="written by the operation").first).to_be_visible()


def test_a_dead_letter_is_corrected_and_replayed(page: Page, running: RunningShop, tmp_path: Path) -> None:
    latest = running.get("/streams/orders")["latest"]
    wrong = {
        "time": latest,
        "uuid": "browser-3",
        "type": "purchase",
        "user_id": "replayed",
        "item": "tea",
        "amount": "three",
    }
    assert running.http.post("/streams/orders", json=wrong).json()["refused"] == 1
    letters = running.get("/dead?stage=append&reason=three")["letters"]
    number = letters[-1]["letter"]
    open_page(page, running, f"#/dead/{number}?stage=append")
    letter = panel(page, re.compile(f"^Letter {number}"))
    expect(letter.locator("mark")).to_have_text('"amount": "three"', use_inner_text=True)
    letter.get_by_role("button", name="Try to replay it").click()
    expect(letter.locator(".result")).to_contain_text("1 letter would stay open")
    check(page, "letter", tmp_path)
    record = letter.get_by_role("textbox", name="Record to replay")
    record.fill(record.input_value().replace('"three"', "3"))
    letter.get_by_role("button", name="Try to replay it").click()
    expect(letter.locator(".result")).to_contain_text("1 letter would be replayed")
    letter.get_by_role("button", name="Replay it", exact=True).click()
    expect(letter.locator(".tag-replayed")).to_be_visible()
    expect(letter).to_contain_text("Appended to its stream")
    page.goto(f'{running.url}/#/tables/purchases?key=["replayed"]')
    expect(page.locator(".facts", has_text="total")).to_contain_text("3", timeout=60_000)


def test_a_row_of_a_table_as_of_any_time(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/tables/purchases")
    rows = page.get_by_role("region", name="Rows of purchases")
    page.get_by_label("user_id").fill("ta")
    expect(rows.locator("tbody tr").first).to_contain_text("ta", timeout=60_000)
    rows.locator("tbody button").first.click()
    row = page.locator(".panel", has=page.get_by_label("Close the row"))
    payloads = row.get_by_role("region", name="Payloads")
    expect(payloads).to_contain_text("incr", timeout=60_000)
    now = row.locator(".facts dd").first.inner_text()
    row.get_by_role("slider").fill("300")
    expect(row.locator("label", has_text="as of 20")).to_be_visible()
    expect(row.locator(".facts dd").first).not_to_have_text(now)
    check(page, "table", tmp_path)


def test_keys_lead_through_the_pages(page: Page, running: RunningShop) -> None:
    open_page(page, running)
    for key, title in (
        ("2", "Queries"),
        ("3", "Streams"),
        ("4", "Dead letters"),
        ("5", "Tables"),
        ("6", "Playground"),
        ("7", "Operations and governor"),
        ("1", "Pipeline"),
    ):
        page.keyboard.press(key)
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("5")
    expect(page.get_by_label("user_id")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("user_id")).to_be_focused()


def test_the_first_page_fits_a_phone(browser: Browser, running: RunningShop, tmp_path: Path) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, is_mobile=True, has_touch=True)
    page = context.new_page()
    open_page(page, running)
    expect(page.locator(".figures tbody tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.screenshot(path=tmp_path / "phone.png")
    page.goto(f"{running.url}/#/operations")
    expect(page.get_by_role("navigation").locator("[aria-current]")).to_be_in_viewport()
    context.close()


def test_a_thousand_groups_are_not_all_in_the_document(page: Page, running: RunningShop) -> None:
    def many(route: Any) -> None:
        group = {"stage": "s", "stream": "orders", "kind": "schema", "letters": 1, "since": "2026-01-01T00:00:00Z",
                 "until": "2026-01-01T00:00:00Z"}  # fmt: skip
        groups = [{**group, "reason": f"reason {chr(97 + n % 26)}{n}", "first": n, "last": n} for n in range(1000)]
        route.fulfill(json={"open": 1000, "groups": groups})

    page.route("**/dead/groups*", many)
    open_page(page, running, "#/dead")
    groups = page.get_by_role("region", name="Groups of dead letters")
    expect(groups.locator("tbody tr.pickable").first).to_be_visible()
    assert groups.locator("tbody tr.pickable").count() < 100
    groups.evaluate("element => element.scrollTo(0, element.scrollHeight)")
    expect(groups).to_contain_text("reason l999")


@pytest.mark.parametrize("path", ["", "#/queries", "#/nothing/here"])
def test_unknown_places_lead_to_a_page(page: Page, running: RunningShop, path: str) -> None:
    open_page(page, running, path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()


def test_the_pipeline_is_shown_live(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running)
    for name in ("orders", "spree", "traffic", "scores", "purchases"):
        expect(page.locator(".node", has_text=name).first).to_be_visible()
    before = int(page.locator(".commit").inner_text().split()[1].replace(",", ""))
    expect(page.locator(".commit")).not_to_contain_text(f"batch {before:,} ")  # batches go on, and the page with them
    expect(page.locator(".node-stream", has_text="orders")).to_contain_text("/s")
    expect(page.locator(".spark polyline").first).to_be_visible(timeout=90_000)
    check(page, "pipeline", tmp_path)
    page.locator(".node", has_text="spree").click()
    detail = page.get_by_role("complementary", name="query spree")
    expect(detail).to_contain_text("Logical plan")
    expect(detail).to_contain_text("having sum(amount) >= 100000")
    check(page, "stage", tmp_path)
    page.keyboard.press("Escape")
    expect(detail).to_have_count(0)
