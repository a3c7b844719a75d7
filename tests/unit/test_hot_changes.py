"""Operations changed by command: what is taken, what is refused, what a file applied later makes of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from hayase.core.declarations import OperationDeclaration
from hayase.core.errors import DeclarationError, StageChanged, UnknownName
from hayase.core.operation_data import declared_operation
from hayase.engine.definition import definitions, operation_changes, proposals
from hayase.engine.definition.definitions import Definition
from hayase.engine.definition.operation_changes import (
    add_operation,
    history,
    operations_of,
    remove_operation,
    rollback_operation,
    update_operation,
)
from hayase.pipeline import Pipeline
from hayase.streams import StreamLog
from hayase.streams.durable import without_syncs
from hayase.streams.sealed import seal, unseal

SCORE = "def score(records):\n    return {'user': records[0]['user'], 'score': records[0]['amount'] * %s}\n"


class Shop:
    """A pipeline in a directory, with functions that its operations use."""

    def __init__(self, path: Path):
        self.path = path
        self.pipeline = Pipeline("shop", path / "home")
        self.pipeline.stream("orders", schema="time timestamp, user string, amount double")
        self.pipeline.stream("returns", schema="time timestamp, user string, amount double")
        self.write("scoring.py", SCORE % 1)
        self.append(*range(10))
        self.home = self.pipeline.home

    def write(self, name: str, text: str) -> str:
        (self.path / name).write_text(text)
        return f"{name}:score"

    def append(self, *amounts: float, stream: str = "orders") -> None:
        rows = [{"time": f"2026-01-01T00:00:{at:02d}Z", "user": "taro", "amount": at} for at in amounts]
        self.pipeline.append(stream, rows)

    def declare(self, **operations: Mapping[str, Any]) -> None:
        """What the pipeline's file says from now on."""
        made = (declared_operation(name, data, str(self.path)) for name, data in operations.items())
        self.pipeline.declaration = replace(self.pipeline.declaration, operations=tuple(made))

    def apply(self) -> Definition:
        return self.pipeline.apply()

    def add(self, name: str, start: definitions.Start = "earliest", **data: Any) -> Definition:
        return add_operation(self.home, name, {"reads": "orders", **data}, str(self.path), start)

    def update(self, name: str, reset: definitions.Start | None = None, **data: Any) -> Definition:
        return update_operation(self.home, name, data, str(self.path), reset)

    def now(self, name: str) -> OperationDeclaration:
        current = definitions.latest(self.home)
        assert current is not None
        return next(each for each in current.declaration.operations if each.name == name)

    def by_command(self) -> set[str]:
        current = definitions.latest(self.home)
        return {each.name for each in current.changes} if current else set()

    def scores(self, name: str = "scores") -> list[float]:
        self.pipeline.run_until_idle(spark=False)
        return self.written(name, "score")

    def written(self, name: str, column: str) -> list[Any]:
        log = StreamLog.open(self.home.path, name)
        index = log.index()
        pieces = log.read(index.start, index.next)
        return sorted(one for piece in pieces for one in piece.rows.column(column).to_pylist())

    @property
    def version(self) -> int:
        return definitions.latest_version(self.home)


@pytest.fixture(autouse=True)
def _on_a_disk_that_is_thrown_away() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.declare(scores={"reads": "orders", "function": "scoring:score"})
    made.apply()
    return made


class TestShippedDefinitions:
    def test_the_same_code_is_the_same_version(self, shop: Shop) -> None:
        first = definitions.latest(shop.home)
        assert shop.apply() == first == definitions.load(shop.home, 1)
        assert shop.now("scores").schema == "`user` string, score double", "found by trying it"
        shop.write("scoring.py", SCORE % 2)
        second = shop.apply()
        assert (second.version, second.records[0].generation) == (2, 1)
        assert shop.now("scores").schema == "`user` string, score double"
        assert len(proposals.shipped_code(shop.home)) == 2

    def test_the_source_may_go(self, shop: Shop) -> None:
        (shop.path / "scoring.py").unlink()
        shop.pipeline.declaration = definitions.load(shop.home, 1).declaration
        assert shop.scores() == list(range(10))

    def test_without_records_the_schema_must_be_declared(self, shop: Shop) -> None:
        shop.declare(back={"reads": "returns", "function": "scoring:score"})
        with pytest.raises(DeclarationError, match=r'operation "back".*not known without a sample; declare it'):
            shop.apply()
        shop.declare(back={"reads": "returns", "function": "scoring:score", "schema": "user string, score double"})
        assert shop.apply().version == 2

    def test_a_definition_from_before_there_were_changes(self, shop: Shop) -> None:
        path = definitions.path_of(shop.home, 1)
        data = orjson.loads(unseal(path.read_bytes(), "definition", path, ""))
        del data["changes"]
        path.write_bytes(seal("definition", orjson.dumps(data)))
        assert definitions.load(shop.home, 1).changes == ()
        assert shop.apply().version == 1


class TestUpdating:
    def test_from_the_next_record_on(self, shop: Shop) -> None:
        assert shop.scores() == list(range(10))
        made = shop.update("scores", function=shop.write("fix.py", SCORE % 100))
        assert (made.version, made.records[0].generation) == (2, 1)
        shop.append(20)
        assert shop.scores() == [*range(10), 2000]

    def test_what_is_not_given_stays(self, shop: Shop) -> None:
        before = shop.now("scores")
        shop.update("scores", attempts=7, time_limit="2 s")
        assert shop.now("scores") == replace(before, attempts=7, time_limit=2_000_000)
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        now = shop.now("scores")
        assert (now.attempts, now.schema, now.function) == (7, before.schema, "fix:score")
        assert now.code != before.code

    def test_a_stage_with_state_keeps_it_if_its_windows_stay(self, shop: Shop) -> None:
        shop.add("pairs", function="scoring:score", window=2)
        shop.append(20)
        assert shop.scores("pairs") == [0, 2, 4, 6, 8], "the last one waits for its second"
        shop.update("pairs", function=shop.write("fix.py", SCORE % 100))
        shop.append(21)
        assert shop.scores("pairs")[-1] == 2000
        with pytest.raises(StageChanged, match=r"hayase reset pairs"):
            shop.update("pairs", window=3)
        assert shop.update("pairs", window=3, reset="earliest").records[1].generation == shop.version
        assert len(shop.scores("pairs")) == 4

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("import nowhere_to_be_found\n" + SCORE % 1, "there is no module|No module named"),
            ("1 / 0\ndef score(records): ...\n", "ZeroDivisionError"),
            ("def scor(records): ...\n", 'has no "score"'),
            ("def score(records):\n    return records[0]['usr']\n", "KeyError: 'usr' in score, line 2"),
            ("import os\ndef score(records):\n    os._exit(3)\n", "ended|exit"),
            ("def score(records):\n    return 5\n", "it gave 5"),
        ],
    )
    def test_a_version_that_fails_its_check_is_not_taken(self, shop: Shop, text: str, told: str) -> None:
        shop.write("broken.py", text)
        with pytest.raises(DeclarationError, match=told):
            shop.update("scores", function="broken:score")
        assert shop.version == 1
        assert len(proposals.shipped_code(shop.home)) == 1, "nothing is left behind"

    def test_poison_is_what_dead_letters_are_for(self, shop: Shop) -> None:
        text = "def score(records):\n    return {'user': '', 'score': 1 / (records[0]['amount'] - 3)}\n"
        assert shop.update("scores", function=shop.write("fix.py", text)).version == 2
        shop.add("others", function="fix.py:score")
        assert shop.now("others").schema == "`user` string, score double", "found by those that it takes"

    def test_another_output_is_refused_with_the_way_out(self, shop: Shop) -> None:
        other = shop.write("other.py", "def score(records):\n    return {'mark': 1}\n")
        with pytest.raises(DeclarationError, match=r"would give \(mark bigint\).*another name.*hayase reset scores"):
            shop.update("scores", function=other)
        with pytest.raises((DeclarationError, StageChanged), match="scores"):
            shop.update("scores", schema="user string, score double, more int")
        assert shop.version == 1
        assert shop.add("marks", function=other).version == 2
        assert (
            shop.update("scores", function=other, reset="now").records[0].output.schema == "time timestamp, mark bigint"
        )
        shop.pipeline.run_until_idle(spark=False)
        shop.append(30)
        shop.pipeline.run_until_idle(spark=False)
        assert shop.written("scores", "mark") == [1]

    def test_a_name_that_is_none(self, shop: Shop) -> None:
        with pytest.raises(UnknownName, match='did you mean "scores"'):
            shop.update("score", attempts=1)
        with pytest.raises(DeclarationError, match="attempts"):
            shop.update("scores", attempts=0)


class TestAddingAndRemoving:
    def test_it_begins_where_it_is_told(self, shop: Shop) -> None:
        shop.pipeline.run_until_idle(spark=False)
        shop.add("all", function="scoring:score")
        shop.add("new", start="now", function="scoring:score")
        shop.pipeline.run_until_idle(spark=False)
        shop.append(30)
        assert len(shop.scores("all")) == 11
        assert shop.scores("new") == [30]

    def test_names_that_are_taken(self, shop: Shop) -> None:
        with pytest.raises(DeclarationError, match="hayase ops update scores"):
            shop.add("scores", function="scoring:score")
        with pytest.raises(DeclarationError, match='"Orders" is a stream'):
            shop.add("Orders", function="scoring:score")
        shop.add("more", function="scoring:score")
        shop.pipeline.query("more", "select user, amount from orders")
        with pytest.raises(DeclarationError, match="hayase ops remove more"):
            shop.apply()

    def test_an_operation_may_read_another_and_is_in_its_way_then(self, shop: Shop) -> None:
        again = shop.write("again.py", "def score(records):\n    return {'score': records[0]['score'] + 1}\n")
        shop.pipeline.run_until_idle(spark=False)
        shop.add("again", reads="scores", function=again)
        assert shop.scores("again") == list(range(1, 11))
        with pytest.raises(DeclarationError, match=r'"scores" is read by "again"'):
            remove_operation(shop.home, "scores")
        remove_operation(shop.home, "again")
        remove_operation(shop.home, "scores")
        assert operations_of(shop.home) == {}
        with pytest.raises(UnknownName):
            remove_operation(shop.home, "scores")

    def test_without_a_pipeline(self, tmp_path: Path) -> None:
        with pytest.raises(DeclarationError, match="hayase apply"):
            Shop(tmp_path).add("scores", function="scoring:score")


LOOKED_AT = """
def look(records):
    users = {record["user"] for record in records}
    times, amounts = ([record[name] for record in records] for name in ("time", "amount"))
    assert %s, records
    return {"ok": True}
"""


class TestSamples:
    """What a function is tried on are windows as it will get them."""

    @pytest.mark.parametrize(
        ("options", "holds"),
        [
            ({"window": 3}, "len(records) == 3 and amounts == sorted(amounts)"),
            ({"window": 3, "key": "user"}, "len(records) == 3 and len(users) == 1"),
            ({"window": "5 s", "key": "user"}, "len(users) == 1 and (max(times) - min(times)).seconds < 5"),
            ({"window": "5 s"}, "len(users) == 2 and (max(times) - min(times)).seconds < 5"),
            ({"window": 4, "reads": ["orders", "returns"]}, "min(amounts) >= 1000 or max(amounts) < 1000"),
            ({"window": 30, "reads": "*s", "together": True}, "min(amounts) < 1000 < max(amounts)"),
        ],
    )
    def test_of_each_kind(self, tmp_path: Path, options: dict[str, Any], holds: str) -> None:
        shop = Shop(tmp_path)
        for stream, first in (("orders", 0), ("returns", 1000)):
            rows = [
                {"time": f"2026-01-01T00:00:{at:02d}Z", "user": ("taro", "hana")[at % 2], "amount": first + at}
                for at in range(10, 40)
            ]
            shop.pipeline.append(stream, rows)
        shop.apply()
        shop.write("looking.py", LOOKED_AT % holds)
        shop.add("looked", function="looking:look", **options)
        assert shop.now("looked").schema == "ok boolean"
        shop.write("looking.py", LOOKED_AT % f"not ({holds})")
        with pytest.raises(DeclarationError, match="AssertionError"):
            shop.update("looked", function="looking:look")

    def test_too_few_records_for_a_window_are_none(self, shop: Shop) -> None:
        with pytest.raises(DeclarationError, match="without a sample"):
            shop.add("many", function="scoring:score", window=11)
        shop.add("many", function="scoring:score", window=11, schema="user string, score double")


class TestTheFile:
    def test_applied_again_leaves_what_a_command_changed(self, shop: Shop) -> None:
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        shop.add("more", function="fix.py:score")
        assert shop.apply().version == 3
        assert (shop.now("scores").function, shop.by_command()) == ("fix:score", {"scores", "more"})
        remove_operation(shop.home, "scores")
        shop.apply()
        assert list(operations_of(shop.home)) == ["more"]

    @pytest.mark.parametrize("edit", ["declaration", "code"])
    def test_the_newest_edit_wins(self, shop: Shop, edit: str) -> None:
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        if edit == "code":
            shop.write("scoring.py", SCORE % 3)
        else:
            shop.declare(scores={"reads": "orders", "function": "scoring:score", "attempts": 5})
        shop.apply()
        assert (shop.now("scores").function, shop.by_command()) == ("scoring:score", set())

    def test_that_no_longer_names_an_operation_removes_it(self, shop: Shop) -> None:
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        shop.add("more", function="fix.py:score")
        shop.declare()
        shop.apply()
        assert ([*operations_of(shop.home)], shop.by_command()) == (["more"], {"more"})

    def test_that_says_the_same_as_the_command_takes_over(self, shop: Shop) -> None:
        shop.write("scoring.py", SCORE % 2)
        shop.update("scores", function="scoring:score")
        before = shop.now("scores")
        assert shop.by_command() == {"scores"}
        shop.apply()
        assert (shop.now("scores"), shop.by_command()) == (before, set())

    def test_the_home_s_own_definition_is_no_edit(self, shop: Shop) -> None:
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        shop.add("more", function="fix.py:score")
        shop.declare(scores={"reads": "orders", "function": "scoring:score"})
        file = shop.pipeline.declaration
        remove_operation(shop.home, "more")
        current = definitions.latest(shop.home)
        assert current is not None
        shop.pipeline.declaration = current.declaration
        assert shop.apply().version == current.version
        assert shop.pipeline.reset("scores").changes == current.changes
        shop.pipeline.declaration = file
        shop.apply()
        assert shop.now("scores").function == "fix:score"


class TestGoingBack:
    def test_to_what_it_was_before(self, shop: Shop) -> None:
        before = shop.now("scores")
        shop.update("scores", function=shop.write("fix.py", SCORE % 2))
        (shop.path / "scoring.py").unlink()
        rollback_operation(shop.home, "scores")
        assert (shop.now("scores"), shop.by_command()) == (before, set())
        rollback_operation(shop.home, "scores")
        assert shop.now("scores").function == "fix:score"

    def test_to_a_version(self, shop: Shop) -> None:
        for factor in (2, 3, 4):
            shop.update("scores", function=shop.write("fix.py", SCORE % factor))
        wanted = history(shop.home, "scores")[1]
        rollback_operation(shop.home, "scores", to=wanted.version)
        assert shop.now("scores") == wanted.declaration
        for to in (0, 99):
            with pytest.raises(DeclarationError, match="hayase ops history scores"):
                rollback_operation(shop.home, "scores", to=to)

    def test_what_was_removed_comes_back_and_begins_anew(self, shop: Shop) -> None:
        before = shop.now("scores")
        assert len(shop.scores()) == 10
        remove_operation(shop.home, "scores")
        made = rollback_operation(shop.home, "scores")
        assert (shop.now("scores"), made.records[0].generation) == (before, made.version)
        assert len(shop.scores()) == 10

    def test_nothing_to_go_back_to(self, shop: Shop) -> None:
        with pytest.raises(DeclarationError, match="no version before"):
            rollback_operation(shop.home, "scores")
        with pytest.raises(UnknownName, match="scores"):
            rollback_operation(shop.home, "score")

    def test_history_tells_what_changed_and_by_whom(self, shop: Shop) -> None:
        shop.update("scores", attempts=1)
        shop.add("more", function="scoring:score")
        shop.write("scoring.py", SCORE % 2)
        shop.apply()
        remove_operation(shop.home, "scores")
        told = [(each.version, each.changed, each.by_command) for each in history(shop.home, "scores")]
        assert told == [
            (1, ("added",), False), (2, ("attempts",), True), (4, ("attempts", "code"), False), (5, ("removed",), True),
        ]  # fmt: skip
        assert len({each.short for each in history(shop.home, "scores")[:3]}) == 3
        assert history(shop.home, "scores")[-1].as_json()["operation"] is None


def test_changes_from_several_sides_follow_each_other(shop: Shop) -> None:
    """Each changes another operation; none is lost."""
    failures: list[BaseException] = []

    def change(name: str) -> None:
        try:
            shop.add(name, function="scoring:score")
            for attempts in (4, 5):
                operation_changes.update_operation(shop.home, name, {"attempts": attempts})
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=change, args=(f"op{number}",)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert shop.version == 1 + 4 * 3
    assert {name: each[-1].declaration.attempts for name, each in operations_of(shop.home).items() if each[-1].declaration} == {
        "scores": 3, **{f"op{number}": 5 for number in range(4)},
    }  # fmt: skip
