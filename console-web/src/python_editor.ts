/** The text editor of the console for Python; a chunk of its own, since only the page of operations needs the grammar. */

import { pythonLanguage } from "@codemirror/lang-python";
import { indentUnit } from "@codemirror/language";
import { EditorView } from "@codemirror/view";
import { openEditor } from "./editor";

const EXTENSIONS = [
  pythonLanguage,
  indentUnit.of("    "),
  EditorView.contentAttributes.of({ tabindex: "0" }), // what scrolls is reached by keyboard
  EditorView.theme({ ".cm-scroller": { maxHeight: "32rem", overflow: "auto" } }),
];

/** Opens an editor in an empty element, and returns what closes it; `onText` gets the text after every change. */
export function openPythonEditor(parent: HTMLElement, text: string, label: string, onText: (text: string) => void): () => void {
  return openEditor({ parent, text, label, extensions: EXTENSIONS, onChange: onText }).close;
}
