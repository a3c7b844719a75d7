/** Addresses within the console, behind the hash: the page, and what it shows. */

import { computed, signal } from "@preact/signals";

export const PAGES = ["pipeline", "queries", "streams", "dead", "tables", "playground", "operations"] as const;
export type Page = (typeof PAGES)[number];

export interface Route {
  page: Page;
  name: string | null;
  search: URLSearchParams;
}

export function routeOf(hash: string): Route {
  const [path = "", search = ""] = hash.replace(/^#\/?/, "").split("?");
  const [page = "", name] = path.split("/").map(decodeURIComponent);
  const known = PAGES.find((each) => each === page) ?? "pipeline";
  return { page: known, name: name || null, search: new URLSearchParams(search) };
}

export function hashOf(page: Page, name?: string | null, search: Record<string, string> = {}): string {
  const path = page === "pipeline" && !name ? "#/" : `#/${page}${name ? `/${encodeURIComponent(name)}` : ""}`;
  const given = new URLSearchParams(search).toString();
  return given ? `${path}?${given}` : path;
}

const hash = signal(location.hash);
addEventListener("hashchange", () => (hash.value = location.hash));

export const route = computed(() => routeOf(hash.value));

export function go(page: Page, name?: string | null, search: Record<string, string> = {}): void {
  location.hash = hashOf(page, name, search);
}
