"""A table of PostgreSQL as the source of a stream: by logical replication, or by polling a column that grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hayase.connectors.inlet import Inlet
from hayase.connectors.postgres_poll import PollSource
from hayase.connectors.postgres_replication import ReplicationSource
from hayase.connectors.source import Portion, Source, SourceSetting

__all__ = ["PostgresSource"]


class PostgresSource(Source):
    """A table, read in the mode that its options name."""

    def __init__(self, setting: SourceSetting):
        self._source = PollSource(setting) if setting.options["mode"] == "poll" else ReplicationSource(setting)
        self.identity = self._source.identity

    def prepare(self, inlet: Inlet) -> None:
        self._source.prepare(inlet)

    def starts(self) -> Mapping[str, int]:
        return self._source.starts()

    def ends(self) -> Mapping[str, int]:
        return self._source.ends()

    def read(self, positions: Mapping[str, int], patience: float) -> Sequence[Portion]:
        return self._source.read(positions, patience)

    def confirm(self, positions: Mapping[str, int]) -> None:
        self._source.confirm(positions)

    def close(self) -> None:
        self._source.close()
