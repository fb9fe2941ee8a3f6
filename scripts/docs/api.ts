/** The reference of the library, from its docstrings. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import process from "node:process";
import { findRuntimes } from "../runtimes.ts";

const FOLDER = "docs/api";

/** Writes pages of HTML; nothing is downloaded for that. */
export function writeApi(): void {
  const deno = findRuntimes().find(({ kind }) => kind === "deno")?.command;
  if (deno === undefined) {
    console.error("docs: there is no Deno; run npm ci first");
    process.exit(2);
  }
  rmSync(FOLDER, { recursive: true, force: true });
  execFileSync(deno, ["doc", "--quiet", "--html", "--name=Sallyport", `--output=${FOLDER}`, "mod.ts"], {
    stdio: "inherit",
  });
  console.log(`written: ${FOLDER}/index.html`);
}
