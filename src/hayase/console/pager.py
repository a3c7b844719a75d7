"""Long output goes through a pager: $PAGER, or `less` where it is installed."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from typing import IO, TextIO

__all__ = ["paged"]

_LESS = "FRSX"
"""Options of `less`, unless LESS is set: end if all fits, show colours, cut long lines, leave the text on the screen."""


@contextlib.contextmanager
def paged(terminal: TextIO, is_long: bool) -> Iterator[IO[str]]:
    """Give a text file to write to: the pager's if the output is long and there is one, else the terminal."""
    command = _pager() if is_long else []
    if not command:
        yield terminal
        return
    terminal.flush()
    environment = {"LESS": _LESS, "LESSCHARSET": "utf-8", **os.environ}
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, text=True, encoding="utf-8", env=environment)
    assert pager.stdin is not None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is a key of the pager
    try:
        with contextlib.suppress(BrokenPipeError), pager.stdin:  # who has seen enough leaves the pager
            yield pager.stdin
    finally:
        pager.wait()
        signal.signal(signal.SIGINT, before)


def _pager() -> list[str]:
    """Return the command of the pager; empty if there is none, or if PAGER is set to nothing or to `cat`."""
    chosen = os.environ.get("PAGER")
    words = shlex.split(chosen) if chosen is not None else ["less"]
    return words if words and words != ["cat"] and shutil.which(words[0]) else []
