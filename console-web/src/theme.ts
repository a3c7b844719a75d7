/** Light or dark: as the system says, unless chosen here. */

import { effect, signal } from "@preact/signals";

type Theme = "light" | "dark";

const KEY = "hayase-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function stored(): Theme | null {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : null;
  } catch {
    return null;
  }
}

export const theme = signal<Theme>(stored() ?? (system.matches ? "dark" : "light"));

effect(() => {
  document.documentElement.dataset.theme = theme.value;
});

system.addEventListener("change", () => {
  if (stored() === null) theme.value = system.matches ? "dark" : "light";
});

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, theme.value);
  } catch {
    // it holds until the page is left
  }
}

/** A colour of the style sheet, for canvases. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
