"""Everything that a query can get wrong, in the words and at the places in which it is told."""

# ruff: noqa: E501 - a mistake stands on one line, as it is printed

from __future__ import annotations

import pytest

from cql_streams import planned
from hayase.core import algebra, bags
from hayase.core.errors import DeclarationError

ALONE = "write them after the only stream of a select with aggregates: select avg(x) from s [Rows 10, 100]"
KNOWN = ", ".join(sorted({*algebra.AGGREGATES, *bags.BAG_FUNCTIONS}))

CLAUSES: dict[str, list[str]] = {  # Clauses that have no meaning over a relation that changes all the time, or none yet.
    "select a from s order by a limit 0": [
        "1:34: LIMIT takes a whole number from 1 on; leave the clause out to keep all rows",
    ],
    "select a from s order by a limit a": [
        "1:34: LIMIT takes a whole number from 1 on; leave the clause out to keep all rows",
    ],
    "select a from s order by a limit 3 offset 1.5": [
        "1:43: OFFSET takes a whole number from 0 on",
    ],
    "select a from s order by a limit 10%": [
        "1:34: LIMIT in percent is not supported; write a number of rows",
    ],
    "select a from s fetch first 2 rows with ties": [
        "1:29: WITH TIES needs an order; write ORDER BY before it",
    ],
    "select a from s order by all limit 1": [
        "1:17: ORDER BY ALL is not supported; name the columns",
    ],
    "select a from s order by 2 limit 1": [
        "1:26: ORDER BY 2 is not an entry of the select list",
    ],
    "select a from s order by nope": [
        '1:26: unknown column "nope" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select distinct a from s order by b limit 1": [
        "1:35: ORDER BY of this query can name only columns of its result; name a column of the result, or order an outer query: select * from (...) order by ... limit ...",
    ],
    "select a from s union select c from t order by a + 1 limit 2": [
        "1:48: ORDER BY of this query can name only columns of its result; name a column of the result, or order an outer query: select * from (...) order by ... limit ...",
    ],
    "select a from s tablesample 10%": [
        "1:15: TABLESAMPLE is not supported",
    ],
    "select a from s using sample 10%": [
        "1:17: sampling is not supported",
    ],
    "select a into z from s": [
        "1:10: INTO is not supported; the result is a stream of the query's name",
    ],
}  # fmt: skip

SUBQUERIES: dict[str, list[str]] = {  # Window functions and sub-queries where they have no place.
    "select a from s where row_number() over () = 1": [
        "1:23: window functions are not supported here; OVER is allowed in the select list, in QUALIFY and in ORDER BY; elsewhere, compute it in a sub-query",
    ],
    "select median(a) over () from s": [
        "1:8: median with OVER is not supported; there are avg, bool_and, bool_or, count, cume_dist, dense_rank, first_value, lag, last_value, lead, max, min, nth_value, ntile, percent_rank, rank, row_number, stddev, stddev_pop, stddev_samp, sum, var_pop, var_samp, variance",
    ],
    "select rank() over (partition by k) from s": [
        "1:8: rank needs an order; write ORDER BY after OVER (",
    ],
    "select rank(a) over (order by a) from s": [
        "1:8: rank takes 0 arguments",
    ],
    "select lag(a) over (order by a rows 1 preceding) from s": [
        "1:8: lag has no frame; leave the frame out",
    ],
    "select sum(zz) over () from s": [
        '1:12: unknown column "zz" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select sum(sum(a) over ()) over () from s": [
        "1:8: a window function inside of another one is not supported; compute the inner one in a sub-query",
    ],
    "select sum(a) over w from s": [
        '1:8: there is no window "w"; write WINDOW w AS (...)',
    ],
    "select sum(a) over v from s window w as (order by b)": [
        '1:8: there is no window "v"; known are: w',
    ],
    "select sum(a) over (w partition by a) from s window w as (partition by b)": [
        '1:8: a window that begins with "w" has its PARTITION BY, and cannot have another one; leave one of them out',
    ],
    "select sum(a) over (w order by a) from s window w as (order by b)": [
        '1:8: a window that begins with "w" has its ORDER BY, and cannot have another one; leave one of them out',
    ],
    "select sum(a) over (w) from s window w as (order by b rows 1 preceding)": [
        '1:8: the window "w" has a frame, and cannot be extended; write OVER w, or write the frame only where it is used',
    ],
    "select a from s [Range 5 seconds Order By a]": [
        "1:34: Order By is for windows by rows; write it like [Rows 5 Order By a] or leave it out",
    ],
    "select a from s [Rows 5 Order By a + 1]": [
        "1:34: Order By takes columns; write them like [Rows 5 Order By a, b desc nulls first]",
    ],
    "select a from s [Rows 5 Order By nothing]": [
        '1:34: unknown column "nothing" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select lead(a) over (order by time) from s": [
        "1:8: lead over a stream needs records that have not come yet; write a window after the stream, such as [Unbounded] or [Range 1 hour]: then it is over the rows at each instant",
    ],
    "select a from s where a = any (select a from t)": [
        "1:31: ANY or ALL with a sub-query is not supported; use IN or EXISTS in WHERE",
    ],
    "select k, count(*) from s group by k having k in (select k from t)": [
        "1:45: IN with a sub-query beside GROUP BY or an aggregate is not supported; put the grouped query into FROM, and the sub-query into the WHERE around it",
    ],
    "select a from s where (k, a) in (select k, a from t)": [
        "1:23: IN with several values is not supported; write EXISTS with one condition for each",
    ],
    "select a from s where k in (select k, a from t)": [
        "1:36: IN compares with one column, and this is 2; select one",
    ],
}  # fmt: skip

GROUPINGS: dict[str, list[str]] = {  # Column aliases, natural joins, grouping sets.
    "select x from s as v(x, x)": [
        "1:15: two columns get the same name; use different aliases",
    ],
    "select x from (select k from s) as v(x, y)": [
        "1:15: 2 column aliases for 1 columns; there are k",
    ],
    "select v.time from s as v(x)": [
        '1:8: unknown column "time" in "v"; known are: a, b, d, k, l, p, x',
    ],
    "select 1 from (select a from s) x natural join (select c from t) y": [
        "1:35: NATURAL JOIN without a column of the same name on both sides; write JOIN ... ON",
    ],
    "select k, a from s group by rollup (k)": [
        '1:11: "a" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
    "select k, grouping(a) from s group by k": [
        "1:11: GROUPING takes expressions of GROUP BY; write one of those",
    ],
    "select a as x from s union by name select k as x from s": [
        '1:43: column "x": a number and a text are different kinds of values; write CAST(... AS bigint) around one side',
    ],
}  # fmt: skip

RELATIONS: dict[str, list[str]] = {  # What cannot stand in FROM, DISTINCT ON, groupings, and stars.
    "select a from s, lateral (select c from t) x": [
        "1:18: LATERAL is not supported; join with a condition instead",
    ],
    "select a from s cross join lateral (select c from t) x": [
        "1:28: LATERAL is not supported; join with a condition instead",
    ],
    "select a from s left join t on s.k = t.k and exists (select 1 from u)": [
        "1:46: a sub-query in ON of a join that is not an inner join is not supported; filter a side of the join: left join (select ... from b where exists (...)) as b on ...",
    ],
    "select a from s semi join t on s.a in (select c from t)": [
        "1:32: a sub-query in ON of a join that is not an inner join is not supported; filter a side of the join: left join (select ... from b where exists (...)) as b on ...",
    ],
    "select s.a from s join t on s.k = t.k and s.a = (select c, k from t)": [
        "1:49: a scalar sub-query selects one column; select one",
    ],
    "select a from s asof right join t on s.time >= t.time": [
        "1:17: ASOF RIGHT JOIN is not supported; write ASOF JOIN or ASOF LEFT JOIN",
    ],
    "select a from s asof semi join t on s.time >= t.time": [
        "1:17: ASOF SEMI JOIN is not supported; write ASOF JOIN or ASOF LEFT JOIN",
    ],
    "select a from s asof join t on s.k = t.k": [
        "1:17: an ASOF JOIN has one comparison with >=, >, <= or <, and this has 0; write ON a.key = b.key AND a.time >= b.time, or USING (key, time)",
    ],
    "select a from s asof join t on s.time >= t.time and t.c < s.a": [
        "1:17: an ASOF JOIN has one comparison with >=, >, <= or <, and this has 2; write ON a.key = b.key AND a.time >= b.time, or USING (key, time)",
    ],
    "select a from s asof join t on s.time >= t.time and s.a > 3": [
        "1:53: this condition of an ASOF JOIN is not supported; it takes equalities and one comparison between both sides; filter in WHERE or in a sub-query in FROM",
    ],
    "select a from s positional join t": [
        "1:17: POSITIONAL JOIN is not supported; write JOIN ... ON",
    ],
    "select distinct on (z) a from s": [
        '1:21: unknown column "z" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select k from range(3)": [
        "1:15: table functions are not supported; a query reads streams and other queries",
    ],
    "select k from unnest([1]) t": [
        "1:15: unnest of no relation is not supported; write it behind the relation that has the list: from s, unnest(s.list) as u(x)",
    ],
    "select x from s left join unnest(s.l) as u(x) on true": [
        "1:27: unnest with a condition is not supported; write CROSS JOIN, or a comma",
    ],
    "with recursive w as (select k from s) select k from w": [
        "1:1: WITH RECURSIVE is not supported; a query cannot read itself",
    ],
    "select k from (s join t on true) j": [
        "1:15: an alias after a joined relation is not supported; name the streams in it",
    ],
    'select k from s as "a.b"': [
        '1:15: "a.b" cannot name a relation; leave the dot out',
    ],
    "select * exclude (kk) from s": [
        '1:19: * has no column "kk"; did you mean "k"?',
    ],
    "select k from s where k = any(['a'])": [
        "1:23: ANY with a list is not supported; write list_contains(list, value)",
    ],
    "select listagg(k, ',') within group (order by x) as l from s [Rows 3]": [
        '1:1: Unknown ordered aggregate "listagg"',
    ],
    "select * a from s": [
        "1:8: * AS is not supported",
    ],
    "select s.k from db.s": [
        '1:17: "db.s" is not a stream; write its plain name',
    ],
}  # fmt: skip

STATEMENTS: dict[str, list[str]] = {  # What is not a query.
    "select k": [
        "1:8: a query needs a stream; nothing has a time without one: write select ... from ...",
    ],
    "delete from s": [
        "1:1: a query begins with select; write: select ... from ...",
    ],
    "pivot s on k": [
        "1:1: a query begins with select; write: select ... from ...",
    ],
    "select k from s; select k from t": [
        "1:1: one query is one statement; this text has several; write: select ... from ...",
    ],
    "select sum(, a) from s group by k": [
        '1:12: syntax error at or near ","; check what comes right before it: something is missing there, or too much',
    ],
    "select 'a from s": [
        "1:1: cannot read the query; is a quote left open?",
    ],
    "select end from s": [
        '1:8: syntax error at or near "end"; a column or stream of that name is written in double quotes: "end"',
    ],
}  # fmt: skip

CORRELATIONS: dict[str, list[str]] = {  # Columns of the query around a sub-query.
    "select k from s where k in (select c from t where t.k = s.k group by c)": [
        "1:57: a sub-query with GROUP BY, aggregates, set operations, OVER, LIMIT or DISTINCT ON cannot name columns of the query around it; select what is to be compared, and use IN, or join with the sub-query",
    ],
    "select k from s where exists (select c from t where t.k = s.k union select 1 from u)": [
        "1:59: a sub-query with GROUP BY, aggregates, set operations, OVER, LIMIT or DISTINCT ON cannot name columns of the query around it; select what is to be compared, and use IN, or join with the sub-query",
    ],
    "select s.k from s, (select c from t where t.k = s.k) x": [
        "1:49: correlated sub-queries in FROM are not supported; select the column in the sub-query, and compare it in ON or WHERE",
    ],
    "select k from s where exists (select 1 from t where exists (select 1 from u where u.k = s.k))": [
        "1:89: \"s.k\" belongs to the query around this sub-query; name columns of the query around a sub-query only in plain conditions of the sub-query's WHERE",
    ],
    "select k from s where exists (select 1 from t join u on t.k = s.k)": [
        "1:63: \"s.k\" belongs to the query around this sub-query; name columns of the query around a sub-query only in plain conditions of the sub-query's WHERE",
    ],
}  # fmt: skip

STREAMS: dict[str, list[str]] = {  # Istream and its like.
    "select Istream(k) from s union select k from t": [
        "1:8: Istream must enclose a whole query, once; write it before the query, in parentheses, or before a sub-query in FROM",
    ],
    "Istream(select Dstream(k) from s)": [
        "1:16: Dstream must enclose a whole query, once; write it before the query, in parentheses, or before a sub-query in FROM",
    ],
}  # fmt: skip

WINDOWS: dict[str, list[str]] = {  # Windows.
    "select count(*) from s [Rows 5, 5]": [
        "1:30: the window of 5 is named twice; name every length once",
    ],
    "select count(*) from s [Rows 5, ]": [
        "1:25: a number of rows is missing after Rows; write it like Rows 5",
    ],
    "select count(*) from s [Range 1 second, 1000 ms Slide 1 second]": [
        "1:31: the window of 1000 ms is named twice; name every length once",
    ],
    "select k from s [Rows 5, 10]": [
        f"1:17: several windows without an aggregate are not supported; {ALONE}",
    ],
    "select count(*) from s [Rows 5, 10], t": [
        f"1:24: several windows in a join are not supported; {ALONE}",
    ],
    "select k from s where exists (select 1 from s [Rows 5, 6] s2 where s2.k = s.k)": [
        f"1:47: several windows in a join are not supported; {ALONE}",
    ],
    'select count(*) as "window" from s [Rows 5, 10]': [
        '1:8: "window" is the column that names the window; name this one differently with AS',
    ],
    "select k from s [Rows 0]": [
        "1:23: 0 is not a number of rows after Rows; give 1 or more, below 2147483648",
    ],
    "select k from s [Rows -3]": [
        "1:23: -3 is not a number of rows after Rows; give 1 or more, below 2147483648",
    ],
    "select k from s [Rows 1.5]": [
        '1:23: "1.5" is not a number of rows; write it like Rows 5 or Rows 5 Slide 2',
    ],
    "select k from s [Rows]": [
        "1:18: a number of rows is missing after Rows; write it like Rows 5",
    ],
    "select k from s [Rows 5 Slide 0]": [
        "1:31: 0 is not a number of rows after Slide; give 1 or more, below 2147483648",
    ],
    "select k from s [Range 0 seconds]": [
        "1:24: the duration after Range is 0; it must be longer; [Now] is as short as can be",
    ],
    "select k from s [Range -1 seconds]": [
        "1:24: the duration after Range is negative; it must be longer than 0",
    ],
    "select k from s [Range 1 parsec]": [
        '1:24: "1 parsec" is not a duration; write a number and a unit, like "10 minutes", "500 ms" or "1h 30m"',
    ],
    "select k from s [Range]": [
        "1:18: a duration is missing after Range; write it like 10 seconds",
    ],
    "select k from s [Range 1 minute Slide]": [
        "1:33: a duration is missing after Slide; write it like 10 seconds",
    ],
    "select k from s\n  [Rang 1 minute]": [
        '2:4: "Rang" does not begin a window; did you mean "Range"?',
    ],
    "select k from s [5]": [
        '1:18: "5" does not begin a window; write [Range 10 seconds], [Rows 5], [Partition By k Rows 5], [Now], [Unbounded], [Tumble 10 seconds], [Hop 1 minute Every 10 seconds], [Cumulate 1 hour By 1 minute] or [Session 10 seconds]',
    ],
    "select k from s []": [
        "1:17: a window is missing between the brackets; write [Range 10 seconds], [Rows 5], [Partition By k Rows 5], [Now], [Unbounded], [Tumble 10 seconds], [Hop 1 minute Every 10 seconds], [Cumulate 1 hour By 1 minute] or [Session 10 seconds]",
    ],
    "select k from s [Now 3]": [
        '1:22: "3" cannot follow Now; write [Range 10 seconds], [Rows 5], [Partition By k Rows 5], [Now], [Unbounded], [Tumble 10 seconds], [Hop 1 minute Every 10 seconds], [Cumulate 1 hour By 1 minute] or [Session 10 seconds]',
    ],
    "select k from s [Rows 5": [
        '1:23: cannot read the query near "5"; close the "["',
    ],
    "select k from s [Rows 5] x [Rows 3]": [
        "1:28: a stream has one window; remove one of the two",
    ],
    "select k from s [Partition Rows 3]": [
        "1:28: Partition must be followed by By; write it like [Partition By k Rows 5]",
    ],
    "select k from s [Partition By Rows 3]": [
        "1:28: Partition By needs Rows, or a window with bounds, after its columns; write it like [Partition By k Rows 5] or [Partition By k Session 30 minutes]",
    ],
    "select k from s [Partition By k]": [
        "1:28: Partition By needs Rows, or a window with bounds, after its columns; write it like [Partition By k Rows 5] or [Partition By k Session 30 minutes]",
    ],
    "select k from s [Partition By k a Rows 3]": [
        "1:31: Partition By takes columns; name them with commas: [Partition By a, b Rows 5]",
    ],
    "select k from s [Partition By upper(k) Rows 3]": [
        "1:31: Partition By takes columns; name them with commas: [Partition By a, b Rows 5]",
    ],
    "select k from s [Partition By kk Rows 3]": [
        '1:31: unknown column "kk" in "s"; did you mean "k"?',
    ],
    "select k from ch c [Unbounded]": [
        "1:20: [Unbounded] behind a relation is not supported; leave it out, or write Istream(...) [Unbounded] for all rows that ever appeared",
    ],
    "select k from (select k from s [Rows 2]) [Unbounded]": [
        "1:42: [Unbounded] behind a relation is not supported; leave it out, or write Istream(...) [Unbounded] for all rows that ever appeared",
    ],
    "select k from (select k, c as valid_to from t) [Rows 2]": [
        '1:26: the name "valid_to" is reserved for the lifetime of a row; choose another name with AS',
    ],
    "select k from s where k in Istream(select k from t)": [
        "1:28: Istream must enclose a whole query, once; write it before the query, in parentheses, or before a sub-query in FROM",
    ],
}  # fmt: skip

BOUNDS: dict[str, list[str]] = {  # Windows with bounds.
    "select k from s [Tumble]": [
        "1:18: a duration is missing after Tumble; write it like 10 seconds",
    ],
    "select k from s [Tumbel 5 s]": [
        '1:18: "Tumbel" does not begin a window; did you mean "Tumble"?',
    ],
    "select k from s [Hop 10 minutes]": [
        "1:18: Hop needs Every after its length; write it like [Hop 10 minutes Every 1 minute]",
    ],
    "select k from s [Tumble 10 s Slide 5 s]": [
        "1:30: Slide cannot follow Tumble; write it like [Tumble 10 minutes]",
    ],
    "select k from s [Cumulate 1 hour By 7 minutes]": [
        "1:34: the length 1 hour is not a multiple of the step after By; write it like [Cumulate 1 hour By 10 minutes]",
    ],
    "select k from s [Session 5 s Offset 1 s]": [
        "1:30: a session has no Offset; it begins with its first record; leave Offset out",
    ],
    "select k from s [Tumble 5 s Keep 1 s Keep 2 s]": [
        "1:38: Keep is written twice; leave one of them out",
    ],
    "select k from s [Tumble 5 s Early]": [
        "1:29: a duration is missing after Early; write it like 10 seconds",
    ],
    "select k from s [Range 10 s Offset 1 s]": [
        "1:29: Offset needs Slide before it; write it like [Range 1 day Slide 1 day Offset 9 hours]",
    ],
    "select k from u [Tumble 1500 us]": [
        '1:17: the times of "u" are whole numbers of 1 ms, and 1500 us is none; write durations that are multiples of 1 ms',
    ],
    "select s.k from s [Session 5 s], t where s.k = t.k": [
        "1:19: a session in a join needs Partition By; write the columns that a session is about: [Partition By user Session 30 minutes]",
    ],
    "select count(*) as n from s [Session 5 s] group by concat(k, window_start)": [
        "1:52: a group that mixes columns with the bounds of a session needs Partition By; write the columns that a session is about: [Partition By user Session 30 minutes]",
    ],
    "select k, is_final from s [Tumble 5 s]": [
        '1:11: unknown column "is_final" in "s"; known are: a, b, d, k, l, p, time, window_end, window_start',
    ],
}  # fmt: skip

NAMES: dict[str, list[str]] = {  # Names: unknown, ambiguous, double, reserved.
    "select k from ss": [
        '1:15: unknown stream "ss"; did you mean "s"?',
    ],
    "select nope from s": [
        '1:8: unknown column "nope" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select *\nfrom s where\n  a > 1 and\n  kk = 'x'": [
        '4:3: unknown column "kk" in "s"; did you mean "k"?',
    ],
    "select x.nope, z.k from s x": [
        '1:8: unknown column "nope" in "x"; known are: a, b, d, k, l, p, time',
        '1:16: unknown stream "z"; this query reads "x"',
    ],
    "select nope from s, u": [
        '1:8: unknown column "nope" in "s" or "u"; known are: a, b, d, k, l, p, time, ts, z',
    ],
    "select k from s, t": [
        '1:8: the column "k" is ambiguous; say which: "s.k" or "t.k"',
    ],
    "select z.* from s": [
        '1:8: unknown stream "z"; this query reads "s"',
    ],
    "select k from s join t using (zz)": [
        '1:31: unknown column "zz" in "s"; known are: a, b, d, k, l, p, time',
        '1:31: unknown column "zz" in "t"; known are: a, c, k, time',
    ],
    "select k from s join u using (k, time)": [
        '1:34: unknown column "time" in "u"; known are: k, ts, z',
    ],
    "select a from s x, t X": [
        '1:20: two relations are called "X"; name one of them differently with AS',
    ],
    "select a + 1 as c from s where c > 1": [
        '1:32: unknown column "c"; it is a name of the select list; write its expression here',
    ],
    "select k, t.k from s join t using (k)": [
        '1:11: two columns of the result are called "k"; name one of them differently with AS',
    ],
    "select *, k from s": [
        '1:11: two columns of the result are called "k"; name one of them differently with AS',
    ],
    "select k as __k from s": [
        '1:8: the name "__k" begins with "__", which is reserved; choose another name with AS',
    ],
    "select k as Valid_From from s": [
        '1:8: the name "Valid_From" is reserved for the lifetime of a row; choose another name with AS',
    ],
    "select k as row_id from s union select k from t": [
        '1:8: the name "row_id" is reserved for the lifetime of a row; choose another name with AS',
    ],
}  # fmt: skip

EXPRESSIONS: dict[str, list[str]] = {  # Expressions.
    "select now() as n, random() as r, current_date as d from s": [
        "1:8: now() is not supported; a batch that runs again must give the same rows; use the columns of the record",
        "1:20: random() is not supported; a batch that runs again must give the same rows; use the columns of the record",
        "1:35: current_date is not supported; a batch that runs again must give the same rows; use the columns of the record",
    ],
    "select a from s where a": [
        "1:23: a condition must be a boolean and this is a int32; compare it with something",
    ],
    "select a from s where a > 'x' || 1": [
        "1:23: a number is compared with a text; write CAST(... AS bigint) around one side",
    ],
    "select nosuch(a) from s": [
        '1:8: unknown function "nosuch"; expressions have the functions of DuckDB, and those of your own: @p.function, or '
        "functions: in the pipeline's file",
    ],
    "select date_trunk('day', time) as d from s": ['1:8: unknown function "date_trunk"; did you mean "date_trunc"?'],
    "select a::foo as b from s": [
        '1:8: unknown type "foo"; types are those of DuckDB, like bigint, double, varchar',
    ],
    "select at from s": [
        '1:11: syntax error at or near "from"; "at" is a word of SQL; a column of that name is written in double quotes: "at"',
    ],
    "select a from s where at > 1": [
        '1:26: syntax error at or near ">"; "at" is a word of SQL; a column of that name is written in double quotes: "at"',
    ],
    "select a from s where": [
        '1:17: cannot read the query near "where"; something is missing there: a value, a condition or a query',
    ],
    "select a between 1 from s": [
        '1:20: cannot read the query near "from"; something is missing there: a value, a condition or a query',
    ],
    "select a from": ['1:10: cannot read the query near "from"; name a stream, a table or a query there'],
    "select case when a > 1 then 1 from s": ['1:29: cannot read the query near "1"; close CASE with END'],
    "select cast(a as) from s": ['1:17: cannot read the query near ")"; name a type, like CAST(x AS bigint)'],
    "select a from s join r": [
        '1:22: syntax error at or near "r"; it ends too early, as a JOIN without ON; or put "r" in double quotes, if it is a name',
    ],
    "select as struct a from s": ["1:1: SELECT AS is not supported"],
    "select a from s for update": ["1:1: FOR UPDATE is not supported"],
    "select interval 1 day as d from s": [
        "1:8: a stream cannot hold a value of type interval; keep it as a number: extract(epoch from ...)",
    ],
    "select null as x from s": [
        "1:8: a stream cannot hold a value of type null; say which type it is: cast(null as string)",
    ],
    "select columns(*) from s": [
        "1:16: * inside an expression is not supported",
    ],
    "select unnest(a) as x from s": [
        "1:15: unnest takes a list, and this is a int32",
    ],
    "select a from s where unnest(l) = 1": [
        "1:23: unnest here is not supported; write it in the select list, or in FROM: from s, unnest(s.list) as u(x)",
    ],
}  # fmt: skip

AGGREGATES: dict[str, list[str]] = {  # Aggregates and groups.
    "select fsum(a), lttb(a, b) from s": [
        f"1:8: the aggregate fsum is not supported; there are {KNOWN}",
        f"1:17: the aggregate lttb is not supported; there are {KNOWN}",
    ],
    "select max(a, b), min(a, 0), arg_max(a, b, 1.5) from s": [
        "1:15: b must be a literal number; write a whole number, like 3",
        "1:26: 0 must be a literal number; write a whole number, like 3",
        "1:44: 1.5 must be a literal number; write a whole number, like 3",
    ],
    "select median(a, b), quantile_cont(a), string_agg() from s": [
        "1:8: median takes one argument",
        "1:22: quantile_cont takes two arguments; write quantile_cont(x, 0.5), or percentile_cont(0.5) within group (order by x)",
        "1:40: string_agg takes one argument or two arguments; write string_agg(x, ', ')",
    ],
    "select quantile_cont(a, b), string_agg(k, k) from s": [
        "1:25: b must be a literal value; write it out, like 0.5",
        "1:43: k must be a literal value; write it out, like 0.5",
    ],
    "select list(distinct a order by b), corr(distinct a, b) from s": [
        "1:8: list(DISTINCT ...) cannot be ordered by another column; order by the argument itself, or leave the order out",
        "1:37: corr(DISTINCT ...) is not supported; take the distinct values in a sub-query, and aggregate those",
    ],
    "select percentile_cont(0.5) within group (order by z) from s": [
        '1:52: unknown column "z" in "s"; known are: a, b, d, k, l, p, time',
    ],
    "select approx_quantile(a, b) from s [Rows 10]": [
        "1:27: b must be a literal number; write it out, like 0.5",
    ],
    "select approx_quantile(a, 2) from s [Rows 10]": [
        "1:24: approx_quantile takes a fraction between 0 and 1 as its second argument; 0.5 is the median",
    ],
    "select arg_min(a) from s [Rows 10]": [
        "1:8: arg_min takes two arguments",
    ],
    "select sum(distinct k), first(distinct a) from s": [
        "1:21: there is no sum of a string; use integers, floats or decimals, or cast to one of them",
        "1:25: first(DISTINCT ...) is not supported; take the distinct values in a sub-query, and aggregate those",
    ],
    "select sum(k), avg(l) from s": [
        "1:12: there is no sum of a string; use integers, floats or decimals, or cast to one of them",
        "1:20: there is no avg of a list<item: int32>; use integers, floats or decimals, or cast to one of them",
    ],
    "select sum(sum(a)) from s": [
        "1:12: the aggregate sum is not supported here; aggregates are allowed in the select list and in HAVING",
    ],
    "select sum(nope) filter (where a) from s": [
        '1:12: unknown column "nope" in "s"; known are: a, b, d, k, l, p, time',
        "1:32: a condition must be a boolean and this is a int32; compare it with something",
    ],
    "select k from s where sum(a) > 1": [
        "1:23: the aggregate sum is not supported here; aggregates are allowed in the select list and in HAVING",
    ],
    "select k from s group by sum(a)": [
        '1:8: "k" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
        "1:26: an aggregate cannot be a key; group by columns of the record",
    ],
    "select count(*) from s group by 1": [
        "1:33: an aggregate cannot be a key; group by columns of the record",
    ],
    "select count(*) from s group by 2": [
        "1:33: GROUP BY 2 is not an entry of the select list",
    ],
    "select * from s group by 1": [
        '1:8: "time" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
        "1:26: GROUP BY 1 is not an entry of the select list",
    ],
    "select a, count(*) from s group by k": [
        '1:8: "a" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
    "select a + b as x, count(*) from s group by a": [
        '1:12: "b" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
    "select *, count(*) from s group by k": [
        '1:8: "time" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
    "select count(*) from s group by k having a > 1": [
        '1:42: "a" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
    "select 1 as x from s having true": [
        "1:29: HAVING without GROUP BY or an aggregate is not supported; use WHERE",
    ],
}  # fmt: skip

TYPES: dict[str, list[str]] = {  # Types of distinct rows, set operations and conditions.
    "select distinct map([k], [a]) as m from s": [
        "1:17: a map<string, int32> cannot be a key; use its atomic parts as key columns",
    ],
    "select count(*) from s group by map([k], [a])": [
        "1:33: a map<string, int32> cannot be a key; use its atomic parts as key columns",
    ],
    "select k from s order by l limit 1": [
        "1:26: rows cannot be ordered by a list<item: int32>; use its atomic parts",
    ],
    "select max(l) from s": [
        "1:12: there is no max of a list<item: int32>; use numbers, booleans, texts or times",
    ],
    "select k from s asof join t on s.l >= s.l": [
        "1:32: this condition of an ASOF JOIN is not supported; it takes equalities and one comparison between both sides; filter in WHERE or in a sub-query in FROM",
    ],
    "select k, a from s union select k from t": [
        "1:33: UNION of 2 and 1 columns; select as many on both sides; columns are matched by position",
    ],
    "select a from s union select k from t": [
        '1:30: column "a": a number and a text are different kinds of values; write CAST(... AS bigint) around one side',
    ],
    "select s.k from s join t on s.k + 1": [
        "1:29: Binder Error: No function matches the given name and argument types '+(VARCHAR, INTEGER_LITERAL)'. You might need to add explicit type casts.",
    ],
    "select $1 from s": [
        "1:8: parameters are not supported",
    ],
    "select 1 from s having a > 1": [
        '1:24: "a" is neither in GROUP BY nor in an aggregate; group by it, or count or sum it',
    ],
}  # fmt: skip


ALL = {
    **CLAUSES,
    **SUBQUERIES,
    **GROUPINGS,
    **RELATIONS,
    **STATEMENTS,
    **CORRELATIONS,
    **STREAMS,
    **WINDOWS,
    **BOUNDS,
    **NAMES,
    **EXPRESSIONS,
    **AGGREGATES,
    **TYPES,
}


@pytest.mark.parametrize("text", ALL)
def test_a_mistake_is_named_and_placed(text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        planned(text)
    assert [str(each) for each in caught.value.mistakes] == ALL[text]


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(DeclarationError, match="1:1: the query is nested too deeply; cut it into several"):
        planned(f"select {'(' * 500}a{')' * 500} from s")


@pytest.mark.parametrize("text", ["", "-- nothing", ";"])
def test_nothing_is_no_query(text: str) -> None:
    with pytest.raises(DeclarationError, match="there is no query in this text"):
        planned(text)
