"""Every command, group, argument and option says what it is, with an example; and the shell completes names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

import hayase.cli
from command_line import answer
from hayase.cli import completion
from hayase.cli.templates import TEMPLATES, template

Command = Any
ROOT: Command = typer.main.get_command(hayase.cli.app)


def tree(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    """All commands and groups below a command, and itself, each with its words."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from tree(each, (*path, name))


COMMANDS = {" ".join(path): command for path, command in tree(ROOT)}
LEAVES = [name for name, command in COMMANDS.items() if not hasattr(command, "commands")]


def test_the_walk_finds_the_commands() -> None:
    assert {"init", "append", "streams tail", "tables get", "rules try", "groups load"} < set(LEAVES)


@pytest.mark.parametrize("name", COMMANDS)
def test_what_it_says_of_itself(name: str) -> None:
    command = COMMANDS[name]
    said = command.help or ""
    assert said.strip(), f"`hayase {name}` has no help text"
    assert said.strip()[0].isupper()
    shown = said + (command.epilog or "")
    assert re.search(rf"\[cyan\]hayase {name}\b", shown), f"the help of `hayase {name}` has no example"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_has_a_help_text(name: str) -> None:
    silent = [each.name for each in COMMANDS[name].params if not (getattr(each, "help", None) or "").strip()]
    assert silent == []


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_use_options_that_there_are(name: str) -> None:
    for example in re.findall(r"\[cyan\](hayase .*?)\[/\]", f"{COMMANDS[name].help} {COMMANDS[name].epilog}"):
        for step in re.split(r"\s*(?:&&|\|)\s*", example):
            words = [word for word in step.split() if word != "hayase"] if step.startswith("hayase") else []
            of = max((each for each in LEAVES if words[: len(each.split())] == each.split()), default=None, key=len)
            known = {option for each in COMMANDS[of].params for option in each.opts} if of else {"--help"}
            assert {word for word in words if re.fullmatch(r"--[a-z-]+|-[a-z]", word)} <= known, example


def test_help_shows_the_example_as_it_is_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = answer(capsys, monkeypatch, "tables", "get", "-h")
    assert done.code == 0
    assert "Example: hayase tables get purchases taro --as-of" in done.out


class TestCompletion:
    @pytest.fixture(autouse=True)
    def shop(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        for name, text in template("all").items():
            (tmp_path / name).write_text(text)
        monkeypatch.chdir(tmp_path)
        return tmp_path

    def context(self, **params: object) -> typer.Context:
        context = typer.Context(ROOT)
        context.params.update(params)
        return context

    def test_names_of_the_file(self) -> None:
        context = self.context()
        assert completion.declared_streams(context, "") == ["orders", "logs"]
        assert completion.streams(context, "s") == ["spree", "suspicious", "scores"]
        assert completion.tables(context, "p") == ["purchases"]
        assert completion.queries(context, "") == ["spree", "revenue", "suspicious"]
        assert completion.operations(context, "") == ["scores"]
        assert completion.groups(context, "l") == ["logs"]
        assert completion.stages(context, "") == [
            "spree", "revenue", "suspicious", "alerts", "scores", "purchases", "blocklist",
        ]  # fmt: skip
        assert completion.templates("") == list(TEMPLATES.items())

    def test_a_file_and_a_home_that_are_given(self, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (shop / "sub").mkdir()
        monkeypatch.chdir(shop / "sub")
        assert completion.tables(self.context(), "") == []
        assert completion.tables(self.context(pipeline=Path("../pipeline.yaml")), "") == ["purchases", "blocklist"]
        kept = shop / "elsewhere"
        (kept / "streams" / "_dead").mkdir(parents=True)
        (kept / "streams" / "_dead" / "stream.json").touch()
        (kept / "definitions").mkdir()
        declared = '{"declaration": {"streams": [{"name": "clicks"}], "operations": [{"name": "added"}]}}'
        (kept / "definitions" / "0000000001.json").write_text('hayase definition 0\n{"declaration": {}}')
        (kept / "definitions" / "0000000002.json").write_text(f"hayase definition 0\n{declared}")
        assert completion.streams(self.context(home=kept), "") == ["clicks", "added", "_dead"]
        assert completion.operations(self.context(home=kept), "") == ["added"]

    @pytest.mark.parametrize("text", ["", "- a", "a: [", "\x00", "streams: 5", "streams: [a]", "home: [x]"])
    def test_a_broken_file_completes_nothing(self, shop: Path, text: str) -> None:
        (shop / "pipeline.yaml").write_text(text)
        assert completion.streams(self.context(), "") == []

    def test_a_broken_home_completes_what_the_file_says(self, shop: Path) -> None:
        (shop / "home" / "definitions").mkdir(parents=True)
        (shop / "home" / "definitions" / "0000000001.json").write_text("{")
        assert completion.queries(self.context(), "r") == ["revenue"]

    @pytest.mark.parametrize(
        ("line", "offered"),
        [
            ("append o", ["orders"]),
            ("streams tail su", ["suspicious"]),
            ("show p", ["purchases"]),
            ("show dead", ["dead_letters"]),
            ("tables get --pipeline pipeline.yaml b", ["blocklist"]),
            ("groups load blocklist --query re", ["revenue"]),
            ("explain pipeline.yaml sp", ["spree"]),
            ("init --template op", ["operations"]),
        ],
    )
    def test_the_shell_asks(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]
    ) -> None:
        monkeypatch.setenv("_HAYASE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", f"hayase {line}")
        monkeypatch.setenv("COMP_CWORD", str(len(line.split())))
        assert answer(capsys, monkeypatch).out.split() == offered

    def test_it_loads_little(self, shop: Path) -> None:
        script = (
            "import sys\nsys.argv[0] = 'hayase'\nfrom hayase.cli import main\ntry:\n    main()\n"
            "finally:\n    print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)\n"
        )
        asked = {"_HAYASE_COMPLETE": "complete_bash", "COMP_WORDS": "hayase streams tail ", "COMP_CWORD": "3"}
        done = subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, **asked}, cwd=shop, capture_output=True, text=True,
            check=True, timeout=600,
        )  # fmt: skip
        assert not set(done.stderr.split()) & {"pyspark", "duckdb", "numba", "pandas", "pyarrow", "sqlglot"}
        assert "spree" in done.stdout.split()
