"""SVG for notebooks: elements as text, escaped, without scripts, and readable on light and dark pages alike.

Text and lines have the colour of the surrounding text (`currentColor`), and areas are translucent.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

__all__ = ["COLOURS", "element", "picture", "shortened"]

COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d")
"""Colours that can be told apart on white and on black."""


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """Return an element; its `content` is markup, and underscores in attribute names stand for hyphens.

    >>> element("text", "a", x=1, font_size="10<")
    '<text x="1" font-size="10&lt;">a</text>'
    """
    given = "".join(f' {key.replace("_", "-")}="{escape(_value(value))}"' for key, value in attributes.items())
    return f"<{name}{given}>{content}</{name}>" if content else f"<{name}{given}/>"


def picture(width: float, height: float, parts: Iterable[str], title: str) -> str:
    """Return a whole SVG of that size, with a title for screen readers."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" width="{_value(width)}" '
        f'height="{_value(height)}" viewBox="0 0 {_value(width)} {_value(height)}" '
        'style="max-width: 100%; height: auto; font: 11px sans-serif; fill: currentColor">'
        f"{''.join(parts)}</svg>"
    )


def shortened(text: str, most: int) -> str:
    """Return a text as markup, with an ellipsis if it is longer than `most` characters.

    >>> shortened("a < b", 4), shortened("a < b", 10)
    ('a &lt;…', 'a &lt; b')
    """
    return escape(text if len(text) <= most else f"{text[: most - 1].rstrip()}…")


def _value(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
