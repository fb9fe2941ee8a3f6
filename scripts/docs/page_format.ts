/**
 * Format of the pages: the format of `deno fmt`, but with tables that are not padded. A padded
 * table changes in every line when one cell grows, and its lines are too long for a terminal.
 */
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

/** @returns The page with one space at each side of a table's cells */
export function unpadTables(page: string): string {
  let isCode = false;
  return page.split("\n").map((line) => {
    if (/^\s*```/.test(line)) isCode = !isCode;
    if (isCode || !/^\s*\|/.test(line)) return line;
    return line.replace(/ +\|/g, " |").replace(/\| +/g, "| ").replace(
      /(?<=\| :?)-+(?=:? \|)/g,
      "---",
    );
  }).join("\n");
}

/** Formats a page by `deno fmt`, and its tables. */
function format(deno: string, page: string): string {
  const formatted = run(deno, ["fmt", "--ext", "md", "-"], page);
  return unpadTables(formatted);
}

/** Runs a program. @returns Its output */
function run(command: string, args: readonly string[], input?: string): string {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: "utf8", input });
  if (status === 0) return stdout;
  throw new Error(`Cannot format the pages: ${command} failed\n${error ?? stderr}`);
}

/**
 * Formats all pages of the repository.
 *
 * @param deno Command that starts Deno
 * @param isFix True if pages are written
 * @returns The pages that are not formatted, or were not before the fix
 */
export function formatPages(deno: string, isFix: boolean): string[] {
  const options = ["--cached", "--others", "--exclude-standard"];
  const pages = run("git", ["ls-files", ...options, "*.md"]).trim().split("\n");
  return pages.filter((page) => {
    const text = readFileSync(page, "utf8");
    const formatted = format(deno, text);
    if (isFix && formatted !== text) writeFileSync(page, formatted);
    return formatted !== text;
  });
}
