"""Sessions of browsers: a cookie in place of the token, for pages that cannot send an Authorization header.

A page sends the token once, to `POST /session`, and gets a cookie that scripts cannot read. The cookie holds when it ends and a
MAC of that under the token: nothing is stored, it survives a restart of the server, and another token makes it invalid. It is
accepted only from pages of this server itself; who may send which request is decided in `guard`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie

__all__ = ["Sessions", "ended"]

SECONDS = 12 * 3600
"""How long a session lasts."""
_PURPOSE = b"hayase session until "


class Sessions:
    """The sessions of a server with a token; `clock` gives the wall-clock time in microseconds.

    >>> sessions = Sessions("a-secret-of-16-characters", lambda: 0)
    >>> cookie = sessions.cookie("127.0.0.1:8421")
    >>> cookie.partition(";")[2]
    ' Path=/; Max-Age=43200; HttpOnly; SameSite=Strict'
    >>> sessions.is_open("127.0.0.1:8421", [cookie.partition(";")[0]]), sessions.is_open("127.0.0.1:8422", ["x=1"])
    (True, False)
    """

    def __init__(self, token: str, clock: Callable[[], int]):
        self._token, self._clock = token.encode(), clock

    def is_token(self, text: str) -> bool:
        """Whether a text is the token; the time that this takes says nothing about it."""
        return hmac.compare_digest(text.encode("utf-8", "surrogatepass"), self._token)

    def cookie(self, host: str) -> str:
        """Return the Set-Cookie header that begins a session with the server at `host`."""
        end = self._clock() // 1_000_000 + SECONDS
        return _header(host, f"{end}.{self._seal(end)}", SECONDS)

    def is_open(self, host: str, cookies: Iterable[str]) -> bool:
        """Whether the Cookie headers of a request to `host` have a session that has not ended."""
        for header in cookies:
            try:
                morsel = SimpleCookie(header).get(_name(host))
            except CookieError:
                continue
            end, _, seal = (morsel.value if morsel is not None else "").partition(".")
            if end.isascii() and end.isdigit() and len(end) <= 18 and hmac.compare_digest(seal, self._seal(int(end))):
                return int(end) > self._clock() // 1_000_000
        return False

    def _seal(self, end: int) -> str:
        return hmac.new(self._token, _PURPOSE + b"%d" % end, sha256).hexdigest()


def ended(host: str) -> str:
    """Return the Set-Cookie header that ends a session."""
    return _header(host, "", 0)


def _header(host: str, value: str, seconds: int) -> str:
    return f"{_name(host)}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict"


def _name(host: str) -> str:
    """The name of the cookie. Cookies do not distinguish ports, so that the name has to."""
    port = host.rpartition(":")[2]
    return f"hayase-session-{port if port.isascii() and port.isdigit() else '80'}"
