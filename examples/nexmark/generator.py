"""Events of the Nexmark benchmark: people who register, auctions that open, and bids on them.

The rules are those that the field has published with the benchmark: of every 50 events one is a person, three are auctions and 46
are bids; half of the bids go to a hot auction, three quarters come from a hot bidder; prices are spread evenly over six
decades. The same seed gives the same events. They are generated in blocks, so that any number of them can be made.

    python generator.py 100000 events          # writes events/person.ndjson, auction.ndjson and bid.ndjson
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

PERSONS, AUCTIONS, EPOCH = 1, 3, 50
"""Persons and auctions of each epoch of 50 events; the others are bids."""
FIRST_PERSON, FIRST_AUCTION, FIRST_CATEGORY, CATEGORIES = 1000, 1000, 10, 5
ACTIVE_PEOPLE, PERSON_LEAD = 1000, 10
"""People who bid and sell: the newest ones, and a few that are not known yet."""
AUCTIONS_IN_FLIGHT, AUCTION_LEAD = 100, 10
HOT_EVERY = 100
"""Every hundredth auction, seller and bidder is hot for a while."""
BLOCK = 1000 * EPOCH
"""Events that are generated together."""
BEGINNING = 1_436_918_400_000
"""Event time of the first event: 15 July 2015, in milliseconds."""

_STATES = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES = np.array([
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne",
])  # fmt: skip
_FIRST = np.array(["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"])
_LAST = np.array(["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"])
_CHANNELS = np.array(["Google", "Facebook", "Baidu", "Apple"])
_OTHER_CHANNELS = 10_000


@dataclass(frozen=True, slots=True)
class Block:
    """Events that follow one another, by stream; `events` are numbered on across all three."""

    first: int
    person: pa.Table
    auction: pa.Table
    bid: pa.Table


def blocks(events: int, *, per_second: int = 10_000, seed: int = 1, with_bids: bool = True) -> Iterator[Block]:
    """Yield the first `events` events, whole blocks but for the last; their times advance by `per_second` events. Without bids,
    people and auctions are the same."""
    for first in range(0, events, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, events))
        yield _block(numbers, per_second, np.random.default_rng([seed, first]), with_bids)


def _block(numbers: np.ndarray, per_second: int, dice: np.random.Generator, with_bids: bool) -> Block:
    place = numbers % EPOCH
    is_person, is_auction = place < PERSONS, (place >= PERSONS) & (place < PERSONS + AUCTIONS)
    return Block(
        int(numbers[0]),
        _persons(numbers[is_person], per_second, dice),
        _auctions(numbers[is_auction], per_second, dice),
        _bids(numbers[~is_person & ~is_auction & with_bids], per_second, dice),
    )


# ---------------------------------------------------------------------------------------------------- the three streams


def _persons(numbers: np.ndarray, per_second: int, dice: np.random.Generator) -> pa.Table:
    count = len(numbers)
    digits = dice.integers(0, 10_000, (count, 4))
    return pa.table(
        {
            "id": _last_person(numbers) + FIRST_PERSON,
            "name": [f"{first} {last}" for first, last in zip(dice.choice(_FIRST, count), dice.choice(_LAST, count))],
            "email_address": [
                f"{user}@{host}.com" for user, host in zip(_words(count, 7, dice), _words(count, 5, dice))
            ],
            "credit_card": [" ".join(f"{part:04d}" for part in card) for card in digits.tolist()],
            "city": dice.choice(_CITIES, count),
            "state": dice.choice(_STATES, count),
            "date_time": _times(numbers, per_second),
            "extra": _words(count, 80, dice),
        }
    )


def _auctions(numbers: np.ndarray, per_second: int, dice: np.random.Generator) -> pa.Table:
    count = len(numbers)
    last_person = _last_person(numbers)
    hot = last_person // HOT_EVERY * HOT_EVERY
    seller = np.where(dice.integers(0, 4, count) > 0, hot, _some_person(last_person, dice))
    initial = _prices(count, dice)
    longest = AUCTIONS_IN_FLIGHT * EPOCH // AUCTIONS * 1000 // per_second * 2
    times = _milliseconds(numbers, per_second)
    return pa.table(
        {
            "id": _last_auction(numbers) + FIRST_AUCTION,
            "item_name": _words(count, 20, dice),
            "description": _words(count, 100, dice),
            "initial_bid": initial,
            "reserve": initial + _prices(count, dice),
            "date_time": _as_times(times),
            "expires": _as_times(times + 1 + dice.integers(0, max(longest, 1), count)),
            "seller": seller + FIRST_PERSON,
            "category": FIRST_CATEGORY + dice.integers(0, CATEGORIES, count),
            "extra": _words(count, 200, dice),
        }
    )


def _bids(numbers: np.ndarray, per_second: int, dice: np.random.Generator) -> pa.Table:
    count = len(numbers)
    last_auction, last_person = _last_auction(numbers), _last_person(numbers)
    oldest = np.maximum(last_auction - AUCTIONS_IN_FLIGHT, 0)
    usual = oldest + dice.integers(0, last_auction - oldest + 1 + AUCTION_LEAD)
    auction = np.where(dice.integers(0, 2, count) > 0, last_auction // HOT_EVERY * HOT_EVERY, usual)
    hot_bidder = last_person // HOT_EVERY * HOT_EVERY + 1
    bidder = np.where(dice.integers(0, 4, count) > 0, hot_bidder, _some_person(last_person, dice))
    channel, url = _channels(count, dice)
    return pa.table(
        {
            "auction": auction + FIRST_AUCTION,
            "bidder": bidder + FIRST_PERSON,
            "price": _prices(count, dice),
            "channel": channel,
            "url": url,
            "date_time": _times(numbers, per_second),
            "extra": _words(count, 20, dice),
        }
    )


# ---------------------------------------------------------------------------------------------------- rules


def _last_person(numbers: np.ndarray) -> np.ndarray:
    """Return the number of the newest person at each event."""
    return numbers // EPOCH * PERSONS + np.minimum(numbers % EPOCH, PERSONS - 1)


def _last_auction(numbers: np.ndarray) -> np.ndarray:
    """Return the number of the newest auction at each event; before the first one, that of the first."""
    epoch, place = numbers // EPOCH, numbers % EPOCH
    newest = np.where(
        place < PERSONS, epoch * AUCTIONS - 1, epoch * AUCTIONS + np.minimum(place - PERSONS, AUCTIONS - 1)
    )
    return np.maximum(newest, 0)


def _some_person(last_person: np.ndarray, dice: np.random.Generator) -> np.ndarray:
    known = last_person + 1
    active = np.minimum(known, ACTIVE_PEOPLE)
    return known - active + dice.integers(0, active + PERSON_LEAD)


def _prices(count: int, dice: np.random.Generator) -> np.ndarray:
    return np.round(10 ** (dice.random(count) * 6) * 100).astype(np.int64)


def _channels(count: int, dice: np.random.Generator) -> tuple[list[str], list[str]]:
    """Return channels and URLs. Half of the bids come through four channels whose pages change with each block."""
    pages = ["/".join(_words(3, 5, dice)) for _ in _CHANNELS]
    hot = [f"https://www.nexmark.com/{page}/item.htm?query=1" for page in pages]
    others = dice.integers(0, _OTHER_CHANNELS, count)
    which = np.where(dice.integers(0, 2, count) > 0, dice.integers(0, len(_CHANNELS), count), -1).tolist()
    numbered = (dice.integers(0, 10, count) > 0).tolist()
    folders = _words(3 * count, 5, dice)
    channel, url = [], []
    for at, (chosen, other) in enumerate(zip(which, others.tolist())):
        if chosen >= 0:
            channel.append(str(_CHANNELS[chosen]))
            url.append(hot[chosen])
        else:
            path = "/".join(folders[3 * at : 3 * at + 3])
            known = f"&channel_id={other * 214_748 % 2**31}" if numbered[at] else ""
            channel.append(f"channel-{other}")
            url.append(f"https://www.nexmark.com/{path}/item.htm?query=1{known}")
    return channel, url


def _words(count: int, length: int, dice: np.random.Generator) -> list[str]:
    """Return random words of lower-case letters."""
    letters = dice.integers(ord("a"), ord("z") + 1, count * length, np.uint8).tobytes().decode()
    return [letters[start : start + length] for start in range(0, count * length, length)]


def _milliseconds(numbers: np.ndarray, per_second: int) -> np.ndarray:
    return BEGINNING + numbers * 1000 // per_second


def _times(numbers: np.ndarray, per_second: int) -> pa.Array:
    return _as_times(_milliseconds(numbers, per_second))


def _as_times(milliseconds: np.ndarray) -> pa.Array:
    return pa.array(milliseconds * 1000, pa.timestamp("us", tz="UTC"))


def main() -> None:
    """Write so many events as files of records."""
    events, directory = int(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "events")
    directory.mkdir(parents=True, exist_ok=True)
    files = {stream: (directory / f"{stream}.ndjson").open("w") for stream in ("person", "auction", "bid")}
    for block in blocks(events):
        for stream, file in files.items():
            records = getattr(block, stream).to_pandas(date_as_object=False)
            records.to_json(file, orient="records", lines=True, date_format="iso", date_unit="ms")
    for file in files.values():
        file.close()


if __name__ == "__main__":
    main()
