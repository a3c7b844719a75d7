"""Code of operations, shipped: what is copied, what is not, and that a copy is whole or not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hayase.core.declarations import OperationDeclaration
from hayase.core.errors import DeclarationError
from hayase.core.function_sources import FunctionSource
from hayase.core.operation_data import declared_operation, operation_data
from hayase.operations import shipped_code
from hayase.operations.shipped_code import ship
from hayase.streams import durable


def written(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def operation(function: str, directory: Path | None) -> OperationDeclaration:
    return OperationDeclaration("scores", ("orders",), function, None if directory is None else str(directory))


def copied(root: Path) -> list[str]:
    return sorted(each.relative_to(root).as_posix() for each in root.rglob("*") if each.is_file())


def answer(root: Path, function: str) -> str:
    """What the shipped function gives, in a process that has nothing else."""
    module, _, attribute = function.partition(":")
    program = f"import sys; sys.path.insert(0, {str(root)!r}); import {module}; print({module}.{attribute}([]))"
    done = subprocess.run([sys.executable, "-I", "-B", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def code(tmp_path: Path) -> Path:
    return tmp_path / "code"


SHOP = {
    "scoring.py": """
import json
import numpy
import shop.prices
from shop import rates
from shop.deep.under import factor as by

def score(records):
    import late
    return shop.prices.PRICE * rates.RATE * by() + late.MORE
""",
    "shop/__init__.py": "from . import names\n",
    "shop/names.py": "from .deep import *\n",
    "shop/prices.py": "from .rates import RATE\nPRICE = 10\n",
    "shop/rates.py": "RATE = 2\n",
    "shop/unused.py": "1 / 0\n",
    "shop/deep/__init__.py": "",
    "shop/deep/under.py": "from .. import prices, rates\n\ndef factor():\n    return 3\n",
    "late.py": "try:\n    import not_there_at_all\nexcept ImportError:\n    MORE = 7\n",
    "shop/data.csv": "1,2\n",
    "other.py": "",
}


class TestModules:
    def test_a_module_goes_with_the_local_ones_that_it_imports(self, tmp_path: Path, code: Path) -> None:
        source = written(
            tmp_path / "source", {**SHOP, "shop/deep/under.py": SHOP["shop/deep/under.py"].replace("...shop", "..")}
        )
        shipped = ship(operation("scoring:score", source), code)
        assert (shipped.function, shipped.directory) == ("scoring:score", None)
        assert shipped.code is not None
        assert copied(code / shipped.code) == [
            "late.py", "scoring.py", "shop/__init__.py", "shop/deep/__init__.py", "shop/deep/under.py", "shop/names.py",
            "shop/prices.py", "shop/rates.py",
        ]  # fmt: skip
        for each in source.rglob("*.py"):
            each.write_text("raise SystemExit")
        assert answer(code / shipped.code, shipped.function) == "67"

    def test_a_module_in_a_package(self, tmp_path: Path, code: Path) -> None:
        source = written(tmp_path / "source", SHOP)
        shipped = ship(operation("shop.prices:PRICE", source), code)
        assert copied(code / str(shipped.code)) == [
            "shop/__init__.py", "shop/deep/__init__.py", "shop/deep/under.py", "shop/names.py", "shop/prices.py", "shop/rates.py",
        ]  # fmt: skip

    def test_a_package_without_init(self, tmp_path: Path, code: Path) -> None:
        source = written(
            tmp_path,
            {"source/bare/one.py": "from bare import two\ndef f(r): return two.X", "source/bare/two.py": "X = 4"},
        )
        shipped = ship(operation("bare.one:f", source / "source"), code)
        assert copied(code / str(shipped.code)) == ["bare/one.py", "bare/two.py"]

    def test_the_name_says_the_content(self, tmp_path: Path, code: Path) -> None:
        one = written(tmp_path / "one", {"m.py": "def f(r): return 1", "data.txt": "a"})
        two = written(tmp_path / "two", {"m.py": "def f(r): return 1", "n.py": ""})
        first = ship(operation("m:f", one), code)
        assert ship(operation("m:f", two), code) == first == ship(first, code)
        assert len(list(code.iterdir())) == 1
        written(two, {"m.py": "def f(r): return 2"})
        assert ship(operation("m:f", two), code).code != first.code

    def test_what_is_installed_is_not_copied_and_told_by_its_text(self, code: Path) -> None:
        names = ("json:dumps", "numpy.linalg:norm", "hayase.core.times:duration", "sys:exit")
        codes = {str(ship(operation(each, None), code).code) for each in names}
        assert len(codes) == 4
        assert not code.exists()

    def test_a_module_on_the_path_that_is_not_installed(
        self, tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path / "lib", {"ours_alone.py": "def f(r): return 1"})
        monkeypatch.syspath_prepend(str(tmp_path / "lib"))
        assert copied(code / str(ship(operation("ours_alone:f", tmp_path), code).code)) == ["ours_alone.py"]

    @pytest.mark.parametrize(
        ("files", "function", "told"),
        [
            ({}, "nowhere:f", r'operation "scores": there is no module nowhere in .*; it must be installed'),
            ({"m.py": "def f(:"}, "m:f", r"m\.py, line 1 is not valid Python: .*; correct it"),
            ({"m.py": "import n", "n.py": "x = = 1"}, "m:f", r"n\.py, line 1 is not valid Python"),
            ({}, "gone.py:f", r"gone\.py cannot be read"),
            ({"s.py": "def score(r): ..."}, "s.py:scor", r's\.py has no "scor"; did you mean "score"\?'),
        ],
    )
    def test_what_cannot_be_shipped(
        self, tmp_path: Path, code: Path, files: dict[str, str], function: str, told: str
    ) -> None:
        with pytest.raises(DeclarationError, match=told):
            ship(operation(function, written(tmp_path, files)), code)
        assert not code.exists()

    def test_too_much(self, tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(shipped_code, "MOST_BYTES", 2 << 20)
        written(tmp_path, {"m.py": "import n", "n.py": f"X = '{'x' * (2 << 20)}'"})
        with pytest.raises(DeclarationError, match="more than 2 MB together; install what is large"):
            ship(operation("m:f", tmp_path), code)


class TestScripts:
    def test_only_what_the_function_needs(self, tmp_path: Path, code: Path) -> None:
        text = """
import sys
import rates
from pathlib import Path
raise SystemExit
RATE = rates.RATE
@pipeline.operation(reads="orders")
def score(records):
    return RATE + 1
"""
        source = written(tmp_path / "source", {"my shop.py": text, "rates.py": "RATE = 5"})
        shipped = ship(operation("my shop.py:score", source), code)
        assert shipped.function == "my_shop:score"
        assert copied(code / str(shipped.code)) == ["my_shop.py", "rates.py"]
        assert answer(code / str(shipped.code), shipped.function) == "6"
        again = ship(operation(f"{source}/my shop.py:score", None), code)
        assert again == shipped

    def test_a_script_is_not_taken_for_another_module(self, tmp_path: Path, code: Path) -> None:
        source = written(
            tmp_path, {"json.py": "def f(r): return 1", "shop.py": "import rates\ndef f(r): return rates.R"}
        )
        assert ship(operation("json.py:f", source), code).function == "json_script:f"
        written(tmp_path, {"rates.py": "import shop\nR = 1"})
        assert ship(operation("shop.py:f", source), code).function == "shop_script:f"


def test_a_copy_that_was_not_finished_is_made_again(
    tmp_path: Path, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = written(tmp_path, {"m.py": "import n\ndef f(r): return 1", "n.py": ""})

    def stop(step: str) -> None:
        if step == "before rename":
            raise KeyboardInterrupt

    monkeypatch.setattr(durable, "reached", stop)
    with pytest.raises(KeyboardInterrupt):
        ship(operation("m:f", source), code)
    assert [each.suffix for each in code.iterdir()] == [".tmp"]
    monkeypatch.undo()
    shipped = ship(operation("m:f", source), code)
    assert [each.name for each in code.iterdir()] == [shipped.code]


def test_listed_data_files_are_shipped_beside_the_module(tmp_path: Path, code: Path) -> None:
    place = tmp_path / "place"
    (place / "models").mkdir(parents=True)
    (place / "scoring.py").write_text(
        "from pathlib import Path\ndef score(records):\n"
        "    return (Path(__file__).parent / 'models' / 'a.txt').read_text()\n"
    )
    (place / "models" / "a.txt").write_text("the model")
    (place / "models" / "b.bin").write_bytes(b"no text")
    for function in ("scoring:score", "scoring.py:score"):
        given = {"reads": "q", "function": function, "files": ["models/*.txt"]}
        made = ship(declared_operation("score", given, str(place)), code)
        root = code / str(made.code)
        assert copied(root) == ["models/a.txt", "scoring.py"]
        assert answer(root, made.function) == "the model"
    with pytest.raises(DeclarationError, match=r'no file in .* matches "models/\*.json"'):
        ship(declared_operation("score", {**given, "files": "models/*.json"}, str(place)), code)
    with pytest.raises(DeclarationError, match="names no file of operation"):
        declared_operation("score", {**given, "files": "../secret"}, str(place))
    assert operation_data(declared_operation("score", given))["files"] == "models/*.txt"


def test_a_module_that_is_called_like_one_of_pythons_is_the_users_own(tmp_path: Path, code: Path) -> None:
    (tmp_path / "signal.py").write_text("def score(records):\n    return 'mine'\n")
    assert FunctionSource("signal:score", str(tmp_path)).load()([]) == "mine"
    assert sys.modules["signal"].SIGINT
    (tmp_path / "scoring.py").write_text("import signal\ndef score(records):\n    return signal.score(records)\n")
    with pytest.raises(DeclarationError, match="has the name of a module of Python's own; rename it"):
        ship(declared_operation("score", {"reads": "q", "function": "scoring:score"}, str(tmp_path)), code)


def test_a_job_and_an_operation_in_a_module_that_is_called_like_one_of_pythons(tmp_path: Path) -> None:
    """Loading the job puts its directory on the path; the process that runs operations must not import from there."""
    (tmp_path / "signal.py").write_text(
        "def mapped(record):\n    return {'n': 5}\ndef scored(records):\n    return [{'w': 7} for _ in records]\n"
    )
    (tmp_path / "pipeline.yaml").write_text(
        'pipeline: shop\nstreams: {s: {schema: "ts bigint", time: ts, time_unit: ms}}\n'
        'jobs: {j: {reads: s, steps: [{map: "signal:mapped", schema: "n int"}]}}\n'
        'operations: {o: {reads: s, function: "signal:scored", schema: "w int"}}\n'
    )
    program = (
        "import hayase\np = hayase.Pipeline.from_file('pipeline.yaml')\np.append('s', [{'ts': 1}])\n"
        "p.run_until_idle(spark=False)\nprint(p.results('o').table()['w'], p.dead_letters())\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "7" in done.stdout
