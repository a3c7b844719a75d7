"""Loading rows into tables: against a plain dict, from every kind of source, after and before events, killed at any step."""

from __future__ import annotations

import errno
import gzip
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hayase as hy
from effort import examples, sample
from hayase.core.declarations import TableDeclaration
from hayase.core.errors import EnvironmentUnfit, HayaseError, HomeInUse, StageChanged, StreamError
from hayase.core.stages import MAIN
from hayase.engine.commit.housekeeping import fold_tables
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition.definitions import latest
from hayase.engine.local import InProcess
from hayase.streams import durable
from hayase.tables import TYPES, UnfitParameter, bulk_load, entries, rocksdb, versions
from hayase.tables.load_rows import first_snapshots
from hayase.tables.load_sources import CHUNK_ROWS
from hayase.tables.load_values import deltas_of, keys_of, plain_bytes
from hayase.tables.payloads import value_bytes
from hayase.tables.rows import Columns, RowSnapshot
from hayase.tables.stores import write_run
from hayase.tables.table import TooOld, open_own

RULES = """
source: events
rules:
  - tables:
      users: {key: .user, columns: {title: .title, total: .amount}}
"""


def shop(home: Path) -> hy.Pipeline:
    """A table that events feed, and two that nothing but loads does."""
    pipeline = hy.Pipeline("shop", home, buckets=2)
    schema = "time timestamp, id bigint, user string, title string, amount double"
    pipeline.stream("events", schema, time="time", id="id", max_ahead=None)
    pipeline.table("users", "user", fold_after="1 day", horizon="2 days", title=hy.Register(), total=hy.Counter())
    pipeline.table("places", ["country", "number"], seen=hy.Counter(), tags=hy.GSet(), days=hy.MapCounter())
    pipeline.table("blocklist", "ip", reason=hy.Register())
    pipeline.rules(text=RULES)
    return pipeline


@pytest.fixture
def pipeline(tmp_path: Path) -> hy.Pipeline:
    return shop(tmp_path / "home")


def event(day: int, id: int, user: str, title: str | None, amount: float) -> dict[str, Any]:
    return {"time": f"2026-01-{day:02d}T00:00:00Z", "id": id, "user": user, "title": title, "amount": amount}


def fold(pipeline: hy.Pipeline) -> int:
    with pipeline.home.lock(), InProcessOf(pipeline) as runner:
        definition = latest(pipeline.home)
        assert definition is not None
        return fold_tables(runner.tables, runner.manifest, definition, lambda: False)


class InProcessOf:
    """A runner that is closed at the end."""

    def __init__(self, pipeline: hy.Pipeline):
        self.runner = InProcess(pipeline.home, lambda: 0)

    def __enter__(self) -> InProcess:
        return self.runner

    def __exit__(self, *_: object) -> None:
        self.runner.close()


def contents(pipeline: hy.Pipeline, table: str) -> dict[Any, dict[str, Any]]:
    found = {}
    for row in pipeline.table(table).rows():
        parts = tuple(row.pop(part) for part in pipeline.declaration.table(table).key)
        found[parts[0] if len(parts) == 1 else parts] = row
    return found


# ---------------------------------------------------------------------------------------------------- against a dict

users = st.one_of(st.sampled_from(["taro", "hana", "", "x\0y", "ū"]), st.integers(-3, 3), st.sampled_from([0.5, True]))
rows_ = st.lists(
    st.tuples(
        users,
        st.one_of(st.none(), st.text(max_size=3), st.integers(), st.floats(-9, 9), st.lists(st.integers(), max_size=2)),
        st.one_of(st.none(), st.integers(-5, 5), st.sampled_from([0.1, 0.25, -1.5])),
    ),
    max_size=12,
)


def _same(key: Any) -> Any:
    """Keys of a dict that are different where a table's are: true is not 1."""
    return (type(key) is bool, key)


@settings(max_examples=examples(12), deadline=None)
@given(
    loads=st.lists(rows_, max_size=3), memory=st.sampled_from([1, 4, 500_000]), sampled=st.sampled_from([1, 2, 4096])
)
def test_loads_are_what_a_dict_makes_of_them(
    loads: list[list[tuple[Any, Any, Any]]], memory: int, sampled: int
) -> None:
    wanted: dict[Any, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as room, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk_load, "IN_MEMORY", memory)
        patch.setattr(bulk_load, "SAMPLED", sampled)
        patch.setattr("hayase.tables.load_sources.CHUNK_ROWS", 3)
        pipeline = shop(Path(room))
        for rows in loads:
            given = [{"user": user, "title": title, "total": amount} for user, title, amount in rows]
            done = pipeline.table("users").load(given)
            assert (done.rows, done.refused) == (len(rows), 0)
            for user, title, amount in rows:
                row = wanted.setdefault(_same(user), {"title": None, "total": Decimal(0)})
                row["title"] = row["title"] if title is None else title
                row["total"] += Decimal(str(amount or 0))
        found = {_same(row["user"]): row for row in pipeline.table("users").rows()}
        assert {key: (row["title"], Decimal(str(row["total"]))) for key, row in found.items()} == {
            key: (row["title"], row["total"]) for key, row in wanted.items()
        }
        assert pipeline.table("users").info().keys == len(wanted)
        assert not (pipeline.home.path / "loads").exists()


plain = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=5))),
    st.lists(st.one_of(st.none(), st.integers(-(2**70), 2**70))),
    st.lists(st.one_of(st.none(), st.integers(-(10**18), 10**18))),
    st.lists(st.one_of(st.none(), st.booleans())),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))),
    st.lists(st.one_of(st.none(), st.decimals(-1000, 1000, places=3).map(float), st.sampled_from([1e14, 1e-14, 1e15, -1e-9]))),
    st.lists(st.one_of(st.text(), st.integers(), st.booleans())),
)  # fmt: skip


@settings(max_examples=examples(150), deadline=None)
@given(plain)
def test_a_column_at_once_has_the_bytes_of_its_values(values: list[Any]) -> None:
    found = plain_bytes(values)
    wanted = [None if each is None else value_bytes(each) for each in values]
    assert found is None or found.to_pylist() == wanted
    assert keys_of([values, values]).bytes.to_pylist() == [None if each is None else each * 2 for each in wanted]


@settings(max_examples=examples(50), deadline=None)
@given(plain, st.sampled_from(sorted(TYPES)))
def test_a_column_at_once_has_the_deltas_of_its_type(values: list[Any], name: str) -> None:
    kind = TYPES[name]()
    found = deltas_of(kind, values)
    wanted = {at: kind.payloads(None, [each])[0] for at, each in enumerate(values) if each is not None}
    reasons = {at: str(each) for at, each in wanted.items() if isinstance(each, UnfitParameter)}
    assert found.reasons == reasons
    assert found.bytes.to_pylist() == [None if at in reasons else wanted.get(at) for at in range(len(values))]


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(
        st.tuples(st.text(max_size=4), *[st.booleans()] * 5), min_size=1, max_size=8, unique_by=lambda each: each[0]
    )
)
def test_snapshots_at_once_are_what_folding_gives(rows: list[tuple[Any, ...]]) -> None:
    kinds = ("Register", "Counter", "MaxRegister", "GSet", "MinRegister")
    declaration = TableDeclaration("t", ("k",), tuple((f"c{at}", kind) for at, kind in enumerate(kinds)))
    columns = Columns(declaration)
    keys = [entries.key_bytes((key,)) for key, *_ in rows]
    when = [versions.to_bytes(0, at, bulk_load.SOURCE) for at in range(len(rows))]
    deltas = [
        [columns.types[place].payload(None, at - 3) if row[place + 1] else None for at, row in enumerate(rows)]
        for place in range(len(kinds))
    ]
    binary = pa.large_binary()
    made = first_snapshots(
        columns, pa.array(keys, binary), pa.array(when, binary), [pa.array(each, binary) for each in deltas]
    )
    given = [entries.UpdateColumn(place, 0, each) for place, each in enumerate(deltas)]
    values = entries.pack_columns(keys, when, given).column(1).to_pylist()
    nothing = RowSnapshot(b"", ())
    assert made == [
        columns.fold(key, nothing, [(version, value)]) for key, version, value in zip(keys, when, values, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------- events and loads


def test_events_override_what_was_loaded_before_and_after(pipeline: hy.Pipeline) -> None:
    users = pipeline.table("users")
    users.load([{"user": "taro", "title": "loaded", "total": 10}, {"user": "hana", "title": "kept"}])
    pipeline.append("events", [event(1, 1, "taro", "event", 1), event(1, 2, "jiro", "event", 2)])
    pipeline.run_until_idle(spark=False)
    wanted = {
        "taro": {"title": "event", "total": 11},
        "hana": {"title": "kept", "total": 0},
        "jiro": {"title": "event", "total": 2},
    }
    assert contents(pipeline, "users") == wanted
    users.load([{"user": "jiro", "title": "loaded", "total": 0.5}, {"user": "hana", "title": "again", "total": 1}])
    wanted["jiro"]["total"] = 2.5
    wanted["hana"] = {"title": "again", "total": 1}
    assert contents(pipeline, "users") == wanted
    pipeline.append("events", [event(9, 3, "ken", None, 1), event(1, 2, "jiro", "event", 2)])
    pipeline.append("events", [event(8, 4, "ken", "x", 1), event(8, 4, "ken", "x", 1)])
    pipeline.run_until_idle(spark=False)
    wanted["ken"] = {"title": None, "total": 2}
    assert contents(pipeline, "users") == wanted
    assert fold(pipeline)
    assert contents(pipeline, "users") == wanted
    info = users.info()
    assert (info.keys, info.payloads) == (4, 2)
    users.load([{"user": "ken", "total": 1}, {"user": "ken", "total": 2}, {"user": "yuki", "title": "new"}])
    wanted["ken"]["total"] = 5
    wanted["yuki"] = {"title": "new", "total": 0}
    assert contents(pipeline, "users") == wanted
    fold(pipeline)
    assert contents(pipeline, "users") == wanted


def test_a_later_load_overrides_an_earlier_one_and_the_last_row_the_others(pipeline: hy.Pipeline) -> None:
    blocked = pipeline.table("blocklist")
    assert blocked.load([{"ip": "a", "reason": "z"}, {"ip": "a", "reason": "y"}]).number == 1
    assert blocked.get("a") == {"reason": "y"}
    assert blocked.load([{"ip": "a", "reason": "b"}, {"ip": "b", "reason": None}]).number == 2
    assert contents(pipeline, "blocklist") == {"a": {"reason": "b"}, "b": {"reason": None}}
    assert blocked.load([]).number == 2


def test_a_time_column_says_since_when_a_row_is_so(pipeline: hy.Pipeline) -> None:
    users = pipeline.table("users")
    pipeline.append("events", [event(5, 1, "taro", "event", 1)])
    pipeline.run_until_idle(spark=False)
    rows = [
        {"user": "taro", "title": "old", "at": "2026-01-04T00:00:00Z"},
        {"user": "hana", "title": "new", "at": "2026-01-06T00:00:00Z"},
        {"user": "hana", "title": "old", "at": "2026-01-05T12:00:00Z"},
        {"user": "jiro", "title": "none", "at": None},
        {"user": "jiro", "title": "bad", "at": "yesterday"},
        {"user": "jiro", "title": "ancient", "at": "1960-01-01T00:00:00Z"},
    ]
    done = users.load(rows, time="at")
    assert (done.rows, done.refused, done.snapshots) == (4, 2, 1)
    assert users.get("taro") == {"title": "event", "total": 1}
    assert users.get("hana") == {"title": "new", "total": 0}
    assert users.get("hana", as_of="2026-01-05T23:00:00Z") == {"title": "old", "total": 0}
    assert users.get("hana", as_of="2026-01-05T00:00:00Z") is None
    assert users.get("taro", as_of="2026-01-04T00:00:00Z") == {"title": "old", "total": 0}
    assert users.get("jiro") == {"title": "ancient", "total": 0}
    with pytest.raises(TooOld):
        users.get("jiro", as_of="1950-01-01T00:00:00Z")
    assert fold(pipeline) == 0 or users.get("hana") == {"title": "new", "total": 0}
    reasons = [letter["reason"] for letter in pipeline.dead_letters()]
    assert "is the time" in reasons[0]
    assert "yesterday" in reasons[1]
    moments = pa.table({"user": ["ken"], "at": [datetime(2026, 2, 1, tzinfo=UTC)], "total": [3]})
    users.load(moments, time="at")
    assert users.get("ken", as_of="2026-01-31T00:00:00Z") is None
    users.load([{"user": "yuki", "at": 1_800_000_000_000_000}], time="at")
    assert users.get("yuki", as_of=1_799_999_999_999_999) is None
    assert users.get("yuki") == {"title": None, "total": 0}


def test_a_table_that_is_reset_begins_without_its_loads_and_can_be_loaded_before_the_run(pipeline: hy.Pipeline) -> None:
    users = pipeline.table("users")
    pipeline.append("events", [event(1, 1, "taro", "event", 1)])
    pipeline.run_until_idle(spark=False)
    users.load([{"user": "hana", "title": "before"}])
    pipeline.reset("users")
    users.load([{"user": "jiro", "title": "after"}])
    pipeline.run_until_idle(spark=False)
    wanted = {"jiro": {"title": "after", "total": 0}, "taro": {"title": "event", "total": 1}}
    assert contents(pipeline, "users") == wanted


small = st.integers(-3, 12)
acts = st.one_of(
    st.tuples(st.just("event"), st.lists(st.tuples(st.sampled_from("abc"), small, st.integers(0, 3)), max_size=4)),
    st.tuples(st.just("load"), st.lists(st.tuples(st.sampled_from("abcd"), small, small), max_size=4)),
    st.tuples(st.just("timed load"), st.lists(st.tuples(st.sampled_from("abcd"), small, small), max_size=4)),
    st.tuples(st.just("fold"), small),
)


@settings(max_examples=examples(20), deadline=None)
@given(st.lists(acts, max_size=7))
def test_events_loads_and_folds_in_any_order(script: list[tuple[str, Any]]) -> None:
    """All updates by key and version, from which any row can be told, now and as of a time."""
    declaration = TableDeclaration("t", ("k",), (("total", "Counter"), ("last", "Register")), 0, 0)
    total, last = TYPES["Counter"](), TYPES["Register"]()
    updates: dict[str, dict[bytes, tuple[int, int]]] = {}
    number = 0
    with tempfile.TemporaryDirectory() as room, closing(open_own(Path(room) / "t", declaration)) as table:
        for step, (act, given) in enumerate(script):
            if act == "event":
                run = Path(room) / f"{step}.run"
                made = [
                    [(0, b"\0", total.payload(None, at + id)), (1, b"\0", last.payload(None, at + id))]
                    for _, at, id in given
                ]
                when = [versions.to_bytes(at, id, 0) for _, at, id in given]
                write_run(
                    run, [entries.pack([entries.key_bytes((key,)) for key, *_ in given], when, made)], b"%09d" % step
                )
                table.ingest([run], b"%09d" % step)
                for (key, at, id), version in zip(given, when, strict=True):
                    updates.setdefault(key, {})[version] = (at, at + id)
            elif act == "fold":
                table.fold(given, -(10**9))
            else:
                time = "at" if act == "timed load" else None
                rows = [{"k": key, "at": at, "total": value, "last": value} for key, at, value in given]
                done = bulk_load.load(table, Path(room), rows, time=time, ignore_others=True)
                number += bool(rows)
                assert (done.number, done.rows) == (number, len(rows))
                for row, (key, at, value) in enumerate(given):
                    moment = at if time else 0
                    version = versions.to_bytes(moment, number << 40 | row, bulk_load.SOURCE)
                    updates.setdefault(key, {})[version] = (moment, value)
            folded = table.folded_before()
            for as_of in (None, *range(-4 if folded is None else folded - 1, 13)):
                for key in "abcd":
                    known = sorted(updates.get(key, {}).items())
                    values = [value for _, (at, value) in known if as_of is None or at <= as_of]
                    wanted = {"total": sum(values), "last": values[-1]} if values else None
                    assert table.get((key,), as_of=as_of) == wanted, (key, as_of)


def test_a_full_disk_is_said_and_nothing_is_loaded(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    left, met = 0, True

    def reached(step: str) -> None:
        nonlocal left, met
        if step.removeprefix("before ") in ("create", "fsync file", "rename", "make directory"):
            left -= 1
            if left < 0:
                met = True
                raise OSError(errno.ENOSPC, "No space left on device")

    blocked = pipeline.table("blocklist")
    blocked.load([{"ip": "a"}])
    room_for, done = 0, False
    while met:
        left, met = room_for, False
        with monkeypatch.context() as patch:
            patch.setattr(durable, "reached", reached)
            with suppress(EnvironmentUnfit, StreamError):  # of the table, or of the dead letters
                blocked.load([{"ip": "b"}, {"ip": None}])
                done = True  # also if there was no room for the seal of the store
        assert set(contents(pipeline, "blocklist")) == ({"a", "b"} if done else {"a"})
        room_for += 1
    assert room_for > 3


# ---------------------------------------------------------------------------------------------------- sources


def test_composite_keys_and_other_types(pipeline: hy.Pipeline) -> None:
    places = pipeline.table("places")
    rows: list[dict[str, Any]] = [
        {"country": "jp", "n": 1, "seen": 2, "tags": "a", "days": {"mon": 1}},
        {"country": "jp", "n": 2, "seen": None, "tags": ["x"], "days": {"tue": 0.5}},
        {"country": "jp", "n": 1, "seen": 3, "tags": "b", "days": {"mon": 2, "sun": 1}},
        {"country": "nz", "n": 1.0},
    ]
    done = places.load(rows, key={"number": "n"})
    assert (done.rows, done.snapshots) == (4, 3)
    assert contents(pipeline, "places") == {
        ("jp", 1): {"seen": 5, "tags": ["a", "b"], "days": {"mon": 3, "sun": 1}},
        ("jp", 2): {"seen": 0, "tags": ["x"], "days": {"tue": 0.5}},
        ("nz", 1): {"seen": 0, "tags": [], "days": {}},
    }
    assert places.get("jp", 1, columns=["seen"]) == {"seen": 5}
    assert len(places.scan("jp")) == 2


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.ndjson", "rows.parquet"])
def test_files_of_every_format(pipeline: hy.Pipeline, tmp_path: Path, name: str) -> None:
    count = 3 * CHUNK_ROWS // 2
    table = pa.table(
        {
            "user": [f"u{at % 90_000}" for at in range(count)],
            "title": [None if at % 7 == 0 else f"t, {at}" for at in range(count)],
            "total": [at / 100 for at in range(count)],
        }
    )
    path = tmp_path / name
    rows = table.to_pylist()
    if "csv" in name:
        text = "user,title,total\n" + "".join(
            f"{row['user']},{'' if row['title'] is None else json.dumps(row['title'])},{row['total']}\n" for row in rows
        )
        path.write_bytes(gzip.compress(text.encode()) if name.endswith("gz") else text.encode())
    elif "parquet" in name:
        pq.write_table(table, path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seen: list[tuple[int, int]] = []
    done = pipeline.table("users").load(path, progress=lambda read, written: seen.append((read, written)))
    assert (done.rows, done.refused, done.snapshots) == (count, 0, 90_000)
    assert seen[-1] == (count, count)
    assert seen == sorted(seen)
    assert pipeline.table("users").get("u3") == {"title": "t, 90003", "total": 900.06}
    assert pipeline.table("users").get("u0") == {"title": "t, 90000", "total": 900}
    assert pipeline.table("users").get("u89998") == {"title": "t, 89998", "total": 899.98}
    assert pipeline.table("users").info().keys == 90_000


def test_arrow_data_in_every_form(pipeline: hy.Pipeline) -> None:
    blocked = pipeline.table("blocklist")
    table = pa.table({"ip": pa.array(["a", "b"]).dictionary_encode(), "reason": pa.array([None, datetime(2026, 1, 1)])})
    blocked.load(table)
    assert contents(pipeline, "blocklist") == {"a": {"reason": None}, "b": {"reason": "2026-01-01T00:00:00"}}
    batch = pa.record_batch({"ip": ["c"], "reason": [{"a": 1}]})
    blocked.load(batch)
    blocked.load(iter([batch, batch.slice(0, 0)]))
    assert blocked.get("c") == {"reason": {"a": 1}}
    days = pa.array([[("mon", 1.5)]], pa.map_(pa.string(), pa.float64()))
    pipeline.table("places").load(pa.table({"country": ["jp"], "number": [1], "days": days}))
    assert pipeline.table("places").get("jp", 1)["days"] == {"mon": 1.5}  # type: ignore[index]
    blocked.load([{"ip": "d", "reason": datetime(2026, 1, 1, tzinfo=UTC)}])
    assert blocked.get("d") == {"reason": "2026-01-01T00:00:00Z"}


def test_a_frame(pipeline: hy.Pipeline) -> None:
    pd = pytest.importorskip("pandas")
    pipeline.table("blocklist").load(pd.DataFrame({"ip": ["a", "b"], "reason": ["x", None]}))
    assert contents(pipeline, "blocklist") == {"a": {"reason": "x"}, "b": {"reason": None}}


def test_numbers_keep_their_digits(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    path.write_text('{"ip": 12345678901234567890, "reason": 0.12345678901234567890123}\n')
    pipeline.table("blocklist").load(path)
    assert pipeline.table("blocklist").get(12345678901234567890) == {"reason": Decimal("0.12345678901234567890123")}


@pytest.mark.parametrize("form", ["csv", "ndjson"])
def test_numbers_of_any_size_are_read_alike(pipeline: hy.Pipeline, tmp_path: Path, form: str) -> None:
    """A zero is a zero whatever its exponent; a number out of range is refused with its line, and the others stay numbers."""
    large = "1" * 50
    numbers = ["0e99999999999999999999", "-0E-99999999999999999999", "0.0e400", "1.5", large, "1e400", "2"]
    numbers += ["1e99999999999999999999", "1e-99999999999999999999", "1" * 400, "0." + "0" * 1200]
    lines = {
        "csv": ["ip,reason", *(f"{at},{number}" for at, number in enumerate(numbers))],
        "ndjson": [f'{{"ip": {at}, "reason": {number}}}' for at, number in enumerate(numbers)],
    }
    path = tmp_path / f"rows.{form}"
    path.write_text("\n".join(lines[form]) + "\n")
    done = pipeline.table("blocklist").load(path)
    assert (done.rows, done.refused) == (7, 4)
    expected = {0: 0, 1: 0, 2: 0, 3: 1.5, 4: int(large), 6: 2, 10: 0}
    assert contents(pipeline, "blocklist") == {at: {"reason": number} for at, number in expected.items()}
    first = 2 if form == "csv" else 1
    reasons = [each["reason"].split(": ") for each in pipeline.dead_letters()]
    assert [reason[0] for reason in reasons] == [f"line {first + at}" for at in (5, 7, 8, 9)]
    assert {reason[-1] for reason in reasons} == {"a number out of range"}


def test_a_text_among_the_numbers_of_a_counter_is_refused_alone(tmp_path: Path) -> None:
    p = hy.Pipeline("counts", home=tmp_path / "home")
    p.table("counts", key="k", n="Counter", sizes="Quantiles")
    path = tmp_path / "rows.csv"
    path.write_text("k,n,sizes\na,1,1.5\nb,many,2\nc,123456789012345678901,3\nd,2.5,much\n")
    done = p.table("counts").load(path)
    assert (done.rows, done.refused) == (2, 2)
    assert [(row["k"], row["n"]) for row in p.table("counts").scan()] == [("a", 1), ("c", 123456789012345678901)]
    reasons = [each["reason"] for each in p.dead_letters()]
    assert reasons == [
        'line 3: column "n" must be double, not "many"',
        'line 5: column "sizes" must be double, not "much"',
    ]


def test_a_schema_says_what_columns_of_csv_are(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("ip,reason\n007,1\n008,2\n")
    pipeline.table("blocklist").load(path, schema="ip string")
    assert contents(pipeline, "blocklist") == {"007": {"reason": 1}, "008": {"reason": 2}}
    with pytest.raises(HayaseError, match='has no column "oops"'):
        pipeline.table("blocklist").load(path, schema="oops string")


@pytest.mark.parametrize(
    ("name", "text"),
    [("e.csv", ""), ("e.csv", "ip,reason\n"), ("e.csv", "\n\nip,reason"), ("e.ndjson", ""), ("e.ndjson", "\n\n")],
)
def test_empty_files(pipeline: hy.Pipeline, tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    done = pipeline.table("blocklist").load(tmp_path / name)
    assert (done.number, done.rows, done.refused) == (0, 0, 0)
    assert contents(pipeline, "blocklist") == {}


def test_an_empty_parquet_file(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    pq.write_table(pa.table({"ip": pa.array([], pa.string())}), tmp_path / "e.parquet")
    assert pipeline.table("blocklist").load(tmp_path / "e.parquet").rows == 0


# ---------------------------------------------------------------------------------------------------- what is wrong


def test_rows_that_do_not_fit_are_dead_letters_alone(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.ndjson"
    lines = [
        '{"user": "a", "total": 1}', '{"user": null, "total": 1}', '{"user": "b", "total": "many"}', "oops", "[1]", "",
        '{"user": ["x"], "total": 1}', '{"total": 5}', '{"user": "c"}',
        json.dumps({"user": "x" * 2000}), json.dumps({"user": "d", "title": "x" * 70_000}),
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    done = pipeline.table("users").load(path)
    assert (done.rows, done.refused) == (2, 8)
    assert contents(pipeline, "users") == {"a": {"title": None, "total": 1}, "c": {"title": None, "total": 0}}
    letters = pipeline.dead_letters()
    assert {(each["stage"], each["stream"]) for each in letters} == {("load", "users")}
    assert [each["reason"].split(":")[0] for each in letters] == [f"line {at}" for at in (2, 3, 4, 5, 7, 8, 10, 11)]
    reasons = " | ".join(each["reason"] for each in letters)
    for part in ("the key is null", 'column "total": Counter.incr: cannot add a text', "not JSON", "a row is an object",
                 "the key has an array", "at most 1,024 fit", "too large"):  # fmt: skip
        assert part in reasons
    assert letters[1]["record"] == '{"user": "b", "total": "many"}'


def test_rows_of_csv_and_parquet_that_do_not_fit(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,total\na,1\nb\nc,x\n,3\n")
    done = pipeline.table("users").load(path, schema="user string, total double")
    assert (done.rows, done.refused) == (1, 3)
    assert [each["reason"].split(":")[0] for each in pipeline.dead_letters()] == ["line 3", "line 4", "line 5"]
    pq.write_table(pa.table({"user": ["a", None], "total": [1, 2]}), tmp_path / "rows.parquet")
    assert pipeline.table("users").load(tmp_path / "rows.parquet").refused == 1
    assert contents(pipeline, "users") == {"a": {"title": None, "total": 2}}
    assert pipeline.dead_letters()[-1]["reason"].startswith("row 2: the key is null")


def test_a_last_lot_without_keys_is_refused_alone(pipeline: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.tables.load_sources.CHUNK_ROWS", 2)
    done = pipeline.table("users").load([{"user": "a"}, {"user": "b"}, {"total": 5}])
    assert (done.rows, done.refused) == (2, 1)
    assert pipeline.dead_letters()[0]["reason"].startswith("row 3: the key is null")


def test_texts_that_are_no_utf8_are_refused(pipeline: hy.Pipeline) -> None:
    raw = pa.array([b"a", b"\xff"])
    texts = pa.Array.from_buffers(pa.string(), 2, raw.buffers())
    done = pipeline.table("blocklist").load(pa.table({"ip": texts, "reason": texts}))
    assert (done.rows, done.refused) == (1, 1)
    assert contents(pipeline, "blocklist") == {"a": {"reason": "a"}}


def test_all_rows_refused_is_no_load(pipeline: hy.Pipeline) -> None:
    done = pipeline.table("users").load([{"user": None}])
    assert (done.number, done.rows, done.refused) == (0, 0, 1)


def test_columns_too_many_or_missing(pipeline: hy.Pipeline, tmp_path: Path) -> None:
    users = pipeline.table("users")
    for rows in ([{"user": "a", "titel": "x"}], pa.table({"user": ["a"], "titel": ["x"]})):
        with pytest.raises(HayaseError, match=r'takes no column "titel".*did you mean "title"'):
            users.load(rows)
        assert users.load(rows, ignore_others=True).rows == 1
    with pytest.raises(HayaseError, match=r'have no column "user".*--key user=COLUMN'):
        users.load([{"user_id": "a"}], ignore_others=True)
    with pytest.raises(HayaseError, match='have no column "at"'):
        users.load([{"user": "a"}], time="at")
    with pytest.raises(HayaseError, match="part of the key"):
        users.load([{"user": "a"}], key={"usr": "user"})
    with pytest.raises(HayaseError, match="is there twice"):
        users.load(pa.table([["a"], ["b"]], names=["user", "user"]))
    for wrong in ("nowhere.csv", {"user": "a"}, 5, b"x"):
        with pytest.raises(HayaseError):
            users.load(wrong)
    (tmp_path / "broken.parquet").write_bytes(b"nothing")
    with pytest.raises(HayaseError, match="cannot be read as parquet"):
        users.load(tmp_path / "broken.parquet")
    assert contents(pipeline, "users") == {"a": {"title": None, "total": 0}}


def test_a_late_error_leaves_the_table_as_it_was(pipeline: hy.Pipeline) -> None:
    rows = [{"user": f"u{at}"} for at in range(CHUNK_ROWS)] + [{"user": "x", "oops": 1}]
    with pytest.raises(HayaseError, match="takes no column"):
        pipeline.table("users").load(rows)
    assert contents(pipeline, "users") == {}
    assert not (pipeline.home.path / "loads").exists()


def test_a_pipeline_that_runs_is_said(pipeline: hy.Pipeline) -> None:
    with pipeline.home.lock(), pytest.raises(HomeInUse, match=r'table "users" cannot be loaded.*stop that one'):
        pipeline.table("users").load([{"user": "a"}])


def test_a_table_of_another_shape_is_not_loaded(pipeline: hy.Pipeline) -> None:
    pipeline.apply()
    pipeline.run_until_idle(spark=False)
    other = hy.Pipeline("shop", pipeline.home.path)
    with pytest.raises(StageChanged, match="declared otherwise"):
        other.table("users", "user", title=hy.Counter()).load([{"user": "a"}])
    fresh = hy.Pipeline("shop", pipeline.home.path.with_name("other"))
    fresh.table("users", "user", title=hy.Counter()).load([{"user": "a"}])
    again = hy.Pipeline("shop", fresh.home.path)
    with pytest.raises(StageChanged, match="was loaded with"):
        again.table("users", "user", title=hy.Register()).load([{"user": "a"}])
    more = hy.Pipeline("shop", fresh.home.path)
    more.table("users", "user", title=hy.Counter(), more=hy.Register()).load([{"user": "a", "more": 1}])
    assert more.table("users").get("a") == {"title": 0, "more": 1}


# ---------------------------------------------------------------------------------------------------- deaths


@pytest.fixture
def room() -> Iterator[Path]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        yield Path(directory)


def _copied(home: Path, target: Path) -> None:
    """The home as it is at one moment: RocksDB also works by itself, beside us."""
    for _ in range(20):
        with suppress(FileNotFoundError, shutil.Error):
            shutil.copytree(home, target)
            return
        shutil.rmtree(target, ignore_errors=True)
    raise AssertionError("the home does not stand still")


def test_a_death_at_any_step_leaves_all_or_nothing(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_load, "IN_MEMORY", 3)
    monkeypatch.setattr(bulk_load, "SAMPLED", 1)
    monkeypatch.setattr("hayase.tables.load_sources.CHUNK_ROWS", 2)
    home = room / "home"
    pipeline = shop(home)
    pipeline.append("events", [event(1, at, f"u{at}", "event", 1) for at in range(3)])
    pipeline.run_until_idle(spark=False)
    pipeline.table("users").load([{"user": f"u{at}", "total": 10} for at in range(2, 5)])
    before = contents(pipeline, "users")
    rows = [{"user": f"u{at % 8}", "title": f"{at}", "total": at if at != 5 else "bad"} for at in range(11)]
    copies: list[Path] = []

    def reached(step: str) -> None:
        copies.append(room / f"{len(copies):03d}")
        _copied(home, copies[-1])

    plain = rocksdb.RocksStore.ingest

    def announced(self: Any, files: Any) -> None:
        reached("before ingest")
        plain(self, files)
        reached("after ingest")

    monkeypatch.setattr(rocksdb.RocksStore, "ingest", announced)
    monkeypatch.setattr(durable, "reached", reached)
    pipeline.table("users").load(rows)
    monkeypatch.undo()
    after = contents(pipeline, "users")
    assert after != before
    twice = None
    found = []
    for copy in sample(copies, most=10):
        dead = shop(copy)
        found.append(contents(dead, "users"))
        assert found[-1] in (before, after)
        dead.table("users").load(rows)
        assert not (copy / "loads").exists()
        if found[-1] == before:
            assert contents(dead, "users") == after
        else:
            twice = twice or contents(dead, "users")
            assert contents(dead, "users") == twice
        dead.run_until_idle(spark=False)
        assert contents(dead, "users") in (after, twice)
        assert not list(dead.home.staged(MAIN).iterdir())
        Commits(dead.home, MAIN).latest()
    assert before in found
    assert after in found
    assert found == sorted(found, key=lambda each: each == after), "once it is there it stays"
