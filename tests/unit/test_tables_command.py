"""`hayase tables`: what the commands print, refuse and write, over a table that a pipeline has filled."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console, RenderableType

import hayase.cli.tables
from command_line import Answer, Command
from hayase.console.table_view import row_grid, table_details, table_list
from hayase.core.clock import now_us
from hayase.engine.local import InProcess
from hayase.pipeline import Pipeline
from hayase.tables.table import open_own

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  orders:
    schema: time timestamp, id string, country string, user string, number bigint, amount double
    time: time
    id: id
tables:
  spending:
    key: user
    columns: {total: Counter, last: Register, by_country: MapCounter, countries: GSet}
  visits:
    key: [country, number]
    columns: {count: Counter}
  empty:
    key: user
    columns: {seen: DistinctCount}
rules:
  source: orders
  branches:
    - condition: .user != null
      tables:
        spending:
          key: .user
          columns: {total: .amount, last: '{amount, id}', by_country: '{(.country): .amount}', countries: .country}
        visits: {key: [.country, .number], columns: {count: 1}}
    - condition: .amount < 0
      tables: {empty: {key: .user, columns: {seen: .id}}}
"""
USERS = ("hana", "jiro", "taro", "ume")


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline file, in which commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def order(at: int) -> dict[str, Any]:
    """One for each user in turn, a second apart, and each of as many yen."""
    country = ("jp", "nz")[at % 2]
    return {"time": f"2026-01-01T00:00:{at:02d}Z", "id": f"o{at}", "country": country, "user": USERS[at % 4],
            "number": at % 3, "amount": float(at)}  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a pipeline that has seen twelve orders."""
    directory = tmp_path_factory.mktemp("filled")
    (directory / "pipeline.yaml").write_text(PIPELINE)
    pipeline = Pipeline.from_file(directory / "pipeline.yaml")
    pipeline.append("orders", [order(at) for at in range(12)])
    pipeline.run_until_idle(spark=False)
    return pipeline.home.path


@pytest.fixture
def shop(declared: Path, filled: Path) -> Path:
    """A directory with a pipeline file and that home."""
    shutil.copytree(filled, declared / "home")
    return declared


def shown(renderable: RenderableType) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(renderable)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return str(text)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands find a terminal, which is wide."""
    monkeypatch.setattr(hayase.cli.tables, "as_json", lambda wanted: wanted)
    monkeypatch.setenv("COLUMNS", "160")


class TestList:
    def test_all_tables_with_their_figures(self, hayase_: Command, shop: Path) -> None:
        found = {row["name"]: row for row in hayase_("tables", "list").rows}
        assert list(found) == ["spending", "visits", "empty"]
        assert found["visits"]["key"] == ["country", "number"]
        assert found["spending"]["updates_about"] == 12
        assert found["spending"]["bytes"] > 0
        assert found["spending"]["clock_us"] == 1_767_225_611_000_000
        assert found["empty"]["updates_about"] == found["empty"]["rows_about"] == 0

    def test_before_the_first_run(self, hayase_: Command, declared: Path) -> None:
        assert [row["bytes"] for row in hayase_("tables", "list").rows] == [0, 0, 0]
        assert not (declared / "home" / "tables").exists()

    def test_a_home_is_enough(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (shop / "elsewhere").mkdir()
        monkeypatch.chdir(shop / "elsewhere")
        assert len(hayase_("tables", "list", "--home", "../home").rows) == 3
        assert "there is no pipeline.yaml here" in hayase_("tables", "list").err

    def test_a_pipeline_without_tables(self, hayase_: Command, declared: Path) -> None:
        (declared / "pipeline.yaml").write_text(PIPELINE.split("tables:")[0])
        assert hayase_("tables", "list").out == ""
        assert 'has no tables; declare "spending"' in hayase_("tables", "get", "spending", "taro").err

    @pytest.mark.usefixtures("terminal")
    def test_on_a_terminal(self, hayase_: Command, shop: Path) -> None:
        out = hayase_("tables", "list").out
        assert "country, number" in out
        assert "2026-01-01 00:00:11" in out

    @pytest.mark.usefixtures("terminal")
    def test_none_on_a_terminal(self, hayase_: Command, declared: Path) -> None:
        (declared / "pipeline.yaml").write_text(PIPELINE.split("tables:")[0])
        assert 'no tables in the pipeline "shop"' in hayase_("tables", "list").err


class TestShow:
    def test_declaration_figures_and_rules(self, hayase_: Command, shop: Path) -> None:
        (about,) = hayase_("tables", "show", "spending").rows
        assert about["columns"]["by_country"] == "MapCounter"
        assert about["horizon_us"] == 7 * about["fold_after_us"] == 7 * 86_400_000_000
        assert [(each["source"], each["column"], each["method"]) for each in about["rules"]] == [
            ("orders", "total", "incr"),
            ("orders", "last", "set"),
            ("orders", "by_country", "add"),
            ("orders", "countries", "add"),
        ]

    def test_the_nearest_name(self, hayase_: Command, shop: Path) -> None:
        for command in ("show", "scan"):
            done = hayase_("tables", command, "spendings")
            assert done.code == 1
            assert 'unknown table "spendings"; did you mean "spending"?' in done.err

    @pytest.mark.usefixtures("terminal")
    def test_on_a_terminal(self, hayase_: Command, shop: Path) -> None:
        out = hayase_("tables", "show", "visits").out
        assert "7 days: older events are refused" in out
        assert ".country, .number" in out
        assert "count.incr" in out


class TestGet:
    def test_a_row(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("tables", "get", "spending", "taro").rows == [
            {"user": "taro", "total": 18, "last": {"amount": 10, "id": "o10"}, "by_country": {"jp": 18},
             "countries": ["jp"]}
        ]  # fmt: skip

    def test_as_of_a_time_and_some_columns(self, hayase_: Command, shop: Path) -> None:
        done = hayase_(
            "tables", "get", "spending", "taro", "--as-of", "2026-01-01T00:00:09Z", "--columns", "total, last"
        )
        assert done.rows == [{"user": "taro", "total": 8, "last": {"amount": 6, "id": "o6"}}]

    def test_composite_keys_and_numbers(self, hayase_: Command, shop: Path) -> None:
        done = hayase_("tables", "get", "visits", '"jp"', 2, "--json-key")
        assert done.rows == [{"country": "jp", "number": 2, "count": 2}]
        assert hayase_("tables", "get", "visits", '"jp"', "2.0", "--json-key").rows == done.rows

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (("spending", "taroo"), 'table "spending" has no row "taroo"; did you mean "taro"?'),
            (("spending", "zed"), "`hayase tables scan spending` lists the rows there are"),
            (("spending", ""), "`hayase tables scan spending` lists the rows there are"),
            (("visits", "jp", "2"), 'has no row "jp" "2", but "jp" 2; write each part as JSON and add --json-key'),
            (("visits", "jp"), 'the key of table "visits" has 2 parts (country, number), and 1 was given'),
            (("spending", "a", "b"), "has 1 part (user), and 2 were given"),
            (("spending", "taro", "--columns", "totl"), 'did you mean "total"?'),
            (("spending", "taro", "--as-of", "yesterday"), '"yesterday" is not a time'),
            (("spending", "jiro", "--as-of", "2026-01-01T00:00:00Z"), "it came later: leave out --as-of"),
            (("spending", "taro", "--json-key"), "leave out --json-key"),
            (("spending", "[1]", "--json-key"), "cannot be part of a key"),
            (("empty", "taro"), 'table "empty" has no row "taro"'),
        ],
    )
    def test_what_is_not_there_says_what_to_do(
        self, hayase_: Command, shop: Path, args: tuple[str, ...], said: str
    ) -> None:
        done = hayase_("tables", "get", *args)
        assert done.code == 1
        assert done.out == ""
        assert said in done.err

    def test_before_the_oldest_fold(self, hayase_: Command, shop: Path) -> None:
        table = Pipeline.from_file(shop / "pipeline.yaml").declaration.table("spending")
        with contextlib.closing(open_own(shop / "home" / "tables" / "spending", table)) as own:
            own.fold(1_767_225_605_000_000, 1_767_225_605_000_000)
        (about,) = [row for row in hayase_("tables", "list").rows if row["name"] == "spending"]
        assert about["folded_before_us"] == 1_767_225_605_000_000
        done = hayase_("tables", "get", "spending", "taro", "--as-of", "2026-01-01T00:00:03Z")
        assert done.code == 1
        assert "the oldest time that can be asked for is 2026-01-01T00:00:04" in done.err
        assert hayase_("tables", "get", "spending", "taro", "--columns", "total").rows == [
            {"user": "taro", "total": 18}
        ]

    def test_before_the_first_run(self, hayase_: Command, declared: Path) -> None:
        assert 'table "spending" has no row "taro"' in hayase_("tables", "get", "spending", "taro").err

    @pytest.mark.usefixtures("terminal")
    def test_on_a_terminal(self, hayase_: Command, shop: Path) -> None:
        lines = hayase_("tables", "get", "spending", "hana").out.splitlines()
        assert [line.split()[:2] for line in lines[:2]] == [["user", "hana"], ["total", "12"]]


class TestScan:
    def test_all_rows_in_the_order_of_their_keys(self, hayase_: Command, shop: Path) -> None:
        assert [row["user"] for row in hayase_("tables", "scan", "spending").rows] == list(USERS)

    def test_prefixes(self, hayase_: Command, shop: Path) -> None:
        rows = hayase_("tables", "scan", "visits", "nz").rows
        assert [(row["country"], row["number"]) for row in rows] == [("nz", 0), ("nz", 1), ("nz", 2)]
        assert hayase_("tables", "scan", "visits", '"nz"', 1, "--json-key").rows == rows[1:2]
        assert [row["user"] for row in hayase_("tables", "scan", "spending", "--begins", "t").rows] == ["taro"]
        assert hayase_("tables", "scan", "visits", "--begins", "n").rows == rows

    def test_pages_do_not_show(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole = hayase_("tables", "scan", "visits").out
        monkeypatch.setattr(hayase.cli.tables, "TOGETHER", 2)
        assert hayase_("tables", "scan", "visits").out == whole
        for limit in (0, 1, 2, 3, 100):
            assert hayase_("tables", "scan", "visits", "--limit", limit).out == "".join(whole.splitlines(True)[:limit])

    def test_while_the_pipeline_runs(self, hayase_: Command, shop: Path) -> None:
        pipeline = Pipeline.from_file(shop / "pipeline.yaml")
        with pipeline.home.lock(), contextlib.closing(InProcess(pipeline.home, now_us)) as running:
            before = hayase_("tables", "get", "spending", "taro", "--columns", "total").rows
            pipeline.append("orders", [order(14)])
            running.run_until_idle()
            after = hayase_("tables", "get", "spending", "taro", "--columns", "total").rows
        assert (before[0]["total"], after[0]["total"]) == (18, 32)

    def test_as_of_and_columns(self, hayase_: Command, shop: Path) -> None:
        done = hayase_("tables", "scan", "spending", "--as-of", "2026-01-01T00:00:01Z", "--columns", "total")
        assert done.rows == [{"user": "hana", "total": 0}, {"user": "jiro", "total": 1}]

    def test_nothing_there(self, hayase_: Command, shop: Path) -> None:
        for args in (("empty",), ("visits", "fr"), ("spending", "--begins", "zz")):
            assert hayase_("tables", "scan", *args) == Answer(0, "", "")

    def test_wrong_prefixes(self, hayase_: Command, shop: Path) -> None:
        assert "--begins speaks of the part behind" in hayase_("tables", "scan", "spending", "a", "--begins", "b").err
        assert "has 1 part (user), and 2 were given" in hayase_("tables", "scan", "spending", "a", "b").err
        assert hayase_("tables", "scan", "spending", "--limit", "-1").code == 2

    @pytest.mark.usefixtures("terminal")
    def test_on_a_terminal(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hayase.cli.tables, "TOGETHER", 3)
        lines = hayase_("tables", "scan", "spending").out.splitlines()
        assert lines[0].split() == ["#", "user", "total", "last", "by_country", "countries"]
        assert [line.split()[:2] for line in lines[2:]] == [[str(at), user] for at, user in enumerate(USERS, 1)]
        assert hayase_("tables", "scan", "empty").err == "no rows in empty yet\n"
        assert hayase_("tables", "scan", "visits", "fr").err == "no rows in visits with such keys\n"

    def test_a_reader_that_has_seen_enough(self, shop: Path) -> None:
        code = "import hayase.cli, hayase.cli.tables as t; t.TOGETHER = 1; hayase.cli.program()"
        command = [sys.executable, "-c", code, "tables", "scan", "visits"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as done:
            assert done.stdout is not None
            assert done.stderr is not None
            assert json.loads(done.stdout.readline())["country"] == "jp"
            done.stdout.close()
            assert "Traceback" not in done.stderr.read()


class TestExport:
    def test_parquet_has_the_types_of_the_columns(
        self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hayase.cli.tables, "TOGETHER", 3)
        done = hayase_("tables", "export", "spending", "s.parquet")
        assert done == Answer(0, "wrote 4 rows of spending to s.parquet\n", "")
        table = pq.read_table(shop / "s.parquet")
        assert table.schema.field("total").type == pa.float64()
        assert table.schema.field("last").type == pa.string()
        assert table.column("user").to_pylist() == list(USERS)
        assert table.column("total").to_pylist() == [12.0, 15.0, 18.0, 21.0]
        assert json.loads(table.column("last")[2].as_py()) == {"amount": 10, "id": "o10"}
        assert table.column("countries").to_pylist() == [["jp"], ["nz"], ["jp"], ["nz"]]
        assert table.column("by_country").to_pylist()[3] == [("nz", 21.0)]
        assert not list(shop.glob(".*.part"))

    def test_ndjson_is_what_a_scan_says(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("tables", "export", "visits", "v.ndjson").code == 0
        assert (shop / "v.ndjson").read_text() == hayase_("tables", "scan", "visits").out

    def test_csv_and_some_columns(self, hayase_: Command, shop: Path) -> None:
        done = hayase_("tables", "export", "spending", "s.csv")
        assert done.code == 1
        assert 'column "by_country" has parts, which CSV cannot hold' in done.err
        assert not (shop / "s.csv").exists()
        assert hayase_("tables", "export", "spending", "s.csv", "--columns", "total,last").code == 0
        table = pyarrow.csv.read_csv(shop / "s.csv")
        assert table.column_names == ["user", "total", "last"]
        assert table.num_rows == 4

    def test_as_of(self, hayase_: Command, shop: Path) -> None:
        done = hayase_("tables", "export", "spending", "s.parquet", "--as-of", "2026-01-01T00:00:01Z")
        assert done.out == "wrote 2 rows of spending to s.parquet\n"

    @pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
    def test_an_empty_table(self, hayase_: Command, declared: Path, suffix: str) -> None:
        assert hayase_("tables", "export", "empty", f"e.{suffix}").out == f"wrote 0 rows of empty to e.{suffix}\n"
        if suffix == "parquet":
            assert pq.read_table(declared / "e.parquet").schema.field("seen").type == pa.int64()

    def test_numbers_that_do_not_fit_are_told(self, hayase_: Command, shop: Path, tmp_path: Path) -> None:
        rows = [{"user": "a", "total": 2**60 + 1, "by_country": {"jp": Decimal("0.12345678901234567890123")}},
                {"user": "b", "total": 0.5, "by_country": {}}]  # fmt: skip
        from hayase.cli.exports import write_table

        table = Pipeline.from_file(shop / "pipeline.yaml").declaration.table("spending")
        done = write_table(table, ["total", "by_country"], [rows], tmp_path / "n.parquet")
        assert (done.rows, done.rounded) == (2, {"total": 1, "by_country": 1})
        assert pq.read_table(tmp_path / "n.parquet").column("total").to_pylist() == [float(2**60 + 1), 0.5]
        assert write_table(table, None, [rows], tmp_path / "n.ndjson").rounded == {}
        assert "0.12345678901234567890123" in (tmp_path / "n.ndjson").read_text()

    def test_a_number_beyond_all_doubles_is_an_error(self, shop: Path, tmp_path: Path) -> None:
        from hayase.cli.exports import write_table
        from hayase.core.errors import HayaseError

        table = Pipeline.from_file(shop / "pipeline.yaml").declaration.table("spending")
        with pytest.raises(HayaseError, match=r'column "total".*export to \.ndjson'):
            write_table(table, ["total"], [[{"user": "a", "total": Decimal("1e390")}]], tmp_path / "n.parquet")
        assert not (tmp_path / "n.parquet").exists()

    def test_files_that_cannot_be(self, hayase_: Command, shop: Path) -> None:
        assert "does not say what format" in hayase_("tables", "export", "spending", "s.txt").err
        assert "Parquet compresses by itself" in hayase_("tables", "export", "spending", "s.csv.gz").err
        assert "cannot be written" in hayase_("tables", "export", "spending", "no/s.parquet").err


class TestOnScreen:
    def test_sets_and_maps_have_an_entry_to_a_line(self) -> None:
        text = shown(row_grid({"user": "taro", "tags": ["a", 1], "by_day": {"mon": 1.5}, "none": None}, ["user"]))
        assert [line.split() for line in text.splitlines()] == [
            ["user", "taro"], ["tags", "a"], ["1"], ["by_day", "mon:", "1.5"], ["none", "null"]
        ]  # fmt: skip

    def test_a_table_that_nothing_feeds(self, declared: Path) -> None:
        table = Pipeline.from_file(declared / "pipeline.yaml").declaration.table("empty")
        about = {"name": "empty", "key": ["user"], "rows_about": 0, "updates_about": 0, "bytes": 0,
                 "folded_before_us": 5_000_000, "clock_us": -(2**62)}  # fmt: skip
        text = shown(table_details(about, table, []))
        assert "no rule feeds it" in text
        assert "1970-01-01 00:00:05: rows can be read as of then and later" in text
        assert "—" in shown(table_list([{**about, "folded_before_us": None}]))


@pytest.mark.parametrize("command", ["list", "show", "get", "scan", "export"])
def test_every_command_has_help_with_an_example(hayase_: Command, command: str) -> None:
    assert f"Example: hayase tables {command}" in hayase_("tables", command, "--help").out
