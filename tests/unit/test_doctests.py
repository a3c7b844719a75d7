"""The examples in the docstrings of all modules, run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hayase

MODULES = sorted(
    each.name
    for each in pkgutil.walk_packages(hayase.__path__, "hayase.")
    if not each.name.endswith(("_loops", "__main__", ".daemon"))
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0, f"{found.failed} of {found.attempted} examples of {name}"


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) > 50
