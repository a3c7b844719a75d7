"""A timeline of batches: when each process of a lane reached which hop, for `hayase bench latency`.

Nothing is written unless the environment variable `HAYASE_TIMELINE` names a directory. Every process of a lane then appends lines
of a time and a hop to a file of its own in that directory; the clock is the monotonic one, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["VARIABLE", "hops_in", "reach"]

VARIABLE = "HAYASE_TIMELINE"


def reach(hop: str) -> None:
    """Note that this process has reached a hop of a batch."""
    directory = os.environ.get(VARIABLE)
    if directory:
        with (Path(directory) / f"{os.getpid()}").open("a") as file:
            file.write(f"{time.monotonic_ns()} {hop}\n")


def hops_in(directory: Path) -> list[tuple[float, str]]:
    """Return the hops that all processes have reached, in the order of time, in seconds."""
    lines = [line.partition(" ") for path in directory.iterdir() for line in path.read_text().splitlines()]
    return sorted((int(nanoseconds) / 1e9, hop) for nanoseconds, _, hop in lines)
