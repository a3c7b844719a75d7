"""Every name in the walk through the code and on the page beside it is there."""

from __future__ import annotations

import re
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = "".join((ROOT / "docs" / "design" / name).read_text(encoding="utf-8") for name in ("walk.md", "side-paths.md"))
PACKAGES = "|".join(path.stem for path in (ROOT / "src" / "hayase").iterdir() if path.stem.isidentifier())
NAMES = sorted(set(re.findall(rf"`((?:{PACKAGES})\.[\w.]+)`", PAGES)))


def test_the_walk_names_functions() -> None:
    assert len(NAMES) > 50


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_there(name: str) -> None:
    parts = ["hayase", *name.split(".")]
    depth = 2
    while depth < len(parts) and hasattr(import_module(".".join(parts[:depth])), "__path__"):
        depth += 1
    assert find_spec(".".join(parts[:depth])), f"there is no module {'.'.join(parts[:depth])}"
    reduce(getattr, parts[depth:], import_module(".".join(parts[:depth])))
