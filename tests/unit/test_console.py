"""What is shown is a function of data: tables fit 80 columns, figures add up, and nothing here needs Spark."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from hayase.connectors.status import ConnectorStatus
from hayase.console.connectors_view import connector_details, connector_list
from hayase.console.display import open_display
from hayase.console.errors import show_error
from hayase.console.figures import compact
from hayase.console.pipeline_view import Frame, live_view, plain_lines, summary
from hayase.console.records import Columns, dead_letters, record_table
from hayase.core.declarations import SourceDeclaration
from hayase.core.errors import DeclarationError, HayaseError, Mistake
from hayase.core.times import END
from hayase.engine.batch.lane_governor import GovernorStatus, QueueStatus
from hayase.engine.batch.offsets import Firing, Offset, Position
from hayase.engine.batch.report import Figures
from hayase.engine.commit.manifests import Manifest
from hayase.engine.stage_figures import History, stage_views

CLOCK = 1_767_603_770_000_000  # 2026-01-05 09:02:50


def shown(renderable: RenderableType, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


def manifest(
    version: int, read: int, *, at: int | None = None, dead: int = 0, waiting: int = 0, clock: int = CLOCK
) -> Manifest:
    figures = Figures(read, read - dead - waiting, dead, waiting, read // 2, version * 0.5)
    positions = {"totals": {"events": Position(read if at is None else at)}}
    return Manifest(version=version, offset=Offset(1, positions), clocks={"totals": clock}, totals={"totals": figures})


def frame(before: Manifest, after: Manifest, **more: object) -> Frame:
    return Frame("shop", "running", before, after, {"events": 1_500}, 2.0, **more)  # type: ignore[arg-type]


class TestStageViews:
    def test_rates_are_over_the_time_between_two_manifests(self) -> None:
        (view,) = stage_views(manifest(3, 200), manifest(5, 1_000), {"events": 1_500}, elapsed=2.0)
        assert (view.read_rate, view.written_rate, view.behind) == (400.0, 200.0, 500)
        assert view.batch_seconds == 0.5

    def test_no_new_batch_has_no_rate_and_no_batch_time(self) -> None:
        (view,) = stage_views(manifest(3, 200), manifest(3, 200), {"events": 200}, elapsed=2.0)
        assert (view.read_rate, view.behind, view.batch_seconds) == (0.0, 0, None)

    def test_a_stage_that_began_anew_has_no_negative_rate(self) -> None:
        (view,) = stage_views(manifest(3, 900), manifest(5, 100), {}, elapsed=1.0)
        assert view.read_rate == 100.0

    def test_the_first_look_has_no_rate(self) -> None:
        (view,) = stage_views(manifest(3, 9), manifest(3, 9), {}, elapsed=0.0)
        assert view.read_rate == 0.0

    def test_read_is_processed_dead_and_waiting(self) -> None:
        (view,) = stage_views(Manifest(), manifest(1, 10, dead=2, waiting=3), {}, 1.0)
        assert view.reconciles
        assert view.processed == 5


class TestHistory:
    def test_rates_look_back_over_a_window(self) -> None:
        history = History()
        for moment in range(10):
            history = history.seen(float(moment), manifest(moment, moment * 100))
        elapsed, before = history.base()
        assert (elapsed, before.version) == (3.0, 6)

    def test_the_trend_is_second_by_second_and_bounded(self) -> None:
        history = History()
        for step in range(400):
            history = history.seen(step / 4, manifest(step, step * 10))
        assert set(history.trend()) == {40.0}
        assert len(history.trend()) == History.LENGTH


class TestLiveView:
    def test_fits_eighty_columns_however_large_the_numbers(self) -> None:
        big = manifest(123_456, 98_765_432_100, at=0, dead=123_456_789, waiting=99_999)
        text = shown(live_view(frame(Manifest(), big, uptime=90_000.0, trend=range(40))))
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "2026" not in text
        assert "01-05 09:02:50" in text

    def test_says_how_far_behind_it_is(self) -> None:
        assert "500 behind" in shown(live_view(frame(manifest(3, 200), manifest(5, 1_000))))
        assert "caught up" in shown(live_view(frame(manifest(3, 200), manifest(5, 1_500))))

    def test_a_stage_with_two_inputs_shows_the_lag_of_each(self) -> None:
        two = Offset(1, {"both": {"left": Position(5), "right": Position(1)}})
        after = Manifest(version=1, offset=two, clocks={"both": END}, totals={"both": Figures()})
        text = shown(live_view(Frame("shop", "running", Manifest(), after, {"left": 7, "right": 1}, 1.0)))
        assert "left 2" in text
        assert "right 0" in text
        assert "finished" in text

    def test_plain_lines_have_one_per_stage(self) -> None:
        (line,) = plain_lines(frame(manifest(3, 200), manifest(5, 1_000, dead=1)))
        assert line == (
            "totals: in 400/s, out 200/s, read 1000, lag events:500, waiting 0, dead 1, batch 500 ms, "
            "clock 2026-01-05 09:02:50"
        )

    def test_firings_that_were_missed_are_shown(self) -> None:
        late = manifest(5, 1_000)
        late = replace(late, offset=replace(late.offset, firings={"totals": Firing(7, missed=2)}))
        (line,) = plain_lines(frame(manifest(3, 200), late))
        assert line.endswith(", firings missed 2")
        assert "(2 missed)" in shown(live_view(frame(manifest(3, 200), late)))

    def test_the_summary_reconciles(self) -> None:
        text = shown(summary(manifest(1, 10), manifest(4, 1_010, dead=10, waiting=5), {"events": 1_010}, 4.0))
        assert "✓" in text
        assert "995" in text
        assert "3 batches, 1,000 records read in this run" in text
        assert all(len(line) <= 80 for line in text.splitlines())

    def test_the_summary_shows_what_does_not_add_up(self) -> None:
        broken = Manifest(version=1, totals={"totals": Figures(read=3, processed=1)})
        assert "does not add up" in shown(summary(Manifest(), broken, {}, 1.0))


def queue(number: int, **more: float) -> QueueStatus:
    figures = {
        "rate": 2.0,
        "service": 0.1,
        "load": 0.2,
        "share": 0.25,
        "waiting": 3,
        "waited": 0.42,
        "polls": 40,
        "empty": 2,
    }
    return QueueStatus(stage="scores", stream=f"q{number}", **{**figures, **more})  # type: ignore[arg-type]


class TestGovernors:
    MAIN = GovernorStatus("main", "informed", 4, 0, 130, 1, (
        QueueStatus("", "orders", 1_000.0, 4e-6, 0.004, 1.0, 0, 0.0, 129, 0),
    ), 0.97)  # fmt: skip
    OPERATIONS = GovernorStatus("operations", "als", 4, 0, 123_456, 61_728, (
        queue(1), queue(2, load=12.5, waiting=1_234_567, waited=95.0, share=0.5), queue(3, load=0.0, waiting=0, share=0.0),
    ))  # fmt: skip

    @pytest.mark.parametrize("width", [80, 120])
    def test_queues_stand_below_the_stages(self, width: int) -> None:
        governed = frame(manifest(3, 200), manifest(5, 1_000), governors=(self.MAIN, self.OPERATIONS))
        lines = [line.rstrip() for line in shown(live_view(governed), width).splitlines()]
        assert lines[5:-1] == [
            "",
            "queue          load  share  length   waits   polls   empty",
            "──────────────────────────────────────────────────────────",
            "scores ← q2    12.5    50%   1.23M    95 s      40       2",
            "scores ← q1    0.20    25%       3  420 ms      40       2",
            "orders        0.004   100%       0       —     129       0",
            "scores ← q3       0     0%       0       —      40       2",
            "main: informed with u 0.97, load 0.004 on 4 slots, 0.8% of 130 polls empty",
            "operations: als, load 12.7 on 4 slots, 50.0% of 123,456 polls empty",
            "",
        ]

    def test_of_many_queues_the_busiest_are_shown(self) -> None:
        many = GovernorStatus(
            "operations", "als", 4, 0, 0, 0, tuple(queue(each, load=each / 100) for each in range(2_010))
        )
        governed = frame(manifest(3, 200), manifest(5, 1_000), governors=(many,))
        text = shown(live_view(governed))
        assert text.count("scores ← ") == 10
        assert "scores ← q2009" in text
        assert "… and 2,000 more" in text
        assert all(len(line) <= 80 for line in text.splitlines())
        assert plain_lines(governed)[-1] == "and 2000 more queues"

    def test_plain_lines_have_one_per_queue(self) -> None:
        governed = frame(manifest(3, 200), manifest(5, 1_000), governors=(self.OPERATIONS,))
        assert plain_lines(governed)[1:] == [
            "governor of operations: als, load 12.7 on 4 slots, 50.0% of 123,456 polls empty",
            "queue scores ← q2: load 12.5, share 50%, length 1234567 since 95 s, polls 40, empty 2",
            "queue scores ← q1: load 0.20, share 25%, length 3 since 420 ms, polls 40, empty 2",
            "queue scores ← q3: load 0, share 0%, length 0, polls 40, empty 2",
        ]

    def test_a_display_shows_what_it_is_given(self) -> None:
        console = Console(file=io.StringIO(), width=80)
        with open_display(console, "shop", 0.0) as display:
            display.show(1.0, manifest(1, 100), {"events": 100}, (self.MAIN,))
        assert "queue orders: load 0.004" in console.file.getvalue()  # type: ignore[attr-defined]


class TestConnectors:
    ORDERS = ConnectorStatus("sources", "orders", "kafka", state="running", records=1_234, rate=56.0, lag=0)
    TOTALS = ConnectorStatus(
        "outputs", "totals", "webhook", state="retrying", records=5, lag=1_204, error="no answer", attempts=3, failures=3,
        last_error="http://localhost:9/a/rather/long/address cannot be reached:\n  connection refused",
    )  # fmt: skip

    @pytest.mark.parametrize("width", [80, 140])
    def test_sources_and_outputs_stand_below_the_stages(self, width: int) -> None:
        connected = frame(manifest(3, 200), manifest(5, 1_000), connectors=(self.ORDERS, self.TOTALS))
        lines = [line.rstrip() for line in shown(live_view(connected), width).splitlines()]
        assert all(len(line) <= width for line in lines)
        head, _, source, output = lines[6:10]
        assert head.split() == ["source,", "output", "state", "per", "second", "waiting", "last", "error"]
        assert source.split() == ["source", "orders", "running", "56", "0"]
        assert output.startswith("output totals   retrying           0    1,204  http://localhost:9/a/rather/long")
        assert output.endswith("…" if width == 80 else "connection refused")

    def test_a_name_and_an_error_however_long_fit(self) -> None:
        long = replace(self.TOTALS, name="a" * 64, last_error="x" * 500, lag=987_654_321, rate=98_765_432.1)
        text = shown(live_view(frame(manifest(3, 200), manifest(5, 1_000), connectors=(long,))))
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "retrying" in text

    def test_plain_lines_have_one_for_each(self) -> None:
        connected = frame(manifest(3, 200), manifest(5, 1_000), connectors=(self.ORDERS, self.TOTALS))
        assert plain_lines(connected)[1:] == [
            "source orders: running, 56 per second, moved 1234, waiting 0",
            "output totals: retrying, 0 per second, moved 5, waiting 1204, failed attempts 3, last error: "
            "http://localhost:9/a/rather/long/address cannot be reached: connection refused",
        ]

    def test_lines_come_when_only_a_connector_has_changed(self) -> None:
        console = Console(file=io.StringIO(), width=80)
        with open_display(console, "shop", 0.0) as display:
            for moment, state in ((1.0, "running"), (11.0, "running"), (21.0, "paused")):
                display.show(moment, manifest(1, 100), {"events": 100}, (), (replace(self.ORDERS, state=state),))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert [line.split(", ")[0] for line in lines if line.startswith("source")] == [
            "source orders: running",
            "source orders: paused",
        ]

    def test_the_list_and_the_details_use_the_same_words(self) -> None:
        listed = shown(connector_list([self.ORDERS], "source"))
        assert listed.splitlines()[0].split() == ["source", "kind", "state", "moved", "per", "second", "waiting"]
        declared = SourceDeclaration("orders", "kafka", (("brokers", "localhost:9092"), ("topic", "orders")))
        failed = replace(self.ORDERS, target=declared.target, last_error="no answer", failed=CLOCK, failures=1)
        details = shown(connector_details(failed, declared))
        assert "topic orders at localhost:9092" in details
        assert "no answer (at 2026-01-05T09:02:50Z)" in details


class TestDisplay:
    def test_plain_lines_come_every_few_seconds_and_only_when_something_changed(self) -> None:
        console = Console(file=io.StringIO(), width=80)
        with open_display(console, "shop", 0.0) as display:
            display.phase("running")
            for moment in range(20):
                display.show(float(moment), manifest(min(moment, 7), 100 * min(moment, 7)), {"events": 700})
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert lines[0] == "shop: running"
        assert [line.split(", ")[2] for line in lines[1:]] == ["read 0", "read 500", "read 700"]

    def test_a_terminal_gets_a_live_table(self) -> None:
        console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
        with open_display(console, "shop", 0.0) as display:
            display.phase("starting Spark")
            display.show(1.0, manifest(1, 100), {"events": 100})
            display.phase("stopping")
        text = console.file.getvalue()  # type: ignore[attr-defined]
        assert "stopping" in text
        assert "Ctrl-C again stops at once" in text


class TestErrors:
    def text(self, error: HayaseError, *, terminal: bool) -> str:
        console = Console(file=io.StringIO(), width=80, force_terminal=terminal, color_system=None)
        show_error(console, error)
        return console.file.getvalue()  # type: ignore[attr-defined]

    def test_mistakes_stand_one_to_a_line_also_on_a_narrow_terminal(self) -> None:
        long = Mistake("x" * 100, "y" * 50, "shop.yaml", 3, 8)
        error = DeclarationError([long, Mistake("bad [red]name[/red]", None, "shop.yaml", 4, 1)])
        lines = self.text(error, terminal=True).splitlines()
        assert lines == [f"shop.yaml:3:8: {'x' * 100}; {'y' * 50}", "shop.yaml:4:1: bad [red]name[/red]", "2 mistakes"]
        assert self.text(error, terminal=False).splitlines() == lines[:2]

    def test_other_errors_are_a_panel_or_a_line(self) -> None:
        assert (
            self.text(HayaseError("no [bold]such[/bold] file"), terminal=False) == "error: no [bold]such[/bold] file\n"
        )
        assert "╭─ error ─" in self.text(HayaseError("no such file"), terminal=True)


class TestRecords:
    ROWS = ({"user": "hana", "note": "x" * 200, "amount": 1.5}, {"user": "taro", "note": "a\nb", "amount": None})

    def test_wide_values_are_cut_to_the_terminal(self) -> None:
        columns = Columns(("user", "note", "amount"), self.ROWS, 12, 80)
        text = shown(record_table(columns, 10, self.ROWS, header=True))
        assert all(len(line) <= 80 for line in text.splitlines())
        assert "…" in text
        assert "a\\nb" in text

    def test_later_records_line_up_below_the_first(self) -> None:
        columns = Columns(("user", "note", "amount"), self.ROWS[1:], 100, 80)
        first = shown(record_table(columns, 1, self.ROWS[1:], header=True)).splitlines()[-1]
        later = shown(record_table(columns, 99, self.ROWS[1:], header=False)).splitlines()[0]
        assert first.index("taro") == later.index("taro")
        assert first.index("null") == later.index("null")

    def test_more_columns_than_fit_do_not_fail(self) -> None:
        names = [f"column{at}" for at in range(40)]
        row = dict.fromkeys(names, "value")
        shown(record_table(Columns(names, [row], 1, 80), 0, [row], header=True))

    def test_a_dead_letter_says_where_why_and_what(self) -> None:
        letter = {"time": "2026-01-01 00:00:00", "stage": "totals", "stream": "events", "offset": 7,
                  "reason": "too late", "record": '{"a": [1]}'}  # fmt: skip
        assert shown(dead_letters([letter])).split("\n")[:3] == [
            "2026-01-01 00:00:00  totals ← events #7",
            "  too late",
            '  {"a": [1]}',
        ]


@pytest.mark.parametrize(
    "count", [0, 1, 9.94, 9.96, 99_999, 99_999.6, 100_000, 999_499, 999_500, 10**9 - 1, 10**12, 10**15]
)
def test_numbers_are_short(count: float) -> None:
    assert len(compact(count)) <= 6
