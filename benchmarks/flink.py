"""Flink beside Hayase: an environment of its own, `.flink`, made if need be, and scripts that run in it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["seconds_in_flink"]

FLINK = "apache-flink>=2.3,<3"
CORES = "2"


def seconds_in_flink(script: str, directory: Path, queries: Sequence[str]) -> dict[str, dict[str, float]]:
    """Run a script of this directory over files; return the seconds of each query, `start_up` and `whole`."""
    here = Path(__file__).resolve().parent
    python = here.parent / ".flink" / "bin" / "python"
    if not python.exists():
        print("setting up Flink in .flink ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", FLINK], check=True)
    command: list[str | Path] = [python, here / script, directory, CORES, *queries]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found
