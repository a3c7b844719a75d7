"""Translates sqlglot's parse errors into mistakes. No other module looks into their texts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from sqlglot import ParseError

from hayase.core.errors import Mistake

__all__ = ["mistake_of"]

_KEYWORDS = (
    "and", "as", "between", "by", "distinct", "except", "from", "full", "group", "having", "inner", "intersect", "join",
    "left", "not", "on", "or", "outer", "right", "select", "union", "using", "where", "with",
)  # fmt: skip
"""Words that a misspelled word may stand for."""
_HINTS = {
    "Expecting )": 'close the "("',
    "Expecting ]": 'close the "["',
    "Expected ]": 'close the "["',
    "Expected END": "close CASE with END",
    "Expected TYPE": "name a type, like CAST(x AS bigint)",
    "Expected table name": "name a stream, a table or a query there",
    "Required keyword": "something is missing there: a value, a condition or a query",
}
"""What to do, by the beginning of sqlglot's description. The descriptions themselves are about the parser."""


def mistake_of(error: ParseError) -> Mistake:
    """Return the first error of a text, with its line and column and what to do about it."""
    first = error.errors[0] if error.errors else {}
    length = len(first.get("highlight") or " ")
    message = "cannot read the query" + (f' near "{first["highlight"]}"' if first.get("highlight") else "")
    column = max(1, (first.get("col") or length) - length + 1)  # sqlglot counts to the end of the token
    return Mistake(message, _hint(first), line=first.get("line"), column=column)


def _hint(error: Mapping[str, Any]) -> str:
    """Return what to do: the word at the error, or one of the two before it, may be a misspelled keyword."""
    description = str(error.get("description") or "")
    hint = next((hint for beginning, hint in _HINTS.items() if description.startswith(beginning)), None)
    if hint is not None and not description.startswith("Required keyword"):
        return hint
    before = re.findall(r"\w+", str(error.get("start_context") or ""))
    for word in (str(error.get("highlight") or ""), *before[:-3:-1]):
        close = difflib.get_close_matches(word.lower(), _KEYWORDS, n=1, cutoff=0.7)
        if close and word.lower() not in _KEYWORDS:
            return f'did you mean "{close[0]}" and not "{word}"?'
    return hint or "check what comes right before it: a comma or a word may be missing, or one too many"
