/** Generated parts of pages: their places, and tables in the form that the formatter keeps. */
import { readFileSync, writeFileSync } from "node:fs";
import { unpadTables } from "./page_format.ts";

/** A generated part of one or several pages. */
export interface Part {
  /** The name in its markers. */
  readonly name: string;
  /** Pages that contain it, relative to the root of the repository. */
  readonly files: readonly string[];
  /** Makes its current text. */
  make(): string;
}

const startOf = (name: string) => `<!-- ${name}: written by \`npm run docs\` -->`;
const endOf = (name: string) => `<!-- end of ${name} -->`;

/**
 * @param head The head's cells
 * @param rows Each row's cells, as many as in the head
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
 * @returns The start and the end of its text
 * @throws If the page lacks the markers
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
 * @returns The current text of the part
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
