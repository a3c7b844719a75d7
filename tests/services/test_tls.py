"""Certificates of servers: HTTP by TLS, and certificates that are renewed while they are in use."""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path

import httpx
import pytest
import trustme

import hayase as hy
from hayase.core.access import Access
from hayase.core.certificates import LOOK, Certificate
from hayase.serving import Status, serving
from relation_shop import relation_shop


def test_http_by_tls(tmp_path: Path) -> None:
    pipeline = relation_shop(tmp_path / "home")
    pipeline.apply()
    authority, file = trustme.CA(), tmp_path / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
    trusted = ssl.create_default_context()
    authority.configure_trust(trusted)
    access = Access("a-token-of-24-characters", certificate=file)
    with (
        serving(pipeline.home, "127.0.0.1:0", status=Status("running"), access=access) as server,
        httpx.Client(base_url=server.url, trust_env=False, verify=trusted) as http,
    ):
        assert server.url.startswith("https://")
        http.headers["Authorization"] = f"Bearer {access.token}"
        assert http.get("/streams").json() == {"streams": ["purchases"]}
        begun = http.post("/session", json={"token": access.token}, headers={"Origin": server.url})
        assert begun.headers["set-cookie"].endswith("; Secure")


def test_a_new_certificate_is_used_by_the_next_connection(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    now, file = 0.0, tmp_path / "server.pem"
    first, second = trustme.CA(), trustme.CA()
    first.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    certificate = Certificate(file, monotonic=lambda: now)
    assert shakes_hands(certificate, first)
    second.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    assert shakes_hands(certificate, first)
    now += LOOK
    assert shakes_hands(certificate, second)
    file.write_text("nonsense")
    now += LOOK
    assert shakes_hands(certificate, second)
    assert "stays in use" in caplog.text
    with pytest.raises(hy.HayaseError, match="cannot be used"):
        Certificate(file)


def shakes_hands(certificate: Certificate, authority: trustme.CA) -> bool:
    """Whether a client that trusts an authority accepts the certificate."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(to_client, to_server, server_hostname="localhost")
    server = certificate.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return client.version() is not None
