"""What to try in a second terminal while the shop runs: commands that work as they are written."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from hayase.demo import mended

__all__ = ["Hint", "hints"]

ITEMS = "select item, count(*) as n from orders [Range 5 minutes] group by item"


@dataclass(frozen=True, slots=True)
class Hint:
    """A command, and what it shows."""

    what: str
    command: str


def hints(home: Path, url: str, customer: str) -> list[Hint]:
    """Commands for a home and for where it is served; `customer` is one who buys."""
    at = f"--home {shlex.quote(str(home))}"
    fix = f"--from-file {shlex.quote(mended.__file__)}"
    export = shlex.quote(str(home / "orders.parquet"))
    return [
        Hint("a customer's purchases, and as they were at midnight", f"hayase tables get purchases {customer} {at}"),
        Hint("", f"hayase tables get purchases {customer} --as-of 2026-01-01T00:00Z {at}"),
        Hint("sprees as they begin and end", f"hayase streams tail spree -f {at}"),
        Hint("the same over HTTP, and all that is served", f"curl -N {url}/queries/spree/changes"),
        Hint("", f"curl {url}/tables/purchases/{customer}"),
        Hint("", f"curl {url}/queries/revenue"),
        Hint("another question, to all orders so far", f"hayase streams export orders {export} {at}"),
        Hint("", f'hayase query "{ITEMS}" -s orders={export} --emit final'),
        Hint("what could not be taken, and why", f"hayase dead list --grouped {at}"),
        Hint(
            "the operation mended while it runs, and its dead letters once more", f"hayase ops update scores {fix} {at}"
        ),
        Hint("", f"hayase dead replay --stage scores --yes {at}"),
    ]
