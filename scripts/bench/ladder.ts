/**
 * The cost of each step of the pipeline: a ladder whose rungs take one step more each. See
 * `README.md` in `bench/`.
 *
 * Usage: `node scripts/bench/ladder.ts [--runtime node,deno,bun] [--unit time,garbage,instructions]
 * [--kind plain,stream] [--warm TURNS] [--turns TURNS] [--calls CALLS]`
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { PROGRAM_BUNDLE } from "../bundle.ts";
import { RUNGS } from "./ladder/rungs.ts";

/** Runs of one unit. */
interface Plan {
  readonly label: string;
  /** Flags of V8. */
  readonly flags: readonly string[];
  readonly runtimes: readonly string[];
  /** Turns before the first that counts, turns that count, and calls of each rung in a turn. */
  readonly turns: readonly [warm: number, turns: number, calls: number];
  /** The quantile of the turns that is shown. */
  readonly quantile: number;
}

const PLANS: Readonly<Record<string, Plan>> = {
  // Other programs on the machine only make turns longer.
  time: {
    label: "µs",
    flags: [],
    runtimes: ["node", "deno", "bun"],
    turns: [150, 300, 12],
    quantile: 0.1,
  },
  // A young generation in which nothing is collected. JavaScriptCore has none.
  garbage: {
    label: "bytes of garbage",
    flags: ["--min-semi-space-size=512", "--max-semi-space-size=512"],
    runtimes: ["node", "deno"],
    turns: [150, 15, 12],
    quantile: 0.5,
  },
  // Valgrind runs one thread at a time, so V8 compiles in the thread that is counted. It does not
  // run Bun.
  instructions: {
    label: "instructions",
    flags: ["--single-threaded"],
    runtimes: ["node", "deno"],
    turns: [60, 7, 40],
    quantile: 0.5,
  },
};

const { values } = parseArgs({
  options: {
    runtime: { type: "string", default: "node,deno,bun" },
    unit: { type: "string", default: "time,garbage" },
    kind: { type: "string", default: "plain,stream" },
    warm: { type: "string" },
    turns: { type: "string" },
    calls: { type: "string" },
  },
});

function toCommand(runtime: string, flags: readonly string[]): readonly string[] {
  if (runtime === "node") return ["node", ...flags];
  if (runtime === "bun") return ["bun"];
  return ["deno", "run", "-A", ...(flags.length > 0 ? [`--v8-flags=${flags.join(",")}`] : [])];
}

const run = (command: readonly string[]): string =>
  execFileSync(command[0] ?? "", command.slice(1), {
    encoding: "utf8",
    stdio: ["ignore", "pipe", "pipe"],
  });

/** Counts the instructions of a call, for each turn and rung. */
function countInstructions(command: readonly string[], turns: number, calls: number): number[][] {
  const output = join(folder, "callgrind");
  run([
    ...["valgrind", "--tool=callgrind", "--smc-check=all-non-file", "--dump-before=getpriority"],
    ...[`--callgrind-out-file=${output}`, ...command],
  ]);
  // The first file is of the time before the first mark; then two marks are around each rung.
  const sumOf = (file: number): number =>
    Number(/^summary: (\d+)$/m.exec(readFileSync(`${output}.${file}`, "utf8"))?.[1]);
  return Array.from(
    { length: turns },
    (_row, turn) =>
      RUNGS.map((_rung, index) => sumOf(2 * (turn * RUNGS.length + index + 1)) / calls),
  );
}

/** Returns the figure of a call for each rung. */
function measure(runtime: string, kind: string, unit: string, plan: Plan): number[] {
  const [warm, turns, calls] = plan.turns;
  const counts = [values.warm ?? warm, values.turns ?? turns, values.calls ?? calls].map(Number);
  const command = [...toCommand(runtime, plan.flags), program, kind, unit, ...counts.map(String)];
  const rows: number[][] = unit === "instructions"
    ? countInstructions(command, counts[1] ?? 0, counts[2] ?? 0)
    : JSON.parse(run(command));
  return RUNGS.map((_rung, index) => {
    const sorted = rows.map((row) => row[index] ?? NaN).sort((a, b) => a - b);
    return sorted[Math.floor(plan.quantile * sorted.length)] ?? NaN;
  });
}

const toText = (figure: number): string =>
  figure.toLocaleString("en", { maximumFractionDigits: figure < 1000 ? 1 : 0 });

/** Prints the figures of one runtime: those that each rung adds, and the sums. */
function print(runtime: string, kinds: readonly string[], unit: string, plan: Plan): void {
  const columns = kinds.map((kind) => measure(runtime, kind, unit, plan));
  console.log(`\n${runtime}, ${plan.label} for a call\n`);
  console.log(`| rung | ${kinds.map((kind) => `${kind}, added | sum`).join(" | ")} |`);
  console.log(`| --- |${" ---: | ---: |".repeat(kinds.length)}`);
  for (const [index, rung] of RUNGS.entries()) {
    const cells = columns.flatMap((column) => {
      const sum = column[index] ?? NaN;
      return [toText(sum - (column[index - 1] ?? 0)), toText(sum)];
    });
    console.log(`| ${[rung, ...cells].join(" | ")} |`);
  }
}

const folder = mkdtempSync(join(tmpdir(), "ladder-"));
const program = join(folder, "loop.mjs");
process.on("exit", () => rmSync(folder, { recursive: true, force: true }));
await build({
  ...PROGRAM_BUNDLE,
  entryPoints: [new URL("ladder/loop.ts", import.meta.url).pathname],
  outfile: program,
});
for (const unit of values.unit.split(",")) {
  const plan = PLANS[unit];
  if (plan === undefined) throw new Error(`There is no unit ${unit}`);
  for (const runtime of values.runtime.split(",").filter((one) => plan.runtimes.includes(one))) {
    print(runtime, values.kind.split(","), unit, plan);
  }
}
