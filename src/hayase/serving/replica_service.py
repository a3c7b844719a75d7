"""The reads of a replica: each answer comes from exactly the versions that it is labelled with.

So it shows no state that no manifest describes, also if several tables and queries are asked, one after the other.
"""

from __future__ import annotations

from collections.abc import Callable

from hayase.core.data_classes import dataclass
from hayase.core.errors import UnknownName
from hayase.engine.definition.definitions import Definition
from hayase.engine.home import Home
from hayase.engine.logs import declared_streams
from hayase.engine.results.committed_results import committed_index
from hayase.engine.results.lifetime_samples import Timeline
from hayase.engine.results.live_results import Live
from hayase.engine.results.query_results import Results
from hayase.relations.versions import Versions
from hayase.serving.problems import RETRY_AFTER, Problem
from hayase.serving.service import CommittedStatus, Service, Status
from hayase.streams import Index, StreamLog
from hayase.tables.table import Table

__all__ = ["ReplicaService"]


@dataclass(frozen=True, slots=True)
class _Followed(Results):
    """Results that end where `end` says, although their log may go on."""

    end: Callable[[], Index]

    def _index(self) -> Index:
        return self.end()


@dataclass(frozen=True, slots=True)
class _FollowedLive(_Followed, Live):
    """Followed results in pages and from cursors."""


@dataclass(frozen=True, slots=True)
class _FollowedTimeline(_Followed, Timeline):
    """Followed results as bars over event time."""


class ReplicaService(Service):
    """The reads of a replica: all from the versions of the status that an answer is labelled with."""

    is_read_only = True
    reads_at_once = True

    def __init__(self, home: Home, clock: Callable[[], int], status: Status):
        super().__init__(home, clock, None, status)

    def committed_status(self) -> CommittedStatus:
        """Return the status if there are data to serve, else raise a problem with the reason."""
        now = self.status.now
        if not now.is_open:
            raise Problem(
                503, f"there is nothing to serve: {now.reason or 'the home was not looked at yet'}; try again in a moment",
                {"Retry-After": str(RETRY_AFTER), "Hayase-State": now.state},
            )  # fmt: skip
        return now

    def definition(self, now: CommittedStatus) -> Definition:
        """Return the definition that runs."""
        return _versions(now).definition

    def table_names(self, now: CommittedStatus) -> list[str]:
        """Return the names of the tables."""
        return list(_versions(now).tables)

    def table(self, name: str, now: CommittedStatus) -> Table:
        """Return a table at the versions of the status."""
        tables = _versions(now).tables
        if name not in tables:
            raise UnknownName("table", name, tables)
        return tables[name]

    def readable(self, name: str, now: CommittedStatus) -> tuple[StreamLog, Index | None]:
        """Return the log of a stream and its index: of a declared one as it is, of the output of a stage as it was committed."""
        log, index = super().readable(name, now)
        return (log, self._end(log, now)) if name in _versions(now).stages else (log, index)

    def query(self, name: str, now: CommittedStatus) -> Live:
        """Return the results of a query at the versions of the status."""
        log = self.results_log(name, now)
        return _FollowedLive(log, lambda: self._end(log, now))

    def growing(self, name: str, now: CommittedStatus) -> Live:
        """Return the results of a query as they grow with the status."""
        log = self.results_log(name, now)
        return _FollowedLive(log, lambda: self._end(log, self.committed_status()))

    def timeline(self, name: str, now: CommittedStatus) -> Timeline:
        """Return the results of a query at the versions of the status, as a timeline draws them."""
        log = self.results_log(name, now)
        return _FollowedTimeline(log, lambda: self._end(log, now))

    def _end(self, log: StreamLog, now: CommittedStatus) -> Index:
        name, versions = log.declaration.name, _versions(now)
        if name not in versions.stages:
            raise UnknownName("query", name, declared_streams(versions.definition))
        return committed_index(log, versions.stages[name], versions.manifest_of(name))


def _versions(now: CommittedStatus) -> Versions:
    assert now.versions is not None, "a replica serves data only with versions"
    return now.versions
