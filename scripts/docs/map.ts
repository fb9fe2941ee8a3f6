/** The map of the sources: every file with the first sentence of its module's docstring. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Lists files: the files of a folder before its subfolders. */
function* filesOf(folder: string): Generator<string> {
  const entries = readdirSync(folder, { withFileTypes: true }).sort((one, other) =>
    one.name < other.name ? -1 : 1
  );
  for (const entry of entries) {
    if (entry.isFile() && /\.tsx?$/.test(entry.name)) yield join(folder, entry.name);
  }
  for (const entry of entries) if (entry.isDirectory()) yield* filesOf(join(folder, entry.name));
}

/** The first sentence of a file's first docstring, without the full stop. */
function firstSentenceOf(file: string): string {
  const [, text = ""] = /^\/\*\*[\s*]*([\s\S]*?)\*\//m.exec(readFileSync(file, "utf8")) ?? [];
  const [sentence = ""] = text.replace(/\s*\n\s*\* ?/g, " ").split(/\.(?: |$)| @module/);
  return sentence.trim().replace(/\{@link ([^}]+)\}/g, "`$1`");
}

/** Makes the map: a line for each file, with its path and its subject. */
export function makeMap(): string {
  return ["mod.ts", ...filesOf("src")].map((file) => `${file}: ${firstSentenceOf(file)}`).join(
    "\n",
  );
}
