/**
 * `npm run build`: builds `dist/` from the sources.
 *
 * - `src/admin/page_assets.ts`: the console's page, which is also served when the gateway runs from
 *   source
 * - `dist/sallyport.js`: the one file, command line and library, for Deno, Bun and Node from 20 on
 * - `dist/mod.js` and `dist/types/`: the library alone, with types
 * - `dist/mod.cjs` and `dist/types-cjs/`: the same for `require`
 * - `dist/workers.js`: the Cloudflare Worker
 * - `dist/gateway.schema.json`: the schema of `gateway.jsonc`, for editors
 * - `dist/sbom.cdx.json`: the packages that are inside, with their licences (CycloneDX)
 * - `dist/provenance.intoto.json`: the digest of each of these files, and their sources (in-toto,
 *   SLSA)
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { toJsonSchema } from "@valibot/to-json-schema";
import { build, type BuildOptions } from "esbuild";
import { ConfigSchema } from "../src/config/config.ts";
import { PriceSchema } from "../src/config/prices.ts";
import { COMMONJS_LIBRARY, LIBRARY, ONE_FILE, WORKER } from "./bundle.ts";
import { ONE_CHECKER } from "./compiler.ts";
import { type BuiltFile, makeProvenance, makeSbom } from "./inventory.ts";
import { buildPage, PAGE_INPUTS, PAGE_MODULE, writePageModule } from "./page.ts";

const { values } = parseArgs({
  options: {
    quiet: { type: "boolean", default: false },
    "no-types": { type: "boolean", default: false },
    out: { type: "string", default: "dist" },
  },
});
const { out } = values;
const say = (text: string) => values.quiet || console.log(text);

/** The schema of the configuration. The price of a model occurs in four places and is defined once. */
const toEditorSchema = () =>
  toJsonSchema(ConfigSchema, {
    typeMode: "input",
    errorMode: "ignore",
    definitions: { price: PriceSchema },
  });

writePageModule(await buildPage());
rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const bundles: readonly (readonly [name: string, options: BuildOptions])[] = [
  ["sallyport.js", ONE_FILE],
  ["mod.js", LIBRARY],
  ["mod.cjs", COMMONJS_LIBRARY],
  ["workers.js", WORKER],
];
const built: BuiltFile[] = [];
for (const [name, options] of bundles) {
  const { metafile } = await build({ ...options, outfile: join(out, name), metafile: true });
  // Unused modules, which esbuild removed, are not included.
  const inputs = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).filter(([, { bytesInOutput }]) => bytesInOutput > 0).map(([path]) =>
      path
    )
  );
  built.push({ name, inputs: inputs.includes(PAGE_MODULE) ? [...inputs, ...PAGE_INPUTS] : inputs });
}
writeFileSync(
  join(out, "gateway.schema.json"),
  `${JSON.stringify(toEditorSchema(), null, 2)}\n`,
);
if (!values["no-types"]) {
  execFileSync(process.execPath, [
    "node_modules/typescript/bin/tsc",
    ...ONE_CHECKER,
    "-p",
    "scripts/tsconfig.types.json",
    "--outDir",
    join(out, "types"),
  ], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  // The same declarations for CommonJS, in a second folder: TypeScript reads the closest
  // package.json.
  const [types, commonJs] = [join(out, "types"), join(out, "types-cjs")];
  cpSync(types, commonJs, {
    recursive: true,
    filter: (path) => !path.startsWith(join(types, "src", "cloudflare")),
  });
  writeFileSync(join(commonJs, "package.json"), '{ "type": "commonjs" }\n');
}
const SBOM = "sbom.cdx.json";
const PROVENANCE = "provenance.intoto.json";
writeFileSync(join(out, SBOM), makeSbom(built));
const stated = [...built.map(({ name }) => name), "gateway.schema.json", SBOM];
writeFileSync(join(out, PROVENANCE), makeProvenance(out, stated, built));
for (const name of [...stated, PROVENANCE]) {
  const file = join(out, name);
  say(`${file}  ${(statSync(file).size / 1000).toFixed(1)} kB`);
}
say(
  `sha256:${
    createHash("sha256").update(readFileSync(join(out, "sallyport.js"))).digest("hex")
  }  sallyport.js`,
);
