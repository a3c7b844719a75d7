"""Rows as HTML tables for notebooks, escaped, with shortened cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from hayase.core.svg_text import shortened

__all__ = ["cell_text", "rows_html", "value_text"]

LONGEST = 60
"""Characters of a cell."""


def rows_html(names: Sequence[str], rows: Iterable[Mapping[str, Any]], remark: str = "") -> str:
    """Return rows as an HTML table, in the style that notebooks give to data frames.

    >>> rows_html(["a"], [{"a": "<b>"}])
    '<table class="dataframe"><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{shortened(cell_text(row.get(name)), LONGEST)}</td>' for name in names)}</tr>"
        for row in rows
    )
    table = f'<table class="dataframe"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return table + (f"<p>{escape(remark)}</p>" if remark else "")


def cell_text(value: Any) -> str:
    """Return a value as a cell shows it: nothing for NULL, numbers without trailing zeros."""
    return "" if value is None else f"{value:.12g}" if isinstance(value, float) else value_text(value)


def value_text(value: Any) -> str:
    """Return a value as text; a time as ISO 8601, in UTC with a Z."""
    isoformat = getattr(value, "isoformat", None)
    return str(value) if isoformat is None else str(isoformat()).replace("+00:00", "Z")
