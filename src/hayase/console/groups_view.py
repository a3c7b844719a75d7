"""Draws the groups of jobs: streams with the tuples that wait in them, and stored tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import RenderableType

from hayase.console.figures import bytes_text
from hayase.console.listings import plain_table

__all__ = ["group_list"]


def group_list(groups: Iterable[Mapping[str, Any]]) -> RenderableType:
    """Show all groups of a pipeline; the number of rows of a table is an estimate of its store."""
    numbers = ("tuples", "size")
    table = plain_table("group", "kind", *numbers, "waiting", "written by", "read by", right=numbers)
    for group in groups:
        if group["kind"] == "table":
            tuples, waiting = f"about {group['rows_about']:,}", "—"
        else:
            tuples = f"{group['records']:,}"
            waiting = (
                "\n".join(f"{count:,} for {name}" for name, count in group["waiting"].items() if count) or "nothing"
            )
        jobs = ("\n".join(group[what]) or "—" for what in ("written_by", "read_by"))
        table.add_row(group["name"], group["kind"], tuples, bytes_text(group["bytes"]), waiting, *jobs)
    return table
