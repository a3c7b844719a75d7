"""The examples in the docstrings of the modules that need a client, run."""

from __future__ import annotations

import doctest
import importlib

import pytest

from client_modules import MODULES, needs_client


@pytest.mark.parametrize("name", [name for name in MODULES if needs_client(name)])
def test_examples_of_modules_with_clients(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert found.failed == 0, f"{found.failed} of {found.attempted} examples of {name}"
