"""What jobs and operations have in common as plain data, the way a pipeline file says them."""

from __future__ import annotations

from collections.abc import Sequence

from hayase.core.errors import DeclarationError, HayaseError, Mistake

__all__ = ["mistakes_of", "names", "one_or_list"]


def names(given: str | Sequence[str]) -> tuple[str, ...]:
    """One name or several."""
    return (given,) if isinstance(given, str) else tuple(given)


def one_or_list(given: Sequence[str]) -> str | list[str]:
    """What `names` takes; one name is a text.

    >>> one_or_list(names("orders")), one_or_list(names(["orders", "returns"]))
    ('orders', ['orders', 'returns'])
    """
    return given[0] if len(given) == 1 else list(given)


def mistakes_of(error: HayaseError) -> Sequence[Mistake]:
    """All that an error says is wrong."""
    return error.mistakes if isinstance(error, DeclarationError) else (Mistake(str(error)),)
