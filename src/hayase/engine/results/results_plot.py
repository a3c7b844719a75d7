"""Results drawn with matplotlib: lifetimes as bars, or the values of a column over event time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.data_frames import optional_module
from hayase.core.errors import HayaseError, UnknownName
from hayase.engine.results.lifespans import OPEN
from hayase.engine.results.lifetime_samples import Timeline
from hayase.engine.results.query_results import Results

__all__ = ["plot"]

ROWS_PER_LINE = 2000
"""Rows that are looked at for the lines of values, for each line."""


def plot(results: Results, column: str | None, by: str | None, limit: int, axes: Any) -> Any:
    """Draw results into `axes`, by default new ones; return them."""
    pyplot = optional_module("matplotlib.pyplot", "plot()")
    if limit < 1:
        raise HayaseError("a plot has at least one row; give a limit of 1 or more")
    timeline = Timeline(results.log)
    names = timeline.at_table().column_names
    for name in (column, by):
        if name is not None and name not in names:
            raise UnknownName("column", name, names, f' of "{results.log.declaration.name}"')
    bounds = timeline.bounds()
    axes = axes if axes is not None else pyplot.subplots()[1]
    axes.set_title(results.log.declaration.name)
    axes.set_xlabel("event time")
    if bounds is None:
        return axes
    if column is None:
        _draw_bars(timeline, bounds, limit, axes)
    else:
        _draw_values(timeline, bounds, column, by, limit, axes)
    return axes


def _draw_bars(timeline: Timeline, bounds: tuple[int, int], limit: int, axes: Any) -> None:
    start, end = bounds
    sample = timeline.sample(start, end, limit, 1)
    labels = [
        ", ".join("" if value is None else str(value) for value in row.values()) for row in sample.rows.to_pylist()
    ]
    begins, places = timeline.times(np.maximum(sample.starts, start)), range(len(labels))
    if timeline.log.declaration.lifetimes:
        axes.hlines(places, begins, timeline.times(_ends(sample.ends, end)), colors=_colours(len(labels)), linewidth=6)
    else:
        axes.plot(begins, places, ".")
    if len(labels) <= 40:
        axes.set_yticks(range(len(labels)), labels)
    else:
        axes.set_yticks([])
    axes.invert_yaxis()


def _draw_values(
    timeline: Timeline, bounds: tuple[int, int], column: str, by: str | None, limit: int, axes: Any
) -> None:
    start, end = bounds
    sample = timeline.sample(start, end, limit * ROWS_PER_LINE, 1)
    kind = sample.rows.schema.field(column).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        raise HayaseError(f'column "{column}" has no numbers to draw; leave it out, and lifetimes are drawn')
    values = [float("nan") if value is None else float(value) for value in sample.rows.column(column).to_pylist()]
    groups = [""] * len(values) if by is None else list(map(str, sample.rows.column(by).to_pylist()))
    begins, stops = timeline.times(sample.starts), timeline.times(_ends(sample.ends, end))
    relation = timeline.log.declaration.lifetimes
    for number, group in enumerate(list(dict.fromkeys(groups))[:limit]):
        places = [place for place, name in enumerate(groups) if name == group]
        lows, heights = [begins[place] for place in places], [values[place] for place in places]
        colour, label = _colours(number + 1)[-1], None if by is None else group
        if relation:
            axes.hlines(heights, lows, [stops[place] for place in places], colors=colour, label=label)
        else:
            axes.plot(lows, heights, ".", color=colour, label=label)
    axes.set_ylabel(column)
    if by is not None:
        axes.legend(title=by)


def _ends(ends: np.ndarray[Any, Any], last: int) -> np.ndarray[Any, Any]:
    """Return the ends of rows, that of a row that has not ended being the last instant."""
    return np.where(ends == OPEN, last, np.minimum(ends, last))


def _colours(count: int) -> list[str]:
    """Return as many colours of matplotlib's cycle."""
    return [f"C{number % 10}" for number in range(count)]
