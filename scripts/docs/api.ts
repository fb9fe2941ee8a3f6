/** The reference of the library, from its docstrings. */
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import process from "node:process";
import { findRuntimes } from "../runtimes.ts";

/** @param folder Receives the HTML pages; nothing is downloaded */
export function writeApi(folder: string): void {
  const deno = findRuntimes().find(({ kind }) => kind === "deno")?.command;
  if (deno === undefined) {
    console.error("docs: there is no Deno; run npm ci first");
    return process.exit(2);
  }
  rmSync(folder, { recursive: true, force: true });
  execFileSync(deno, [
    "doc",
    "--quiet",
    "--html",
    "--name=Sallyport",
    `--output=${folder}`,
    "mod.ts",
  ], {
    stdio: ["ignore", "ignore", "inherit"],
  });
}
