import { describe, expect, test } from "vitest";
import type { LaneFigures } from "../src/api";
import { changedCounts, diffLines, hunksOf } from "../src/line_diff";
import { pointsOf, scaleOf } from "../src/line_chart";
import { type LoadHistory, type OperationSources, dialWords, loadText, queueName, versionText, withLoads } from "../src/operations_api";

const marked = (before: string, after: string) => diffLines(before, after).map((line) => line.mark + line.text);

/** Applies a difference to nothing: what it says of each side. */
const sides = (before: string, after: string) => {
  const lines = diffLines(before, after);
  const side = (mark: "+" | "-") => lines.filter((line) => line.mark !== mark).map((line) => `${line.text}\n`).join("");
  return [side("+"), side("-")];
};

describe("differences of lines", () => {
  test("what is the same stays, what differs is removed and added", () => {
    expect(marked("a\nb\nc\n", "a\nx\nc\n")).toEqual([" a", "-b", "+x", " c"]);
    expect(marked("", "a\n")).toEqual(["+a"]);
    expect(marked("a\n", "")).toEqual(["-a"]);
    expect(marked("a\n", "a\n")).toEqual([" a"]);
    expect(marked("", "")).toEqual([]);
    expect(marked("a", "a\n")).toEqual([" a"]);
  });

  test("both texts can be read from it, with as few changes as possible", () => {
    let seed = 7;
    const random = (below: number) => (seed = (seed * 48_271) % 2_147_483_647) % below;
    const text = () => Array.from({ length: random(12) }, () => `${"abc"[random(3)]}\n`).join("");
    for (let round = 0; round < 300; round++) {
      const [one, other] = [text(), text()];
      expect(sides(one, other)).toEqual([one, other]);
      const { added, removed } = changedCounts(diffLines(one, other));
      const [first, second] = [one.split("\n").slice(0, -1), other.split("\n").slice(0, -1)];
      expect(added + removed).toBe(first.length + second.length - 2 * longestCommon(first, second));
    }
  });

  test("texts that have nothing in common are replaced, however long they are", () => {
    const [one, other] = ["a", "b"].map((letter) => Array.from({ length: 4_000 }, (_, at) => `${letter}${at}\n`).join(""));
    expect(changedCounts(diffLines(one!, other!))).toEqual({ added: 4_000, removed: 4_000 });
    expect(sides(one!, other!)).toEqual([one, other]);
  });

  test("hunks have lines around the changes, with their numbers", () => {
    const lines = Array.from({ length: 30 }, (_, at) => `line ${at + 1}`);
    const changed = lines.map((line, at) => (at === 9 || at === 24 ? `${line}!` : line));
    const hunks = hunksOf(diffLines(lines.join("\n"), changed.join("\n")));
    expect(hunks.map((hunk) => hunk.head)).toEqual(["@@ -7,7 +7,7 @@", "@@ -22,7 +22,7 @@"]);
    expect(hunks[0]!.lines.map((line) => [line.mark, line.before, line.after])[3]).toEqual(["-", 10, null]);
    expect(hunksOf(diffLines("a", "a"))).toEqual([]);
    expect(hunksOf(diffLines("", "a"))[0]!.head).toBe("@@ -0,0 +1,1 @@");
  });
});

function longestCommon(one: string[], other: string[]): number {
  let row = Array<number>(other.length + 1).fill(0);
  for (const line of one) {
    const next = [0];
    other.forEach((each, at) => next.push(each === line ? row[at]! + 1 : Math.max(row[at + 1]!, next[at]!)));
    row = next;
  }
  return row.at(-1)!;
}

describe("versions as text", () => {
  const version: OperationSources = {
    name: "scores", version: 3, since: "", fingerprint: "", by: "file", changed: [], code: "x",
    operation: { reads: "orders", attempts: 2, key: ["a", "b"] },
    files: [{ path: "scoring.py", text: "def score(records):\n    return None\n" }, { path: "long.py", text: null }],
  };

  test("the fields and the files", () => {
    expect(versionText(version)).toBe(
      'reads: orders\nattempts: 2\nkey: ["a", "b"]\n\n# ---- scoring.py\ndef score(records):\n    return None\n\n# ---- long.py\n(longer than is shown)\n',
    );
    expect(versionText({ ...version, operation: null })).toBe("(removed)\n");
    expect(versionText({ ...version, files: [] })).toContain("is installed and has changed");
  });
});

describe("loads", () => {
  const lane = (load: number, stage = "scores"): LaneFigures => ({
    lane: "operations", policy: "informed", u: 0.97, slots: 2, load, empty: 0, more: 0,
    queues: [{ stage, stream: "orders", rate: 1, service: 1, load, share: 1, waiting: 0 }],
  });
  const known: LoadHistory = { sample: 4, seconds: 10, queues: [] };

  test("a history goes on with the samples of events, for an hour", () => {
    let history = known;
    for (let sample = 5; sample < 405; sample++) history = withLoads(history, { sample, governor: [lane(sample)] });
    expect(history.queues[0]!.loads.length).toBe(360);
    expect(history.queues[0]!.loads.at(-1)).toBe(404);
    expect(history.sample).toBe(404);
    const other = withLoads(history, { sample: 405, governor: [lane(1, "other")] });
    expect(other.queues.map((queue) => [queue.stage, queue.loads])).toEqual([["other", [1]]]);
  });

  test("names and texts", () => {
    expect(queueName({ stage: "scores", stream: "orders" })).toBe("scores ← orders");
    expect(queueName({ stage: "", stream: "orders" })).toBe("orders");
    expect([0, 0.00041, 0.25, 3, 12.4].map(loadText)).toEqual(["0", "0.0004", "0.25", "3.00", "12"]);
  });

  test("the scale of a chart is round, and lines end at its right side", () => {
    expect(scaleOf([{ name: "a", values: [0.3, 0.7] }])).toEqual({ count: 12, top: 1 });
    expect(scaleOf([{ name: "a", values: [0.003] }]).top).toBe(0.005);
    expect(scaleOf([{ name: "a", values: [] }])).toEqual({ count: 12, top: 1 });
    expect(scaleOf([{ name: "a", values: [5] }], 1).top).toBe(1);
    expect(pointsOf([0, 1], { count: 12, top: 1 }, 110, 50)).toBe("100.0,50.0 110.0,0.0");
  });
});

describe("the dial in words", () => {
  test("every value has a meaning", () => {
    expect(dialWords("informed", 0.97)).toContain("at most about 3 of 100 looks find nothing");
    expect(dialWords("asc", 0.5)).toContain("about 50 of 100 visits find nothing");
    expect(dialWords("als", 0)).toContain("without a rest");
    expect(dialWords("informed", 0)).toContain("all the time");
    expect(dialWords("informed", 0.2)).toContain("Eager");
  });
});
