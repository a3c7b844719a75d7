"""Tokens of clients, each with a name and roles: one that may do everything, or a file of them that may change at any time.

A line of the file is `NAME ROLES TOKEN`; roles are separated by commas, `#` begins a comment line. Nobody but its owner may read
the file. It is read again when it has changed; one that cannot be used then is reported, and the tokens before it stay valid.
"""

from __future__ import annotations

import hashlib
import logging
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, get_args

from hayase.core.addresses import check_token
from hayase.core.data_classes import dataclass
from hayase.core.errors import HayaseError, nearest

__all__ = ["EVERYTHING", "SINGLE", "Role", "TokenHolder", "Tokens", "read_tokens"]

_log = logging.getLogger(__name__)
Role = Literal["read", "append", "operate"]
EVERYTHING: frozenset[str] = frozenset(get_args(Role))
SINGLE = "token"
"""The name of the one token that is given without a name."""
LOOK = 1.0
"""Seconds between two looks whether the file has changed."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_File = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who has a token, and what it allows: `read`, `append`, or with `operate` everything."""

    name: str
    roles: frozenset[str]


def read_tokens(file: Path) -> dict[str, tuple[str, TokenHolder]]:
    """Return the tokens of a file with their holders, by name; HayaseError if others can read it or a line is wrong."""
    try:
        mode, text = file.stat().st_mode, file.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise HayaseError(f'the tokens cannot be read from "{file}": {error}', "check the name") from error
    if mode & 0o077:
        raise HayaseError(f'the tokens in "{file}" can be read by others', f"`chmod 600 {file}`")
    found: dict[str, tuple[str, TokenHolder]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            token, holder = _holder(line, f'line {number} of "{file}"')
            if holder.name in found or token in (known for known, _ in found.values()):
                raise HayaseError(f'line {number} of "{file}" repeats a name or a token', "give each its own")
            found[holder.name] = token, holder
    if not found:
        raise HayaseError(f'there are no tokens in "{file}"', "write lines like `reports read TOKEN`")
    return found


def _holder(line: str, where: str) -> tuple[str, TokenHolder]:
    parts = line.split()
    if len(parts) != 3:
        raise HayaseError(f"{where} has {len(parts)} parts", "write a name, roles and a token: `reports read TOKEN`")
    name, roles, token = parts
    if not _NAME.fullmatch(name):
        raise HayaseError(f"the name in {where} is not one", "use up to 64 letters, digits, - and _")
    for role in roles.split(","):
        if role not in EVERYTHING:
            raise HayaseError(
                f'"{role[:20]}" in {where} is not a role{nearest(role[:20], EVERYTHING)}',
                "there are read, append and operate",
            )
    try:
        check_token(token)
    except HayaseError as error:
        raise HayaseError(f"the token in {where} cannot be used: {error}") from None
    given = frozenset(roles.split(","))
    return token, TokenHolder(name, EVERYTHING if "operate" in given else given)


class Tokens:
    """The valid tokens: those of a file, a single one that allows everything, or both.

    >>> tokens = Tokens("a-secret-of-16-characters")
    >>> tokens.holder("a-secret-of-16-characters").name, tokens.holder("another")
    ('token', None)
    """

    def __init__(
        self, token: str | None = None, file: Path | None = None, monotonic: Callable[[], float] = time.monotonic
    ):
        check_token(token)
        self._single = {} if token is None else {SINGLE: (token, TokenHolder(SINGLE, EVERYTHING))}
        self._file, self._monotonic = file, monotonic
        self._seen, self._looked = _identity(file), monotonic()
        self._take(self._single | ({} if file is None else read_tokens(file)))

    def holder(self, token: str) -> TokenHolder | None:
        """Return the holder of a token, None if it is not valid; the time that this takes says nothing about valid ones."""
        self._look()
        return self._holders.get(_digest(token))

    def named(self, name: str) -> tuple[str, TokenHolder] | None:
        """Return the token of a name and its holder; None if there is none."""
        self._look()
        return self._named.get(name)

    @property
    def has_names(self) -> bool:
        """Whether there is a file, so that tokens have names."""
        return self._file is not None

    def _take(self, tokens: Mapping[str, tuple[str, TokenHolder]]) -> None:
        self._named = tokens
        self._holders = {_digest(token): holder for token, holder in tokens.values()}

    def _look(self) -> None:
        moment = self._monotonic()
        if self._file is None or moment < self._looked + LOOK:
            return
        self._looked = moment
        seen = _identity(self._file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            tokens = read_tokens(self._file)
        except HayaseError as error:
            _log.warning("%s; the tokens that were read before stay valid", error)
            return
        self._take(self._single | tokens)
        _log.info('the tokens in "%s" were read again: %s', self._file, ", ".join(tokens))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _identity(file: Path | None) -> _File | None:
    try:
        status = None if file is None else file.stat()
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_mtime_ns, status.st_size, status.st_mode)
