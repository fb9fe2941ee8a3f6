/**
 * Format of the pages: the format of `deno fmt`, but with tables that are not padded. A padded
 * table changes in every line when one cell grows, and its lines are too long for a terminal.
 */
import { spawn, spawnSync } from "node:child_process";
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
function format(deno: string, page: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(deno, ["fmt", "--ext", "md", "-"], { stdio: ["pipe", "pipe", "inherit"] });
    let formatted = "";
    child.stdout.setEncoding("utf8").on("data", (text) => formatted += text);
    child.on("error", reject);
    child.on(
      "close",
      (status) =>
        status === 0
          ? resolve(unpadTables(formatted))
          : reject(new Error("Cannot format a page: see what deno fmt printed")),
    );
    child.stdin.end(page);
  });
}

/**
 * Formats all pages of the repository.
 *
 * @param deno Command that starts Deno
 * @param isFix True if pages are written
 * @returns The pages that are not formatted, or were not before the fix
 */
export async function formatPages(deno: string, isFix: boolean): Promise<string[]> {
  const listed = spawnSync("git", [
    "ls-files",
    "--cached",
    "--others",
    "--exclude-standard",
    "*.md",
  ], {
    encoding: "utf8",
  });
  const pages = listed.stdout.split("\n").filter((name) => name !== "");
  const changed = await Promise.all(pages.map(async (page) => {
    const text = readFileSync(page, "utf8");
    const formatted = await format(deno, text);
    if (formatted === text) return [];
    if (isFix) writeFileSync(page, formatted);
    return [page];
  }));
  return changed.flat();
}
