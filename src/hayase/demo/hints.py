"""Commands to try in a second terminal while the shop runs; each works as it is written."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

from hayase.core.data_classes import dataclass
from hayase.demo import scoring_fix

__all__ = ["Hint", "hints", "program_name"]

LARGEST = "select user_id, sum(amount) as spend from orders group by user_id order by spend desc limit 5"
ITEMS = "select item, count(*) as n from orders [Range 5 minutes] group by item"


@dataclass(frozen=True, slots=True)
class Hint:
    """A command, and what it shows; without a text it belongs to the hint before."""

    what: str
    command: str


def program_name() -> str:
    """Return how a shell calls this installation of `hayase`: by name, or by path if the PATH leads to another or to none."""
    beside, on_path = Path(sys.executable).with_name("hayase"), shutil.which("hayase")
    known = on_path is not None and (not beside.exists() or beside.samefile(on_path))
    return "hayase" if known else shlex.quote(str(beside))


def hints(home: Path, url: str, customer: str, program: str = "hayase", *, with_token: bool = False) -> list[Hint]:
    """Return the commands for a home served at `url`, with a token or without; `customer` is one who buys, `program` the command
    `hayase`."""
    curl = 'curl -H "Authorization: Bearer $HAYASE_TOKEN"' if with_token else "curl"
    at = f"--home {shlex.quote(str(home))}"
    fix = f"--from-file {shlex.quote(scoring_fix.__file__)}"
    export = shlex.quote(str(home / "orders.parquet"))
    return [
        Hint("a customer's purchases, and as they were at midnight", f"{program} tables get purchases {customer} {at}"),
        Hint("", f"{program} tables get purchases {customer} --as-of 2026-01-01T00:00Z {at}"),
        Hint("the revenue now, and sprees as they begin and end", f"{program} show revenue {at}"),
        Hint("", f"{program} show spree -f {at}"),
        Hint("any SQL over queries, tables and streams", f'{program} query "{LARGEST}" {at}'),
        Hint("", f"{program} sql {at}"),
        Hint("the same over HTTP, and other results", f"{curl} -N {url}/queries/spree/changes"),
        Hint("", f"{curl} {url}/tables/purchases/{customer}"),
        Hint("", f"{curl} {url}/queries/revenue"),
        Hint("another query, over all orders so far", f"{program} streams export orders {export} {at}"),
        Hint("", f'{program} query "{ITEMS}" -s orders={export} --emit final'),
        Hint("records that could not be processed, and why", f"{program} dead list --grouped {at}"),
        Hint(
            "install the fixed operation while it runs, and replay its dead letters",
            f"{program} ops update scores {fix} {at}",
        ),
        Hint("", f"{program} dead replay --stage scores --yes {at}"),
    ]
