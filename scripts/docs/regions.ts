/** The table of a limit that several regions share, from the results of `npm run regions`. */
import { existsSync, readFileSync } from "node:fs";
import { type Part, toTable } from "./parts.ts";

/** The file of the last run. */
export const REGIONS_RESULTS = "scripts/regions/results.json";

/** The result of one scene with one limit. */
export interface RegionRow {
  readonly scene: string;
  /** Requests in a window. */
  readonly limit: number;
  /** Admitted calls, as a share of the limit, by window. */
  readonly admitted: readonly number[];
  /** Decisions without Redis. */
  readonly localDecisions: number;
  /** Time that the limiter needed to decide in the far regions. Milliseconds. */
  readonly waitMs: { readonly median: number; readonly p99: number };
}

const toPercent = (share: number): string => `${Math.round(share * 100)} %`;
const toMs = (ms: number): string => `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;

function makeRegions(): string {
  const rows: readonly RegionRow[] = existsSync(REGIONS_RESULTS)
    ? JSON.parse(readFileSync(REGIONS_RESULTS, "utf8"))
    : [];
  return toTable(
    ["scene", "limit", "admitted, by window", "decided alone", "wait far away: median", "p99"],
    rows.map(({ scene, limit, admitted, localDecisions, waitMs }) => [
      scene,
      String(limit),
      admitted.map(toPercent).join(", "),
      String(localDecisions),
      toMs(waitMs.median),
      toMs(waitMs.p99),
    ]),
  );
}

/** The part of the page. */
export const REGIONS: Part = {
  name: "regions",
  files: ["docs/reliability.md"],
  make: makeRegions,
};
