"""Laws of serving: the description tells the truth, keys of any text come back, changes add up to snapshots."""

from __future__ import annotations

import contextlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest import mock
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from effort import examples
from hayase.core.times import END
from hayase.engine.local import InProcess
from hayase.engine.results import snapshots
from hayase.engine.results.live_results import Changes, Cursor, Live
from hayase.serving import Status, serving
from hayase.serving.parameters import cursor_bytes, cursor_text, key_in
from hayase.tables.payloads import json_bytes
from hayase.testing import Trial, at, trial
from serving_shop import Shop, shop

SEED = os.environ.get("HAYASE_SERVING_SEED")
"""Given by `make fuzz`: other requests in each round, also to a server with a token."""
TOKEN = "Zp-q0Jm3vYx8kT2s"


@pytest.fixture(scope="module", params=["open", "token"] if SEED else ["open"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    token = TOKEN if request.param == "token" else None
    with shop(tmp_path_factory.mktemp("shop"), token=token) as made:
        if token is not None:
            made.http.headers["Authorization"] = f"Bearer {token}"
        yield made


ODD = settings(
    max_examples=examples(12),
    derandomize=SEED is None,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


REAL = {"table": "by_place", "stream": "orders", "query": "recent"}
"""Names that lead somewhere, for every second request."""


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode))
def test_the_description_tells_the_truth(served: Shop, mode: schemathesis.GenerationMode) -> None:
    """No request, as described or against it, is answered with a fault or in a way that the description does not know."""
    rejected = {"expected-statuses": ["4xx"]}  # 410, 414 and 431 are refusals, too
    config = schemathesis.Config.from_dict({"checks": {"negative_data_rejection": rejected}})
    headers = {name: value for name, value in served.http.headers.items() if name == "authorization"}
    schema = schemathesis.openapi.from_url(f"{served.server.url}/openapi.json", config=config, headers=headers)
    tried = 0
    for found in schema.get_all_operations():
        operation = found.ok()

        @ODD
        @given(operation.as_strategy(generation_mode=mode))
        def holds(case: Any) -> None:
            nonlocal tried
            tried += 1
            if case.path in ("/queries/{query}/changes", "/pipeline/events"):
                case.query = {**(case.query or {}), "wait": "0"}  # or it would be answered for ever
            if mode is schemathesis.GenerationMode.POSITIVE and tried % 2:
                for name in case.path_parameters.keys() & REAL.keys():
                    case.path_parameters[name] = REAL[name]
            # what a table's key has as parts, and what is a cursor, is not in the description; that every route asks for
            # the token is told in test_serving_guard.py
            case.call_and_validate(
                timeout=600, headers=headers, excluded_checks=[positive_data_acceptance, ignored_auth]
            )

        with contextlib.suppress(Unsatisfiable):  # a route without parameters cannot be asked wrongly
            holds()
    assert tried > 100


# -- keys -----------------------------------------------------------------------------------------------------------------
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**64 - 1), st.decimals(allow_nan=False, allow_infinity=False, places=20),
    st.text(max_size=20),
)  # fmt: skip


@given(st.lists(st.text(), min_size=1))
def test_a_key_of_texts_comes_back(parts: list[str]) -> None:
    path = "/tables/t/" + "/".join(quote(each, safe="") for each in parts)
    assert key_in(path.encode(), False) == tuple(parts)


@given(st.lists(SCALARS, min_size=1))
def test_a_key_of_json_comes_back(parts: list[Any]) -> None:
    path = "/tables/t/" + "/".join(quote(json_bytes(each), safe="") for each in parts)
    found = key_in(path.encode(), True)
    assert [type(each) is bool for each in found] == [type(each) is bool for each in parts]
    assert found == tuple(parts)


@given(st.binary())
def test_a_cursor_comes_back(cursor: bytes) -> None:
    text = cursor_text(cursor)
    assert text is not None
    assert quote(text, safe="") == text
    assert cursor_bytes(text) == cursor


RULES = """
source: s
branches:
  - condition: "true"
    tables:
      - tableName: t
        ops: [{key: [.a, .b], columnName: n, method: incr, paramJq: .n}]
"""
PLACES = st.text(max_size=12)


@settings(max_examples=examples(4), derandomize=True)
@given(st.lists(st.tuples(PLACES, PLACES, st.decimals(-(10**15), 10**15, places=6)), min_size=1, max_size=60))
def test_any_key_is_found_over_http(rows: list[tuple[str, str, Decimal]]) -> None:
    """Whatever stands in a key, its row is at its address, in the answer for many keys and on a page of the scan."""
    rows = [
        *rows,
        ("..", ".", Decimal(1)),
        ("", "", Decimal("0.1")),
        ("", "", Decimal("0.2")),
        ("a/b", "%2F", Decimal(2)),
    ]
    sums: dict[tuple[str, str], Decimal] = {}
    for a, b, n in rows:
        sums[a, b] = sums.get((a, b), Decimal(0)) + n
    with trial() as t:
        t.stream("s", "time timestamp, id string, a string, b string, n decimal(38,6)", id="id")
        t.table("t", key=["a", "b"], n="Counter")
        t.rules(text=RULES)
        t.append("s", [{"time": at(0), "id": str(i), "a": a, "b": b, "n": n} for i, (a, b, n) in enumerate(rows)])
        t.apply()
        with contextlib.closing(InProcess(t.home, t.clock)) as runner:
            status = Status("running", runner.run_until_idle())
            assert runner.manifest.totals["t"].dead == 0
            with serving(t.home, "127.0.0.1:0", tables=runner.tables, status=status) as server, httpx.Client() as http:
                for (a, b), n in sums.items():
                    texts = [quote(json.dumps(each), safe="") for each in (a, b)]
                    found = http.get(f"{server.url}/tables/t/{'/'.join(texts)}?json=true")
                    assert _exact(found.content) == {"key": [a, b], "row": {"n": n}}
                    if not {a, b} & {"", ".", ".."}:  # clients tidy such addresses up
                        plain = f"{server.url}/tables/t/{quote(a, safe='')}/{quote(b, safe='')}"
                        assert http.get(plain).content == found.content
                asked = http.post(f"{server.url}/tables/t", json={"keys": [list(key) for key in sums]}).content
                assert [each["row"]["n"] for each in _exact(asked)["rows"]] == list(sums.values())
                scanned, after = [], {}
                while after is not None:
                    page = _exact(http.get(f"{server.url}/scan/t", params={"limit": 7, **after}).content)
                    scanned += [(*each["key"], each["row"]["n"]) for each in page["rows"]]
                    after = None if page["next"] is None else {"after": page["next"]}
                assert scanned == sorted((a, b, n) for (a, b), n in sums.items())


def _exact(body: bytes) -> Any:
    return json.loads(body, parse_float=Decimal, parse_int=Decimal)


# -- changes --------------------------------------------------------------------------------------------------------------
QUERIES = {
    "recent": "select k, v from s [Range 7 seconds]",
    "sums": "select k, sum(v) as v from s group by k",
    "last": "select v from s [Partition By k Rows 2]",
}
EVENTS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc"), st.integers(0, 3)), max_size=12)


@settings(max_examples=examples(4))
@given(st.lists(EVENTS, min_size=1, max_size=4), st.data())
def test_changes_add_up_to_snapshots(batches: list[list[tuple[int, str, int]]], data: st.DataObject) -> None:
    """A reader that listens while batches come hears all changes once, in order; it can stop and come back anywhere;
    and what it has heard up to a time makes up the snapshot of that time."""
    with trial() as t, mock.patch.object(snapshots, "LEAST", 4):
        t.stream("s", "at bigint, k string, v bigint", time="at", time_unit="s")
        for name, text in QUERIES.items():
            t.query(name, text)
        heard: dict[str, list[tuple[str, int, str, dict[str, Any]]]] = {name: [] for name in QUERIES}
        readers: dict[str, Changes] = {}
        now = 0
        for batch in batches:
            rows = []
            for step, k, v in batch:
                now += step
                rows.append({"at": now, "k": k, "v": v})
            t.append("s", rows)
            t.run()
            for name in QUERIES:
                log = t.results(name).log
                snapshots.update_snapshots(log, 0)
                reader = readers.setdefault(name, Live(log).changes_from_start())
                if heard[name] and data.draw(st.booleans()):
                    reader = readers[name] = Live(log).changes_from(Cursor.from_text(heard[name][-1][0]))
                heard[name] += _read(reader, data.draw(st.integers(1, 5)))
        for name in QUERIES:
            results, told = t.results(name), heard[name]
            assert sorted(map(_sorted, told)) == sorted((time, sign, str(row)) for time, sign, row in results.changes())
            assert [each[1:3] for each in told] == sorted(
                (each[1:3] for each in told), key=lambda e: (e[0], e[1] == "+")
            )
            _check_snapshots(t, name, told)
            for place in data.draw(st.lists(st.integers(0, len(told) - 1), max_size=3)) if told else ():
                again = Live(results.log).changes_from(Cursor.from_text(told[place][0]))
                assert _read(again, 1000) == told[place + 1 :]


def _read(reader: Changes, limit: int) -> list[tuple[str, int, str, dict[str, Any]]]:
    told = []
    while True:
        cursors, rows = reader.read(limit)
        if not cursors:
            return told
        signs = ["+" if each else "-" for each in rows.column("__appears").to_pylist()]
        plain = rows.select(rows.column_names[3:]).to_pylist()
        told += list(zip(map(str, cursors), reader.times(rows), signs, plain))


def _sorted(change: tuple[str, int, str, dict[str, Any]]) -> tuple[int, str, str]:
    return change[1], change[2], str(change[3])


def _check_snapshots(t: Trial, name: str, told: list[tuple[str, int, str, dict[str, Any]]]) -> None:
    results = Live(t.results(name).log)
    final = results.final()
    alive: Counter[str] = Counter()
    for time in range(0 if final is None else final + 1):
        for _, when, sign, row in told:
            if when == time:
                alive[str(row)] += 1 if sign == "+" else -1
        rows, page = [], results.page(time, limit=2)
        rows += page.rows.to_pylist()
        while page.next is not None:
            page = results.page(None, after=Cursor.from_text(str(page.next)), limit=2)
            rows += page.rows.to_pylist()
        assert Counter(map(str, rows)) == +alive
        assert page.at == time
        later = results.changes_from(page.changes)
        assert _read(later, 100) == [each for each in told if each[1] > time]
    whole: pa.Table = results.page(None, limit=1000, with_lifetimes=True).rows
    known = [
        (str(row), since)
        for row, since, until in results.intervals()
        if final is not None and since <= final < (until or END)
    ]
    found = [
        (str({key: row[key] for key in row if not key.startswith("valid_")}), row["valid_from"])
        for row in whole.to_pylist()
    ]
    assert sorted(found) == sorted(known)
