"""Figures of a pipeline as relations: its stages, streams, lanes and relations, at one set of manifests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from hayase.core.declarations import StreamDeclaration
from hayase.core.times import BEGINNING, END
from hayase.engine.batch.report import Figures as StageTotals
from hayase.engine.logs import Logs
from hayase.relations.relation import Figures, Records, Relation
from hayase.relations.versions import Versions

__all__ = ["NAMES", "relation"]

_TIME = pa.timestamp("us", "UTC")
_TEXT, _COUNT, _SECONDS, _TEXTS = pa.string(), pa.int64(), pa.float64(), pa.list_(pa.string())
_COUNTED = ("read", "processed", "dead", "repeated", "waiting", "written")
_STAGES = pa.schema({
    "stage": _TEXT, "lane": _TEXT, "kind": _TEXT, "inputs": _TEXTS, **dict.fromkeys(_COUNTED, _COUNT), "lag": _COUNT,
    "seconds": _SECONDS, "clock": _TIME,
})  # fmt: skip
_STREAMS = pa.schema({
    "stream": _TEXT, "kind": _TEXT, "first_offset": _COUNT, "next_offset": _COUNT, "records": _COUNT, "clock": _TIME,
    "is_finished": pa.bool_(),
})  # fmt: skip
_LANES = pa.schema({
    "lane": _TEXT, "version": _COUNT, "definition": _COUNT, "stages": _COUNT, "committed_at": _TIME, "seconds": _SECONDS,
})  # fmt: skip
_RELATIONS = pa.schema({"schema": _TEXT, "relation": _TEXT, "kind": _TEXT, "final": _TIME, "columns": _TEXTS})


NAMES = ("stages", "streams", "lanes", "relations")
_Others = Mapping[tuple[str, str], Relation]


def relation(name: str, versions: Versions, others: Callable[[], _Others]) -> Figures:
    """Return the relation of figures with one of `NAMES`; `others` returns the relations that it lists."""
    if name == "stages":
        return Figures(name, _STAGES, lambda: list(_stages(versions)))
    if name == "streams":
        return Figures(name, _STREAMS, lambda: list(_streams(versions, others())))
    if name == "lanes":
        return Figures(name, _LANES, lambda: list(_lanes(versions)))
    return Figures(name, _RELATIONS, lambda: list(_relations(others())))


def _stages(versions: Versions) -> Iterator[dict[str, Any]]:
    logs = Logs(versions.home, versions.definition)
    for name, record in versions.stages.items():
        manifest = versions.manifest_of(name)
        totals = manifest.totals.get(name, StageTotals())
        positions = manifest.offset.positions.get(name, {})
        ends = logs.ends(positions)
        yield {
            "stage": name,
            "lane": record.lane,
            "kind": "stream" if isinstance(record.output, StreamDeclaration) else "table",
            "inputs": list(record.inputs),
            **{each: getattr(totals, each) for each in _COUNTED},
            "lag": sum(max(0, ends.get(stream, 0) - position.at) for stream, position in positions.items()),
            "seconds": totals.seconds,
            "clock": _time(versions.clock(name)),
        }


def _streams(versions: Versions, others: _Others) -> Iterator[dict[str, Any]]:
    for (schema, _), relation in others.items():
        if isinstance(relation, Records) and schema == "public":
            index = relation.index
            yield {
                "stream": relation.name,
                "kind": "output" if relation.name in versions.stages else relation.kind,
                "first_offset": index.start,
                "next_offset": index.next,
                "records": index.next - index.start,
                "clock": _time(relation.final()),
                "is_finished": index.finished,
            }


def _lanes(versions: Versions) -> Iterator[dict[str, Any]]:
    for lane, manifest in versions.manifests.items():
        yield {
            "lane": lane,
            "version": manifest.version,
            "definition": manifest.offset.definition,
            "stages": sum(record.lane == lane for record in versions.stages.values()),
            "committed_at": _time(manifest.committed_at) if manifest.version else None,
            "seconds": manifest.seconds,
        }


def _relations(others: _Others) -> Iterator[dict[str, Any]]:
    for (schema, _), relation in others.items():
        final = _time(relation.final())
        row = {"schema": schema, "relation": relation.name, "kind": relation.kind, "final": final}
        yield row | {"columns": relation.schema.names}


def _time(microseconds: int | None) -> int | None:
    """Return a time that an Arrow column of timestamps holds; None for one before or after every calendar."""
    return microseconds if microseconds is not None and BEGINNING < microseconds < END else None
