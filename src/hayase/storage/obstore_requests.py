"""Requests to S3 and compatible stores, Google Cloud Storage and Azure, by obstore.

Endpoint and credentials come from where the clouds' other programs take them: variables of the environment, files of the user,
the machine itself. They are neither kept nor shown: messages are cut where an address has parameters.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO

from hayase.core.errors import EndpointError, EnvironmentUnfit
from hayase.storage.object_store import Failed, Refused
from hayase.storage.verbs import Status, Stored

__all__ = ["ObstoreRequests"]

ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
"""The variables of the environment that name another server than the one of the cloud, by scheme."""
_PARAMETERS = re.compile(r"\?[^\s\"')]*")
_CHUNK = 16 << 20


class ObstoreRequests:
    """A bucket or container, below a prefix."""

    def __init__(self, address: str, prefix: str, client: Any = None):
        try:
            import obstore
            from obstore import exceptions
            from obstore.store import from_url
        except ImportError as error:
            raise EnvironmentUnfit(
                f"{address} needs a client for object stores: {error}", 'install it: pip install "hayase[lake]"'
            ) from error
        self.address = address
        self._obstore, self._prefix = obstore, f"{prefix}/" if prefix else ""
        self._refusals = (exceptions.AlreadyExistsError, exceptions.PreconditionError)
        self._final = (
            exceptions.PermissionDeniedError,
            exceptions.UnauthenticatedError,
            exceptions.NotSupportedError,
            exceptions.InvalidPathError,
        )
        self._other = exceptions.BaseError
        self._condition = "version" if address.startswith("gs://") else "e_tag"
        """By what a write is conditional: Google Cloud Storage compares generations of objects, the others ETags."""
        try:
            self._client: Any = client if client is not None else from_url(address, **_options(address))
        except Exception as error:  # options from the environment that do not fit together
            raise EndpointError(
                f"{address} cannot be opened: {_shown(error)}", "check the variables of the environment"
            ) from None

    def create(self, name: str, data: bytes) -> str:
        return self._conditional(name, data, "create")

    def replace(self, name: str, data: bytes, version: str) -> str:
        return self._conditional(name, data, {self._condition: version})

    def _conditional(self, name: str, data: bytes, mode: Any) -> str:
        try:
            with self._translated():
                answer = self._obstore.put(self._client, self._prefix + name, data, mode=mode)
        except FileNotFoundError as error:
            raise Refused(str(error)) from None
        return str(answer[self._condition])

    def put(self, name: str, source: bytes | Path) -> None:
        with self._translated():
            self._obstore.put(self._client, self._prefix + name, source, chunk_size=_CHUNK, max_concurrency=4)

    def read(self, name: str) -> Stored | None:
        with contextlib.suppress(FileNotFoundError), self._translated():
            answer = self._obstore.get(self._client, self._prefix + name)
            return Stored(bytes(answer.bytes()), str(answer.meta[self._condition]))
        return None

    def read_range(self, name: str, start: int, stop: int) -> bytes | None:
        if stop > start:
            try:
                with contextlib.suppress(FileNotFoundError), self._translated():
                    return bytes(self._obstore.get_range(self._client, self._prefix + name, start=start, end=stop))
                return None
            except Failed:
                status = self.status(name)
                if status is not None and status.size > start:
                    raise
        else:
            status = self.status(name)
        return None if status is None else b""  # stores refuse a range that begins behind the end

    def status(self, name: str) -> Status | None:
        with contextlib.suppress(FileNotFoundError), self._translated():
            return self._status(self._obstore.head(self._client, self._prefix + name))
        return None

    def list_after(self, directory: str, after: str) -> Iterator[Status]:
        offset = self._prefix + after if after else None
        with self._translated():
            below = self._prefix + directory or None
            for portion in self._obstore.list(self._client, below, offset=offset, chunk_size=1000):
                yield from map(self._status, portion)

    def delete(self, names: Sequence[str]) -> None:
        with contextlib.suppress(FileNotFoundError), self._translated():
            self._obstore.delete(self._client, [self._prefix + name for name in names])

    def open(self, name: str) -> BinaryIO:
        """Return an object as a file that is read in portions; FileNotFoundError if there is none."""
        with self.explained():
            reader = self._obstore.open_reader(self._client, self._prefix + name, buffer_size=4 << 20)
        opened: Any = _OpenObject(f"{self.address}/{self._prefix}{name}", reader, self)
        return opened

    def _status(self, item: Any) -> Status:
        tag = item["e_tag"] or str(item["last_modified"])
        if item["e_tag"] and '"' not in tag:  # Azure lists ETags without the quotes that it has elsewhere
            tag = f'"{tag}"'
        return Status(item["path"].removeprefix(self._prefix), item["size"], tag)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise what the client raises as Refused or Failed, but for a missing object, and for what trying again does not help."""
        try:
            yield
        except FileNotFoundError:
            raise
        except self._refusals as error:
            raise Refused(_shown(error)) from None
        except self._final as error:
            raise EndpointError(
                f"{self.address} fails: {_shown(error)}", "check its address and its credentials"
            ) from None
        except (self._other, OSError, ValueError) as error:
            raise Failed(_shown(error)) from None

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Raise what the client raises as EndpointError, but for a missing object: for requests that are not repeated."""
        try:
            with self._translated():
                yield
        except (Refused, Failed) as error:
            raise EndpointError(f"{self.address} fails: {error}", "check its address and its credentials") from None


def _options(address: str) -> dict[str, Any]:
    """Return the options of a client. It repeats little by itself: `hayase.storage.object_store` does."""
    endpoints = (os.environ.get(name) for name in ENDPOINTS[address.partition("://")[0]])
    plain = any(endpoint and endpoint.startswith("http://") for endpoint in endpoints)
    return {
        "client_options": {"allow_http": plain, "timeout": "30s", "connect_timeout": "5s"},
        "retry_config": {"max_retries": 1, "retry_timeout": timedelta(seconds=10)},
    }


def _shown(error: Exception) -> str:
    """Return the first line of an error, without the parameters of addresses: they may be a signature.

    >>> _shown(ValueError("PUT https://a.b/c?sig=secret failed"))
    'PUT https://a.b/c failed'
    """
    lines = str(error).splitlines() or [type(error).__name__]
    return _PARAMETERS.sub("", lines[0])[:300]


class _OpenObject(io.RawIOBase):
    """An object as a file; what fails while it is read is an error of the store, not of the file."""

    def __init__(self, name: str, reader: Any, requests: ObstoreRequests):
        self.name, self._reader, self._requests = name, reader, requests

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        with self._requests.explained():
            if size is None or size < 0:
                return bytes(self._reader.read())
            return bytes(self._reader.read(size))

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return int(self._reader.seek(offset, whence))

    def tell(self) -> int:
        return int(self._reader.tell())
