"""Imports modules from a directory of shipped code, apart from all other modules of the process.

Several versions of one module, and modules of the same name from different pipelines, can be loaded at the same time: the
directory becomes a package with a name of its own, and the modules in it import each other from there, also when the import
statement is run later, inside of a function. Other imports are the usual ones.
"""

from __future__ import annotations

import builtins
import hashlib
import importlib
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from hayase.core.errors import DeclarationError
from hayase.core.function_sources import imported

__all__ = ["shipped_function"]

_PREFIX = "hayase_code_"


@lru_cache(maxsize=1024)
def shipped_function(directory: str, name: str) -> Callable[..., Any]:
    """Return the function "module:function" of a directory of shipped code."""
    module_name, _, attribute = name.rpartition(":")
    package = _package(str(Path(directory).absolute()))
    function = getattr(imported(f"{package}.{module_name}", "the home"), attribute, None)
    if not callable(function):
        raise DeclarationError(f'the module {module_name} in {directory} has no function "{attribute}"')
    result: Callable[..., Any] = function
    return result


def _package(directory: str) -> str:
    """Return the name of the package that a directory is, and create it if there is none yet."""
    name = _PREFIX + hashlib.blake2b(directory.encode(), digest_size=8).hexdigest()
    if name not in sys.modules:
        if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Finder())
        package = ModuleType(name)
        package.__path__ = [directory]
        sys.modules[name] = package
        importlib.invalidate_caches()
    return name


class _Finder(MetaPathFinder):
    """Finds the modules of such packages, and lets them import each other."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not fullname.startswith(_PREFIX):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


class _Loader(SourceFileLoader):
    """Runs a module with an import statement that looks into its own directory first."""

    def exec_module(self, module: ModuleType) -> None:
        package = self.name.partition(".")[0]
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": _import_in(package)}
        super().exec_module(module)

    def set_data(self, path: str, data: Any, *, _mode: int = 0o666) -> None:
        """Write no bytecode: every file of a home is checked."""


def _import_in(package: str) -> Callable[..., Any]:
    directory = sys.modules[package].__path__[0]

    def import_module(
        name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        top = name.partition(".")[0]
        if level or not _has(directory, top):
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = builtins.__import__(f"{package}.{name}", globals, locals, fromlist, 0)
        return module if fromlist else sys.modules[f"{package}.{top}"]

    return import_module


@lru_cache(maxsize=4096)
def _has(directory: str, name: str) -> bool:
    """Return whether a directory has a module of that name."""
    return PathFinder.find_spec(name, [directory]) is not None
