/** Answers that are asked for again whenever something has changed, one request at a time. */

import { useSignal } from "@preact/signals";
import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refusal } from "./api";

export interface Loaded<T> {
  value: T | null;
  trouble: string | null;
}

const PAUSE = 700;

/** What `load` gives, again when a member of `inputs` changes, at most every 0.7 s; the last answer is kept until then.
 * When `subject` changes, the last answer is dropped. */
export function useLoaded<T>(load: (abort: AbortSignal) => Promise<T>, inputs: unknown[], subject: unknown = null): ReadonlySignal<Loaded<T>> {
  const state = useSignal<Loaded<T>>({ value: null, trouble: null });
  const last = useRef({ subject, at: -Infinity });
  useEffect(() => {
    const aborter = new AbortController();
    if (last.current.subject !== subject) {
      state.value = { value: null, trouble: null };
      last.current = { subject, at: -Infinity };
    }
    const wait = Math.max(0, last.current.at + PAUSE - performance.now());
    const timer = setTimeout(() => {
      last.current.at = performance.now();
      load(aborter.signal).then(
        (value) => (aborter.signal.aborted ? undefined : (state.value = { value, trouble: null })),
        (error: unknown) => {
          if (!aborter.signal.aborted) state.value = { value: state.peek().value, trouble: messageOf(error) };
        },
      );
    }, wait);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [...inputs, subject]);
  return state;
}

export function messageOf(error: unknown): string {
  return error instanceof Refusal ? error.message : String(error);
}
