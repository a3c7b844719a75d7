"""The law of replicas: an answer is what the versions that it names describe, at every step of every commit.

Tables are judged by a fold in plain Python over the records that the manifest says were read; queries by each other.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from commit_steps import bought_in, run_asking
from effort import examples
from hayase.engine.commit.manifests import Commits
from hayase.engine.local import InProcess
from interruptions import room_for_homes
from relation_shop import purchase, relation_shop
from replicas import Replica, replica_of

LAW = settings(
    max_examples=examples(1, 40),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
PATHS = ("/scan/by_user", "/scan/by_amount", "/queries/spend", "/queries/total", "/streams/big/records")
batches = st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=6), min_size=2, max_size=3)


def answers_of(http: httpx.Client) -> tuple[str, list[httpx.Response]] | None:
    """Answers of all kinds, and the one version that they are from; None if they are from several or there are none."""
    found = [http.get(path) for path in PATHS]
    if {answer.status_code for answer in found} != {200}:
        return None
    labels = {answer.headers["hayase-versions"] for answer in found}
    return (labels.pop(), found) if len(labels) == 1 else None


def check_agreement(found: list[httpx.Response]) -> None:
    """Raise if answers of one version do not tell about the same records."""
    by_user, by_amount, spend, total, _ = (answer.json() for answer in found)
    assert sum(row["row"]["n"] for row in by_user["rows"]) == sum(row["row"]["n"] for row in by_amount["rows"])
    assert spend["at"] == total["at"]
    assert sum(row["n"] for row in spend["rows"]) == sum(row["n"] for row in total["rows"])
    assert sum(row["spent"] for row in spend["rows"]) == sum(row["spent"] or 0 for row in total["rows"])


@LAW
@given(batches)
def test_an_answer_is_what_its_version_describes_at_any_step_of_a_commit(appended: list[list[int]]) -> None:
    bought = [each for number, seconds in enumerate(appended) for each in bought_in(number, seconds)]
    with room_for_homes() as home, replica_of(home) as replica:
        pipeline = relation_shop(home)
        pipeline.apply()
        seen: dict[str, list[str]] = {}
        behind: list[int] = []

        def ask() -> None:
            replica.follower.look()
            now = replica.status.now
            behind.append(0 if now.behind is None else now.behind.batches)
            answers = answers_of(replica.http)
            if answers is None:
                assert now.state == "starting"
                return
            label, found = answers
            check_agreement(found)
            version = int(label.removeprefix("main="))
            read = Commits(pipeline.home, "main").load(version).offset.positions["by_user"]["purchases"].at
            counts = Counter(str(each["user"]) for each in bought[:read])
            assert {row["key"][0]: row["row"]["n"] for row in found[0].json()["rows"]} == counts
            texts = [answer.text for answer in found]
            assert seen.setdefault(label, texts) == texts

        run_asking(pipeline, appended, ask)
        ask()
        assert len(seen) >= len(appended)
        assert (max(behind), behind[-1]) == (1, 0)


def test_answers_of_one_version_agree_beside_a_runner() -> None:
    with room_for_homes() as home, replica_of(home) as replica:
        pipeline = relation_shop(home)
        pipeline.apply()
        stop, failures, compared = threading.Event(), list[BaseException](), list[str]()

        def ask(replica: Replica) -> None:
            try:
                while not stop.is_set():
                    answers = answers_of(replica.http)
                    if answers is not None:
                        check_agreement(answers[1])
                        compared.append(answers[0])
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=replica.follower.run, args=[stop]),
            threading.Thread(target=ask, args=[replica]),
        ]
        for thread in threads:
            thread.start()
        try:
            with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: 0, tasks=1)) as runner:
                second = 0
                while second < 12 or (second < 60 and not compared):
                    pipeline.append("purchases", [purchase(second, second, second)])
                    runner.run_until_idle()
                    second += 1
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures
        assert compared
