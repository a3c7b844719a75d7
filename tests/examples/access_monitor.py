"""Watch an access log: counts, alerts for blocked addresses, and for those far busier than a week ago."""

import re
from datetime import timedelta

import hayase as hy

p = hy.Pipeline("monitor", home="./monitor")
p.stream("lines", schema="time timestamp, line string", time="time", slack="1 minute")

# What is stored: who is blocked, and how often each address came, by hour.
p.stream("bans", schema="time timestamp, id string, address string, reason string", time="time", id="id")
p.stream("known", schema="time timestamp, id string, address string, hour string, hits bigint", time="time", id="id")
p.table("blocklist", key="address", reason=hy.Register())
p.table("rates", key=["address", "hour"], hits=hy.Counter())
p.rules(
    text="""
source: bans
rules: [{tables: {blocklist: {key: .address, columns: {reason: .reason}}}}]
---
source: known
rules: [{tables: {rates: {key: [.address, .hour], columns: {hits: .hits}}}}]
"""
)

# Lines become requests, once for all that follows. A line that is none is a dead letter.
requests = p.job("requests", reads="lines", every="2 seconds")
LINE = re.compile(r'(\S+) \S+ \S+ \[[^]]+] "\S+ (\S+) [^"]*" (\d{3}) (\d+|-) "[^"]*" "[^"]*"')


@requests.map(schema="address string, path string, status int, size bigint", key="address")
def parse(record):
    found = LINE.fullmatch(record["line"])
    if found is None:
        raise ValueError("this is not a line of an access log")
    address, path, status, size = found.groups()
    return {"address": address, "path": path, "status": int(status), "size": 0 if size == "-" else int(size)}


# At every firing, what came since the last one.
statuses = p.job("statuses", reads="requests", every="2 seconds")
statuses.reduce(key="status", hits="count(*)")
addresses = p.job("addresses", reads="requests", every="2 seconds")
addresses.reduce(key="address", hits="count(*)", bytes="sum(size)")

# Of the addresses that came, only these are looked up in the blocklist, however long it is.
blocked = p.job("blocked", reads="addresses", every="2 seconds")


@blocked.merge("blocklist")
def refuse(address, counts, stored):
    if stored is not None:
        yield address, {"hits": sum(each["hits"] for each in counts), "reason": stored["reason"]}


# By event time: every hour beside the same hour of last week. This week's are stored for the next.
busy = p.job("busy", reads="requests", every="2 seconds")
busy.reduce(key="address", window="1 hour", every="1 hour", hits="count(*)")


@busy.map(also="rates")
def week_before(record):
    begin = record["time"] - timedelta(hours=1)
    yield hy.to("rates", (record["address"], f"{begin:%Y-%m-%dT%H}"), {"hits": record["hits"]})
    yield (record["address"], f"{begin - timedelta(days=7):%Y-%m-%dT%H}"), record["hits"]


@busy.merge("rates")
def compare(key, hits, stored):
    address, hour = key
    before = stored["hits"] if stored is not None else 0
    if sum(hits) > 3 * max(before, 10):
        yield address, {"hits": sum(hits), "a_week_before": before, "hour": hour}


if __name__ == "__main__":
    p.run()
