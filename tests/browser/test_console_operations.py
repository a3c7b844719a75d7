"""The page Operations and governor in a real browser, over the demo shop on Spark with a token: the operation is tried, updated
and rolled back, and the dial is moved; all of it happens in the running pipeline."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from console_checks import PICTURES, check, panel, violations
from playwright.sync_api import Page, expect
from running_shop import RunningShop

from conftest import TOKEN
from hayase.core.clock import now_us
from hayase.demo import scoring_fix
from hayase.demo.runner import open_shop
from hayase.engine.local import InProcess
from hayase.serving import Server, Status, serving
from serving_shop import shop as small_shop

SLOW = 120_000


@pytest.fixture
def tokenless(tmp_path: Path) -> Iterator[Server]:
    """The demo shop, served without a token and without Spark."""
    pipeline = open_shop(tmp_path / "shop")
    pipeline.apply()
    with (
        contextlib.closing(InProcess(pipeline.home, now_us)) as runner,
        serving(
            pipeline.home, "127.0.0.1:0", tables=runner.tables, status=Status("running", runner.manifest)
        ) as server,
    ):  # fmt: skip
        yield server


@pytest.fixture
def operations(page: Page, running: RunningShop) -> Page:
    """The page, after the login, once the operation has results."""
    page.goto(f"{running.url}/#/operations/scores")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    expect(page.locator(".state")).to_have_text("running", timeout=SLOW)
    return page


def write(page: Page, text: str) -> None:
    """Replace what is in the editor, as with the keyboard."""
    editor = page.get_by_role("textbox", name="Code of scores")
    expect(editor).to_be_visible()
    editor.click()
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.insert_text(text)


def test_an_operation_is_tried_updated_and_rolled_back(operations: Page, running: RunningShop, tmp_path: Path) -> None:
    page, listed = operations, panel(operations, re.compile("^Operations$"))
    row = listed.locator("tbody tr", has_text="scores")
    expect(row).to_contain_text("hayase.demo.scoring:score")
    expect(listed).to_contain_text("worker")
    editor = page.get_by_role("textbox", name="Code of scores")
    expect(editor).to_contain_text("It fails on some orders")
    before = running.get("/operations/scores")["version"]

    write(page, "def score(records):\n    return {'usr': records[0]['uuid']}\n")
    page.keyboard.press("t")  # a letter in the editor, not a key of the page
    page.keyboard.press("Backspace")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    code = panel(page, re.compile("^Code"))
    expect(code).to_contain_text("edited: +")
    code.get_by_role("button", name="Try on the newest records").click()
    expect(code.locator(".result")).to_contain_text("An update would be refused", timeout=SLOW)
    code.get_by_role("button", name="Update", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Update scores").click()
    expect(page.get_by_role("alert")).to_contain_text('operation "scores" would give (usr string)', timeout=SLOW)
    assert running.get("/operations/scores")["version"] == before

    write(page, Path(scoring_fix.__file__).read_text())
    code.get_by_role("button", name="Try on the newest records").click()
    expect(code.locator(".result")).to_contain_text("0 failed. An update would pass its check.", timeout=SLOW)
    expect(code.get_by_role("region", name="Windows that were tried").locator("tbody tr").first).to_contain_text(
        "score"
    )
    code.get_by_role("button", name="Update", exact=True).click()
    dialog = page.get_by_role("dialog", name="Update scores?")
    expect(dialog).to_contain_text("takes effect at the next batch")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert running.get("/operations/scores")["version"] == before
    code.get_by_role("button", name="Update", exact=True).click()
    dialog.get_by_role("button", name="Update scores").click()
    expect(page.locator(".result", has_text="scores is updated: version")).to_be_visible(timeout=SLOW)
    updated = running.get("/operations/scores")["version"]
    assert updated > before
    versions = panel(page, "Versions")
    differences = versions.get_by_role("region", name=f"Differences from version {before} to version {updated}")
    expect(differences.locator("del", has_text="os._exit(13)")).to_have_count(1)
    expect(differences.locator("ins", has_text="+DOUBTFUL")).to_have_count(1)
    expect(row.get_by_text("from the next batch on")).to_have_count(0, timeout=SLOW)  # the lane has adopted it
    assert running.get("/operations/scores")["in_effect"]
    check(page, "operations", tmp_path)

    versions.get_by_role("button", name=f"Roll back to version {before}").click()
    page.get_by_role("dialog").get_by_role("button", name=f"Roll back to version {before}").click()
    expect(page.locator(".result", has_text=f"scores is rolled back to version {before}")).to_be_visible(timeout=SLOW)
    history = running.get("/operations/scores")["history"]
    assert (len(history), history[-1]["code"], history[-1]["by"]) == (3, history[0]["code"], "file")
    expect(editor).to_contain_text("It fails on some orders")


def test_the_dial_is_moved_while_the_lanes_run(operations: Page, running: RunningShop, tmp_path: Path) -> None:
    page, governor = operations, panel(operations, re.compile("^Governor$"))
    dial = governor.get_by_role("slider")
    expect(dial).to_have_value("0.97")
    expect(governor).to_contain_text("at most about 3 of 100 looks find nothing")
    expect(governor).to_contain_text("main 0.97, operations 0.97", timeout=SLOW)
    dial.focus()
    page.keyboard.press("Home")
    expect(governor).to_contain_text("Lanes look for records all the time")
    page.keyboard.press("ArrowRight")
    governor.get_by_role("button", name="Set u").click()
    dialog = page.get_by_role("dialog", name="Set u to 0.01?")
    expect(dialog).to_contain_text("keep the loads that they have measured")
    dialog.get_by_role("button", name="Set u to 0.01").click()
    expect(governor.locator(".result")).to_contain_text("u is 0.01: version")
    expect(governor).to_contain_text("command; the file says 0.97")
    expect(governor).to_contain_text("main 0.01, operations 0.01", timeout=SLOW)  # what the lanes themselves report
    assert running.get("/governor")["in_effect"]
    for lane in ("Operations lane operations", "Queries, jobs and tables lane main"):
        charts = panel(page, lane)
        expect(charts.get_by_role("img").first).to_have_attribute("aria-label", re.compile("orders"))
        line = re.compile(rf"(\S+ ){{{9 if PICTURES else 1}}}")  # a picture shows more than two samples
        expect(charts.locator(".chart polyline").first).to_have_attribute("points", line, timeout=SLOW)
    governor.evaluate("element => element.scrollIntoView()")
    check(page, "governor", tmp_path)
    governor.get_by_role("button", name="As the file says: 0.97").click()
    page.get_by_role("dialog").get_by_role("button", name="Set u to 0.97").click()
    expect(governor).to_contain_text("main 0.97, operations 0.97", timeout=SLOW)
    assert running.get("/governor")["by"] == "file"


def test_without_a_token_nothing_can_be_run(page: Page, tokenless: Server) -> None:
    page.goto(f"{tokenless.url}/#/operations")
    expect(page.locator(".banner")).to_contain_text("runs no code that a browser sends", timeout=SLOW)
    for name in ("Try on the newest records", "Update"):
        expect(page.get_by_role("button", name=name, exact=True)).to_be_disabled()
    expect(page.get_by_role("textbox", name="Code of scores")).to_contain_text("def score")
    expect(panel(page, re.compile("^Governor$")).get_by_role("slider")).to_be_enabled()


def test_a_pipeline_without_operations(page: Page, tmp_path: Path) -> None:
    with small_shop(tmp_path / "shop") as made:
        page.goto(f"{made.server.url}/#/operations")
        expect(page.locator(".empty").first).to_contain_text("This pipeline has no operations")
        governor = panel(page, re.compile("^Governor$"))
        expect(governor).to_contain_text("Set by the pipeline file, or its default.")
        assert violations(page) == []
