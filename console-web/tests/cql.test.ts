import { EditorState } from "@codemirror/state";
import { ensureSyntaxTree } from "@codemirror/language";
import { describe, expect, test } from "vitest";
import { type Words, completionsAt, diagnosticsOf, language, mistakeText, placeOf, usedSources } from "../src/cql";
import { draw, shapeOf } from "../src/graph_layout";

const words: Words = {
  sources: [
    { name: "orders", kind: "stream", columns: [{ name: "user", type: "string" }, { name: "amount", type: "double" }] },
    { name: "purchases", kind: "table", columns: [{ name: "total", type: "double" }] },
  ],
  functions: [
    { name: "sum", kind: "aggregate", arguments: "arg" },
    { name: "vat", kind: "own", arguments: "x double" },
  ],
  keywords: ["select", "from", "group by"],
  windows: ["[Rows 5]", "[Now]"],
};

/** The labels that are offered at the bar. */
function offered(text: string, explicit = false): string[] | null {
  const at = text.indexOf("|");
  return completionsAt(text.replace("|", ""), at, words, explicit)?.options.map((option) => option.label) ?? null;
}

describe("what can be completed", () => {
  test("after FROM and JOIN, what can be read", () => {
    expect(offered("select user from o|")).toEqual(["orders", "purchases"]);
    expect(offered("select 1 from orders join |", true)).toEqual(["orders", "purchases"]);
  });

  test("elsewhere columns of what is read, keywords and functions", () => {
    expect(offered("select a| from orders")).toEqual(["user", "amount", "select", "from", "group by", "orders", "purchases", "sum", "vat"]);
    expect(offered("select t|")).toContain("total"); // nothing is named yet
    expect(offered("select | from orders")).toBeNull();
    expect(offered("select | from orders", true)).toContain("user");
  });

  test("after a name and a dot, its columns", () => {
    expect(offered("select o.| from orders [Range 1 minute] as o, purchases p")).toEqual(["user", "amount"]);
    expect(offered("select p.to| from orders [Now] as o, purchases p")).toEqual(["total"]);
    expect(offered("select x.| from orders")).toBeNull();
  });

  test("within brackets, windows, up to the closing one", () => {
    const text = "select user from orders []";
    expect(completionsAt(text, text.length - 1, words, false)).toMatchObject({ from: text.length - 2, to: text.length });
    expect(offered("select user from orders [Ro|]")).toEqual(["[Rows 5]", "[Now]"]);
  });

  test("not within texts and comments", () => {
    expect(offered("select 'am|")).toBeNull();
    expect(offered("select 'a', am|")).not.toBeNull();
    expect(offered("select 1 -- am|")).toBeNull();
  });

  test("a word of the language is no alias", () => {
    expect([...usedSources("select 1 from orders where x, purchases as p", words).keys()]).toEqual(["orders", "purchases", "p"]);
  });
});

describe("mistakes", () => {
  const at = (text: string, line: number | null, column: number | null) => {
    const { from, to } = placeOf(text, { message: "", hint: null, line, column });
    return text.slice(from, to);
  };

  test("the word at the place, in the lines of the text", () => {
    expect(at("select user,\n  amunt from orders", 2, 3)).toBe("amunt");
    expect(at('select "a b" from x', 1, 8)).toBe('"a b"');
    expect(at("select 😀, amunt", 1, 11)).toBe("amunt"); // columns count characters
  });

  test("something is marked wherever it is", () => {
    expect(at("select ", 1, 8)).toBe(" ");
    expect(at("select 1", 9, 1)).toBe("select");
    expect(at("select 1", null, null)).toBe("select 1");
    expect(placeOf("", { message: "", hint: null, line: 1, column: 1 })).toEqual({ from: 0, to: 0 });
  });

  test("with what to do about them", () => {
    const mistake = { message: 'unknown column "amunt"', hint: 'did you mean "amount"?', line: 1, column: 8 };
    expect(mistakeText(mistake)).toBe('unknown column "amunt"; did you mean "amount"?');
    expect(diagnosticsOf("select amunt", [mistake])).toEqual([{ from: 7, to: 12, severity: "error", message: mistakeText(mistake) }]);
  });
});

test("the colours of a query", () => {
  const text = "select sum(amount) -- total\nfrom orders [Rows 5] where user = 'it''s' /* a\nb */ group by 1";
  const state = EditorState.create({ doc: text, extensions: [language(words)] });
  const found: [string, string][] = [];
  ensureSyntaxTree(state, text.length)!.iterate({
    enter: (node) => {
      if (node.from !== node.to && node.node.firstChild === null) found.push([node.name, text.slice(node.from, node.to)]);
    },
  });
  const of = (kind: RegExp) => found.filter(([name]) => kind.test(name)).map(([, piece]) => piece);
  expect(of(/^keyword/)).toEqual(["select", "from", "Rows", "group", "by"]);
  expect(of(/function/)).toEqual(["sum"]);
  expect(of(/^string/)).toEqual(["'it''s'"]);
  expect(of(/^comment/)).toEqual(["-- total", "/* a", "b */"]);
  expect(of(/^typeName/)).toEqual(["orders"]);
  expect(of(/^number/)).toEqual(["5", "1"]);
});

test("a plan is drawn from left to right, and nodes do not touch", () => {
  const nodes = ["orders", "purchases", "map", "result"].map((name) => ({ name }));
  const edges = [["orders", "map"], ["purchases", "map"], ["map", "result"]].map(([source, target]) => ({ source: source!, target: target! }));
  const drawing = draw(nodes, edges, { width: 200, height: 80 }, 40);
  const at = new Map(drawing.nodes.map((node) => [node.name, node]));
  for (const { source, target } of edges) expect(at.get(source)!.x + 200).toBeLessThan(at.get(target)!.x);
  expect(Math.abs(at.get("orders")!.y - at.get("purchases")!.y)).toBeGreaterThan(80);
  expect(drawing.paths.length).toBe(3);
  expect(shapeOf(nodes, edges)).toBe(shapeOf([...nodes], [...edges]));
});
