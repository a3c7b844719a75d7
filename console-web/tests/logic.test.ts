import { describe, expect, test } from "vitest";
import type { Lifetime } from "../src/api";
import { againText, connectorSummary, labelOf, movesTexts } from "../src/connector_text";
import { Exact, cellText, compactJson, exactNumber, parseJson, prettyJson } from "../src/exact_json";
import { axisLabel, compact, duration, isoText, microseconds } from "../src/format";
import { alike, editOf, faultyColumns } from "../src/letter_edit";
import { groupColumn, lanesOf } from "../src/lifetime_lanes";
import { panned, ticks, within, zoomed } from "../src/timeline_view";

describe("JSON with all digits", () => {
  test("numbers that a double cannot hold keep their text", () => {
    for (const text of ["12345678901234567890", "0.12345678901234567", "9007199254740993", "-1.0000000000000000001"]) {
      expect(exactNumber(Number(text), text)).toEqual(new Exact(text));
    }
    for (const text of ["7", "-1.5", "0.1", "1e3", "9007199254740991"]) expect(exactNumber(Number(text), text)).toBe(Number(text));
    expect(compactJson({ big: new Exact("12345678901234567890"), plain: 1.5 })).toBe('{"big": 12345678901234567890, "plain": 1.5}');
    expect(parseJson('{"a": [1, "x", null]}')).toEqual({ a: [1, "x", null] });
  });

  test("cells and pretty records", () => {
    expect(cellText(null)).toBe("null");
    expect(cellText("a")).toBe("a");
    expect(cellText([1, "x"])).toBe('[1, "x"]');
    expect(cellText(new Exact("1e400"))).toBe("1e400");
    expect(prettyJson({ a: 1, b: { c: [] } })).toBe('{\n  "a": 1,\n  "b": {"c": []}\n}');
  });
});

describe("formats", () => {
  test("numbers and durations", () => {
    expect([0, 0.25, 7, 12_345, 123_456, 2_400_000].map(compact)).toEqual(["0", "0.3", "7", "12,345", "123k", "2.4M"]);
    expect([0.0004, 0.38, 2.5, 95, 7_200].map(duration)).toEqual(["0 ms", "380 ms", "2.5 s", "2 min", "2 h"]);
    expect(compact(null)).toBe("–");
  });

  test("instants as text and back", () => {
    for (const us of [1_767_225_601_000_000, 1_767_225_601_000_001, 1_500_000, -1]) expect(microseconds(isoText(us))).toBe(us);
    expect(isoText(1_767_225_601_500_000)).toBe("2026-01-01T00:00:01.5Z");
    expect(microseconds("2026-01-01 09:00:01+09:00")).toBe(1_767_225_601_000_000);
    expect(microseconds("2026-01-01")).toBe(1_767_225_600_000_000);
    for (const text of ["soon", "2026-13-01 00:00", ""]) expect(microseconds(text)).toBeNull();
    expect(axisLabel(1_767_225_600_000_000, 60e6)).toBe("01-01");
    expect(axisLabel(1_767_225_661_000_000, 1e6)).toBe("00:01:01");
    expect(axisLabel(1_767_225_661_500_000, 5e5)).toBe("01:01.500");
    expect(axisLabel(1_767_225_662_000_000, 5e5)).toBe("01:02.000");
    expect(axisLabel(1_767_225_662_000_010, 10)).toBe("01:02.000010");
  });
});

describe("the range of a timeline", () => {
  const bounds = { start: 0, end: 1000 };

  test("zooming keeps the instant where it is, within the bounds", () => {
    expect(zoomed({ start: 0, end: 1000 }, 0.5, 500, bounds)).toEqual({ start: 250, end: 750 });
    expect(zoomed({ start: 400, end: 600 }, 100, 500, bounds)).toEqual(bounds);
    expect(zoomed({ start: 0, end: 20 }, 0.001, 0, bounds)).toEqual({ start: 0, end: 10 });
  });

  test("panning stops at the bounds", () => {
    expect(panned({ start: 100, end: 300 }, -500, bounds)).toEqual({ start: 0, end: 200 });
    expect(panned({ start: 100, end: 300 }, 5000, bounds)).toEqual({ start: 800, end: 1000 });
    expect(within({ start: -50, end: 5000 }, bounds)).toEqual(bounds);
  });

  test("ticks are round and few", () => {
    const { step, at } = ticks({ start: 1_767_225_601e6, end: 1_767_225_661e6 }, 6);
    expect(step).toBe(10e6);
    expect(at.length).toBe(6);
    expect(at.every((tick) => tick % step === 0)).toBe(true);
  });
});

describe("the lines of a timeline", () => {
  const row = (user: string, from_us: number, to_us: number | null): Lifetime => ({ row: { user, n: from_us }, from_us, to_us, valid_from: from_us, valid_to: to_us });
  const rows = [row("b", 0, 5), row("a", 1, 3), row("b", 3, 9), row("a", 3, null), row("a", 4, 5)];

  test("packed into as few as possible", () => {
    expect(lanesOf(rows, null)).toEqual({ lanes: [0, 1, 1, 2, 3], count: 4, groups: [] });
    expect(lanesOf(rows, null, true).count).toBe(2);
  });

  test("rows of one value together, never two at one place", () => {
    const { lanes, count, groups } = lanesOf(rows, "user");
    expect(groups).toEqual([{ label: "a", first: 0 }, { label: "b", first: 2 }]);
    expect(lanes).toEqual([2, 0, 3, 0, 1]);
    expect(count).toBe(4);
  });

  test("the column to group by has several values, but not one for each row", () => {
    expect(groupColumn(rows, ["n", "user"])).toBe("user");
    expect(groupColumn(rows.slice(0, 2), ["user"])).toBeNull();
  });
});

describe("edits of dead letters", () => {
  test("the faulty columns of a reason", () => {
    expect(faultyColumns('column "amount" must be bigint, not "a lot"\n  File "x"')).toEqual(["amount"]);
    expect(faultyColumns('unknown field "userid"; did you mean "user_id"?')).toEqual(["userid"]);
    expect(faultyColumns("update 1 (by_place.orders), .number: the key is null")).toEqual(["number"]);
    expect(faultyColumns("late: 2026-01-01T00:00:00.5Z is before 2026")).toEqual([]);
  });

  test("similar reasons are alike", () => {
    expect(alike('column "n" must be double, not "a" in 17')).toBe(alike('column "n" must be double, not "b" in 4\ntrace'));
    expect(alike("a 1")).not.toBe(alike("b 1"));
  });

  test("what changed is sent, and all of it if a column goes", () => {
    const before = '{"a": 1, "b": "x"}';
    expect(editOf(before, '{"a": 2, "b": "x"}')).toEqual({ fields: { set: { a: 2 } } });
    expect(editOf(before, '{"a":1,"b":"x"}')).toEqual({ fields: {} });
    expect(editOf(before, '{"b": "x"}')).toEqual({ fields: { edit: '{"b": "x"}' } });
    expect(editOf("not json", '{"a": 1}')).toEqual({ fields: { edit: '{"a": 1}' } });
    expect(editOf(before, "[1]")).toEqual({ wrong: "a record is a JSON object" });
    expect("wrong" in editOf(before, "{")).toBe(true);
  });
});

describe("sources and outputs in a few words", () => {
  const connector = { role: "outputs", name: "totals", kind: "webhook", target: "http://localhost/a", state: "retrying", attempts: 3, failures: 5, last_error: "no" } as const;

  test("a node is called by its declared name", () => {
    expect(labelOf({ kind: "output", name: "output:totals", connector })).toBe("output totals");
    expect(labelOf({ kind: "query", name: "totals", connector: null })).toBe("query totals");
  });

  test("the state comes first", () => {
    expect(connectorSummary(connector, 12)).toBe("retrying · 3 failed · 12 wait · http://localhost/a");
    expect(connectorSummary({ ...connector, state: "running", attempts: 0 }, null)).toBe("running · http://localhost/a");
  });

  test("an edge that runs shows its rate, another one its state", () => {
    expect(movesTexts({ state: "running", rate: 120, lag: 4, attempts: 0 })).toEqual(["120/s", "4 wait"]);
    expect(movesTexts({ state: "running", rate: 0, lag: 0, attempts: 0 })).toEqual(["", ""]);
    expect(movesTexts({ state: "paused", rate: 0, lag: 4, attempts: 0 })).toEqual(["paused", "4 wait"]);
    expect(movesTexts({ state: "retrying", rate: 9, lag: null, attempts: 2 })).toEqual(["retrying · 2 failed", ""]);
  });

  test("the next attempt", () => {
    expect(againText(8_000_000, 500_000)).toBe("in 8 s");
    expect(againText(8_000_000, 9_000_000)).toBe("now");
  });
});
