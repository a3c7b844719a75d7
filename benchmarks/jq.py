"""jq programs: events per second in this process, beside libjq in its child process, for each kind of expression.

expressions  one typical program for each kind of expression that `hayase.tables.jq_syntax` reads, over events of a shop
programs     all programs in the rules of the docs, templates, demo, benchmarks and tests, and those in tests/corpus/jq;
             what does not compile is left out, and what only libjq can run is listed

Both sides get the same columns, as a batch of a stream has them, and return the same values, which is checked. Seconds are
CPU time, of this process and of libjq's. An expression is worth its code here if the ratio is large and rules have a use
for it.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.measure import alternate, cpu_seconds, median
from hayase.tables.jq import Events, Jq
from hayase.tables.jq_syntax import parsed

ROOT = Path(__file__).resolve().parents[1]
SEED = 16
EXPRESSIONS = {
    "path": ".user.id",
    "slice": ".time[:10]",
    "index": ".items[0]",
    "literal": "1",
    "comparison": '.type == "purchase"',
    "and, or": '.type == "purchase" and (.amount > 10 or .country == "jp")',
    "alternative": '.coupon // "none"',
    "arithmetic": ".amount * 2 + 1",
    "negation": "-.amount",
    "object": "{(.time[:10]): .amount}",
    "array": "[.country, .user_id]",
    "pipe": ".user | .id",
    "not": '.type == "view" | not',
    "if": 'if .type == "refund" then 0 - .amount else .amount end',
    "interpolation": '"\\(.country)/\\(.user_id)"',
    "tostring": "{(.number | tostring): .amount}",
}
"""A program for each kind of expression."""
_PROGRAM_KEYS = ("when", "condition", "key", "paramJq")


def run(*, quick: bool, out: Path) -> dict[str, Any]:
    """Measure and return plain data."""
    events, repetitions = (2_000, 3) if quick else (5_000, 5)
    columns = shop_events(events)
    with Jq() as jq:
        used = {
            place: sorted(program for program in listed if not jq.mistakes(program))
            for place, listed in (("rules", programs_in_rules()), ("corpus", programs_in_corpus()))
        }
    expressions = {name: rates(program, columns, repetitions) for name, program in EXPRESSIONS.items()}
    ratios = {f"events per CPU second, {name}: in process to libjq": _ratio(told) for name, told in expressions.items()}
    known: dict[str, dict[str, dict[str, float]]] = {}
    for place, listed in used.items():
        known[place] = {
            program: rates(program, columns, repetitions) for program in listed if parsed(program) is not None
        }
        ratios[f"events per CPU second, programs of the {place}: in process to libjq, median"] = median(
            [*map(_ratio, known[place].values())]
        )
        ratios[f"share of the programs of the {place} that run in process"] = len(known[place]) / len(listed)
    return {
        "events": events,
        "expressions": EXPRESSIONS,
        "events_per_cpu_second": expressions,
        "events_per_cpu_second_of_programs": known,
        "only_by_libjq": {
            place: [program for program in listed if program not in known[place]] for place, listed in used.items()
        },
        "ratios": ratios,
    }


def shop_events(count: int) -> dict[str, Sequence[Any]]:
    """Return the columns of a shop's events."""
    random = np.random.default_rng(SEED)
    users = [f"user{number}" for number in random.integers(0, 1000, count)]
    return {
        "time": [f"2026-01-{day:02d}T12:00:00Z" for day in random.integers(1, 32, count)],
        "type": random.choice(["purchase", "view", "refund"], count).tolist(),
        "user_id": users,
        "user": [{"id": user, "name": user.title()} for user in users],
        "country": random.choice(["jp", "de", "fr"], count).tolist(),
        "number": random.integers(0, 1_000_000, count).tolist(),
        "amount": (random.integers(1, 100_000, count) / 100).tolist(),
        "items": [["tea", "cup"]] * count,
        "coupon": [None] * count,
    }


def rates(program: str, columns: Mapping[str, Sequence[Any]], repetitions: int) -> dict[str, float]:
    """Return the events per CPU second of a program, in this process and by libjq."""
    count = len(columns["time"])
    with Jq() as ours, Jq(known_shapes=False) as libjq:
        evaluators = {"in process": ours, "libjq": libjq}
        first = [list(jq.evaluate(program, Events.of_columns(columns, count))) for jq in evaluators.values()]
        if first[0] != first[1]:
            raise AssertionError(f"in process {program} has other results than by libjq")
        times = {"in process": 20, "libjq": 1}  # CPU time of a child is counted in hundredths of a second
        seconds = alternate(
            repetitions,
            {name: partial(_seconds, jq, program, columns, times[name]) for name, jq in evaluators.items()},
        )
    return {name: count * len(took) / max(sum(took), 0.001) for name, took in seconds.items()}


def _seconds(jq: Jq, program: str, columns: Mapping[str, Sequence[Any]], times: int) -> float:
    """Return the CPU seconds of evaluating a program once, on average of some times."""
    before, count = cpu_seconds(), len(columns["time"])
    for _ in range(times):
        jq.evaluate(program, Events.of_columns(columns, count))
    return (cpu_seconds() - before) / times


def _ratio(told: Mapping[str, float]) -> float:
    return told["in process"] / told["libjq"]


# ---------------------------------------------------------------------------------------------------- programs


def programs_in_rules() -> set[str]:
    """Return the jq programs in the rules of the docs, templates, demo, benchmarks and tests."""
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    sources = [path for folder in ("src/hayase/demo", "benchmarks", "tests") for path in (ROOT / folder).glob("*.py")]
    texts = [path.read_text() for path in (ROOT / "src/hayase/templates").rglob("*.yaml")]
    for page in pages:
        texts += re.findall(r"^```yaml[^\n]*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    for path in (*pages, *sources):
        texts += re.findall(r'r?"""(.*?)"""', path.read_text(), re.DOTALL)
    return {program for text in texts if "source:" in text for program in _in_yaml(text)}


def programs_in_corpus() -> set[str]:
    """Return the programs that fuzzing keeps; many are not valid."""
    written = {path.read_bytes().decode(errors="replace") for path in (ROOT / "tests/corpus/jq").iterdir()}
    return {program for program in written if program.strip()}


def _in_yaml(text: str) -> Iterator[str]:
    try:
        for document in yaml.load_all(textwrap.dedent(text), yaml.BaseLoader):
            yield from _in_node(document)
    except yaml.YAMLError:
        return


def _in_node(node: Any) -> Iterator[str]:
    """Yield the programs in the rules of a YAML document: conditions, keys and values of columns."""
    if isinstance(node, list):
        for item in node:
            yield from _in_node(item)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name in _PROGRAM_KEYS:
                yield from value if isinstance(value, list) else [value]
            elif name == "columns" and "key" in node and isinstance(value, dict) and node["key"][:1] in (".", ["."]):
                for program in value.values():
                    yield from program.values() if isinstance(program, dict) else [program]
            else:
                yield from _in_node(value)
