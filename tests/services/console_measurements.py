"""Measures the console, by hand: `python tests/services/console_measurements.py` (after `make test-services` has set it up).

It prints how long the first view takes after /health answers 200, the sizes of what is shipped, and how long frames take while
large pages are scrolled and updated: 100 stages, 10,000 rows, 1,000 groups of dead letters. Nothing asserts these figures.
"""

from __future__ import annotations

import contextlib
import gzip
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from running_shop import RunningShop

from conftest import CHROMIUM, FLAGS
from hayase.engine.local import InProcess
from hayase.serving import Server, Status, serving
from hayase.serving.console_routes import DIRECTORY
from hayase.testing import Trial, at, trial

STAGES, ROWS, GROUPS = 100, 10_000, 1_000
FRAMES = """async ([selector, steps]) => {
  const element = document.querySelector(selector) ?? document.scrollingElement;
  const frames = [];
  let last = performance.now();
  for (let step = 0; step < steps; step++) {
    element.scrollTop = (element.scrollHeight - element.clientHeight) * step / steps;
    await new Promise((done) => requestAnimationFrame(done));
    const now = performance.now();
    frames.push(now - last);
    last = now;
  }
  return frames;
}"""


def main() -> None:
    print_sizes()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        print_first_view(browser)
        with served_stages() as server:
            print_frames(browser, f"{STAGES} stages", f"{server.url}/#/", ".node", "main")
        with served_rows() as server:
            print_frames(browser, f"{ROWS:,} rows", f"{server.url}/#/queries/all_rows", ".long tbody tr", ".long")
            print_frames(
                browser, f"{GROUPS:,} groups of dead letters", f"{server.url}/#/dead", ".pickable", ".long", many_groups
            )
        browser.close()


def print_sizes() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes(), 9)) for path in DIRECTORY.iterdir()}
    page = (DIRECTORY / "index.html").read_text()
    first = ["index.html", *re.findall(r'(?:src|href)="/console/([^"]+)"', page)]
    first_view = sum(sizes[name] for name in first)
    print(f"compressed: {sum(sizes.values()) / 1e3:.0f} kB in all, {first_view / 1e3:.0f} kB for the first view")


def print_first_view(browser: Browser) -> None:
    """From the first 200 of /health of the demo shop, as it starts on Spark, to its graph in a browser that is open already; then
    again in new sessions, while it runs."""
    with tempfile.TemporaryDirectory() as directory:
        shop = RunningShop(Path(directory) / "shop")
        try:
            times = []
            for _ in range(5):
                page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
                while shop.http.get("/health").status_code != 200:
                    time.sleep(0.01)
                began = time.monotonic()
                page.goto(shop.url)
                page.locator(".node").first.wait_for()
                times.append(time.monotonic() - began)
                page.context.close()
        finally:
            shop.close()
    print(f"first view after /health is 200: {times[0]:.2f} s; later {', '.join(f'{one:.2f}' for one in times[1:])} s")


def print_frames(
    browser: Browser, what: str, url: str, shown: str, scrolled: str, prepare: Any = lambda page: None
) -> None:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    prepare(page)
    began = time.monotonic()
    page.goto(url)
    page.locator(shown).first.wait_for()
    visible = time.monotonic() - began
    if scrolled == ".long":
        load_all(page)
    frames = sorted(page.evaluate(FRAMES, [scrolled, 240]))
    elements = page.evaluate("document.querySelectorAll('*').length")
    print(
        f"{what}: visible after {visible:.2f} s; frames while scrolling: median {frames[len(frames) // 2]:.0f} ms, "
        f"95 % {frames[int(len(frames) * 0.95)]:.0f} ms, longest {frames[-1]:.0f} ms; "
        f"{elements:,} elements in the document"
    )
    page.context.close()


def load_all(page: Page) -> None:
    """Scroll until no more rows come."""
    before = -1
    while (height := page.evaluate("document.querySelector('.long').scrollHeight")) != before:
        before = height
        page.evaluate("document.querySelector('.long').scrollTop = 1e9")
        page.wait_for_timeout(400)


def many_groups(page: Page) -> None:
    group = {"stage": "s", "stream": "orders", "kind": "schema", "letters": 1, "since": "2026-01-01T00:00:00Z",
             "until": "2026-01-01T00:00:00Z"}  # fmt: skip
    # reasons that differ in digits only are one line, so these differ in letters
    names = [f"{chr(97 + n // 676)}{chr(97 + n // 26 % 26)}{chr(97 + n % 26)}" for n in range(GROUPS)]
    groups = [{**group, "reason": f"reason {name}", "first": n, "last": n} for n, name in enumerate(names)]
    page.route("**/dead/groups*", lambda route: route.fulfill(json={"open": GROUPS, "groups": groups}))


@contextlib.contextmanager
def served_stages() -> Iterator[Server]:
    with served(stages) as server:
        yield server


def stages(pipeline: Trial) -> None:
    pipeline.stream("orders", "time timestamp, user string, amount double")
    for number in range(STAGES):
        pipeline.query(f"q{number:03d}", f"select user, sum(amount) as s from orders [Rows {number + 1}] group by user")
    pipeline.append("orders", [{"time": at(n), "user": f"u{n % 5}", "amount": 1.0} for n in range(100)])


@contextlib.contextmanager
def served_rows() -> Iterator[Server]:
    with served(rows) as server:
        yield server


def rows(pipeline: Trial) -> None:
    pipeline.stream("orders", "time timestamp, user string, amount double")
    pipeline.query("all_rows", "select user, amount from orders [Range 1 day]")
    pipeline.append("orders", [{"time": at(n / 10), "user": f"u{n}", "amount": float(n)} for n in range(ROWS)])


@contextlib.contextmanager
def served(declare: Any) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory, trial(home=Path(directory) / "home") as pipeline:
        declare(pipeline)
        pipeline.run()
        with (
            contextlib.closing(InProcess(pipeline.home, pipeline.clock)) as runner,
            serving(
                pipeline.home, "127.0.0.1:0", tables=runner.tables, status=Status("running", runner.manifest),
                clock=pipeline.clock,
            ) as server,
        ):  # fmt: skip
            yield server


if __name__ == "__main__":
    main()
