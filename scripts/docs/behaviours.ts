/** The table of behaviours in `docs/embedding.md`, from the reports of a test run. */
import { globSync, readFileSync } from "node:fs";
import { type Part, toTable } from "./parts.ts";

/** The subject of each row. A test that proves one is called `behaviour: <row> (<column>)`. */
export const ROWS: Readonly<Record<string, string>> = {
  "abort":
    "the connection to the provider is closed at once if the caller leaves, in a stream or before it",
  "silent stream": "a stream continues after 12 s of silence (tested on Workers: 0.7 s)",
  "split UTF-8": "characters that arrive byte by byte are forwarded unchanged",
  "truncated stream": "a stream that breaks off ends with an error event and without `[DONE]`",
  "large body": "a body of at least 5 MB arrives complete",
  "compressed upstream": "a compressed answer of the provider is decompressed",
  "redirect": "a redirect of the provider is not followed",
  "drain": "after SIGTERM, an open stream arrives to its last byte",
};
/** Runtimes, their servers, and frameworks. */
export const COLUMNS: readonly string[] = [
  "Deno",
  "Bun",
  "Node",
  "Workers",
  "Deno.serve",
  "Bun.serve",
  "Hono",
  "h3",
  "Elysia",
  "Express",
  "Fastify",
  "Next.js",
  "Astro",
];

/** The reason for a gap: a whole column, or one of its rows, is not tested. */
interface Gap {
  readonly column: string;
  readonly row?: string;
  readonly why: string;
}

const GAPS: readonly Gap[] = [
  {
    column: "Workers",
    row: "drain",
    why: "the platform ends a Worker by itself, and lets open exchanges finish",
  },
];

type Mark = "yes" | "no" | "–";

/** The result of each case, by its name: `no` if it failed in any report. */
function marksOf(reports: readonly string[]): Map<string, Mark> {
  const marks = new Map<string, Mark>();
  for (const report of reports) {
    for (
      const [, attributes = "", content = ""] of report.matchAll(
        /<testcase\b((?:[^">]|"[^"]*")*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
      )
    ) {
      const [, name] = /\bbehaviour: ([^"]+?\([^")]+\))/.exec(attributes) ?? [];
      if (name === undefined || /<skipped\b/.test(content)) continue;
      const hasFailed = /<(?:failure|error)\b/.test(content) || marks.get(name) === "no";
      marks.set(name, hasFailed ? "no" : "yes");
    }
  }
  return marks;
}

/**
 * @param reports JUnit, each as a text
 * @param gaps The known gaps
 * @returns The table, and notes on its gaps
 * @throws For a gap without an explanation, and for an explanation without a gap
 */
export function toBehaviours(reports: readonly string[], gaps: readonly Gap[] = GAPS): string {
  const marks = marksOf(reports);
  const markOf = (row: string, column: string): Mark => marks.get(`${row} (${column})`) ?? "–";
  const rows = Object.keys(ROWS);
  const empty = COLUMNS.filter((column) => rows.every((row) => markOf(row, column) === "–"));
  const used = new Set<Gap>();
  const cellOf = (row: string, column: string): string => {
    const mark = markOf(row, column);
    if (mark !== "–") return mark;
    const gap = gaps.find((each) => each.column === column && (each.row ?? row) === row) ??
      fail(`${row} in ${column} was not tested: run npm test, or say why in GAPS`);
    if (gap.row === undefined && !empty.includes(column)) {
      fail(`parts of ${column} were not tested: say why, by rows`);
    }
    used.add(gap);
    return `– (${gaps.indexOf(gap) + 1})`;
  };
  const cells = rows.map((row) => [row, ...COLUMNS.map((column) => cellOf(row, column))]);
  for (const gap of gaps) {
    if (!used.has(gap)) fail(`there is no gap any more at ${gap.column}: take it out of GAPS`);
  }
  const notes = gaps.map(({ column, row, why }, index) =>
    `(${index + 1}) ${column}${row ? `, ${row}` : ""}: ${why}.`
  );
  const legend = rows.map((row) => `- ${row}: ${ROWS[row]}`).join("\n");
  return [toTable(["", ...COLUMNS], cells), ...notes, legend].join("\n\n");
}

function fail(why: string): never {
  throw new Error(`Cannot write the table of behaviours: ${why}`);
}

/** The part of the page. */
export const BEHAVIOURS: Part = {
  name: "behaviours",
  files: ["docs/embedding.md"],
  make: () =>
    toBehaviours(globSync(".cache/tests/*/*.xml").sort().map((file) => readFileSync(file, "utf8"))),
};
