"""Draws the trial of update rules on an event: the branches that apply, the payloads, and the refusals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from hayase.console.listings import plain_table
from hayase.console.records import cell_text
from hayase.core.times import instant_text
from hayase.streams.record_text import record_text
from hayase.tables.payloads import json_bytes

__all__ = ["json_text", "trial_view"]

LONGEST = 200
"""How many characters of a parameter are shown."""


def trial_view(trial: Mapping[str, Any], *, typed: bool) -> RenderableType:
    """Draw the trial of one event; `typed` if the types of columns are known, so that payloads have versions and deltas."""
    lines: list[RenderableType] = [Text(f"event {trial['event']} of {trial['source']}", style="bold")]
    for branch in trial["branches"]:
        mark, style = ("✓", "green") if branch["concerns"] else ("·", "dim")
        condition = "always" if branch["condition"] is None else branch["condition"]
        lines.append(Text.assemble((f"  {mark} {condition}", style), (f" → {', '.join(branch['tables'])}", "dim")))
    if trial["payloads"]:
        table = plain_table("table", "key", "column", "parameter", *(("version", "delta") if typed else ()))
        if typed:
            table.columns[-1].overflow, table.columns[-1].no_wrap = "ellipsis", True
        for payload in trial["payloads"]:
            table.add_row(*(Text(text) for text in _cells(payload)))
        lines += [Text(), table]
    else:
        lines.append(Text("  no payloads", style="dim"))
    for refusal in trial["refusals"]:
        program = "" if refusal["program"] is None else f", {refusal['program']}"
        lines.append(
            Text.assemble(("  ✗ ", "bold red"), f"{refusal['rule']}{program}: ", (refusal["reason"], "yellow"))
        )
    return Group(*lines, Text())


def _cells(payload: Mapping[str, Any]) -> list[str]:
    parameter = json_text(payload["parameter"])
    method = "" if payload["method"] is None else f".{payload['method']}"
    cells = [
        payload["table"],
        ", ".join(map(json_text, payload["key"])),
        payload["column"] + method,
        parameter if len(parameter) <= LONGEST else parameter[: LONGEST - 1] + "…",
    ]
    if "version" in payload:
        version = payload["version"]
        parts = (instant_text(version["time_us"]), version["id"], version["operation"])
        cells += [" ".join(map(cell_text, parts)), payload["delta"]]
    return cells


def json_text(value: Any) -> str:
    """Format a value as JSON on one line, numbers in full."""
    try:
        return json_bytes(value).decode()
    except TypeError:  # a whole number of more than 64 bits
        return record_text(value)
