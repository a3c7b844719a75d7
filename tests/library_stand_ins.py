"""Library modules, such as `time`, that one module of the package sees with some of their functions replaced.

Replacing `time.sleep` itself would reach every thread of the test's process, and there are others: with a JVM, Py4J sleeps for
a second again and again in a thread of its own.
"""

from __future__ import annotations

from types import ModuleType, SimpleNamespace

import pytest

__all__ = ["replace_in"]


def replace_in(monkeypatch: pytest.MonkeyPatch, module: ModuleType, library: str, **functions: object) -> None:
    """Let `module` see the library module that it imports with these functions; everybody else sees it as it is."""
    original = vars(getattr(module, library))
    missing = functions.keys() - original.keys()
    assert not missing, f"{library} has no {', '.join(sorted(missing))}"
    monkeypatch.setattr(module, library, SimpleNamespace(**{**original, **functions}))
