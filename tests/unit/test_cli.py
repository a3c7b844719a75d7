"""The commands in this process, without Spark: what they print, what they refuse, and their exit codes."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import httpx
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import hayase.cli
import hayase.cli.append
from command_line import Command
from hayase.console.listings import findings, ratios
from hayase.console.stop_signals import Stopping
from hayase.core.clock import now_us
from hayase.core.followed_directory import Following, list_files
from hayase.engine.commit.ledger import Ledger
from hayase.engine.commit.manifests import Manifest
from hayase.engine.doctor import Facts, diagnose
from hayase.engine.home import Home
from hayase.engine.local import InProcess
from hayase.pipeline import Pipeline

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  events:
    schema: time timestamp, user string, amount double
    time: time
queries:
  large: select user, amount from events where amount > 1
  totals: select user, count(*) as n from events group by user
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline file, in which commands run."""
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(*amounts: object, first: int = 0) -> str:
    rows = [
        {"time": f"2026-01-01T00:00:{at:02d}Z", "user": "hana", "amount": each}
        for at, each in enumerate(amounts, first)
    ]
    return "".join(json.dumps(row) + "\n" for row in rows)


def records(command: Command, stream: str = "events") -> list[dict[str, object]]:
    return [json.loads(line) for line in command("streams", "tail", stream, "-n", 1_000_000).out.splitlines()]


class TestProject:
    def test_what_init_writes_is_sound_and_is_not_overwritten(self, hayase_: Command, tmp_path: Path) -> None:
        assert hayase_("init", tmp_path / "new").code == 0
        assert "is sound: 1 stream, 2 stages" in hayase_("check", tmp_path / "new" / "pipeline.yaml").out
        again = hayase_("init", tmp_path / "new")
        assert again.code == 1
        assert "already has" in again.err

    def test_check_lists_every_mistake_with_its_place(self, hayase_: Command, shop: Path) -> None:
        text = PIPELINE.replace("amount > 1", "prise > 1").replace("count(*)", "count(usr)")
        (shop / "pipeline.yaml").write_text(text)
        answer = hayase_("check", "pipeline.yaml")
        assert answer.code == 1
        places = [line.split(": ")[0] for line in answer.err.splitlines()]
        assert [place.rsplit(":", 2)[0] for place in places] == ["pipeline.yaml"] * 2
        assert answer.out == ""

    def test_check_shows_tables_with_what_feeds_them(self, hayase_: Command, shop: Path) -> None:
        tables = (
            "tables:\n  spending: {key: user, columns: {total: Counter, last: Register}, horizon: 3 days}\n"
            "  idle: {key: user, columns: {count: Counter}}\n"
            "rules:\n  source: events\n  rules: [{tables: {spending: {key: .user, columns: {total: .amount}}}}]\n"
        )
        text = PIPELINE.replace("time: time", "time: time\n    id: user") + tables
        (shop / "pipeline.yaml").write_text(text)
        answer = hayase_("check")
        assert answer.code == 0
        lines = [line.split() for line in answer.out.splitlines()]
        assert ["spending", "user", "total", "Counter", "events", "1", "day", "3", "days"] in lines
        assert ["last", "Register"] in lines
        assert ["idle", "user", "count", "Counter", "nothing", "yet", "1", "day", "7", "days"] in lines

    def test_check_compiles_every_rule(self, hayase_: Command, shop: Path) -> None:
        rules = (
            "tables: {spending: {key: user, columns: {total: Counter}}}\n"
            "rules:\n  source: events\n  rules:\n"
            "    - {when: .amount >, tables: {spending: {key: .user, columns: {total: .amount}}}}\n"
            "    - {tables: {spending: {key: .user, columns: {totl: .amount}}}}\n"
        )
        (shop / "pipeline.yaml").write_text(PIPELINE.replace("time: time", "time: time\n    id: user") + rules)
        answer = hayase_("check")
        assert answer.code == 1
        assert answer.err.startswith("pipeline.yaml:15:")

    def test_a_part_that_cannot_be_read_hides_no_other_mistake(
        self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "functions.py").write_text("def good(record): return record\n")
        (tmp_path / "pipeline.yaml").write_text("""\
pipeline: shop
streams:
  s: {schema: "ts timestamp, id string, user string", time: ts, id: id}
  bad: {schema: "ts timestamp, user strin", time: ts}
queries:
  q1: select nope from s
  q2: select user from unknown
  q3: select user from bad
  q4: select user from o1
  q5: select y from written
  q6: select loud(user) as l from s
aggregates: {loud: "functions:none"}
tables:
  seen: {key: user, columns: {count: Countr}}
  broken: {columns: {count: Counter}}
rules:
  source: nostream
  rules:
    - tables: {broken: {key: .user, columns: {count: "1"}}}
jobs:
  j: {reads: s, every: nonsense, steps: [{map: "functions:good", writes: written}]}
operations:
  o1: {reads: zzz, function: "functions:good", schema: "user strin"}
  o2: {reads: s, function: "functions:missing"}
  o3: {reads: bad, function: "functions:good"}
  o4: {reads: s, function: "functions:gone", schema: "user strin"}
governor: {policy: other}
""")
        answer = hayase_("check")
        assert answer.code == 1
        said = sorted(answer.err.splitlines(), key=lambda line: int(line.split(":")[1]))
        expected = [
            (4, 'schema of stream "bad": column "user": unknown type "strin"'),
            (6, 'unknown column "nope"'),
            (7, 'unknown stream "unknown"'),
            (12, 'aggregate "loud"'),
            (14, 'unknown type "Countr"'),
            (15, 'table "broken" has no key'),
            (17, 'unknown stream "nostream"'),
            (21, 'every of job "j"'),
            (23, 'schema of operation "o1": column "user": unknown type "strin"'),
            (23, 'unknown stream "zzz" of operation "o1"'),
            (24, 'functions has no "missing"'),
            (26, 'schema of operation "o4"'),
            (26, 'functions has no "gone"'),
            (27, 'unknown policy "other"'),
        ]
        assert len(said) == len(expected), answer.err
        for line, (number, message) in zip(said, expected):
            assert line.startswith(f"pipeline.yaml:{number}:")
            assert message in line

    def test_a_missing_file_is_a_clean_error(self, hayase_: Command, shop: Path) -> None:
        answer = hayase_("check", "nowhere.yaml")
        assert answer.code == 1
        assert answer.err == 'nowhere.yaml: there is no such file; write one, or let "hayase init DIR" do it\n'

    def test_verbose_gives_the_traceback(self, hayase_: Command, shop: Path) -> None:
        with pytest.raises(hayase.HayaseError):
            hayase_("-v", "check", "nowhere.yaml")

    def test_apply_makes_a_version_once(self, hayase_: Command, shop: Path) -> None:
        assert "is now version 1 of shop; the next run begins with it" in hayase_("apply").out
        assert "nothing has changed" in hayase_("apply").out

    def test_reset_names_the_stages_that_begin_anew(self, hayase_: Command, shop: Path) -> None:
        hayase_("apply")
        assert hayase_("reset", "totals", "--from", "now").out == (
            "totals will begin anew from now in the next run (version 2)\n"
        )
        assert 'did you mean "totals"?' in hayase_("reset", "total", "--from", "now").err
        assert hayase_("reset", "totals", "--from", "yesterday").code == 2


class TestAppend:
    def test_a_record_that_does_not_fit_is_refused_alone(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.ndjson").write_text(lines(1, "a lot", 3))
        answer = hayase_("append", "events", "a.ndjson")
        assert answer.out == "appended 2 records to events (1 refused: see `hayase dead list`)\n"
        assert [row["amount"] for row in records(hayase_)] == [1, 3]
        assert "a lot" in str(records(hayase_, "_dead")[0]["record"])

    def test_several_files_and_formats_in_the_order_given(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.csv").write_text("time,user,amount\n2026-01-01T00:00:00Z,hana,1\n")
        (shop / "b.ndjson.gz").write_bytes(gzip.compress(lines(2).encode()))
        assert hayase_("append", "events", "b.ndjson.gz", "a.csv").out == "appended 2 records to events\n"
        assert [row["amount"] for row in records(hayase_)] == [2, 1]

    def test_all_files_are_looked_at_before_the_first_is_appended(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.ndjson").write_text(lines(1))
        answer = hayase_("append", "events", "a.ndjson", "missing.csv")
        assert answer.code == 1
        assert 'there is no file "missing.csv"' in answer.err
        assert records(hayase_) == []

    def test_a_pipe_is_ndjson(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines(1, 2).encode())))
        assert hayase_("append", "events", "-").out == "appended 2 records to events\n"

    def test_a_repeat_by_a_producer_adds_nothing(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.ndjson").write_text(lines(1, "x", 3))
        hayase_("append", "events", "a.ndjson", "--producer", "import")
        again = hayase_("append", "events", "./a.ndjson", "--producer", "import")
        assert again.out == "appended 0 records to events (2 were there already)\n"
        assert len(records(hayase_)) == 2
        assert len(records(hayase_, "_dead")) == 1

    def test_a_producer_goes_on_where_it_was_killed(
        self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("hayase.streams.file_formats.CHUNK_RECORDS", 2)
        (shop / "a.ndjson").write_text(lines(*range(1, 8)))
        appended = hayase.cli.append.read_chunks

        def killed(*args: object) -> object:
            for count, each in enumerate(appended(*args)):  # type: ignore[arg-type]
                if count == 2:
                    raise KeyboardInterrupt
                yield each

        with monkeypatch.context() as patch:
            patch.setattr(hayase.cli.append, "read_chunks", killed)
            assert hayase_("append", "events", "a.ndjson", "--producer", "import").code == 130
        answer = hayase_("append", "events", "a.ndjson", "--producer", "import")
        assert answer.out == "appended 1 record to events (6 were there already)\n"
        assert [row["amount"] for row in records(hayase_)] == list(range(1, 8))

    def test_a_file_that_has_grown_since_is_not_half_taken_in_silence(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.ndjson").write_text(lines(1))
        hayase_("append", "events", "a.ndjson", "--producer", "import")
        (shop / "a.ndjson").write_text(lines(1, 2))
        answer = hayase_("append", "events", "a.ndjson", "--producer", "import")
        assert answer.code == 1
        assert "is not what it was" in answer.err

    def test_the_results_of_a_query_take_no_records(self, hayase_: Command, shop: Path) -> None:
        (shop / "a.ndjson").write_text(lines(1))
        assert "written by the query" in hayase_("append", "totals", "a.ndjson").err

    def test_a_home_is_enough(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (shop / "a.ndjson").write_text(lines(1))
        hayase_("append", "events", "a.ndjson")
        (shop / "elsewhere").mkdir()
        monkeypatch.chdir(shop / "elsewhere")
        assert "there is no pipeline.yaml here" in hayase_("append", "events", "../a.ndjson").err
        assert hayase_("append", "events", "../a.ndjson", "--home", "../home").out == "appended 1 record to events\n"
        assert hayase_("append", "events", "../a.ndjson", "-p", "../pipeline.yaml").code == 0
        assert "not the home of a pipeline" in hayase_("streams", "list", "--home", "nowhere").err

    @pytest.mark.parametrize("args", [(), ("events", "a.csv", "--follow", "."), ("events", "--poll", "0")])
    def test_wrong_usage_exits_with_2(self, hayase_: Command, shop: Path, args: tuple[str, ...]) -> None:
        assert hayase_("append", *args).code == 2


class TestFollow:
    def test_files_are_taken_once_in_name_order_until_a_signal(
        self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drop = shop / "drop"
        drop.mkdir()
        (drop / "b.ndjson").write_text(lines(2))
        (drop / "a.ndjson").write_text(lines(1))
        (drop / "c.ndjson.part").write_text(lines(3))
        (drop / "d.csv").write_text("what\n1\n")
        looks = iter(range(100))

        def wait(self: Stopping, seconds: float) -> bool:
            match next(looks):
                case 1 if (drop / "c.ndjson.part").exists():
                    (drop / "c.ndjson.part").rename(drop / "c.ndjson")
                case 4:
                    os.kill(os.getpid(), signal.SIGTERM)
            return bool(self)

        monkeypatch.setattr(Stopping, "wait", wait)
        answer = hayase_("append", "events", "--follow", drop)
        assert answer.code == 0
        assert [line.partition(":")[0] for line in answer.out.splitlines()[:-1]] == ["a.ndjson", "b.ndjson", "c.ndjson"]
        assert "left out d.csv" in answer.err
        assert [row["amount"] for row in records(hayase_)] == [1, 2, 3]

        looks = iter(range(100))
        assert (
            hayase_("append", "events", "--follow", drop).out == "appended 0 records to events (3 were there already)\n"
        )
        assert len(records(hayase_)) == 3

    def test_a_file_that_grows_is_left_until_it_rests(self) -> None:
        state = Following()
        for now, ready in (({"a": (1, 1)}, []), ({"a": (2, 2)}, []), ({"a": (2, 2)}, ["a"])):
            assert state.ready(now) == ready
            state = state.after(now, ready)
        assert state.ready({"a": (2, 2)}) == []

    def test_names_of_unfinished_files_and_directories_are_passed_over(self, tmp_path: Path) -> None:
        for name in (".hidden.csv", "a.csv.tmp", "b.csv~", "c.csv"):
            (tmp_path / name).touch()
        (tmp_path / "directory.csv").mkdir()
        assert list(list_files(tmp_path)) == ["c.csv"]


class TestStreams:
    @pytest.fixture(autouse=True)
    def run(self, shop: Path) -> None:
        pipeline = Pipeline.from_file(shop / "pipeline.yaml")
        for at in range(3):
            pipeline.append("events", [json.loads(lines(at, first=at))])
        pipeline.run_until_idle(spark=False)
        pipeline.append("events", [json.loads(lines(9, first=9))])

    def test_list_has_streams_results_and_dead_letters(self, hayase_: Command) -> None:
        found = [json.loads(line) for line in hayase_("streams", "list").out.splitlines()]
        assert {each["name"]: (each["kind"], each["records"]) for each in found} == {
            "events": ("stream", 4),
            "large": ("results", 1),
            "totals": ("results", 2),  # the latest may still have company
        }

    def test_show_tells_how_far_the_readers_are(self, hayase_: Command) -> None:
        about = json.loads(hayase_("streams", "show", "events").out)
        assert about["readers"] == {"large": {"at": 3, "behind": 1}, "totals": {"at": 3, "behind": 1}}
        assert (about["start"], about["next"], about["segments"]) == (0, 4, 4)
        assert about["latest_us"] - about["earliest_us"] == 9_000_000

    def test_a_terminal_gets_tables(self, hayase_: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("hayase.cli.streams.as_json", lambda wanted: wanted)
        monkeypatch.setenv("COLUMNS", "120")
        listed = hayase_("streams", "list").out.splitlines()
        assert listed[0].split() == ["stream", "kind", "records", "size", "segments", "latest", "event"]
        assert [line.split()[:3] for line in listed[2:]] == [
            ["events", "stream", "4"], ["large", "results", "1"], ["totals", "results", "2"]
        ]  # fmt: skip
        shown = hayase_("streams", "show", "events").out
        for told in ("events (stream)", "amount  double", "1 d", "everything", "4 (offsets 0 to 3)", "at 3, 1 behind"):
            assert told in shown
        tailed = hayase_("streams", "tail", "events", "-n", 2).out.splitlines()
        assert "amount" in tailed[0]
        assert len(tailed) >= 3

    def test_tail_gives_the_last_ones_in_order(self, hayase_: Command) -> None:
        answer = hayase_("streams", "tail", "events", "-n", 2)
        assert [json.loads(line)["amount"] for line in answer.out.splitlines()] == [2, 9]
        assert hayase_("streams", "tail", "events", "-n", 0).out == ""

    def test_tail_f_ends_with_a_finished_stream(self, hayase_: Command) -> None:
        assert hayase_("streams", "finish", "events").out == "events is finished: it takes no more records\n"
        assert len(hayase_("streams", "tail", "events", "-f").out.splitlines()) == 4

    def test_a_query_cannot_be_finished_by_hand(self, hayase_: Command) -> None:
        assert "written by a query" in hayase_("streams", "finish", "totals").err

    @pytest.mark.parametrize("suffix", ["parquet", "csv", "ndjson"])
    def test_what_is_exported_can_be_appended(self, hayase_: Command, shop: Path, suffix: str) -> None:
        before = records(hayase_)
        assert hayase_("streams", "export", "events", f"e.{suffix}").out == f"wrote 4 records of events to e.{suffix}\n"
        assert hayase_("append", "events", f"e.{suffix}").out == "appended 4 records to events\n"
        assert records(hayase_) == before * 2
        assert not list(shop.glob(".*.part"))

    def test_an_empty_stream_is_exported_with_its_columns(self, hayase_: Command, shop: Path) -> None:
        assert hayase_("streams", "export", "_dead", "dead.parquet").code == 0
        assert pq.read_table(shop / "dead.parquet").num_rows == 0

    def test_an_unknown_format_or_stream_is_a_clean_error(self, hayase_: Command) -> None:
        assert "does not say what format" in hayase_("streams", "export", "events", "e.txt").err
        assert 'did you mean "events"?' in hayase_("streams", "tail", "event").err

    def test_compact_joins_segments(self, hayase_: Command) -> None:
        assert hayase_("streams", "compact", "events").out == "events: 4 segments, now 1\n"
        assert len(records(hayase_)) == 4


class TestServe:
    TOKEN = "0123456789abcdef"

    @pytest.fixture
    def asked(self, monkeypatch: pytest.MonkeyPatch) -> list[httpx.Response]:
        """Answers of the server of a pipeline that runs in this process; it stops when it has been asked."""
        answers: list[httpx.Response] = []

        @contextlib.contextmanager
        def running(
            home: Home, *, ledger: Ledger, on_commit: Callable[[Manifest], None], **_: object
        ) -> Iterator[object]:
            runner = InProcess(home, now_us)
            on_commit(runner.run_until_idle())
            lane = SimpleNamespace(manifest=runner.manifest, is_idle=lambda: True, check=lambda: None)
            url = re.search(r"http://\S+", sys.stdout.getvalue())  # type: ignore[attr-defined]
            assert url is not None
            headers = {"authorization": f"Bearer {self.TOKEN}"}
            answers.append(httpx.get(f"{url[0]}/streams"))
            answers.append(httpx.get(f"{url[0]}/streams", headers=headers))
            yield lane
            runner.close()

        monkeypatch.setattr("hayase.engine.spark.runner.run_lanes", running)
        return answers

    def test_the_address_is_printed_and_answers(
        self, hayase_: Command, shop: Path, asked: list[httpx.Response], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("HAYASE_TOKEN", raising=False)
        (shop / "a.ndjson").write_text(lines(1))
        hayase_("append", "events", "a.ndjson")
        done = hayase_("run", "--until-idle", "--address", "127.0.0.1:0")
        assert done.code == 0, done
        assert re.search(r"^serving at http://127\.0\.0\.1:\d+$", done.out, re.MULTILINE)
        assert [each.status_code for each in asked] == [200, 200]

    @pytest.mark.parametrize("place", ["file", "environment"])
    def test_with_a_token_every_request_needs_it(
        self, hayase_: Command, shop: Path, asked: list[httpx.Response], monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        (shop / "token").write_text(f"{self.TOKEN}\n")
        monkeypatch.setenv("HAYASE_TOKEN", self.TOKEN if place == "environment" else "another one, not used")
        given = ("--token-file", "token") if place == "file" else ()
        done = hayase_("run", "--until-idle", "--address", "127.0.0.1:0", *given)
        assert done.code == 0
        assert "(requests need the token)" in done.out
        assert self.TOKEN not in done.out + done.err
        assert [each.status_code for each in asked] == [401, 200]

    def test_what_cannot_be(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("HAYASE_TOKEN", raising=False)
        (shop / "empty").touch()
        assert hayase_("run", "--token-file", "empty").code == 2
        said = hayase_("run", "--serve", "--token-file", "empty").err
        assert 'there is no token in "empty"' in said
        assert "empty can be read by others: `chmod 600 empty`" in said
        assert 'cannot be read from "no"' in hayase_("run", "--serve", "--token-file", "no").err
        assert "there is no token; give one" in hayase_("run", "--address", "0.0.0.0:0").err
        assert "is not an address to serve at" in hayase_("run", "--address", "here").err


class TestDoctor:
    FACTS = Facts(
        system="Linux", python=(3, 11, 7), java=17, cores=2, memory=8 * 10**9, memory_free=10**9,
        disks={"/": 50 * 10**9}, packages={"pyspark": "4.3.0"}, required={"pyspark": ">=4.3,<4.4"},
    )  # fmt: skip

    def test_findings_and_ratios_on_a_terminal(self) -> None:
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(findings(diagnose(replace(self.FACTS, java=None))), ratios({"speed-up": 2.5, "batches": 3}))
        told = console.export_text()
        assert "✗  Java" in told
        assert "✓  Python" in told
        assert "JAVA_HOME" in told
        assert "2.5" in told

    def states(self, **changed: object) -> dict[str, str]:
        return {each.what: each.state for each in diagnose(replace(self.FACTS, **changed)) if each.state != "good"}  # type: ignore[arg-type]

    def test_packages_without_bytecode_are_slow(self) -> None:
        assert self.states(bytecode=False) == {"bytecode": "advice"}

    def test_a_good_machine_has_nothing_to_say(self) -> None:
        assert self.states() == {}

    @pytest.mark.parametrize(
        ("changed", "what", "state"),
        [
            ({"java": None}, "Java", "missing"),
            ({"java": 11}, "Java", "missing"),
            ({"python": (3, 10, 0)}, "Python", "missing"),
            ({"memory": 3 * 10**9}, "memory", "advice"),
            ({"memory": 10**9}, "memory", "missing"),
            ({"disks": {"/": 2 * 10**9}}, "disk /", "advice"),
            ({"packages": {"pyspark": "4.4.0"}}, "pyspark", "missing"),
        ],
    )
    def test_what_is_wrong_is_named(self, changed: dict[str, object], what: str, state: str) -> None:
        assert self.states(**changed) == {what: state}

    def test_every_complaint_says_what_to_do(self) -> None:
        from dataclasses import replace

        found = diagnose(
            replace(self.FACTS, java=None, python=(3, 9, 0), memory=1, disks={"/": 1}, packages={"pyspark": "1"})
        )
        assert all(each.advice for each in found if each.state != "good")


class TestBench:
    def test_ratios_are_printed_and_everything_is_written(
        self, hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "benchmarks").mkdir()
        (tmp_path / "benchmarks" / "__init__.py").touch()
        (tmp_path / "benchmarks" / "tiny.py").write_text(
            '"""Tiny: measures nothing."""\n'
            "def run(*, quick, out):\n"
            "    return {'quick': quick, 'out': str(out), 'ratios': {'reader/none': 0.95}}\n"
        )
        (tmp_path / "benchmarks" / "data.py").write_text('"""No benchmark."""\n')
        monkeypatch.setattr("hayase.cli.machine.benchmarks_directory", lambda: tmp_path / "benchmarks")
        monkeypatch.syspath_prepend(tmp_path)
        for loaded in [each for each in sys.modules if each.partition(".")[0] == "benchmarks"]:
            monkeypatch.delitem(sys.modules, loaded)
        assert hayase_("bench").out == "tiny         Tiny: measures nothing.\n"
        answer = hayase_("bench", "tiny", "--quick", "--json", tmp_path / "new" / "tiny.json")
        assert "0.95" in answer.out
        assert json.loads((tmp_path / "new" / "tiny.json").read_text())["quick"] is True
        assert 'did you mean "tiny"?' in hayase_("bench", "tinny").err


def test_version(hayase_: Command) -> None:
    assert hayase_("--version").out == f"hayase {hayase.__version__}\n"


@pytest.mark.parametrize(
    "command", ["init", "check", "run", "append", "apply", "reset", "doctor", "bench", "demo", "streams list",
                "streams show", "streams tail", "streams export", "streams compact", "streams finish", "tables list",
                "tables show", "tables get", "tables scan", "tables export", "rules try"]
)  # fmt: skip
def test_every_command_has_help_with_an_example(hayase_: Command, command: str) -> None:
    answer = hayase_(*command.split(), "--help")
    assert answer.code == 0
    assert f"Example: hayase {command}" in answer.out


class TestProgram:
    @pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["nonsense"], 2), (["check", "no.yaml"], 1)])
    def test_it_says_all_it_has_to_say_and_ends(self, arguments: list[str], code: int) -> None:
        command = [sys.executable, "-c", "import hayase.cli; hayase.cli.program()", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == code
        assert (done.stdout if code == 0 else done.stderr).strip()
        assert "Traceback" not in done.stderr
