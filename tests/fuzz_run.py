"""Runs the fuzz targets: `python tests/fuzz_run.py [TARGET...]`, each for HAYASE_FUZZ_SECONDS (60) in a process of its own.

What is found goes to `tests/corpus/TARGET/crash-*`, where every later `make test` tries it again. With HAYASE_FUZZ_KEEP=1,
inputs that take new ways through the code are added there too, the smallest that do. Behind the targets, schemathesis asks
every route of a served home, with a token and without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
WORK = HERE.parent / ".fuzz"
LARGEST = 4096
"""Bytes of an input."""
INSTRUMENTED = [
    "hayase.core.numbers", "hayase.core.schemas", "hayase.core.pipeline_file", "hayase.core.yaml_nodes", "hayase.core.declarations",
    "hayase.core.declaration_fields", "hayase.core.field_kinds", "hayase.core.job_data", "hayase.core.operation_data",
    "hayase.streams", "hayase.serving", "hayase.cql", "hayase.tables.jq", "hayase.tables.jq_syntax", "hayase.tables.jq_columns",
]  # fmt: skip


def fuzz(target: str, arguments: list[str]) -> None:
    """Run one target in this process, with libFuzzer's arguments; it does not return."""
    import atheris

    with atheris.instrument_imports(include=INSTRUMENTED, enable_loader_override=False):
        from fuzz_targets import TARGETS
    atheris.Setup([sys.argv[0], *arguments], TARGETS[target])
    atheris.Fuzz()


def run(target: str, seconds: int) -> bool:
    """Fuzz a target for so long, in a process of its own; whether nothing was found."""
    new, kept = WORK / target, CORPUS / target
    new.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", "-timeout=60", "-rss_limit_mb=4096", f"-max_len={LARGEST}",
               f"-artifact_prefix={kept}/", "-print_final_stats=1", "-verbosity=0", "-report_slow_units=60"]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, __file__, "--one", target, *options, str(new), str(kept)], capture_output=True
    )
    text = done.stderr.decode(errors="replace") + done.stdout.decode(errors="replace")
    runs = text.partition("stat::number_of_executed_units:")[2].split()[:1] or ["?"]
    print(
        f"{target}: {runs[0]} inputs in {time.monotonic() - began:.0f} s, {'nothing found' if not done.returncode else 'FOUND'}",
        flush=True,
    )
    if done.returncode:
        print(text[-6000:], flush=True)
    elif os.environ.get("HAYASE_FUZZ_KEEP"):
        subprocess.run(
            [sys.executable, __file__, "--one", target, "-merge=1", f"-max_len={LARGEST}", str(kept), str(new)],
            capture_output=True,
        )
    return done.returncode == 0


def ask_routes(seconds: int) -> bool:
    """Ask all routes of a served home, with a token and without, in rounds of other requests until the time is over."""
    well, began, rounds = True, time.monotonic(), 0
    while well and (not rounds or time.monotonic() - began < seconds):
        rounds += 1
        environment = {**os.environ, "HAYASE_SERVING_SEED": str(int(time.time()))}
        tests = [
            "tests/laws/test_serving_laws.py",
            "-k",
            "description",
            "-q",
            "--timeout=3600",
            "-p",
            "no:cacheprovider",
        ]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *tests], env=environment, capture_output=True, cwd=HERE.parent
        )
        well = done.returncode == 0
        if not well:
            print(done.stdout.decode(errors="replace")[-6000:])
    print(f"routes: {rounds} rounds in {time.monotonic() - began:.0f} s, {'nothing found' if well else 'FOUND'}")
    return well


def main(names: list[str]) -> int:
    seconds = int(os.environ.get("HAYASE_FUZZ_SECONDS", "60"))
    sys.path.insert(0, str(HERE))
    from fuzz_targets import TARGETS

    wanted = names or [*TARGETS, "routes"]
    unknown = set(wanted) - {*TARGETS, "routes"}
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join([*TARGETS, 'routes'])}")
        return 2
    found = [name for name in wanted if not (ask_routes(seconds) if name == "routes" else run(name, seconds))]
    return 1 if found else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        sys.path.insert(0, str(HERE))
        fuzz(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
