"""The notes of docs/design in the navigation, whatever there are of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Put every note behind the list of them."""
    docs = Path(config["docs_dir"])
    notes = sorted(each.relative_to(docs).as_posix() for each in (docs / "design").glob("*.md"))
    first = "design/README.md"
    config["nav"] = [
        {"Design": [first, *(each for each in notes if each != first)]} if each == {"Design": first} else each
        for each in config["nav"]
    ]
    return config
