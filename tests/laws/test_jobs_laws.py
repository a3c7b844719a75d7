"""Jobs equal plain Python programs, however records are split into batches, buckets and firings, and whoever fails."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hayase.jobs as hy
from effort import examples
from hayase.core.declarations import StreamDeclaration, TableDeclaration
from hayase.jobs.job_builder import Job
from job_runner import RowBuffer, Runner

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LOGS = StreamDeclaration("logs", "at timestamp, line string, status int, size bigint, user string", "at")
MINUTE = 60_000_000


def at(seconds: float) -> datetime:
    return EPOCH + timedelta(seconds=seconds)


# ---------------------------------------------------------------------------------------------------- functions


def words(record: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for word in record["line"].split():
        yield word, 1


def total(key: Any, values: list[Any]) -> Iterator[tuple[Any, Any]]:
    yield key, sum(values)


def by_key(record: dict[str, Any]) -> tuple[Any, Any]:
    return eval(record["line"]), record["size"]


def members(key: Any, values: list[Any]) -> list[tuple[Any, Any]]:
    return [(key, values)]


def sized(record: dict[str, Any]) -> tuple[str, int]:
    return record["user"], record["size"]


def typed(record: dict[str, Any]) -> dict[str, Any]:
    return {"user": record["user"], "status": record["status"], "size": record["size"]}


def typed_total(key: tuple[str, int], values: list[dict[str, Any]]) -> dict[str, Any]:
    user, status = key
    return {"user": user, "status": status, "bytes": sum(each["size"] for each in values)}


def joined(key: str, new: list[int], stored: dict[str, Any] | None) -> tuple[str, Any]:
    return key, [sorted(new), stored]


def typed_joined(key: str, new: list[dict[str, Any]], stored: dict[str, Any] | None) -> dict[str, Any]:
    return {"user": key, "told": json.dumps([sorted(each["size"] for each in new), stored])}


def hop(record: dict[str, Any]) -> Any:
    size = record["value"] if "value" in record else record["size"]
    key = record["key"] if "key" in record else record["user"]
    if size > 0:
        yield hy.to("again", key, size - 1)
    yield key, size


def onward(key: Any, values: list[int]) -> Iterator[Any]:
    for each in values:
        yield hy.to("again", key, each + 1)


def start(record: dict[str, Any]) -> tuple[str, int]:
    return record["user"], record["size"]


FAULTS = ("raises", "number", "triple", "set", "huge", "nan", "late", "group", "object", "exit")


def faulty(record: dict[str, Any]) -> Any:
    line = record["line"]
    if line == "raises":
        raise ValueError("it is bad")
    if line == "number":
        return 7
    if line == "triple":
        return (1, 2, 3)
    if line == "set":
        return {1, 2}, 1
    if line == "huge":
        return "x" * 2000, 1
    if line == "nan":
        return float("nan"), 1
    if line == "group":
        return hy.to("nowhere", 1, 1)
    if line == "object":
        return "k", object()
    if line == "exit":
        raise SystemExit(3)
    return faulty_later(line)


def faulty_later(line: str) -> Iterator[Any]:
    yield line, 1
    if line == "late":
        raise KeyError(line)
    yield line, 1


def fails_on_b(key: str, values: list[int]) -> tuple[str, int]:
    if key == "b":
        raise ValueError("no b")
    return key, sum(values)


# ---------------------------------------------------------------------------------------------------- records

LINES = st.lists(st.sampled_from(["a", "b", "b c", "", "a a d", 'ü "q" \\', "a\x01"]), max_size=30)


@st.composite
def records(draw: st.DrawFn, most: int = 40, seconds: int = 100) -> list[dict[str, Any]]:
    count = draw(st.integers(0, most))
    return [
        {
            "at": at(draw(st.integers(0, seconds))),
            "line": draw(st.sampled_from(["a", "b c", "a a d", ""])),
            "status": draw(st.sampled_from([200, 404, None])),
            "size": draw(st.integers(-5, 12)),
            "user": draw(st.sampled_from(["taro", "jiro", "hana", "ken"])),
        }
        for _ in range(count)
    ]


@st.composite
def firings(draw: st.DrawFn, given: Sequence[Any]) -> list[list[Any]]:
    cuts = sorted(draw(st.lists(st.integers(0, len(given)), max_size=4)))
    return [list(given[start:stop]) for start, stop in zip([0, *cuts], [*cuts, len(given)])]


def by_group(row: dict[str, Any]) -> tuple[str, str]:
    return row["user"], str(row["status"])


RUNS = {"buckets": st.integers(1, 4), "chunk": st.integers(1, 9)}


def job(*steps: Any, reads: str = "logs", rounds: int | None = None) -> Any:
    made = Job("out", reads, "2 seconds", rounds=rounds)
    for step in steps:
        step(made)
    return made.declaration


@settings(max_examples=examples(15), deadline=None)
@given(st.data(), st.sampled_from(["function", "count", "sum"]), RUNS["buckets"], RUNS["chunk"])
def test_word_count_is_a_counter(data: st.DataObject, how: str, buckets: int, chunk: int) -> None:
    lines = data.draw(LINES)
    reduce = (lambda j: j.reduce(total)) if how == "function" else (lambda j: j.reduce(how))
    runner = Runner([job(lambda j: j.map(words), reduce)], [LOGS], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(list(enumerate(lines)))):
        before = len(runner.rows("out"))
        runner.append("logs", [{"at": at(number), "line": line} for number, line in some])
        runner.fire()
        fresh = runner.rows("out")[before:]
        expected = Counter(word for _, line in some for word in line.split())
        assert {json.loads(each["key"]): json.loads(each["value"]) for each in fresh} == expected
        assert len(fresh) == len(expected)
        latest = {word: number for number, line in some for word in line.split()}
        assert {json.loads(each["key"]): each["time"] for each in fresh} == {w: at(n) for w, n in latest.items()}
    assert not runner.dead


@settings(max_examples=examples(12), deadline=None)
@given(st.data(), records(), RUNS["buckets"], RUNS["chunk"])
def test_log_statistics_equal_plain_python(
    data: st.DataObject, rows: list[dict[str, Any]], buckets: int, chunk: int
) -> None:
    calls = {"hits": "count(*)", "bytes": "sum(size)", "least": "min(size)", "most": "max(size)", "mean": "avg(size)",
             "newest": "last(line)", "known": "count(status)"}  # fmt: skip
    runner = Runner([job(lambda j: j.reduce(key=["user", "status"], **calls))], [LOGS], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(rows)):
        before = len(runner.rows("out"))
        runner.append("logs", some)
        runner.fire()
        groups = defaultdict(list)
        for each in some:
            groups[each["user"], each["status"]].append(each)
        expected = []
        for (user, status), of in groups.items():
            sizes = [each["size"] for each in of]
            expected.append(
                {"user": user, "status": status, "hits": len(of), "bytes": sum(sizes), "least": min(sizes),
                 "most": max(sizes), "mean": sum(sizes) / len(sizes), "newest": of[-1]["line"],
                 "known": len(of) if status is not None else 0, "time": max(each["at"] for each in of)}
            )  # fmt: skip
        found = runner.rows("out")[before:]
        assert sorted(found, key=by_group) == sorted(expected, key=by_group)


@settings(max_examples=examples(10), deadline=None)
@given(st.data(), records(), RUNS["buckets"], RUNS["chunk"])
def test_typed_tuples_and_order_by_time(
    data: st.DataObject, rows: list[dict[str, Any]], buckets: int, chunk: int
) -> None:
    schema = "user string, status int, size bigint"
    summed = job(
        lambda j: j.map(schema=schema, key=["user", "status"])(typed),
        lambda j: j.reduce(schema="user string, status int, bytes bigint")(typed_total),
    )
    ordered = Job("ordered", "logs")
    ordered.map(sized)
    ordered.reduce(order="time")(members)
    newest = Job("newest", "logs")
    newest.reduce(key="user", order="time", last="last(size)", n="count(*)")
    runner = Runner([summed, ordered.declaration, newest.declaration], [LOGS], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(rows)):
        before = {name: len(runner.rows(name)) for name in ("out", "ordered", "newest")}
        runner.append("logs", some)
        runner.fire()
        sums: dict[Any, int] = defaultdict(int)
        users: dict[str, list[Any]] = defaultdict(list)
        for each in some:
            sums[each["user"], each["status"]] += each["size"]
            users[each["user"]].append((each["at"], each["size"]))
        found = runner.rows("out")[before["out"] :]
        assert {(each["user"], each["status"]): each["bytes"] for each in found} == sums
        in_order = {user: [size for _, size in sorted(of, key=lambda one: one[0])] for user, of in users.items()}
        assert dict(runner.tuples("ordered")[before["ordered"] :]) == in_order
        last = {each["user"]: (each["last"], each["n"]) for each in runner.rows("newest")[before["newest"] :]}
        assert last == {user: (sizes[-1], len(sizes)) for user, sizes in in_order.items()}


ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 2), st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3), st.sampled_from(["1", "null", "true", '"']),
)  # fmt: skip
ALIKE = st.sampled_from(
    [0, 0.0, -0.0, False, 1, 1.0, True, "1", (), (1,), (1.0,), (True,), ("1",), (1, None), 2**62, 2.0**62]
)
KEYS = ALIKE | st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)


def model(key: Any) -> Any:
    """What two keys have in common if and only if they are equal."""
    if isinstance(key, tuple):
        return ("tuple", *map(model, key))
    if isinstance(key, bool) or key is None or isinstance(key, str):
        return type(key).__name__, key
    return "number", key + 0


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(KEYS, max_size=20), RUNS["buckets"], RUNS["chunk"])
def test_keys_of_any_type(keys: list[Any], buckets: int, chunk: int) -> None:
    runner = Runner([job(lambda j: j.map(by_key), lambda j: j.reduce(members))], [LOGS], buckets=buckets, chunk=chunk)
    runner.append("logs", [{"at": at(n), "line": repr(key), "size": n} for n, key in enumerate(keys)])
    runner.fire()
    groups = defaultdict(list)
    for number, key in enumerate(keys):
        groups[model(key)].append(number)
    assert not runner.dead
    assert sorted(value for _, value in runner.tuples("out")) == sorted(groups.values())


# ---------------------------------------------------------------------------------------------------- windows


@settings(max_examples=examples(15), deadline=None)
@given(
    st.data(), st.sampled_from(["function", "sum", "typed"]), st.sampled_from([(15, 6), (6, 6), (4, 6), (10, 1), (7, 3)]),
    RUNS["buckets"], RUNS["chunk"],
)  # fmt: skip
def test_sliding_reduces_equal_recomputation(
    data: st.DataObject, how: str, window: tuple[int, int], buckets: int, chunk: int
) -> None:
    length, every = window
    rows = sorted(data.draw(records(seconds=80)), key=lambda each: each["at"])
    slides = {"window": f"{length} s", "every": f"{every} s"}
    if how == "typed":
        made = job(lambda j: j.reduce(key="user", value="sum(size)", **slides))
    elif how == "sum":
        made = job(lambda j: j.map(sized), lambda j: j.reduce("sum", **slides))
    else:
        made = job(lambda j: j.map(sized), lambda j: j.reduce(**slides)(total))
    runner = Runner([made], [LOGS], buckets=buckets, chunk=chunk, changes=lambda: data.draw(st.booleans()))
    for some in data.draw(firings(rows)):
        runner.append("logs", some)
        clock = int(some[-1]["at"].timestamp() * 1e6) if some else 0
        runner.fire(max(0, clock - data.draw(st.integers(0, 3)) * 1_000_000))
    runner.fire(200_000_000)
    expected = []
    for end in range(0, 200, every):
        sums: dict[str, int] = defaultdict(int)
        for each in rows:
            if end - length < each["at"].timestamp() <= end:
                sums[each["user"]] += each["size"]
        expected += [(at(end), user, size) for user, size in sums.items()]
    if how == "typed":
        found = [(each["time"], each["user"], each["value"]) for each in runner.rows("out")]
    else:
        found = [(each["time"], json.loads(each["key"]), json.loads(each["value"])) for each in runner.rows("out")]
    assert sorted(found) == sorted(expected)
    assert not runner.dead


# ---------------------------------------------------------------------------------------------------- merges

USERS = TableDeclaration("users", ("user",), (("limit", "Register"),))


@settings(max_examples=examples(15), deadline=None)
@given(
    st.data(), records(), st.sampled_from(["left", "right", "both"]), st.booleans(),
    st.dictionaries(st.sampled_from(["taro", "jiro", "saburo", "mio", "yui"]), st.integers(0, 9)), RUNS["buckets"], RUNS["chunk"],
)  # fmt: skip
def test_a_merge_is_a_hash_join(
    data: st.DataObject,
    rows: list[dict[str, Any]],
    side: str,
    typing: bool,
    limits: dict[str, int],
    buckets: int,
    chunk: int,
) -> None:
    shelf = RowBuffer(USERS, {(user,): {"limit": limit} for user, limit in limits.items()})
    if typing:
        made = job(lambda j: j.merge("users", side=side, key="user", schema="user string, told string")(typed_joined))
    else:
        made = job(lambda j: j.map(sized), lambda j: j.merge("users", side=side)(joined))
    runner = Runner([made], [LOGS], [shelf], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(rows)):
        before = len(runner.rows("out"))
        shelf.asked.clear()
        runner.append("logs", some)
        runner.fire()
        new = defaultdict(list)
        for each in some:
            new[each["user"]].append(each["size"])
        keys = {"left": set(new), "right": set(limits), "both": set(new) | set(limits)}[side] if some else set()
        expected = {
            user: [sorted(new.get(user, [])), {"limit": limits[user]} if user in limits else None] for user in keys
        }
        fresh = runner.rows("out")[before:]
        if typing:
            found = {each["user"]: json.loads(each["told"]) for each in fresh}
        else:
            found = {json.loads(each["key"]): json.loads(each["value"]) for each in fresh}
        assert found == expected
        assert len(fresh) == len(expected)
        assert sorted(shelf.asked) == sorted((user,) for user in new)
        if some:
            last = max(each["at"] for each in some)
            assert all(
                each["time"] == last
                for each in fresh
                if (each["user"] if typing else json.loads(each["key"])) not in new
            )


# ---------------------------------------------------------------------------------------------------- loops and failures


@settings(max_examples=examples(10), deadline=None)
@given(st.data(), records(most=8), RUNS["buckets"], RUNS["chunk"])
def test_a_loop_ends_when_nothing_is_emitted(
    data: st.DataObject, rows: list[dict[str, Any]], buckets: int, chunk: int
) -> None:
    made = job(lambda j: j.map(reads=["logs", "again"], also="again")(hop))
    runner = Runner([made], [LOGS], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(rows)):
        runner.append("logs", some)
        runner.fire()
    runner.until_idle()
    expected = Counter(
        (each["user"], size)
        for each in rows
        for size in range(min(each["size"], 0) if each["size"] < 0 else 0, each["size"] + 1)
    )
    assert Counter(runner.tuples("out")) == expected


@settings(max_examples=examples(10), deadline=None)
@given(st.data(), records(most=8), st.integers(1, 4), RUNS["buckets"], RUNS["chunk"])
def test_rounds_end_a_loop(
    data: st.DataObject, rows: list[dict[str, Any]], rounds: int, buckets: int, chunk: int
) -> None:
    made = job(
        lambda j: j.map(writes="again")(start), lambda j: j.reduce(reads="again", writes="again")(onward), rounds=rounds
    )
    runner = Runner([made], [LOGS], buckets=buckets, chunk=chunk)
    for some in data.draw(firings(rows)):
        runner.append("logs", some)
        runner.fire()
    runner.until_idle()
    # a tuple enters the loop from outside; each time that it is written back begins a round, and one more would be too many
    assert Counter(runner.tuples("out")) == Counter((each["user"], each["size"] + rounds + 1) for each in rows)


@settings(max_examples=examples(15), deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", *FAULTS]), max_size=25), st.integers(1, 3), RUNS["buckets"], RUNS["chunk"]
)
def test_a_record_that_fails_harms_nobody(lines: list[str], attempts: int, buckets: int, chunk: int) -> None:
    made = job(lambda j: j.map(attempts=attempts)(faulty), lambda j: j.reduce(fails_on_b))
    runner = Runner([made], [LOGS], buckets=buckets, chunk=chunk)
    runner.append("logs", [{"at": at(number), "line": line} for number, line in enumerate(lines)])
    runner.fire()
    good = Counter(line for line in lines if line in ("a", "c"))
    assert dict(runner.tuples("out")) == {line: 2 * count for line, count in good.items()}
    lost = Counter(record.get("line") or json.loads(record["key"]) for _, record, _ in runner.dead)
    assert lost == Counter(line for line in lines if line in FAULTS) + Counter({"b": 2 * lines.count("b")})
    for _, record, reason in runner.dead:
        if record.get("line") == "raises":
            assert "ValueError: it is bad" in reason
            assert "test_jobs_laws.py, line" in reason
            assert ("attempts" in reason) == (attempts > 1)
    told = [reason for _, record, reason in runner.dead if "line" not in record]
    assert sum("Traceback" in each for each in told) == bool("b" in lines)


def test_all_faults_say_what_was_expected() -> None:
    runner = Runner([job(lambda j: j.map(faulty))], [LOGS])
    runner.append("logs", [{"at": at(0), "line": line} for line in FAULTS])
    runner.fire()
    told = {record["line"]: reason for _, record, reason in runner.dead}
    assert set(told) == set(FAULTS)
    assert told["number"] == "faulty: it gave 7 (a int); give a tuple, a list of tuples, or None, or yield tuples"
    assert told["triple"] == "faulty: it gave a tuple of 3 parts, (1, 2, 3); give (key, value)"
    assert told["set"].endswith("a key is null, a boolean, a number, a text or a tuple of such")
    assert told["huge"] == "faulty: the key has 2,002 bytes as JSON; at most 1,024 fit"
    assert "equals nothing" in told["nan"]
    assert 'the group "nowhere"' in told["group"]
    assert "is not JSON" in told["object"]
    assert "SystemExit: 3" in told["exit"]


@pytest.mark.parametrize("how", ["function", "aggregate"])
def test_the_moving_average_of_the_paper(how: str) -> None:
    """15 minutes, every 6: five sub-windows of 3 minutes, of which two are new each time."""
    made = (
        job(
            lambda j: j.map(pairs),
            lambda j: j.reduce(window="15 minutes", every="6 minutes")(added),
            lambda j: j.map(mean),
        )
        if how == "function"
        else job(lambda j: j.map(sized), lambda j: j.reduce("avg", window="15 minutes", every="6 minutes"))
    )
    runner = Runner([made], [LOGS], buckets=1)
    minutes = [1, 2, 4, 8, 9, 13, 17, 18, 20, 31]
    runner.append("logs", [{"at": at(60 * each), "user": "x", "size": each} for each in minutes])
    runner.until_idle(60 * MINUTE)
    found = {each["time"]: json.loads(each["value"]) for each in runner.rows("out")}
    expected = {}
    for end in range(6, 60, 6):
        inside = [each for each in minutes if end - 15 < each <= end]
        if inside:
            expected[at(60 * end)] = sum(inside) / len(inside)
    assert found == expected


def pairs(record: dict[str, Any]) -> tuple[str, list[int]]:
    return record["user"], [record["size"], 1]


def added(key: str, values: list[list[int]]) -> tuple[str, list[int]]:
    return key, [sum(each[0] for each in values), sum(each[1] for each in values)]


def mean(record: dict[str, Any]) -> tuple[str, float]:
    total, count = record["value"]
    return record["key"], total / count
