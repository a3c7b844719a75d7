"""docs/measurements.md: every figure of the five papers beside ours, from the JSON that `hayase bench NAME` writes.

    python -m benchmarks.measurements            write the page from bench-results/*.json, whatever there is
    python -m benchmarks.measurements --measure  run every benchmark first (an hour or two); this is `make bench`

A benchmark that was run this way has its machine, commit and time in its JSON. Of one that was run by hand the time of the
file is taken, and the last commit before it. Where there is no JSON, the section of the page that is there stays.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

ROOT = Path(__file__).resolve().parents[1]
NAMES = (
    "streams",
    "input_files",
    "lanes",
    "latency",
    "start",
    "lifetimes",
    "windows",
    "peers",
    "nexmark",
    "linear_road",
    "tables",
    "jq",
    "mapreduce",
    "governor",
    "operations",
    "connectors",
    "growth",
    "ask",
)
MEASURED = "measured"
MI = 2**20

Data = Mapping[str, Any]


# ---------------------------------------------------------------------------------------------------- measuring


def measure(names: Iterable[str], results: Path) -> None:
    """Run benchmarks, each in a process of its own, and note where and when."""
    for name in names:
        path = results / f"{name}.json"
        program = "from hayase.cli import program; program()"
        subprocess.run([sys.executable, "-c", program, "bench", name, "--json", str(path)], cwd=ROOT, check=True)
        noted = orjson.loads(path.read_bytes()) | {MEASURED: circumstances()}
        path.write_bytes(orjson.dumps(noted, option=orjson.OPT_INDENT_2))


def circumstances() -> dict[str, str]:
    """The machine, the commit and the time, as the page names them."""
    commit = _git("rev-parse", "--short=10", "HEAD") or "unknown"
    changed = " with changes" if _git("status", "--porcelain", "--untracked-files=no") else ""
    return {"machine": machine(), "commit": commit + changed, "at": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"}


def machine() -> str:
    """Processor, cores, memory, system, and what we stand on."""
    from importlib.metadata import version

    import psutil

    processor = platform.processor() or platform.machine()
    told = Path("/proc/cpuinfo")
    if told.exists():
        models = re.findall(r"^model name\s*: (.+)$", told.read_text(), re.MULTILINE)
        processor = models[0] if models else processor
    memory = f"{psutil.virtual_memory().total / 2**30:.0f} GiB"
    return (
        f"{processor}, {os.cpu_count()} cores, {memory}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, Spark {version('pyspark')}"
    )


def _git(*words: str) -> str:
    try:
        said = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


# ---------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page: the benchmark it is from, and what it makes of its data."""

    title: str
    name: str
    text: Callable[[Data], Iterable[str]]


def number(value: Any) -> str:
    """Three figures, and thousands apart; whole numbers whole.

    >>> number(2334892.6), number(0.95773), number(24.917), number(None)
    ('2,330,000', '0.958', '24.9', 'none')
    """
    if value is None:
        return "none"
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    if value == 0 or value != value or value in (float("inf"), float("-inf")):
        return f"{value:g}"
    digits = max(0, 2 - len(str(int(abs(value)))) + 1) if abs(value) >= 1 else 2 - _exponent(value)
    rounded = round(value, digits) if abs(value) < 1000 else round(value, 3 - len(str(int(abs(value)))))
    return f"{rounded:,.0f}" if abs(value) >= 100 else f"{rounded:.{max(digits, 0)}f}"


def _exponent(value: float) -> int:
    return int(f"{value:e}".partition("e")[2])


def span(values: Iterable[float]) -> str:
    """The least and the greatest."""
    listed = sorted(values)
    return f"{number(listed[0])} to {number(listed[-1])}" if listed else "none"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Markdown of a table."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    shown = ([each if isinstance(each, str) else number(each) for each in row] for row in rows)
    return [*lines, *(f"| {' | '.join(row)} |" for row in shown), ""]


def beside(rows: Iterable[tuple[str, str, Any]]) -> list[str]:
    """What a paper says, and what we have measured."""
    return table(("", "the paper", "ours"), rows)


SIZES = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
_LIFETIMES = {
    "selection": ("1.4 to 2.0 up to 10,000 rows, 1.0 at 1,000,000", "steady, no figure"),
    "projection": ("1.4 to 2.0 up to 10,000 rows, 1.0 at 1,000,000", "steady, no figure"),
    "union": ("1.4 to 2.0 up to 10,000 rows, 1.0 at 1,000,000", "steady, no figure"),
    "join": ("about 1.0", "1.6 to 2.0"),
    "except": ("about 1.0", "1.2 to 1.4"),
    "average": ("about 1.0", "1.2 to 1.4"),
}


def lifetimes(data: Data) -> Iterable[str]:
    """Paper 1, figure 4."""
    rates = data["tuples_per_second"]

    def ratio(query: str, kind: str) -> str:
        direct, negative = rates[query][f"DT, {kind}"], rates[query][f"NT, {kind}"]
        small = [direct[size] / negative[size] for size in negative if int(size) <= 10_000]
        largest = max(negative, key=int)
        return f"{span(small)}; {number(direct[largest] / negative[largest])} at {int(largest):,}"

    yield "DT (a tuple carries its lifetime) to NT (two tuples for each), tuples/s, by window size:"
    yield ""
    yield from table(
        ("query", "rows: the paper", "rows: ours", "time: the paper", "time: ours"),
        [
            (query, _LIFETIMES[query][0], ratio(query, "rows"), _LIFETIMES[query][1], ratio(query, "time"))
            for query in rates
            if query in _LIFETIMES
        ],
    )
    largest = {query: told["memory_bytes"] / 2**30 for query, told in data.get("largest", {}).items()}
    insertion = [each for each in rates if "DT, insertion, time" in rates[each]]
    fallen = [
        rates[each]["DT, time"]["1000"] / rates[each]["DT, insertion, time"]["1000"]
        for each in insertion
        if "1000" in rates[each]["DT, time"]
    ]
    yield from beside(
        [
            (
                "a window of 10,000,000 rows",
                "out of memory",
                f"runs, in {span(largest.values())} GiB" if largest else "not measured",
            ),
            ("insertion sort instead of the deferred one", "collapses from 100 tuples on", _times(fallen)),
        ]
    )
    yield "Figure 4, throughput to that of NT at 10 rows:"
    yield ""
    sizes = [str(each) for each in SIZES]
    rows = [
        (query, method, *(told[size] / methods["NT, rows"]["10"] if size in told else "" for size in sizes))
        for query, methods in rates.items()
        for method, told in methods.items()
    ]
    yield from table(("query", "method, windows", *(f"{each:,}" for each in SIZES)), rows)


def _times(ratios: Sequence[float]) -> str:
    return f"{span(ratios)} times slower at 1,000 tuples" if ratios else "not measured"


def windows(data: Data) -> Iterable[str]:
    """Paper 2, figure 3."""
    figure = data["figure_3_ns_per_tuple"]
    shared, mixed = figure["shared"], data["mixed_ns_per_tuple"]
    first, last = min(shared, key=int), max(shared, key=int)
    yield from beside(
        [
            (
                f"W = {{10, 13, 19, 40}}, slide 2: time per tuple at {last} times the lengths, to {first} times",
                "flat",
                shared[last] / shared[first],
            ),
            ("lengths far apart: {1, 7, 1,000,000} to {10, 13, 19, 40}", "open problem", _quotient(mixed)),
            ("the method it is compared with", "MCQA: grows with length / slide", "see below"),
        ]
    )
    yield "Figure 3, nanoseconds per tuple for all four windows, sum and max:"
    yield ""
    yield from table(
        ("method", *(f"W × {each}" for each in shared)),
        [(method, *(told.get(each, "") for each in shared)) for method, told in figure.items()],
    )


def _quotient(mixed: Data) -> float:
    one, other = mixed.values()
    return float(other / one)


def governor(data: Data) -> Iterable[str]:
    """Paper 3, figures 5 and 8."""
    yield (
        f"Simulated, with a service time of {number(data['service_seconds'])} s and an empty poll of "
        f"{number(data['empty_poll_seconds'])} s."
    )
    yield ""
    plain, rest = data["figure_8"], data["figure_8_informed"]
    least = min(plain, key=float)
    yield from beside(
        [
            ("figure 5: workers needed, round-robin, 50 to 200 queues", "grow much", "see below"),
            ("the same, ALS", "follow the load", "see below"),
            ("figure 8: empty polls without restraint", "98.8%", _percent(plain[least]["empty_share"])),
            ("the same, with our gate that sees the ends of the logs", "polls blindly", _percent(rest["empty_share"])),
        ]
    )
    yield "Figure 5, workers needed (of 50) against the records a second of the hot queue:"
    yield ""
    for queues, policies in data["figure_5_workers"].items():
        hot = list(next(iter(policies.values())))
        rows = [
            (name, *("> 50" if told[each] is None else told[each] for each in hot)) for name, told in policies.items()
        ]
        yield from table((f"{queues} queues", *hot), rows)
    yield "Figure 8, against u:"
    yield ""
    yield from table(
        ("u", *plain, "informed"),
        [
            ("empty polls", *(_percent(each["empty_share"]) for each in plain.values()), _percent(rest["empty_share"])),
            ("records in a queue", *(each["queue_length"] for each in plain.values()), rest["queue_length"]),
            (
                "seconds to completion",
                *(each["completion_seconds"] for each in plain.values()),
                rest["completion_seconds"],
            ),
        ],
    )
    if "spark" in data:
        yield "On Spark, at a size that fits this machine:"
        yield ""
        yield from table(("", "ours"), [pair for name, each in data["spark"].items() for pair in _leaves(name, each)])


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def tables(data: Data) -> Iterable[str]:
    """Paper 4, which has no figures of speed."""
    rates, peers = data["events_per_second"], data["redis_events_per_second"]
    yield "The paper gives no measurements. Its example (figure 8: a counter, a register and a map by day) is what we measure:"
    yield ""
    reads = data["reads_while_writing"]
    yield from beside(
        [
            *((f"events/s from stream to readable table, {name}", "", rate) for name, rate in rates.items()),
            *((f"the same in Redis, {name}", "", rate) for name, rate in peers.items()),
            *((f"bytes: {name}", "", size) for name, size in data["bytes"].items()),
            (
                f"reads/s over HTTP beside {number(reads['events_per_second_meanwhile'])} events/s; p50, p99 in ms",
                "",
                f"{number(reads['reads_per_second'])}; {number(1e3 * reads['p50_seconds'])}, "
                f"{number(1e3 * reads['p99_seconds'])}",
            ),
            ("composite keys; more data types", "left open", "built"),
        ]
    )
    yield from table(
        ("updates since the snapshot", *data["read_seconds_by_payloads_since_the_snapshot"]),
        [("reading a key, ms", *(1e3 * each for each in data["read_seconds_by_payloads_since_the_snapshot"].values()))],
    )
    yield from table(
        ("keys in the table", *(f"{int(each):,}" for each in data["batch_seconds_by_keys"])),
        [("a batch of 10,000 events, s", *data["batch_seconds_by_keys"].values())],
    )


def mapreduce(data: Data) -> Iterable[str]:
    """Paper 5, figure 5."""
    writer, merges = data["writer"], data["merges"]
    steady = {key: value for key, value in writer.items() if key.startswith("slowest second to median second, map")}
    written = {key: value for key, value in writer.items() if key.startswith("written records/s, map")}
    seconds = writer["per_second"]
    peak = max(each for name, runs in seconds.items() if name.startswith("map") for run in runs for each in run)
    most = max(merges, key=int)
    yield from beside(
        [
            ("figure 5: lines of 300 bytes, written beside a map, Mi/s, the best second", "0.14", peak / MI),
            (
                "the same, average",
                "0.095 at every interval",
                span(each / MI for each in written.values()),
            ),
            ("the slowest second of the writer, to the median", "0: blocked at each firing", span(steady.values())),
            (
                "parse and count, Mi records/s",
                "not given",
                max(
                    data["records_per_second"]["batch function"][each]
                    for each in ("appended first", "from batch to batch")
                )
                / MI,
            ),
            (
                f"merge of 100,000 tuples with {int(most):,} stored keys, s",
                "reads everything that is stored",
                f"{number(merges[most]['seconds'])}; reading everything {number(merges[most]['all_seconds'])}",
            ),
        ]
    )
    yield from table(
        ("the writer", "ours"), [(key, value) for key, value in writer.items() if not isinstance(value, dict)]
    )


_PEERS = {
    "range": "average per key over 10 s",
    "rows": "average and maximum per key over 100 rows",
    "whole": "average over the last 10,000 rows",
    "join": "equi-join over 10 s windows",
}


def peers(data: Data) -> Iterable[str]:
    """The same queries in Flink SQL."""
    rates = data["events_per_second"]
    heads = list(next(iter(rates.values())))
    yield "Events/s, from a CSV file to result rows:"
    yield ""
    yield from table(
        ("query", *heads),
        [(_PEERS.get(query, query), *(told[head] for head in heads)) for query, told in rates.items()],
    )


def nexmark(data: Data) -> Iterable[str]:
    """Every query of Nexmark, beside Flink SQL."""
    longer = data.get("events_without_bids", {})
    more = f", for those that read no bids ({', '.join(longer)}) {number(max(longer.values()))}" if longer else ""
    yield f"{number(data['events'])} events{more}; records read/s, from CSV files to result rows:"
    yield ""
    heads = ("process", "lane", "flink")
    yield from table(
        ("query", *heads),
        [(query, *(rates.get(head) for head in heads)) for query, rates in data["events_per_second"].items()],
    )


def linear_road(data: Data) -> Iterable[str]:
    """How long the answers take, by the number of expressways."""
    yield f"{number(data['expressways'])} expressways keep every answer within 5 s, for {number(data['seconds'])} s in real time:"
    yield ""
    heads = ("records_per_second", "p50_seconds", "p99_seconds", "largest_seconds", "late", "cpu_seconds_per_second")
    tried = sorted(data["trials"].items(), key=lambda trial: int(trial[0]))
    yield from table(
        ("expressways", *(head.replace("_", " ") for head in heads)),
        [(expressways, *(trial[head] for head in heads)) for expressways, trial in tried],
    )


def jq(data: Data) -> Iterable[str]:
    """Kinds of jq expressions, evaluated by Hayase beside libjq."""
    yield f"One program for each kind of expression, over {number(data['events'])} events of a shop; events per second of CPU time:"
    yield ""
    yield from table(
        ("expression", "program", "in process", "libjq"),
        [
            (name, f"`{data['expressions'][name]}`", told["in process"], told["libjq"])
            for name, told in data["events_per_cpu_second"].items()
        ],
    )


def engine(data: Data) -> Iterable[str]:
    """What no paper speaks of: all plain figures there are."""
    rows = [(name, value) for key, told in data.items() for name, value in _leaves(key, told)]
    if rows:
        yield from table(("", "ours"), rows)


def _leaves(key: str, told: Any) -> Iterable[tuple[str, Any]]:
    if key in ("ratios", "pictures", "picture", "notes", MEASURED):
        return
    if isinstance(told, Mapping):
        for name, value in told.items():
            yield from _leaves(f"{key}: {name}", value)
    elif not isinstance(told, list):
        yield key.replace("_", " "), told


SECTIONS = (
    Section("Paper 1: lifetimes (Imaki, Nishizawa)", "lifetimes", lifetimes),
    Section("Paper 2: shared windows (Kawakami, Bou, Amagasa)", "windows", windows),
    Section("Paper 3: adaptive control (Uchiyama, Akama, Yamamuro)", "governor", governor),
    Section("Paper 4: conflict-free tables (Saito, Zenmyo)", "tables", tables),
    Section("Paper 5: continuous MapReduce (Nakada, Ogawa, Kudoh)", "mapreduce", mapreduce),
    Section("Operations", "operations", engine),
    Section("jq in rules", "jq", jq),
    Section("Lanes", "lanes", engine),
    Section("Start", "start", engine),
    Section("Latency", "latency", engine),
    Section("Streams", "streams", engine),
    Section("Files of records", "input_files", engine),
    Section("Beside Flink SQL", "peers", peers),
    Section("Nexmark", "nexmark", nexmark),
    Section("Linear Road", "linear_road", linear_road),
    Section("Sources and outputs", "connectors", engine),
    Section("Growth", "growth", engine),
    Section("Asking", "ask", engine),
)


def page(results: Path, docs: Path) -> str:
    """The page; the pictures are copied to docs/figures."""
    lines = [
        "# Measurements",
        "",
        "Written by `make bench`; do not edit. The figures of the papers beside ours, then every ratio with its target. "
        "Ratios are measured side by side in one run; all else holds for the machine that is named. "
        "What the papers' own machines could do then is another matter: compare shapes and ratios, not rates. "
        "Each section says when it was measured, and with which commit; older ones describe older code.",
        "",
    ]
    before = _sections(docs / "measurements.md")
    for section in SECTIONS:
        lines += [f"## {section.title}", ""]
        path = results / f"{section.name}.json"
        if not path.exists():
            lines += before.get(section.title, [f"Not measured yet: `hayase bench {section.name}`.", ""])
            continue
        data = orjson.loads(path.read_bytes())
        lines += [_where(section.name, path, data), ""]
        try:
            lines += list(section.text(data))
        except (KeyError, ValueError) as error:
            lines += [f"This JSON has not all that is shown here ({error!r} is missing); only its ratios follow.", ""]
        lines += _pictures(section.name, results, docs)
        lines += _ratios(data)
    return "\n".join(lines).rstrip() + "\n"


def _where(name: str, path: Path, data: Data) -> str:
    told = data.get(MEASURED)
    if told:
        return f"`hayase bench {name}`, {told['at']}, commit `{told['commit']}`, on {told['machine']}."
    at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    commit = _git("log", "-1", "--format=%h", f"--before={at.isoformat()}")
    before = f", the last commit before being `{commit}`" if commit else ""
    return f"`hayase bench {name}`, by the date of its file {at:%Y-%m-%d %H:%M}Z{before}; the machine was not noted."


def _pictures(name: str, results: Path, docs: Path) -> list[str]:
    found = sorted(results.glob(f"{name}*.png"))
    for each in found:
        (docs / "figures").mkdir(exist_ok=True)
        shutil.copyfile(each, docs / "figures" / each.name)
    return [line for each in found for line in (f"![{name}](figures/{each.name})", "")]


_BOUND = re.compile(r" \((at (?:least|most) [^)]+)\)")


def _ratios(data: Data) -> list[str]:
    ratios = data.get("ratios", {})
    if not ratios:
        return []
    rows = []
    for name, value in ratios.items():
        bound = _BOUND.search(name)
        rows.append((_BOUND.sub("", name).replace("_", " "), value, bound[1] if bound else ""))
    listed = table(("ratio", "measured", "target"), rows)
    if len(rows) > 25:  # folded away; a blank line lets Markdown go on inside
        return ["<details markdown><summary>all ratios</summary>", "", *listed, "</details>", ""]
    return listed


def _sections(page: Path) -> dict[str, list[str]]:
    """Return the lines of each section of a page that was written before, by its title."""
    parts = re.split(r"^## (.+)\n\n", page.read_text() if page.exists() else "", flags=re.MULTILINE)
    return {title: [*text.rstrip().splitlines(), ""] for title, text in zip(parts[1::2], parts[2::2])}


def main(arguments: Sequence[str] | None = None) -> None:
    """Write docs/measurements.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--measure", nargs="*", metavar="NAME", help="run these benchmarks first; without names, all")
    parser.add_argument("--results", type=Path, default=ROOT / "bench-results")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs")
    given = parser.parse_args(arguments)
    if given.measure is not None:
        given.results.mkdir(exist_ok=True)
        measure(given.measure or NAMES, given.results)
    target = given.docs / "measurements.md"
    target.write_text(page(given.results, given.docs))
    print(f"written to {target}")


if __name__ == "__main__":
    main()
