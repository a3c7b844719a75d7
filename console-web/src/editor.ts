/** The text editor of the console: CodeMirror in the console's colours. Pages import this module when they need it, so that it is
 * a chunk of its own and not part of the first view.
 *
 * The editor stands in a shadow root: there CodeMirror adopts its style sheet, while in the document it would write a <style>
 * element, which the Content-Security-Policy refuses. Tab leaves the editor, as it leaves every other field. */

import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { HighlightStyle, bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintKeymap } from "@codemirror/lint";
import { EditorState, type Extension } from "@codemirror/state";
import { EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

export interface EditorOptions {
  /** An empty element; the editor is put into its shadow root. */
  parent: HTMLElement;
  text: string;
  /** What a screen reader calls the editor. */
  label: string;
  /** The language, completion, diagnostics and keys of a page. Its keys come before those of the editor. */
  extensions?: Extension[];
  onChange?: (text: string) => void;
}

export interface Editor {
  view: EditorView;
  text(): string;
  setText(text: string): void;
  close(): void;
}

export function openEditor(options: EditorOptions): Editor {
  const root = options.parent.shadowRoot ?? options.parent.attachShadow({ mode: "open" });
  const changed = EditorView.updateListener.of((update) => {
    if (update.docChanged) options.onChange?.(update.state.doc.toString());
  });
  const label = EditorView.contentAttributes.of({ "aria-label": options.label, spellcheck: "false", autocapitalize: "off" });
  const state = EditorState.create({
    doc: options.text,
    extensions: [...(options.extensions ?? []), common, label, changed],
  });
  const view = new EditorView({ state, parent: root, root });
  const keep = (event: Event) => event.stopPropagation(); // outside, the keys of the console would answer to what is typed
  options.parent.addEventListener("keydown", keep);
  return {
    view,
    text: () => view.state.doc.toString(),
    setText: (text) => view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: text } }),
    close: () => {
      options.parent.removeEventListener("keydown", keep);
      view.destroy();
    },
  };
}

/** What is typed over a selection is inserted here: Chromium would put style attributes into the text for a moment, which the
 * Content-Security-Policy refuses and reports. */
const typedOver = EditorView.domEventHandlers({
  beforeinput(event, view) {
    const { main } = view.state.selection;
    const typed = event.data;
    if (event.inputType !== "insertText" || typed === null || main.empty || view.composing) return false;
    const insert = () => view.state.update(view.state.replaceSelection(typed), { userEvent: "input.type", scrollIntoView: true });
    const handled = view.state.facet(EditorView.inputHandler).some((handle) => handle(view, main.from, main.to, typed, insert));
    if (!handled) view.dispatch(insert());
    event.preventDefault();
    return true;
  },
});

const mono = 'ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", monospace';

/** Both themes at once: the colours are the variables of the page, which a shadow root inherits. */
const look = EditorView.theme({
  "&": { color: "var(--text)", backgroundColor: "var(--panel)", border: "1px solid var(--line)", borderRadius: "6px", fontSize: "13px" },
  "&.cm-focused": { outline: "2px solid var(--cursor)", outlineOffset: "1px" },
  ".cm-scroller": { fontFamily: mono, lineHeight: "1.5" },
  ".cm-content": { caretColor: "var(--text)", padding: "8px 0", minHeight: "var(--editor-height, 7rem)" },
  ".cm-cursor, .cm-dropCursor": { borderLeftColor: "var(--text)" },
  ".cm-gutters": { backgroundColor: "transparent", color: "var(--quiet)", borderRight: "none" },
  ".cm-activeLine": { backgroundColor: "transparent" },
  "&.cm-focused .cm-activeLine": { backgroundColor: "color-mix(in srgb, var(--stripe) 60%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { background: "var(--area)" },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--area)", outline: "1px solid var(--quiet)" },
  "&.cm-focused .cm-nonmatchingBracket": { backgroundColor: "var(--bad-ground)" },
  ".cm-tooltip": { backgroundColor: "var(--panel)", color: "var(--text)", border: "1px solid var(--line)", borderRadius: "6px" },
  ".cm-tooltip.cm-tooltip-autocomplete > ul": { fontFamily: mono, maxHeight: "16em" },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--accent)", color: "var(--on-accent)" },
  ".cm-completionDetail": { color: "var(--quiet)", fontStyle: "normal", marginLeft: "1em" },
  ".cm-tooltip-autocomplete ul li[aria-selected] .cm-completionDetail": { color: "var(--on-accent)" },
  ".cm-completionMatchedText": { textDecoration: "none", fontWeight: "bold" },
  ".cm-tooltip.cm-completionInfo": { padding: "4px 8px", maxWidth: "28em" },
  ".cm-diagnostic": { padding: "4px 8px", maxWidth: "44em", whiteSpace: "pre-wrap" },
  ".cm-diagnostic-error": { borderLeft: "4px solid var(--bad)" },
  ".cm-diagnostic-warning": { borderLeft: "4px solid var(--warn)" },
  ".cm-lintRange-error": { backgroundImage: "none", borderBottom: "2px solid var(--bad)", backgroundColor: "var(--bad-ground)" },
  ".cm-lintRange-warning": { backgroundImage: "none", borderBottom: "2px solid var(--warn)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.controlKeyword, tags.definitionKeyword, tags.operatorKeyword, tags.modifier], color: "var(--mark-job)", fontWeight: "bold" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--warn)" },
  { tag: [tags.function(tags.variableName), tags.function(tags.propertyName), tags.standard(tags.name)], color: "var(--link)" },
  { tag: [tags.typeName, tags.className, tags.definition(tags.variableName)], color: "var(--mark-stream)" },
  { tag: [tags.comment, tags.lineComment, tags.blockComment], color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.invalid, color: "var(--bad)" },
]);

const common: Extension = [
  lineNumbers(),
  highlightSpecialChars(),
  history(),
  drawSelection(),
  EditorState.allowMultipleSelections.of(true),
  indentOnInput(),
  bracketMatching(),
  closeBrackets(),
  autocompletion({ icons: false }),
  highlightActiveLine(),
  EditorView.lineWrapping,
  typedOver,
  syntaxHighlighting(colours),
  keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, ...completionKeymap, ...lintKeymap]),
  look,
];
