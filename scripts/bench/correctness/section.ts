/**
 * Checks of correctness next to the speed results: the same checks for the gateway and for each
 * peer.
 */
import type { LimitKind } from "../gateway_config.ts";
import type { Subject } from "../subjects.ts";
import { checkSubject, type Correctness, type Report } from "./checks.ts";
import { SceneProvider } from "./provider.ts";

/** Approximate seconds for the checks of one subject. */
export const CHECK_SECONDS = 5;

const REPORTS: Readonly<Record<Report, string>> = {
  error: "error",
  broken: "broken off",
  nothing: "NOT REPORTED",
  none: "–",
};
const LIMIT_NAMES: Readonly<Record<LimitKind, string>> = {
  requests: "requests a minute",
  concurrency: "calls at once",
  tokens: "tokens a minute",
};

/** Column titles, in the order of {@link toCells}. */
export const COLUMNS: readonly string[] = [
  "bytes equal: request, answer, stream",
  "reported: a broken stream, a stream without its end, a broken answer",
  "upstream closed after the caller left: a quiet stream, before the answer",
  ...Object.values(LIMIT_NAMES).map((name) => `more than the limit: ${name}`),
];

const toAnswer = (isSame: boolean | null): string => isSame === null ? "–" : isSame ? "yes" : "NO";
function toTime(ms: number | null | undefined): string {
  if (ms === undefined) return "–";
  return ms === null ? "NEVER" : `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
}
const toShare = (excess: number | undefined): string =>
  excess === undefined ? "–" : `${Math.round(excess * 100)} %`;

/** The result for a subject, as text for people. */
export function toCells({ isEqual, reported, leftMs, excess }: Correctness): string[] {
  const kinds = Object.keys(LIMIT_NAMES) as LimitKind[];
  return [
    [isEqual.request, isEqual.plain, isEqual.stream].map(toAnswer).join(", "),
    [reported.cut, reported.ended, reported.plain].map((report) => REPORTS[report]).join(", "),
    [leftMs.stream, leftMs.plain].map(toTime).join(", "),
    ...kinds.map((kind) => toShare(excess[kind])),
  ];
}

/** Checks one subject after the other, and prints the results. */
export async function checkAll(subjects: readonly Subject[]): Promise<Correctness[]> {
  const provider = new SceneProvider();
  const url = await provider.listen();
  const found: Correctness[] = [];
  console.log("\ncorrect: whether answers are right");
  try {
    for (const subject of subjects) {
      const row = await checkSubject(subject, provider, url);
      found.push(row);
      console.log(`  ${row.subject}`);
      toCells(row).forEach((cell, index) => console.log(`    ${COLUMNS[index]}: ${cell}`));
    }
  } finally {
    provider.close();
  }
  return found;
}
