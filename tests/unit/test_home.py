"""The home of a pipeline: its format and upgrades, who may read it, who holds it, and files that are missing."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import effort
import every_file
import hayase as hy
from campaign.damage import DAMAGES, kind_of
from hayase.core.errors import DamagedState, FormatMismatch, HayaseError, StreamError
from hayase.core.stages import MAIN, OPERATIONS
from hayase.engine.batch.kernel_cache import forget_kernels
from hayase.engine.commit.manifests import Commits
from hayase.engine.definition import definitions
from hayase.engine.home import Home
from hayase.engine.integrity.heads import DEFINITIONS, Head, head_of
from hayase.engine.integrity.migrations import MIGRATIONS, upgrade
from hayase.engine.integrity.verification import verify
from hayase.engine.results.subscriptions import Subscription, Subscriptions
from hayase.streams import StreamLog, durable
from hayase.streams.home_format import FORMAT, FORMAT_FILE, format_of, write_format
from hayase.testing import at, trial
from interruptions import room_for_homes

if TYPE_CHECKING:
    from command_line import Command

FIXTURES = Path(__file__).parent.parent / "fixtures"


@pytest.fixture
def room() -> Iterator[Path]:
    with room_for_homes() as place, durable.without_syncs():
        yield place


@pytest.fixture(scope="module")
def laid_out() -> Iterator[Path]:
    """A home with a file of every kind, to be copied."""
    with room_for_homes() as place, durable.without_syncs():
        every_file.history(place / "shop")
        yield place / "shop"


@pytest.fixture
def shop(laid_out: Path, room: Path) -> hy.Pipeline:
    forget_kernels()
    shutil.copytree(laid_out, room / "shop")
    return every_file.opened(room / "shop")


# ------------------------------------------------------------------------------------------------------------ format
def unpacked(number: int, place: Path) -> dict[str, dict[str, list[str]]]:
    """Unpack the home of a format; what it answers, and what it answers later."""
    with tarfile.open(FIXTURES / f"home-format-{number}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    found: dict[str, dict[str, list[str]]] = json.loads((place / "answers.json").read_text())
    return found


def test_every_format_has_a_migration_and_a_fixture_of_the_one_before() -> None:
    assert sorted(MIGRATIONS) == list(range(2, FORMAT + 1))
    assert all((FIXTURES / f"home-format-{number - 1}.tar.gz").exists() for number in MIGRATIONS)


def as_shown_now(answers: dict[str, list[str]]) -> dict[str, list[str]]:
    """Answers that older code gave, as they are given now: an event time that a query does not select is `event_time`, and
    none of the columns of its rows."""
    hidden = re.compile(r", 'time': (datetime\.datetime\([^)]*\([^)]*\)\))")
    shown = {"large": r"", "large now": r", 'event_time': \1"}
    return {
        name: sorted(hidden.sub(shown[name], each) for each in rows) if name in shown else rows
        for name, rows in answers.items()
    }


@pytest.mark.parametrize("number", range(1, FORMAT))
def test_a_home_of_an_older_format_is_refused_then_upgraded_and_goes_on(
    number: int, room: Path, hayase_: Command
) -> None:
    expected = unpacked(number, room)
    home = room / "shop" / "home"
    pipeline = every_file.opened(room / "shop")
    for refused in (
        lambda: pipeline.run_until_idle(spark=False),
        lambda: pipeline.append("orders", []),
        lambda: StreamLog.open(home, "orders"),
        lambda: pipeline.progress(),
    ):
        with pytest.raises(FormatMismatch, match=f"hayase home upgrade {home}"):
            refused()
    assert hayase_("home", "verify", home).code == 1
    assert f"has format {FORMAT} now (it had {number})" in hayase_("home", "upgrade", home).out
    assert "already" in hayase_("home", "upgrade", home).out
    assert "is sound" in hayase_("home", "verify", home).out
    assert every_file.answers(pipeline) == as_shown_now(expected["now"])
    every_file.later(pipeline)
    assert every_file.answers(pipeline) == as_shown_now(expected["later"])
    assert "is sound" in hayase_("home", "verify", home).out
    assert not stat.S_IMODE(home.stat().st_mode) & 0o077


class _Killed(BaseException):
    pass


def test_an_upgrade_interrupted_anywhere_is_run_again(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacked(1, room)
    steps = 0

    def count(step: str) -> None:
        nonlocal steps
        steps += 1

    monkeypatch.setattr(durable, "reached", count)
    shutil.copytree(room / "shop", room / "whole")
    upgrade(Home(room / "whole" / "home"))
    assert steps > 40
    for number in range(0, steps, 7):
        place = room / f"killed at {number}"
        shutil.copytree(room / "shop", place)
        left = number

        def die(step: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise _Killed(step)

        monkeypatch.setattr(durable, "reached", die)
        home = Home(place / "home")
        with pytest.raises(_Killed):
            upgrade(home)
        monkeypatch.setattr(durable, "reached", lambda step: None)
        if format_of(home.path) != FORMAT:
            with pytest.raises(FormatMismatch, match="hayase home upgrade"):
                every_file.opened(place).progress()
            upgrade(home)
        assert not list(verify(home))
        assert not [each for each in place.rglob("*.tmp") if each.is_file()]
        assert _contents(home.path) == _contents(room / "whole" / "home")
        shutil.rmtree(place)


def _contents(home: Path) -> dict[str, bytes]:
    """What is in the files of a home, but for those that say who held something."""
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.rglob("*")
        if path.is_file() and not path.name.startswith("lock")
    }


def test_what_cannot_be_read_is_not_upgraded(room: Path) -> None:
    unpacked(1, room)
    home = room / "shop" / "home"
    damaged = home / "streams" / "orders" / "stream.json"
    damaged.write_bytes(damaged.read_bytes()[:-5])
    before = _contents(home)
    with pytest.raises(DamagedState, match="nothing was changed"):
        upgrade(Home(home))
    assert _contents(home) == before


def test_a_newer_format_is_refused(shop: hy.Pipeline, hayase_: Command) -> None:
    write_format(shop.home.path, FORMAT + 1)
    for refused in (lambda: shop.run_until_idle(spark=False), lambda: shop.append("orders", [])):
        with pytest.raises(FormatMismatch, match=f"has format {FORMAT + 1}, .* use the version that wrote it"):
            refused()
    assert hayase_("home", "upgrade", shop.home.path).code == 1


def test_a_format_that_is_lost_is_found_again(shop: hy.Pipeline, hayase_: Command) -> None:
    expected = every_file.answers(shop)
    (shop.home.path / FORMAT_FILE).unlink()
    with pytest.raises(FormatMismatch, match="hayase home upgrade"):
        shop.run_until_idle(spark=False)
    assert hayase_("home", "upgrade", shop.home.path).code == 0
    assert every_file.answers(shop) == expected


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    pipeline = hy.Pipeline("shop", home=tmp_path / "home")
    pipeline.stream("orders", schema="time timestamp", time="time")
    with pytest.raises(HayaseError, match="a file is in the place of a folder"):
        pipeline.append("orders", [{"time": "2026-01-01T00:00:00Z"}])


# ------------------------------------------------------------------------------------------------------------ privacy
def test_nobody_else_gets_into_a_home(room: Path) -> None:
    mask = os.umask(0o022)
    try:
        pipeline = every_file.history(room / "shop")
    finally:
        os.umask(mask)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in [pipeline.home.path, *pipeline.home.path.rglob("*")]}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o077} == {}
    assert os.umask(mask) == mask


def test_a_home_that_was_shared_on_purpose_stays_shared(room: Path) -> None:
    home = room / "shop" / "home"
    home.mkdir(parents=True)
    home.chmod(0o2770)
    mask = os.umask(0o022)
    try:
        every_file.history(room / "shop")
    finally:
        os.umask(mask)
    modes = {path: stat.S_IMODE(path.lstat().st_mode) for path in home.rglob("*") if "tables" not in path.parts}
    assert {path: oct(mode) for path, mode in modes.items() if mode & 0o007 or mode & 0o060 != 0o060} == {}
    stores = (path for path in home.glob("tables/*/*"))  # which RocksDB makes: others may read them
    assert {stat.S_IMODE(path.stat().st_mode) & 0o047 for path in stores} == {0o040}


def test_an_existing_empty_directory_becomes_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    pipeline = hy.Pipeline("shop", home=tmp_path)
    pipeline.stream("orders", schema="time timestamp", time="time")
    pipeline.append("orders", [{"time": "2026-01-01T00:00:00Z"}])
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


# ------------------------------------------------------------------------------------------------------------ the lock
def test_to_ask_whether_a_home_is_held_does_not_hold_it(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    assert not home.is_locked()
    with home.lock():
        pass
    # one who asks, over and over, while another starts again and again
    asking = "import sys\nfrom pathlib import Path\nfrom hayase.engine.home import Home\nprint(flush=True)\n"
    asking += "while True: Home(Path(sys.argv[1])).is_locked()"
    with subprocess.Popen([sys.executable, "-c", asking, str(home.path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(300):
            with home.lock():
                assert home.is_locked()
            assert not home.is_locked()
        process.kill()


# ------------------------------------------------------------------------------------------------------------ missing files
Removal = Callable[[Path], Path]


def _newest(pattern: str) -> Removal:
    return lambda home: max(home.glob(pattern))


def _oldest(pattern: str) -> Removal:
    return lambda home: min(home.glob(pattern))


def _everything(pattern: str) -> Removal:
    return lambda home: home / pattern


def _state_file(home: Path) -> Path:
    """The state file that holds pieces of the most stages."""
    states = Commits(Home(home), MAIN).latest().states
    files = [(ref.file, stage) for stage, buckets in states.items() for refs in buckets.values() for ref in refs]
    count = Counter(file for file, _ in set(files) if file)
    assert max(count.values()) > 1
    return home / "state" / MAIN / max(count, key=lambda file: (count[file], file))


REMEDIES = [
    pytest.param(
        _newest("streams/orders/*.seg"), "home repair {home} --accept-loss orders", id="last segment of an input"
    ),
    pytest.param(_newest("streams/spend/*[0-9a-f].seg"), "reset spend --from earliest", id="last segment of an output"),
    pytest.param(_newest(f"commits/{MAIN}/*.json"), "reset --all --from earliest", id="newest manifest"),
    pytest.param(
        _newest(f"commits/{OPERATIONS}/*.json"), "reset --all --from earliest", id="newest manifest of operations"
    ),
    pytest.param(_everything("commits"), "reset --all --from earliest", id="all manifests"),
    pytest.param(_newest("definitions/*.json"), "reset --all --from earliest", id="newest definition"),
    pytest.param(_state_file, "reset {stages} --from earliest", id="a state file of several stages"),
    pytest.param(_newest("streams/spend/stream.json"), "home repair {home}", id="declaration of an output"),
    pytest.param(_newest("streams/orders/stream.json"), "home repair {home}", id="declaration of an input"),
    pytest.param(_newest("streams/pings/producers.json"), "home repair {home}", id="producers"),
    pytest.param(
        _newest("streams/pings/*.base"), "home repair {home} --accept-loss pings", id="the base of a trimmed log"
    ),
    pytest.param(
        _oldest("streams/orders/*.seg"), "home repair {home} --accept-loss orders", id="first segment of an input"
    ),
]


@pytest.mark.parametrize(("removal", "remedy"), REMEDIES)
def test_a_missing_file_is_named_and_the_remedy_works(
    shop: hy.Pipeline, removal: Removal, remedy: str | None, hayase_: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = shop.home.path.parent
    gone = removal(shop.home.path)
    copy = directory / "copy"
    shutil.copytree(shop.home.path, copy)
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    forget_kernels()
    with pytest.raises(HayaseError) as caught:  # also after more was appended
        every_file.later(shop)
    told = str(caught.value)
    named = gone.parent if gone.suffix in (".seg", ".base") else gone
    assert str(named) in told
    assert re.search("put back|put it back|put them back|restore it", told)
    assert hayase_("home", "verify", shop.home.path).code == 1
    # the file comes back
    damaged = directory / "damaged"
    shutil.copytree(shop.home.path, damaged)
    kept = copy / gone.relative_to(shop.home.path)
    shutil.copytree(kept, gone, dirs_exist_ok=True) if kept.is_dir() else shutil.copy(kept, gone)
    assert hayase_("home", "verify", shop.home.path).out.endswith("is sound\n")
    every_file.later(shop)
    expected = every_file.answers(shop)
    if remedy is None:
        return
    # there is no copy
    shutil.rmtree(shop.home.path)
    damaged.rename(shop.home.path)
    stages = re.findall(r'"(\w+)"', told.partition("the state of stage")[2].partition(" cannot be read")[0])
    command = remedy.format(home=shop.home.path, stages=" ".join(stages))
    assert f"`hayase {command}`" in told
    monkeypatch.chdir(directory)
    assert hayase_(*command.split(" ")).code == 0
    forget_kernels()
    every_file.later(shop)
    assert hayase_("home", "verify", shop.home.path).out.endswith("is sound\n")
    found = every_file.answers(shop)
    if "accept-loss" not in command:
        for name in ("orders", "large", "spend", "purchases"):
            assert found[name] == expected[name]


@pytest.mark.parametrize("stream", ["orders", "_dead"])
def test_a_log_with_a_gap_goes_on_once_the_loss_is_accepted(shop: hy.Pipeline, stream: str, hayase_: Command) -> None:
    segments = sorted((shop.home.path / "streams" / stream).glob("*.seg"))
    segments[len(segments) // 2].unlink()
    with pytest.raises(HayaseError, match=f"--accept-loss {stream}"):
        every_file.later(shop)
    assert hayase_("home", "repair", shop.home.path, "--accept-loss", stream).code == 0
    every_file.later(shop)
    assert not list(verify(shop.home))


def test_a_log_that_is_shorter_takes_no_more_records(shop: hy.Pipeline) -> None:
    max((shop.home.path / "streams" / "orders").glob("*.seg")).unlink()
    with pytest.raises(StreamError, match=r"ends before record 39, and had 40 records: .* --accept-loss orders"):
        shop.append("orders", [{"time": "2026-01-01T00:00:59Z", "id": "x", "user": "a", "amount": 1}])


def test_a_log_that_lost_its_head_as_well_is_noticed_by_its_readers(shop: hy.Pipeline) -> None:
    """After a loss of power the head may not be known."""
    directory = shop.home.path / "streams" / "orders"
    (directory / "lock").unlink()
    shutil.rmtree(shop.home.path / "heads")
    max(directory.glob("*.seg")).unlink()
    with pytest.raises(DamagedState, match=r"has read stream \"orders\" up to record 40, .* ends before record 39"):
        shop.run_until_idle(spark=False)


@pytest.fixture
def backup(shop: hy.Pipeline, tmp_path: Path) -> Path:
    """An older copy of the home, and three batches since; the last one brings nothing for the table."""
    copy = tmp_path / "backup"
    shutil.copytree(shop.home.path, copy)
    every_file.append(shop, 36, 1, 10)
    every_file.run(shop)
    shop.append("pings", [{"time": "2026-01-01T00:00:55Z", "host": "x"}], producer="probe", sequence=11)
    every_file.run(shop)
    return copy


def _put_back(home: Path, backup: Path, *names: str) -> None:
    for name in names:
        if (backup / name).is_dir():
            shutil.rmtree(home / name, ignore_errors=True)
            shutil.copytree(backup / name, home / name)
        else:
            shutil.copy2(backup / name, home / name)


def _reset(hayase_: Command, shop: hy.Pipeline, *stages: str) -> None:
    done = hayase_("reset", *stages, "--from", "earliest", "--home", shop.home.path)
    assert done.code == 0, done


@pytest.mark.parametrize("stream", ["orders", "pings", "spend", "scores", "_dead"])
@pytest.mark.parametrize("lock", [True, False])
def test_an_older_copy_of_a_stream_is_noticed(shop: hy.Pipeline, backup: Path, stream: str, lock: bool) -> None:
    _put_back(shop.home.path, backup, f"streams/{stream}")
    if not lock:
        (shop.home.path / "streams" / stream / "lock").unlink()
    assert [each for each in verify(shop.home) if f"streams/{stream}" in each.problem]
    with pytest.raises(StreamError, match=f'log of stream "{stream}" .* is not whole'):
        every_file.later(shop)


@pytest.mark.parametrize("stream", ["orders", "pings"])
def test_a_stream_that_vanished_goes_on_when_the_loss_is_accepted(
    shop: hy.Pipeline, backup: Path, stream: str, hayase_: Command
) -> None:
    shutil.rmtree(shop.home.path / "streams" / stream)
    with pytest.raises(StreamError, match=f"--accept-loss {stream}"):
        every_file.later(shop)
    assert hayase_("home", "repair", shop.home.path, "--accept-loss", stream).code == 0
    every_file.later(shop)
    assert not list(verify(shop.home))


def test_a_damaged_state_file_is_one_finding_with_one_command(shop: hy.Pipeline, hayase_: Command) -> None:
    file = _state_file(shop.home.path)
    file.write_bytes(bytes(file.stat().st_size))
    (finding,) = verify(shop.home)
    assert finding.path == str(file)
    (command,) = re.findall(r"`hayase (reset [^`]+)`", finding.remedy)
    assert hayase_(*command.split(" "), "--home", shop.home.path).code == 0
    forget_kernels()
    every_file.run(shop)
    assert list(verify(shop.home)) == []


def test_a_view_waits_for_an_output_that_is_written_again(shop: hy.Pipeline, hayase_: Command) -> None:
    """It may be called before the stage begins anew and removes the damaged log."""
    home, now = shop.home, lambda: every_file.START
    _oldest("streams/scores/*[0-9a-f].seg")(home.path).unlink()
    with (
        pytest.raises(StreamError, match="reset scores"),
        Subscriptions(home, [Subscription("scores", every_file.scored)], now),
    ):
        pass
    _reset(hayase_, shop, "scores")
    with Subscriptions(home, [Subscription("scores", every_file.scored)], now):
        pass
    every_file.later(shop)


def test_settlements_that_vanished_are_missed_and_can_be_given_up(shop: hy.Pipeline, hayase_: Command) -> None:
    """Without them every settled dead letter would be open again."""
    home = shop.home.path
    gone = home / "streams" / "_settled"
    shutil.rmtree(gone)
    command = f"home repair {home} --accept-loss _settled"
    for told in (hayase_("dead", "list", "--home", home), hayase_("home", "verify", home)):
        assert told.code == 1
        assert str(gone) in told.out + told.err
        assert f"`hayase {command}`" in told.out + told.err
    with pytest.raises(StreamError, match="put the directory back from a backup"):
        every_file.later(shop)
    assert hayase_(*command.split(" ")).code == 0
    assert hayase_("home", "verify", home).code == 0
    every_file.later(shop)


def test_the_output_of_a_stage_that_vanished_is_written_again_by_a_reset(
    shop: hy.Pipeline, backup: Path, hayase_: Command
) -> None:
    shutil.rmtree(shop.home.path / "streams" / "spend")
    with pytest.raises(DamagedState, match="hayase reset spend --from earliest"):
        every_file.later(shop)
    _reset(hayase_, shop, "spend")
    every_file.later(shop)
    assert shop.query("spend").at()


@pytest.mark.parametrize("lane", [MAIN, OPERATIONS])
@pytest.mark.parametrize("names", [("commits", "heads"), ("commits", "heads", "state")])
def test_older_manifests_are_noticed(
    shop: hy.Pipeline, backup: Path, lane: str, names: tuple[str, ...], hayase_: Command
) -> None:
    """Going on from them would publish again what is in the outputs."""
    found = {"commits": f"commits/{lane}", "heads": f"heads/{lane}"}
    _put_back(shop.home.path, backup, *(found.get(each, each) for each in names))
    assert [each for each in verify(shop.home) if "newer manifest is missing" in each.problem]
    with pytest.raises(DamagedState, match="newer manifest is missing"):
        every_file.later(shop)
    _reset(hayase_, shop, "--all")
    every_file.later(shop)
    assert not list(verify(shop.home))


def test_manifests_and_heads_that_are_all_gone_are_noticed(shop: hy.Pipeline, hayase_: Command) -> None:
    for name in ("commits", "heads"):
        shutil.rmtree(shop.home.path / name)
    assert [each for each in verify(shop.home) if "manifests in" in each.problem]
    with pytest.raises(DamagedState, match=r"manifests in .* are missing"):
        every_file.later(shop)
    _reset(hayase_, shop, "--all")
    every_file.later(shop)
    assert not list(verify(shop.home))


@pytest.mark.parametrize("older", [True, False])
def test_a_table_that_lacks_updates_is_noticed(shop: hy.Pipeline, backup: Path, older: bool, hayase_: Command) -> None:
    """An older copy with its seal, or neither of them; also when the newest batch had nothing for the table."""
    wanted = [shop.table("purchases").get(user) for user in "abc"]
    if older:
        _put_back(shop.home.path, backup, "tables/purchases", "tables/purchases.seal")
    else:
        shutil.rmtree(shop.home.path / "tables")
    assert [each for each in verify(shop.home) if "purchases" in each.problem]
    with pytest.raises(DamagedState, match="hayase reset purchases --from earliest"):
        shop.table("purchases").get("a")
    assert "reset purchases" in hayase_("tables", "get", "purchases", "a", "--home", shop.home.path).err
    with pytest.raises(DamagedState, match="hayase reset purchases --from earliest"):
        every_file.run(shop)
    _reset(hayase_, shop, "purchases")
    every_file.run(shop)
    assert [shop.table("purchases").get(user) for user in "abc"] == wanted


def test_a_finish_that_is_missing_is_noticed(shop: hy.Pipeline) -> None:
    every_file.later(shop)
    max((shop.home.path / "streams" / "orders").glob("*.seg")).unlink()
    with pytest.raises(StreamError, match="clock"):
        shop.append("orders", [{"time": "2026-01-01T00:00:59Z", "id": "x", "user": "a", "amount": 1}])


def test_a_finding_has_problem_and_remedy_apart_whatever_the_path_is_called(tmp_path: Path) -> None:
    with trial(home=tmp_path / "old; new") as pipeline:
        pipeline.stream("orders", "time timestamp")
        pipeline.append("orders", [{"time": at(0)}])
        file = pipeline.home.path / "streams" / "orders" / "stream.json"
        file.write_bytes(file.read_bytes().replace(b"orders", b"ordres"))
        (finding,) = verify(pipeline.home)
        assert finding.problem.startswith(f"the declaration {file} cannot be read: ")
        assert finding.remedy.startswith("put back a copy from a backup, or run `hayase home repair")


@pytest.mark.parametrize("stream", ["_dead", "_settled"])
def test_lost_dead_letters_keep_their_numbers(shop: hy.Pipeline, stream: str, hayase_: Command) -> None:
    log = StreamLog.open(shop.home.path, stream)
    end = log.index().next
    max(log.path.glob("*.seg")).unlink()
    with pytest.raises(StreamError, match=f"--accept-loss {stream}"):
        shop.replay(stage="append", edit=lambda record: {**record, "amount": 1})
    assert hayase_("home", "repair", shop.home.path, "--accept-loss", stream).code == 0
    assert StreamLog.open(shop.home.path, stream).index().next >= end
    every_file.later(shop)
    assert not list(verify(shop.home))


def test_heads_tell_what_is_the_newest(shop: hy.Pipeline) -> None:
    shutil.rmtree(shop.home.path / "heads")  # witnesses only: nothing needs them
    every_file.later(shop)
    assert head_of(shop.home, DEFINITIONS).version == definitions.latest_version(shop.home)
    for lane in (MAIN, OPERATIONS):
        newest = Commits(shop.home, lane).latest()
        assert head_of(shop.home, lane) == Head(newest.version, newest.offset.definition)


def test_an_output_that_was_never_published_is_noticed(shop: hy.Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies when the manifest is there and nothing else; then a file of `staged` goes."""
    every_file.append(shop, 36, 1, 10)

    class Dead(BaseException):
        pass

    publish = StreamLog.publish_all

    def die(self: StreamLog, staged: Sequence[Path], *arguments: Any, **options: Any) -> object:
        if any(path.exists() for path in staged):
            raise Dead
        return publish(self, staged, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(StreamLog, "publish_all", die)
        with pytest.raises(Dead):
            every_file.run(shop)
    parts = list(shop.home.staged(MAIN).glob("*.seg"))
    assert parts
    for each in parts:
        each.unlink()
    with pytest.raises(DamagedState, match=r"wrote up to \d+: a file in .*staged/main"):
        every_file.run(shop)


# ------------------------------------------------------------------------------------------------------------ verification
HARMLESS = re.compile(r"lock$|lock\.commits$|heads/|tables/[^/]+/")
"""Files that nobody trusts. Tables are damaged by tests of their own."""
NOT_MISSED = re.compile(r"views/|commits/|\.base$|tables/")
"""Files that may be gone: older manifests, a view's place (it gets all records again), the base of a log that begins at 0."""


def test_verify_finds_damage_of_every_kind_of_file(shop: hy.Pipeline) -> None:
    """One file of each kind, with one change that is drawn; all changes in a long run. The file, or its place, is named."""
    dice, home = random.Random(2026 if "CI" in os.environ else None), shop.home.path
    assert not list(verify(shop.home))
    kinds: dict[str, list[Path]] = {}
    for path in sorted(home.rglob("*")):
        if path.is_file() and not HARMLESS.search(str(path.relative_to(home))):
            kinds.setdefault(kind_of(home, path), []).append(path)
    assert len(kinds) > 20
    for kind, paths in kinds.items():
        path = dice.choice(paths)
        whole = path.read_bytes()
        changes = [name for name in DAMAGES if (whole if name != "gone" else not NOT_MISSED.search(kind))]
        if kind.startswith(
            "state/"
        ):  # between pieces that are in use lie others, and padding: test_state flips their bits
            changes = ["gone"]
        for name in changes if effort.LONG else dice.sample(changes, min(1, len(changes))):
            damage = DAMAGES[name]
            path.unlink() if damage is None else path.write_bytes(damage(bytearray(whole), dice))
            found = [f"{each.path} {each.problem} {each.remedy}" for each in verify(shop.home)]
            path.write_bytes(whole)
            place = path.name if path.suffix != ".seg" else str(path.parent)
            named = [each for each in found if place in each or str(path.parent) in each]
            assert named, f"{name} of {path}: {found}"
    assert not list(verify(shop.home))
