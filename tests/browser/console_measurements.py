"""Measures the console, by hand: `python tests/browser/console_measurements.py` (after `make test-services` has set it up).

It prints how long the first view takes after /health answers 200, the sizes of what is shipped, and how long frames take while
large pages are scrolled and updated: 100 stages, 10,000 rows, 1,000 groups of dead letters.

`python tests/browser/console_measurements.py pages` measures what 50 open pages cost the shop on Spark (13 minutes, on a machine
that does nothing else; `pages PAIRS SECONDS` measures another number of pairs, in blocks of another length): for each kind of
page the processor time of the server's threads, as a share of a core; and how long batches take beside 50 pages of a query, in
blocks that alternate with blocks without any page. Nothing asserts these figures.
"""

from __future__ import annotations

import contextlib
import gzip
import math
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from open_pages import KINDS, OpenPages
from playwright.sync_api import Browser, Page, sync_playwright
from running_shop import RunningShop

from conftest import CHROMIUM, FLAGS
from hayase.core.errors import DamagedState
from hayase.core.stages import MAIN
from hayase.engine.commit.manifests import Commits
from hayase.engine.home import Home
from hayase.engine.local import InProcess
from hayase.serving import Server, Status, serving
from hayase.serving.console_routes import DIRECTORY
from hayase.testing import Trial, at, trial

STAGES, ROWS, GROUPS = 100, 10_000, 1_000
PAGES = 50
SETTLING, BLOCK = 4.0, 20.0
"""Seconds before a block is measured, and of a block, unless told otherwise."""
PAIRS = 12
"""Pairs of a block with pages and one without, unless told otherwise."""
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
    if sys.argv[1:2] == ["pages"]:
        pairs, seconds = sys.argv[2:] or (PAIRS, BLOCK)
        print_pages(int(pairs), float(seconds))
        return
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
            shop.wait()
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


def print_pages(count: int, seconds: float) -> None:
    """What open pages cost the shop on Spark: processor time by kind of page, and how much longer batches take."""
    with tempfile.TemporaryDirectory() as directory:
        shop = RunningShop(Path(directory) / "shop")
        try:
            shop.wait()
            while shop.http.get("/health").status_code != 200:
                time.sleep(0.1)
            batches = BatchTimes(Path(directory) / "shop")
            batches.during(30)  # until its functions are compiled
            for kind in KINDS:
                with OpenPages(shop.url, kind, PAGES) as pages:
                    share, times = measured(shop, batches, seconds)
                told = ", ".join(f"{what} {count:,}" for what, count in pages.received.items())
                print(
                    f"{PAGES} pages, {kind}: {share:.1%} of a core; {len(times)} batches; received: {told}", flush=True
                )
            pairs = [pair_of_blocks(shop, batches, seconds, pages_first=number % 2 == 1) for number in range(count)]
        finally:
            shop.close()
    ratios = [math.log(beside / alone) for alone, beside in pairs]
    mean = statistics.mean(ratios)
    error = statistics.stdev(ratios) / math.sqrt(count) if count > 1 else math.nan
    print(
        f"batches beside {PAGES} pages of a query take {math.expm1(mean):+.1%} longer, with a standard error of {error:.1%} "
        f"(medians of {count} pairs of blocks, {statistics.mean(alone for alone, _ in pairs) * 1e3:.0f} ms without pages)"
    )


def pair_of_blocks(shop: RunningShop, batches: BatchTimes, seconds: float, *, pages_first: bool) -> tuple[float, float]:
    """Return the median batch times of two blocks that follow each other: without pages, and with them."""
    medians, shares = {}, {}
    for with_pages in (pages_first, not pages_first):
        with OpenPages(shop.url, "query", PAGES) if with_pages else contextlib.nullcontext():
            shares[with_pages], times = measured(shop, batches, seconds)
        medians[with_pages] = statistics.median(times)
    print(
        f"median batch: {medians[False] * 1e3:.1f} ms, with pages {medians[True] * 1e3:.1f} ms; server {shares[False]:.1%}, "
        f"with pages {shares[True]:.1%} of a core",
        flush=True,
    )
    return medians[False], medians[True]


def measured(shop: RunningShop, batches: BatchTimes, seconds: float) -> tuple[float, list[float]]:
    """Return the share of a core that the server's threads take during a block, and how long its batches took."""
    batches.during(SETTLING)
    began, before = time.monotonic(), processor_seconds(shop)
    times = batches.during(seconds)
    return (processor_seconds(shop) - before) / (time.monotonic() - began), times


def processor_seconds(shop: RunningShop) -> float:
    found = re.search(r"^hayase_http_processor_seconds_total (\S+)$", shop.http.get("/metrics").text, re.MULTILINE)
    assert found is not None, "this system does not say how much processor time a thread takes"
    return float(found[1])


class BatchTimes:
    """The durations of the batches of a home's main lane, from its manifests, of which the newest few are kept."""

    def __init__(self, home: Path):
        self._commits = Commits(Home(home), MAIN)
        self._last = 0

    def during(self, seconds: float) -> list[float]:
        """Wait, and return how long the batches took that were committed meanwhile."""
        times: list[float] = []
        self._new()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.2)
            times += self._new()
        return times

    def _new(self) -> list[float]:
        times = []
        for version in self._commits.versions():
            if version > self._last:
                with contextlib.suppress(DamagedState):  # removed since it was listed
                    times.append(self._commits.load(version).seconds)
                self._last = version
        return times


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
