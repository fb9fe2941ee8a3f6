/**
 * The table "To change something, open" in CONTRIBUTING: its files exist, and are the right ones.
 * Five of its changes are made in a copy of the sources, only in the files that the table names.
 */
// runtimes: once
// long: it compiles the sources
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, globSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { afterAll, beforeAll, describe, it } from "@std/testing/bdd";
import { ONE_CHECKER } from "../../scripts/compiler.ts";
import { findReaching } from "../../scripts/test/plan.ts";
import { ERRORS } from "../../src/errors/codes.ts";
import { makeFolder } from "../support/program.ts";

const [, table = ""] =
  /^## To change something, open\n([^]*?)^## /m.exec(readFileSync("CONTRIBUTING.md", "utf8")) ??
    [];
const CHANGES: ReadonlyMap<string, readonly string[]> = new Map(
  Array.from(
    table.matchAll(/^\| (\w.*?) +\| (.*?) +\|$/gm),
    ([, change = "", files = ""]): [string, string[]] => [
      change,
      Array.from(files.matchAll(/`([\w/.]+\.\w+)`/g), ([, file = ""]) => file),
    ],
  ).filter(([change]) => change !== "to"),
);
/** Packages with many types, which no test of a change needs. */
const LARGE =
  /(?:from|import\() ?"(?:@anthropic-ai|@copilotkit|@openai|ai|miniflare|oidc-provider|openai|playwright-core|typescript)[/"]/;

const needsPackages = findReaching(LARGE);

const filesOf = (change: string) =>
  CHANGES.get(change) ?? assert.fail(`CONTRIBUTING does not say how to ${change}`);

describe("the table of changes in CONTRIBUTING", () => {
  const folder = makeFolder();
  const inCopy = (file: string) => join(folder.path, file);
  beforeAll(() => {
    for (const name of ["src", "tests", "scripts", "docs"]) {
      cpSync(name, inCopy(name), { recursive: true });
    }
    for (
      const name of ["mod.ts", "package.json", "tsconfig.json", "CONTRIBUTING.md", "README.md"]
    ) {
      cpSync(name, inCopy(name));
    }
    symlinkSync(resolve("node_modules"), inCopy("node_modules"));
  });
  afterAll(() => folder.remove());

  /** Changes a file of the copy, which the table must name for the change. */
  const edit = (change: string, file: string, pattern: RegExp, text: string): void => {
    assert.ok(filesOf(change).includes(file), `${file} is not named`);
    const before = readFileSync(inCopy(file), "utf8");
    const after = before.replace(pattern, text);
    assert.notEqual(after, before, `${file} has no ${pattern}`);
    writeFileSync(inCopy(file), after);
  };
  const run = (...args: string[]) =>
    spawnSync(process.execPath, args, {
      cwd: folder.path,
      encoding: "utf8",
      env: { ...process.env, CI: "" },
    });
  /**
   * The files with compile errors: in the sources, and in tests that call the gateway from outside
   * without a client library or a browser, whose types need most of the compiler's time.
   */
  const findMistaken = (): string[] => {
    const tests = globSync("tests/{support,exchange}/*.ts").filter((file) => !needsPackages(file));
    const project = { extends: "./tsconfig.json", include: ["mod.ts", "src", ...tests] };
    writeFileSync(inCopy("tsconfig.copy.json"), JSON.stringify(project));
    const { stdout } = run(
      "node_modules/typescript/bin/tsc",
      ...ONE_CHECKER,
      "-p",
      "tsconfig.copy.json",
      "--pretty",
      "false",
    );
    return Array.from(
      new Set(
        Array.from(stdout.matchAll(/^([\w/.]+)\(\d+,\d+\): error/gm), ([, file = ""]) => file),
      ),
    );
  };
  const testErrors = (title: string): void => {
    const { status, stdout } = run(
      "--test-reporter=tap",
      `--test-name-pattern=${title}`,
      "tests/exchange/errors_test.ts",
    );
    assert.equal(status, 0, stdout);
    assert.match(stdout, new RegExp(`^ *ok 1 - ${title}`, "m"));
  };

  it("names existing files", () => {
    assert.deepEqual([...CHANGES.keys()].slice(0, 5), [
      "add an error code",
      "add a setting",
      "add an operation",
      "add a shape of addresses",
      "add a store of keys",
    ]);
    for (const [change, files] of CHANGES) {
      assert.ok(files.length > 0, change);
      for (const file of files) {
        assert.ok(globSync(file.replace("NAME", "*")).length > 0, `${change}: no ${file}`);
      }
    }
  });

  /** The places of two changes, which are compiled at once. */
  const errorCode = {
    change: "add an error code",
    codes: "src/errors/request_errors.ts",
    explanations: "src/errors/explanations.ts",
    cases: "tests/support/error_cases.ts",
  } as const;
  const keyStore = {
    change: "add a store of keys",
    setting: "src/config/keys.ts",
    opening: "src/serve/key_stores.ts",
    masks: "src/serve/masked_config.ts",
  } as const;
  let mistaken: readonly string[] | undefined;
  /** Makes the first step of both changes. Returns the files with compile errors, apart from these. */
  const findMistakenApartFrom = (...others: readonly string[]): string[] => {
    mistaken ??= (() => {
      const { codes } = errorCode;
      edit(errorCode.change, codes, /export type RequestErrorCode =/, '$&\n  | "too_made_up"');
      edit(
        errorCode.change,
        codes,
        /export const REQUEST_ERRORS\b.* = \{/,
        '$&\n  too_made_up: { ...LIMITED, message: "Cannot" },',
      );
      const { change, setting } = keyStore;
      const before = readFileSync(inCopy(setting), "utf8");
      edit(
        change,
        setting,
        /export type StoredKeysConfig = FileKeysConfig/,
        '$& | { readonly store: "made-up" }',
      );
      const files = findMistaken();
      writeFileSync(inCopy(setting), before);
      return files;
    })();
    return mistaken.filter((file) => !others.includes(file));
  };

  it("an error code is added in the named files: the compiler needs no other change, and its test passes", () => {
    const { change, explanations, cases } = errorCode;
    const { setting, opening, masks } = keyStore;
    assert.deepEqual(findMistakenApartFrom(setting, opening, masks), [
      explanations,
      cases,
    ]);
    edit(change, explanations, /const BY_CODE\b.* = \{/, '$&\n  too_made_up: ["rule", "Nothing"],');
    const how =
      '{ options: { parts: { keys: { find: () => Promise.reject(new GatewayError("too_made_up")) } } } }';
    edit(change, cases, /export const CASES\b[^=]*= \{/, `$&\n  too_made_up: ${how},`);
    testErrors("too_made_up answers 429");
  });

  it("a store of keys is added to its setting: the compiler names the files that open and mask it", () => {
    const { change, setting, opening, masks } = keyStore;
    assert.deepEqual(findMistakenApartFrom(errorCode.explanations, errorCode.cases), [
      setting,
      opening,
      masks,
    ]);
    for (const file of [opening, masks]) assert.ok(filesOf(change).includes(file), file);
  });

  it("the text of a 429 is changed in one place, and all tests follow", () => {
    const { message } = ERRORS.rate_limit_exceeded;
    const files = filesOf("change the text of a 429");
    const holding = globSync("{src,tests}/**/*.ts").filter((file) =>
      readFileSync(file, "utf8").includes(message)
    );
    assert.deepEqual(holding, files);
    for (const file of files) {
      edit(
        "change the text of a 429",
        file,
        new RegExp(message.replace(/\W/g, "\\$&")),
        "Cannot so",
      );
    }
    testErrors("rate_limit_exceeded answers 429");
  });

  it("an operation is added by a row of its table, and is served", () => {
    const row =
      '{ name: "made.up", group: "models", method: "GET", path: "/made-up", dialect: OPAQUE, body: "none", ' +
      'model: "answer", cost: "none" },';
    edit(
      "add an operation",
      "src/operations/table.ts",
      /export const OPERATIONS\b.* = \[/,
      `$&\n  ${row}`,
    );
    const { stdout, stderr } = run(
      "--input-type=module",
      "-e",
      `import { createGateway, parseConfig } from "./mod.ts";
      import { startProvider } from "./tests/support/provider.ts";
      const provider = await startProvider();
      const key = "a-gateway-key-of-mine";
      const gateway = createGateway(parseConfig({ providers: { a: { upstream: provider.url } }, keys: [{ id: "me", key }] }));
      const headers = { "authorization": "Bearer sk-1", "gateway-auth": "Bearer " + key };
      const { status } = await gateway.fetch(new Request("http://localhost/v1/made-up", { headers }));
      console.log(status, provider.calls[0]?.path);
      process.exit();`,
    );
    assert.match(stdout, /^200 .*\/made-up\n$/, stderr);
  });

  it("a setting is added to its schema: it is read, and documented from there", () => {
    edit(
      "add a setting",
      "src/config/gateway_limits.ts",
      /( +)body: about\(size/,
      '$1madeUp: about(duration("7s"), "For a test"),\n$&',
    );
    const script = 'import { parseConfig } from "./src/config/config.ts";' +
      'parseConfig({ providers: { a: { upstream: "openai" } }, limits: { madeUp: "1m" } });';
    const { status, stderr } = run("--input-type=module", "-e", script);
    assert.equal(status, 0, stderr);
    const docs = run("scripts/docs.ts", "tables");
    assert.equal(docs.status, 0, docs.stderr);
    assert.match(readFileSync(inCopy("docs/configuration.md"), "utf8"), /\| `madeUp` .*7s/);
  });
});
