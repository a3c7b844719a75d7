/** Pages that are loaded when they are first opened, so that the first view stays small. */

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { Trouble } from "./parts";

type View = () => preact.JSX.Element;

export function lazyPage(load: () => Promise<View>): View {
  const loaded = signal<{ view: View } | null>(null);
  const trouble = signal<string | null>(null);
  return function LazyPage() {
    useEffect(() => {
      if (loaded.value !== null) return;
      load().then(
        (view) => (loaded.value = { view }),
        () => (trouble.value = "this page could not be loaded; the server may be another version by now: load the console again"),
      );
    }, []);
    if (loaded.value === null) return <Trouble text={trouble.value} />;
    const { view: Page } = loaded.value;
    return <Page />;
  };
}
