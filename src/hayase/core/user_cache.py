"""The user's cache: files that save time and can be removed at any moment, shared by all homes, checkouts and environments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["keep_newest", "last_used", "user_cache"]


def user_cache(name: str) -> Path | None:
    """Return a directory of the user's cache, `$XDG_CACHE_HOME/hayase/<name>` or `~/.cache/hayase/<name>`; create it if needed.

    Return None if it cannot be written, or belongs to another user: code is loaded from it.
    """
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME", ""))
        root = base if base.is_absolute() else Path.home() / ".cache"
        directory = root / "hayase" / name
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_ours = directory.stat().st_uid == os.geteuid()
    except (OSError, RuntimeError):  # the latter if there is no home directory
        return None
    return directory if is_ours and os.access(directory, os.W_OK | os.X_OK) else None


def last_used(path: Path) -> float:
    """Return when a file of the cache was used last, in seconds since 1970: its modification time, or 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:  # another process has removed it
        return 0.0


def keep_newest(paths: Sequence[Path], kept: int) -> list[Path]:
    """Return the paths to remove so that the `kept` most recently used ones stay."""
    return sorted(paths, key=last_used, reverse=True)[kept:]
