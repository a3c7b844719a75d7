"""Examples in docstrings, shown as code: Markdown would take `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts a fence around every example."""

    def on_object(self, *, obj: griffe.Object, **more: Any) -> None:
        """Called for each module, class and function."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = _EXAMPLE.sub(lambda found: f"\n```pycon\n{found[0]}\n```\n", obj.docstring.value)
