"""The appenders of live rounds: what they say was acknowledged is what is in the log."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import hayase as hy
from campaign import judge, live
from campaign.appenders import ByCommand, Pace
from campaign.live import PROJECT
from hayase.streams import StreamLog


def test_an_appender_whose_program_ends_again_and_again_appends_what_was_released_and_no_more(tmp_path: Path) -> None:
    project = shutil.copytree(PROJECT, tmp_path / "project")
    environment = live.LiveRound(1, [], tmp_path).environment
    left = 3

    class Dying(ByCommand):
        def start_process(self, command: list[str], **more: object) -> subprocess.Popen[str]:
            nonlocal left
            process = super().start_process(command, **more)
            if left:
                left -= 1
                process.kill()
                process.wait()
            return process

    pace = Pace()
    appender = Dying(1, "cmd", "visits", project, environment, pace)
    pace.let_go(2)
    appender.start()
    deadline = time.monotonic() + live.PATIENCE
    while not appender.done and not appender.problems and time.monotonic() < deadline:
        time.sleep(0.05)
    pace.ended.set()
    appender.kill()
    appender.join()
    assert not appender.problems
    assert len(appender.acknowledged) == 2
    pipeline = hy.Pipeline.from_file(project / "pipeline.yaml")
    StreamLog.ensure(pipeline.home.path, pipeline.declaration.stream("orders"))
    assert judge.check_log(pipeline, appender.acknowledged) == []
