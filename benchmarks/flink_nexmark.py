"""The queries of `bench nexmark` in Flink SQL. Run by an interpreter that has `apache-flink`; prints seconds as JSON.

Usage: python flink_nexmark.py DIRECTORY PARALLELISM QUERY...   The directory holds person.csv, auction.csv, bid.csv and side.csv,
and the same with a few lines only as person-few.csv and so on. Every job runs twice over each, and the faster one counts. A query
named q3-long reads person-long.csv and auction-long.csv instead of those without a suffix.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

COLUMNS = {
    "person": "id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING, "
    "date_time TIMESTAMP(3), extra STRING",
    "auction": "id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP(3), "
    "expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), extra STRING",
}
TABLE = (
    "CREATE TABLE {name} ({columns}, WATERMARK FOR date_time AS date_time) "
    "WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"
)
SIDE = (
    "CREATE TABLE {name} (`key` BIGINT, `value` STRING) "
    "WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"
)
WINNING = (
    "SELECT a.id, a.category, MAX(b.price) AS final FROM {auction} a JOIN {bid} b ON a.id = b.auction "
    "WHERE b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category"
)
HOT = (
    "SELECT auction, COUNT(*) AS bids, window_start, window_end FROM TABLE(HOP(TABLE {bid}, DESCRIPTOR(date_time), "
    "INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
TUMBLE = "TABLE(TUMBLE(TABLE {0}, DESCRIPTOR(date_time), INTERVAL '10' SECOND))"
RANKS = (
    ("price < 10000", "rank1"),
    ("price >= 10000 AND price < 1000000", "rank2"),
    ("price >= 1000000", "rank3"),
)
DAY = "DATE_FORMAT(date_time, 'yyyy-MM-dd')"
BIDS = ", ".join(["COUNT(*)", *(f"COUNT(*) FILTER (WHERE {condition})" for condition, _ in RANKS)])
OF_EACH = ", ".join(
    f"COUNT(DISTINCT {column}){condition}"
    for column in ("bidder", "auction")
    for condition in ("", *(f" FILTER (WHERE {rank})" for rank, _ in RANKS))
)
CHANNEL = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"

QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM {bid}",
    "q1": "SELECT auction, bidder, 0.908 * price, date_time, extra FROM {bid}",
    "q2": "SELECT auction, price FROM {bid} WHERE MOD(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM {auction} a JOIN {person} p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": f"SELECT category, AVG(final) FROM ({WINNING}) GROUP BY category",
    "q5": f"SELECT h.auction, h.bids, h.window_start, h.window_end FROM ({HOT}) h JOIN (SELECT MAX(bids) AS most, window_start, "
    f"window_end FROM ({HOT}) GROUP BY window_start, window_end) m "
    "ON h.window_start = m.window_start AND h.window_end = m.window_end AND h.bids = m.most",
    "q7": "SELECT b.auction, b.price, b.bidder, b.date_time, b.window_end FROM (SELECT * FROM " + TUMBLE.format("{bid}") + ") b "
    "JOIN (SELECT MAX(price) AS price, window_start, window_end FROM " + TUMBLE.format("{bid}") + " "
    "GROUP BY window_start, window_end) m ON b.window_start = m.window_start AND b.window_end = m.window_end "
    "AND b.price = m.price",
    "q8": "SELECT p.id, p.name, p.window_start, p.window_end FROM (SELECT id, name, window_start, window_end FROM "
    + TUMBLE.format("{person}") + " GROUP BY id, name, window_start, window_end) p JOIN (SELECT seller, window_start, window_end "
    "FROM " + TUMBLE.format("{auction}") + " GROUP BY seller, window_start, window_end) a "
    "ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end",
    "q9": "SELECT id, item_name, seller, category, bidder, price, bid_at FROM (SELECT a.id, a.item_name, a.seller, a.category, "
    "b.bidder, b.price, b.date_time AS bid_at, ROW_NUMBER() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time ASC) AS n "
    "FROM {auction} a JOIN {bid} b ON a.id = b.auction WHERE b.date_time BETWEEN a.date_time AND a.expires) WHERE n <= 1",
    "q10": f"SELECT auction, bidder, price, date_time, extra, {DAY}, DATE_FORMAT(date_time, 'HH:mm') FROM {{bid}}",
    "q11": "SELECT bidder, window_start, window_end, COUNT(*) FROM TABLE(SESSION(TABLE {bid} PARTITION BY bidder, "
    "DESCRIPTOR(date_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
    "q12": "SELECT bidder, window_start, window_end, COUNT(*) FROM " + TUMBLE.format("{bid}") + " "
    "GROUP BY bidder, window_start, window_end",
    "q13": "SELECT b.auction, b.bidder, b.price, b.date_time, s.`value` FROM {bid} b JOIN {side} s "
    "ON MOD(b.auction, 10000) = s.`key`",
    "q14": "SELECT auction, bidder, 0.908 * price, CASE WHEN HOUR(date_time) BETWEEN 8 AND 18 THEN 'day' "
    "WHEN HOUR(date_time) <= 6 OR HOUR(date_time) >= 20 THEN 'night' ELSE 'other' END, date_time, extra, "
    "CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'c', '')) FROM {bid} "
    "WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT {DAY}, {BIDS}, {OF_EACH} FROM {{bid}} GROUP BY {DAY}",
    "q16": f"SELECT channel, {DAY}, MAX(DATE_FORMAT(date_time, 'HH:mm')), {BIDS}, {OF_EACH} FROM {{bid}} GROUP BY channel, {DAY}",
    "q17": f"SELECT auction, {DAY}, {BIDS}, MIN(price), MAX(price), AVG(price), SUM(price) FROM {{bid}} GROUP BY auction, {DAY}",
    "q18": "SELECT auction, bidder, price, channel, url, date_time, extra FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY bidder, auction ORDER BY date_time DESC) AS n FROM {bid}) WHERE n <= 1",
    "q19": "SELECT auction, bidder, price, date_time FROM (SELECT *, ROW_NUMBER() OVER "
    "(PARTITION BY auction ORDER BY price DESC) AS n FROM {bid}) WHERE n <= 10",
    "q20": "SELECT b.auction, b.bidder, b.price, b.channel, b.date_time, a.item_name, a.seller, a.category "
    "FROM {bid} b JOIN {auction} a ON b.auction = a.id WHERE a.category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE LOWER(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
    f"WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {CHANNEL} END FROM {{bid}} "
    f"WHERE {CHANNEL} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')",
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3), SPLIT_INDEX(url, '/', 4), SPLIT_INDEX(url, '/', 5) "
    "FROM {bid}",
}  # fmt: skip
"""Without q6: Flink refuses OVER above a result that changes."""


def main() -> None:
    directory, parallelism, *queries = sys.argv[1:]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    environment.get_config().set("parallelism.default", parallelism)
    for suffix in ("", "_few", "_long"):
        for name in (*COLUMNS, "side"):
            path = Path(directory).resolve() / f"{name}{suffix.replace('_', '-')}.csv"
            pattern = SIDE if name == "side" else TABLE
            environment.execute_sql(pattern.format(name=f"{name}{suffix}", columns=COLUMNS.get(name), path=path))
    found: dict[str, dict[str, float]] = {}
    for asked in queries:
        query, _, size = asked.partition("-")
        whole = f"_{size}" if size else ""
        texts = {
            suffix: QUERIES[query].format(**{name: f"{name}{suffix}" for name in (*COLUMNS, "side")})
            for suffix in ("_few", whole)
        }
        kinds = _sql_types(environment.sql_query(texts[whole]))
        columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds))
        environment.execute_sql(f"CREATE TABLE sink_{query} ({columns}) WITH ('connector' = 'blackhole')")
        seconds: dict[str, list[float]] = {"_few": [], whole: []}
        for suffix in ("_few", "_few", whole, whole):  # the first job also starts Flink itself
            began = time.perf_counter()
            environment.execute_sql(f"INSERT INTO sink_{query} {texts[suffix]}").wait()
            seconds[suffix].append(time.perf_counter() - began)
        found[query] = {"start_up": min(seconds["_few"]), "whole": min(seconds[whole])}
    print(json.dumps(found))


def _sql_types(table: Any) -> list[str]:
    """Return the types of a query's columns as Flink writes them in a statement."""
    kinds = table._j_table.getResolvedSchema().getColumnDataTypes()
    return [str(kind.getLogicalType().asSerializableString()).removesuffix(" NOT NULL") for kind in kinds]


if __name__ == "__main__":
    main()
