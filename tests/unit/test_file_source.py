"""The source of files: formats, what is left out, files that cannot be read or were changed, large files, and its declaration."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from hayase import Files, Pipeline
from hayase.connectors import file_source
from hayase.connectors.file_source import FileSource
from hayase.connectors.intake import Intake
from hayase.connectors.source import SourceSetting
from hayase.core.connector_data import declared_source
from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import DeclarationError, EndpointError
from hayase.engine.file_ledger import FileLedger
from hayase.engine.home import Home
from hayase.engine.integrity.verification import verify
from hayase.streams import StreamLog, file_formats
from hayase.streams.dead_letters import DEAD

NOW = 1_800_000_000_000_000
LOGS = StreamDeclaration("logs", "time bigint, n bigint", "time", time_unit="s")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "SETTLE", 0.0)


def lines(*numbers: object) -> bytes:
    return b"".join(b'{"time": 1, "n": %s}\n' % str(number).encode() for number in numbers)


def intake(home: Path, path: object, **options: Any) -> Intake:
    values = declared_source("logs", {"files": {"path": str(path), **options}}).values | {"watch": 0}
    StreamLog.ensure(home, LOGS)
    setting = SourceSetting(LOGS, values, "shop", lambda: NOW, home / "sources" / "logs")
    return Intake(home, LOGS, FileSource(setting), lambda: NOW)


def read_all(reading: Intake) -> None:
    """Step until nothing has been moved for a few steps."""
    quiet = 0
    while quiet < 4:
        quiet = 0 if reading.step(0.0) else quiet + 1
    reading.close()


def numbers(home: Path) -> list[int]:
    log = StreamLog.ensure(home, LOGS)
    return [n for piece in log.read(0, log.index().next) for n in piece.rows.column("n").to_pylist()]


def letters(home: Path) -> list[tuple[str, str]]:
    log = StreamLog.ensure(home, DEAD)
    return [(row["record"], row["reason"]) for piece in log.read(0, log.index().next) for row in piece.rows.to_pylist()]


def _csv(path: Path, table: pa.Table) -> None:
    pyarrow.csv.write_csv(table, path)


def _csv_zst(path: Path, table: pa.Table) -> None:
    with pa.output_stream(path, compression="zstd") as out:
        pyarrow.csv.write_csv(table, out)


def _ndjson_gz(path: Path, table: pa.Table) -> None:
    path.write_bytes(gzip.compress(lines(*table.column("n").to_pylist())))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.csv", _csv),
        ("a.csv.zst", _csv_zst),
        ("a.ndjson.gz", _ndjson_gz),
        ("a.parquet", lambda path, table: pq.write_table(table, path)),
    ],
)
def test_every_format_is_read(name: str, write: Callable[[Path, pa.Table], None], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / name, pa.table({"time": [1, 2, 3], "n": [1, 2, 3]}))
    read_all(intake(tmp_path / "home", tmp_path / "in"))
    assert numbers(tmp_path / "home") == [1, 2, 3]


def test_csv_without_a_header_and_files_whose_names_say_no_format(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("1,5\n2,6\n")
    read_all(intake(tmp_path / "home", tmp_path / "*.log", format="csv", header=False))
    assert numbers(tmp_path / "home") == [5, 6]


def test_a_file_that_comes_late_is_read_once_whatever_its_name_and_time(tmp_path: Path) -> None:
    (tmp_path / "b.ndjson").write_bytes(lines(2))
    reading = intake(tmp_path / "home", tmp_path / "*.ndjson")
    while not reading.step(0.0):
        pass
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    os.utime(tmp_path / "a.ndjson", (1, 1))
    read_all(reading)
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert numbers(tmp_path / "home") == [2, 1]


def test_files_that_are_being_written_are_left_out(tmp_path: Path) -> None:
    for name in (".a.ndjson", "a.ndjson.part", "_SUCCESS", "_temporary/a.ndjson", "deep/a.ndjson"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(lines(1))
    grows = tmp_path / "in" / "grows.ndjson"
    reading = intake(tmp_path / "home", tmp_path / "in")
    for count in range(1, 5):
        grows.write_bytes(lines(*range(count)))
        assert reading.step(0.0) == 0
    read_all(reading)
    assert numbers(tmp_path / "home") == [0, 1, 2, 3]


def test_a_pattern_with_directories(tmp_path: Path) -> None:
    for at, name in enumerate(("2026-01/a.ndjson", "2026-01/x/b.ndjson", "2025-12/c.ndjson", "2026-02/d.csv")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(lines(at))
    read_all(intake(tmp_path / "one", tmp_path / "2026-*/*.ndjson"))
    read_all(intake(tmp_path / "two", tmp_path / "**/*.ndjson"))
    read_all(intake(tmp_path / "three", tmp_path / "2025-12/c.ndjson"))
    assert [numbers(tmp_path / home) for home in ("one", "two", "three")] == [[0], [2, 0, 1], [2]]


def test_many_small_files_are_one_append(tmp_path: Path) -> None:
    for at in range(40):
        (tmp_path / f"{at:02d}.ndjson").write_bytes(lines(at))
    (tmp_path / "empty.ndjson").write_bytes(b"")
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert numbers(tmp_path / "home") == list(range(40))
    assert len(StreamLog.ensure(tmp_path / "home", LOGS).index().entries) == 1


def test_a_large_file_is_read_in_chunks_and_goes_on_where_the_stream_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_formats, "CHUNK_RECORDS", 3)
    (tmp_path / "a.ndjson").write_bytes(lines(*range(10)))
    (tmp_path / "b.ndjson").write_bytes(lines(*range(10, 20)))
    for steps in range(12):
        reading = intake(tmp_path / "home", tmp_path / "*.ndjson")
        for _ in range(2 + steps % 3):
            reading.step(0.0)
        reading.close()
    assert numbers(tmp_path / "home") == list(range(20))
    last = FileLedger(tmp_path / "home" / "sources" / "logs" / "files").last
    assert last is not None
    assert (last.first, last.end) == (10, 20)


def test_a_record_that_cannot_be_read_names_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(1) + b"not json\n" + lines('"x"'))
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    first, second = letters(tmp_path / "home")
    assert first[0] == "not json"
    assert first[1].startswith(f'"{tmp_path}/a.ndjson", line 2: not JSON')
    assert second[1] == f'"{tmp_path}/a.ndjson", line 3: column "n" must be bigint, not "x"'


def test_a_file_that_cannot_be_read_stops_behind_those_before_it(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    (tmp_path / "b.ndjson.gz").write_bytes(b"not gzip")
    (tmp_path / "c.ndjson").write_bytes(lines(3))
    with pytest.raises(EndpointError, match=r"b.ndjson.gz.*unreadable: skip"):
        read_all(intake(tmp_path / "home", tmp_path))
    assert numbers(tmp_path / "home") == [1]
    (tmp_path / "b.ndjson.gz").write_bytes(gzip.compress(lines(2)))
    read_all(intake(tmp_path / "home", f"{tmp_path}/*.ndjson*"))
    assert numbers(tmp_path / "home") == [1, 2, 3]


def test_a_file_that_cannot_be_read_is_skipped_with_a_dead_letter(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    (tmp_path / "b.parquet").write_bytes(b"not parquet")
    (tmp_path / "c.csv").write_text("time,wrong\n1,2\n")
    (tmp_path / "d.ndjson").write_bytes(lines(4))
    read_all(intake(tmp_path / "home", f"{tmp_path}/*.*", unreadable="skip"))
    assert numbers(tmp_path / "home") == [1, 4]
    told = letters(tmp_path / "home")
    assert [record for record, _ in told] == [f"{tmp_path}/b.parquet", f"{tmp_path}/c.csv"]
    assert 'has no column "wrong"' in told[1][1]
    read_all(intake(tmp_path / "home", f"{tmp_path}/*.*", unreadable="skip"))
    assert letters(tmp_path / "home") == told


def test_a_large_file_that_breaks_off_has_a_dead_letter_behind_its_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_formats, "CHUNK_RECORDS", 3)
    monkeypatch.setattr(file_formats, "BLOCK_BYTES", 64)
    whole = gzip.compress(lines(*range(1000)))
    (tmp_path / "a.ndjson.gz").write_bytes(whole[:-300])
    (tmp_path / "b.ndjson").write_bytes(lines(-1))
    with pytest.raises(EndpointError, match=r"a.ndjson.gz"):
        read_all(intake(tmp_path / "home", tmp_path))
    some = numbers(tmp_path / "home")
    read_all(intake(tmp_path / "home", tmp_path, unreadable="skip"))
    assert some == list(range(len(some)))
    assert numbers(tmp_path / "home") == [*some, -1]
    ((record, reason),) = letters(tmp_path / "home")
    assert record == f"{tmp_path}/a.ndjson.gz"
    assert f"behind its first {len(some)} records" in reason


def test_a_file_that_was_changed_is_reported_or_read_again(tmp_path: Path) -> None:
    for changed in ("report", "read"):
        home, file = tmp_path / changed, tmp_path / f"{changed}.ndjson"
        file.write_bytes(lines(1))
        read_all(intake(home, file, changed=changed))
        file.write_bytes(lines(1, 2))
        for _ in range(2):
            read_all(intake(home, file, changed=changed))
    assert numbers(tmp_path / "report") == [1]
    ((record, reason),) = letters(tmp_path / "report")
    assert record == str(tmp_path / "report.ndjson")
    assert "changed after it was read" in reason
    assert numbers(tmp_path / "read") == [1, 1, 2]
    assert letters(tmp_path / "read") == []


def test_a_large_file_that_is_changed_between_is_an_error_or_a_dead_letter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_formats, "CHUNK_RECORDS", 3)
    file = tmp_path / "a.ndjson"
    file.write_bytes(lines(*range(10)))
    reading = intake(tmp_path / "home", file)
    while not reading.step(0.0):
        pass
    reading.close()
    file.write_bytes(lines(*range(5)))
    with pytest.raises(EndpointError, match="removed or changed before it was read to its end"):
        read_all(intake(tmp_path / "home", file))
    read_all(intake(tmp_path / "home", file, unreadable="skip"))
    assert numbers(tmp_path / "home") == [0, 1, 2]
    assert len(letters(tmp_path / "home")) == 2, "that it was not read to its end, and that there is another one"


def test_of_two_processes_one_goes_on(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    first, second = (intake(tmp_path / "home", tmp_path / "*.ndjson") for _ in range(2))
    while not first.step(0.0):
        pass
    with pytest.raises(EndpointError, match=r"another process"):
        read_all(second)
    assert numbers(tmp_path / "home") == [1]


def test_a_stream_that_was_put_back_reads_again_what_it_lost(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "home" / "sources" / "logs" / "files")
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    (tmp_path / "b.ndjson").write_bytes(lines(2))
    (tmp_path / "home" / "streams").rename(tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", tmp_path / "home" / "streams")
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    (tmp_path / "c.ndjson").write_bytes(lines(3))
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert numbers(tmp_path / "home") == [1, 2, 3]
    shutil.rmtree(tmp_path / "home" / "streams")
    (tmp_path / "kept").rename(tmp_path / "home" / "streams")
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert numbers(tmp_path / "home") == [1, 2, 3]
    assert FileLedger(tmp_path / "home" / "sources" / "logs" / "files").last != ledger.last


def test_a_ledger_of_many_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.engine.file_ledger.BLOCK_BYTES", 300)
    monkeypatch.setattr("hayase.engine.file_ledger.RECENT", 3)
    for at in range(12):
        (tmp_path / f"{at:02d}.ndjson").write_bytes(lines(at))
        read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert numbers(tmp_path / "home") == list(range(12))
    directory = tmp_path / "home" / "sources" / "logs" / "files"
    assert len(list(directory.glob("*.json"))) > 3
    ledger = FileLedger(directory)
    ledger.forget_behind(5)
    assert ledger.last is not None
    assert ledger.last.first == 5
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    assert sorted(numbers(tmp_path / "home")) == sorted([*range(12), *range(6, 12)]), "forgotten files are new ones"


def test_a_damaged_ledger_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(1))
    read_all(intake(tmp_path / "home", tmp_path / "*.ndjson"))
    block = tmp_path / "home" / "sources" / "logs" / "files" / "00000001.json"
    assert list(verify(Home(tmp_path / "home"))) == []
    block.write_bytes(block.read_bytes().replace(b"a.ndjson", b"b.ndjson"))
    (finding,) = verify(Home(tmp_path / "home"))
    assert "ledger of files" in finding.problem
    assert "reads all files again" in finding.remedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "ftp://x/a.csv"}, 'unknown scheme "ftp"'),
        ({"path": "s3://"}, "empty path"),
        ({"path": "a", "watch": "1 ms"}, "less than 100 ms"),
        ({"path": "a", "header": False, "format": "parquet"}, "only CSV has one"),
        ({"path": "a", "format": "xml"}, "csv, ndjson, parquet"),
        ({}, "has no path"),
    ],
)
def test_mistakes_in_the_declaration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared_source("logs", {"files": options})


def test_a_directory_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="there is no directory"):
        read_all(intake(tmp_path / "home", tmp_path / "missing"))


def test_a_pipeline_reads_what_is_there_beside_its_file(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.ndjson").write_bytes(lines(1, 2))
    (tmp_path / "shop.yaml").write_text(
        "pipeline: shop\nstreams:\n  logs:\n    schema: time bigint, n bigint\n    time: time\n    time_unit: s\n"
        "    from: {files: {path: logs/*.ndjson}}\nqueries:\n  total: SELECT sum(n) AS total FROM logs [RANGE UNBOUNDED]\n"
    )
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    pipeline.run_until_idle(spark=False)
    assert pipeline.results("logs").log.index().next == 2


def test_the_endpoint_in_python(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes(lines(7))
    pipeline = Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("logs", "time bigint, n bigint", time="time", time_unit="s", source=Files(f"{tmp_path}/*.ndjson"))
    pipeline.query("n", "SELECT n FROM logs [RANGE UNBOUNDED]")
    pipeline.run_until_idle(spark=False)
    assert numbers(tmp_path / "home") == [7]
