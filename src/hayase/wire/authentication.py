"""SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows the token, without sending it.

The salt and the number of rounds are those of the server's lifetime, so no password is stored. Channel binding is not offered.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

from hayase.core.errors import HayaseError
from hayase.core.tokens import SINGLE, Tokens

__all__ = ["Refused", "Scram", "Scrams"]

_ROUNDS = 4096
_MOST_KEPT = 1000


class Refused(HayaseError):
    """A client has not proved that it knows the token."""


class Scram:
    """What the server keeps of the token; `exchange` begins the proof of one client."""

    def __init__(self, token: str):
        self._salt = secrets.token_bytes(16)
        salted = hashlib.pbkdf2_hmac("sha256", token.encode(), self._salt, _ROUNDS)
        client = hmac.digest(salted, b"Client Key", "sha256")
        self._stored = hashlib.sha256(client).digest()
        self._server = hmac.digest(salted, b"Server Key", "sha256")

    def exchange(self, first: str) -> tuple[str, Exchange]:
        """Return the answer to the first message of a client, and what its second one is checked against."""
        channel, separator, bare = first.partition(",,")
        if not separator:  # an authorisation identity stands between the commas
            head, _, rest = first.partition(",")
            _, _, bare = rest.partition(",")
            channel = head
        if channel not in ("n", "y"):
            raise Refused("this server does not bind channels")
        fields = _fields(bare)
        if not fields.get("r"):
            raise Refused("the first message has no nonce")
        nonce = fields["r"] + secrets.token_urlsafe(18)
        answer = f"r={nonce},s={base64.b64encode(self._salt).decode()},i={_ROUNDS}"
        return answer, Exchange(self._stored, self._server, nonce, first[: len(first) - len(bare)], f"{bare},{answer}")


class Scrams:
    """What the server keeps of all tokens. With a file of tokens, the user of a client is the name of its token; a single token is
    that of all other users."""

    def __init__(self, tokens: Tokens):
        self._tokens = tokens
        self._kept: dict[str, Scram] = {}
        self._unknown = Scram(secrets.token_urlsafe())

    def of(self, user: str) -> tuple[Scram, frozenset[str]]:
        """Return what proves that a client is a user, and the roles of its token; nobody can prove to be an unknown user."""
        known = (self._tokens.named(user) if self._tokens.has_names else None) or self._tokens.named(SINGLE)
        if known is None:
            return self._unknown, frozenset()
        token, holder = known
        if token not in self._kept:
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[token] = Scram(token)
        return self._kept[token], holder.roles


class Exchange:
    """The proof of one client, half done."""

    def __init__(self, stored: bytes, server: bytes, nonce: str, header: str, said: str):
        self._stored, self._server, self._nonce, self._header, self._said = stored, server, nonce, header, said

    def finish(self, final: str) -> str:
        """Return the last message of the server; Refused unless the client knows the token."""
        fields = _fields(final)
        without_proof = final.rpartition(",p=")[0]
        try:
            proof = base64.b64decode(fields.get("p", ""), validate=True)
            binding = base64.b64decode(fields.get("c", ""), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError):
            raise Refused("the proof is not base64") from None
        said = f"{self._said},{without_proof}".encode()
        signature = hmac.digest(self._stored, said, "sha256")
        key = bytes(a ^ b for a, b in zip(proof, signature)) if len(proof) == len(signature) else b""
        is_known = hmac.compare_digest(hashlib.sha256(key).digest(), self._stored)
        if not is_known or fields.get("r") != self._nonce or binding != self._header:
            raise Refused("the token is not the one of this server")
        return f"v={base64.b64encode(hmac.digest(self._server, said, 'sha256')).decode()}"


def _fields(text: str) -> dict[str, str]:
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}
