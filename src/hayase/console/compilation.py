"""Compiles all loops that are not in the user's cache, with a line of progress: `python -m hayase.console.compilation`.

With `--common` it waits for the common loops only, which the demo needs, and leaves the others to a process behind it.
"""

from __future__ import annotations

import sys

__all__ = ["compile_loops"]


def compile_loops(*, only_common: bool = False) -> None:
    """Compile the loops of kernels, and show the progress on standard error; nothing is shown if all are in the cache."""
    from hayase.lifetimes.compilation import compile_ahead, compile_common

    is_terminal = sys.stderr.isatty()

    def show(compiled: int, missing: int) -> None:
        text = f"compiling kernels for this processor, once: {compiled} of {missing}"
        if is_terminal:
            sys.stderr.write(f"\r{text}{'' if compiled < missing else chr(10)}")
        elif compiled in (0, missing):
            sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    compile_common(show) if only_common else compile_ahead(show)


if __name__ == "__main__":
    compile_loops(only_common="--common" in sys.argv)
