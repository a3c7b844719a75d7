"""What to try in a second terminal while the shop runs: commands that work as they are written."""

from __future__ import annotations

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from hayase.demo import mended

__all__ = ["Hint", "called", "hints"]

ITEMS = "select item, count(*) as n from orders [Range 5 minutes] group by item"


@dataclass(frozen=True, slots=True)
class Hint:
    """A command, and what it shows."""

    what: str
    command: str


def called() -> str:
    """How this program is called from a shell here: by its name, or by its path if it is not on the way."""
    beside, found = Path(sys.executable).with_name("hayase"), shutil.which("hayase")
    known = found is not None and (not beside.exists() or beside.samefile(found))
    return "hayase" if known else shlex.quote(str(beside))


def hints(home: Path, url: str, customer: str, program: str = "hayase") -> list[Hint]:
    """Commands for a home and for where it is served; `customer` is one who buys, `program` how `hayase` is called."""
    at = f"--home {shlex.quote(str(home))}"
    fix = f"--from-file {shlex.quote(mended.__file__)}"
    export = shlex.quote(str(home / "orders.parquet"))
    return [
        Hint("a customer's purchases, and as they were at midnight", f"{program} tables get purchases {customer} {at}"),
        Hint("", f"{program} tables get purchases {customer} --as-of 2026-01-01T00:00Z {at}"),
        Hint("sprees as they begin and end", f"{program} streams tail spree -f {at}"),
        Hint("the same over HTTP, and all that is served", f"curl -N {url}/queries/spree/changes"),
        Hint("", f"curl {url}/tables/purchases/{customer}"),
        Hint("", f"curl {url}/queries/revenue"),
        Hint("another question, to all orders so far", f"{program} streams export orders {export} {at}"),
        Hint("", f'{program} query "{ITEMS}" -s orders={export} --emit final'),
        Hint("what could not be taken, and why", f"{program} dead list --grouped {at}"),
        Hint(
            "the operation mended while it runs, and its dead letters once more",
            f"{program} ops update scores {fix} {at}",
        ),
        Hint("", f"{program} dead replay --stage scores --yes {at}"),
    ]
