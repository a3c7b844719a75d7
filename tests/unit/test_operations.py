"""Functions in child processes: every way to fail, told exactly, at no cost to the neighbours."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from hayase.core.errors import DeclarationError
from hayase.core.frames import Garbled
from hayase.core.function_sources import FunctionSource
from hayase.core.reasons import ReasonKind
from hayase.core.stages import OFFSET, TIME, Outcome
from hayase.engine.definition.operation_trials import check_function
from hayase.operations.attempts import Attempts
from hayase.operations.children import Children, Limits, shared_children
from hayase.operations.frames import pack_answer, unpack_answer
from hayase.operations.operation_kernel import OperationConfig, OperationKernel
from hayase.operations.outcomes import Failure, Outcomes, Request
from hayase.operations.record_windows import WindowSpec
from hayase.operations.result_rows import fit_results, schema_of_results
from hayase.operations.user_functions import Function, OperationFunction, Unfit, failure_of
from hayase.operations.window_runner import FIRST_GROUP, LONGEST_GROUP, GroupLength, answers, run

MODULE = Path(__file__).with_name("test_operations_functions.py")
READS = pa.schema([("x", pa.int64()), ("way", pa.string())])
WRITES = pa.schema([pa.field("x", pa.int64(), nullable=False)])
QUICK = Limits(seconds=0.15, memory=256 << 20)
PATIENT = Limits(seconds=20.0, memory=256 << 20)


@pytest.fixture(scope="session")
def directory() -> str:
    return str(MODULE.parent)


def source(directory: str, name: str, module: str = "test_operations_functions", **others: Any) -> OperationFunction:
    return OperationFunction(FunctionSource(f"{module}:{name}", directory), **others)


@pytest.fixture(scope="module")
def work(directory: str) -> Iterator[Children]:
    """One function with all the ways to fail, and time."""
    made = Children(source(directory, "work"), READS, WRITES, PATIENT)
    yield made
    made.close()


@pytest.fixture(scope="module")
def hasty(directory: str) -> Iterator[Children]:
    """The same with little time."""
    made = Children(source(directory, "work"), READS, WRITES, QUICK)
    yield made
    made.close()


def rows_of(*ways: str | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array(range(len(ways)), pa.int64()), pa.array(ways, pa.string())], schema=READS)


def singly(children: Children, *ways: str | None) -> Outcomes:
    at = np.arange(len(ways))
    return children.call(rows_of(*ways), at, at + 1)


def test_a_function_runs_in_the_working_directory_of_its_process_at_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place.py").write_text("import os\n\ndef directory(record):\n    return {'way': os.getcwd()}\n")
    writes = pa.schema([("way", pa.string())])

    def directory_of_call() -> list[Any]:
        children = Children(source(str(tmp_path), "directory", "place"), READS, writes, PATIENT)
        try:
            return singly(children, None).rows["way"].to_pylist()
        finally:
            children.close()

    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert directory_of_call() == [str(tmp_path / name)]
    (tmp_path / "second").rmdir()
    assert directory_of_call() == ["/"]


# ---------------------------------------------------------------------------------------------------- ways to fail


@pytest.mark.parametrize(
    ("way", "kind", "reason"),
    [
        ("raise", "raised", "ValueError: no good"),
        ("leave", "raised", "SystemExit: 4"),
        ("exit", "exited", "it ended the process with exit code 3"),
        ("segfault", "crashed", "it crashed the process (segmentation fault, SIGSEGV)"),
        ("abort", "crashed", "it crashed the process (abort, SIGABRT)"),
        ("loop", "time", "it took more than 0.15 s"),
        ("gil", "time", "it took more than 0.15 s"),
        ("sleep", "time", "it took more than 0.15 s"),
        ("memory", "memory", "MemoryError"),
        ("close", "crashed", "it closed file descriptors that are not its own"),
        ("reopen", "crashed", "it closed file descriptors that are not its own"),
        ("garble", "crashed", "it spoiled what the process answers"),
        ("parent", "killed", "it ended together with the process that it was forked from"),
        ("stop", "killed", "it was killed from outside (SIGKILL), perhaps because the machine is out of memory"),
    ],
)
def test_a_failure_is_told_exactly_and_is_its_own_windows_alone(
    work: Children, hasty: Children, way: str, kind: str, reason: str
) -> None:
    done = singly(hasty if kind == "time" else work, None, None, way, None, way, None)
    assert done.rows.column("x").to_pylist() == [0, 1, 3, 5]
    assert done.counts.tolist() == [1, 1, 0, 1, 0, 1]
    assert {at: (each.kind, each.reason) for at, each in done.failures.items()} == {
        2: (kind, reason),
        4: (kind, reason),
    }
    if kind in ("raised", "time", "memory") or way in ("segfault", "abort"):
        line = MODULE.read_text().splitlines().index(f'    if way == "{way}":') + 1
        failure = done.failures[2]
        assert failure.function == "fail"
        assert line < (failure.line or 0) <= line + 3
        assert "test_operations_functions.py" in failure.traceback
        assert "hayase" not in failure.traceback


@pytest.mark.parametrize("way", ["print", "thread", "fork", "orphan"])
def test_what_does_no_harm_is_no_failure(work: Children, way: str) -> None:
    done = singly(work, None, way, None, way)
    assert not done.failures
    assert done.rows.column("x").to_pylist() == [0, 1, 2, 3]


def test_records_that_do_not_fit_into_memory_are_a_failure_of_their_window_alone(directory: str) -> None:
    children = Children(source(directory, "work"), READS, WRITES, Limits(20.0, 96 << 20))
    done = singly(children, None, None, "w" * (100 << 20), None, None)
    assert done.counts.tolist() == [1, 1, 0, 1, 1]
    assert (done.failures[2].kind, done.failures[2].reason) == (
        "memory",
        "its records, or its results, do not fit into it",
    )
    done = singly(children, *["w" * (20 << 20)] * 6, None)
    assert done.counts.tolist() == [1] * 7
    children.close()


def test_calls_in_a_row_need_one_child(directory: str) -> None:
    children = Children(source(directory, "leaky"), READS, WRITES, PATIENT)
    for number in range(5):
        assert singly(children, None, None).rows.column("x").to_pylist() == [2 * number + 1, 2 * number + 2]
    assert children.starts == 1
    singly(Children(source(directory, "work"), READS, WRITES, PATIENT), "raise", "leave")
    children.close()


def test_with_care_no_window_pays_for_what_another_has_spoiled(directory: str) -> None:
    children = Children(source(directory, "spoiled"), READS, WRITES, PATIENT)
    at = np.arange(6)
    rows = rows_of(None, "break", "break", None, "break", None)
    assert children.call(rows, at, at + 1).counts.tolist() == [1, 0, 0, 0, 0, 0]
    children.renew()
    assert children.call(rows, at, at + 1, careful=True).counts.tolist() == [1, 0, 0, 1, 0, 1]
    children.close()
    asynchronous = Children(source(directory, "together"), READS, WRITES, PATIENT)
    at = np.arange(20)
    done = asynchronous.call(rows_of(*["raise"] * 20), at, at + 1, careful=True)
    asynchronous.close()
    assert sorted(done.failures) == list(range(20))
    assert asynchronous.starts < 6  # nobody has spoiled anything, so that care ends


def test_a_child_that_ended_is_followed_by_one_that_was_forked_ahead(directory: str) -> None:
    children = Children(source(directory, "work"), READS, WRITES, PATIENT)
    held = children.processes
    singly(children, None)
    assert held.spare is None
    singly(children, "exit", None)
    spare = held.spare
    assert spare is not None
    singly(children, "exit", None)
    assert held.child is spare
    assert held.spare is not spare
    children.close()


def test_how_long_the_function_was_at_work_is_told_of_every_window(directory: str) -> None:
    for name in ("napping", "napping_together"):
        children = Children(source(directory, name), READS, WRITES, PATIENT)
        done = singly(children, None, "raise", None, "exit", None)
        children.close()
        assert done.counts.tolist() == [1, 0, 1, 0, 1]
        assert len(done.nanoseconds) == 5
        assert done.nanoseconds.sum() >= 3_000_000
        if name == "napping":
            assert done.nanoseconds.min() >= 3_000_000


def test_results_are_handed_over_in_groups_that_grow_from_group_to_group() -> None:
    calls: list[int] = []
    function = Function(lambda window: calls.append(window[0]["x"]) or {"x": 1}, "records")
    at = np.arange(4)
    request = Request(rows_of(None, None, None, None), at, at + 1)
    (whole,) = answers(function, WRITES, request, [0, 0], length=GroupLength(10**12))
    assert (whole.counts.tolist(), calls) == ([1, 1, 1, 1], [0, 1, 2, 3])
    calls.clear()
    length = GroupLength(-1)
    groups = answers(function, WRITES, request, [0, 0], length=length)
    assert next(groups).counts.tolist() == [1]
    assert calls == [0], "a window that took too long is handed over before the next begins"
    length.nanoseconds = 10**12
    assert [group.counts.tolist() for group in groups] == [[1, 1, 1]]
    grown = GroupLength()
    lengths = []
    for _ in range(200):
        lengths.append(grown.nanoseconds)
        grown.grow()
    steps = {later - sooner for sooner, later in pairwise(lengths)}
    assert (lengths[0], lengths[-1], len(steps)) == (FIRST_GROUP, LONGEST_GROUP, 2), "equal steps, and none at the end"


def test_processes_that_a_function_leaves_behind_end_with_the_child(work: Children) -> None:
    singly(work, "orphan")
    assert _orphans()
    singly(work, "exit", None)
    assert not _orphans()


def _orphans() -> list[psutil.Process]:
    return [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", "987654"]]


def test_processes_end_when_nobody_has_the_function_any_more(directory: str) -> None:
    children = Children(source(directory, "work"), READS, WRITES, PATIENT)
    singly(children, None)
    held = children.processes
    assert held.child is not None
    assert held.template is not None
    processes = [psutil.Process(held.child.process), psutil.Process(held.template.process)]
    del children, held
    gc.collect()
    gone, alive = psutil.wait_procs(processes, 20)
    assert len(gone) == 2
    assert not alive


def test_processes_end_when_their_owner_is_killed_in_the_middle_of_a_call(directory: str) -> None:
    program = f"""
import sys, threading, time
sys.path[:] = {sys.path!r}
from test_operations import PATIENT, READS, WRITES, Children, singly, source
children = Children(source({directory!r}, "work"), READS, WRITES, PATIENT)
singly(children, None)
print(children.processes.child.process, children.processes.template.process, flush=True)
singly(children, "loop")
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        processes = [psutil.Process(int(each)) for each in owner.stdout.readline().split()]
        processes.append(psutil.Process(processes[1].ppid()))
        owner.kill()
    gone, alive = psutil.wait_procs(processes, 20)
    assert len(gone) == 3
    assert not alive


def test_a_child_that_is_killed_while_it_waits_is_replaced(work: Children) -> None:
    singly(work, None)
    assert work.processes.child is not None
    os.kill(work.processes.child.process, signal.SIGKILL)
    assert singly(work, None, None).counts.tolist() == [1, 1]
    assert work.processes.template is not None
    os.kill(work.processes.template.process, signal.SIGKILL)
    assert singly(work, None, None).counts.tolist() == [1, 1]


def test_an_interrupt_ends_no_process_of_an_operation(work: Children) -> None:
    from hayase.operations.processes import NURSERY

    own = Children(work.function, READS, WRITES, PATIENT)  # the others may have been killed by a test before

    def processes() -> list[int]:
        assert NURSERY.root is not None
        assert own.processes.template is not None
        assert own.processes.child is not None
        return [NURSERY.root.process, own.processes.template.process, own.processes.child.process]

    singly(own, None)
    before = processes()
    for process in before:
        os.kill(process, signal.SIGINT)
    assert singly(own, None, None).counts.tolist() == [1, 1]
    assert processes() == before
    own.close()


def test_a_nursery_that_is_killed_is_replaced(work: Children) -> None:
    from hayase.operations.processes import NURSERY

    singly(work, None)
    assert NURSERY.root is not None
    os.kill(NURSERY.root.process, signal.SIGKILL)
    assert singly(work, None, "exit", None).counts.tolist() == [1, 0, 1]
    other = Children(work.function, READS, WRITES, PATIENT)
    assert singly(other, None).counts.tolist() == [1]
    other.close()


def test_threads_take_turns(work: Children) -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        done = singly(work, *[None] * number, "exit", *[None] * 3)
        found[number] = done.counts.tolist()

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {number: [1] * number + [0] + [1] * 3 for number in range(4)}


def test_a_request_is_cut_into_portions_and_only_the_rows_that_are_needed_go_out(directory: str) -> None:
    children = Children(source(directory, "total"), READS, WRITES, PATIENT)
    count = 10_000
    rows = pa.record_batch([pa.array(range(count)), pa.array(["w" * 3000] * count)], schema=READS)
    starts = np.arange(0, count, 100)
    done = children.call(rows, starts, starts + 3)
    assert done.rows.column("x").to_pylist() == [3 * each + 3 for each in starts.tolist()]
    at = np.arange(9000)
    assert children.call(rows_of(*[None] * 9001), at, at + 2).rows.column("x").to_pylist() == (2 * at + 1).tolist()
    assert children.starts == 1
    children.close()


def test_answers_that_cannot_be_are_not_believed() -> None:
    table = pa.table({"x": pa.array([1, 2], pa.int64())}, schema=WRITES)
    good = b"".join(
        bytes(memoryview(part)) for part in pack_answer(0, Outcomes(table, np.array([2]), {}, np.array([5])))
    )
    assert unpack_answer(good, WRITES, 1)[1].rows.equals(table)
    for bad in (b"", good[:30], good[:-8], good[8:]):
        with pytest.raises(Garbled):
            unpack_answer(bad, WRITES, 1)
    for outcomes in (
        Outcomes(table, np.array([1]), {}, np.array([5])),
        Outcomes(table, np.array([3, -1]), {}, np.array([5, 5])),
        Outcomes(table, np.array([1, 1]), {}, np.array([5, 5])),
        Outcomes(table, np.array([2]), {0: Failure("raised", "")}, np.array([5])),
        Outcomes(table, np.array([2]), {1: Failure("raised", "")}, np.array([5])),
        Outcomes(table, np.array([2]), {}, np.array([-5])),
    ):
        with pytest.raises(Garbled):
            unpack_answer(b"".join(bytes(memoryview(part)) for part in pack_answer(0, outcomes)), WRITES, 1)


# ---------------------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize("name", ["same", "generated", "awaited", "streamed", "batch", "table"])
def test_any_kind_of_function_gives_the_same_here_and_in_a_child(directory: str, name: str) -> None:
    children = Children(source(directory, name), READS, WRITES, PATIENT)
    assert children.check() == ("batch" if name in ("batch", "table") else "records")
    rows, at = rows_of(*[None] * 6), np.arange(6)
    there = children.call(rows, at, at + 1)
    function = source(directory, name).load()
    here = run(function, WRITES, Request(rows, at, at + 1))
    function.close()
    children.close()
    assert there.rows.equals(here.rows)
    assert here.rows.column("x").to_pylist() == list(range(6))


def test_asynchronous_functions_are_at_work_on_several_windows_and_fail_alone(directory: str) -> None:
    asked = source(directory, "together", together=4)
    children = Children(asked, READS, WRITES, PATIENT)
    assert singly(children, *[None] * 8).rows.column("x").to_pylist() == [4] * 8
    done = singly(children, None, "raise", None, None, "exit", None, None, "memory", None)
    assert done.counts.tolist() == [1, 0, 1, 1, 0, 1, 1, 0, 1]
    assert {at: each.kind for at, each in done.failures.items()} == {1: "raised", 4: "exited", 7: "memory"}
    assert "hayase/operations" not in done.failures[1].traceback + done.failures[7].traceback
    assert singly(children, "memory").failures[0].kind == "memory"
    assert singly(children, None).counts.tolist() == [1]
    children.close()
    children = Children(asked, READS, WRITES, QUICK)
    done = singly(children, None, None, "sleep", None, None)
    children.close()
    assert done.counts.tolist() == [1, 1, 0, 1, 1]
    assert done.failures[2].kind == "time"


def test_a_window_sees_its_own_records_whatever_others_did_to_theirs(directory: str) -> None:
    reads = pa.schema([("x", pa.int64()), ("tags", pa.list_(pa.string()))])
    rows = pa.record_batch([pa.array([1, 2, 3]), pa.array([["a"]] * 3, pa.list_(pa.string()))], schema=reads)
    function = source(directory, "changing").load()
    starts = np.array([0, 0, 1])
    done = run(function, WRITES, Request(rows, starts, np.array([2, 3, 3])))
    assert done.rows.column("x").to_pylist() == [2, 2, 2]


@pytest.mark.parametrize(
    ("way", "reason"),
    [
        ("text", 'column "x" must be bigint, not "one"'),
        ("number", "it gave 7; give a record (a dict), a list of records, an Arrow batch, or None"),
        ("numbers", "it gave 7 among its records; a record is a dict"),
        ("unknown", 'unknown field "y"; known are: x'),
        ("batch", 'column "x" must be bigint, not "one"'),
        ("columns", 'unknown field "y"; known are: x'),
        ("null", 'column "x" is missing or null, and is a not-null column'),
    ],
)
def test_output_that_does_not_fit_is_refused_with_the_reason(directory: str, way: str, reason: str) -> None:
    function, at = source(directory, "strange").load(), np.arange(3)
    done = run(function, WRITES, Request(rows_of(None, way, None), at, at + 1))
    assert done.counts.tolist() == [1, 0, 1]
    assert [(at, each.kind, each.reason) for at, each in done.failures.items()] == [(1, "unfit", reason)]


def test_values_with_a_will_of_their_own_fail_alone(directory: str) -> None:
    children = Children(source(directory, "strange"), READS, WRITES, PATIENT)
    done = singly(children, None, "strange", None, "text", None)
    children.close()
    assert done.counts.tolist() == [1, 0, 1, 0, 1]
    assert sorted(done.failures) == [1, 3]


def test_functions_that_cannot_be_had(tmp_path: Path) -> None:
    for name, text in {
        "broken_ours": "1 / 0",
        "crashing_ours": "import os; os._exit(9)",
        "leaving_ours": "import sys; sys.exit(2)",
        "plain_ours": "number = 3\ndef none(): pass\ndef two(a, b): pass\ndef one(records): pass",
    }.items():
        (tmp_path / f"{name}.py").write_text(text)

    def wrong(named: str) -> str:
        with pytest.raises(DeclarationError) as told:
            Children(OperationFunction(FunctionSource(named, str(tmp_path))), READS, WRITES, PATIENT).check()
        return str(told.value)

    assert wrong("broken_ours:f") == (
        "the module broken_ours cannot be loaded: ZeroDivisionError: division by zero in <module>, line 1"
    )
    assert wrong("crashing_ours:f") == "crashing_ours:f cannot be loaded: it ended the process with exit code 9"
    assert wrong("leaving_ours:f").startswith("SystemExit: 2")
    assert wrong("no_such_ours:f").startswith("there is no module no_such_ours")
    assert wrong("plain_ours:on") == 'plain_ours has no "on"; did you mean "one"?'
    assert wrong("plain_ours:number") == "plain_ours:number is a int, not a function; name a function"
    assert "must take one argument" in wrong("plain_ours:none")
    assert "must take one argument" in wrong("plain_ours:two")
    with pytest.raises(DeclarationError, match='no function takes "rows"'):
        source(str(tmp_path), "one", "plain_ours", takes="rows")


def test_two_versions_of_a_module_live_side_by_side(tmp_path: Path) -> None:
    found = []
    for version in (1, 2):
        (tmp_path / str(version)).mkdir()
        (tmp_path / str(version) / "versioned_ours.py").write_text(f"def f(records): return {{'x': {version}}}")
    both = [Children(source(str(tmp_path / each), "f", "versioned_ours"), READS, WRITES) for each in ("1", "2")]
    for _ in range(2):
        found += [singly(each, None).rows.column("x").to_pylist() for each in both]
    for each in both:
        each.close()
    assert found == [[1], [2], [1], [2]]


def test_those_who_want_the_same_share_children(directory: str) -> None:
    first = shared_children(source(directory, "same"), READS, WRITES, PATIENT)
    assert shared_children(source(directory, "same"), READS, WRITES, PATIENT) is first
    assert shared_children(source(directory, "same"), READS, WRITES, QUICK) is not first


def test_a_long_traceback_is_cut_in_the_middle() -> None:
    def deep(level: int) -> None:
        if level:
            (deep if level % 2 else lambda each: deep(each))(level - 1)
        raise ValueError("x" * 50_000)

    with pytest.raises(ValueError, match="xxx") as raised:
        deep(100)
    failure = failure_of(raised.value)
    assert len(failure.traceback) < 13_000
    assert "\n  ...\n" in failure.traceback
    assert failure.function == "deep"
    assert failure_of(Unfit("it gave 7")) == Failure("unfit", "it gave 7")


def test_errors_are_the_same_only_if_all_that_is_told_of_them_is() -> None:
    def fail(error: Exception, cause: Exception | None = None) -> None:
        if cause is not None:
            raise error from cause
        raise error

    errors = [(ValueError("a"), None), (ValueError("b"), None), (TypeError("a"), None), (KeyError("a"), None)]
    errors += [
        (ValueError("a"), KeyError("b")),
        (ValueError("a"), None),
        (OSError(2, "c"), None),
        (ValueError(1), None),
    ]
    found = []
    for error, cause in errors:
        with pytest.raises(Exception) as raised:  # noqa: PT011  (any of them)
            fail(error, cause)
        found.append(failure_of(raised.value))
    assert found[0] is found[5]
    told = ["".join(traceback.format_exception(each)) for each, _ in errors]
    for failure, text in zip(found, told):
        assert failure.traceback == text.rstrip()


def test_an_error_that_comes_again_is_told_as_before(directory: str) -> None:
    at = np.arange(4)
    done = run(source(directory, "work").load(), WRITES, Request(rows_of("raise", None, "raise", "memory"), at, at + 1))
    assert done.failures[0] is done.failures[2]
    assert done.failures[3].kind == "memory"


# ---------------------------------------------------------------------------------------------------- schemas


def test_the_schema_of_results_is_found_from_a_sample(directory: str) -> None:
    window = WindowSpec("count", 2, 2)
    found = check_function(source(directory, "wide"), window, READS, sample=rows_of(*[None] * 5), limits=PATIENT)
    assert found == "`user` string, score double, tags array<string>, seen boolean"
    assert check_function(source(directory, "wide"), window, READS, "x bigint", limits=PATIENT) == "x bigint"
    with pytest.raises(DeclarationError, match='unknown field "user"'):
        check_function(source(directory, "wide"), window, READS, "x bigint", rows_of(None, None), PATIENT)
    with pytest.raises(DeclarationError, match="not known without a sample"):
        check_function(source(directory, "wide"), window, READS, limits=PATIENT)
    with pytest.raises(DeclarationError, match='unknown key column "z"'):
        check_function(source(directory, "wide"), WindowSpec("count", 2, 2, ("z",)), READS, limits=PATIENT)


@pytest.mark.parametrize(
    ("way", "told"),
    [("raise", "ValueError: no good in fail"), ("exit", "exit code 3"), ("loop", "0.15 s"), ("garble", "spoiled")],
)
def test_a_sample_may_fail_in_any_way(directory: str, way: str, told: str) -> None:
    with pytest.raises(DeclarationError, match=told):
        check_function(source(directory, "work"), WindowSpec("count", 1, 1), READS, None, rows_of(None, way), QUICK)
    with pytest.raises(DeclarationError, match=told):
        check_function(source(directory, "work"), WindowSpec("count", 1, 1), READS, "x bigint", rows_of(way), QUICK)


def test_what_a_sample_does_not_tell() -> None:
    arrow = pa.record_batch({"a": pa.array([1], pa.uint8()), "b": pa.array(["x"], pa.large_string())})
    assert schema_of_results([arrow, [{"a": 2}]]) == "a bigint, b string"
    assert schema_of_results([[{"t": {"x": 1, "y": [b"z"]}}]]) == "t struct<x: bigint, y: array<binary>>"
    for given, told in [
        ([], "the sample gave no record"),
        ([[{"a": None}]], '"a" is not clear: it is null'),
        ([[{"a": 1}, {"a": "x"}]], '"a" is not clear'),
        ([[{1: 1}]], "a field of a result is named 1"),
        ([[{"a": object()}]], '"a" is not clear'),
    ]:
        with pytest.raises(DeclarationError, match=told):
            schema_of_results(given)


def test_a_field_that_is_not_the_functions_to_give_is_left_out() -> None:
    arrow = pa.record_batch({"x": pa.array([1, 2]), "at": pa.array(["a", "b"])})
    given: list[Any] = [[{"x": 7, "at": 3}], arrow, [{"x": 8}], [{"at": 3, "x": 9}, {"at": 0, "x": 1, "y": 2}]]
    done = fit_results(given, WRITES, "at")
    assert done.rows.column("x").to_pylist() == [7, 1, 2, 8]
    assert done.unfit == {3: 'unknown field "y"; known are: x'}
    assert fit_results([[{"x": 1, "at": 3}], [{"x": 2}], [{"at": 3}]], WRITES, "at").counts.tolist() == [1, 1, 0]
    assert fit_results([[{"x": 1, "at": 3}], [{"at": 2, "x": 2}]], WRITES, "at").counts.tolist() == [1, 1]
    assert schema_of_results([[{"at": 3, "x": 1}], arrow], "at") == "x bigint"
    with pytest.raises(DeclarationError, match='gave no record with more than "at"'):
        schema_of_results([[{"at": 3}]], "at")


def test_what_a_function_gives_as_the_time_is_left_out_wherever_it_runs(directory: str) -> None:
    window, function = WindowSpec("count", 1, 1), source(directory, "whole")
    sample = rows_of(None, "a")
    assert check_function(function, window, READS, sample=sample, limits=PATIENT, time="way") == "x bigint"
    declared = check_function(function, window, READS, "way string, x bigint", sample, PATIENT, "way")
    assert declared == "x bigint"
    output = pa.schema([("way", pa.int64()), ("x", pa.int64())])
    config = OperationConfig("whole", "1", function, window, ("q",), READS, output, "way", limits=PATIENT)
    ((outcome, _),) = fed(OperationKernel(config), ["a", "b"], 1)
    assert outcome.rows.to_pylist() == [{"way": 0, "x": 0}, {"way": 1, "x": 1}]


def test_results_of_all_kinds_fit_together() -> None:
    arrow = pa.record_batch({"x": pa.array([1.0, 2.0])})
    done = fit_results([[{"x": 7}], arrow, [], [{"x": 1.5}], arrow.slice(0, 0)], WRITES)
    assert done.rows.column("x").to_pylist() == [7, 1, 2]
    assert done.counts.tolist() == [1, 2, 0, 0, 0]
    assert list(done.unfit) == [3]
    assert fit_results([], WRITES).rows.num_rows == 0


# ---------------------------------------------------------------------------------------------------- the whole

OUTPUT = pa.schema([("time", pa.timestamp("us", tz="UTC")), pa.field("x", pa.int64(), nullable=False)])
HARMFUL = ("exit", "segfault", "abort", "loop", "gil", "memory", "close", "stop")


def ten_thousand(seed: int, count: int, share: float) -> list[str | None]:
    """Ways of so many records: a tenth raise, and of each harmful way there is that share."""
    chance = np.random.default_rng(seed)
    ways: list[str | None] = [None] * count
    places = chance.permutation(count).tolist()
    for way in HARMFUL:
        for _ in range(int(count * share)):
            ways[places.pop()] = way
    for _ in range(count // 10):
        ways[places.pop()] = "raise"
    return ways


def fed(kernel: OperationKernel, ways: list[str | None], steps: int) -> list[tuple[Outcome, int]]:
    """A kernel fed with one record each microsecond, in some steps."""
    rows = rows_of(*ways)
    cuts = np.linspace(0, len(ways), steps + 1).astype(int).tolist()
    found = []
    for version, (start, stop) in enumerate(pairwise(cuts)):
        places = pa.array(range(start, stop), pa.int64())
        part = rows.slice(start, stop - start)
        batch = pa.record_batch([*part.columns, places, places], names=[*READS.names, TIME, OFFSET])
        found.append((kernel.process([batch], start, stop, version), start))
    return found


@pytest.mark.parametrize(
    ("size", "count", "share"),
    [pytest.param(1, 10_000, 0.001, marks=pytest.mark.long), (1, 1_000, 0.01), (8, 1_000, 0.001)],
)
def test_every_good_record_comes_out_once_and_every_bad_one_is_refused_once(
    directory: str, size: int, count: int, share: float
) -> None:
    ways = ten_thousand(size, count, share)
    config = OperationConfig(
        "work", "v1", source(directory, "work"), WindowSpec("count", size, size), ("q",), READS, OUTPUT, "time",
        attempts=Attempts(2, 0.0), limits=Limits(seconds=0.08, memory=256 << 20),
    )  # fmt: skip
    out: list[int] = []
    refused: list[int] = []
    for outcome, start in fed(OperationKernel(config), ways, 3):
        out += outcome.rows.column("x").to_pylist()
        for each in outcome.refused:
            refused += (each.rows + start).tolist()
            assert all(reason.text.startswith('operation "work" (version v1) failed in ') for reason in each.reasons)
        for lost in outcome.spoiled:
            assert lost.rows.schema.names == READS.names
            assert lost.rows.column("x").to_pylist() == lost.offsets
            refused += lost.offsets
            assert lost.streams == ["q"] * len(lost.reasons)
            assert min(lost.attempts) >= 2
        assert outcome.rows.column("time").cast(pa.int64()).to_pylist() == sorted(
            outcome.rows.column("time").cast(pa.int64()).to_pylist()
        )
    bad = [at for at, way in enumerate(ways) if way is not None]
    held = len(ways) % size
    assert sorted(refused) == bad
    assert sorted([*out, *bad]) == list(range(len(ways) - held))


def test_a_dead_letter_says_what_where_how_often_and_in_which_version(directory: str) -> None:
    config = OperationConfig(
        "work", "abc", source(directory, "work"), WindowSpec("count", 2, 2), ("q",), READS, OUTPUT, "time",
        attempts=Attempts(2, 0.0), limits=QUICK,
    )  # fmt: skip
    kernel = OperationKernel(config)
    ((outcome, _),) = fed(kernel, [None, "raise", None, "exit"], 1)
    (refused,) = outcome.refused
    assert refused.rows.tolist() == [1, 3]
    assert refused.attempts == [4, 4]
    (seconds,) = outcome.seconds
    assert seconds > 0
    line = MODULE.read_text().splitlines().index('        raise ValueError("no good")') + 1
    told, *trace = refused.reasons[0].text.splitlines()
    assert told == (
        f'operation "work" (version abc) failed in 4 attempts: it raised an exception: ValueError: no good in fail, line {line}'
    )
    assert trace[0] == "Traceback (most recent call last):"
    assert trace[-1] == "ValueError: no good"
    assert [reason.kind for reason in refused.reasons] == [ReasonKind.FUNCTION, ReasonKind.CRASH]
    assert refused.reasons[1].text == (
        'operation "work" (version abc) failed in 4 attempts: it ended the process with exit code 3'
    )


def test_what_a_record_spoils_is_made_good_for_those_behind_it(directory: str) -> None:
    config = OperationConfig(
        "spoiled", "1", source(directory, "spoiled"), WindowSpec("count", 1, 1), ("q",), READS, OUTPUT, "time",
        attempts=Attempts(2, 0.0), limits=PATIENT,
    )  # fmt: skip
    ((outcome, _),) = fed(OperationKernel(config), [None, None, "break", *[None] * 7], 1)
    assert outcome.rows.column("x").to_pylist() == [0, 1, *range(3, 10)]
    assert outcome.refused[0].rows.tolist() == [2]


def test_a_sliding_window_that_fails_is_told_with_its_records(directory: str) -> None:
    config = OperationConfig(
        "work", "v1", source(directory, "work"), WindowSpec("count", 2, 1), ("q",), READS, OUTPUT, "time",
        attempts=Attempts(1), limits=QUICK,
    )  # fmt: skip
    ((outcome, _),) = fed(OperationKernel(config), [None, None, "raise", None], 1)
    assert outcome.rows.column("x").to_pylist() == [0, 1]
    assert not outcome.refused
    (lost,) = outcome.spoiled
    assert [[each["x"] for each in records] for records in lost.rows.column("records").to_pylist()] == [[1, 2], [2, 3]]
    assert lost.rows.column("instant").cast(pa.int64()).to_pylist() == [2, 3]
    assert lost.attempts == [1, 1]


def test_configurations_that_cannot_be(directory: str) -> None:
    def config(**changes: Any) -> OperationConfig:
        given: dict[str, Any] = {
            "name": "work", "version": "v1", "function": source(directory, "work"), "window": WindowSpec("count", 1, 1),
            "queues": ("q",), "reads": READS, "output": OUTPUT, "time": "time",
        }  # fmt: skip
        return OperationConfig(**{**given, **changes})

    assert config().writes == WRITES
    for changes, told in [
        ({"time": "tim"}, 'unknown time column "tim" in the output of operation "work"; did you mean "time"'),
        ({"window": WindowSpec("count", 1, 1, ("no",))}, 'unknown key column "no"'),
    ]:
        with pytest.raises(DeclarationError, match=told):
            config(**changes)
    for made, told in [
        (lambda: WindowSpec("rows", 1, 1), 'no window goes by "rows"'),
        (lambda: WindowSpec("count", 0, 0), "a window of nothing"),
        (lambda: WindowSpec("time", 1_000_000, 2_000_000), "a window of 1 s that slides by 2 s leaves records out"),
        (lambda: WindowSpec("time", 1, 1, by_arrival=True), "cannot take records as they come"),
        (lambda: Attempts(0), "0 attempts are none"),
        (lambda: Limits(seconds=0), "cannot have 0 seconds"),
        (lambda: Limits(seconds=float("inf")), "cannot have inf seconds"),
        (lambda: Limits(memory=0), "cannot have 0 bytes"),
        (lambda: source(".", "a", together=0), "0 windows at once are none"),
        (lambda: Attempts(1, -1.0), "negative"),
    ]:
        with pytest.raises(DeclarationError, match=told):
            made()
