"""Compiling loops with Numba, and the cache of their machine code.

A loop is compiled for exactly one signature when its module is imported, unless the cache has it. The cache is in the user's cache
directory, so that all checkouts, environments and installed packages with the same sources share it; a directory of it holds the
loops of one module and is named by a digest of what they depend on (`machine_code.loop_directory`). Numba adds the processor to the
key of each loop. The object code is kept beside it, for processes that do without Numba (`object_code`).

`compiled_ahead` compiles the loops of several modules at once, on all cores.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, cast

from numba import njit
from numba.core import config
from numba.core.caching import CacheImpl, CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.compiler_lock import global_compiler_lock
from numba.core.runtime import rtsys

from hayase.core import object_code
from hayase.core.loop_types import Kind, to_numba
from hayase.core.machine_code import loop_directory
from hayase.core.user_cache import keep_newest

__all__ = ["NotCompiled", "compiled_ahead", "compiled_loop", "compiled_only"]

KEPT = 8
"""How many versions of a module stay in the cache."""

_log = logging.getLogger(__name__)


def compiled_loop(
    function: Callable[..., Any], result: Kind, arguments: Sequence[Kind], options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Compile for the signature now, releasing the GIL, and cache the machine code if possible."""
    wanted = to_numba(result)(*map(to_numba, arguments))
    try:
        loop = njit(nogil=True, **options)(function)
        loop._cache = FunctionCache(function) if config.CACHE_DIR else _Cache(function)
        if not _take_up(loop, wanted):
            if _only_compiled:
                raise NotCompiled(f"the loop {function.__module__}.{function.__name__} is not compiled yet")
            if _missing is not None:
                _missing.append((loop, wanted))
                return cast("Callable[..., Any]", loop)
            _compile(loop, wanted)
        loop.disable_compile()
    except (RuntimeError, OSError):  # no cache directory: every process compiles for itself
        loop = njit(wanted, nogil=True, **options)(function)
    return cast("Callable[..., Any]", loop)


def _compile(loop: Any, wanted: Any) -> None:
    """Compile a loop in this process, and say so on a terminal: it takes up to half a minute."""
    _say_once()
    _log.info("compiling %s.%s", loop.py_func.__module__, loop.py_func.__qualname__)
    _compile_and_keep(loop, wanted)


def _compile_and_keep(loop: Any, wanted: Any) -> None:
    """Compile a loop; Numba caches its machine code, and the object code is kept beside it."""
    loop.compile(wanted)
    with contextlib.suppress(OSError):  # the cache is full, or being removed
        object_code.save(loop.py_func, loop.overloads[wanted.args])


@functools.cache
def _say_once() -> None:
    if sys.stderr.isatty():
        sys.stderr.write("compiling loops for this processor; they are kept for the next time\n")


def _take_up(loop: Any, wanted: Any) -> bool:
    """Load the cached machine code, if any, and return whether there was: the first thing that `compile` does, but without
    setting up the compiler, which takes longer than loading."""
    with global_compiler_lock:
        rtsys.initialize(loop.targetctx)
        kept = loop._cache._load_overload(wanted, loop.targetctx)
        if kept is None:
            return False
        loop.targetctx.insert_user_function(kept.entry_point, kept.fndesc, [kept.library])
        loop.add_overload(kept)
        return True


# ------------------------------------------------------------------------------------------------- all cores

_missing: list[tuple[Any, Any]] | None = None
"""Inside `compiled_ahead`, the loops that are to be compiled, with their signatures."""


@contextlib.contextmanager
def compiled_ahead(on_progress: Callable[[int, int], None] = lambda done, of: None) -> Iterator[None]:
    """Compile all loops that are missing in the modules imported in the block, at its end, on all cores.

    `on_progress` gets the number of compiled loops and the number of all that are missing.
    """
    global _missing
    if _missing is not None:
        raise RuntimeError("loops are being compiled ahead already")
    missing: list[tuple[Any, Any]] = []
    _missing = missing
    try:
        yield
    finally:
        _missing = None
    if missing:
        # the largest loops go first, so that no core compiles one when the others have nothing left to do
        missing.sort(key=lambda task: -_size(task[0].py_func))
        _compile_in_children(missing, on_progress)
    for loop, wanted in missing:
        if not _take_up(loop, wanted):  # its child has failed, or nothing can be cached
            _compile(loop, wanted)
        loop.disable_compile()


_only_compiled = False


class NotCompiled(ImportError):
    """A module cannot be imported inside `compiled_only`: one of its loops is not in the cache."""


@contextlib.contextmanager
def compiled_only() -> Iterator[None]:
    """Compile nothing in the block: the import of a module raises NotCompiled if one of its loops is not in the cache."""
    global _only_compiled
    _only_compiled = True
    try:
        yield
    finally:
        _only_compiled = False


def _size(function: Callable[..., Any]) -> int:
    """Return about how much there is to compile: the bytes of a loop, and of the functions of its module that it names."""
    waiting: list[Any] = [function]
    sizes: dict[FunctionType, int] = {}
    while waiting:
        part = waiting.pop()
        part = getattr(part, "py_func", part)
        if isinstance(part, FunctionType) and part not in sizes:
            sizes[part] = len(part.__code__.co_code)
            waiting += [part.__globals__.get(name) for name in part.__code__.co_names]
    return sum(sizes.values())


def _compile_in_children(missing: list[tuple[Any, Any]], on_progress: Callable[[int, int], None]) -> None:
    """Compile loops into the cache in one child per core. A child takes the next loop from a pipe of numbers and reports it in
    another, so that no child is idle while there is work."""
    on_progress(0, len(missing))
    tasks, add_task = os.pipe()
    reports, report = os.pipe()
    os.write(add_task, b"".join(number.to_bytes(2) for number in range(len(missing))))
    os.close(add_task)
    children = []
    for _ in range(min(os.cpu_count() or 1, len(missing))):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                while number := os.read(tasks, 2):
                    loop, wanted = missing[int.from_bytes(number)]
                    _compile_and_keep(loop, wanted)
                    os.write(report, b".")
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    os.close(tasks)
    os.close(report)
    done = 0
    with open(reports, "rb", buffering=0) as lines:  # noqa: PTH123 - a descriptor
        while lines.read(1):
            done += 1
            on_progress(done, len(missing))
    for child in children:
        os.waitpid(child, 0)


# ------------------------------------------------------------------------------------------------- the cache


class _Locator(_CacheLocator):
    """Says where the machine code of a loop is: in a directory of the user's cache that belongs to a version of its module."""

    def __init__(self, directory: Path, line: int) -> None:
        self._directory, self._line = directory, line

    @classmethod
    def from_function(cls, function: Any, file: str) -> _Locator | None:
        """Return the locator of a loop; None if the user's cache cannot be written. Then Numba looks for another place."""
        directory = loop_directory(function.__module__, file)
        return None if directory is None else cls(directory, function.__code__.co_firstlineno)

    def get_cache_path(self) -> str:
        return str(self._directory)

    def get_source_stamp(self) -> str:
        return self._directory.name

    def get_disambiguator(self) -> str:
        return str(self._line)

    def ensure_cache_path(self) -> None:
        """Create the directory, and remove those of versions that were used longest ago."""
        if self._directory.is_dir():
            return
        self._directory.mkdir(exist_ok=True)
        module = self._directory.name.rpartition("-")[0]
        for old in keep_newest(list(self._directory.parent.glob(f"{module}-*")), KEPT):
            shutil.rmtree(old, ignore_errors=True)


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (_Locator, *CacheImpl._locator_classes)


class _Cache(FunctionCache):
    _impl_class = _Implementation
