"""What is thrown away does not wait for the disk; all else does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hayase.streams import durable
from library_stand_ins import replace_in


def test_only_what_is_thrown_away_is_not_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    replace_in(monkeypatch, durable, "os", fsync=synced.append)
    with durable.without_syncs():
        durable.write_atomic(tmp_path / "passing", b"1")
        durable.create_empty(tmp_path / "empty")
    assert synced == []
    assert (tmp_path / "passing").read_bytes() == b"1"
    durable.write_atomic(tmp_path / "lasting", b"2")
    assert len(synced) == 2  # the file and its directory


def test_an_error_brings_lasting_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    replace_in(monkeypatch, durable, "os", fsync=synced.append)
    with pytest.raises(KeyError), durable.without_syncs():
        raise KeyError
    durable.fsync_directory(tmp_path)
    assert len(synced) == 1


def test_a_directory_that_somebody_else_made_is_synced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it may have been stopped before that."""
    synced: list[Path] = []
    monkeypatch.setattr(durable, "fsync_directory", synced.append)
    (tmp_path / "theirs").mkdir()
    durable.make_directory(tmp_path / "theirs" / "ours")
    assert {tmp_path.parent, tmp_path, tmp_path / "theirs"} <= set(synced)
    synced.clear()
    durable.make_directory(tmp_path / "theirs" / "ours")
    assert synced == []


@pytest.mark.parametrize("mode", [0o700, 0o750, 0o2770])
def test_what_is_made_gets_the_permissions_of_its_directory(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    mask = os.umask(0o022)
    try:
        durable.make_directory(tmp_path / "a" / "b")
        durable.write_atomic(tmp_path / "a" / "file", b"")
        durable.write_volatile(tmp_path / "a" / "other", b"")
        durable.create_empty(tmp_path / "a" / "empty")
    finally:
        os.umask(mask)
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == mode & 0o777
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "a").iterdir() if path.is_file()} == {mode & 0o666}
