"""Names: the glossary's modules exist, and modules are named by nouns."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SOURCE = ROOT / "src" / "hayase"
GLOSSARY = (ROOT / "docs" / "design" / "glossary.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in GLOSSARY.splitlines() if line.startswith("| ")
]
TERMS = [row for row in ROWS if row[0] != "term"]
ESTABLISHED = {"housekeeping", "scoring", "testing"}
"""Gerunds that people of the field use as nouns."""


@pytest.mark.parametrize("row", TERMS, ids=lambda row: row[0])
def test_the_module_of_a_term_exists(row: list[str]) -> None:
    modules = re.findall(r"`([\w/]+)`", row[3])
    assert modules, f"the glossary names no module for {row[0]}"
    for module in modules:
        assert (SOURCE / f"{module}.py").exists() or (SOURCE / module).is_dir(), f"there is no module {module}"


def test_terms_are_defined_once_in_a_sentence() -> None:
    names = [row[0] for row in TERMS]
    assert len(names) == len(set(names))
    assert [row[0] for row in TERMS if not row[1].endswith(".")] == []


def test_modules_are_nouns() -> None:
    gerunds = {path.stem for path in SOURCE.rglob("*.py") if path.stem.endswith("ing")}
    assert gerunds <= ESTABLISHED
