/**
 * `npm run executable [-- --out FILE]`: builds one executable from the one file and Bun, which
 * needs no runtime on the machine. Run `npm run build` first.
 */
import { execFileSync } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { parseArgs } from "node:util";
import { findRuntimes } from "./runtimes.ts";

const ONE_FILE = "dist/sallyport.js";
const { out } = parseArgs({
  options: { out: { type: "string", default: "dist/sallyport" } },
}).values;
const bun = findRuntimes().find(({ kind }) => kind === "bun");
if (bun === undefined) throw new Error("Cannot make an executable: there is no Bun");
if (!existsSync(ONE_FILE)) throw new Error(`Cannot find ${ONE_FILE}: run npm run build first`);

execFileSync(bun.command, ["build", "--compile", ONE_FILE, "--outfile", out], {
  stdio: ["ignore", "ignore", "inherit"],
});
console.log(`${out}  ${(statSync(out).size / 1e6).toFixed(0)} MB`);
