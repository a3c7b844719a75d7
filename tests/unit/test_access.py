"""Tokens with roles in a file: for HTTP, for browsers, for SQL, and when the file changes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import hayase as hy
from hayase.core.access import Access
from hayase.core.tokens import LOOK, Tokens
from hayase.engine.home import Home
from hayase.serving import Status, serving
from relation_shop import purchases, relation_shop
from wire_client import WireClient, errors, rows, served

TOKENS = {
    "reports": ("read", "reports-token-of-24-chars"),
    "shop": ("append", "the-shop-token-of-24-chars"),
    "both": ("read,append", "both-roles-token-24-chars"),
    "admin": ("operate", "the-admin-token-24-chars"),
}


def write(path: Path, tokens: dict[str, tuple[str, str]] = TOKENS) -> Path:
    path.write_text("# tokens\n\n" + "".join(f"{name} {roles} {token}\n" for name, (roles, token) in tokens.items()))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    pipeline = relation_shop(tmp_path_factory.mktemp("access") / "home")
    pipeline.append("purchases", purchases(0, 5))
    pipeline.run_until_idle(spark=False)
    return pipeline.home


@contextlib.contextmanager
def asked(home: Home, access: Access) -> Iterator[httpx.Client]:
    with (
        serving(home, "127.0.0.1:0", status=Status("running"), access=access) as server,
        httpx.Client(base_url=server.url, trust_env=False) as http,
    ):
        yield http


def test_each_token_may_do_what_its_roles_say(home: Home, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "hayase.serving")
    requests = [
        ("GET", "/streams"),
        ("POST", "/streams/nothing"),
        ("POST", "/dead/drop"),
        ("DELETE", "/queries/nothing"),
    ]
    allowed = {"reports": {0}, "shop": {1}, "both": {0, 1}, "admin": {0, 1, 2, 3}}
    with asked(home, Access(tokens=write(tmp_path / "tokens"))) as http:
        for name, (_, token) in TOKENS.items():
            headers = {"Authorization": f"Bearer {token}"}
            answers = [http.request(method, path, headers=headers) for method, path in requests]
            assert {at for at, answer in enumerate(answers) if answer.status_code != 403} == allowed[name]
        refused = http.post("/dead/drop", headers={"Authorization": f"Bearer {TOKENS['both'][1]}"}).json()["detail"]
        assert refused == 'this needs the role operate, and the token "both" has only: append, read'
        assert http.get("/streams", headers={"Authorization": "Bearer another-token-24-characters"}).status_code == 401
        assert http.get("/streams").status_code == 401
    assert 'POST /dead/drop by the token "admin"' in caplog.text
    assert not any(token in caplog.text for _, token in TOKENS.values())


def test_the_session_of_a_browser_has_the_roles_of_its_token(home: Home, tmp_path: Path) -> None:
    with asked(home, Access(tokens=write(tmp_path / "tokens"))) as http:
        own = {"Origin": str(http.base_url).rstrip("/")}
        begun = http.post("/session", json={"token": TOKENS["reports"][1]}, headers=own)
        assert begun.status_code == 204
        assert http.get("/session").json() == {"token_required": True, "open": True}
        assert http.get("/streams").status_code == 200
        assert http.post("/dead/drop", json={}, headers=own).status_code == 403


def test_a_file_of_tokens_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    token = "a-token-of-24-characters"
    for text, message in (
        ("", "no tokens"),
        ("reports read", "has 2 parts"),
        (f"reports reed {token}", 'not a role; did you mean "read"'),
        (f"re/ports read {token}", "the name in line 1"),
        ("reports read short", "the token in line 1 .* at least 16"),
        (f"a read {token}\nb read {token}", "line 2 .* repeats"),
        (f"a read {token}\na read {token}x", "line 2 .* repeats"),
    ):
        file.write_text(text)
        file.chmod(0o600)
        with pytest.raises(hy.HayaseError, match=message) as caught:
            Tokens(file=file)
        assert token not in str(caught.value)
    file.chmod(0o640)
    with pytest.raises(hy.HayaseError, match=r"can be read by others.*chmod 600"):
        Tokens(file=file)
    with pytest.raises(hy.HayaseError, match="cannot be read"):
        Tokens(file=tmp_path / "nothing")


def test_tokens_are_read_again_when_the_file_changes(tmp_path: Path) -> None:
    now = 0.0
    file = write(tmp_path / "tokens")
    tokens = Tokens("a-single-token-of-it", file, lambda: now)
    write(file, {"reports": ("read", "another-token-of-reports")})
    assert tokens.holder(TOKENS["reports"][1]) is not None
    now += LOOK
    assert tokens.holder(TOKENS["reports"][1]) is None
    assert tokens.holder("another-token-of-reports").name == "reports"  # type: ignore[union-attr]
    assert tokens.holder("a-single-token-of-it").roles == {"read", "append", "operate"}  # type: ignore[union-attr]
    file.write_text("nonsense")
    now += LOOK
    assert tokens.holder("another-token-of-reports") is not None


def test_sql_asks_for_the_token_of_its_user(home: Home, tmp_path: Path) -> None:
    with served(home.path, access=Access(tokens=write(tmp_path / "tokens"))) as port:
        with contextlib.closing(WireClient(port, TOKENS["reports"][1], user="reports")) as client:
            assert rows(client.query("select 1")) == [[b"1"]]
        for user, token, code in (
            ("admin", TOKENS["reports"][1], "28P01"),
            ("nobody", TOKENS["reports"][1], "28P01"),
            ("shop", TOKENS["shop"][1], "42501"),
        ):
            with contextlib.closing(WireClient(port, token, user=user)) as client:
                assert errors(client.greeting)[0]["C"] == code
