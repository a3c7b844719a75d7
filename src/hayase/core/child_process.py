"""What the owner of a child process needs, whatever runs in it: a note of its progress, a bound on restarts, and how it ended.

libjq (`hayase.tables.jq_process`) and the functions of operations (`hayase.operations.processes`) run in child processes that may
end at any moment; both talk in frames (`hayase.core.frames`). A child notes in shared memory what it works on, so that its owner
knows what ended it: only that is refused, and the rest goes to the next child.
"""

from __future__ import annotations

import mmap
import os
import signal
import tempfile

from hayase.core.errors import EnvironmentUnfit

__all__ = ["MOST_STARTS", "STANDING_STILL", "Gone", "Restarts", "SharedNote", "ended_by_signal"]

MOST_STARTS = 3
"""How often in a row a process may end although nothing that it was asked to do is to blame."""
STANDING_STILL = 600.0
"""Seconds after which a process that should answer at once counts as hanging, even on a busy machine."""


class Gone(Exception):
    """A process has ended or does not respond."""


class SharedNote:
    """Numbers that a process shares with its child. `file` is the descriptor to pass on; the child may write behind the numbers."""

    def __init__(self, size: int, first: int) -> None:
        self.file = _unnamed_file()
        os.ftruncate(self.file, size)
        self._mapped = mmap.mmap(self.file, size)
        self.numbers = memoryview(self._mapped).cast("q")
        self.numbers[0] = first

    def close(self) -> None:
        """Release the memory and the file."""
        self.numbers.release()
        self._mapped.close()
        os.close(self.file)


def _unnamed_file() -> int:
    """Return the descriptor of an unnamed file, in memory if the system supports it."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("hayase")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


class Restarts:
    """Counts how often in a row a process has ended although nothing that it was asked to do is to blame."""

    def __init__(self, process: str) -> None:
        self._process, self._count = process, 0

    def count(self, how: str) -> None:
        """Count an end; EnvironmentUnfit after several in a row."""
        self._count += 1
        if self._count >= MOST_STARTS:
            self._count = 0
            raise EnvironmentUnfit(f"{self._process} ended {MOST_STARTS} times by itself: {how}")

    def reset(self) -> None:
        """Begin to count anew, because the process has done something."""
        self._count = 0


_SIGNALS: dict[int, str] = {
    signal.SIGSEGV: "segmentation fault",
    signal.SIGABRT: "abort",
    signal.SIGBUS: "bus error",
}


def ended_by_signal(number: int) -> tuple[str, str]:
    """Return the kind of failure and the text for a process that a signal ended.

    >>> ended_by_signal(signal.SIGSEGV)
    ('crashed', 'it crashed the process (segmentation fault, SIGSEGV)')
    """
    name = signal.Signals(number).name if number in signal.valid_signals() else f"signal {number}"
    if number == signal.SIGKILL:
        return "killed", f"it was killed from outside ({name}), perhaps because the machine is out of memory"
    description = f"{_SIGNALS[number]}, {name}" if number in _SIGNALS else name
    return "crashed", f"it crashed the process ({description})"
