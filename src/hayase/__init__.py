"""Hayase: exact, live answers over data that never stops arriving, on Apache Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hayase.core.algebra import Aggregate
    from hayase.core.declarations import Retention
    from hayase.core.errors import DeclarationError, HayaseError
    from hayase.jobs import to
    from hayase.pipeline import Accepted, Pipeline, Results
    from hayase.tables import (
        Counter,
        DistinctCount,
        GSet,
        LWWSet,
        MapCounter,
        MapRegister,
        MapSet,
        MaxRegister,
        MinRegister,
        ORSet,
        Quantiles,
        Register,
        TwoPhaseSet,
    )
    from hayase.tables.table_results import TableResults
    from hayase.windows.shared import SharedWindows

__all__ = [
    "Accepted",
    "Aggregate",
    "Counter",
    "DeclarationError",
    "DistinctCount",
    "GSet",
    "HayaseError",
    "LWWSet",
    "MapCounter",
    "MapRegister",
    "MapSet",
    "MaxRegister",
    "MinRegister",
    "ORSet",
    "Pipeline",
    "Quantiles",
    "Register",
    "Results",
    "Retention",
    "SharedWindows",
    "TableResults",
    "TwoPhaseSet",
    "to",
]
__version__ = "0.1.0"

_HOMES = {
    "Accepted": "hayase.pipeline",
    "Aggregate": "hayase.core.algebra",
    "Counter": "hayase.tables",
    "DeclarationError": "hayase.core.errors",
    "DistinctCount": "hayase.tables",
    "GSet": "hayase.tables",
    "HayaseError": "hayase.core.errors",
    "MapCounter": "hayase.tables",
    "MapRegister": "hayase.tables",
    "MapSet": "hayase.tables",
    "MaxRegister": "hayase.tables",
    "MinRegister": "hayase.tables",
    "LWWSet": "hayase.tables",
    "ORSet": "hayase.tables",
    "Pipeline": "hayase.pipeline",
    "Quantiles": "hayase.tables",
    "Register": "hayase.tables",
    "Results": "hayase.pipeline",
    "Retention": "hayase.core.declarations",
    "SharedWindows": "hayase.windows.shared",
    "TableResults": "hayase.tables.table_results",
    "TwoPhaseSet": "hayase.tables",
    "to": "hayase.jobs",
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
