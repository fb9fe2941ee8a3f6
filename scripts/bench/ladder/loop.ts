/**
 * Makes the calls of all rungs in one process, in turns: `loop.ts KIND UNIT WARM TURNS CALLS`.
 * Prints the figures of each turn as JSON: for each rung the time in µs, or bytes of garbage, for a
 * call. Valgrind counts instructions: it writes its sum at each call of `getPriority`.
 */
import { getPriority } from "node:os";
import process from "node:process";
import { type Answer, createRungs } from "./rungs.ts";
import { type Kind, readAnswer, toRequest } from "./stand_in.ts";

const [kind, unit, ...numbers] = process.argv.slice(2) as [Kind, string, ...string[]];
const [warm = 0, turns = 0, calls = 0] = numbers.map(Number);

function readUnit(): number {
  if (unit === "instructions") return getPriority();
  if (unit === "garbage") {
    const { heapUsed, arrayBuffers } = process.memoryUsage();
    return heapUsed + arrayBuffers;
  }
  return performance.now() * 1000;
}

async function makeCalls(answer: Answer): Promise<void> {
  for (let made = 0; made < calls; made++) await readAnswer(await answer(toRequest(kind)));
  flush();
}

const { answers, flush } = createRungs(kind);
for (let turn = 0; turn < warm; turn++) for (const answer of answers) await makeCalls(answer);
const figures: number[][] = [];
for (let turn = 0; turn < turns; turn++) {
  const row: number[] = [];
  for (const answer of answers) {
    const before = readUnit();
    await makeCalls(answer);
    row.push((readUnit() - before) / calls);
  }
  figures.push(row);
}
console.log(JSON.stringify(figures));
process.exit();
