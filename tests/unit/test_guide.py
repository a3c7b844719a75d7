"""What the guide shows is true: programs run and give what they say, pipeline files and queries are sound and give the results
shown, commands and routes exist. How blocks are read, and what their marks mean, stands in `guide_pages`."""

from __future__ import annotations

import ast
import functools
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from starlette.routing import Route

from command_line import answer
from guide_pages import LANGUAGES, ROOT, Block, Page, pages
from hayase.cli import app
from hayase.core.clock import now_us
from hayase.core.pipeline_file import read_pipeline
from hayase.engine.definition.check import check_file
from hayase.engine.home import Home
from hayase.pipeline import Pipeline
from hayase.serving import Service, Status, create_app
from hayase.serving.metrics import exposition
from hayase.serving.server_figures import HttpFigures
from hayase.serving.service import CommittedStatus

PAGES = {each.name: each for each in pages()}


def having(*languages: str) -> list[str]:
    """The pages that have blocks of some language."""
    return [name for name, each in PAGES.items() if each.blocks(*languages)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the blocks of a page run: in this process, with their homes at a place of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(Pipeline, "run_until_idle", functools.partialmethod(Pipeline.run_until_idle, spark=False))
    return tmp_path


# ---------------------------------------------------------------------------------------------------- marks


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_of_a_kind_that_is_looked_at(name: str) -> None:
    for block in PAGES[name].all():
        assert block.language in LANGUAGES, f"{name}:{block.line}"
        assert not block.remark.startswith("not run") or len(block.remark) > len("not run: "), f"{name}:{block.line}"


def test_few_blocks_are_left_out() -> None:
    everything = [block for page in PAGES.values() for block in page.all()]
    assert sum(block.skipped for block in everything) < len(everything) / 10


# ---------------------------------------------------------------------------------------------------- programs


def programs(page: Page) -> list[str]:
    """The Python of a page, put together: a block that imports Hayase begins a new program."""
    found: list[str] = []
    for block in page.blocks("python"):
        if re.search(r"^(import hayase|from hayase\b)", block.text, re.MULTILINE) or not found:
            found.append(block.text)
        else:
            found[-1] += block.text
    return found


def run(text: str, said: dict[str, Any], path: str) -> None:
    """Run a program; an expression followed by a comment has that value."""
    lines = text.splitlines()
    for statement in ast.parse(text).body:
        assert statement.end_lineno is not None
        expected = lines[statement.end_lineno] if statement.end_lineno < len(lines) else ""
        if isinstance(statement, ast.Expr) and expected.startswith("# "):
            found = eval(compile(ast.Expression(statement.value), path, "eval"), said)
            assert found == ast.literal_eval(expected[2:]), ast.unparse(statement)
        else:
            exec(compile(ast.Module([statement], []), path, "exec"), said)


@pytest.mark.parametrize(
    ("name", "number"), [(name, number) for name in having("python") for number in range(len(programs(PAGES[name])))]
)
def test_programs(name: str, number: int, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of jobs and operations are found by the names of their modules, so each program is one."""
    page = PAGES[name]
    page.write_files(place)
    text = programs(page)[number]
    module = ModuleType(re.sub(r"\W", "_", f"guide_{name}_{number}"))
    path = place / f"{module.__name__}.py"
    path.write_text(text)
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    run(text, vars(module), str(path))


@pytest.mark.parametrize("example", ["access_monitor", "sensor_watch"])
def test_the_examples_of_jobs_are_shown_as_they_stand(example: str) -> None:
    text = (ROOT / "tests" / "examples" / f"{example}.py").read_text()
    assert text in [each.text for each in PAGES["docs/jobs.md"].blocks("python")]


# ---------------------------------------------------------------------------------------------------- pipeline files


def together(before: dict[str, Any], block: Block) -> dict[str, Any]:
    """The pipeline of a page up to a block: a block with a name begins one, others add to it or are its rules."""
    said = yaml.load(block.text, Loader=yaml.BaseLoader)
    if "pipeline" in said:
        return dict(said)
    if "source" in said:
        return {**before, "rules": said}
    parts = dict(before)
    for key, value in said.items():
        parts[key] = {**parts[key], **value} if isinstance(value, dict) and isinstance(parts.get(key), dict) else value
    return parts


def declared(place: Path, parts: dict[str, Any]) -> Path:
    path = place / "pipeline.yaml"
    path.write_text(yaml.safe_dump(parts, sort_keys=False))
    return path


@pytest.mark.parametrize("name", [each for each in PAGES if each != "README.md"])
def test_pipeline_files(name: str, place: Path) -> None:
    page = PAGES[name]
    page.write_files(place)
    parts: dict[str, Any] = {}
    for block in page.all():
        added = block.remark.startswith("adds to ")  # looked at where its commands are run
        if block.language != "yaml" or block.skipped or added or block.title not in (None, "pipeline.yaml"):
            continue
        parts = together(parts, block)
        try:
            check_file(read_pipeline(declared(place, parts)))
        except Exception as error:
            error.add_note(f"{name}:{block.line}")
            raise


# ---------------------------------------------------------------------------------------------------- queries


@pytest.mark.parametrize("name", having("sql"))
def test_queries(name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the files of a page, where it has some, with the results that it shows; else over its pipeline."""
    page = PAGES[name]
    page.write_files(place)
    files = [each for path in sorted(place.glob("*.csv")) for each in ("--stream", f"{path.stem}={path.name}")]
    parts: dict[str, Any] = {}
    for block in page.blocks("yaml", "sql"):
        if block.language == "yaml":
            parts = together(parts, block)
        elif parts:
            check_file(read_pipeline(declared(place, {**parts, "queries": {"shown": block.text}})))
        else:
            told = answer(capsys, monkeypatch, "query", block.text, *files, "--format", "table")
            assert (told.code, told.err) == (0, ""), f"{name}:{block.line}"
            if block.result is not None:
                assert stripped(told.out) == stripped(block.result), f"{name}:{block.line}\n{told.out}"


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


# ---------------------------------------------------------------------------------------------------- commands


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block, as their words."""
    lines = block.text.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    for line in lines if block.language in ("sh", "console") else ():
        words: list[str] = []
        lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
        lexer.whitespace_split = True
        for word in [*lexer, "&&"]:
            if set(word) <= set("&|;"):
                if words:
                    yield words
                words = []
            elif words[-1:] in (["<"], [">"]):
                words.pop()
            else:
                words.append(word)


def understood(words: list[str]) -> None:
    """That `hayase` takes a command with these options; it is not run."""
    from typer.main import get_command

    command: Any = get_command(app)
    rest = words[1:]
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)} names no command"
        if rest[0] in ("--version", "--help", "-h"):
            return
        assert rest[0] in command.commands, f"there is no command {rest[0]}: {' '.join(words)}"
        command, rest = command.commands[rest[0]], rest[1:]
    command.make_context(" ".join(words), [each for each in rest if each not in ("-h", "--help")])


def served(place: Path) -> list[re.Pattern[str]]:
    """The paths that a pipeline answers to."""
    routes = create_app(Service(Home(place / "served"), now_us, None, Status())).routes
    return [re.compile(re.sub(r"\{[^}]+\}", "[^?]+", each.path)) for each in routes if isinstance(each, Route)]


@pytest.mark.parametrize("name", having("sh", "console"))
def test_commands(name: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGES[name]
    page.write_files(place)
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    routes: list[re.Pattern[str]] = []
    for block in page.blocks("sh", "console", "yaml"):
        if block.remark.startswith("adds to "):
            with (place / block.remark.removeprefix("adds to ")).open("a") as file:
                file.write(block.text)
        for words in commands(block):
            where = f"{name}:{block.line}: {' '.join(words)}"
            if block.remark == "run" or not block.shown:
                carried_out(words, block, where, capsys, monkeypatch)
            elif words[0] == "hayase":
                understood(words)
            elif words[0] == "make":
                assert {each for each in words[1:] if "=" not in each} <= targets, where
            elif words[0] == "curl":
                routes = routes or served(place)
                for url in (each for each in words if each.startswith("http://127.0.0.1:8421")):
                    path = url.removeprefix("http://127.0.0.1:8421").partition("?")[0]
                    assert any(each.fullmatch(path) for each in routes), where


def carried_out(
    words: list[str],
    block: Block,
    where: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run a command; the last one of a block gives what the page shows behind it. Spark is left out."""
    if words[0] == "cd":
        monkeypatch.chdir(words[1])
        return
    assert words[0] == "hayase", where
    if words[1] == "run":
        understood(words)
        files = [each for each in words[2:] if not each.startswith("-")]
        Pipeline.from_file(files[0] if files else "pipeline.yaml").run_until_idle()
        return
    told = answer(capsys, monkeypatch, *words[1:])
    assert told.code == 0, f"{where}\n{told.err}"
    if block.result is not None and words == list(commands(block))[-1]:
        assert stripped(told.out) == stripped(block.result), f"{where}\n{told.out}"


def test_metrics() -> None:
    named = {each for page in PAGES.values() for each in re.findall(r"`(hayase_[a-z_]+)", page.path.read_text())}
    told = exposition(CommittedStatus(), 0, 0.0, {}, HttpFigures())
    assert named - set(re.findall(r"^# TYPE (\w+)", told, re.MULTILINE)) == set()


# ---------------------------------------------------------------------------------------------------- the README

FUNCTIONS = """
def parse(record):
    yield record["address"], 1


def alert(key, new_values, stored):
    yield key, stored is not None
"""


def test_the_readme_declares_what_can_be_run(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (ROOT / "README.md").read_text()
    tables, jobs, operations = (each.text for each in PAGES["README.md"].blocks("yaml"))
    events = {
        "schema": "time timestamp, uuid string, type string, user_id string, amount double",
        "time": "time",
        "id": "uuid",
    }
    logs = {"schema": "time timestamp, address string", "time": "time"}
    orders = {"schema": "time timestamp, user string, amount double", "time": "time"}
    head = yaml.safe_dump({"pipeline": "shop", "streams": {"events": events, "logs": logs, "orders": orders}})
    blocklist = "tables:\n  blocklist: {key: address, columns: {since: Register}}\n"
    (place / "access.py").write_text(FUNCTIONS)
    (place / "scoring.py").write_text("def score(records):\n    return {'user': records[0]['user'], 'score': 1.0}\n")
    (place / "pipeline.yaml").write_text(head + jobs + operations + tables.replace("tables:\n", blocklist, 1))
    stages = check_file(read_pipeline(place / "pipeline.yaml"))
    assert [stage.name for stage in stages] == ["traffic", "scores", "purchases"]
    (event,) = re.findall(r"hayase rules try pipeline.yaml --event '(.*?)'", text)
    told = answer(capsys, monkeypatch, "rules", "try", place / "pipeline.yaml", "--source", "events", "--event", event)
    assert told.code == 0
    assert "2026-01-31" in told.out
