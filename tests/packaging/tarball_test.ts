/** The package as it ships: what is in it, and that it works in an empty folder with nothing else. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { makeFolder, ONE_FILE, runProgram } from "../support/program.ts";
import { runtime } from "../support/runtimes.ts";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));
const runtimes = findRuntimes();
const commandOf = (name: string) =>
  runtimes.find(({ kind, runsTypeScript }) => kind === name && runsTypeScript)?.command;
const node = commandOf("node") ?? assert.fail("no Node that runs TypeScript");
const pages = readdirSync("docs").filter((name) => name.endsWith(".md")).map((name) => `docs/${name}`);
const TSC = resolve("node_modules", "typescript", "bin", "tsc");
const PROGRAM = `
import { createGateway, type ExchangeRecord, type Gateway, parseConfig } from "sallyport";

const settled = (record: ExchangeRecord): void => console.log(record.outcome);
const gateway: Gateway = createGateway(
  parseConfig({ providers: { a: { upstream: "openai" } }, keys: [{ id: "me", key: "a-key-of-your-own" }] }),
  { observers: [{ settled }] },
);
const response: Response = await gateway.fetch(new Request("http://a.example/v1/models"));
console.log(response.status);
`;

/** Not run: its module is Cloudflare's. */
const WORKER = `
import worker, { type Bindings, SallyportLimits } from "sallyport/workers";

const env: Bindings = { SALLYPORT_CONFIG: {} };
export const answer: Promise<Response> = worker.fetch(new Request("http://a.example/v1/models"), env);
export class Limits extends SallyportLimits {}
`;

describe("the package", () => {
  let folder: ReturnType<typeof makeFolder>;
  let user: string;
  let files: string[];

  /** Runs in the user's folder and returns what was printed. */
  const run = (command: string, args: readonly string[], cwd = user): string =>
    execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

  beforeAll(() => {
    folder = makeFolder();
    const [packed, empty] = [join(folder.path, "packed"), join(folder.path, "user")];
    for (const path of [packed, empty]) mkdirSync(path);
    run(node, ["scripts/build.ts", "--quiet", "--out", join(packed, "dist")], process.cwd());
    mkdirSync(join(packed, "docs"));
    for (const name of ["package.json", "README.md", "LICENSE", ...pages]) copyFileSync(name, join(packed, name));
    const [tarball] = JSON.parse(run("npm", ["pack", "--json", "--ignore-scripts", "--silent"], packed));
    files = tarball.files.map(({ path }: { path: string }) => path);
    user = empty;
    writeFileSync(join(user, "package.json"), `{"name":"user","private":true,"type":"module"}`);
    run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(packed, tarball.filename)]);
  });
  afterAll(() => folder.remove());

  it("holds what is built, its pages and the licence", () => {
    assert.ok(pages.includes("docs/embedding.md"));
    assert.deepEqual(pages.filter((page) => !files.includes(page)), []);
    const rest = files.filter((file) => !/^(?:dist\/types|docs)\//.test(file)).sort();
    assert.deepEqual(rest, [
      "LICENSE",
      "README.md",
      "dist/gateway.schema.json",
      "dist/mod.js",
      "dist/sallyport.js",
      "dist/workers.js",
      "package.json",
    ]);
    assert.ok(files.includes("dist/types/mod.d.ts"));
    assert.deepEqual(files.filter((file) => file.startsWith("dist/types/") && !file.endsWith(".d.ts")), []);
  });

  it("brings nothing along and runs nothing when it is installed", () => {
    assert.equal(manifest.dependencies, undefined);
    assert.equal(manifest.peerDependencies, undefined);
    const hooks = ["preinstall", "install", "postinstall", "prepare"];
    assert.deepEqual(hooks.filter((name) => name in manifest.scripts), []);
  });

  it("is built the same twice, and says by its digest what it is", async () => {
    const one = readFileSync(ONE_FILE);
    assert.ok(one.equals(readFileSync(join(user, "node_modules", "sallyport", "dist", "sallyport.js"))));
    const { stdout } = await runProgram(["--version", "--json"]);
    const { version, runtime: told, digest } = JSON.parse(stdout);
    assert.equal(version, manifest.version);
    assert.match(told, new RegExp(`^${runtime} \\d+\\.`));
    assert.equal(digest, `sha256:${createHash("sha256").update(one).digest("hex")}`);
  });

  it("runs by npx and by bunx", () => {
    assert.equal(run("npx", ["--offline", "--no-install", "sallyport", "--version"]), `${manifest.version}\n`);
    const bun = commandOf("bun") ?? assert.fail("no Bun");
    assert.equal(run(bun, ["x", "--no-install", "sallyport", "--version"]), `${manifest.version}\n`);
  });

  it("is imported on each runtime", () => {
    writeFileSync(join(user, "program.ts"), PROGRAM);
    for (const { kind, command, runsTypeScript } of runtimes) {
      if (!runsTypeScript) continue;
      const flags = kind === "deno" ? ["run", "-A", "--node-modules-dir=manual"] : [];
      assert.equal(run(command, [...flags, "program.ts"]), "refused\n401\n", kind);
    }
  });

  for (const [module, moduleResolution] of [["nodenext", "nodenext"], ["esnext", "bundler"]]) {
    it(`has types that hold under --strict, resolved the way of ${moduleResolution}`, () => {
      const project = join(folder.path, `${moduleResolution}.json`);
      const compilerOptions = {
        module,
        moduleResolution,
        strict: true,
        noEmit: true,
        skipLibCheck: false,
        exactOptionalPropertyTypes: true,
        lib: ["ES2023", "DOM", "DOM.Iterable"],
        target: "ES2023",
        types: [],
      };
      writeFileSync(join(user, "program.ts"), PROGRAM);
      writeFileSync(join(user, "wrong.ts"), `${PROGRAM}\nconst wrong: number = gateway;\n`);
      writeFileSync(join(user, "worker.ts"), WORKER);
      const files = ["program.ts", "worker.ts"].map((name) => join(user, name));
      writeFileSync(project, JSON.stringify({ compilerOptions, files }));
      assert.equal(run(node, [TSC, "-p", project]), "");
      writeFileSync(project, JSON.stringify({ compilerOptions, files: [join(user, "wrong.ts")] }));
      assert.throws(() => run(node, [TSC, "-p", project]), "types are not looked at");
    });
  }
});
