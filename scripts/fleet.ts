/**
 * `npm run fleet -- [--only "FLUSHALL"] [--seed N]`: runs three gateways on three runtimes that
 * share a real Redis. While callers use up the limits of two keys, each fault of Redis and of a
 * gateway happens once. The answers to callers, the admitted tokens and the charged tokens are
 * written to the table of docs/reliability.md. The merged history is checked against the
 * guarantees.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { parseArgs } from "node:util";
import { FLEET, FLEET_RESULTS, type FleetRow } from "./docs/fleet.ts";
import { writePart } from "./docs/parts.ts";
import { FAULTS } from "./fleet/faults.ts";
import { checkHistory, type HistoricCall } from "./fleet/history.ts";
import { LIMIT, MOST_USED, runScene } from "./fleet/scene.ts";

const { values } = parseArgs({ options: { only: { type: "string" }, seed: { type: "string" } } });
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
console.log(`fleet: seed ${seed}`);

function countAnswers(calls: readonly HistoricCall[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { answer } of calls) counts[answer] = (counts[answer] ?? 0) + 1;
  return counts;
}

let failed = 0;
const rows = new Map<string, FleetRow>();
if (existsSync(FLEET_RESULTS)) {
  for (const row of JSON.parse(readFileSync(FLEET_RESULTS, "utf8")) as FleetRow[]) {
    rows.set(row.fault, row);
  }
}
for (const [index, { name, lost, prepare }] of FAULTS.entries()) {
  if (values.only !== undefined && !name.includes(values.only)) continue;
  const ground = await prepare();
  try {
    const { calls, charged, localDecisions } = await runScene(ground.redis, ground, seed + index);
    const isAlone = localDecisions > 0;
    const keys = Object.keys(charged);
    // Lost counts let a limit be used once more; a decision without Redis admits at most one call.
    const excused = lost * LIMIT + localDecisions * MOST_USED;
    const reports = keys.map((key, at) =>
      checkHistory(calls, { key, tokens: LIMIT, isStrict: at === 1, excused }, isAlone || lost > 0)
    );
    const sum = (of: (at: number) => number) => keys.reduce((total, _, at) => total + of(at), 0);
    const row: FleetRow = {
      fault: name,
      answers: countAnswers(calls),
      localDecisions,
      passed: sum((at) => reports[at]?.passed ?? 0) / (LIMIT * keys.length),
      charged: sum((at) => charged[keys[at] ?? ""] ?? NaN) / (LIMIT * keys.length),
    };
    rows.set(name, row);
    console.log(`${name}: ${JSON.stringify(row)}`);
    for (const violation of reports.flatMap(({ violations }) => violations)) {
      failed++;
      console.log(`FAILED ${name}: ${violation}`);
    }
  } catch (error) {
    failed++;
    console.log(`FAILED ${name}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    await ground.close();
  }
}
writeFileSync(
  FLEET_RESULTS,
  `${JSON.stringify(FAULTS.flatMap(({ name }) => rows.get(name) ?? []), null, 2)}\n`,
);
writePart(FLEET);
console.log(failed === 0 ? "ok" : `${failed} promises were not kept`);
process.exit(failed === 0 ? 0 : 1);
