"""Durations, instants and sizes: what is read, what is written, what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hayase.core.errors import HayaseError
from hayase.core.sizes import size, size_text
from hayase.core.times import BEGINNING, END, duration, duration_text, instant, instant_text


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("10 minutes", 600_000_000),
        ("500 ms", 500_000),
        ("1h", 3_600_000_000),
        ("1h 30m", 5_400_000_000),
        ("1h30m", 5_400_000_000),
        ("  2 Days ", 172_800_000_000),
        ("1 week", 604_800_000_000),
        ("1.5 s", 1_500_000),
        ("0.000001 s", 1),
        ("7us", 7),
        ("0 s", 0),
        (42, 42),
        (timedelta(days=1, seconds=2, microseconds=3), 86_402_000_003),
        (timedelta(microseconds=-1), -1),
    ],
)
def test_durations_are_read(text, microseconds):
    assert duration(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "minutes",
        "10 parsecs",
        "1h 30",
        "-1 s",
        "1.2.3 s",
        "1e3 s",
        "0.1 us",
        None,
        True,
        1.5,
        "9" * 5000,
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(HayaseError, match=r"is not a duration; write a number and a unit, like .10 minutes."):
        duration(text)


@pytest.mark.parametrize("text", ["200000000 weeks", END, timedelta.max, timedelta.min])
def test_durations_that_leave_the_clock_are_refused(text):
    with pytest.raises(HayaseError, match="too long for a duration"):
        duration(text)


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "0 s"),
        (1, "1 us"),
        (1_500, "1500 us"),
        (1_500_000, "1500 ms"),
        (90_000_000, "90 s"),
        (60_000_000, "1 minute"),
        (7_200_000_000, "2 hours"),
        (86_400_000_000, "1 day"),
    ],
)
def test_durations_are_written(microseconds, text):
    assert duration_text(microseconds) == text


@pytest.mark.parametrize(
    ("value", "microseconds"),
    [
        ("1970-01-01T00:00:01Z", 1_000_000),
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        (datetime(1970, 1, 1, 0, 0, 2), 2_000_000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_799_999_999),
        (7, 7),
    ],
)
def test_instants_are_read(value, microseconds):
    assert instant(value) == microseconds


@pytest.mark.parametrize("value", ["yesterday", "", "2026-13-01", "2026-01-31T25:00:00Z", None, True, 1.5])
def test_what_is_no_instant_is_refused(value):
    with pytest.raises(HayaseError, match="is not a time"):
        instant(value)


def test_instants_past_the_calendar_are_written_as_microseconds():
    assert instant_text(BEGINNING) == "-4611686018427387904 us"
    assert instant_text(END) == "4611686018427387904 us"


@pytest.mark.parametrize(
    ("text", "count"),
    [("10 GB", 10**10), ("512 MiB", 512 * 2**20), ("1kb", 1000), ("1.5 KiB", 1536), ("0 B", 0), (" 3 b ", 3)],
)
def test_sizes_are_read(text, count):
    assert size(text) == count


@pytest.mark.parametrize(
    "text", ["", "10", "GB", "-1 GB", "10 bananas", "0.5 B", "9" * 30 + " B", "9999999 PB", "1 2 GB"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(HayaseError, match=r'is not a size; write a number and a unit, like "10 GB"'):
        size(text)


def test_sizes_are_written_in_the_largest_unit_that_is_exact():
    assert [size_text(count) for count in (0, 1, 1000, 1024, 1536, 10**9, 2**30)] == [
        "0 B", "1 B", "1 kB", "1 KiB", "1536 B", "1 GB", "1 GiB"
    ]  # fmt: skip
