"""Linear Road, small: traffic in which all kinds of answers occur, and the answers of the pipeline beside those of the model."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import hayase as hy

EXAMPLE = Path(__file__).parents[1] / "examples" / "linear_road"
sys.path.insert(0, str(EXAMPLE))
import road_model  # noqa: E402  (they lie beside the example)
import traffic  # noqa: E402

__all__ = ["EXAMPLE", "answers", "due", "history", "linear_road", "records", "road_model", "small", "traffic"]

COLUMNS = {
    "toll_notifications": ("tolls", ("time", "vid", "lav", "toll")),
    "accident_notifications": ("accidents", ("time", "vid", "xway", "dir", "seg")),
    "balances": ("balances", ("time", "qid", "vid", "balance", "updated")),
    "expenditures": ("expenditures", ("time", "qid", "vid", "expenditure")),
}
"""By query: what the model calls its answers, and their columns."""


def small(expressways: int, seed: int) -> traffic.Traffic:
    """Short, full expressways with many accidents."""
    return traffic.Traffic(
        expressways,
        seed,
        segments=7,
        cars=650,
        entering=4,
        since=3 * 3600,
        room=120,
        accident_every=90,
        clearing=(130, 230),
    )


def records(of: traffic.Traffic, seconds: int) -> pa.Table:
    return pa.concat_tables(traffic.seconds(of, seconds))


def history(of: traffic.Traffic, given: pa.Table) -> pa.Table:
    """Return the tolls of the ten weeks before, of the vehicles that ask for them."""
    requests = given.filter(pc.equal(given.column("type"), 3))
    return traffic.history(pc.unique(requests.column("vid")).to_numpy(), of)


def linear_road(directory: Path, before: pa.Table) -> hy.Pipeline:
    """Return the pipeline of the example, with its home in a directory."""
    shutil.copy(EXAMPLE / "pipeline.yaml", directory)
    pipeline = hy.Pipeline.from_file(directory / "pipeline.yaml")
    pipeline.table("daily_tolls").load(before)
    return pipeline


def answers(pipeline: hy.Pipeline) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return what the pipeline answered, by query."""
    return {
        query: Counter(tuple(row[column] for column in columns) for row in pipeline.query(query).rows())
        for query, (_, columns) in COLUMNS.items()
    }


def due(model: road_model.LinearRoad) -> dict[str, Counter[tuple[Any, ...]]]:
    """Return what the model answers, by query."""
    return {query: Counter(getattr(model.answers, name)) for query, (name, _) in COLUMNS.items()}
