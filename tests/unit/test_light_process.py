"""What a small `hayase query` loads, and the stand-ins for what it does not use. Each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hayase.core.function_catalogue import Catalogue, catalogue

ORDERS = "time,user,amount\n2026-01-01T00:00:00Z,taro,1.5\n2026-01-01T00:00:02Z,hana,2\n"
QUERY = """
import sys
sys.argv = ["hayase", *sys.argv[1:]]
from hayase.cli import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
PACKAGES = {
    "duckdb",
    "hayase",
    "llvmlite",
    "numpy",
    "orjson",
    "pyarrow",
    "rich",
    "shellingham",
    "sqlglot",
    "typer",
    "xxhash",
}
"""The packages that a small query may load; those that they load themselves are named in the test."""
PARTS = {"cli", "console", "core", "cql", "declared_pipeline", "engine", "lifetimes", "pipeline", "streams", "windows"}


def _run(program: str, *arguments: object, cwd: Path) -> tuple[str, list[str]]:
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True, timeout=600)
    return done.stdout, done.stderr.split()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    (tmp_path / "orders.csv").write_text(ORDERS)
    return tmp_path


def test_a_small_query_loads_no_more_than_it_needs(orders: Path) -> None:
    text = "select user, sum(amount) as spend from o [Range 2 seconds] group by user"
    for options in ((), ("--emit", "final"), ("--format", "csv")):
        answer, modules = _run(QUERY, "query", text, "-s", "o=orders.csv", *options, cwd=orders)
        assert "hana" in answer
        loaded = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
        assert loaded - {"annotated_doc", "cython_runtime", "dateutil", "mypy_extensions", "six"} <= PACKAGES
        assert {name.split(".")[1] for name in modules if name.startswith("hayase.")} <= PARTS
        assert "hayase.engine.spark" not in modules


def test_other_commands_are_not_loaded(orders: Path) -> None:
    _, modules = _run(QUERY, "query", "select user from o", "-s", "o=orders.csv", cwd=orders)
    assert "hayase.cli.query" in modules
    assert "hayase.cli.ops" not in modules


@pytest.mark.parametrize(
    ("module", "name"), [("pyarrow.vendored.docscrape", "Reader"), ("sqlglot.generators.duckdb", "_SEQ_BASE")]
)
def test_a_stand_in_is_replaced_by_the_module_when_another_name_is_asked_for(
    orders: Path, module: str, name: str
) -> None:
    program = f"""
from hayase.cli.light_process import lighten
lighten()
import pyarrow.compute, sqlglot.dialects.duckdb, sys
module = sys.modules["{module}"]
before = len(vars(module))
assert hasattr(module, "{name}") and not hasattr(module, "no_such_name")
print(before < 12 < len(vars(module)))
"""
    assert _run(program, cwd=orders)[0] == "True\n"


def test_sql_is_written_as_ever(orders: Path) -> None:
    program = """
import sys
from hayase.cli.light_process import lighten
if "light" in sys.argv:
    lighten()
import sqlglot
tree = sqlglot.parse_one("select {'a': 1}.a, x::text, [1, 2][1], epoch_ms(3) from range(3)", read="duckdb")
print([tree.sql(dialect="duckdb") for _ in range(2)])
"""
    assert _run(program, "light", cwd=orders) == _run(program, "whole", cwd=orders)


def test_nothing_is_spared_where_numpy_is_loaded(orders: Path) -> None:
    program = """
import numpy, sys, os
from hayase.cli.light_process import lighten
lighten()
import sqlglot.dialects.duckdb
print(hasattr(sys.modules["sqlglot.generators.duckdb"], "exp"))
"""
    assert _run(program, cwd=orders)[0] == "True\n"


class TestCatalogue:
    ROWS = (
        ("now", "scalar", "VOLATILE", None),
        ("lower", "scalar", "CONSISTENT", None),
        ("sum", "aggregate", None, None),
        ("today_text", "macro", None, "lower(now())"),
        ("share", "macro", None, "sum(x) / 2"),
    )
    FOUND = Catalogue(frozenset({"now", "today_text"}), frozenset({"sum", "share"}))

    @pytest.fixture(autouse=True)
    def cache(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        return tmp_path / "hayase" / "functions"

    def _listed(self, version: str = "2") -> tuple[Catalogue, int]:
        """The catalogue, and how often functions were listed for it."""
        listings = 0

        def rows() -> tuple[tuple[str, str, str | None, str | None], ...]:
            nonlocal listings
            listings += 1
            return self.ROWS

        return catalogue(version, rows), listings

    def test_it_is_listed_once_for_a_version(self) -> None:
        assert self._listed() == (self.FOUND, 1)
        assert self._listed() == (self.FOUND, 0)
        assert self._listed("3") == (self.FOUND, 1)

    @pytest.mark.parametrize(
        "damage", [lambda data: data[:-1], lambda data: b"", lambda data: data.replace(b"n", b"m")]
    )
    def test_a_damaged_file_is_written_again(self, cache: Path, damage: object) -> None:
        self._listed()
        (file,) = cache.iterdir()
        whole = file.read_bytes()
        file.write_bytes(damage(whole))  # type: ignore[operator]
        assert self._listed() == (self.FOUND, 1)
        assert file.read_bytes() == whole

    def test_without_a_cache(self, tmp_path: Path) -> None:
        (tmp_path / "hayase").write_text("no directory")
        assert self._listed() == self._listed() == (self.FOUND, 1)


def test_the_catalogue_in_the_cache_is_that_of_duckdb(tmp_path: Path) -> None:
    program = "from hayase.core.expressions import listed_functions as f; print(len(f('scalar')), len(f('aggregate')))"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-c", program]
    listed, read = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert listed == read
