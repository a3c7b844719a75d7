"""The appenders of a round: by Python, by the command line and over HTTP, each going on until all it has is acknowledged.

Every append carries a producer and a number. One that was not answered is sent again, whoever died meanwhile; now and then
one that was answered is, too. `acknowledged` is what the log must have.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path

import httpx

from campaign.traffic import Chunk, chunk

__all__ = ["Appender", "ByCommand", "ByHttp", "ByPython", "Pace"]

HAYASE = [sys.executable, "-c", "from hayase.cli import main; main()"]
PAUSE = 0.1


class Pace:
    """How many chunks each appender may send by now; the round lets more go before each fault."""

    def __init__(self) -> None:
        self.limit = 0
        self.ended = threading.Event()

    def let_go(self, chunks: int) -> None:
        """Allow so many more."""
        self.limit += chunks


class Appender(ABC, threading.Thread):
    """Sends the chunks of one producer to one stream, one after the other."""

    def __init__(self, seed: int, name: str, stream: str, project: Path, environment: dict[str, str], pace: Pace):
        super().__init__(name=name, daemon=True)
        self.seed, self.stream, self.project, self.environment, self.pace = seed, stream, project, environment, pace
        self.acknowledged: list[Chunk] = []
        self.problems: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.dice = random.Random(f"{seed} {name}")

    def run(self) -> None:
        """Send until the round is over; what goes wrong here is told in the verdict."""
        try:
            while not self.pace.ended.is_set():
                if len(self.acknowledged) < self.pace.limit:
                    following = chunk(self.seed, self.name, len(self.acknowledged) + 1, self.stream)
                    if self.send(following):
                        self.acknowledged.append(following)
                        continue
                self.pace.ended.wait(PAUSE)
        except Exception as error:
            self.problems.append(f"appender {self.name}: {type(error).__name__}: {error}")
        finally:
            self.close()

    @property
    def done(self) -> bool:
        """Whether all that may be sent by now has been acknowledged."""
        return len(self.acknowledged) >= self.pace.limit

    @abstractmethod
    def send(self, following: Chunk) -> bool:
        """Send a chunk once; whether it was acknowledged."""

    def kill(self) -> None:
        """End the process, if there is one; the thread notices."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGCONT)
            self.process.kill()

    def close(self) -> None:
        """End the process, if there is one, and let go of it."""
        self.kill()
        if self.process is not None:
            self.process.wait()
            self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout) if self.process is not None else ():
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def start_process(self, command: list[str], **more: object) -> subprocess.Popen[str]:
        """Start the process that appends."""
        self._close_pipes()
        self.process = subprocess.Popen(  # type: ignore[call-overload]
            command, cwd=self.project, env=self.environment, text=True, bufsize=1, start_new_session=True,
            stdout=subprocess.PIPE, **{"stderr": subprocess.DEVNULL, **more},
        )  # fmt: skip
        return self.process


class ByPython(Appender):
    """A program that uses `Pipeline.append`; it is told numbers, and answers each with where the records went."""

    def send(self, following: Chunk) -> bool:
        process = self.process
        if process is None or process.poll() is not None:
            command = [sys.executable, "-m", "campaign.appenders", str(self.seed), self.name, self.stream]
            process = self.start_process(command, stdin=subprocess.PIPE)
        again = self.acknowledged[-1:] if self.dice.random() < 0.2 else []
        return all(self._sent(process, each, repeated=each in again) for each in (*again, following))

    def _sent(self, process: subprocess.Popen[str], each: Chunk, *, repeated: bool) -> bool:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{each.number}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            return False
        if not answer.endswith("\n"):  # it ended, or was ended; its next life sends the same again
            return False
        said = json.loads(answer)
        if "error" in said:
            return False
        if repeated and not said["repeated"]:
            self.problems.append(f"{self.name}: chunk {each.number} was acknowledged and then appended again")
        if (said["accepted"], said["refused"]) != (len(each.good), len(each.refused)):
            self.problems.append(f"{self.name}: chunk {each.number} was answered with {said}")
        return True


class ByCommand(Appender):
    """`hayase append --follow`: a file is renamed into a folder, and the command says when it has been appended; in its log
    (`--verbose`) also that an earlier life of it had appended the file."""

    def __init__(self, seed: int, name: str, stream: str, project: Path, environment: dict[str, str], pace: Pace):
        super().__init__(seed, name, stream, project, environment, pace)
        self.folder = project / f"files of {name}"
        self.folder.mkdir()

    def send(self, following: Chunk) -> bool:
        path = self.folder / f"{following.number:06d}.ndjson"
        if not path.exists():
            path.with_suffix(".part").write_bytes(following.lines())
            path.with_suffix(".part").rename(path)
        process = self.process
        if process is None or process.poll() is not None:
            command = [*HAYASE, "append", self.stream, "--follow", self.folder.name, "--poll", "0.05", "--verbose"]
            process = self.start_process(command, stderr=subprocess.STDOUT)
        assert process.stdout is not None
        return any(f"{path.name}: appended" in line for line in process.stdout)  # none: it ended


class ByHttp(Appender):
    """POST /streams/NAME, as NDJSON or JSON, with a producer's number or with an Idempotency-Key for each."""

    url = ""
    unanswered = False
    """Whether the next chunk was sent before and may have been appended: an older number is a conflict then."""

    def send(self, following: Chunk) -> bool:
        if self.dice.random() < 0.2 and self.acknowledged and not self.unanswered:
            again = self._posted(self.acknowledged[-1])
            if again is not None and not again["repeated"]:
                self.problems.append(f"{self.name}: an acknowledged chunk was appended again: {again}")
        said = self._posted(following)
        self.unanswered = said is None
        if said is None:
            time.sleep(PAUSE)
            return False
        if (said["accepted"], said["refused"]) != (len(following.good), len(following.refused)):
            self.problems.append(f"{self.name}: chunk {following.number} was answered with {said}")
        return True

    def _posted(self, each: Chunk) -> dict[str, object] | None:
        headers = {"Hayase-Producer": self.name, "Hayase-Sequence": str(each.number)}
        if self.seed % 2:
            headers = {"Idempotency-Key": f"{self.name} {each.number}"}
        as_json = each.number % 2 == 0
        body = json.dumps(each.records).encode() if as_json else each.lines()
        headers["Content-Type"] = "application/json" if as_json else "application/x-ndjson"
        try:
            with httpx.Client(base_url=self.url, trust_env=False, timeout=60) as http:
                answer = http.post(f"/streams/{self.stream}", content=body, headers=headers)
        except httpx.HTTPError:
            return None
        if answer.status_code != 200:
            if answer.status_code < 500 and answer.status_code not in (408, 429):
                self.problems.append(f"{self.name}: {answer.status_code} {answer.text[:300]}")
            return None
        said: dict[str, object] = answer.json()
        return said


def main(seed: int, name: str, stream: str) -> None:
    """Append the chunks whose numbers come in by lines; what became of each goes out."""
    import hayase as hy
    from hayase.core.errors import HayaseError

    pipeline = hy.Pipeline.from_file("pipeline.yaml")
    for line in sys.stdin:
        each = chunk(seed, name, int(line), stream)
        try:
            done = pipeline.append(stream, list(each.records), producer=name, sequence=each.number)
            said = {"accepted": done.accepted, "refused": done.refused, "repeated": done.repeated}
        except HayaseError as error:
            said = {"error": str(error)}
        os.write(1, f"{json.dumps(said)}\n".encode())


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
