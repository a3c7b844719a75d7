"""What a process spares that answers one query over small files: work of libraries at their import that the query never uses.

It is for a process that ends soon: nothing here is undone. Whatever is left out is loaded after all if something asks for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

__all__ = ["hide_pandas", "lighten", "lighten_process"]

_ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",  # NumPy's; its threads wait for work in a loop, 40 ms in all
}


def hide_pandas() -> None:
    """Hide pandas: DuckDB and Arrow import it, if it is installed, as soon as they see a table or a list, which takes longer than
    most queries. Where it is loaded already, it stays."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())


def lighten() -> None:
    """Leave out what a small query does not use, unless NumPy is imported already: then the others may be, too."""
    if "numpy" in sys.modules:
        return
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    sys.meta_path.insert(0, _StandIns())


def lighten_process(*, stand_ins: bool = True) -> None:
    """Load less in a process that answers one small query, before anything large is imported: no pandas, no Numba, and
    with `stand_ins` the small modules below instead of large ones."""
    hide_pandas()
    if stand_ins:
        lighten()
    from hayase.core.machine_code import do_without_numba

    do_without_numba()


class _NoPandas(MetaPathFinder):
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


def _without_documentation() -> dict[str, Any]:
    """Instead of Arrow's reader of docstrings, with which it documents 286 functions."""
    return {"NumpyDocString": lambda text: {"Parameters": []}}


def _without_templates() -> dict[str, Any]:
    """Instead of sqlglot's generator of DuckDB's SQL, which parses 20 statements to begin with; queries are read, and written only
    in some errors."""
    from sqlglot.generator import Generator

    class DuckDBGenerator(Generator):
        def __new__(cls, *arguments: Any, **options: Any) -> Any:
            return _whole(sys.modules["sqlglot.generators.duckdb"]).DuckDBGenerator(*arguments, **options)

    return {"DuckDBGenerator": DuckDBGenerator, "WS_CONTROL_CHARS_TO_DUCK": {}}


_STAND_INS: dict[str, Callable[[], dict[str, Any]]] = {
    "pyarrow.vendored.docscrape": _without_documentation,
    "sqlglot.generators.duckdb": _without_templates,
}


class _StandIns(MetaPathFinder, Loader):
    """Imports a small module instead of a large one, which takes its place when another of its names is asked for."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in _STAND_INS and name not in sys.modules else None

    def exec_module(self, module: ModuleType) -> None:
        def __getattr__(name: str) -> Any:  # noqa: N807
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(_whole(module), name)

        vars(module).update(_STAND_INS[module.__name__](), __getattr__=__getattr__)


def _whole(module: ModuleType) -> Any:
    """Return the module itself, once its stand-in has been replaced."""
    if vars(module).pop("__getattr__", None) is not None:
        spec = PathFinder.find_spec(module.__name__, sys.modules[module.__name__.rpartition(".")[0]].__path__)
        assert spec is not None and spec.loader is not None  # noqa: PT018
        spec.loader.exec_module(module)
    return module
