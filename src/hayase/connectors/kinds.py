"""Which class implements which kind of source and sink. A client is imported only when a pipeline uses its kind."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from typing import Any

from hayase.connectors.sink import Sink, SinkSetting
from hayase.connectors.source import Source, SourceSetting
from hayase.core.declarations import OutputDeclaration, PipelineDeclaration, SourceDeclaration
from hayase.core.errors import DeclarationError, EnvironmentUnfit

__all__ = ["check_classes", "open_sink", "open_source", "sink_class", "source_class"]

_SOURCES: Mapping[str, str] = {
    "files": "hayase.connectors.file_source:FileSource",
    "kafka": "hayase.connectors.kafka_source:KafkaSource",
    "postgres": "hayase.connectors.postgres_source:PostgresSource",
    "spark": "hayase.connectors.spark_source:SparkSource",
}
_SINKS: Mapping[str, str] = {
    "delta": "hayase.connectors.delta_sink:DeltaSink",
    "iceberg": "hayase.connectors.iceberg_sink:IcebergSink",
    "parquet": "hayase.connectors.parquet_sink:ParquetSink",
    "webhook": "hayase.connectors.webhook_sink:WebhookSink",
    "kafka": "hayase.connectors.kafka_sink:KafkaSink",
    "postgres": "hayase.connectors.postgres_sink:PostgresSink",
}
_EXTRAS: Mapping[str, str] = {"delta": "lake", "iceberg": "lake", "kafka": "kafka", "postgres": "postgres"}
"""The extra of the package that has the client of a kind."""


def source_class(source: SourceDeclaration) -> type[Source]:
    """Return the class of a source; EnvironmentUnfit if its client is not installed."""
    return _loaded(source, _SOURCES, Source)


def sink_class(output: OutputDeclaration) -> type[Sink]:
    """Return the class of an output's sink; EnvironmentUnfit if its client is not installed."""
    return _loaded(output, _SINKS, Sink)


def check_classes(declaration: PipelineDeclaration) -> None:
    """Import the classes of the user that are sources and sinks; DeclarationError if one cannot be, or is something else."""
    for source in declaration.sources:
        if source.kind == "python":
            source_class(source)
    for output in declaration.outputs:
        if output.kind == "python":
            sink_class(output)


def open_source(source: SourceDeclaration, setting: SourceSetting) -> Source:
    """Return a new source."""
    make: Any = source_class(source)
    made: Source = make(setting)
    return made


def open_sink(output: OutputDeclaration, setting: SinkSetting) -> Sink:
    """Return a new sink."""
    make: Any = sink_class(output)
    made: Sink = make(setting)
    return made


def _loaded(declared: SourceDeclaration | OutputDeclaration, known: Mapping[str, str], base: type[Any]) -> Any:
    place = declared.values["class"] if declared.kind == "python" else known[declared.kind]
    module, _, name = place.partition(":")
    if declared.directory is not None and declared.directory not in sys.path:
        sys.path.append(declared.directory)
    try:
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        if declared.kind in _EXTRAS:
            extra = _EXTRAS[declared.kind]
            raise EnvironmentUnfit(
                f'"{declared.name}" needs a client for {declared.kind}: {error}',
                f'install it: pip install "hayase[{extra}]"',
            ) from error
        raise DeclarationError(f'"{place}" cannot be imported: {error}', "check the name, like module:Class") from error
    except AttributeError as error:
        raise DeclarationError(f'there is no "{name}" in {module}', "check the name, like module:Class") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise DeclarationError(
            f'"{place}" is not a {base.__name__.lower()}', f"derive it from hayase.connectors.{base.__name__}"
        )
    return found
