"""Copies of homes in real object stores: a backup of a running pipeline, restored, goes on."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import hayase as hy
from hayase.core.clock import now_us
from hayase.engine.copies.home_copy import copy_home
from hayase.engine.home import Home
from hayase.engine.integrity.verification import verify
from hayase.engine.local import InProcess
from hayase.storage import open_store

TIME = "2026-01-31T12:00:05Z"


def pipeline_in(home: Path) -> hy.Pipeline:
    pipeline = hy.Pipeline("shop", home=home)
    pipeline.stream("orders", schema="time timestamp, user string, amount bigint", time="time")
    pipeline.query("spend", "select user, count(*) as n, sum(amount) as spend from orders group by user")
    return pipeline


def test_a_backup_of_a_running_pipeline_is_restored(bucket: str, tmp_path: Path) -> None:
    pipeline, place = pipeline_in(tmp_path / "shop"), f"{bucket}/backups/shop"
    pipeline.append("orders", [{"time": TIME, "user": "a", "amount": 1}])
    pipeline.run_until_idle(spark=False)
    done, turns = threading.Event(), threading.Semaphore(0)

    def live() -> None:
        with pipeline.home.lock(), closing(InProcess(pipeline.home, now_us)) as runner:
            while not done.is_set():
                pipeline.append("orders", [{"time": TIME, "user": "a", "amount": 1}])
                runner.run_until_idle()
                turns.release()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        sent = []
        for _ in range(3):
            for _ in range(5):
                turns.acquire()
            sent.append(copy_home(str(tmp_path / "shop"), place, now_us()))
    finally:
        done.set()
        thread.join()
    assert [copied.number for copied in sent] == [1, 2, 3]
    assert sent[2].sent_files < sent[2].files
    there = {status.name for status in open_store(place).list_after()}
    copy_home(place, str(tmp_path / "restored"), now_us())
    assert len(there) <= sent[2].files + 1  # nothing of older copies is left
    assert list(verify(Home(tmp_path / "restored"))) == []
    restored = pipeline_in(tmp_path / "restored")
    restored.append("orders", [{"time": TIME, "user": "b", "amount": 5}])
    restored.finish("orders")
    restored.run_until_idle(spark=False)
    orders = restored.stream("orders").rows()
    assert len(orders) > 15
    expected = {user: sum(order["amount"] for order in orders if order["user"] == user) for user in "ab"}
    assert {row["user"]: row["spend"] for row in restored.query("spend").at()} == expected
    copied = copy_home(place, f"{bucket}/elsewhere", now_us())
    assert copied.files == sent[2].files
