/**
 * The one file without the code that observes exchanges, to measure the cost of log, metrics and
 * the rest.
 */
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build, type Plugin } from "esbuild";
import { ONE_FILE } from "../bundle.ts";
import { CACHE } from "./machine.ts";

const LOOP = "for (const observer of observers)";

const withoutObservers: Plugin = {
  name: "without observers",
  setup({ onLoad }) {
    onLoad({ filter: /src\/exchange\/open_exchanges\.ts$/ }, ({ path }) => {
      const source = readFileSync(path, "utf8");
      if (!source.includes(LOOP)) {
        throw new Error(`Cannot leave the observers out: ${path} has no "${LOOP}"`);
      }
      return {
        contents: source.replace(LOOP, "for (const observer of observers.slice(0, 0))"),
        loader: "ts",
      };
    });
  },
};

/**
 * Builds the file.
 *
 * @returns Its path
 */
export async function buildUnobserved(): Promise<string> {
  mkdirSync(CACHE, { recursive: true });
  const outfile = join(CACHE, "unobserved.js");
  await build({ ...ONE_FILE, outfile, plugins: [withoutObservers] });
  return outfile;
}
