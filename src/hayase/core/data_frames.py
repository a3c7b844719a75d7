"""Arrow data as frames of other libraries: pandas, Polars and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hayase.core.errors import EnvironmentUnfit

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Frames", "optional_module"]


def optional_module(name: str, purpose: str) -> Any:
    """Import a library that Hayase does not install; EnvironmentUnfit says how to get it.

    >>> optional_module("no_such_library", "to_x()")
    Traceback (most recent call last):
    hayase.core.errors.EnvironmentUnfit: to_x() needs no_such_library, which is not installed; `pip install no_such_library`
    """
    package = name.partition(".")[0]
    try:
        import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, and lacks something else
            raise
        raise EnvironmentUnfit(f"{purpose} needs {package}, which is not installed; `pip install {package}`") from error
    return import_module(name)


class Frames:
    """The conversions that every object with `to_arrow` and `reader` has. Arguments are those of its `to_arrow`."""

    __slots__ = ()

    def to_arrow(self, *args: Any, **options: Any) -> pa.Table:
        """Return the rows as an Arrow table."""
        raise NotImplementedError

    def reader(self, *args: Any, **options: Any) -> pa.RecordBatchReader:
        """Return the rows as Arrow batches, which are read one after the other."""
        raise NotImplementedError

    def to_pandas(self, *args: Any, **options: Any) -> pd.DataFrame:
        """Return the rows of `to_arrow` as a pandas frame."""
        return self.to_arrow(*args, **options).to_pandas()

    def to_polars(self, *args: Any, **options: Any) -> Any:
        """Return the rows of `to_arrow` as a Polars frame, which needs Polars."""
        return optional_module("polars", "to_polars()").from_arrow(self.to_arrow(*args, **options))

    def to_duckdb(self, *args: Any, connection: Any = None, **options: Any) -> Any:
        """Return the rows of `to_arrow` as a relation of DuckDB, in a `connection` or in DuckDB's default one, where
        `duckdb.sql` finds it by the name of its variable."""
        import duckdb

        rows = self.to_arrow(*args, **options)
        return (duckdb.default_connection() if connection is None else connection).from_arrow(rows)

    def batches(self, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `to_arrow` as Arrow batches, in bounded memory."""
        yield from self.reader(*args, **options)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The Arrow PyCapsule interface, by which other libraries read the rows of `to_arrow()` without copying."""
        return self.reader().__arrow_c_stream__(requested_schema)
