import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { defineConfig, type Plugin } from "vite";

/** Writes the licences of all bundled packages into `licenses.txt`, in the order of their names. */
function licenses(): Plugin {
  return {
    name: "licenses",
    generateBundle(_, bundle) {
      const packages = new Map<string, string>();
      for (const chunk of Object.values(bundle)) {
        for (const id of chunk.type === "chunk" ? Object.keys(chunk.modules) : []) {
          const root = packageOf(id);
          if (root !== null) packages.set(root, "");
        }
      }
      const texts = [...packages.keys()].map((root) => {
        const about = JSON.parse(readFileSync(join(root, "package.json"), "utf-8"));
        const file = readdirSync(root).find((name) => /^licen[cs]e/i.test(name));
        if (file === undefined) throw new Error(`${about.name} has no licence file`);
        const text = readFileSync(join(root, file), "utf-8").trim();
        return { name: about.name as string, text: `${about.name} ${about.version} (${about.license})\n\n${text}\n` };
      });
      texts.sort((one, other) => (one.name < other.name ? -1 : 1));
      const head = "The console of Hayase contains these packages.\n";
      const source = [head, ...texts.map((each) => each.text)].join(`\n${"-".repeat(80)}\n\n`);
      this.emitFile({ type: "asset", fileName: "licenses.txt", source });
    },
  };
}

/** Writes a digest of all sources into `sources.sha256`, by which a test sees without Node that a build was forgotten. */
function sourceDigest(): Plugin {
  return {
    name: "source-digest",
    generateBundle() {
      const files = ["index.html", "package-lock.json", "package.json", "tsconfig.json", "vite.config.ts", ...inside("src")].sort();
      const digest = createHash("sha256");
      for (const file of files) digest.update(file).update("\0").update(readFileSync(join(import.meta.dirname, file))).update("\0");
      this.emitFile({ type: "asset", fileName: "sources.sha256", source: `${digest.digest("hex")}\n` });
    },
  };
}

function inside(directory: string): string[] {
  return readdirSync(join(import.meta.dirname, directory), { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? inside(`${directory}/${entry.name}`) : [`${directory}/${entry.name}`],
  );
}

function packageOf(id: string): string | null {
  if (!id.includes("/node_modules/")) return null;
  let place = dirname(id.replace(/^\0/, "").split("?")[0]!);
  while (!(existsSync(join(place, "package.json")) && "version" in manifest(place))) place = dirname(place);
  return place;
}

function manifest(place: string): object {
  return JSON.parse(readFileSync(join(place, "package.json"), "utf-8"));
}

export default defineConfig({
  base: "/console/",
  plugins: [licenses(), sourceDigest()],
  build: {
    outDir: process.env.CONSOLE_OUT ?? "../src/hayase/serving/console",
    emptyOutDir: true,
    target: "es2022",
    assetsDir: "",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    rollupOptions: { output: { entryFileNames: "[name]-[hash].js", chunkFileNames: "[name]-[hash].js", assetFileNames: "[name]-[hash][extname]" } },
  },
});
