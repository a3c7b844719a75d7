"""`hayase query`: files in, results out, and errors that say what to do. In this process, without Spark."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command_line import Answer, Command, answer

ORDERS = """\
time,user,amount
2026-01-01T00:00:00Z,taro,1.5
2026-01-01T00:00:02Z,hana,2
2026-01-01T00:00:01Z,taro,4
2026-01-01T00:00:05Z,hana,8
"""
assert pd.DataFrame  # the command leaves pandas alone where it is loaded, as here for tests of other things
SPEND = "select user, sum(amount) as spend from o [Range 2 seconds] group by user"


@pytest.fixture
def query(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs `hayase query` as the entry point does, in a directory with orders.csv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders.csv").write_text(ORDERS)

    def command(*args: object, stdin: bytes = b"") -> Answer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        return answer(capfd, monkeypatch, "query", *args)

    return command


def second(count: int) -> str:
    return f"2026-01-01T00:00:0{count}+00:00"


class TestAnswers:
    def test_a_stream_gives_its_records_in_time_order(self, query: Command) -> None:
        answer = query("select user, amount * 2 as twice from o where amount > 1.8", "-s", "o=orders.csv")
        assert [(row["user"], row["twice"], row["event_time"]) for row in answer.rows] == [
            ("taro", 8.0, second(1)), ("hana", 4.0, second(2)), ("hana", 16.0, second(5))
        ]  # fmt: skip
        assert (answer.code, answer.err) == (0, "")

    def test_strict_is_content_if_nothing_is_refused(self, query: Command) -> None:
        assert query("select user from o", "-s", "o=orders.csv", "--strict").code == 0

    def test_a_file_without_a_header_has_the_columns_of_the_schema(self, query: Command) -> None:
        Path("bare.csv").write_text("\n2026-01-01T00:00:01Z,taro,4\n2026-01-01T00:00:02Z,hana,none\n")
        schema = "time timestamp, user string, amount double"
        answer = query("select user, amount from o", "-s", "o=bare.csv", "--schema", schema, "--no-header")
        assert [(row["user"], row["amount"]) for row in answer.rows] == [("taro", 4.0)]
        assert (answer.code, answer.err.count("could not be taken")) == (0, 1)
        strict = query("select user, amount from o", "-s", "o=bare.csv", "--schema", schema, "--no-header", "--strict")
        assert strict.code == 1, "a record is refused, and CI should see it"
        assert (strict.out, strict.err) == (answer.out, answer.err)
        assert 'line 3: column "amount" must be double, not "none"' in answer.err
        answer = query("select user, amount from o", "-s", "o=bare.csv", "--no-header")
        assert answer.code == 2
        assert "files without a header need their columns" in answer.err.replace("\n", " ")

    def test_a_relation_gives_intervals(self, query: Command) -> None:
        rows = query(SPEND, "-s", "o=orders.csv").rows
        assert [(row["user"], row["spend"], row["valid_from"], row["valid_to"]) for row in rows] == [
            ("taro", 1.5, second(0), second(1)),
            ("taro", 5.5, second(1), second(2)),
            ("taro", 4.0, second(2), second(3)),
            ("hana", 2.0, second(2), second(4)),
            ("hana", 8.0, second(5), None),
        ]

    def test_changes(self, query: Command) -> None:
        rows = query(SPEND, "-s", "o=orders.csv", "--emit", "changes").rows
        assert [(row["event_time"][-8:-6], row["change"], row["user"], row["spend"]) for row in rows] == [
            ("00", "+", "taro", 1.5), ("01", "-", "taro", 1.5), ("01", "+", "taro", 5.5), ("02", "-", "taro", 5.5),
            ("02", "+", "taro", 4.0), ("02", "+", "hana", 2.0), ("03", "-", "taro", 4.0), ("04", "-", "hana", 2.0),
            ("05", "+", "hana", 8.0),
        ]  # fmt: skip

    def test_what_is_valid_at_the_end_and_at_a_time(self, query: Command) -> None:
        assert query(SPEND, "-s", "o=orders.csv", "--emit", "final").rows == [{"user": "hana", "spend": 8.0}]
        at = query(SPEND, "-s", "o=orders.csv", "--at", "2026-01-01T00:00:02Z").rows
        assert at == [{"user": "taro", "spend": 4.0}, {"user": "hana", "spend": 2.0}]
        late = query(SPEND, "-s", "o=orders.csv", "--at", "2027-01-01T00:00:00Z")
        assert late.code == 1
        assert "is final up to 2026-01-01T00:00:05Z" in late.err

    def test_several_streams(self, query: Command, tmp_path: Path) -> None:
        (tmp_path / "users of 2026").write_text('{"at": 1, "name": "taro", "city": "Kyoto"}\n')
        (tmp_path / "orders.csv").write_text("ms,user,n\n1000,taro,1\n2000,hana,2\n")
        answer = query(
            "select city, n from o, u where o.user = u.name", "-s", "o=orders.csv", "-s", "u=users of 2026",
            "--time", "o=ms", "--time", "u=at", "--time-unit", "ms", "--emit", "final",
        )  # fmt: skip
        assert answer.rows == [{"city": "Kyoto", "n": 1}], answer.err


class TestFormats:
    def test_a_table(self, query: Command) -> None:
        answer = query("select user, amount from o", "-s", "o=orders.csv", "--format", "table")
        lines = answer.out.splitlines()
        assert lines[0].split() == ["user", "amount", "event_time"]
        assert lines[2] == "taro     1.5  2026-01-01 00:00:00"

    def test_csv(self, query: Command) -> None:
        answer = query("select user, amount from o", "-s", "o=orders.csv", "--format", "csv")
        assert [row["user"] for row in csv.DictReader(io.StringIO(answer.out))] == ["taro", "taro", "hana", "hana"]

    @pytest.mark.parametrize("name", ["a.csv", "a.json", "a.parquet", "a.txt"])
    def test_into_a_file(self, query: Command, tmp_path: Path, name: str) -> None:
        answer = query("select user, amount from o", "-s", "o=orders.csv", "-o", name)
        assert (answer.code, answer.out, answer.err) == (0, "", "")
        if name.endswith(".parquet"):
            assert pq.read_table(tmp_path / name).num_rows == 4
        else:
            assert len((tmp_path / name).read_text().splitlines()) == 4 + {".csv": 1, ".txt": 2}.get(name[1:], 0)

    def test_a_file_of_no_known_kind(self, query: Command) -> None:
        answer = query("select user, amount from o", "-s", "o=orders.csv", "-o", "answer")
        assert answer.code == 2
        assert "does not say what to write" in answer.err

    def test_a_reader_that_goes_away(self, query: Command, tmp_path: Path) -> None:
        many = "".join(f"{at},{'x' * 100}\n" for at in range(5000))
        (tmp_path / "many.csv").write_text("t,v\n" + many)
        command = [sys.executable, "-c", "import hayase.cli; hayase.cli.program()", "query", "select v from s",
                   "-s", f"s={tmp_path / 'many.csv'}", "--time", "t", "--time-unit", "ms"]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().startswith(b'{"v"')
            process.stdout.close()
            assert process.stderr.read() == b""


class TestFiles:
    @pytest.mark.parametrize("name", ["-", "orders.csv.gz", "orders.ndjson", "orders.parquet", "my orders, 2026"])
    def test_formats(self, query: Command, tmp_path: Path, name: str) -> None:
        rows = list(csv.DictReader(io.StringIO(ORDERS)))
        lines = "".join(json.dumps({**row, "amount": float(row["amount"])}) + "\n" for row in rows)
        content = {
            "orders.csv.gz": gzip.compress(ORDERS.encode()),
            "orders.ndjson": lines.encode(),
            "my orders, 2026": ORDERS.encode(),
        }
        if name in content:
            (tmp_path / name).write_bytes(content[name])
        elif name == "orders.parquet":
            pq.write_table(pa.Table.from_pylist([{**row, "amount": float(row["amount"])} for row in rows]), name)
        schema = ["--schema", "time timestamp, user string, amount double"] if name == "orders.parquet" else []
        answer = query("select user from o where amount > 5", "-s", f"o={name}", *schema, stdin=ORDERS.encode())
        assert [row["user"] for row in answer.rows] == ["hana"], answer.err

    def test_several_files_of_one_stream(self, query: Command, tmp_path: Path) -> None:
        (tmp_path / "more.csv").write_text("time,user,amount,note\n2026-01-01T00:00:00Z,jiro,3,x\n")
        answer = query(
            "select user, note from o where amount = 3 or amount = 8", "-s", "o=orders.csv", "-s", "o=more.csv"
        )
        assert [(row["user"], row["note"]) for row in answer.rows] == [("jiro", "x"), ("hana", None)]

    def test_a_day_can_be_the_time(self, query: Command, tmp_path: Path) -> None:
        (tmp_path / "days.csv").write_text("day,n\n2026-01-02,2\n2026-01-01,1\n")
        answer = query("select n from d", "-s", "d=days.csv", "--time", "day")
        assert [row["n"] for row in answer.rows] == [1, 2]

    def test_disorder_is_taken_as_it_is_unless_slack_is_given(self, query: Command) -> None:
        count = "select user, count(*) as n from o where user = 'taro' group by user"
        assert query(count, "-s", "o=orders.csv", "--emit", "final").rows == [{"user": "taro", "n": 2}]
        answer = query(count, "-s", "o=orders.csv", "--emit", "final", "--slack", "500 ms")
        assert answer.rows == [{"user": "taro", "n": 1}]
        assert "1 record could not be taken" in answer.err

    def test_records_that_do_not_fit_are_told_of(self, query: Command, tmp_path: Path) -> None:
        (tmp_path / "odd.ndjson").write_text('{"t": "2026-01-01T00:00:00Z", "n": 1}\nnonsense\n')
        answer = query("select n from s", "-s", "s=odd.ndjson")
        assert [row["n"] for row in answer.rows] == [1]
        assert answer.err.startswith("1 record could not be taken:\n  s: ")
        assert "nonsense" in answer.err


class TestMistakes:
    def test_in_the_query(self, query: Command) -> None:
        answer = query("select user,\n  amont from o", "-s", "o=orders.csv")
        assert answer.code == 1
        assert '2:3: unknown column "amont"' in answer.err
        assert '"amount"?' in answer.err
        assert answer.err.endswith("\n    amont from o\n    ^\n")

    @pytest.mark.parametrize(
        ("args", "said"),
        [
            (["-s", "o=none.csv"], 'there is no file "none.csv" for stream "o"'),
            (["-s", "orders.csv"], "write it like --stream orders=orders.csv"),
            (["-s", "o=."], "is a directory"),
            (["-s", "o=empty.csv"], '"empty.csv" is empty'),
            (["-s", "o=binary"], "not clear from its name nor from its first line"),
            (["-s", "o=array.json"], "is one JSON array"),
            (["-s", "o=mixed.ndjson"], 'column "a" of "mixed.ndjson" has values of several types, 1 and "x"'),
            (["-s", "o=orders.csv", "--time", "tim"], 'unknown time column "tim" in stream "o"; did you mean "time"?'),
            (["-s", "o=orders.csv", "--time", "p=time"], 'unknown stream "p" in --time'),
            (["-s", "o=orders.csv", "--slack", "much"], '"much" is not a duration'),
            (["-s", "o=numbers.csv", "--time", "a"], "say what it counts with --time-unit, one of s, ms, us"),
            (["-s", "o=numbers.csv", "--time", "a", "--time-unit", "day"], "say what it counts with --time-unit, one of"),
            (["-s", "o=orders.csv", "--time-unit", "ms"], "this one is a timestamp; leave --time-unit out"),
            (["-s", "o=numbers.csv"], "say it with --time. Its columns are a (int64), b (int64)"),
            (["-s", "o=-", "-s", "p=-"], "stdin can be read once only"),
            (["-s", "o o=orders.csv"], "cannot be the name of a stream"),
        ],
    )  # fmt: skip
    def test_in_the_options(self, query: Command, tmp_path: Path, args: list[str], said: str) -> None:
        (tmp_path / "empty.csv").write_text("")
        (tmp_path / "binary").write_bytes(bytes(range(256)))
        (tmp_path / "array.json").write_text('[{"a": 1}]')
        (tmp_path / "mixed.ndjson").write_text('{"a": 1}\n{"a": "x"}\n')
        (tmp_path / "numbers.csv").write_text("a,b\n1,2\n")
        answer = query("select * from o", *args)
        assert answer.code == 1
        assert said in answer.err
        assert answer.out == ""

    def test_nothing_to_read(self, query: Command) -> None:
        answer = query("select * from o")
        assert answer.code == 2
        assert "say what the query reads" in answer.err

    def test_help_has_examples(self, query: Command) -> None:
        answer = query("--help")
        assert answer.code == 0
        assert 'hayase query "select count(*)' in answer.out
