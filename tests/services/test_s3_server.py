"""The S3 server of the tests: of concurrent conditional writes exactly one succeeds, and a killed server keeps its objects."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import S3Store

from servers.s3 import S3

if TYPE_CHECKING:
    from obstore import PutMode

WRITERS, ROUNDS = 32, 100


@pytest.fixture
def store(s3: S3, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> S3Store:
    """A new bucket."""
    bucket = request.node.name.replace("_", "-")[:60].rstrip("-")
    s3.create_bucket(bucket)
    for name, value in s3.environment_of_clients.items():
        monkeypatch.setenv(name, value)
    return S3Store(bucket)


@pytest.fixture
def writers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(WRITERS) as pool:
        yield pool


def winners(writers: ThreadPoolExecutor, store: S3Store, path: str, mode: PutMode, text: str) -> list[bytes]:
    """What was written by those of all writers at once who were not refused."""
    gate = threading.Barrier(WRITERS)

    def write(number: int) -> bytes | None:
        content = f"{text} of {number}".encode() * 100
        gate.wait()
        try:
            obstore.put(store, path, content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            return None
        return content

    return [content for content in writers.map(write, range(WRITERS)) if content is not None]


def test_one_of_many_creates_an_object_and_one_replaces_it(store: S3Store, writers: ThreadPoolExecutor) -> None:
    for number in range(ROUNDS):
        path = f"objects/{number}"
        created = winners(writers, store, path, "create", "first")
        assert [obstore.get(store, path).bytes()] == created
        version = {"e_tag": obstore.head(store, path)["e_tag"]}
        replaced = winners(writers, store, path, version, "second")
        assert [obstore.get(store, path).bytes()] == replaced


def test_objects_stay_when_the_server_is_killed(s3: S3, store: S3Store) -> None:
    obstore.put(store, "kept", b"1", mode="create")
    s3.kill()
    s3.start()
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "kept", b"2", mode="create")
    assert obstore.get(store, "kept").bytes() == b"1"
    assert [entry["path"] for entries in obstore.list(store) for entry in entries] == ["kept"]
