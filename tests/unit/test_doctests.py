"""The examples in the docstrings of all modules, run."""

from __future__ import annotations

import doctest
import importlib

import pytest

from client_modules import MODULES, needs_client

WITHOUT_CLIENTS = [name for name in MODULES if not needs_client(name)]
"""Those that need one are in `tests/services/test_client_modules.py`."""


@pytest.mark.parametrize("name", WITHOUT_CLIENTS)
def test_examples_in_docstrings(name: str, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(str(tmp_path))
    module = importlib.import_module(name)
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.failed == 0, f"{found.failed} of {found.attempted} examples of {name}"


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = [test for name in WITHOUT_CLIENTS for test in finder.find(importlib.import_module(name)) if test.examples]
    assert len(found) > 50
