"""The verbs of storage over real object stores: of many writers at once exactly one wins; ranges, listings, large objects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hayase.core.errors import EndpointError
from hayase.storage import Store, open_store
from servers.s3 import S3

WRITERS, ROUNDS = 32, 100


@pytest.fixture
def writers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WRITERS) as pool:
        yield pool


def winners(writers: ThreadPoolExecutor, write: Callable[[bytes], str | None], text: str) -> list[bytes]:
    """What was written by those of all writers at once who were told that they succeeded."""
    gate = threading.Barrier(WRITERS)

    def attempt(number: int) -> bytes | None:
        content = f"{text} of {number}".encode() * 100
        gate.wait()
        return content if write(content) is not None else None

    return [content for content in writers.map(attempt, range(WRITERS)) if content is not None]


def test_one_of_many_creates_an_object_and_one_replaces_it(bucket: str, writers: ThreadPoolExecutor) -> None:
    store = open_store(f"{bucket}/below")
    for number in range(ROUNDS):
        name = f"objects/{number}"
        created = winners(writers, lambda content, name=name: store.create(name, content), "first")
        there = store.read(name)
        assert there is not None
        assert created == [there.data]
        version = there.version
        replaced = winners(
            writers, lambda content, name=name, version=version: store.replace(name, content, version), "second"
        )
        there = store.read(name)
        assert there is not None
        assert replaced == [there.data]


def check_verbs(store: Store, directory: Path) -> None:
    large = directory / "large"
    large.write_bytes(bytes(range(256)) * (40 << 12))  # 40 MB: more than one part
    store.put("files/large", large)
    assert store.status("files/large").size == 40 << 20  # type: ignore[union-attr]
    assert store.read_range("files/large", 250, 260) == bytes(range(250, 256)) + bytes(range(4))
    assert store.read_range("files/large", (40 << 20) - 2, 99 << 20) == bytes((254, 255))
    assert store.read_range("files/large", 50 << 20, 99 << 20) == b""
    assert store.read_range("files/none", 0, 1) is None
    for number in range(5):
        store.create(f"files/{number}", b"%d" % number)
    assert [status.name for status in store.list_after("files", "files/2")] == ["files/3", "files/4", "files/large"]
    assert store.replace("files/none", b"", "1") is None
    store.delete(["files/3", "files/none", "files/large"])
    assert [status.name for status in store.list_after()] == ["files/0", "files/1", "files/2", "files/4"]


def test_verbs(bucket: str, tmp_path: Path) -> None:
    check_verbs(open_store(f"{bucket}/a/place"), tmp_path)


def test_refused_credentials_are_not_shown(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.create_bucket("closed")
    for variable, value in {**s3.environment_of_clients, "AWS_SECRET_ACCESS_KEY": "a-secret"}.items():
        monkeypatch.setenv(variable, value)
    with pytest.raises(EndpointError) as error:
        open_store("s3://closed").read("name")
    assert "a-secret" not in str(error.value)
    assert "credentials" in str(error.value)
