"""Results as a notebook shows them: a line of text, or HTML with rows and a timeline of lifetimes.

Both are bounded, whatever the size of the results, and show an error instead of raising it: a notebook would hide it.
"""

from __future__ import annotations

from html import escape

import numpy as np

from hayase.core.errors import HayaseError
from hayase.core.html_tables import cell_text, rows_html, value_text
from hayase.core.schemas import ddl
from hayase.core.svg_text import COLOURS, element, picture, shortened
from hayase.engine.results.lifespans import OPEN, own_columns
from hayase.engine.results.lifetime_samples import LifetimeSample, Timeline
from hayase.engine.results.live_results import Live
from hayase.engine.results.query_results import Results
from hayase.streams.json_columns import records

__all__ = ["html_of", "text_of"]

ROWS = 10
"""Rows of the table."""
BARS = 30
"""Rows of the timeline."""
BINS = 120
WIDTH, LABELS, BAR, AXIS = 720.0, 200.0, 13.0, 22.0
"""Pixels: the timeline, its labels, a bar with its gap, the axis."""


def text_of(results: Results) -> str:
    """Return a line: kind, name, columns, and up to which time they are final."""
    declaration = results.log.declaration
    names = own_columns(declaration)
    schema = ddl([field for field in declaration.arrow_schema if field.name in names])
    kind = "relation" if declaration.lifetimes else "stream"
    try:
        final = results.final()
        known = "nothing is final yet" if final is None else f"final up to {value_text(final)}"
    except HayaseError as error:
        known = str(error)
    return f"<{kind} {declaration.name} ({schema}): {known}>"


def html_of(results: Results) -> str:
    """Return the newest rows as a table, and a timeline of lifetimes."""
    head = element("p", escape(text_of(results)[1:-1]))
    try:
        page = Live(results.log).page(None, limit=ROWS + 1, with_lifetimes=True)
        names, rows = page.rows.column_names, records(page.rows)
        more = f"the first {ROWS} of more rows" if len(rows) > ROWS else ""
        return f"<div>{head}{rows_html(names, rows[:ROWS], more)}{_timeline(Timeline(results.log))}</div>"
    except HayaseError as error:
        return f"<div>{head}<p>{escape(str(error))}</p></div>"


def _timeline(timeline: Timeline) -> str:
    bounds = timeline.bounds()
    if bounds is None:
        return ""
    start, end = bounds
    sample = timeline.sample(start, end, BARS, BINS)
    first, last = timeline.times(np.array([start, end - 1]))
    relation = timeline.log.declaration.lifetimes
    parts, bottom = _bars(sample, start, end) if relation else _histogram(sample)
    parts += _axis(value_text(first), value_text(last), bottom)
    shown = len(sample.starts)
    unit = "rows" if relation else "records"
    counted = f"{sample.matching:,} {unit}" if sample.complete else f"more than {sample.matching:,} {unit}"
    remark = f"<p>{shown} of {counted}, the longest and a sample</p>" if relation and shown < sample.matching else ""
    title = (
        f"lifetimes of {timeline.log.declaration.name}" if relation else f"records of {timeline.log.declaration.name}"
    )
    return picture(WIDTH, bottom + AXIS, parts, title) + remark


def _bars(sample: LifetimeSample, start: int, end: int) -> tuple[list[str], float]:
    """Return a bar for each row, from its start to its end, and the height of all. A row that has not ended has no right edge."""
    scale = (WIDTH - LABELS) / max(end - start, 1)
    colours: dict[str, str] = {}
    parts = []
    for number, row in enumerate(records(sample.rows)):
        begin = max(int(sample.starts[number]), start)
        is_open = int(sample.ends[number]) == OPEN or int(sample.ends[number]) >= end
        until = end if is_open else int(sample.ends[number])
        x, width = LABELS + (begin - start) * scale, max((until - begin) * scale, 1.0)
        y = number * BAR
        values = [cell_text(value) for value in row.values()]
        colour = colours.setdefault(values[0] if values else "", COLOURS[len(colours) % len(COLOURS)])
        label = ", ".join(values)
        shape = element(
            "rect", element("title", escape(label)), x=x, y=y + 1, width=width, height=BAR - 3, rx=0 if is_open else 3,
            fill=colour, fill_opacity=0.75,
        )  # fmt: skip
        name = element("text", shortened(label, 32) or "()", x=LABELS - 6, y=y + BAR - 3, text_anchor="end")
        parts += [name, shape]
    return parts, len(sample.starts) * BAR + 4


def _histogram(sample: LifetimeSample) -> tuple[list[str], float]:
    """Return how many records there are in each part of the time, and the height."""
    height, most = 80.0, max(int(sample.density.max(initial=0)), 1)
    width = (WIDTH - LABELS) / len(sample.density)
    bars = [
        element(
            "rect",
            element("title", f"{int(count):,} records"),
            x=LABELS + number * width,
            y=height * (1 - count / most),
            width=max(width - 1, 1.0),
            height=height * count / most,
            fill=COLOURS[0],
            fill_opacity=0.75,
        )
        for number, count in enumerate(sample.density.tolist())
        if count
    ]
    return [element("text", f"at most {most:,}", x=LABELS - 6, y=10, text_anchor="end"), *bars], height + 4


def _axis(first: str, last: str, y: float) -> list[str]:
    line = element("line", x1=LABELS, y1=y, x2=WIDTH, y2=y, stroke="currentColor", stroke_opacity=0.5)
    left = element("text", escape(first), x=LABELS, y=y + 14)
    return [line, left, element("text", escape(last), x=WIDTH, y=y + 14, text_anchor="end")]
