"""The code of functions in queries: shipped to the home, loaded apart from other modules, versioned by what it depends on."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import answer
from hayase.core.function_data import declared_function
from hayase.core.shipped_modules import shipped_function
from hayase.engine.definition.definitions import latest
from hayase.engine.home import Home
from hayase.operations.shipped_code import ship_function
from hayase.pipeline import Pipeline
from hayase.streams.durable import without_syncs
from hayase.testing import at, trial

CODE = {
    "texts.py": "import words\nUNUSED = 1\n\n"
    "def slug(title: str) -> str:\n    from parts.ends import END\n    return words.low(title) + END\n",
    "words.py": "import json\n\ndef low(title):\n    return title.lower()\n",
    "parts/__init__.py": "",
    "parts/ends.py": "from .marks import MARK\nEND = MARK\n",
    "parts/marks.py": "MARK = '!'\n",
    "unrelated.py": "x = 1\n",
}  # fmt: skip


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    before = list(sys.path)
    for name, text in CODE.items():
        (tmp_path / "code" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "code" / name).write_text(text)
    yield tmp_path / "code"
    sys.path[:] = before
    for name in ("texts", "words", "parts", "parts.ends", "parts.marks"):
        sys.modules.pop(name, None)


def write(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_two_versions_of_a_function_are_loaded_side_by_side(code: Path, tmp_path: Path) -> None:
    declared = declared_function("slug", {"function": "texts:slug"}, str(code))
    first = ship_function(declared, tmp_path / "shipped")
    write(code / "words.py", "title.lower()", "title.upper()")
    write(code / "parts/marks.py", "!", "?")
    second = ship_function(declared, tmp_path / "shipped")
    assert (first.code, first.version) != (second.code, second.version)
    functions = [shipped_function(str(tmp_path / "shipped" / str(one.code)), "texts:slug") for one in (first, second)]
    assert [function("A b") for function in functions] == ["a b!", "A B?"]
    stored = tmp_path / "shipped" / str(first.code)
    assert sorted(path.name for path in stored.iterdir()) == ["parts", "texts.py", "words.py"], "and no bytecode"


@pytest.mark.parametrize(
    ("file", "old", "new", "same"),
    [
        ("texts.py", "import words", "import words  # the words", True),
        ("texts.py", "UNUSED = 1", "UNUSED = 2", True),
        ("words.py", "import json\n", "import json\n\n# nothing\n", True),
        ("texts.py", "+ END", "+ END + END", False),
        ("words.py", "lower()", "upper()", False),
        ("parts/marks.py", "!", "?", False),
    ],
)
def test_a_version_is_what_a_function_depends_on(
    code: Path, tmp_path: Path, file: str, old: str, new: str, same: bool
) -> None:
    declared = declared_function("slug", {"function": "texts:slug"}, str(code))
    before = ship_function(declared, tmp_path / "shipped")
    write(code / file, old, new)
    after = ship_function(declared, tmp_path / "shipped")
    assert before.code != after.code
    assert (before.version == after.version) == same


def test_data_files_are_shipped_with_a_function(code: Path, tmp_path: Path) -> None:
    (code / "names.json").write_text('{"a": "one"}')
    (code / "named.py").write_text(
        "import json\nfrom pathlib import Path\n\ndef named(k: str) -> str:\n"
        "    return json.loads((Path(__file__).parent / 'names.json').read_text())[k]\n"
    )
    with trial() as t:
        t.stream("s", "time timestamp, k string")
        t.declaration = t.declaration.__class__(
            t.declaration.name,
            t.declaration.streams,
            functions=(declared_function("named", {"function": "named:named", "files": "names.json"}, str(code)),),
        )
        t.query("q", "select named(k) as x from s")
        t.append("s", [{"time": at(0), "k": "a"}, {"time": at(1), "k": "b"}])
        t.finish("s")
        t.run()
        assert [row["x"] for row in t.rows("q")] == ["one"]
        assert "named raised KeyError: 'b' (named.py, line 5)" in t.dead_letters()[0]["reason"]
    sys.modules.pop("named", None)


PIPELINE: dict[str, Any] = {
    "pipeline": "shop",
    "home": "../home",
    "streams": {"s": {"schema": "time timestamp, k string, a bigint", "time": "time"}},
    "functions": {"slug": "texts:slug", "vat": {"sql": "x * 2"}},
    "queries": {
        "plain": "select slug(k) as x from s",
        "keyed": "select slug(k) as x, sum(a) as n from s group by slug(k)",
        "taxed": "select k, sum(vat(a)) as n from s group by k",
        "other": "select k, sum(a) as n from s group by k",
    },
}


@pytest.fixture
def shop(code: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Commands about a pipeline file beside the code."""
    monkeypatch.chdir(code)
    (code / "pipeline.yaml").write_text(json.dumps(PIPELINE))
    with without_syncs():
        yield lambda *args: answer(capsys, monkeypatch, *args)


def fates(shop: Any) -> dict[str, str]:
    found = shop("plan", "--json")
    plan = json.loads(found.out)
    assert found.code == (0 if plan["possible"] else 1), found.err
    return {change["name"]: change["fate"] for change in plan["changes"]}


def test_changed_code_changes_the_stages_that_call_it(shop: Any, code: Path) -> None:
    assert shop("apply").code == 0
    kept = dict.fromkeys(["s", "plain", "keyed", "taxed", "other"], "kept")
    assert fates(shop) == kept
    write(code / "texts.py", "UNUSED = 1", "UNUSED = 2")
    assert fates(shop) == kept
    write(code / "words.py", "lower()", "upper()")
    assert fates(shop) == {**kept, "plain": "changed in place", "keyed": "rebuilt"}
    refused = shop("apply")
    assert refused.code == 1
    assert 'stage "keyed" has changed' in refused.err
    assert shop("reset", "keyed", "--from", "earliest").code == 0
    assert fates(shop) == kept
    functions = {**PIPELINE["functions"], "vat": {"sql": "x * 3"}}
    (code / "pipeline.yaml").write_text(json.dumps({**PIPELINE, "functions": functions}))
    assert fates(shop) == {**kept, "taxed": "rebuilt"}


def test_the_code_that_runs_is_the_code_that_was_applied(shop: Any, code: Path) -> None:
    assert shop("apply").code == 0
    home = Home(code.parent / "home")
    definition = latest(home)
    assert definition is not None
    shipped = definition.declaration.functions[0]
    assert (home.code(str(shipped.code)) / "words.py").read_text() == CODE["words.py"]
    write(code / "words.py", "lower()", "upper()")
    p = Pipeline("shop", home.path)
    p.declaration = definition.declaration
    p.append("s", [{"time": "2026-01-01T00:00:00Z", "k": "A", "a": 1}])
    p.finish("s")
    p.run_until_idle(spark=False)
    assert [row["x"] for row in p.query("plain").rows()] == ["a!"]
    (home.code(str(shipped.code)) / "words.py").write_text("broken")
    assert "is damaged: it does not match its checksum" in shop("home", "verify", home.path).out
