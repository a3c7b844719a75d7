"""The log of the command line: warnings on standard error, more with -v, a rotated file, JSON lines."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from command_line import answer
from hayase.console.log_output import log_output, log_through
from hayase.core.errors import HayaseError
from hayase.core.log_files import LogFormat

LOG = logging.getLogger("hayase.some.module")


def write_messages() -> None:
    LOG.debug("a detail")
    LOG.info("a batch")
    LOG.warning("a lane was started again")


def messages(text: str) -> list[str]:
    return [line.partition("hayase.some.module: ")[2] for line in text.splitlines()]


@pytest.mark.parametrize(
    ("verbose", "on_stderr", "in_file"),
    [
        (False, ["a lane was started again"], ["a batch", "a lane was started again"]),
        (True, ["a batch", "a lane was started again"], ["a detail", "a batch", "a lane was started again"]),
    ],
)
def test_where_messages_go(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verbose: bool, on_stderr: list[str], in_file: list[str]
) -> None:
    file = tmp_path / "hayase.log"
    with log_output(verbose=verbose, file=file):
        write_messages()
    written = capsys.readouterr()
    assert written.out == ""
    assert messages(written.err) == on_stderr
    assert messages(file.read_text()) == in_file


def test_nothing_stays_configured(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("hayase")
    before = (list(logger.handlers), logger.level, logger.propagate)
    with log_output(), log_output(verbose=True):
        LOG.info("once")
    assert capsys.readouterr().err.count("once") == 1
    assert (list(logger.handlers), logger.level, logger.propagate) == before


def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "hayase.log"
    with log_output(file=file, form=LogFormat.JSON):
        LOG.info("%s records\nof orders", 3)
        try:
            raise ValueError("half a file")
        except ValueError:
            LOG.exception("早瀬")
    first, second = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert (first["level"], first["logger"], first["message"]) == ("INFO", LOG.name, "3 records\nof orders")
    assert first["time"].endswith("Z")
    assert "exception" not in first
    assert second["message"] == "早瀬"
    assert "ValueError: half a file" in second["exception"]


def test_the_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hayase.core.log_files.FILE_BYTES", 1_000)
    monkeypatch.setattr("hayase.core.log_files.FILE_COUNT", 2)
    file = tmp_path / "hayase.log"
    with log_output(file=file):
        for number in range(200):
            LOG.info("message %d", number)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["hayase.log", "hayase.log.1", "hayase.log.2"]
    assert all((tmp_path / name).stat().st_size <= 1_000 for name in files)
    assert "message 199" in file.read_text() + (tmp_path / "hayase.log.1").read_text()


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "hayase.log"
    with pytest.raises(HayaseError, match=r"cannot write the log file .*No such file or directory; name a file"):
        log_output(file=missing).__enter__()


def test_a_live_view_shows_the_messages_itself(capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[str] = []
    with log_output():
        with log_through(lines.append):
            LOG.warning("inside")
        LOG.warning("after")
    assert messages("\n".join(lines)) == ["inside"]
    assert messages(capsys.readouterr().err) == ["after"]


def test_the_log_of_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pipeline.yaml").write_text(
        "pipeline: shop\nstreams:\n  orders: {schema: 'time timestamp, item string', time: time}\n"
    )
    (tmp_path / "a.ndjson").write_text('{"time": "2026-01-01T00:00:00Z", "item": "tea"}\n')
    monkeypatch.chdir(tmp_path)
    done = answer(capsys, monkeypatch, "append", "orders", "a.ndjson", "--log-file", "x.log", "--log-format", "json")
    assert (done.code, done.err) == (0, "")
    (line,) = (tmp_path / "x.log").read_text().splitlines()
    assert json.loads(line)["message"] == "a.ndjson: appended 1 record to orders"
    done = answer(capsys, monkeypatch, "-v", "append", "orders", "a.ndjson")
    assert "INFO hayase.cli.append: a.ndjson: appended 1 record" in done.err
