"""Where the writes of an output end, kept in the home before each write, for targets that only store its number."""

from __future__ import annotations

import orjson

from hayase.connectors.sink import Changes, SinkSetting
from hayase.engine.home import writing
from hayase.engine.results.output_positions import NOTES, NOTES_REMEDY
from hayase.streams import durable
from hayase.streams.sealed import read_sealed, seal

__all__ = ["SinkNotes"]


class SinkNotes:
    """The cursors behind the last write that is known to be complete and the one that follows it."""

    def __init__(self, setting: SinkSetting):
        self._output = setting.output
        self._path = None if setting.keep is None else setting.keep / "notes.json"

    def cursor(self, number: int) -> str | None:
        """Return the cursor behind a write; None if it is not noted."""
        if self._path is None:
            return None
        try:
            notes: dict[str, str] = orjson.loads(read_sealed(self._path, NOTES, NOTES_REMEDY))
        except FileNotFoundError:
            return None
        return notes.get(str(number))

    def keep(self, changes: Changes) -> None:
        """Note, durably, where a write ends that is about to begin, and the one before it."""
        if self._path is None:
            return
        positions = [changes.until] if changes.since is None else [changes.since, changes.until]
        notes = {str(position.number): position.cursor for position in positions}
        with writing(f"the notes of output {self._output}"):
            durable.make_directory(self._path.parent)
            durable.write_atomic(self._path, seal(NOTES, orjson.dumps(notes)))
