"""The playground in a real browser, over the demo shop on Spark: a query is written, run on real records, and added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from console_checks import check, open_page, panel
from playwright.sync_api import Locator, Page, expect
from running_shop import RunningShop

TOTALS = "select user_id, count(*) as orders, sum(amount) as spend\nfrom orders [Range 5 seconds]\ngroup by user_id"


def write(page: Page, text: str) -> Locator:
    """Type a text into the editor, in place of what is there; what it offers to complete is not taken."""
    editor = page.get_by_role("textbox", name="Query in CQL")
    editor.focus()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)
    return editor


def test_mistakes_are_shown_in_place_with_their_remedy(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/playground")
    expect(page.locator(".verdict")).to_contain_text("Rows that appear and disappear")
    editor = write(page, "select user_id,\n  amunt from orders")
    expect(page.locator(".cm-lintRange-error")).to_have_text("amunt")
    mistakes = page.get_by_role("list", name="Mistakes")
    expect(mistakes).to_contain_text('did you mean "amount"?')
    expect(page.get_by_role("button", name="Run")).to_be_disabled()
    page.locator(".cm-lintRange-error").hover()
    expect(page.locator(".cm-diagnostic")).to_contain_text('unknown column "amunt"')
    check(page, "playground-mistake", tmp_path, keep=False)
    mistakes.get_by_role("button", name="line 2, column 3").click()
    expect(editor).to_be_focused()
    page.keyboard.type("amount")
    expect(editor).to_have_text(re.compile("amount from orders"))
    expect(page.locator(".verdict")).to_contain_text("user_id string, amount bigint")


def test_words_are_completed(page: Page, running: RunningShop) -> None:
    open_page(page, running, "#/playground")
    editor = write(page, "select user_id, amount\nfrom ")
    page.keyboard.type("ord")
    offered = page.locator(".cm-tooltip-autocomplete")
    offered.get_by_role("option", name="orders").click()
    page.keyboard.type(" [")
    offered.get_by_role("option", name="[Range 10 seconds]").click()
    expect(editor).to_have_text(re.compile(r"from orders \[Range 10 seconds\]$"))
    expect(page.locator(".verdict")).to_contain_text("user_id string, amount bigint")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")  # which leaves the editor
    expect(editor).not_to_be_focused()


def test_a_query_is_drawn_and_run_on_the_newest_records(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/playground")
    write(page, TOTALS)
    picture = page.get_by_role("region", name="Picture of the plan")
    for title in ("orders", "Map side", "Window", "Aggregate", "result"):
        expect(picture.locator(".plan-node", has_text=title).first).to_be_visible()
    page.get_by_role("button", name="in words").click()
    expect(page.get_by_role("region", name="Explanation")).to_contain_text("Logical plan")
    page.get_by_role("button", name="in words").click()
    page.get_by_label("Records of each stream").select_option("100")
    page.get_by_role("textbox", name="Query in CQL").focus()
    page.keyboard.press("Control+Enter")
    timeline = page.get_by_role("slider", name="Time cursor")
    expect(timeline).to_be_visible()
    expect(panel(page, "Timeline")).to_contain_text("from 100 records of orders")
    rows = panel(page, re.compile("^Rows"))
    expect(rows.locator("thead")).to_contain_text("valid_to")
    everything = rows.locator(".panel-aside").inner_text()
    timeline.focus()
    page.keyboard.press("Shift+ArrowLeft")
    expect(rows.get_by_role("heading")).to_have_text("Rows at the cursor")
    expect(rows.locator(".panel-aside")).not_to_have_text(everything)
    page.set_viewport_size({"width": 1280, "height": 1240})
    page.evaluate("scrollTo(0, 0)")
    check(page, "playground", tmp_path)


def test_a_query_is_added_after_its_plan_was_shown(page: Page, running: RunningShop, tmp_path: Path) -> None:
    open_page(page, running, "#/playground/spree")
    expect(page.get_by_role("textbox", name="Query in CQL")).to_have_text(re.compile("having sum"))
    write(page, "select item, sum(amount) as sold from orders [Range 1 minute Slide 10 seconds] group by item")
    page.get_by_role("button", name="Add to the pipeline").click()
    form = page.get_by_role("form", name="Add to the pipeline")
    form.get_by_label("Name of the query").fill("spree")
    form.get_by_role("button", name="Show what it would do").click()
    expect(form.get_by_role("alert")).to_contain_text('"spree" is a query of this pipeline')
    form.get_by_label("Name of the query").fill("items_sold")
    form.get_by_role("button", name="Show what it would do").click()
    plan = form.get_by_role("region", name="What it would do")
    expect(plan.locator("tbody tr")).to_have_count(1)
    expect(plan).to_contain_text("items_sold")
    expect(plan).to_contain_text("[Range 1 minute Slide 10 s]")
    expect(plan.get_by_role("region", name="Lines for the pipeline's file")).to_contain_text("items_sold: select item")
    check(page, "playground-add", tmp_path)
    plan.get_by_role("button", name=re.compile("^Add it")).click()
    expect(form.get_by_role("status")).to_contain_text("items_sold runs from the next batch on")
    form.get_by_role("link", name="its rows and timeline").click()
    expect(page.get_by_role("heading", name="items_sold", level=2)).to_be_visible()
    expect(panel(page, re.compile("^Rows")).locator("tbody tr").first).to_be_visible(timeout=120_000)
    page.goto(f"{running.url}/#/")
    expect(page.locator(".node", has_text="items_sold").first).to_be_visible()
    assert running.http.delete("/queries/items_sold").status_code == 200
    expect(page.locator(".node", has_text="items_sold")).to_have_count(0)


@pytest.mark.parametrize("text", ["select 1 as a from nowhere", "select 'it", "with x as (select", "😀"])
def test_no_text_breaks_the_page(page: Page, running: RunningShop, text: str) -> None:
    open_page(page, running, "#/playground")
    write(page, text)
    expect(page.get_by_role("list", name="Mistakes")).to_be_visible()
    write(page, "select user_id from orders")
    expect(page.locator(".verdict")).to_contain_text("A stream of records")
