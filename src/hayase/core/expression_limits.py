"""Limits on the size of one value of an expression, so that no expression can use up the memory of the machine.

DuckDB's memory limit does not count the texts and lists that a function builds. Functions whose arguments decide the size of
their result, or of what they need to compute it, are therefore replaced by macros of the same name (`MACROS`), which check
the size first. A record for which a value would be larger than `LARGEST` fails, as with any other error of an expression, and
becomes a dead letter. Where a macro cannot check the size, the expression is refused when it is planned (`unbounded_growth`):
formats with long widths, and growth in lambdas.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["LARGEST", "MACROS", "MEMORY", "TOO_LARGE", "unbounded_growth"]

LARGEST = 16 << 20
"""The largest value that an expression may give, in bytes; an element of a list counts 8 bytes."""
MEMORY = "1GiB"
"""DuckDB's memory limit while it evaluates the expressions of one batch."""
TOO_LARGE = "a value would be larger than 16 MiB"

_ELEMENTS = LARGEST // 8
_WIDEST = 1000


def _once(names: str, body: str) -> str:
    """Return a macro's body in which every argument is evaluated once and named `once.NAME`."""
    fields = ", ".join(f"'{name}': {name}" for name in names)
    return f"list_transform([{{{fields}}}], lambda once: {body})[1]"


def _bounded(value: str, size: str, most: int) -> str:
    """Return SQL for the value that raises if the size is too large. (TRY does not allow DuckDB's `error`, but a failing cast.)"""
    raised = f"CAST(concat('{TOO_LARGE}, at ', {size}) AS BIGINT)"
    return f"CASE WHEN ({size}) > {most} THEN {raised} ELSE {value} END"


def _guarded(result: str, size: str, most: int) -> str:
    """Return SQL that computes the result only if the size is small enough, and raises otherwise."""
    return f"CASE WHEN ({_bounded('0', size, most)}) = 0 THEN {result} END"


_BYTES = "strlen(CAST(once.v AS VARCHAR))"
_DAYS = "date_diff('day', once.a, once.b)"
_STEP = "greatest(abs(epoch(once.s)), 0.000001)"
_PRODUCT = "(strlen(once.v) + 1.0) * (strlen(once.t) + 1)"


def _repeated() -> str:
    count = _bounded("once.n", f"once.n::DOUBLE * greatest({_BYTES}, 1)", LARGEST)
    return "repeat(v, n) AS " + _once("vn", f"system.main.repeat(once.v, {count})")


def _series(name: str) -> str:
    own = f"system.main.{name}"
    count = _bounded("once.b", "once.b", _ELEMENTS)
    length = _bounded("once.b", "once.b::DOUBLE - once.a", _ELEMENTS)
    steps = _bounded("once.b", "(once.b::DOUBLE - once.a) / nullif(once.s, 0)", _ELEMENTS)
    times = _once("abs", _guarded(f"{own}(once.a, once.b, once.s)", f"abs({_DAYS}) * 86400.0 / {_STEP}", _ELEMENTS))
    forms = (
        ("b BIGINT", _once("b", f"{own}({count})")),
        ("a BIGINT, b BIGINT", _once("ab", f"{own}(once.a, {length})")),
        ("a BIGINT, b BIGINT, s BIGINT", _once("abs", f"{own}(once.a, {steps}, once.s)")),
        ("a TIMESTAMP, b TIMESTAMP, s INTERVAL", times),
        ("a TIMESTAMPTZ, b TIMESTAMPTZ, s INTERVAL", times),
    )
    return name + ", ".join(f"({parameters}) AS {body}" for parameters, body in forms)


def _padded(name: str) -> str:
    width = _bounded("once.n", "once.n", LARGEST)
    return f"{name}(v, n, f) AS " + _once("vnf", f"system.main.{name}(once.v, CAST({width} AS INTEGER), once.f)")


def _resized(name: str) -> str:
    own, size = f"system.main.{name}", _bounded("once.n", "once.n", _ELEMENTS)
    short, long = _once("vn", f"{own}(once.v, {size})"), _once("vnf", f"{own}(once.v, {size}, once.f)")
    return f"{name}(v, n) AS {short}, (v, n, f) AS {long}"


def _replaced() -> Iterator[str]:
    """The result is at most as long as the product of text and replacement, however many matches there are."""
    most = 4 * LARGEST
    plain = _once("vft", _guarded("system.main.replace(once.v, once.f, once.t)", _PRODUCT, most))
    regexp = _once("vft", _guarded("system.main.regexp_replace(once.v, once.f, once.t, o)", _PRODUCT, most))
    yield f"replace(v, f, t) AS {plain}"
    yield f"regexp_replace(v, f, t) AS system.main.regexp_replace(v, f, t), (v, f, t, o) AS {regexp}"


def _compared(name: str) -> str:
    """An edit distance takes time, and `damerau_levenshtein` memory too, in proportion to the product of the lengths."""
    return f"{name}(v, t) AS " + _once("vt", _guarded(f"system.main.{name}(once.v, once.t)", _PRODUCT, LARGEST))


_DEFINITIONS = (
    _repeated(),
    *(_padded(name) for name in ("lpad", "rpad")),
    *(_series(name) for name in ("range", "generate_series")),
    *(_resized(name) for name in ("list_resize", "array_resize")),
    "bitstring(v, n) AS "
    + _once("vn", f"system.main.bitstring(once.v, CAST({_bounded('once.n', 'once.n', LARGEST)} AS INTEGER))"),
    *_replaced(),
    *(_compared(name) for name in ("levenshtein", "editdist3", "damerau_levenshtein")),
)
MACROS = {definition.partition("(")[0]: definition for definition in _DEFINITIONS}
"""Functions with a size limit by name, as `CREATE TEMP MACRO` takes them."""

# ---------------------------------------------------------------------------------------------------- planning

_FORMATS = frozenset({"format", "printf"})
_REDUCING = frozenset({"list_reduce", "array_reduce", "reduce"})
_GENERATING = frozenset({
    "repeat", "lpad", "rpad", "range", "generate_series", "list_resize", "array_resize", "bitstring",
})  # fmt: skip
_JOINING = frozenset({
    "||", "concat", "concat_ws", "list_concat", "list_cat", "array_concat", "array_cat", "replace", "regexp_replace",
})  # fmt: skip
_Problem = tuple[dict[str, Any], str, str]


def unbounded_growth(function: str, node: dict[str, Any], parameters: frozenset[str]) -> Iterator[_Problem]:
    """Yield what in a call of a function could grow without limit: the node, the message and the hint."""
    arguments = [argument.get("expression", argument) for argument in node["arguments"]]
    if function in _FORMATS and arguments:
        text = (arguments[0].get("literal") or {}).get("text")
        if text is None:
            yield node, f"{function}() with a computed format is not supported", "write the format as a text in quotes"
        elif re.search(r"\d{4}|\*|\{[^{}]*\{", str(text)):
            hint = f"write a width of at most {_WIDEST - 1} as a number"
            yield node, f"{function}() with a width like that is not supported", hint
    if function in _GENERATING and parameters:
        hint = "compute it outside of the lambda"
        yield node, f"{function}() inside a lambda is not supported: the result could grow without bound", hint
    if function in _REDUCING and len(arguments) > 1 and arguments[1].get("class") == "LAMBDA":
        first = next(iter(_names(arguments[1]["lhs"])), None)
        if first is not None and _joins_twice(arguments[1]["expr"], first):
            hint = "name the first parameter once; array_to_string joins texts"
            yield (
                node,
                f"{function}() that joins its result with itself is not supported: it doubles at each step",
                hint,
            )


def _joins_twice(node: Any, name: str) -> bool:
    """Return whether a function that concatenates values names a parameter twice."""
    if isinstance(node, list):
        return any(_joins_twice(child, name) for child in node)
    if not isinstance(node, dict):
        return False
    joins = str(node.get("function_name", "")).lower() in _JOINING
    if joins and sum(other == name for other in _names(node["arguments"])) > 1:
        return True
    return any(_joins_twice(child, name) for child in node.values())


def _names(node: Any) -> Sequence[str]:
    """Return the column names in a tree, in lower case."""
    if isinstance(node, list):
        return [name for child in node for name in _names(child)]
    if not isinstance(node, dict):
        return []
    if node.get("class") == "COLUMN_REF":
        return [str(node["column_names"][0]).lower()]
    return [name for child in node.values() for name in _names(child)]
