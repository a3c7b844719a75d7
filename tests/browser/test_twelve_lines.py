"""The picture on the first page of the guide: twelve lines of a pipeline file, and what comes out of them in the console.

The lines are those of the page. With HAYASE_SCREENSHOTS=docs/figures the picture is made anew.
"""

from __future__ import annotations

import base64
import contextlib
import html
import re
from pathlib import Path
from typing import Any

from console_checks import PICTURES, panel
from playwright.sync_api import Browser, Page, expect

from hayase.engine.local import InProcess
from hayase.serving import Status, serving
from hayase.testing import at, trial

GUIDE = Path(__file__).parents[2] / "docs" / "index.md"
USERS = ("taro", "hana", "ken", "yuki")
PAGE = """<body style="margin:0;background:#f6f7f9;font:15px system-ui,sans-serif;color:#1b2430">
<div style="display:flex;gap:28px;align-items:center;padding:28px;width:1544px">
  <div style="flex:none;width:610px">
    <div style="color:#566171;margin:0 0 8px 4px">pipeline.yaml</div>
    <pre style="margin:0;padding:18px 20px;background:#fff;border:1px solid #d5dae2;border-radius:8px;line-height:1.65;
      font:14.5px ui-monospace,'DejaVu Sans Mono',monospace">{lines}</pre>
    <div style="color:#566171;margin:14px 0 0 4px">hayase run pipeline.yaml --serve</div>
  </div>
  <div style="font-size:34px;color:#0b5c8f">➜</div>
  <img src="data:image/png;base64,{picture}" width="850" style="border-radius:8px" />
</div>"""


def twelve_lines() -> str:
    """The pipeline file on the first page of the guide."""
    found = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def orders() -> list[dict[str, Any]]:
    """Orders of half an hour: two of them arrive out of order, and one is broken."""
    rows: list[dict[str, Any]] = [
        {"time": at(number * 37), "user": USERS[number * 7 // 3 % 4], "amount": float((number * 53) % 140 + 5)}
        for number in range(48)
    ]
    rows[10], rows[11], rows[30], rows[31] = rows[11], rows[10], rows[31], rows[30]
    rows[20]["amount"] = "a lot"
    return rows


def test_the_twelve_lines_and_what_comes_out(page: Page, browser: Browser, tmp_path: Path) -> None:
    lines = twelve_lines()
    assert len(lines.splitlines()) == 12
    (tmp_path / "pipeline.yaml").write_text(lines, encoding="utf-8")
    with trial(file=tmp_path / "pipeline.yaml", home=tmp_path / "home") as pipeline:
        accepted = pipeline.append("orders", orders())
        assert (accepted.accepted, accepted.refused) == (47, 1)
        pipeline.run()
        with (
            contextlib.closing(InProcess(pipeline.home, pipeline.clock)) as runner,
            serving(
                pipeline.home,
                "127.0.0.1:0",
                tables=runner.tables,
                status=Status("running", runner.manifest),
                clock=pipeline.clock,
            ) as server,
        ):
            page.set_viewport_size({"width": 1120, "height": 900})
            page.goto(f"{server.url}/#/queries/spend")
            timeline, rows = panel(page, "Timeline"), panel(page, "Rows at present")
            expect(timeline).to_contain_text("rows")
            for user in USERS:
                expect(rows).to_contain_text(user)
            final = pipeline.at("spend")
            expect(rows.locator("tbody tr")).to_have_count(len(final))
            timeline.get_by_label("Group the rows by").select_option("user")
            expect(page.locator(".count")).to_have_text("1")  # the broken order is a dead letter
            page.mouse.move(0, 0)
            picture = page.screenshot(clip={"x": 0, "y": 0, "width": 1120, "height": 900})
    context = browser.new_context(viewport={"width": 1600, "height": 760})
    composed = context.new_page()
    composed.set_content(PAGE.format(lines=_coloured(lines), picture=base64.b64encode(picture).decode()))
    place = (Path(PICTURES) if PICTURES else tmp_path) / "twelve-lines.png"
    composed.screenshot(path=place, full_page=True)
    context.close()
    assert place.stat().st_size > 10_000


def _coloured(text: str) -> str:
    """The lines as HTML, with the keys of the file and the words of the language in colour."""
    keys = re.sub(r"(?m)^(\s*)(\w+):", r'\1<b style="color:#0b5c8f;font-weight:normal">\2</b>:', html.escape(text))
    words = r"\b(select|from|where|group by|as|count|sum|Range)\b"
    return re.sub(words, r'<b style="color:#7a4a9e;font-weight:normal">\1</b>', keys)
