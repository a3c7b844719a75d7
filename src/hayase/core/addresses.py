"""Where a server listens: its address, the socket, and the token without which it listens at loopback addresses only."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from collections.abc import Iterator

from hayase.core.data_classes import dataclass
from hayase.core.errors import EnvironmentUnfit, HayaseError

__all__ = ["Address", "check_token", "host_name", "listening"]

LEAST_TOKEN = 16
"""The least number of characters of a token."""


@dataclass(frozen=True, slots=True)
class Address:
    """The host and port at which a server listens.

    >>> Address.from_text("127.0.0.1:8421"), str(Address.from_text("[::1]:8421"))
    (Address(host='127.0.0.1', port=8421), '[::1]:8421')
    """

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def from_text(cls, text: str) -> Address:
        """Parse HOST:PORT; port 0 takes any free one."""
        host, _, port = text.rpartition(":")
        name = host_name(text)
        if not host or name is None or not (port.isdigit() and int(port) < 65_536):
            raise HayaseError(f'"{text}" is not an address to serve at; write a host and a port, like 127.0.0.1:8421')
        return cls(name, int(port))


def host_name(host: str) -> str | None:
    """Return the name in a Host header, without the port; None if the header is malformed.

    >>> host_name("LocalHost:8421"), host_name("[::1]:80"), host_name("::1"), host_name("a:b")
    ('localhost', '::1', None, None)
    """
    name, colon, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not colon:
        name = host
    elif not (port.isascii() and port.isdigit()):
        return None
    if name.startswith("[") and name.endswith("]"):
        return name[1:-1]
    return None if ":" in name or not name else name.lower()


@contextlib.contextmanager
def listening(address: Address, is_secured: bool) -> Iterator[socket.socket]:
    """Listen at the address inside the block; an error says what to do. Only a server that is secured by tokens may be reached from
    other machines."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise HayaseError(f'there is no machine "{address.host}" to serve at ({error}); use 127.0.0.1') from error
    if not is_secured and not ipaddress.ip_address(str(place[0]).partition("%")[0]).is_loopback:
        raise HayaseError(
            f"{address} can be reached from other machines, and there is no token; give one (--token-file FILE, "
            f"--tokens FILE, the variable HAYASE_TOKEN, in Python token=...), or serve at 127.0.0.1"
        )
    with socket.socket(
        family, kind, protocol
    ) as listener:  # asyncio sends small answers at once if it knows the protocol
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            listener.bind(place)
            listener.listen(1024)
        except OSError as error:
            raise EnvironmentUnfit(
                f"{address} cannot be served at: {error.strerror}; stop what listens there, or choose another port "
                f"(--address {Address(address.host, 0)} takes any that is free)"
            ) from error
        listener.setblocking(False)
        yield listener


def check_token(token: str | None) -> None:
    """Raise if a token is too short, or cannot be written into a header."""
    if token is not None and not (
        len(token) >= LEAST_TOKEN and token.isascii() and token.isprintable() and " " not in token
    ):
        raise HayaseError(
            f"a token has at least {LEAST_TOKEN} letters, digits and signs, and no spaces; make one with "
            "`python -c 'import secrets; print(secrets.token_urlsafe())'`"
        )
