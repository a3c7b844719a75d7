"""How loops become machine code: by Numba, which compiles them or loads what it compiled, or without Numba from the user's cache.

Modules of loops (`*_loops.py`) use the decorators here. As a rule Numba runs their loops (`loop_compiler`). Loading Numba and its
copies of the loops takes longer than most queries over small files; a process that calls `do_without_numba` first loads the object
code itself (`object_code`). The machine code is the same; only a call costs more, 4 us for every array. When a loop has no
object code, the process goes over to Numba.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hayase.core.loop_types import Kind
from hayase.core.user_cache import user_cache

__all__ = ["compiled", "do_without_numba", "go_over_to_numba", "intrinsic", "loop_directory", "njit"]

VERSION = 2
"""To be raised when loops are compiled in another way, such as with other options."""

_IMPORT = re.compile(rb"^from ([\w.]+_loops) import ", re.MULTILINE)
_without_numba = False
_light_modules: dict[str, None] = {}
"""The modules of loops that were imported without Numba, in this order."""


def do_without_numba() -> None:
    """Load loops without Numba from now on, for a process that calls them a few hundred times; unless Numba is loaded already."""
    global _without_numba
    _without_numba = "numba" not in sys.modules


def go_over_to_numba() -> None:
    """Use Numba from now on: import all modules of loops again that were imported without it."""
    global _without_numba
    _without_numba = False
    modules = list(_light_modules)
    _light_modules.clear()
    for module in modules:
        importlib.reload(sys.modules[module])


def compiled(result: Kind, *arguments: Kind, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a function a loop, compiled for exactly this signature; its machine code is kept in the user's cache if possible."""

    def build(function: Callable[..., Any]) -> Callable[..., Any]:
        if _without_numba:
            from hayase.core.object_code import ObjectLoop

            _light_modules[function.__module__] = None
            return ObjectLoop(function, result, arguments)
        from hayase.core.loop_compiler import compiled_loop

        return compiled_loop(function, result, arguments, options)

    return build


def njit(*functions: Callable[..., Any], **options: Any) -> Any:
    """Make a function one that loops can call: `@njit` or `@njit(...)` with options of Numba."""
    if _without_numba:
        return functions[0] if functions else lambda function: function
    import numba

    return numba.njit(*functions, **options)


def intrinsic(function: Callable[..., Any]) -> Any:
    """Make a function one that generates code of its own (`numba.extending.intrinsic`)."""
    if _without_numba:
        return function
    from numba import extending

    return extending.intrinsic(function)


@functools.cache
def loop_directory(module: str, file: str) -> Path | None:
    """Return the directory for the loops of a module.

    They depend on its source, on constants and on the modules of loops that it imports, which are part of the machine code, and on
    the versions of Python and Numba. It is called for the first loop of the module, when everything has been imported.
    """
    cache = user_cache("machine-code")
    if cache is None:
        return None
    digest = hashlib.sha256(f"{VERSION} {sys.version_info[:2]} {importlib.metadata.version('numba')};".encode())
    for name, value in sorted(vars(sys.modules[module]).items()):
        if isinstance(value, int | float | np.generic):
            digest.update(f"{name}={value!r};".encode())
    try:
        for source in _sources(Path(file)):
            digest.update(source)
    except OSError:
        return None
    directory = cache / f"{module}-{digest.hexdigest()[:24]}"
    with contextlib.suppress(OSError):  # it is not there yet
        os.utime(directory)  # it is in use, however long ago it was written
    return directory


def _sources(file: Path) -> list[bytes]:
    """Return the source of a module of loops, and those of all modules of loops that it imports."""
    files, sources = [file], list[bytes]()
    for file in files:
        sources.append(file.read_bytes())
        for name in _IMPORT.findall(sources[-1]):
            imported = Path(str(sys.modules[name.decode()].__file__))
            files += [imported] if imported not in files else []
    return sources
