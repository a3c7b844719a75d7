"""Observes a pipeline that runs in another process, from the files of its home: no lock is taken and nothing is written.

It works whether or not the pipeline runs. Manifests say what is committed, logs how much waits, and the lock who runs it.
"""

from __future__ import annotations

from collections.abc import Mapping

from hayase.core.data_classes import dataclass
from hayase.engine.batch.lane_governor import GovernorStatus, governor_statuses
from hayase.engine.commit.ledger import progress
from hayase.engine.commit.manifests import Manifest
from hayase.engine.definition.definitions import definition_of
from hayase.engine.home import Holder, Home
from hayase.engine.logs import Logs

__all__ = ["Observation", "input_ends", "observe"]


@dataclass(frozen=True, slots=True)
class Observation:
    """The state of a pipeline at one moment. `holder` is None if it does not run; then there are no governors either."""

    holder: Holder | None
    manifest: Manifest
    ends: Mapping[str, int]
    governors: tuple[GovernorStatus, ...] = ()


def observe(home: Home) -> Observation:
    """Return what the files of a home say now."""
    holder = home.holder()
    manifest = progress(home)
    governors = () if holder is None else governor_statuses(home)
    return Observation(holder, manifest, input_ends(home, manifest), governors)


def input_ends(home: Home, manifest: Manifest) -> dict[str, int]:
    """Return the ends of the streams that stages read, by the running definition: streams of a newer one may not exist yet."""
    offset = manifest.offset
    if not offset.definition:
        return {}
    logs = Logs(home, definition_of(home, offset.definition))
    return logs.ends({stream for inputs in offset.positions.values() for stream in inputs})
