"""The class archive in the user's cache: which file is used, what names it, how many are kept."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hayase.core.user_cache import user_cache
from hayase.engine.spark.class_archive import JAVA_OPTIONS, KEPT, MOST, UNUSED, ClassArchive, class_archive

JAVA = 'openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment (build 17.0.15+6)\n'


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HAYASE_CLASS_ARCHIVE", raising=False)
    return tmp_path


def _archive(java: str = JAVA, **settings: str) -> ClassArchive:
    archive = class_archive(java, settings)
    assert archive is not None
    return archive


def _record(archive: ClassArchive, content: bytes = b"classes") -> Path:
    draft = archive.directory / "draft"
    draft.write_bytes(content)
    archive.take(draft)
    assert archive.file is not None
    return archive.file


def test_an_archive_that_was_recorded_is_used(cache: Path) -> None:
    archive = _archive()
    assert archive.file is None
    assert archive.java_options() == ""
    path = _record(archive)
    assert path.is_relative_to(cache / "hayase")
    assert str(path) in _archive().java_options()


def test_a_truncated_archive_is_not_used() -> None:
    archive = _archive()
    path = _record(archive)
    path.write_bytes(b"cla")  # the JVM would crash
    assert archive.file is None
    assert archive.java_options() == ""


def test_another_java_another_class_path_and_other_options_have_other_archives(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {_archive().key, _archive(JAVA.replace("+6", "+7")).key}
    keys.add(_archive(**{"spark.driver.extraClassPath": "/own"}).key)
    keys.add(_archive(**{"spark.driver.extraJavaOptions": "-XX:-UseCompressedOops"}).key)
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    keys.add(_archive().key)
    assert len(keys) == 5


def _recorded_and_used(number: int, seconds_ago: float) -> Path:
    path = _record(_archive(f"{JAVA}{number}"))
    used = time.time() - seconds_ago
    os.utime(path, (used, used))
    return path


def test_archives_not_used_for_long_are_removed_but_for_the_newest() -> None:
    paths = [_recorded_and_used(number, 2 * UNUSED - number) for number in range(KEPT + 2)]
    first = _archive(f"{JAVA}2")
    first.java_options()  # it is used again
    _record(_archive())
    assert first.file is not None
    assert sum(path.exists() for path in paths) == KEPT - 1


def test_archives_in_use_do_not_evict_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with more checkouts than archives would otherwise record one after every run."""
    paths = [_recorded_and_used(number, 60) for number in range(MOST)]
    assert all(path.exists() for path in paths)
    registered: list[Callable[[], None]] = []
    monkeypatch.setattr(atexit, "register", registered.append)
    one_more = _archive(f"{JAVA}one more")
    one_more.record_at_exit()
    assert registered == []  # all are in use, and there is no room
    os.utime(paths[0], (0, 0))
    one_more.record_at_exit()
    assert len(registered) == 1
    _record(one_more)
    assert [path.exists() for path in paths] == [False, *[True] * (MOST - 1)]


def test_an_archive_with_which_no_jvm_starts_is_removed() -> None:
    archive = _archive()
    _record(archive)
    archive.remove()
    assert archive.file is None


def test_no_archive_where_the_cache_cannot_be_written_or_a_variable_or_setting_says_so(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert class_archive(JAVA, {JAVA_OPTIONS: "-Xint"}) is None
    monkeypatch.setenv("HAYASE_CLASS_ARCHIVE", "0")
    assert class_archive(JAVA, {}) is None
    monkeypatch.delenv("HAYASE_CLASS_ARCHIVE")
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))
    assert class_archive(JAVA, {}) is None


def test_the_cache_is_in_the_home_directory_unless_a_variable_names_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "taro"))
    assert user_cache("classes") == tmp_path / "taro" / ".cache" / "hayase" / "classes"
