"""The command `hayase serve`: what it says when it begins, and which options it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import Command
from hayase.console.stop_signals import Stopping


def test_it_serves_a_home_that_does_not_exist_yet(
    hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stopping, "wait", lambda self, seconds: True)  # Ctrl-C at once
    done = hayase_("serve", "--home", str(tmp_path / "shop"), "--address", "127.0.0.1:0")
    assert (done.code, done.err) == (0, "")
    assert f"serving {tmp_path / 'shop'} at http://127.0.0.1:" in done.out
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--tls-key", "key.pem"), 2, "give --tls-cert too"),
        (("--tls-cert", "no.pem"), 1, 'the certificate "no.pem" cannot be used'),
        (("--tokens", "no"), 1, 'the tokens cannot be read from "no"'),
        (("--address", "0.0.0.0:0"), 1, "can be reached from other machines"),
        (("--workers", "0"), 2, "--workers"),
    ],
)
def test_options_that_cannot_be_used(
    hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = hayase_("serve", "--home", "shop", *given)
    assert done.code == code
    assert said in " ".join(done.err.replace("│", " ").split())


def test_there_must_be_a_home_to_serve(hayase_: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "there is no pipeline.yaml here" in hayase_("serve").err
