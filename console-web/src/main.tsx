/** The console: its frame, with the state of the pipeline above and the pages below, and the form for the token. */

import { signal, useSignal } from "@preact/signals";
import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Refusal, get, login, loginNeeded, logout } from "./api";
import { clockText, duration, whole } from "./format";
import icon from "./icon.svg";
import { connection, follow, pipeline } from "./live";
import { DeadPage } from "./pages/dead";
import { lazyPage } from "./lazy_page";
import { PipelinePage } from "./pages/pipeline";
import { QueriesPage } from "./pages/queries";
import { StreamsPage } from "./pages/streams";
import { TablesPage } from "./pages/tables";
import { Trouble } from "./parts";
import { type Page, PAGES, go, hashOf, route } from "./route";
import { theme, toggleTheme } from "./theme";

const TITLES: Record<Page, string> = {
  pipeline: "Pipeline",
  queries: "Queries",
  streams: "Streams",
  dead: "Dead letters",
  tables: "Tables",
  playground: "Playground",
  operations: "Operations and governor",
};
/** Titles in the head, where they would not fit. */
const SHORT: Partial<Record<Page, string>> = { operations: "Operations" };
const VIEWS: Record<Page, () => preact.JSX.Element> = {
  pipeline: PipelinePage,
  queries: QueriesPage,
  streams: StreamsPage,
  dead: DeadPage,
  tables: TablesPage,
  playground: lazyPage(() => import("./pages/playground").then((page) => page.PlaygroundPage)),
  operations: lazyPage(() => import("./pages/operations").then((page) => page.OperationsPage)),
};
const tokenRequired = signal(false);
const help = signal(false);

function App() {
  const page = route.value.page;
  const View = VIEWS[page];
  useEffect(() => {
    document.title = `${TITLES[page]} · ${pipeline.value?.name ?? "Hayase"}`;
  }, [page, pipeline.value?.name]);
  if (loginNeeded.value) return <Login />;
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { event.preventDefault(); document.getElementById("content")?.focus(); }}>
        Skip to the content
      </a>
      <Head page={page} />
      {connection.value === "lost" && (
        <p class="banner" role="alert">
          The connection to the server is lost; what is shown is from before. Trying again every second.
        </p>
      )}
      {connection.value === "starting" && (
        <p class="banner waiting" role="status">
          The pipeline is starting, and what it had committed is not complete yet. Trying again every second.
        </p>
      )}
      <main id="content" tabIndex={-1}>
        <h1 class="unseen">{TITLES[page]}</h1>
        <View />
      </main>
      <footer>
        <a href="/docs">HTTP interface</a> <a href="/console/licenses.txt">Licences</a>
        <button class="plain" onClick={() => (help.value = true)}>Keys: ?</button>
      </footer>
      {help.value && <Help />}
    </>
  );
}

function Head({ page }: { page: Page }) {
  const now = pipeline.value;
  const state = connection.value === "live" ? (now?.state ?? "connecting") : connection.value;
  const pages = useRef<HTMLElement>(null);
  useEffect(() => pages.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [page]); // on a phone, they do not all fit
  return (
    <header class="head">
      <span class="brand">
        <img src={icon} alt="" width="22" height="22" /> <b>{now?.name ?? "Hayase"}</b>
      </span>
      <nav aria-label="Pages" ref={pages}>
        {PAGES.map((each, at) => (
          <a key={each} href={hashOf(each)} aria-current={each === page ? "page" : undefined} title={`${TITLES[each]} (key ${at + 1})`}>
            {SHORT[each] ?? TITLES[each]}
            {each === "dead" && now !== null && now.dead_open > 0 && <span class="count">{whole(now.dead_open)}</span>}
          </a>
        ))}
      </nav>
      <span class="head-state">
        {now !== null && (
          <span class="quiet commit" title={`last commit ${now.committed_at ?? "none"}; definition ${now.definition}`}>
            batch {whole(now.version)} · {clockText(now.committed_at)} · {duration(now.batch_seconds)}
          </span>
        )}
        <span class={`state state-${state}`} role="status" title={now?.reason ?? undefined}>
          {state}
        </span>
        <button class="plain" onClick={toggleTheme} aria-label={`Use the ${theme.value === "dark" ? "light" : "dark"} theme`} title="Theme (key t)">
          {theme.value === "dark" ? "☀" : "☾"}
        </button>
        {tokenRequired.value && (
          <button class="plain" onClick={() => void logout()}>
            Log out
          </button>
        )}
      </span>
    </header>
  );
}

function Login() {
  const trouble = useSignal<string | null>(null);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const submit = async (event: Event) => {
    event.preventDefault();
    try {
      await login(field.current?.value ?? "");
      tokenRequired.value = true;
    } catch (error) {
      trouble.value = error instanceof Refusal ? error.message : String(error);
      field.current?.select();
    }
  };
  return (
    <main class="login">
      <form onSubmit={(event) => void submit(event)}>
        <h1>
          <img src={icon} alt="" width="28" height="28" /> Hayase
        </h1>
        <p>This server asks for its token: the one that it was started with (--token-file, HAYASE_TOKEN).</p>
        <label>
          Token
          <input ref={field} type="password" name="token" autocomplete="current-password" required />
        </label>
        <Trouble text={trouble.value} />
        <button class="primary" type="submit">
          Log in
        </button>
      </form>
    </main>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const keys: [string, string][] = [
    [`1 … ${PAGES.length}`, "the pages"],
    ["/", "to the filter or the key of a page"],
    ["t", "light or dark"],
    ["← →", "on the timeline: move the time cursor; with Shift in large steps"],
    ["+ −", "on the timeline: zoom; Home shows all, End follows the present"],
    ["Ctrl ⏎", "in the editor of a query: run it"],
    ["Esc", "close the details"],
    ["?", "this list"],
  ];
  return (
    <dialog ref={dialog} onClose={() => (help.value = false)} aria-label="Keys">
      <h2>Keys</h2>
      <dl class="facts">
        {keys.map(([key, meaning]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{meaning}</dd>
          </div>
        ))}
      </dl>
      <button onClick={() => dialog.current?.close()}>Close</button>
    </dialog>
  );
}

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  if (event.ctrlKey || event.metaKey || event.altKey || /^(input|textarea|select)$/i.test(target.tagName)) return;
  const page = PAGES[Number(event.key) - 1];
  if (page !== undefined) go(page);
  else if (event.key === "t") toggleTheme();
  else if (event.key === "?") help.value = true;
  else if (event.key === "Escape" && route.value.page === "pipeline") go("pipeline");
  else if (event.key === "/") {
    event.preventDefault();
    document.querySelector<HTMLElement>("[data-search]")?.focus();
  }
}

async function begin(): Promise<void> {
  try {
    const session = await get<{ token_required: boolean; open: boolean }>("/session");
    tokenRequired.value = session.token_required;
    loginNeeded.value = !session.open;
  } catch {
    // the events say that the server is lost
  }
  follow();
}

addEventListener("keydown", onKey);
render(<App />, document.getElementById("app")!);
void begin();
