"""Certificates for servers at 127.0.0.1: an authority of their own, and a certificate that it signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization

__all__ = ["Certificates", "write_certificates"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: what clients trust, the server's certificate with its chain, and its key (PKCS #8)."""

    authority: Path
    certificate: Path
    key: Path


def write_certificates(directory: Path) -> Certificates:
    """Make an authority and a certificate for localhost and 127.0.0.1, and write them into a directory."""
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    files = Certificates(directory / "authority.pem", directory / "certificate.pem", directory / "key.pem")
    authority.cert_pem.write_to_path(files.authority)
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    files.key.touch(mode=0o600)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
