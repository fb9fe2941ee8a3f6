/** The table of correctness compared with peers, from the results of `npm run bench`. */
import { readFileSync } from "node:fs";
import type { Correctness } from "../bench/correctness/checks.ts";
import { COLUMNS, toCells } from "../bench/correctness/section.ts";
import { toTable } from "./parts.ts";
import { toName } from "./performance.ts";

const RESULTS = "scripts/bench/results.json";

/** @returns The results for the gateway and each peer */
export function makeCorrectness(): string {
  const { correctness = [] }: { correctness?: readonly Correctness[] } = JSON.parse(
    readFileSync(RESULTS, "utf8"),
  );
  if (correctness.length === 0) return "Not measured yet.";
  return toTable(
    ["", ...COLUMNS],
    correctness.map((row) => [toName(row.subject), ...toCells(row)]),
  );
}
