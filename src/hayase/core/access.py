"""Who may ask a server, and how its connections are protected: a token, a file of tokens with roles, a certificate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hayase.core.data_classes import dataclass

if TYPE_CHECKING:
    from hayase.core.certificates import Certificate
    from hayase.core.tokens import Tokens

__all__ = ["OPEN", "Access"]


@dataclass(frozen=True, slots=True)
class Access:
    """`token` allows everything; the file `tokens` has others with names and roles; `certificate` and `key` are PEM files."""

    token: str | None = None
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_secured(self) -> bool:
        """Whether requests need a token."""
        return self.token is not None or self.tokens is not None

    def open_tokens(self) -> Tokens | None:
        """Return the tokens, None if there are none; HayaseError if they cannot be used."""
        from hayase.core.tokens import Tokens

        return Tokens(self.token, self.tokens) if self.is_secured else None

    def open_certificate(self) -> Certificate | None:
        """Return the certificate, None if there is none; HayaseError if it cannot be used."""
        if self.certificate is None:
            return None
        from hayase.core.certificates import Certificate

        return Certificate(self.certificate, self.key)

    def check(self) -> None:
        """Raise HayaseError if something of it cannot be used."""
        self.open_tokens()
        self.open_certificate()

    def as_json(self) -> dict[str, Any]:
        """Return what another process of this server gets over a pipe."""
        files = {"tokens": self.tokens, "certificate": self.certificate, "key": self.key}
        return {"token": self.token} | {name: None if file is None else str(file) for name, file in files.items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Access:
        """Return what `as_json` gave."""
        files = {name: None if data[name] is None else Path(data[name]) for name in ("tokens", "certificate", "key")}
        return cls(token=data["token"], **files)


OPEN = Access()
"""No token, no certificate: for loopback addresses only."""
