"""Sources and outputs in the graph of a pipeline: their figures, the figures of their edges, and their problems in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hayase.connectors.status import ConnectorStatus
from hayase.engine.definition.pipeline_graph import Edge
from hayase.serving.stage_notices import Notice

__all__ = ["connector_edge", "connector_figures", "connector_notices", "connectors_by_node"]

SHOWN = 400
"""Characters of an error that a notice shows."""
_SHOWN_FIELDS = ("role", "name", "kind", "target", "state", "attempts", "failures", "last_error")


def connectors_by_node(statuses: Iterable[ConnectorStatus]) -> dict[str, ConnectorStatus]:
    """Return the status of each source and output by the name of its node."""
    return {_node(status): status for status in statuses}


def _node(status: ConnectorStatus) -> str:
    return f"{status.role.removesuffix('s')}:{status.name}"


def connector_figures(status: ConnectorStatus) -> dict[str, Any]:
    """Return what a node shows of a source or an output, as JSON data; its positions, which may be many, are left out."""
    return {name: getattr(status, name) for name in _SHOWN_FIELDS}


def connector_edge(edge: Edge, connectors: Mapping[str, ConnectorStatus]) -> dict[str, Any] | None:
    """Return the edge of a source or an output with its figures, as JSON data; None if it is another edge."""
    status = connectors.get(edge.source) or connectors.get(edge.target)
    if status is None:
        return None
    figures = {"rate": status.rate, "lag": status.lag, "state": status.state, "attempts": status.attempts}
    return {**asdict(edge), **figures}


def connector_notices(statuses: Sequence[ConnectorStatus], now: int) -> Iterator[Notice]:
    """Yield the problems of sources and outputs, those that fail first. `now` is the wall clock in microseconds."""
    for status in statuses:
        if status.state == "retrying":
            yield Notice("error", _node(status), _failure(status, now))
    for status in statuses:
        if status.state == "paused":
            waiting = f", with {_records(status, status.lag)} waiting when it stopped" if status.lag else ""
            yield Notice("warning", _node(status), f"{_subject(status)} is paused{waiting}")


def _failure(status: ConnectorStatus, now: int) -> str:
    often = "" if status.attempts < 2 else f" {status.attempts:,} times"
    seconds = 0 if status.again is None else _coarse((status.again - now) / 1e6)
    again = f"is tried again in {seconds} s" if seconds > 0 else "is being tried again"
    error = " ".join((status.error or "no reason is known").split())
    return f"{_subject(status)} failed{often} and {again}: {error[:SHOWN]}{'…' if len(error) > SHOWN else ''}"


def _subject(status: ConnectorStatus) -> str:
    return f'the source of "{status.name}"' if status.role == "sources" else f'output "{status.name}"'


def _records(status: ConnectorStatus, count: int) -> str:
    unit = "record" if status.role == "sources" else "change"
    return f"{count:,} {unit}{'' if count == 1 else 's'}"


def _coarse(seconds: float) -> int:
    """Round a time up, to whole seconds or to five, so that waiting for a long time does not change the figures every second.

    >>> [_coarse(seconds) for seconds in (-1, 0.2, 7.5, 11, 30)]
    [0, 1, 8, 15, 30]
    """
    step = 1 if seconds <= 10 else 5
    return max(0, int(-(-seconds // step)) * step)
