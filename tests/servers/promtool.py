"""`promtool`, which checks and tests the rules of Prometheus: the machine's own, or Debian's, unpacked into the user's cache."""

from __future__ import annotations

import shutil
from pathlib import Path

from servers.parts import GET, fetch, find, unpack_packages
from servers.process import Missing

__all__ = ["fetch_promtool", "promtool"]

_NAME = "prometheus-debian"


def fetch_promtool() -> None:
    """Unpack Debian's Prometheus, if this machine has none."""
    if shutil.which("promtool") is None:
        fetch(_NAME, lambda directory: unpack_packages("prometheus", directory))


def promtool() -> Path:
    """Return the program."""
    if (own := shutil.which("promtool")) is not None:
        return Path(own)
    parts = find(_NAME)
    if parts is None:
        raise Missing(f"there is no promtool here; {GET}; or, on Debian, Ubuntu: apt-get install prometheus")
    return parts / "usr" / "bin" / "promtool"
