"""What Hayase reads out of the texts of DuckDB's errors, which have no codes. No other module looks into these texts."""

from __future__ import annotations

import re

from hayase.core.expression_limits import TOO_LARGE

__all__ = ["is_mixed_comparison", "message_of", "unexpected_word"]


def message_of(error: Exception) -> str:
    """Return the message without the excerpt of the statement, which the user did not write, and the candidates after it."""
    if TOO_LARGE in str(error):  # raised by a macro of `expression_limits`, as the text of a failing cast
        return f"{TOO_LARGE}; make it smaller, or leave it out"
    return re.split(r"\n\s*\n?LINE \d+:|\n\s*Candidate", str(error))[0].strip().replace("\n", " ")


def is_mixed_comparison(error: Exception) -> bool:
    """Return whether DuckDB refuses to compare values of two types."""
    return "Cannot compare values of type" in str(error)


def unexpected_word(message: str) -> str:
    """Return the word or sign at which DuckDB's parser stopped; empty if the text ended too early.

    >>> unexpected_word('syntax error at or near "form"')
    'form'
    """
    near = re.search(r'near "(.+)"$', message)
    return near[1] if near else ""
