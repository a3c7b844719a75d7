"""The dial u of the governor while the pipeline runs: as a command, over HTTP, beside the pipeline's file, and in a lane."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from command_line import Command
from hayase.core.access import Access
from hayase.core.declarations import GovernorDeclaration
from hayase.core.errors import DeclarationError
from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
from hayase.engine.definition import definitions
from hayase.engine.definition.definitions import Dial
from hayase.engine.definition.governor_dial import dial_status, set_dial
from hayase.engine.definition.query_changes import add_query, remove_query
from hayase.engine.home import Home
from hayase.pipeline import Pipeline
from hayase.serving import Status, serving
from hayase.serving.governor_figures import MOST_QUEUES, LoadSamples, lane_figures
from hayase.streams.durable import without_syncs

PIPELINE = """\
pipeline: shop
home: ./home
streams:
  orders: {schema: "time timestamp, user string, amount double", time: time}
queries:
  spend: select user, sum(amount) as spend from orders group by user
"""


@pytest.fixture(autouse=True)
def _on_a_disk_that_is_thrown_away() -> Iterator[None]:
    with without_syncs():
        yield


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a pipeline that was applied, in which commands run."""
    monkeypatch.chdir(tmp_path)
    apply(tmp_path)
    return tmp_path


def apply(path: Path, more: str = "") -> definitions.Definition:
    (path / "pipeline.yaml").write_text(PIPELINE + more)
    return Pipeline.from_file(path / "pipeline.yaml").apply()


class TestCommand:
    def test_the_dial_is_set_and_set_back(self, hayase_: Command, shop: Path) -> None:
        [shown] = hayase_("governor").rows
        assert (shown["policy"], shown["u"], shown["by"], shown["lanes"]) == ("informed", 0.97, "file", [])
        assert hayase_("governor", "--u", "0.5").out == (
            "u is 0.5, by command: version 2 of the pipeline, which takes effect when the pipeline runs next\n"
        )
        with Home(shop / "home").lock():
            assert (
                "version 3 of the pipeline, which takes effect at the next batch" in hayase_("governor", "--u", "0").out
            )
        [shown] = hayase_("governor").rows
        assert (shown["u"], shown["declared_u"], shown["by"], shown["version"]) == (0, 0.97, "command", 3)
        assert hayase_("governor", "--as-declared").out.startswith("u is 0.97, as the file says: version 4")
        assert definitions.load(Home(shop / "home"), 4).declaration.governor is None

    def test_what_is_wrong_is_told(self, hayase_: Command, shop: Path) -> None:
        assert "between 0 and 1" in hayase_("governor", "--u", "1").err
        assert hayase_("governor", "--u", "-0.1").code == 2
        assert hayase_("governor", "--u", "0.1", "--as-declared").code == 2
        assert definitions.latest_version(Home(shop / "home")) == 1
        apply(shop, "governor: {policy: round-robin}\n")
        told = hayase_("governor", "--u", "0.5").err.replace("\n", " ")
        assert 'the policy "round-robin" has no u' in told
        assert "als, asc, informed" in told

    def test_on_a_screen(self, hayase_: Command, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "200")
        set_dial(Home(shop / "home"), 0.5)
        queue = QueueStatus("", "orders", 1.0, 0.5, 0.5, 1.0, 3, 0.0, 1, 0)
        monkeypatch.setattr(
            "hayase.engine.batch.lane_governor.governor_statuses",
            lambda home: (GovernorStatus("main", "informed", 4, 0, 10, 5, (queue,), 0.5),),
        )
        told = hayase_("governor").out
        assert "policy informed, u 0.5, by command; the file says 0.97" in told
        assert "main: informed with u 0.5, load 0.50 on 4 slots, 50.0% of 10 polls empty" in told


class TestBesideTheFile:
    def test_the_newest_edit_wins(self, shop: Path) -> None:
        home = Home(shop / "home")
        set_dial(home, 0.5)
        kept = apply(shop)
        assert (kept.version, dial_status(kept).u) == (2, 0.5)
        changed = apply(shop, "governor: {seconds: 2}\n")
        assert (dial_status(changed).u, changed.dial) == (0.97, None)
        again = set_dial(home, 0.25)
        assert again.declaration.governor == GovernorDeclaration(options=(("u", 0.25),), seconds=2)
        assert again.dial == Dial(GovernorDeclaration(seconds=2), 0.25)
        assert apply(shop, "governor: {seconds: 2}\n").version == again.version
        assert apply(shop).dial is None

    def test_what_equals_the_file_is_no_change(self, shop: Path) -> None:
        apply(shop, "governor: {policy: als, u: 0.5}\n")
        home = Home(shop / "home")
        assert dial_status(set_dial(home, 0.1)).by_command
        back = set_dial(home, 0.5)
        assert (dial_status(back).by_command, back.declaration.governor) == (
            False,
            GovernorDeclaration("als", (("u", 0.5),)),
        )
        assert set_dial(home, 0.5).version == back.version

    def test_other_changes_keep_it(self, shop: Path) -> None:
        home = Home(shop / "home")
        set_dial(home, 0.5)
        changed = apply(shop, "").declaration
        assert changed.governor is not None
        by_home = definitions.latest(home)
        assert by_home is not None
        pipeline = Pipeline("shop", home=shop / "home")
        pipeline.declaration = by_home.declaration  # as commands read it from the home
        assert pipeline.apply().dial == by_home.dial

    def test_beside_a_query_that_was_added(self, shop: Path) -> None:
        home = Home(shop / "home")
        add_query(home, "large", "select user, amount from orders where amount > 10")
        assert set_dial(home, 0.5).added == ("large",)
        kept = apply(shop)
        assert (kept.added, dial_status(kept).u, kept.version) == (("large",), 0.5, 3)
        removed = remove_query(home, "large")
        assert (removed.added, dial_status(removed).u) == ((), 0.5)
        assert set_dial(home, None).dial is None

    def test_a_plan_says_what_becomes_of_it(self, hayase_: Command, shop: Path) -> None:
        set_dial(Home(shop / "home"), 0.5)
        assert "u is 0.5 by command" in hayase_("plan", "pipeline.yaml", "--json").out
        (shop / "pipeline.yaml").write_text(PIPELINE + "governor: {seconds: 2}\n")
        assert "says something else of it now" in hayase_("plan", "pipeline.yaml", "--json").out

    @given(u=st.floats(0, 1, exclude_max=True), declared=st.floats(0, 1, exclude_max=True))
    def test_a_dial_survives_its_file(self, u: float, declared: float) -> None:
        from dataclasses import asdict

        dial = Dial(GovernorDeclaration("asc", (("u", declared),)), u)
        assert Dial.from_json(asdict(dial)) == dial
        assert dict(dial.governor.options) == {"u": u}
        assert Dial.from_json(asdict(Dial(None, u))).governor == GovernorDeclaration(options=(("u", u),))

    def test_only_what_the_policy_takes(self, shop: Path) -> None:
        with pytest.raises(DeclarationError, match="u is 1"):
            set_dial(Home(shop / "home"), 1.0)


@contextlib.contextmanager
def served(shop: Path, token: str | None = None) -> Iterator[httpx.Client]:
    with (
        serving(Home(shop / "home"), "127.0.0.1:0", status=Status("running"), access=Access(token)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as client,
    ):
        yield client


class TestRoutes:
    def test_the_dial_is_moved(self, shop: Path) -> None:
        from hayase.serving import governor_models as models

        with served(shop) as http:
            told = http.get("/governor").json()
            assert models.GovernorAnswer.model_validate(told).model_dump() == told
            assert (told["policy"], told["u"], told["by"]) == ("informed", 0.97, "file")
            moved = http.patch("/governor", json={"u": 0.5})
            assert moved.json() == {
                "version": 2, "policy": "informed", "u": 0.5, "declared_u": 0.97, "by": "command",
                "takes_effect": "at the next batch",
            }  # fmt: skip
            told = http.get("/governor").json()
            assert (told["u"], told["by"], told["in_effect"]) == (0.5, "command", False)
            assert http.patch("/governor", json={"u": None}).json()["by"] == "file"
            history = http.get("/governor/history").json()
            assert models.GovernorHistory.model_validate(history).model_dump() == history

    @pytest.mark.parametrize(
        ("body", "status"),
        [({"u": 1}, 422), ({"u": -0.1}, 422), ({"u": "0.5"}, 422), ({}, 422), ({"u": 0.5, "v": 1}, 422), ([], 422),
         ({"u": 0.5, "x": "y" * 5000}, 413)],
    )  # fmt: skip
    def test_what_is_not_taken(self, shop: Path, body: Any, status: int) -> None:
        with served(shop) as http:
            assert http.patch("/governor", json=body).status_code == status
            assert http.patch("/governor", content=b"u=1").status_code == 415
        assert definitions.latest_version(Home(shop / "home")) == 1

    def test_pages_from_elsewhere_change_nothing(self, shop: Path) -> None:
        with served(shop) as http:
            elsewhere = {"Origin": "http://evil.example"}
            assert http.patch("/governor", json={"u": 0.5}, headers=elsewhere).status_code == 403
        with served(shop, "a-token-of-some-length") as http:
            assert http.patch("/governor", json={"u": 0.5}).status_code == 401
            assert http.get("/governor/history").status_code == 401

    def test_a_policy_without_a_dial(self, shop: Path) -> None:
        apply(shop, "governor: {policy: round-robin}\n")
        with served(shop) as http:
            assert http.get("/governor").json()["u"] is None
            refused = http.patch("/governor", json={"u": 0.5})
            assert refused.status_code == 422
            assert "has no u" in refused.json()["detail"]


def queue(stage: str, load: float, share: float = 0.5) -> QueueStatus:
    return QueueStatus(stage, "orders", load * 10, 0.1, load, share, 3, 0.0, 5, 1)


class TestFigures:
    def test_the_busiest_queues_first(self) -> None:
        queues = tuple(queue(f"q{at}", at / 10) for at in range(MOST_QUEUES + 5))
        [told] = lane_figures([GovernorStatus("operations", "als", 4, 0, 8, 2, queues, 0.5)])
        assert [each["stage"] for each in told["queues"][:2]] == ["q104", "q103"]
        assert (len(told["queues"]), told["more"], told["u"], told["empty"]) == (MOST_QUEUES, 5, 0.5, 0.25)
        assert lane_figures([GovernorStatus("main", "round-robin", 1, 0, 0, 0)])[0]["u"] is None

    @given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(0, 100), max_size=3), max_size=30))
    def test_samples_are_those_of_the_queues_there_are(self, looks: list[dict[str, float]]) -> None:
        samples = LoadSamples(5)
        for look in looks:
            samples.add(
                lane_figures([GovernorStatus("operations", "als", 4, 0, 0, 0, tuple(map(queue, look, look.values())))])
            )
        told = {each["stage"]: each for each in samples.as_json()}
        assert told.keys() == (looks[-1].keys() if looks else set())
        for name, each in told.items():
            present = 0
            while present < len(looks) and name in looks[-1 - present]:
                present += 1
            assert len(each["loads"]) == len(each["shares"]) == min(present, 5)
            assert each["loads"][-1] == pytest.approx(looks[-1][name], rel=0.01, abs=1e-5)
