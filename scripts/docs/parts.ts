/**
 * Generated parts of pages: where they stand, and how a table is written so that the formatter
 * leaves it as it is.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { unpadTables } from "./page_format.ts";

/** A generated part of one or several pages. */
export interface Part {
  /** As its markers name it. */
  readonly name: string;
  /** Pages that hold it, from the folder of the sources on. */
  readonly files: readonly string[];
  /** Its text, as of now. */
  make(): string;
}

const startOf = (name: string) => `<!-- ${name}: written by \`npm run docs\` -->`;
const endOf = (name: string) => `<!-- end of ${name} -->`;

/**
 * @param head The head's cells
 * @param rows Each row's cells, as many
 * @returns The table, not padded
 */
export function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`;
  return unpadTables([line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n"));
}

/**
 * @param page A page's text
 * @param name The part
 * @returns Where its text begins and ends
 * @throws Where the page lacks the markers
 */
function find(page: string, name: string): readonly [number, number] {
  const [start, end] = [page.indexOf(startOf(name)), page.indexOf(endOf(name))];
  if (start === -1 || end < start) {
    throw new Error(
      `Cannot write the part ${name}: a page lacks the lines ${startOf(name)} and ${endOf(name)}`,
    );
  }
  return [start + startOf(name).length, end];
}

/**
 * @param file A page
 * @param name A part
 * @returns What stands there now
 */
export function readPart(file: string, name: string): string {
  const page = readFileSync(file, "utf8");
  return page.slice(...find(page, name)).trim();
}

/** Writes a part into its pages. */
export function writePart({ name, files, make }: Part): void {
  const text = make();
  for (const file of files) {
    const page = readFileSync(file, "utf8");
    const [start, end] = find(page, name);
    writeFileSync(file, `${page.slice(0, start)}\n\n${text}\n\n${page.slice(end)}`);
  }
}
