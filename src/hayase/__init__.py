"""Hayase: exact, live answers over data that never stops arriving, on Apache Spark."""

import sys
from typing import TYPE_CHECKING

if sys.version_info < (3, 11):  # noqa: UP036 - a checkout can be started by any Python
    raise ImportError(f"found Python {sys.version.split()[0]}; Hayase needs Python 3.11 or newer")

if TYPE_CHECKING:
    from hayase.core.algebra import Aggregate, user_aggregate
    from hayase.core.declarations import Retention
    from hayase.core.endpoints import Delta, Files, Iceberg, Kafka, Parquet, Postgres, PythonClass, Spark, Webhook
    from hayase.core.errors import (
        DamagedSegment,
        DamagedState,
        DeclarationError,
        EndpointError,
        EnvironmentUnfit,
        FormatMismatch,
        HayaseError,
        HomeInUse,
        LaneFailed,
        Mistake,
        OffsetGone,
        SchemaMismatch,
        StageChanged,
        StreamError,
        StreamFinished,
        UnknownName,
    )
    from hayase.core.laws import check_laws
    from hayase.engine.dead_letters.settlement import Settlement
    from hayase.jobs import to
    from hayase.jobs.job_builder import Job
    from hayase.pipeline import (
        Accepted,
        Definition,
        FunctionOptions,
        Manifest,
        OperationOptions,
        Pipeline,
        Results,
        open,
    )
    from hayase.pipeline_run import BackgroundRun, Progress
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
    from hayase.windows.shared import Answers, SharedWindows, WindowAnswers

__all__ = [
    "Accepted",
    "Aggregate",
    "Answers",
    "BackgroundRun",
    "Counter",
    "DamagedSegment",
    "DamagedState",
    "DeclarationError",
    "Definition",
    "Delta",
    "DistinctCount",
    "EndpointError",
    "EnvironmentUnfit",
    "Files",
    "FormatMismatch",
    "FunctionOptions",
    "GSet",
    "HayaseError",
    "HomeInUse",
    "Iceberg",
    "Job",
    "Kafka",
    "LWWSet",
    "LaneFailed",
    "Manifest",
    "MapCounter",
    "MapRegister",
    "MapSet",
    "MaxRegister",
    "MinRegister",
    "Mistake",
    "ORSet",
    "OffsetGone",
    "OperationOptions",
    "Parquet",
    "Pipeline",
    "Postgres",
    "Progress",
    "PythonClass",
    "Quantiles",
    "Register",
    "Results",
    "Retention",
    "SchemaMismatch",
    "Settlement",
    "SharedWindows",
    "Spark",
    "StageChanged",
    "StreamError",
    "StreamFinished",
    "TableResults",
    "TwoPhaseSet",
    "UnknownName",
    "Webhook",
    "WindowAnswers",
    "check_laws",
    "open",
    "to",
    "user_aggregate",
]
__version__ = "0.1.0"

_MODULES = {
    "hayase.core.algebra": "Aggregate user_aggregate",
    "hayase.core.declarations": "Retention",
    "hayase.core.endpoints": "Delta Files Iceberg Kafka Parquet Postgres PythonClass Spark Webhook",
    "hayase.core.errors": "DamagedSegment DamagedState DeclarationError EndpointError EnvironmentUnfit FormatMismatch "
    "HayaseError HomeInUse LaneFailed Mistake OffsetGone SchemaMismatch StageChanged StreamError StreamFinished UnknownName",
    "hayase.core.laws": "check_laws",
    "hayase.engine.dead_letters.settlement": "Settlement",
    "hayase.jobs": "to",
    "hayase.jobs.job_builder": "Job",
    "hayase.pipeline": "Accepted Definition FunctionOptions Manifest OperationOptions Pipeline Results open",
    "hayase.pipeline_run": "BackgroundRun Progress",
    "hayase.tables": "Counter DistinctCount GSet LWWSet MapCounter MapRegister MapSet MaxRegister MinRegister ORSet "
    "Quantiles Register TwoPhaseSet",
    "hayase.tables.table_results": "TableResults",
    "hayase.windows.shared": "Answers SharedWindows WindowAnswers",
}
"""The modules of the public names."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name on first use: the command line and the workers need few of them and must start quickly."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hayase' has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
