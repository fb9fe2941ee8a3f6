/** The table of what callers see of faults in a fleet, from what `npm run fleet` wrote. */
import { existsSync, readFileSync } from "node:fs";
import { type Part, toTable } from "./parts.ts";

/** The file of the last run. */
export const FLEET_RESULTS = "scripts/fleet/results.json";

/** What a fault did. */
export interface FleetRow {
  readonly fault: string;
  /** Number of calls by what their callers saw. */
  readonly answers: Readonly<Record<string, number>>;
  /** Decisions without Redis. */
  readonly localDecisions: number;
  /** Tokens that passed and that were charged, as shares of the limits. */
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
