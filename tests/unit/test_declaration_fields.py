"""The field tables agree with the dataclasses, the Python API, the commands and the reference page."""

from __future__ import annotations

import importlib.util
import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import typer.main

import hayase as hy
import hayase.cli
from guide_pages import ROOT
from hayase.core import declaration_fields as tables
from hayase.core.declaration_fields import FieldTable
from hayase.core.declarations import (
    FunctionDeclaration,
    GovernorDeclaration,
    JobDeclaration,
    OperationDeclaration,
    StepDeclaration,
    StreamDeclaration,
    TableDeclaration,
)
from hayase.serving.models import OperationAsked, OperationChanged

DECLARATIONS: list[tuple[FieldTable, type[Any]]] = [
    (tables.STREAM, StreamDeclaration),
    (tables.RETENTION, hy.Retention),
    (tables.FUNCTION, FunctionDeclaration),
    (tables.TABLE, TableDeclaration),
    (tables.JOB, JobDeclaration),
    (tables.STEP, StepDeclaration),
    (tables.OPERATION, OperationDeclaration),
    (tables.GOVERNOR, GovernorDeclaration),
]


@pytest.mark.parametrize(("table", "declaration"), DECLARATIONS)
def test_a_table_has_fields_of_its_dataclass(table: FieldTable, declaration: type[Any]) -> None:
    defaults = {each.name: each.default for each in fields(declaration)}
    assert set(table.names) <= set(defaults)
    for field in table:
        assert field.help.endswith("."), field.name
        if field.default is not None:
            assert field.written(field.value) == field.default, "a default stands in its canonical form"
        if not field.required and field.name not in ("window", "slide", "retention", "every"):
            assert defaults[field.name] == field.value, field.name


def test_the_python_api_has_the_fields_of_operations() -> None:
    parameters = inspect.signature(hy.Pipeline.operation).parameters
    assert set(tables.OPERATION.names) == set(parameters) - {"self", "writes"}
    assert set(get_type_hints(hy.OperationOptions)) == set(tables.OPERATION.names) - {"reads", "function"}
    for field in tables.OPERATION:
        default = parameters[field.name].default
        if not field.required:
            assert default is None or field.kind.read(default) == field.value, field.name


def test_the_python_api_has_the_fields_of_functions() -> None:
    parameters = inspect.signature(hy.Pipeline.function).parameters
    assert set(tables.FUNCTION.names) == set(parameters) - {"self", "name"}
    assert set(get_type_hints(hy.FunctionOptions)) == set(tables.FUNCTION.names) - {"function", "sql"}
    for field in tables.FUNCTION:
        default = parameters[field.name].default
        assert default is None or field.kind.read(default) == field.value, field.name


def test_the_python_api_passes_all_fields_of_operations_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passed: dict[str, Any] = {}

    def builder(function: str, writes: str | None, options: dict[str, Any], directory: str) -> OperationDeclaration:
        passed.update(options)
        return OperationDeclaration("f", ("s",), function)

    monkeypatch.setattr("hayase.operations.operation_builder.operation_of", builder)
    options: dict[str, Any] = {name: object() for name in get_type_hints(hy.OperationOptions)}
    hy.Pipeline("shop", home=tmp_path).operation("module:f", reads="s", **options)
    assert passed == {"reads": "s", **options}


def test_the_python_api_has_the_fields_of_streams_and_tables() -> None:
    for table, method in ((tables.STREAM, hy.Pipeline.stream), (tables.TABLE, hy.Pipeline.table)):
        parameters = inspect.signature(method).parameters
        assert set(table.names) <= set(parameters)
        assert "source" in inspect.signature(hy.Pipeline.stream).parameters
        for name in ("slack", "max_ahead", "idle_after", "fold_after", "horizon"):
            if name in table.names:
                assert parameters[name].default == table[name].value, name


def test_commands_and_routes_have_the_fields_of_operations() -> None:
    ops: Any = typer.main.get_command(hayase.cli.app)
    for name in ("add", "update"):
        options = {each.name for each in ops.commands["ops"].commands[name].params}
        assert set(tables.OPERATION.names) <= options
    for model in (OperationAsked, OperationChanged):
        assert set(tables.OPERATION.names) - {"files"} <= set(model.model_json_schema()["properties"])
    assert OperationAsked.model_json_schema()["required"] == ["name", "function", "reads"]


def test_the_reference_page_is_up_to_date() -> None:
    path = ROOT / "docs" / "theme" / "field_tables.py"
    spec = importlib.util.spec_from_file_location("field_tables", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text(encoding="utf-8")
    assert module.with_fields(page) == page, "run: python docs/theme/field_tables.py"


def test_public_names_are_documented_and_docs_import_nothing_else() -> None:
    assert sorted(hy.__all__) == hy.__all__
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    for name in hy.__all__:
        public = getattr(hy, name)
        listed = (
            rf"\b{name}\b" if not issubclass_(public, hy.HayaseError) and name != "Mistake" else r"hayase\.core\.errors"
        )
        assert re.search(listed, page), f"docs/reference.md does not have {name}"
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        assert not re.search(
            r"^\s*(from|import) hayase\.(?!connectors|testing|spark)", path.read_text(), re.MULTILINE
        ), path


def issubclass_(value: object, base: type) -> bool:
    return isinstance(value, type) and issubclass(value, base)


def test_a_trial_runs_as_its_parent_does() -> None:
    from hayase.testing import Trial, trial

    parent, child = inspect.signature(hy.Pipeline.run).parameters, inspect.signature(Trial.run).parameters
    assert set(parent) <= set(child)
    with trial() as t, pytest.raises(hy.HayaseError, match="takes no serve"):
        t.run(serve="127.0.0.1:0")
