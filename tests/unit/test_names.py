"""Names: the glossary's modules exist, modules are named by nouns, and tests use public names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
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


# ---------------------------------------------------------------------------------------------------- private names

TESTS = ROOT / "tests"
NOT_PRIVATE = {"_asdict", "_exit", "_fields", "_make", "_replace", "_repr_html_"}
"""Public methods of named tuples, of `os` and of notebooks that begin with an underscore."""
PRIVATE = re.compile(r"(?:^|\.)(_[a-zA-Z]\w*)$")
EXCEPTIONS = {
    # what operators keep is bounded, and nothing public says how much they keep
    "laws/test_folds_laws.py": {"_form", "_pool"},
    "unit/test_aggregates.py": {"_groups", "_pairs", "_texts"},
    "unit/test_governor.py": {"_samples"},
    "unit/test_joins.py": {"_index", "_keys", "_pool"},
    "unit/test_multisets.py": {"_values"},
    "unit/test_negative_joins.py": {"_index", "_keys"},
    "unit/test_window_leaves.py": {"_index"},
    # a fault, a clock or a state that nothing public can bring about
    "command_line.py": {"_verbose"},  # the command line starts with `-v` unset, as a new process does
    "laws/test_jq_laws.py": {"_process"},  # two ways to evaluate share one process
    "laws/test_table_store_laws.py": {"_columns"},
    "unit/test_condition.py": {"_clock", "_clocks"},
    "unit/test_replaying.py": {"_definition"},
    "unit/test_table_damage.py": {"_database"},
}
"""Private names that tests use, by file. No name is added: give the module a public function, or test what it does."""


def private_names(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module imports, reads from an object other than `self`, or replaces."""
    for node in ast.walk(tree):
        names: list[object] = []
        if isinstance(node, ast.Attribute) and not (
            isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
        ):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("setattr", "delattr", "object", "patch"):
            names = [argument.value for argument in node.args[:2] if isinstance(argument, ast.Constant)]
        yield from (match[1] for name in names if isinstance(name, str) and (match := PRIVATE.search(name)))


def test_tests_use_public_names() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): names
        for path in sorted(TESTS.rglob("*.py"))
        if (names := {*private_names(ast.parse(path.read_text(encoding="utf-8")))} - NOT_PRIVATE)
    }
    assert found == EXCEPTIONS


def test_no_test_replaces_the_clock_of_other_threads() -> None:
    """A function of `time` is replaced for one module, by `library_stand_ins.replace_in`."""
    replaced = re.compile(r"setattr\((?:time|[\w.]+\.time),|setattr\(\"(?:[\w.]+\.)?time\.")
    assert [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        if replaced.search(path.read_text(encoding="utf-8"))
    ] == []
