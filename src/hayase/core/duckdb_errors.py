"""What Hayase reads out of the texts of DuckDB's errors, which have no codes. No other module looks into these texts."""

from __future__ import annotations

import difflib
import re

from hayase.core.expression_limits import TOO_LARGE

__all__ = ["hint_of", "is_mixed_comparison", "message_of", "unexpected_word"]

_UNKNOWN = re.compile(
    r"""Catalog Error: (?:\w+ )?(Function|Type) with name "?(.+?)"? does not exist!(?:\s+Did you mean "(.+?)")?"""
)
_OWN_CODE = (
    "expressions have the functions of DuckDB, and those of your own: @p.function, or functions: in the pipeline's file"
)


def message_of(error: Exception) -> str:
    """Return the message without the excerpt of the statement, which the user did not write, and the candidates after it."""
    if TOO_LARGE in str(error):  # raised by a macro of `expression_limits`, as the text of a failing cast
        return f"{TOO_LARGE}; make it smaller, or leave it out"
    if unknown := _UNKNOWN.match(str(error)):
        return f'unknown {unknown[1].lower()} "{unknown[2]}"'
    return re.split(r"\n\s*\n?LINE \d+:|\n\s*Candidate", str(error))[0].strip().replace("\n", " ")


def hint_of(error: Exception) -> str | None:
    """Return what to do about an unknown function or type: the name that was meant, or where to find others.

    >>> hint_of(ValueError('Catalog Error: Scalar Function with name summ does not exist!\\nDid you mean "sum"?'))
    'did you mean "sum"?'
    """
    unknown = _UNKNOWN.match(str(error))
    if unknown is None:
        return None
    kind, name, near = unknown.groups()
    if near and difflib.SequenceMatcher(None, name.lower(), near.lower()).ratio() >= 0.7:
        return f'did you mean "{near}"?'
    return _OWN_CODE if kind == "Function" else "types are those of DuckDB, like bigint, double, varchar"


def is_mixed_comparison(error: Exception) -> bool:
    """Return whether DuckDB refuses to compare values of two types."""
    return "Cannot compare values of type" in str(error)


def unexpected_word(message: str) -> str | None:
    """Return the word or sign at which DuckDB's parser stopped; empty if the text ended too early.

    None if the parser could read the text and refused something in it.

    >>> unexpected_word('syntax error at or near "form"')
    'form'
    >>> unexpected_word('Unknown ordered aggregate "listagg".') is None
    True
    """
    if not message.startswith("syntax error"):
        return None
    near = re.search(r'near "(.+)"$', message)
    return near[1] if near else ""
