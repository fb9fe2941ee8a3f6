/**
 * `sallyport --version`.
 *
 * @module
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { runtime, runtimeVersion } from "../runtime.ts";
import { ownProgram } from "../serve/bun.ts";
import { VERSION } from "./command.ts";

/**
 * Returns the SHA-256 of the running bundle or executable; `null` for sources, or if it can't be
 * read.
 */
function digestOfProgram(): string | null {
  if (import.meta.url.endsWith(".ts")) return null;
  try {
    const file = runtime === "bun" && ownProgram().length === 0
      ? process.execPath
      : fileURLToPath(import.meta.url);
    return `sha256:${createHash("sha256").update(readFileSync(file)).digest("hex")}`;
  } catch {
    return null; // Deno denied access
  }
}

/**
 * Describes the program, for `--version --json`. The digest of the running file is the value that
 * the build printed.
 */
export function describeVersion(): { version: string; runtime: string; digest: string | null } {
  return {
    version: VERSION,
    runtime: `${runtime} ${runtimeVersion}`,
    digest: digestOfProgram(),
  };
}
