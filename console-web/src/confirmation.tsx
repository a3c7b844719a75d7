/** A question before something is changed: what will happen, in plain words, and a button that does it. */

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Confirmation(props: { title: string; action: string; onConfirm: () => void; onClose: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={props.onClose} aria-label={props.title}>
      <h2>{props.title}</h2>
      <div class="consequences">{props.children}</div>
      <div class="actions">
        <button class="primary" onClick={() => { dialog.current?.close(); props.onConfirm(); }}>{props.action}</button>
        <button onClick={() => dialog.current?.close()}>Cancel</button>
      </div>
    </dialog>
  );
}
