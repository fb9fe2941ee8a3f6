/**
 * The table of the effects of faults on callers of a fleet, from the results of `npm run fleet`.
 */
import { existsSync, readFileSync } from "node:fs";
import { type Part, toTable } from "./parts.ts";

/** The file of the last run. */
export const FLEET_RESULTS = "scripts/fleet/results.json";

/** The result of a fault. */
export interface FleetRow {
  readonly fault: string;
  /** Number of calls by their result for the caller. */
  readonly answers: Readonly<Record<string, number>>;
  /** Decisions without Redis. */
  readonly localDecisions: number;
  /** Tokens that were admitted and that were charged, as shares of the limits. */
  readonly passed: number;
  readonly charged: number;
}

const toPercent = (share: number | null): string =>
  share === null ? "–" : `${Math.round(share * 100)} %`;

function makeFleet(): string {
  const rows: readonly FleetRow[] = existsSync(FLEET_RESULTS)
    ? JSON.parse(readFileSync(FLEET_RESULTS, "utf8"))
    : [];
  return toTable(
    ["fault", "callers saw", "decided alone", "passed", "charged"],
    rows.map(({ fault, answers, localDecisions, passed, charged }) => [
      fault,
      Object.entries(answers).sort(([, one], [, other]) => other - one)
        .map(([answer, count]) => `${count} × ${answer.replace(/ (\w+)/, " `$1`")}`).join(", "),
      String(localDecisions),
      toPercent(passed),
      toPercent(charged),
    ]),
  );
}

/** The part of the page. */
export const FLEET: Part = { name: "fleet", files: ["docs/reliability.md"], make: makeFleet };
