"""Any streaming source of Spark as the records of a stream: a batch is one append.

There is one partition; its position is the number of the next batch. The identity has the id of Spark's checkpoint, which is in
the home, in `sources/STREAM/spark`, beside the log of the JVM. Spark goes on to the next batch when the last one is durable in the
stream, and repeats a batch that was interrupted; one that the stream has is left out.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from hayase.connectors.source import Portion, Source, SourceSetting
from hayase.core.errors import EndpointError
from hayase.engine.spark.foreign_batches import ForeignBatches, open_frame
from hayase.streams import durable

__all__ = ["SparkSource"]

PARTITION = "batches"


class SparkSource(Source):
    """A source of Spark, in a session of its own."""

    def __init__(self, setting: SourceSetting):
        self._setting, self._options = setting, setting.options
        self.identity = f"spark/{self._options['format']}"
        self._batches: ForeignBatches | None = None
        self._given: int | None = None
        self._at = 0

    def starts(self) -> Mapping[str, int]:
        self.identity = f"spark/{self._started().identity}"
        return {PARTITION: 0}

    def ends(self) -> Mapping[str, int]:
        if self._setting.keep is None:  # only to see whether it can be read
            session, _ = self._opened()
            session.close()
        return {PARTITION: self._at}

    def has_reached(self, positions: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        return self._batches is not None and self._given is None and self._batches.is_idle

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        batches, self._at = self._started(), positions[PARTITION]
        if self._given is not None and self._given < self._at:
            batches.release(self._given)
            self._given = None
        batch = batches.next(patience)
        if batch is None:
            return []
        number, table = batch
        if number < self._at:
            batches.release(number)
            return []
        self._given = number
        return [Portion(PARTITION, table, number + 1)]

    def close(self) -> None:
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    def _started(self) -> ForeignBatches:
        if self._batches is None:
            if self._setting.keep is None:
                raise EndpointError("a source of Spark needs a home to read")
            checkpoint = self._setting.keep / "spark"
            durable.make_directory(checkpoint)
            session, frame = self._opened()
            self._batches = ForeignBatches(session, frame, checkpoint.absolute())
        return self._batches

    def _opened(self) -> tuple[Any, Any]:
        options = {name: str(value) for name, value in dict(self._options["options"]).items()}
        for name, variable in dict(self._options["options_env"]).items():
            if variable not in os.environ:
                raise EndpointError(f"options_env names the variable {variable}, which is not set", "set it")
            options[name] = os.environ[variable]
        settings = {name: str(value) for name, value in dict(self._options["settings"]).items()}
        keep = self._setting.keep
        log = None if keep is None else keep / "spark.log"
        return open_frame(self._options["format"], options, self._options["schema"], settings, log)
