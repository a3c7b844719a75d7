"""CSV, NDJSON and Parquet: what a file says is what the stream gets."""

from __future__ import annotations

import gzip
import io
import os
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hayase.core.declarations import StreamDeclaration
from hayase.core.errors import HayaseError, SchemaMismatch
from hayase.core.reasons import ReasonKind
from hayase.core.times import instant
from hayase.streams import csv_blocks, file_formats
from hayase.streams.file_formats import Chunk, Format, format_of, read_records
from hayase.streams.records import Conformed, Refused

NOW = instant("2026-02-01T00:00:00Z")
STREAM = StreamDeclaration("s", "t bigint, x string, y double", "t", time_unit="s")


def read(
    source: Path | bytes, name: str = "-", given: str | None = None, stream: StreamDeclaration = STREAM
) -> list[Chunk]:
    form = format_of(source if isinstance(source, Path) else name, given)
    return list(read_records(io.BytesIO(source) if isinstance(source, bytes) else source, form, stream, lambda: NOW))


def whole(chunks: list[Chunk], stream: StreamDeclaration = STREAM) -> Conformed:
    rows = pa.concat_tables([stream.arrow_schema.empty_table(), *(each.conformed.rows for each in chunks)])
    return Conformed(rows, tuple(refused for each in chunks for refused in each.conformed.refused))


def csv(text: bytes, stream: StreamDeclaration = STREAM) -> Conformed:
    return whole(read(text, given="csv", stream=stream), stream)


def ndjson(text: bytes, stream: StreamDeclaration = STREAM) -> Conformed:
    return whole(read(text, given="ndjson", stream=stream), stream)


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("a.csv", None, Format("csv")),
        ("a.b.JSONL.gz", None, Format("ndjson", "gzip")),
        ("a.json.zst", None, Format("ndjson", "zstd")),
        ("a.pq", None, Format("parquet")),
        ("a.log", "ndjson", Format("ndjson")),
        ("-", "csv", Format("csv")),
    ],
)
def test_formats_by_name(name: str, given: str | None, expected: Format) -> None:
    assert format_of(name, given) == expected


@pytest.mark.parametrize(("name", "given"), [("a", None), ("a.txt", None), ("a.csv", "cvs"), ("a.parquet.gz", None)])
def test_unknown_formats_say_what_there_is(name: str, given: str | None) -> None:
    with pytest.raises(HayaseError, match=r"csv|Parquet"):
        format_of(name, given)


class TestCsv:
    def test_fields_are_read_by_type(self) -> None:
        every = "t bigint, b boolean, f float, d decimal(5, 2), day date, at timestamp, a array<int>, raw binary"
        done = csv(
            b't,b,f,d,day,at,a,raw\n1,true,0.5,1.5,2026-01-31,2026-01-31 01:00:00,"[1, 2]",AA==\n2,,,,,,,\n',
            StreamDeclaration("s", every, "t", time_unit="s"),
        )
        assert done.refused == ()
        first, second = done.rows.to_pylist()
        assert (first["b"], first["f"], first["d"], first["a"], first["raw"]) == (
            True,
            0.5,
            Decimal("1.50"),
            [1, 2],
            b"\0",
        )
        assert set(second.values()) == {2, None}

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    @pytest.mark.parametrize("last", [b"", b"end"])
    def test_quotes_line_ends_and_blank_lines(self, end: bytes, last: bytes) -> None:
        lines = [b"\xef\xbb\xbfy,t,x", b"", b'1.5,1,"a, ""b"""', b",2,", b'3,3,"two' + end + b'lines"', b'4,4,5" disk']
        done = csv(end.join(lines) + (end if last else b""))
        assert done.refused == ()
        assert done.rows["x"].to_pylist() == ['a, "b"', None, "two" + end.decode() + "lines", '5" disk']
        assert done.rows["y"].to_pylist() == [1.5, None, 3.0, 4.0]

    def test_columns_may_be_missing_but_not_unknown(self) -> None:
        assert csv(b"t\n1\n").rows.to_pylist() == [{"t": 1, "x": None, "y": None}]
        with pytest.raises(SchemaMismatch, match='no column "yy"'):
            csv(b"t,yy\n1,2\n")

    @pytest.mark.parametrize("header", [b'"', b't,"x', b't,"x"y', b'"t\nx",y'])
    def test_a_header_whose_quotes_do_not_close_is_an_error(self, header: bytes) -> None:
        with pytest.raises(HayaseError, match=r"names of the columns.*quoted field"):
            csv(header + b"\n1,\xff\n")

    def test_a_bad_line_is_refused_alone_with_its_number_and_text(self) -> None:
        done = csv(b't,x,y\n1,a,1\n2,b\n\n3,"c\nc",x\n\xff,d,1\n4,"e"e,1\n5,f,0x1\n6,"g,1\n7,h,1')
        assert done.rows["t"].to_pylist() == [1, 7]
        quoted = "a quoted field does not end where it should; write a quote inside as two"
        unreadable, unfit = ReasonKind.UNREADABLE, ReasonKind.SCHEMA
        assert done.refused == (
            Refused("2,b", "line 3: the line has 2 fields and the header 3", unreadable),
            Refused('3,"c\nc",x', 'line 5: column "y" must be double, not "x"', unfit),
            Refused("\\xff,d,1", "line 7: the line is not UTF-8 text", unreadable),
            Refused('4,"e"e,1', f"line 8: {quoted}", unreadable),
            Refused("5,f,0x1", 'line 9: column "y" must be double, not "0x1"', unfit),
            Refused('6,"g,1', f"line 10: {quoted}", unreadable),
        )

    def test_numbers_are_not_guessed(self) -> None:
        done = csv(b"t\n0x1F\n+5\n1_000\n 7\n1e3\n99999999999999999999\n")
        assert done.rows["t"].to_pylist() == [5, 1000]
        assert [each.record for each in done.refused] == ["0x1F", "1_000", " 7", "99999999999999999999"]

    def test_overflow_to_infinity_is_refused_and_infinity_is_not(self) -> None:
        done = csv(b"t,y\n1,1e400\n2,inf\n3,nan\n")
        assert str(done.rows["y"].to_pylist()) == "[inf, nan]"
        assert done.refused[0].record == "1,1e400"

    @pytest.mark.parametrize("text", [b"", b"\n\n", b"t,x,y", b"t,x,y\n\n"])
    def test_nothing_below_the_header(self, text: bytes) -> None:
        assert csv(text) == Conformed(STREAM.arrow_schema.empty_table())

    def test_the_quick_way_and_the_careful_way_agree(self) -> None:
        block = b'1,"a ""q"" \r\nb",\n\n2,,"x"\r\n3,c,d'
        quick = csv_blocks.split(block, [pa.string()] * 3, last=True, limit=99)
        careful = csv_blocks.careful_split(block, 3, last=True, limit=99)
        assert [each.to_pylist() for each in quick.columns] == [each.to_pylist() for each in careful.columns]
        assert (quick.used, quick.lines, quick.count) == (careful.used, careful.lines, careful.count)
        assert quick.texts([0, 1, 2]) == careful.texts([0, 1, 2])
        assert [quick.line(at) for at in range(3)] == [careful.line(at) for at in range(3)] == [0, 3, 4]

    def test_numbers_come_as_such_unless_one_cannot_be_read(self) -> None:
        kinds = [pa.int64(), pa.float64(), pa.string()]
        for block, told in (
            (b"1,2.5,a\n,,\n", [[1, None], [2.5, None], ["a", None]]),
            (b"1,2.5,a\n0x1,,\n", [["1", "0x1"], [2.5, None], ["a", None]]),
            (b"1, 2.5,a\n", [[1], [" 2.5"], ["a"]]),
            (b'1,"2.5","a x"\n', [[1], [2.5], ["a x"]]),
            (b"1,inf,a\n", [["1"], ["inf"], ["a"]]),
        ):
            assert [each.to_pylist() for each in csv_blocks.split(block, kinds, True, 99).columns] == told

    def test_an_open_quote_does_not_take_the_rest_of_the_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_formats, "BLOCK_BYTES", 64)
        monkeypatch.setattr(file_formats, "LONGEST_RECORD", 512)
        lines = [b"t,x", b'1,"open', *(b"%d,a" % at for at in range(2, 500))]
        done = csv(b"\n".join(lines))
        assert done.rows["t"].to_pylist() == list(range(2, 500))
        assert done.refused[0].record == '1,"open'


class TestNdjson:
    def test_objects_by_line(self) -> None:
        done = ndjson(b'{"t": 1, "x": "a"}\n\n \r\n{"y": 2, "t": 2}\r\n{"t": 3, "y": null}')
        assert done.refused == ()
        assert done.rows["t"].to_pylist() == [1, 2, 3]

    def test_a_bad_line_is_refused_alone_with_its_number_and_text(self) -> None:
        deep = b'{"t": 1, "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        bad = [b'{"t": 1', b'{"t": 1, "y": NaN}', b'{"t": 1, "x": "\\ud800"}', b'{"t": 1, "x": "\xff"}', b"[1]", deep,
               b'{"t": 18446744073709551617}', b'{"t": 9223372036854775808}', b'{"t": 1, "z": 2}']  # fmt: skip
        done = ndjson(b"\n".join([b'{"t": 1}', b"", *bad, b'{"t": 2}']))
        assert done.rows["t"].to_pylist() == [1, 2]
        assert [each.record for each in done.refused] == [each.decode("utf-8", "backslashreplace") for each in bad]
        for number, each in enumerate(done.refused, 3):
            assert each.reason.startswith(f"line {number}: ")
        assert 'unknown field "z"' in done.refused[-1].reason

    def test_decimals_keep_their_digits(self) -> None:
        stream = StreamDeclaration("s", "t bigint, d decimal(38, 20), y double", "t", time_unit="s")
        done = ndjson(
            b'{"t": 1, "d": 123456789.12345678901234567890, "y": 0.1}\n{"t": 1, "d": NaN}\n' + b"[" * 9999, stream
        )
        assert done.rows["d"].to_pylist() == [Decimal("123456789.12345678901234567890")]
        assert done.rows["y"].to_pylist() == [0.1]
        assert len(done.refused) == 2

    def test_a_line_without_end_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_formats, "BLOCK_BYTES", 64)
        monkeypatch.setattr(file_formats, "LONGEST_RECORD", 512)
        with pytest.raises(HayaseError, match="line 2 is longer"):
            ndjson(b'{"t": 1}\n' + b"0" * 10_000)


class TestParquet:
    def test_row_groups_stream_through(self, tmp_path: Path) -> None:
        table = pa.table({"t": range(1000), "x": ["a" * 100] * 1000})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
        chunks = read(tmp_path / "a.parquet")
        assert whole(chunks).rows["t"].to_pylist() == list(range(1000))
        assert chunks[-1].done == (tmp_path / "a.parquet").stat().st_size

    def test_big_values_make_small_chunks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(file_formats, "BLOCK_BYTES", 10_000)
        pq.write_table(pa.table({"t": range(100), "x": [str(at) * 1000 for at in range(100)]}), tmp_path / "a.pq")
        assert len(read(tmp_path / "a.pq")) > 10

    def test_bad_rows_and_wrong_columns(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"t": [1, None]}), tmp_path / "a.parquet")
        assert whole(read(tmp_path / "a.parquet")).refused[0].record == '{"t": null}'
        pq.write_table(pa.table({"z": [1]}), tmp_path / "b.parquet")
        with pytest.raises(SchemaMismatch, match='no column "z"'):
            read(tmp_path / "b.parquet")

    def test_damaged_files_and_pipes_are_errors(self, tmp_path: Path) -> None:
        (tmp_path / "a.parquet").write_bytes(b"PAR1 no more")
        with pytest.raises(HayaseError, match=r"a\.parquet.* cannot be read as parquet"):
            read(tmp_path / "a.parquet")
        with pytest.raises(HayaseError, match=r"none\.csv"):
            read(tmp_path / "none.csv")


def rows_of(count: int) -> list[dict[str, Any]]:
    return [{"t": at, "x": f"name {at}", "y": at / 3} for at in range(count)]


@pytest.mark.parametrize("size", [7, 64, 1000])
def test_chunks_are_bounded_and_where_they_are_cut_makes_no_difference(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"t,x,y\r\n" + b"".join(b'%d,"na\n""me"" %d",%r\r\n' % (at, at, at / 3) for at in range(200))
    expected = csv(text)
    assert expected.rows.num_rows == 200
    monkeypatch.setattr(file_formats, "BLOCK_BYTES", size)
    monkeypatch.setattr(file_formats, "CHUNK_RECORDS", 10)
    (tmp_path / "a.csv").write_bytes(text)
    chunks = read(tmp_path / "a.csv")
    assert whole(chunks) == expected
    assert max(each.conformed.rows.num_rows for each in chunks) <= 10
    assert [each.done for each in chunks] == sorted(each.done for each in chunks)
    assert chunks[-1].done == len(text)


@pytest.mark.parametrize("compression", ["gz", "zst", "bz2"])
def test_compressed_files(compression: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.ndjson.{compression}"
    text = b"".join(b'{"t": %d}\n' % at for at in range(1000))
    with pa.output_stream(path, compression=file_formats.COMPRESSIONS[compression]) as out:
        out.write(text)
    chunks = read(path)
    assert whole(chunks).rows["t"].to_pylist() == list(range(1000))
    assert chunks[-1].done == path.stat().st_size


def test_a_cut_compressed_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"t\n" + b"1\n2\n" * 1000)[:-20])
    with pytest.raises(HayaseError, match=r"a\.csv\.gz.* cannot be read"):
        read(path)


def test_a_pipe_is_read_while_it_is_written() -> None:
    out, into = os.pipe()
    seen = threading.Event()

    def write() -> None:
        os.write(into, b't,x\n1,"a\n')
        os.write(into, b'b"\n2,')
        assert seen.wait(600)  # the first record arrives although the pipe stays open
        os.write(into, b"c\n")
        os.close(into)

    writer = threading.Thread(target=write)
    writer.start()
    names = []
    with os.fdopen(out, "rb") as pipe:
        for chunk in read_records(pipe, Format("csv"), STREAM, lambda: NOW):
            names += chunk.conformed.rows["x"].to_pylist()
            seen.set()
    writer.join()
    assert names == ["a\nb", "c"]
