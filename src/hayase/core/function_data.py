"""Functions of the user as plain data, in the form of a pipeline file, to and from their declarations.

The fields, their kinds and their defaults are those of `declaration_fields`. To declare a Python function, its module is
imported once, to find out whether the function exists and what its annotations say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hayase.core.declaration_fields import FUNCTION
from hayase.core.declarations import checked_name
from hayase.core.errors import DeclarationError, Mistake, suggestion
from hayase.core.function_declarations import FunctionDeclaration
from hayase.core.function_signatures import check_count, signature_of
from hayase.core.function_sources import FunctionSource
from hayase.core.schemas import arrow_schema, ddl

__all__ = ["declared_function", "function_data", "function_source", "recursion"]


def declared_function(
    name: str, data: Mapping[str, Any], directory: str | None = None, function: Callable[..., Any] | None = None
) -> FunctionDeclaration:
    """Return the complete declaration of a function from its plain data; its module lies in `directory`.

    `function` is the Python function itself, if it need not be loaded. A DeclarationError carries a mistake for everything that
    is wrong, with the field as its subject; a mistake in `sql` has its line and column.

    >>> declared_function("vat", {"sql": "price * (1 + rate)"}).arguments
    'price, rate'
    """
    try:
        return _declared(checked_name("function", name), data, directory, function)
    except DeclarationError as error:
        of = f'function "{name}": '
        raise DeclarationError(
            Mistake(of + mistake.message, mistake.hint, None, mistake.line, mistake.column, mistake.subject)
            for mistake in error.mistakes
        ) from error


def _declared(
    name: str, data: Mapping[str, Any], directory: str | None, function: Callable[..., Any] | None
) -> FunctionDeclaration:
    # slow to import, and a pipeline without functions may not need them
    from hayase.core.algebra import AGGREGATES, SYNONYMS
    from hayase.core.bags import BAG_FUNCTIONS, BAG_SYNONYMS
    from hayase.core.expressions import check_function_name

    mistakes = [
        Mistake(f'it has no "{field}"', suggestion(str(field), FUNCTION.names), subject=str(field))
        for field in data
        if field not in FUNCTION.names
    ]
    values, unreadable = FUNCTION.read(data, "")
    if mistakes or unreadable:
        raise DeclarationError([*mistakes, *unreadable])
    check_function_name(name)
    if any(name.lower() in names for names in (AGGREGATES, SYNONYMS, BAG_FUNCTIONS, BAG_SYNONYMS)):
        raise DeclarationError(f"there is an aggregate {name} already", "choose another name")
    if values.get("sql") is not None:
        return _with_names(FunctionDeclaration(name, **values))
    declared = FunctionDeclaration(name, directory=directory, **values)
    loaded = function or function_source(declared).load()
    signature = signature_of(loaded, declared.arguments, declared.returns, declared.takes)
    arguments = ddl(arrow_schema(signature.arguments)) if signature.arguments else ""
    values |= {"arguments": arguments, "returns": signature.returns, "takes": signature.takes}
    complete = FunctionDeclaration(name, directory=directory, **values)
    check_count(loaded, len(complete.schema))
    returns = ddl(arrow_schema(f"result {signature.returns}")).removeprefix("result ")
    return FunctionDeclaration(name, directory=directory, **{**values, "returns": returns})


def _with_names(declared: FunctionDeclaration) -> FunctionDeclaration:
    """Return an expression with the names of its arguments; check that it is one, and that it reads nothing else."""
    from hayase.core.expressions import parse_body

    sql = declared.sql or ""
    try:
        parsed = parse_body(sql)
        found = list(parsed.mistakes)
    except DeclarationError as error:
        raise DeclarationError(_in_sql(mistake) for mistake in error.mistakes) from error
    appearing = {reference.parts[0].lower(): reference for reference in parsed.columns}
    if declared.arguments is None:
        names = list(dict.fromkeys(reference.parts[0].lower() for reference in parsed.columns))
        declared = FunctionDeclaration(declared.name, sql=declared.sql, arguments=", ".join(names))
    known = {name.lower() for name in declared.names}
    for name, reference in appearing.items():
        if name not in known:
            line = sql.count("\n", 0, reference.start) + 1
            column = reference.start - sql.rfind("\n", 0, reference.start)
            hint = f"its arguments are {declared.arguments}; add it to them" if known else "it has no arguments"
            found.append(Mistake(f'"{reference.parts[0]}" is not an argument', hint, line=line, column=column))
    if found:
        raise DeclarationError(_in_sql(mistake) for mistake in found)
    return declared


def _in_sql(mistake: Mistake) -> Mistake:
    return Mistake(mistake.message, mistake.hint, None, mistake.line, mistake.column, "sql")


def function_data(declared: FunctionDeclaration) -> dict[str, Any]:
    """Return the plain data of a function, which `declared_function` takes; defaults are left out.

    >>> function_data(declared_function("vat", {"sql": "x * 1.1"}))
    {'sql': 'x * 1.1', 'arguments': 'x'}
    """
    return FUNCTION.write({name: getattr(declared, name) for name in FUNCTION.names})


def function_source(declared: FunctionDeclaration) -> FunctionSource:
    """Return where a Python function is, as it was declared."""
    place, _, attribute = (declared.function or "").rpartition(":")
    if place.endswith(".py"):
        return FunctionSource(f"{Path(declared.directory or '.', place).absolute()}:{attribute}", declared.directory)
    return FunctionSource(declared.function or "", declared.directory)


def recursion(functions: Iterable[FunctionDeclaration]) -> list[tuple[str, Mistake]]:
    """Return the name of every function that leads back to itself, and the mistake.

    >>> one, other = declared_function("one", {"sql": "other(x)"}), declared_function("other", {"sql": "1 + one(x)"})
    >>> [str(mistake) for _, mistake in recursion([one, other])][:1]
    ['the function one calls itself: one -> other -> one; SQL functions cannot be recursive, a Python function can']
    """
    calls = {declared.name.lower(): _called(declared) for declared in functions if declared.sql is not None}
    mistakes: list[tuple[str, Mistake]] = []
    for name in calls:
        paths, seen = [[name]], set[str]()
        while paths:
            path = paths.pop(0)
            for called in calls.get(path[-1], ()):
                if called == name:
                    message = f"the function {name} calls itself: {' -> '.join([*path, name])}"
                    hint = "SQL functions cannot be recursive, a Python function can"
                    mistakes.append((name, Mistake(message, hint, subject="sql")))
                    paths = []
                    break
                if called in calls and called not in seen:
                    seen.add(called)
                    paths.append([*path, called])
    return mistakes


def _called(declared: FunctionDeclaration) -> list[str]:
    """Return the names of the functions that an expression calls, in lower case."""
    from hayase.core.expressions import parse_body

    try:
        return sorted(parse_body(declared.sql or "").functions)
    except DeclarationError:  # reported where the function is declared
        return []
