"""Copies of homes: equal to the home at one instant, whatever runs or is killed meanwhile, and able to go on like it."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import every_file
import hayase as hy
from command_line import Command
from effort import sample
from hayase.core.errors import DamagedState, HayaseError, PositionMoved, StreamError
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.commit.housekeeping import run_housekeeping
from hayase.engine.copies import home_copy
from hayase.engine.copies.home_copy import copy_home
from hayase.engine.copies.pins import PINS
from hayase.engine.home import Home
from hayase.engine.integrity.verification import verify
from hayase.engine.local import InProcess
from hayase.storage import ObjectStore
from hayase.streams import durable
from hayase.streams.log_directory import hold_logs
from interruptions import passing_home
from simulated_store import Fault, SimulatedRequests

NOW = every_file.START


@pytest.fixture(scope="module")
def shop() -> Iterator[Path]:
    """A pipeline whose home has a file of every kind; nobody goes on with it."""
    with passing_home() as room:
        every_file.history(room / "shop", newer=True)
        yield room / "shop"


@pytest.fixture
def room() -> Iterator[Path]:
    with passing_home() as directory:
        yield directory


class Bucket:
    """A simulated store at every address that begins with s3://."""

    def __init__(self) -> None:
        self.faults: Callable[[], Fault] = lambda: "none"
        self.requests = SimulatedRequests(lambda: self.faults())

    def open(self, place: str) -> ObjectStore:
        return ObjectStore(self.requests, wait=lambda seconds: None)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    bucket = Bucket()
    monkeypatch.setattr(home_copy, "open_store", bucket.open)
    return bucket


def pipeline_over(shop: Path, copy: Path) -> hy.Pipeline:
    """The pipeline of a shop with a copied home in the place of its own; the copy is in a directory of its own."""
    for name in ("pipeline.yaml", "counting.py", "scoring.py", "factors.py"):
        shutil.copy(shop / name, copy.parent / name)
    forget_kernels()
    return every_file.opened(copy.parent)


@pytest.fixture(scope="module")
def end(shop: Path) -> dict[str, object]:
    """What the home says when it has gone on; a plain copy of it does, since nothing runs."""
    shutil.copytree(shop, shop.with_name("judge"))
    forget_kernels()
    pipeline = every_file.opened(shop.with_name("judge"))
    every_file.later(pipeline)
    return every_file.answers(pipeline)


def check_goes_on(shop: Path, copy: Path, end: dict[str, object]) -> None:
    """A copy is sound, says what the home says, and ends like it."""
    assert list(verify(Home(copy))) == []
    pipeline = pipeline_over(shop, copy)
    assert every_file.answers(pipeline) == every_file.answers(every_file.opened(shop))
    every_file.later(pipeline)
    assert every_file.answers(pipeline) == end


def test_a_copy_goes_on_like_the_home(shop: Path, room: Path, end: dict[str, object]) -> None:
    copied = copy_home(str(shop / "home"), str(room / "home"), NOW)
    assert copied.sent_bytes == copied.bytes > 0
    assert not (shop / "home" / PINS).exists()
    check_goes_on(shop, room / "home", end)


def test_a_copy_in_a_bucket_is_restored(shop: Path, room: Path, bucket: Bucket, end: dict[str, object]) -> None:
    copy_home(str(shop / "home"), "s3://backups/shop", NOW)
    copy_home("s3://backups/shop", str(room / "home"), NOW)
    check_goes_on(shop, room / "home", end)


def test_only_what_is_new_is_sent(shop: Path, room: Path, bucket: Bucket) -> None:
    shutil.copytree(shop, room / "shop")
    home = str(room / "shop" / "home")
    first = {target: copy_home(home, target, NOW) for target in ("s3://backups/shop", str(room / "copy" / "home"))}
    for target, copied in first.items():
        again = copy_home(home, target, NOW)
        assert (again.number, again.bytes, again.sent_bytes) == (2, copied.bytes, 0)
    forget_kernels()
    every_file.append(every_file.opened(room / "shop"), 36, 1, 10)
    for target in first:
        more = copy_home(home, target, NOW)
        assert 0 < more.sent_files < 10
        assert more.bytes > first[target].bytes
    named = {name for name in bucket.requests.objects if name.startswith("files/")}
    copy_home("s3://backups/shop", str(room / "restored" / "home"), NOW)
    restored = {path.name for path in (room / "restored" / "home").rglob("*.seg")}
    assert restored == {path.name for path in (room / "copy" / "home").rglob("*.seg")}
    assert len(named) <= len([path for path in (room / "copy" / "home").rglob("*") if path.is_file()])


class Killed(BaseException):
    """What kill -9 is to a process."""


class KilledAt:
    """Ends the process at the n-th durable step."""

    def __init__(self, step: int) -> None:
        self.left, self.steps = step, 0

    def __call__(self, step: str) -> None:
        self.steps += 1
        if self.steps == self.left:
            raise Killed(step)


def contents(copy: Path) -> dict[str, bytes]:
    """The files of a copy, but for its index."""
    files = {path.relative_to(copy).as_posix(): path for path in copy.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in files.items() if name != "copy.json"}


def test_a_copy_that_is_killed_is_continued(shop: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every durable step, of a first copy and of one over an older copy: the place has what it had, or the whole."""
    shutil.copytree(shop, room / "shop")
    home, target = str(room / "shop" / "home"), room / "copy" / "home"
    older: Path | None = None
    for before in ("nothing", "an older copy"):
        if before == "an older copy":
            copy_home(home, str(target), NOW)
            older = room / "older"
            shutil.copytree(target, older)
            newer = room / "shop" / "home" / "views" / "another.json"
            newer.write_bytes((next((room / "shop" / "home" / "views").glob("*.json"))).read_bytes())
        counted = KilledAt(0)
        monkeypatch.setattr(durable, "reached", counted)
        copy_home(home, str(room / "counted"), NOW)
        whole = contents(room / "counted")
        for step in sample(range(1, counted.steps + 1), most=6):
            shutil.rmtree(room / "copy", ignore_errors=True)
            if older is not None:
                shutil.copytree(older, target)
            monkeypatch.setattr(durable, "reached", KilledAt(step))
            try:
                copy_home(home, str(target), NOW)
            except Killed:
                assert not target.exists() or list(verify(Home(target))) == []
                assert target.exists() or older is None
            monkeypatch.setattr(durable, "reached", lambda step: None)
            copy_home(home, str(target), NOW)
            assert {path.name for path in target.parent.iterdir()} == {"home"}
            assert contents(target) == whole
        shutil.rmtree(room / "copy")
        shutil.rmtree(room / "counted")


def test_a_file_system_that_cannot_exchange_directories(
    shop: Path, room: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two renames take the place of an older copy; after a death between them the next copy puts it back first."""
    monkeypatch.setattr(durable, "exchange", lambda one, other: False)
    home, target = str(shop / "home"), room / "copy" / "home"
    for number in (1, 2):
        assert copy_home(home, str(target), NOW).number == number
    assert {path.name for path in target.parent.iterdir()} == {"home"}
    target.rename(target.with_name(".home.previous"))
    assert copy_home(home, str(target), NOW).number == 3
    assert {path.name for path in target.parent.iterdir()} == {"home"}
    assert list(verify(Home(target))) == []


def test_a_bucket_that_fails_keeps_the_older_copy(shop: Path, room: Path, bucket: Bucket) -> None:
    """A copy that is interrupted after any request leaves the older one; the next sends only what is missing."""
    shutil.copytree(shop, room / "shop")
    home, target = str(room / "shop" / "home"), "s3://backups/shop"
    copy_home(home, target, NOW)
    index = bucket.requests.objects["copy.json"]
    forget_kernels()
    every_file.append(every_file.opened(room / "shop"), 36, 1, 10)

    def killed_after(requests: int) -> Callable[[], Fault]:
        left = iter(range(requests))

        def fault() -> Fault:
            if next(left, None) is None:
                raise Killed
            return "none"

        return fault

    for requests in (0, 1, 3, 8, 12):
        bucket.faults = killed_after(requests)
        with pytest.raises(Killed):
            copy_home(home, target, NOW)
        assert bucket.requests.objects["copy.json"] == index
    bucket.faults = lambda: "none"
    assert copy_home(home, target, NOW).number == 2
    copy_home(target, str(room / "restored" / "home"), NOW)
    assert list(verify(Home(room / "restored" / "home"))) == []


def test_of_two_copies_at_once_one_is_refused(shop: Path, bucket: Bucket) -> None:
    home, target = str(shop / "home"), "s3://backups/shop"
    inside = []

    def between() -> Fault:
        if not inside and any(name.startswith("files/") for name in bucket.requests.objects):
            inside.append(True)
            copy_home(home, target, NOW)
        return "none"

    bucket.faults = between
    with pytest.raises(PositionMoved, match="run it again"):
        copy_home(home, target, NOW)
    bucket.faults = lambda: "none"
    assert copy_home(home, target, NOW).sent_bytes == 0


def test_a_damaged_object_is_noticed(shop: Path, room: Path, bucket: Bucket) -> None:
    copy_home(str(shop / "home"), "s3://backups/shop", NOW)
    name, stored = next((name, stored) for name, stored in bucket.requests.objects.items() if len(stored.data) > 50)
    bucket.requests.objects[name] = stored._replace(data=stored.data[:-1] + b"?")
    with pytest.raises(DamagedState, match=r"checksum|cannot be read"):
        copy_home("s3://backups/shop", str(room / "home"), NOW)
    assert not (room / "home").exists()


def test_a_copy_of_a_running_home_is_one_instant(room: Path) -> None:
    """While a pipeline appends, runs, joins segments and removes old state, copies are taken. Each is sound, and its results are
    those of its own records, computed from the beginning."""
    every_file.lay_out(room / "shop")
    pipeline = every_file.opened(room / "shop")
    every_file.append(pipeline, 0, 1, 1)
    every_file.run(pipeline)
    done, turns, failures = threading.Event(), threading.Semaphore(0), []

    def live() -> None:
        try:
            with pipeline.home.lock(), closing(InProcess(pipeline.home, lambda: NOW)) as runner:
                number = 0
                while not done.is_set():
                    number += 1
                    time = f"2026-01-01T00:00:{10 + number / 1000:06.3f}Z"
                    order = {"time": time, "id": f"n{number}", "user": "abc"[number % 3], "amount": number}
                    wrong = {**order, "id": f"w{number}", "amount": "much"}
                    pipeline.append("orders", [order, wrong] if number % 5 == 0 else [order])
                    runner.run_until_idle()
                    turns.release()
                    if number % 7 == 0:
                        run_housekeeping(pipeline.home, NOW, runner.commits)
        except BaseException as error:
            failures.append(error)
            turns.release(100)

    thread = threading.Thread(target=live)
    thread.start()
    try:
        copies = []
        for number in range(4):
            for _ in range(6):
                turns.acquire()
            copies.append(room / f"copy {number}" / "home")
            copy_home(str(pipeline.home.path), str(copies[-1]), NOW)
    finally:
        done.set()
        thread.join()
    assert failures == []
    for copy in copies:
        assert list(verify(Home(copy))) == []
        copied = pipeline_over(room / "shop", copy)
        every_file.run(copied)
        orders = copied.stream("orders").rows()
        letters = [letter for letter in copied.dead_letters() if letter["stage"] == "append"]
        numbers = [int(order["id"][1:]) for order in orders if order["id"].startswith("n")]
        wrong = [letter for letter in letters if '"w' in letter["record"]]
        assert len(numbers) >= 6
        assert len(wrong) == sum(number % 5 == 0 for number in numbers)
        totals = {user: sum(order["amount"] for order in orders if order["user"] == user) for user in "abc"}
        late = [letter for letter in copied.dead_letters() if letter["stage"] == "purchases"]
        assert late == []
        assert {user: copied.table("purchases").get(user)["total"] for user in "abc"} == totals
        large = [row for row, _, _ in copied.query("large").intervals()]
        assert len(large) == sum(order["amount"] >= 4 for order in orders)


def test_a_writer_that_hangs_does_not_hold_up_everybody(shop: Path) -> None:
    orders = shop / "home" / "streams" / "orders"
    waits: list[float] = []
    with (orders / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StreamError, match="does not go on"), hold_logs([orders], waits.append):
            pass
    assert len(waits) > 1
    with (
        hold_logs([orders, shop / "none"], waits.append),
        (orders / "lock").open() as lock,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_what_cannot_be_linked_is_read_where_it_is(shop: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not permitted")

    monkeypatch.setattr(os, "link", refuse)
    copy_home(str(shop / "home"), str(room / "home"), NOW)
    assert list(verify(Home(room / "home"))) == []


def test_a_damaged_index_is_found_and_refused(shop: Path, room: Path) -> None:
    copy_home(str(shop / "home"), str(room / "home"), NOW)
    index = room / "home" / "copy.json"
    index.write_bytes(index.read_bytes()[:-1])
    assert [finding.path for finding in verify(Home(room / "home"))] == [str(index)]
    with pytest.raises(DamagedState, match="index of a copy"):
        copy_home(str(shop / "home"), str(room / "home"), NOW)


def test_refusals(shop: Path, room: Path) -> None:
    home = str(shop / "home")
    with pytest.raises(HayaseError, match="there is no directory"):
        copy_home(str(room / "none"), str(room / "copy"), NOW)
    with pytest.raises(HayaseError, match="in one another"):
        copy_home(home, f"{home}/copy", NOW)
    (room / "other").mkdir()
    with pytest.raises(HayaseError, match="there is no home"):
        copy_home(str(room / "other"), str(room / "copy"), NOW)
    (room / "other" / "file").touch()
    with pytest.raises(HayaseError, match="not a copy of a home"):
        copy_home(home, str(room / "other"), NOW)
    copy_home(home, str(room / "used" / "home"), NOW)
    every_file.append(pipeline_over(shop, room / "used" / "home"), 36, 1, 10)
    with pytest.raises(HayaseError, match="used since"):
        copy_home(home, str(room / "used" / "home"), NOW)


def test_backup_and_restore_as_the_guide_says(shop: Path, room: Path, hayase_: Command) -> None:
    backup, restored = room / "backup", room / "restored" / "home"
    assert "has copy 1 of" in hayase_("home", "copy", shop / "home", backup).out
    assert '"sent_bytes": 0' in hayase_("home", "copy", shop / "home", backup, "--json").out
    assert hayase_("home", "copy", backup, restored).code == 0
    assert "is sound" in hayase_("home", "verify", restored).out
    assert hayase_("home", "copy", shop / "home", backup).code == 0  # it was only read
    every_file.append(pipeline_over(shop, restored), 36, 1, 10)
    again = hayase_("home", "copy", shop / "home", restored)
    assert (again.code, "used since" in again.err) == (1, True)


def test_lanes_commit_only_while_no_snapshot_is_taken(shop: Path, room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(shop, room / "shop")
    forget_kernels()
    pipeline = every_file.opened(room / "shop")
    every_file.append(pipeline, 36, 1, 10)
    held: dict[str, bool] = {}
    manifests = pipeline.home.commits("main")

    def look(step: str) -> None:
        if step == "before rename" and list(manifests.glob("*.tmp")):
            with (pipeline.home.path / "lock.commits").open() as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    held[step] = False
                except BlockingIOError:
                    held[step] = True

    monkeypatch.setattr(durable, "reached", look)
    every_file.run(pipeline)
    assert held == {"before rename": True}
