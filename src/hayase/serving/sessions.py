"""Sessions of browsers: a cookie in place of the token, for pages that cannot send an Authorization header.

A page sends a token once, to `POST /session`, and gets a cookie that scripts cannot read. The cookie holds when it ends, the name
of the token, and a MAC of both under the token: nothing is stored, it survives a restart of the server, and another token makes
it invalid. It is accepted only from pages of this server itself; who may send which request is decided in `guard`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie

from hayase.core.tokens import TokenHolder, Tokens

__all__ = ["Sessions", "ended"]

SECONDS = 12 * 3600
"""How long a session lasts."""
_PURPOSE = b"hayase session until "


class Sessions:
    """The sessions of a server with tokens; `clock` gives the wall-clock time in microseconds. With `secure`, cookies are sent
    over TLS only.

    >>> sessions = Sessions(Tokens("a-secret-of-16-characters"), lambda: 0)
    >>> cookie = sessions.cookie("127.0.0.1:8421", "token")
    >>> cookie.partition(";")[2]
    ' Path=/; Max-Age=43200; HttpOnly; SameSite=Strict'
    >>> sessions.holder("127.0.0.1:8421", [cookie.partition(";")[0]]).name, sessions.holder("127.0.0.1:8422", ["x=1"])
    ('token', None)
    """

    def __init__(self, tokens: Tokens, clock: Callable[[], int], secure: bool = False):
        self.tokens, self._clock, self._secure = tokens, clock, secure

    def cookie(self, host: str, name: str) -> str:
        """Return the Set-Cookie header that begins a session of the holder of a token with the server at `host`."""
        end = self._clock() // 1_000_000 + SECONDS
        value = f"{end}.{name}.{self._seal(end, name)}"
        return _header(host, value, SECONDS) + ("; Secure" if self._secure else "")

    def holder(self, host: str, cookies: Iterable[str]) -> TokenHolder | None:
        """Return who has a session that has not ended, by the Cookie headers of a request to `host`; None if nobody has."""
        for header in cookies:
            try:
                morsel = SimpleCookie(header).get(_name(host))
            except CookieError:
                continue
            parts = (morsel.value if morsel is not None else "").split(".")
            if len(parts) != 3 or not (parts[0].isascii() and parts[0].isdigit() and len(parts[0]) <= 18):
                continue
            end, known = int(parts[0]), self.tokens.named(parts[1])
            if known is not None and hmac.compare_digest(parts[2].encode(), self._seal(end, parts[1]).encode()):
                return known[1] if end > self._clock() // 1_000_000 else None
        return None

    def _seal(self, end: int, name: str) -> str:
        known = self.tokens.named(name)
        token = b"" if known is None else known[0].encode()
        return hmac.new(token, _PURPOSE + f"{end} {name}".encode(), sha256).hexdigest()


def ended(host: str) -> str:
    """Return the Set-Cookie header that ends a session."""
    return _header(host, "", 0)


def _header(host: str, value: str, seconds: int) -> str:
    return f"{_name(host)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"


def _name(host: str) -> str:
    """The name of the cookie. Cookies do not distinguish ports, so that the name has to."""
    port = host.rpartition(":")[2]
    return f"hayase-session-{port if port.isascii() and port.isdigit() else '80'}"
