"""What is thrown away does not wait for the disk; all else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hayase.streams import durable


def test_only_what_is_thrown_away_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with durable.thrown_away():
        durable.write_atomic(tmp_path / "passing", b"1")
        durable.create_empty(tmp_path / "empty")
    assert synced == []
    assert (tmp_path / "passing").read_bytes() == b"1"
    durable.write_atomic(tmp_path / "lasting", b"2")
    assert len(synced) == 2  # the file and its directory


def test_an_error_brings_lasting_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with pytest.raises(KeyError), durable.thrown_away():
        raise KeyError
    durable.fsync_directory(tmp_path)
    assert len(synced) == 1
