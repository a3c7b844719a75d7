"""Helpers for declarations as plain data: one name or a list of names, and the mistakes of an error."""

from __future__ import annotations

from collections.abc import Sequence

from hayase.core.errors import DeclarationError, HayaseError, Mistake

__all__ = ["mistakes_of", "names", "one_or_list"]


def names(value: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names in a value that is one name or a sequence of names."""
    return (value,) if isinstance(value, str) else tuple(value)


def one_or_list(value: Sequence[str]) -> str | list[str]:
    """Return a single name as text, otherwise a list; the inverse of `names`.

    >>> one_or_list(names("orders")), one_or_list(names(["orders", "returns"]))
    ('orders', ['orders', 'returns'])
    """
    return value[0] if len(value) == 1 else list(value)


def mistakes_of(error: HayaseError) -> Sequence[Mistake]:
    """Return the mistakes that an error carries; its text if it carries none."""
    return error.mistakes if isinstance(error, DeclarationError) else (Mistake(str(error)),)
