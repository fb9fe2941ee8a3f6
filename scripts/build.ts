/**
 * `npm run build`: from the sources to `dist/`.
 *
 * - `src/admin/page_assets.ts`: the console's page, which the sources serve too
 * - `dist/sallyport.js`: the one file, command line and library, for Deno, Bun and Node from 20 on
 * - `dist/mod.js` and `dist/types/`: the library alone, with types
 * - `dist/mod.cjs` and `dist/types-cjs/`: the same for `require`
 * - `dist/workers.js`: the Cloudflare Worker
 * - `dist/gateway.schema.json`: the schema of `gateway.jsonc`, for editors
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { toJsonSchema } from "@valibot/to-json-schema";
import { build } from "esbuild";
import { ConfigSchema } from "../src/config/config.ts";
import { COMMONJS_LIBRARY, LIBRARY, ONE_FILE, WORKER } from "./bundle.ts";
import { buildPage, writePageModule } from "./page.ts";

const { values } = parseArgs({
  options: {
    quiet: { type: "boolean", default: false },
    "no-types": { type: "boolean", default: false },
    out: { type: "string", default: "dist" },
  },
});
const { out } = values;
const say = (text: string) => values.quiet || console.log(text);

writePageModule(await buildPage());
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
await build({ ...ONE_FILE, outfile: join(out, "sallyport.js") });
await build({ ...LIBRARY, outfile: join(out, "mod.js") });
await build({ ...COMMONJS_LIBRARY, outfile: join(out, "mod.cjs") });
await build({ ...WORKER, outfile: join(out, "workers.js") });
writeFileSync(
  join(out, "gateway.schema.json"),
  JSON.stringify(toJsonSchema(ConfigSchema, { typeMode: "input", errorMode: "ignore" }), null, 2) + "\n",
);
if (!values["no-types"]) {
  execFileSync(process.execPath, [
    "node_modules/typescript/bin/tsc",
    "-p",
    "scripts/tsconfig.types.json",
    "--outDir",
    join(out, "types"),
  ], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  // The same declarations once more, as those of CommonJS: TypeScript looks for the closest package.json.
  const [types, commonJs] = [join(out, "types"), join(out, "types-cjs")];
  cpSync(types, commonJs, { recursive: true, filter: (path) => !path.startsWith(join(types, "src", "cloudflare")) });
  writeFileSync(join(commonJs, "package.json"), '{ "type": "commonjs" }\n');
}
for (const name of ["sallyport.js", "mod.js", "mod.cjs", "workers.js", "gateway.schema.json"]) {
  const file = join(out, name);
  say(`${file}  ${(statSync(file).size / 1000).toFixed(1)} kB`);
}
say(`sha256:${createHash("sha256").update(readFileSync(join(out, "sallyport.js"))).digest("hex")}  sallyport.js`);
