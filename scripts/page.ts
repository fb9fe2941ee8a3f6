/**
 * The console's page, built from its sources in `src/admin/console/` into one module that the admin
 * listener serves. The module is committed with the sources, so that the gateway also runs from
 * source. A test compares the two.
 */
import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";
import { gunzipSync, gzipSync } from "node:zlib";
import { build, type BuildOptions } from "esbuild";

const HOME = "src/admin/console";
/** Path of the built module. */
export const PAGE_MODULE = "src/admin/page_assets.ts";

/** Sources and modules of the page in its last build. */
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
    // Children as arguments need 2 % less of the page than as a property.
    tsconfigRaw: {
      compilerOptions: { jsx: "react", jsxFactory: "h", jsxFragmentFactory: "Fragment" },
    },
    inject: ["node_modules/preact/dist/preact.mjs"],
    define: { "process.env.NODE_ENV": '"production"' },
    ...more,
  });
  for (const input of Object.keys(metafile?.inputs ?? {})) PAGE_INPUTS.add(input);
  return outputFiles[0]?.text.trim() ?? "";
}

/** The page's files by name: as texts, or compressed. */
export type PageFiles = Readonly<Record<"html" | "script" | "style" | "icon", string>>;

/**
 * Builds the page.
 *
 * @returns Its files; the same for the same sources
 */
export async function buildPage(): Promise<PageFiles> {
  return {
    html: readFileSync(`${HOME}/index.html`, "utf8").replace(/\n\s*/g, "\n").trim(),
    script: await bundle("main.tsx"),
    style: await bundle("style.css"),
    icon: readFileSync(`${HOME}/icon.svg`, "utf8").trim(),
  };
}

/**
 * Compresses texts with gzip, in base64. Different versions of zlib can produce different bytes
 * from the same text.
 */
function pack(files: PageFiles): PageFiles {
  const entries = Object.entries(files).map((
    [name, text],
  ) => [name, gzipSync(text, { level: 9 }).toString("base64")]);
  return Object.fromEntries(entries);
}

/** @returns The uncompressed texts */
export function unpackPage(files: PageFiles): PageFiles {
  const entries = Object.entries(files).map((
    [name, packed],
  ) => [name, gunzipSync(Buffer.from(packed, "base64"))]);
  return Object.fromEntries(entries.map(([name, bytes]) => [name, String(bytes)]));
}

/**
 * Reads the files of a module that {@link writePageModule} wrote. Returns `undefined` if it is
 * damaged, such as by a merge.
 */
function readPageModule(): PageFiles | undefined {
  try {
    const packed = readFileSync(PAGE_MODULE, "utf8").matchAll(/^ {2}(\w+): "([\w+/=]+)",$/gm);
    return unpackPage(Object.fromEntries(Array.from(packed, ([, name, text]) => [name, text])));
  } catch {
    return undefined;
  }
}

/**
 * Writes {@link PAGE_MODULE}, unless it already contains these files. @param files The page's files
 */
export function writePageModule(files: PageFiles): void {
  if (isDeepStrictEqual(readPageModule(), files)) return;
  const lines = Object.entries(pack(files)).map(([name, packed]) =>
    `  ${name}: ${JSON.stringify(packed)},\n`
  );
  const text = [
    "/** The console's page. Made by scripts/page.ts from src/admin/console/: do not edit. @module */\n",
    "/** Its files by name, packed by gzip, in base64. */\n",
    'export const PAGE_ASSETS: Readonly<Record<"html" | "script" | "style" | "icon", string>> = {\n',
    ...lines,
    "};\n",
  ].join("");
  writeFileSync(PAGE_MODULE, text);
}
