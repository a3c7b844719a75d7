"""Compiling the loops of all operators ahead: on all cores before a pipeline runs, or behind it in a process of low priority.

One process of a user compiles behind others at a time: it holds a lock in the user's cache while it does. A pipeline that starts
meanwhile waits for the common loops only; what else it needs is compiled when it is first used, unless it is there by then.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from hayase.core.loop_compiler import NotCompiled, compiled_ahead, compiled_only
from hayase.core.machine_code import go_over_to_numba
from hayase.core.user_cache import user_cache

__all__ = ["COMMON", "compile_ahead", "compile_common", "is_compiled_behind", "loop_modules"]

COMMON = (
    "hayase.core.csv_loops",
    "hayase.core.key_loops",
    "hayase.core.repeat_loops",
    "hayase.lifetimes.aggregates_loops",
    "hayase.lifetimes.answers_loops",
    "hayase.lifetimes.leaves_loops",
    "hayase.lifetimes.scalars_loops",
    "hayase.lifetimes.tuples_loops",
    "hayase.windows.folds_loops",
    "hayase.windows.panes_loops",
)
"""The modules whose loops most pipelines need, among them the demo: half of what there is to compile."""


def _ignore(compiled: int, missing: int) -> None:
    pass


def loop_modules() -> list[str]:
    """Return the names of all modules of loops."""
    from hayase import core, lifetimes, windows

    return [
        f"{package.__name__}.{module.name}"
        for package in (core, lifetimes, windows)
        for module in pkgutil.iter_modules(package.__path__)
        if module.name.endswith("_loops")
    ]


def compile_ahead(on_progress: Callable[[int, int], None] = _ignore) -> None:
    """Load the loops of all operators and of the keys; compile those that are not in the cache, on all cores.

    `on_progress` gets the number of loops that have been compiled and the number of all that are not in the cache. While another
    process compiles behind, only the common loops are waited for, and the others that are missing are left to their first use.
    """
    if is_compiled_behind():
        _load_common(on_progress)
    else:
        with compiled_ahead(on_progress):
            _import(loop_modules())


def compile_common(on_progress: Callable[[int, int], None] = _ignore) -> None:
    """Compile the common loops that are not in the cache, on all cores, and start a process that compiles the others behind."""
    if not _load_common(on_progress):
        _compile_behind()


def _load_common(on_progress: Callable[[int, int], None]) -> bool:
    """Load the common loops, compiled if they are missing, and all modules that are compiled; return whether all others are."""
    with compiled_ahead(on_progress):
        _import(COMMON)
    complete = True
    for module in loop_modules():
        try:
            with compiled_only():
                _import([module])
        except NotCompiled:
            complete = False
    return complete


def _import(modules: Sequence[str]) -> None:
    go_over_to_numba()
    for module in modules:
        importlib.import_module(module)


# ------------------------------------------------------------------------------------------------- behind


def _compile_behind() -> None:
    """Start a process that compiles all loops that are not in the cache, at the lowest priority; not if one runs already."""
    nowhere = subprocess.DEVNULL
    with contextlib.suppress(OSError), _lock() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the process inherits it, and holds it until it ends
        subprocess.Popen(
            [sys.executable, "-P", "-m", "hayase.lifetimes.compilation"],
            stdin=nowhere, stdout=nowhere, stderr=nowhere, cwd="/", start_new_session=True, pass_fds=[lock],
        )  # fmt: skip


def is_compiled_behind() -> bool:
    """Return whether a process compiles behind others now."""
    try:
        with _lock() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is no cache: nothing can be compiled by another process
        return False
    return False


@contextlib.contextmanager
def _lock() -> Iterator[int]:
    """Open the file whose lock is held while a process compiles behind others; raise OSError if there is no cache."""
    cache = user_cache("machine-code")
    if cache is None:
        raise FileNotFoundError("the user's cache cannot be written")
    lock = os.open(cache / "behind.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        yield lock
    finally:
        os.close(lock)


def _compile_all() -> None:
    os.nice(19)
    with compiled_ahead():
        _import(loop_modules())


if __name__ == "__main__":
    _compile_all()
