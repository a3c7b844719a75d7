/** Answers that are asked for again whenever something has changed, one request at a time. */

import { useSignal } from "@preact/signals";
import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Refusal, renewals } from "./api";

export interface Loaded<T> {
  value: T | null;
  trouble: string | null;
}

const PAUSE = 700;
const NEVER = Symbol("never");

interface Loading {
  subject: unknown;
  /** What the newest request is for. */
  renewal: unknown;
  at: number;
  aborter: AbortController | null;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** What `load` gives; the last answer is kept until the next one is there. When a member of `inputs` changes, it is asked for anew,
 * and a request that is under way is abandoned. When `renewal` changes, which is something that the pipeline has done, it is asked
 * for again after the request that is under way. When `subject` changes, the last answer is dropped. At most every 0.7 s. */
export function useLoaded<T>(load: (abort: AbortSignal) => Promise<T>, inputs: unknown[], renewal: unknown = null, subject: unknown = null): ReadonlySignal<Loaded<T>> {
  const state = useSignal<Loaded<T>>({ value: null, trouble: null });
  const now = useRef<Loading>({ subject, renewal: NEVER, at: -Infinity, aborter: null, timer: undefined });
  const newest = useRef({ load, renewal });
  newest.current = { load, renewal };

  const begin = (): void => {
    const own = now.current;
    clearTimeout(own.timer);
    own.timer = setTimeout(
      () => {
        const aborter = new AbortController();
        const { load: asks, renewal: cause } = newest.current;
        if (state.peek().value !== null && own.renewal !== NEVER && own.renewal !== cause) renewals.add(aborter.signal);
        own.at = performance.now();
        own.renewal = cause;
        own.aborter = aborter;
        const end = (loaded: Loaded<T>): void => {
          if (aborter.signal.aborted) return;
          own.aborter = null;
          state.value = loaded;
          if (newest.current.renewal !== own.renewal) begin();
        };
        asks(aborter.signal).then(
          (value) => end({ value, trouble: null }),
          (error: unknown) => end({ value: state.peek().value, trouble: messageOf(error) }),
        );
      },
      Math.max(0, own.at + PAUSE - performance.now()),
    );
  };
  const abandon = (): void => {
    clearTimeout(now.current.timer);
    now.current.aborter?.abort();
    now.current.aborter = null;
  };

  useEffect(() => {
    const own = now.current;
    if (own.subject !== subject) {
      state.value = { value: null, trouble: null };
      own.at = -Infinity;
      own.subject = subject;
    }
    abandon();
    own.renewal = NEVER;
    begin();
  }, [...inputs, subject]);
  useEffect(() => {
    if (now.current.renewal !== NEVER && now.current.renewal !== renewal && now.current.aborter === null) begin();
  }, [renewal]);
  useEffect(() => abandon, []);
  return state;
}

export function messageOf(error: unknown): string {
  return error instanceof Refusal ? error.message : String(error);
}
