/**
 * The console's page, from its sources in `src/admin/console/` to one module of texts that the admin listener serves.
 * The module is kept beside the sources, so that the gateway also runs from source; a test compares the two.
 */
import { readFileSync } from "node:fs";
import { build, type BuildOptions } from "esbuild";

const HOME = "src/admin/console";
/** The module that is made. */
export const PAGE_MODULE = "src/admin/page_assets.ts";

/** Sources and modules that went into the page when it was built last. */
export const PAGE_INPUTS: Set<string> = new Set();

async function bundle(entry: string, more: BuildOptions = {}): Promise<string> {
  const { outputFiles = [], metafile } = await build({
    entryPoints: [`${HOME}/${entry}`],
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: "esm",
    target: "es2022",
    charset: "utf8",
    legalComments: "none",
    logLevel: "warning",
    // Children as arguments take 2 % less of the page than as a property.
    tsconfigRaw: { compilerOptions: { jsx: "react", jsxFactory: "h", jsxFragmentFactory: "Fragment" } },
    inject: ["node_modules/preact/dist/preact.mjs"],
    define: { "process.env.NODE_ENV": '"production"' },
    ...more,
  });
  for (const input of Object.keys(metafile?.inputs ?? {})) PAGE_INPUTS.add(input);
  return outputFiles[0]?.text.trim() ?? "";
}

/**
 * Builds the page.
 *
 * @returns The text of {@link PAGE_MODULE}; the same for the same sources
 */
export async function buildPage(): Promise<string> {
  const assets = {
    html: readFileSync(`${HOME}/index.html`, "utf8").replace(/\n\s*/g, "\n").trim(),
    script: await bundle("main.tsx"),
    style: await bundle("style.css"),
    icon: readFileSync(`${HOME}/icon.svg`, "utf8").trim(),
  };
  const lines = Object.entries(assets).map(([name, text]) => `  ${name}: ${JSON.stringify(text)},\n`);
  return [
    "/** The console's page. Made by scripts/page.ts from src/admin/console/: do not edit. @module */\n",
    "/** Its files as texts, by name. */\n",
    'export const PAGE_ASSETS: Readonly<Record<"html" | "script" | "style" | "icon", string>> = {\n',
    ...lines,
    "};\n",
  ].join("");
}
