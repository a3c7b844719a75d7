"""Hayase: exact, live answers over data that never stops arriving, on Apache Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hayase.core.algebra import Aggregate
    from hayase.core.declarations import Retention
    from hayase.core.errors import DeclarationError, HayaseError
    from hayase.pipeline import Accepted, Pipeline, Results
    from hayase.windows.shared import SharedWindows

__all__ = [
    "Accepted",
    "Aggregate",
    "DeclarationError",
    "HayaseError",
    "Pipeline",
    "Results",
    "Retention",
    "SharedWindows",
]
__version__ = "0.1.0"

_HOMES = {
    "Accepted": "hayase.pipeline",
    "Aggregate": "hayase.core.algebra",
    "DeclarationError": "hayase.core.errors",
    "HayaseError": "hayase.core.errors",
    "Pipeline": "hayase.pipeline",
    "Results": "hayase.pipeline",
    "Retention": "hayase.core.declarations",
    "SharedWindows": "hayase.windows.shared",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first asked for: the command line and the workers need few of them, and soon."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hayase' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
