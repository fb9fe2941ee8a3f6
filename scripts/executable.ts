/**
 * `npm run executable -- --runtime bun [--out FILE]`: the one file and a runtime in one executable,
 * which needs nothing beside itself. Run `npm run build` before.
 *
 * Deno's way (`--runtime deno`) downloads a runtime of its own and is not tested.
 */
import { execFileSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { parseArgs } from "node:util";
import { findRuntimes } from "./runtimes.ts";

const ONE_FILE = "dist/sallyport.js";
const { values } = parseArgs({
  options: {
    runtime: { type: "string", default: "bun" },
    out: { type: "string", default: "dist/sallyport" },
  },
});
const { runtime: wanted, out } = values;
const runtime = findRuntimes().find(({ kind }) => kind === wanted && kind !== "node");
if (runtime === undefined) {
  throw new Error("Cannot make an executable: --runtime takes bun or deno");
}
if (!existsSync(ONE_FILE)) throw new Error(`Cannot find ${ONE_FILE}: run npm run build first`);

const args = wanted === "bun"
  ? ["build", "--compile", ONE_FILE, "--outfile", out]
  : ["compile", "-A", "--no-config", "--output", out, ONE_FILE];
execFileSync(runtime.command, args, { stdio: ["ignore", "ignore", "inherit"] });
console.log(`${out}  ${(statSync(out).size / 1e6).toFixed(0)} MB`);
