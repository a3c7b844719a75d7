"""Declarations of sources and outputs: what a stream comes from, and where the results of a stage go.

Options are kept in the canonical plain form of a pipeline file. None of them is a secret: they say where a secret stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hayase.core.connector_fields import OUTPUTS, SOURCES
from hayase.core.data_classes import dataclass
from hayase.core.declaration_fields import FieldTable

__all__ = ["OutputDeclaration", "SourceDeclaration"]


@dataclass(frozen=True, slots=True)
class SourceDeclaration:
    """What a stream comes from: a kind, such as `kafka`, and its options. `directory` holds the module of a class of the user."""

    stream: str
    kind: str
    options: tuple[tuple[str, Any], ...] = ()
    directory: str | None = None

    @property
    def name(self) -> str:
        """The name of the source, which is that of its stream."""
        return self.stream

    @property
    def values(self) -> dict[str, Any]:
        """All options as values, defaults included."""
        return _values(SOURCES[self.kind], self.options)

    @property
    def target(self) -> str:
        """What it reads, in a few words."""
        return _TARGETS[self.kind].format_map(self.values)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SourceDeclaration:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "options": _options(data["options"])})


@dataclass(frozen=True, slots=True)
class OutputDeclaration:
    """Where the results of a stream, query, job or operation go: a kind, such as `kafka`, and its options."""

    name: str
    reads: str
    kind: str
    options: tuple[tuple[str, Any], ...] = ()
    directory: str | None = None

    @property
    def values(self) -> dict[str, Any]:
        """All options as values, defaults included."""
        return _values(OUTPUTS[self.kind], self.options)

    @property
    def target(self) -> str:
        """What it writes to, in a few words."""
        return _TARGETS[self.kind].format_map(self.values)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> OutputDeclaration:
        """The inverse of `dataclasses.asdict`."""
        return cls(**{**data, "options": _options(data["options"])})


_TARGETS = {
    "delta": "{path}",
    "files": "{path}",
    "iceberg": "table {table}",
    "kafka": "topic {topic} at {brokers}",
    "parquet": "{path}",
    "postgres": "table {table}",
    "python": "{class}",
    "spark": "format {format}",
    "webhook": "{url}",
}


def _values(fields: FieldTable, options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    given = {name: fields[name].kind.read(value) for name, value in options}
    return {field.name: given.get(field.name, field.value) for field in fields}


def _options(pairs: Any) -> tuple[tuple[str, Any], ...]:
    return tuple((name, _hashable(value)) for name, value in pairs)


def _hashable(value: Any) -> Any:
    """Lists as tuples, so that declarations can be keys; mappings as pairs."""
    if isinstance(value, list | tuple):
        return tuple(_hashable(one) for one in value)
    return value
