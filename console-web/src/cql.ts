/** CQL in the editor: its colours, what can be completed at a place, and where mistakes stand. The words come from the server. */

import type { Completion, CompletionContext, CompletionResult } from "@codemirror/autocomplete";
import { StreamLanguage, type StringStream } from "@codemirror/language";
import type { Diagnostic } from "@codemirror/lint";

export interface QueryColumn {
  name: string;
  type: string;
}

export interface Words {
  sources: { name: string; kind: string; columns: QueryColumn[] }[];
  functions: { name: string; kind: string; arguments: string }[];
  keywords: string[];
  windows: string[];
}

export interface Mistake {
  message: string;
  hint: string | null;
  line: number | null;
  column: number | null;
}

// ---------------------------------------------------------------------------------------------------- colours

const WINDOW_WORDS = ["range", "rows", "now", "unbounded", "tumble", "hop", "every", "cumulate", "session", "slide", "offset", "keep", "early"];

/** Whether a place in the text is inside of a comment, or of the brackets of a window. */
interface Place {
  comment: boolean;
  window: boolean;
}

/** The language with these words; a tokenizer is enough, since the server parses. */
export function language(words: Words): StreamLanguage<Place> {
  const keywords = new Set([...words.keywords.flatMap((keyword) => keyword.split(" ")), "by", "asc", "desc"]);
  const functions = new Set(words.functions.map((each) => each.name.toLowerCase()));
  const sources = new Set(words.sources.map((each) => each.name.toLowerCase()));
  return StreamLanguage.define<Place>({
    startState: () => ({ comment: false, window: false }),
    token(stream, state) {
      if (state.comment || stream.match("/*")) {
        state.comment = !passed(stream, "*/");
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (stream.match("--")) {
        stream.skipToEnd();
        return "comment";
      }
      if (stream.match(/^'(?:[^']|'')*'?/)) return "string";
      if (stream.match(/^"(?:[^"]|"")*"?/)) return "variableName";
      if (stream.match(/^\d+(?:\.\d+)?(?:e[+-]?\d+)?/i)) return "number";
      if (stream.match(/^[A-Za-z_]\w*/)) {
        const word = stream.current().toLowerCase();
        if (state.window && WINDOW_WORDS.includes(word)) return "keyword";
        if (stream.match(/^\s*\(/, false) && functions.has(word)) return "variableName.function";
        if (keywords.has(word)) return "keyword";
        return sources.has(word) ? "typeName" : "variableName";
      }
      const sign = stream.next();
      if (sign === "[") state.window = true;
      else if (sign === "]") state.window = false;
      return "operator";
    },
    languageData: { commentTokens: { line: "--" }, closeBrackets: { brackets: ["(", "[", "'", '"'] } },
  });
}

function passed(stream: StringStream, end: string): boolean {
  if (stream.skipTo(end)) return Boolean(stream.match(end));
  stream.skipToEnd();
  return false;
}

// ---------------------------------------------------------------------------------------------------- completion

export interface Completions {
  from: number;
  to: number;
  options: Completion[];
}

const SOURCES = /(?:\bfrom|\bjoin|,)\s*([A-Za-z_]\w*)(?:\s*\[[^\]]*\])?(?:\s+as\b)?(?:\s+([A-Za-z_]\w*))?/gi;
const NO_ALIASES = new Set(["where", "group", "order", "having", "on", "join", "left", "right", "full", "inner", "limit", "union", "as", "using", "qualify", "semi", "anti", "asof"]);

/** The sources that a query names, by the names under which it uses them, in lower case. */
export function usedSources(text: string, words: Words): Map<string, Words["sources"][number]> {
  const known = new Map(words.sources.map((source) => [source.name.toLowerCase(), source]));
  const used = new Map<string, Words["sources"][number]>();
  for (const [, name, alias] of text.matchAll(SOURCES)) {
    const source = known.get(name!.toLowerCase());
    if (source === undefined) continue;
    used.set(name!.toLowerCase(), source);
    if (alias !== undefined && !NO_ALIASES.has(alias.toLowerCase())) used.set(alias.toLowerCase(), source);
  }
  return used;
}

/** What can stand at a place in a query; null if nothing is to be offered. */
export function completionsAt(text: string, at: number, words: Words, explicit: boolean): Completions | null {
  const before = text.slice(0, at);
  const window = /\[[^\]]*$/.exec(before);
  if (window !== null) {
    const to = text[at] === "]" ? at + 1 : at;
    return { from: window.index, to, options: words.windows.map((label) => ({ label, type: "keyword", detail: "window" })) };
  }
  if (/'[^']*$/.test(before.replace(/'[^']*'/g, "")) || /--[^\n]*$/.test(before)) return null;
  const member = /([A-Za-z_]\w*)\.(\w*)$/.exec(before);
  if (member !== null) {
    const source = usedSources(text, words).get(member[1]!.toLowerCase());
    return source === undefined ? null : { from: at - member[2]!.length, to: at, options: source.columns.map(columnOption) };
  }
  const word = /[A-Za-z_]\w*$/.exec(before)?.[0] ?? "";
  if (word === "" && !explicit) return null;
  const from = at - word.length;
  const sources = words.sources.map((source) => ({ label: source.name, type: "class", detail: source.kind, info: source.columns.map((column) => column.name).join(", "), boost: 1 }));
  if (/(?:\bfrom|\bjoin)\s+$/i.test(text.slice(0, from))) return { from, to: at, options: sources };
  const used = usedSources(text, words);
  const read = used.size > 0 ? [...used.values()] : words.sources; // nothing is named yet: FROM comes after the columns
  const columns = new Map(read.flatMap((source) => source.columns.map((column) => [column.name, columnOption(column)])));
  const functions = words.functions.map((each) => ({ label: each.name, type: "function", detail: `(${each.arguments})`, apply: `${each.name}(`, boost: each.kind === "own" ? 2 : each.kind === "scalar" ? -2 : 0 }));
  const keywords = words.keywords.map((label) => ({ label, type: "keyword" }));
  return { from, to: at, options: [...columns.values(), ...keywords, ...sources, ...functions] };
}

function columnOption(column: QueryColumn): Completion {
  return { label: column.name, type: "property", detail: column.type, boost: 3 };
}

export function completionSource(words: () => Words | null): (context: CompletionContext) => CompletionResult | null {
  return (context) => {
    const known = words();
    const found = known && completionsAt(context.state.doc.toString(), context.pos, known, context.explicit);
    return found && { from: found.from, to: found.to, options: found.options, ...(found.to === context.pos ? { validFor: /^\w*$/ } : { filter: false }) };
  };
}

// ---------------------------------------------------------------------------------------------------- mistakes

/** The place of a mistake in the text: the word that begins there, or what is next to it. */
export function placeOf(text: string, mistake: Mistake): { from: number; to: number } {
  const lines = text.split("\n");
  if (mistake.line === null) return { from: 0, to: text.length };
  const number = Math.min(mistake.line, lines.length) - 1;
  const start = lines.slice(0, number).reduce((sum, line) => sum + line.length + 1, 0);
  const line = lines[number] ?? "";
  // columns count characters, and positions in the editor count UTF-16 units
  const column = [...line].slice(0, (mistake.column ?? 1) - 1).join("").length;
  const word = /^(?:\w+|"[^"]*"|\S)/.exec(line.slice(column))?.[0].length ?? 0;
  if (word > 0) return { from: start + column, to: start + column + word };
  return { from: start + Math.max(0, column - 1), to: start + Math.max(column, Math.min(1, line.length)) };
}

export function mistakeText(mistake: Mistake): string {
  return mistake.hint === null ? mistake.message : `${mistake.message}; ${mistake.hint}`;
}

export function diagnosticsOf(text: string, mistakes: Mistake[]): Diagnostic[] {
  return mistakes.map((mistake) => ({ ...placeOf(text, mistake), severity: "error", message: mistakeText(mistake) }));
}
