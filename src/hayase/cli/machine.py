"""The commands `hayase doctor` and `hayase bench`, which are about this machine."""

from __future__ import annotations

import ast
import inspect
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from hayase.cli.terminal import HomeOption, output
from hayase.core.errors import HayaseError, UnknownName

__all__ = ["bench", "doctor"]

RESULTS = Path("bench-results")


def doctor(home: HomeOption = None) -> None:
    """Check whether this machine has what Hayase needs, and say what to do.

    Example: [cyan]hayase doctor[/]
    """
    from hayase.console.listings import findings
    from hayase.engine.doctor import diagnose, examine

    results = diagnose(examine(home))
    console = output()
    console.print(findings(results))
    missing = [finding.what for finding in results if finding.state == "missing"]
    if missing:
        console.print(f"\n[bold red]missing: {', '.join(missing)}[/]", soft_wrap=True)
        raise typer.Exit(1)
    console.print("\n[green]everything is there[/]")


def bench(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The benchmark; without it, they are listed.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small run, to see that it works.")] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Run it end to end through a lane, for benchmarks that support this.")
    ] = False,
    json: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the results go; by default bench-results/NAME.json.", show_default=False
        ),
    ] = None,
) -> None:
    """Run a benchmark of the checkout and print its ratios.

    Example: [cyan]hayase bench lanes --quick[/]
    """
    directory = benchmarks_directory()
    known = {path.stem: about for path in sorted(directory.glob("*.py")) if (about := _about(path)) is not None}
    if name is None:
        for benchmark, about in known.items():
            typer.echo(f"{benchmark:<12} {about}")
        return
    if name not in known:
        raise UnknownName("benchmark", name, known)
    import orjson

    from hayase.console.listings import ratios

    target = json or RESULTS / f"{name}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    run = _module(directory / f"{name}.py").run
    options = {"spark": True} if spark else {}
    if spark and "spark" not in inspect.signature(run).parameters:
        raise HayaseError(f'the benchmark "{name}" has no end-to-end part of its own; leave --spark out')
    result: dict[str, Any] = run(quick=quick, out=target.parent, **options)
    target.write_bytes(
        orjson.dumps(result, option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    )
    output().print(ratios(result["ratios"]))
    typer.echo(f"\nwritten to {target}")


def benchmarks_directory() -> Path:
    """Return the directory of the benchmarks; they are in the checkout, not in the package."""
    for root in (Path(__file__).resolve().parents[3], Path.cwd()):
        if (root / "benchmarks").is_dir() and any((root / "benchmarks").glob("*.py")):
            return root / "benchmarks"
    raise HayaseError("there are no benchmarks here; they are part of the source: run this in a checkout of Hayase")


def _about(path: Path) -> str | None:
    """Return the first line of a benchmark's docstring; None for a module without a function `run`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if not any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
        return None
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _module(path: Path) -> ModuleType:
    """Import a benchmark as `benchmarks.NAME`, the name by which benchmarks and Spark's workers import each other."""
    import importlib

    root = str(path.parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return importlib.import_module(f"benchmarks.{path.stem}")
