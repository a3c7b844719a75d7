"""Sources and sinks: where records come from and where results go, declared in a pipeline, each record exactly once."""

from hayase.connectors.sink import Changes, Position, Sink, SinkSetting
from hayase.connectors.source import Portion, Source, SourceSetting

__all__ = ["Changes", "Portion", "Position", "Sink", "SinkSetting", "Source", "SourceSetting"]
