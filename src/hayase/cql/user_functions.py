"""The user's Python functions as expressions call them (`hayase.core.scalar_functions`).

A call that raises or takes longer than the limit, and a result that does not fit the declared type, is a failure of its row
alone. A function on arrays that fails is called again on halves of its rows, until the rows that fail are alone. Nothing is
rounded or cut to fit.
"""

from __future__ import annotations

import hashlib
import json
import sysconfig
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import repeat, starmap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from hayase.core.call_limits import Overdue, watched
from hayase.core.data_classes import dataclass
from hayase.core.expression_limits import LARGEST, TOO_LARGE
from hayase.core.expressions import value_sizes
from hayase.core.function_data import function_source
from hayase.core.function_declarations import FunctionDeclaration
from hayase.core.function_sources import FunctionSource
from hayase.core.scalar_functions import Computed, ScalarFunction, register
from hayase.core.shipped_modules import shipped_function
from hayase.core.times import duration_text
from hayase.streams.typed_columns import fit_arrow, fit_values, python_values

__all__ = ["UserFunction", "function_versions", "registered_functions"]

_HERE = str(Path(__file__).parent.parent)
_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def registered_functions(declared: Iterable[FunctionDeclaration]) -> dict[str, str]:
    """Make the Python functions of a pipeline known to expressions; return their keys by name, in lower case."""
    keys: dict[str, str] = {}
    for declaration in declared:
        if declaration.sql is None:
            facts = json.dumps(asdict(declaration), sort_keys=True)
            digest = hashlib.blake2b(facts.encode(), digest_size=8).hexdigest()
            key = keys[declaration.name.lower()] = f"{declaration.name}__fn_{digest}"
            kinds = tuple(field.type for field in declaration.schema)
            register(ScalarFunction(key, kinds, declaration.result.type, UserFunction(declaration)))
    return keys


def function_versions(declared: Iterable[FunctionDeclaration]) -> dict[str, str]:
    """Return a digest of everything that the results of each Python function depend on, by its name in lower case."""
    versions: dict[str, str] = {}
    for declaration in declared:
        if declaration.sql is None:
            version = declaration.version or function_source(declaration).text()
            facts = (
                declaration.function, declaration.arguments, declaration.returns, declaration.takes, declaration.nulls, version,
            )  # fmt: skip
            text = "\0".join(str(fact) for fact in facts)
            versions[declaration.name.lower()] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return versions


@dataclass(frozen=True, slots=True)
class UserFunction:
    """Calls a Python function on the rows of arrays. The function is loaded when it is needed first."""

    declaration: FunctionDeclaration

    def __call__(self, columns: Sequence[pa.Array], count: int) -> Computed:
        """Return the results for all rows."""
        function = self.load()
        missing = np.zeros(count, bool)
        if self.declaration.nulls == "skip":
            for column in columns:
                if column.null_count:
                    missing |= column.is_null().to_numpy(zero_copy_only=False)
        if self.declaration.takes == "arrays":
            return self._on_arrays(function, columns, np.flatnonzero(~missing), count)
        return self._on_values(function, columns, missing)

    def load(self) -> Callable[..., Any]:
        """Return the function: the shipped one, once it is shipped. DeclarationError if it cannot be loaded."""
        declared = self.declaration
        if declared.code is None:
            return function_source(declared).load()
        if declared.directory is not None and Path(declared.directory).is_dir():
            return shipped_function(declared.directory, declared.function or "")
        return FunctionSource(declared.function or "").load()  # the module is installed

    def _on_values(self, function: Callable[..., Any], columns: Sequence[pa.Array], missing: np.ndarray) -> Computed:
        """Call a function on every row that is not missing; the results of the others are NULL."""
        rows = np.flatnonzero(~missing).tolist()
        values = [python_values(column) for column in columns]
        if len(rows) < len(missing):
            values = [[column[row] for row in rows] for column in values]
        calls = map(function, *values) if values else starmap(function, repeat((), len(rows)))
        results: list[Any] = []
        failures: dict[int, str] = {}
        while len(results) < len(rows):
            try:
                with watched(lambda: len(results), self._seconds):
                    results.extend(calls)  # as far as it comes: a call that fails is the one at the end of the results
                if len(results) < len(rows):
                    raise StopIteration  # which the function has raised: it ends the calls like a list
            except (Exception, SystemExit, Overdue) as error:
                if len(results) < len(rows):  # else the limit passed when all was done
                    failures[rows[len(results)]] = self._raised(error)
                    results.append(None)
        if len(rows) < len(missing):
            by_row = dict(zip(rows, results))
            results = [by_row.get(row) for row in range(len(missing))]
        fitted = fit_values(results, self._result)
        return self._bounded(_whole(fitted.column, self._result.type), failures | self._unfit(fitted.reasons))

    def _on_arrays(
        self, function: Callable[..., Any], columns: Sequence[pa.Array], rows: np.ndarray, count: int
    ) -> Computed:
        """Call a function on the rows at these positions; the results of all others are NULL."""
        kind = self._result.type
        taken = columns if len(rows) == count else [column.take(pa.array(rows)) for column in columns]
        parts: list[pa.Array] = []
        failures: dict[int, str] = {}
        todo = [(0, len(rows))] if len(rows) else []
        while todo:
            start, stop = todo.pop()
            try:
                with watched(lambda: 0, self._seconds):
                    part, unfit = self._part(
                        [column.slice(start, stop - start) for column in taken], function, stop - start
                    )
                failures |= {int(rows[start + at]): message for at, message in self._unfit(unfit).items()}
            except (Exception, SystemExit, Overdue) as error:
                if stop - start > 1:
                    middle = (start + stop) // 2
                    todo += [(middle, stop), (start, middle)]
                    continue
                failures[int(rows[start])] = self._raised(error)
                part = pa.nulls(1, kind)
            parts.append(part)
        results = _whole(pa.chunked_array(parts, kind), kind)
        if len(rows) < count:
            places = np.full(count, -1, np.int64)
            places[rows] = np.arange(len(rows))
            results = results.take(pa.array(places, mask=places < 0))
        return self._bounded(results, failures)

    def _part(
        self, columns: Sequence[pa.Array], function: Callable[..., Any], count: int
    ) -> tuple[pa.Array, Mapping[int, str]]:
        result = function(*columns)
        if not isinstance(result, pa.Array | pa.ChunkedArray):
            raise TypeError(f"it gave a {type(result).__name__}; give an Arrow array")
        if len(result) != count:
            raise ValueError(f"it took {count} rows and gave {len(result)}; give a value for each")
        fitted = fit_arrow(result if isinstance(result, pa.ChunkedArray) else pa.chunked_array([result]), self._result)
        return _whole(fitted.column, self._result.type), fitted.reasons

    @property
    def _result(self) -> pa.Field:
        return self.declaration.result

    def _unfit(self, reasons: Mapping[int, str]) -> dict[int, str]:
        texts = {at: reason.replace(f'column "{self._result.name}"', "its result", 1) for at, reason in reasons.items()}
        return {at: f"{self.declaration.name}: {text}" for at, text in texts.items()}

    @property
    def _seconds(self) -> float:
        return self.declaration.time_limit / 1e6

    def _raised(self, error: BaseException) -> str:
        """Return the last line of the traceback, or that the call took too long, and the place in the user's code."""
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if not frame.filename.startswith((_HERE, *_LIBRARIES))
        ]
        last = traceback.format_exception_only(error)[-1].strip().partition("\n")[0][:1000]
        place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        if isinstance(error, Overdue):
            return f"{self.declaration.name} took more than {duration_text(self.declaration.time_limit)}{place}"
        return f"{self.declaration.name} raised {last}{place}"

    def _bounded(self, results: pa.Array, failures: dict[int, str]) -> Computed:
        if results.nbytes > LARGEST:
            large = np.flatnonzero(value_sizes(results) > LARGEST)
            failures |= {int(position): f"{self.declaration.name}: {TOO_LARGE}" for position in large}
        return Computed(results, failures)


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    whole = column.combine_chunks()
    return whole if whole.type.equals(kind, check_metadata=True) else whole.cast(kind)
