/**
 * `npm run build`: from the sources to `dist/`.
 *
 * - `dist/sallyport.js`: the one file, command line and library, for Deno, Bun and Node from 20 on
 * - `dist/mod.js` and `dist/types/`: the library alone, with types
 * - `dist/gateway.schema.json`: the schema of `gateway.jsonc`, for editors
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { toJsonSchema } from "@valibot/to-json-schema";
import { build, type BuildOptions } from "esbuild";
import { ConfigSchema } from "../src/config.ts";
import { BUNDLE, PROGRAM_BUNDLE, REQUIRE_BANNER } from "./bundle.ts";

const { values } = parseArgs({
  options: {
    quiet: { type: "boolean", default: false },
    "no-types": { type: "boolean", default: false },
    out: { type: "string", default: "dist" },
  },
});
const { out } = values;
const say = (text: string) => values.quiet || console.log(text);

/** Node 20 has no `import.meta.main`: there the module's URL is compared with the program's real path. */
const MAIN_BANNER = `#!/usr/bin/env node
${REQUIRE_BANNER}
import { realpathSync as __realpath } from "node:fs";
import { pathToFileURL as __toUrl } from "node:url";
const __main = import.meta.main ?? (() => {
  try { return import.meta.url === __toUrl(__realpath(process.argv[1])).href; } catch { return false; }
})();`;

const shared: BuildOptions = { entryPoints: ["mod.ts"], legalComments: "none" };

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({
  ...PROGRAM_BUNDLE,
  ...shared,
  outfile: join(out, "sallyport.js"),
  minify: true,
  define: { ...BUNDLE.define, "import.meta.main": "__main" },
  banner: { js: MAIN_BANNER },
});
await build({ ...BUNDLE, ...shared, outfile: join(out, "mod.js"), define: { "import.meta.main": "false" } });
writeFileSync(
  join(out, "gateway.schema.json"),
  JSON.stringify(toJsonSchema(ConfigSchema, { typeMode: "input", errorMode: "ignore" }), null, 2) + "\n",
);
if (!values["no-types"]) {
  execFileSync(process.execPath, [
    "node_modules/typescript/bin/tsc",
    "-p",
    "tsconfig.types.json",
    "--outDir",
    join(out, "types"),
  ], {
    stdio: ["ignore", "inherit", "inherit"],
  });
}
for (const name of ["sallyport.js", "mod.js", "gateway.schema.json"]) {
  const file = join(out, name);
  say(`${file}  ${(statSync(file).size / 1000).toFixed(1)} kB`);
}
say(`sha256:${createHash("sha256").update(readFileSync(join(out, "sallyport.js"))).digest("hex")}  sallyport.js`);
