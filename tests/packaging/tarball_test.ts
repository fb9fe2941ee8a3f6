/**
 * The published package: its files, and that it works on each runtime in an empty folder without
 * other packages.
 */
// runtimes: once
// long: it builds and compiles the package
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { ONE_CHECKER } from "../../scripts/compiler.ts";
import { findRuntimes } from "../../scripts/runtimes.ts";
import { makeFolder, ONE_FILE, runProgram } from "../support/program.ts";

const manifest = JSON.parse(readFileSync("package.json", "utf8"));
const runtimes = findRuntimes();
const commandOf = (name: string) =>
  runtimes.find(({ kind, runsTypeScript }) => kind === name && runsTypeScript)?.command;
const node = commandOf("node") ?? assert.fail("no Node that runs TypeScript");
const pages = ["docs", "docs/tasks"].flatMap((folder) =>
  readdirSync(folder).filter((name) => name.endsWith(".md")).map((name) => `${folder}/${name}`)
);
const TSC = resolve("node_modules", "typescript", "bin", "tsc");
/** Disables `require` for modules that are not CommonJS. */
const ONLY_COMMONJS = "--no-experimental-require-module";
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

const COMMONJS_PROGRAM = `
const { createGateway, parseConfig } = require("sallyport");

const gateway = createGateway(
  parseConfig({ providers: { a: { upstream: "openai" } }, keys: [{ id: "me", key: "a-key-of-your-own" }] }),
);
gateway.fetch(new Request("http://a.example/v1/models")).then(({ status }) => console.log(status));
`;

/** The types as a CommonJS program sees them, in TypeScript's two syntaxes. */
const COMMONJS_TYPES = `
import { createGateway, type Gateway, parseConfig } from "sallyport";
import sallyport = require("sallyport");

export const gateway: Gateway = createGateway(parseConfig({ providers: {} }));
export const same: sallyport.Gateway = sallyport.createGateway(sallyport.parseConfig({ providers: {} }));
`;

/** Not run: its module exists only at Cloudflare. */
const WORKER = `
import worker, { type Bindings, SallyportLimits } from "sallyport/workers";

const env: Bindings = { SALLYPORT_CONFIG: {} };
export const answer: Promise<Response> = worker.fetch(new Request("http://a.example/v1/models"), env);
export class Limits extends SallyportLimits {}
`;

/** Folders that the tests of examples create, which are not published. */
const BUILT = /(?:^|\/)(?:node_modules|dist|\.astro|\.next)$/;

describe("the package", () => {
  let folder: ReturnType<typeof makeFolder>;
  let user: string;
  let files: string[];

  /** Runs a command in the user's folder and returns its output. */
  const run = (command: string, args: readonly string[], cwd = user): string =>
    execFileSync(command, args, { cwd, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });

  beforeAll(() => {
    folder = makeFolder();
    const [packed, empty] = [join(folder.path, "packed"), join(folder.path, "user")];
    for (const path of [packed, empty]) mkdirSync(path);
    run(node, ["scripts/build.ts", "--quiet", "--out", join(packed, "dist")], process.cwd());
    for (const pattern of ["package.json", ...manifest.files]) {
      if (pattern.startsWith("dist/") || pattern.startsWith("!")) continue;
      const [folder, ending] = [dirname(pattern), pattern.split("*")[1]];
      const names = ending === undefined
        ? [pattern]
        : readdirSync(folder).filter((name) => name.endsWith(ending)).map((name) =>
          join(folder, name)
        );
      for (const name of names) {
        cpSync(name, join(packed, name), {
          recursive: true,
          filter: (path) => !BUILT.test(path),
        });
      }
    }
    const [tarball] = JSON.parse(
      run("npm", ["pack", "--json", "--ignore-scripts", "--silent"], packed),
    );
    files = tarball.files.map(({ path }: { path: string }) => path);
    user = empty;
    writeFileSync(join(user, "package.json"), `{"name":"user","private":true,"type":"module"}`);
    run("npm", ["install", "--offline", "--no-audit", "--no-fund", join(packed, tarball.filename)]);
  });
  afterAll(() => folder.remove());

  it("contains the build, its pages and their pictures", () => {
    assert.ok(pages.includes("docs/embedding.md"));
    assert.deepEqual(pages.filter((page) => !files.includes(page)), []);
    const rest = files.filter((file) =>
      !/^(?:dist\/types|dist\/types-cjs|docs|examples|ops)\//.test(file)
    ).sort();
    assert.deepEqual(rest, [
      "CONTRIBUTING.md",
      "LICENSE",
      "README.md",
      "SECURITY.md",
      "dist/gateway.schema.json",
      "dist/mod.cjs",
      "dist/mod.js",
      "dist/provenance.intoto.json",
      "dist/sallyport.js",
      "dist/sbom.cdx.json",
      "dist/workers.js",
      "package.json",
      "scripts/bench/chart.svg",
    ]);
    assert.ok(files.includes("dist/types/mod.d.ts"));
    assert.ok(files.includes("ops/Dockerfile"));
    const isStray = (file: string) =>
      /node_modules|^docs\/(?!.*\.(?:md|png)$)|^dist\/types(?:-cjs)?\/(?!.*\.d\.ts$)/.test(file);
    assert.deepEqual(files.filter(isStray), ["dist/types-cjs/package.json"]);
  });

  it("contains the schema at the paths that init writes and that the pages name", async () => {
    const own = makeFolder();
    try {
      const read = async (cwd: string) => {
        const { status } = await runProgram(["init", "--force"], { cwd });
        assert.equal(status, 0);
        const [, address = ""] =
          /"\$schema": "(.*)"/.exec(readFileSync(join(cwd, "gateway.jsonc"), "utf8")) ?? [];
        return address;
      };
      const installed = await read(user);
      assert.equal(installed, "./node_modules/sallyport/dist/gateway.schema.json");
      assert.equal(JSON.parse(readFileSync(join(user, installed), "utf8")).type, "object");
      const published = await read(own.path);
      const [, path = ""] = /^https:\/\/unpkg\.com\/sallyport@[\d.]+\/(.*)$/.exec(published) ?? [];
      assert.equal(published, `https://unpkg.com/sallyport@${manifest.version}/${path}`);
      assert.ok(files.includes(path));
      const page = readFileSync("docs/configuration.md", "utf8");
      for (const address of [installed, published]) assert.ok(page.includes(address), address);
    } finally {
      own.remove();
    }
  });

  it("has pages whose links and file names exist in the package", () => {
    const root = join(user, "node_modules", "sallyport");
    const texts = files.filter((file) => file.endsWith(".md"));
    assert.ok(texts.length > 10);
    let count = 0;
    for (const page of texts) {
      const text = readFileSync(join(root, page), "utf8").replace(/```[^]*?```/g, "");
      const links = text.matchAll(
        /\]\((?![a-z]+:|#)([^)\s#]+)[^)]*\)|(?:src|srcset|href)="(?![a-z]+:|#)([^"#]+)/g,
      );
      // Names of files in tests/, src/ and scripts/ refer to the repository.
      const names = page === "CONTRIBUTING.md"
        ? []
        : text.matchAll(/`((?:docs|examples|ops)\/[\w./-]*)`/g);
      const targets = [
        ...Array.from(links, ([, link, picture]) => join(dirname(page), link ?? picture ?? "")),
        ...Array.from(names, ([, name = ""]) => name),
      ];
      for (const target of targets) {
        assert.ok(existsSync(join(root, target)), `${page} leads to ${target}`);
      }
      count += targets.length;
    }
    assert.ok(count > 50, String(count));
  });

  it("has no dependencies and runs nothing when it is installed", () => {
    assert.equal(manifest.dependencies, undefined);
    assert.equal(manifest.peerDependencies, undefined);
    const hooks = ["preinstall", "install", "postinstall", "prepare"];
    assert.deepEqual(hooks.filter((name) => name in manifest.scripts), []);
  });

  it("is built reproducibly, and its digest identifies it", async () => {
    const one = readFileSync(ONE_FILE);
    assert.ok(
      one.equals(readFileSync(join(user, "node_modules", "sallyport", "dist", "sallyport.js"))),
    );
    for (const on of runtimes) {
      const { stdout } = await runProgram(["--version", "--json"], { on });
      const { version, runtime: told, digest } = JSON.parse(stdout);
      assert.equal(version, manifest.version);
      assert.match(told, new RegExp(`^${on.kind} \\d+\\.`));
      assert.equal(digest, `sha256:${createHash("sha256").update(one).digest("hex")}`);
    }
  });

  it("runs with npx and bunx", () => {
    assert.equal(
      run("npx", ["--offline", "--no-install", "sallyport", "--version"]),
      `${manifest.version}\n`,
    );
    const bun = commandOf("bun") ?? assert.fail("no Bun");
    assert.equal(
      run(bun, ["x", "--no-install", "sallyport", "--version"]),
      `${manifest.version}\n`,
    );
  });

  it("is imported on each runtime", () => {
    writeFileSync(join(user, "program.ts"), PROGRAM);
    for (const { kind, command, runsTypeScript } of runtimes) {
      if (!runsTypeScript) continue;
      const flags = kind === "deno" ? ["run", "-A", "--node-modules-dir=manual"] : [];
      assert.equal(run(command, [...flags, "program.ts"]), "refused\n401\n", kind);
    }
  });

  it("can be loaded with require on each runtime, also by a Node that cannot require ES modules", () => {
    writeFileSync(join(user, "program.cjs"), COMMONJS_PROGRAM);
    for (const { label, kind, command } of runtimes) {
      // From 20.19 on Node can require ES modules unless this is disabled; earlier versions do not
      // have the flag.
      const flags = {
        deno: ["run", "-A", "--node-modules-dir=manual"],
        bun: [],
        node: [ONLY_COMMONJS],
      };
      assert.equal(run(command, [...flags[kind], "program.cjs"]), "401\n", label);
    }
  });

  it("has no await at the top of a module, so that it can be required", () => {
    for (const { label, kind, command } of runtimes) {
      if (kind !== "node") continue;
      for (const name of ["mod.js", "sallyport.js"]) {
        const script =
          `console.log(typeof require("./node_modules/sallyport/dist/${name}").createGateway)`;
        assert.equal(
          run(command, ["--no-warnings", "-e", script]),
          "function\n",
          `${name} on ${label}`,
        );
      }
    }
  });

  it("has types that compile with require, each resolved in its own format", () => {
    const project = join(folder.path, "commonjs.json");
    writeFileSync(join(user, "program.cts"), COMMONJS_TYPES);
    writeFileSync(join(user, "program.mts"), PROGRAM);
    const names = ["program.cts", "program.mts"];
    // The mode of Node 16 is the strict one: there ES modules cannot be required.
    for (const module of ["node16", "nodenext"]) {
      const compilerOptions = {
        module,
        strict: true,
        noEmit: true,
        lib: ["ES2023", "DOM", "DOM.Iterable"],
        types: [],
      };
      writeFileSync(
        project,
        JSON.stringify({ compilerOptions, files: names.map((name) => join(user, name)) }),
      );
      const told = run(node, [
        TSC,
        ...ONE_CHECKER,
        "-p",
        project,
        "--target",
        "es2023",
        "--listFiles",
      ]);
      const found = told.split("\n").filter((line) => line.endsWith("mod.d.ts")).map((line) =>
        relative(user, line)
      );
      const types = ["types-cjs", "types"].map((name) =>
        join("node_modules", "sallyport", "dist", name, "mod.d.ts")
      );
      assert.deepEqual(found.sort(), types.sort(), module);
    }
  });

  for (const [module, moduleResolution] of [["nodenext", "nodenext"], ["esnext", "bundler"]]) {
    it(`has types that compile under --strict, resolved with ${moduleResolution}`, () => {
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
      writeFileSync(join(user, "worker.ts"), WORKER);
      // The only mistake: without it, nothing proves that types are read.
      const wrong = `${PROGRAM}\nconst wrong: number = gateway;\n`;
      writeFileSync(join(user, "wrong.ts"), wrong);
      const files = ["program.ts", "worker.ts", "wrong.ts"].map((name) => join(user, name));
      writeFileSync(project, JSON.stringify({ compilerOptions, files }));
      const compiled = spawnSync(node, [TSC, ...ONE_CHECKER, "-p", project, "--pretty", "false"], {
        cwd: user,
        encoding: "utf8",
      });
      const line = wrong.split("\n").length - 1;
      assert.match(
        compiled.stdout,
        new RegExp(`^wrong\\.ts\\(${line},7\\): error TS2322: .*\n(?: .*\n)*$`),
      );
      assert.notEqual(compiled.status, 0);
    });
  }
});
