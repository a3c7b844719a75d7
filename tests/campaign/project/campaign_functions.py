"""The functions of the campaign's job and operation."""

import os

import hayase as hy

RAISES, EXITS = 8, 89
"""Amounts for which `mark` raises and for which it ends its process."""


def by_page(record):
    """One for each page, and one more hit in the table of pages."""
    yield hy.to("hits", record["page"], {"visits": 1})
    yield record["page"], 1


def by_page_alone(record):
    """One for each page. A visit without a page raises, and is a dead letter."""
    if record["page"] == "/nowhere":
        raise ValueError("no such page")
    return record["page"], 1


def count(page, values):
    """How many visits of a page there were."""
    yield page, sum(values)


def alert(page, values, stored):
    """The visits of pages that are watched."""
    if stored is not None:
        yield page, {"reason": stored["reason"], "visits": sum(values)}


def mark(records):
    """The one order of a window, marked."""
    [order] = records
    if order["amount"] == RAISES:
        raise ValueError("eight")
    if order["amount"] == EXITS:
        os._exit(7)
    return {"id": order["id"], "user": order["user"], "mark": (order["amount"] or 0) % 20}
