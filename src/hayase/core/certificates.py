"""The certificate of a server, read again when its files have changed: connections that begin then get the new one."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from hayase.core.errors import HayaseError

__all__ = ["Certificate"]

_log = logging.getLogger(__name__)
LOOK = 1.0
"""Seconds between two looks whether the files have changed."""


class Certificate:
    """A certificate and its key, in PEM files or both in one; HayaseError if they cannot be used.

    `context` is what a server listens with. It looks for changed files when a client begins a connection. Files that cannot be
    used then, such as a key without its certificate yet, are reported, and the certificate before stays.
    """

    def __init__(self, certificate: Path, key: Path | None = None, monotonic: Callable[[], float] = time.monotonic):
        self._files, self._monotonic = (certificate, key), monotonic
        self._seen, self._looked = self._identity(), monotonic()
        self.context = self._newest = _context(certificate, key)
        self.context.sni_callback = self._begin  # called for every client, also for one that names no server

    def _begin(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        moment = self._monotonic()
        if moment >= self._looked + LOOK:
            self._looked = moment
            self._renew()
        if self._newest is not self.context:
            connection.context = self._newest

    def _renew(self) -> None:
        seen = self._identity()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._newest = _context(*self._files)
        except HayaseError as error:
            _log.warning("%s; the one that was read before stays in use", error)
        else:
            _log.info('the certificate "%s" was read again', self._files[0])

    def _identity(self) -> list[tuple[int, int, int] | None]:
        return [_identity(file) for file in self._files if file is not None]


def _identity(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def _context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise HayaseError(
            f'the certificate "{certificate}" cannot be used: {error}', "give PEM files with its key"
        ) from error
    return context
