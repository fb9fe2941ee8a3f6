/** The one file of the build. */
// runtimes: all, old node
import assert from "node:assert/strict";
import { readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { Ajv } from "ajv";
import { it } from "../support/cases.ts";
import { freePort } from "../support/free_port.ts";
import { makeFolder, ONE_FILE, runProgram, runsTypeScript, SOURCE } from "../support/program.ts";

/**
 * About 1,416 kB: 190 are the Redis client, which runs only if Redis is configured; 180 the admin
 * API and the console's page (packed; a third of it is uPlot, the charts); 145 the command line; 80
 * durable exchanges and their recordings; 80 listeners, reloads, workers and the fleet; 90 keys and
 * identity tokens (17 of them `jose`, 20 `oauth4webapi`); 75 the configuration; 70 the interfaces of
 * providers and calls to them; 50 limits; 40 runs of agents (9 of them `structured-headers`); 20 the
 * history. A dependency that is added by mistake would exceed the limit, because
 * even the smallest has 9 kB.
 */
const MAX_BYTES = 1_420_000;
const EXPORTS = [
  "ConfigError",
  "ERRORS",
  "GatewayError",
  "concernOf",
  "createGateway",
  "parseConfig",
];

describe("the one file", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(() => folder.remove());

  /** The modules of its statements and calls; the word alone also occurs in texts. */
  const findImports = (): string[] =>
    Array.from(
      readFileSync(ONE_FILE, "utf8").matchAll(
        /(?:^|[;}\n])import\s*(?:[\w*{][^;"]*?\bfrom\s*)?"([^"]+)"|\bimport\("([^"]+)"\)/g,
      ),
      ([, statement, call]) => statement ?? call ?? "",
    );

  it("stays small and needs no other file", () => {
    assert.ok(statSync(ONE_FILE).size < MAX_BYTES);
    const names = findImports();
    assert.ok(names.length > 0);
    assert.deepEqual(names.filter((name) => !name.startsWith("node:")), []);
  });

  it("starts without Node's fetch, which an import of node:http would load", () => {
    assert.deepEqual(findImports().filter((name) => /^node:https?$/.test(name)), []);
  });

  it("is a library when it is imported, the same as the build without a command line", async () => {
    for (const file of [ONE_FILE, resolve("dist/mod.js")]) {
      const module = await import(pathToFileURL(file).href);
      assert.deepEqual(Object.keys(module).sort(), EXPORTS);
      const config = module.parseConfig({ providers: { a: { upstream: "openai" } } });
      const gateway = module.createGateway(config);
      const response = await gateway.fetch(new Request("http://a.example/v1/models"));
      assert.equal(response.status, 401);
      assert.equal((await response.json()).error.code, "missing_gateway_key");
      await gateway.close();
    }
  });

  it("starts nothing when a program imports it, for any arguments of that program", async () => {
    const file = join(folder.path, "program.mjs");
    writeFileSync(
      file,
      `import { ERRORS } from ${
        JSON.stringify(pathToFileURL(ONE_FILE))
      }; console.log(typeof ERRORS);`,
    );
    for (const args of [["--version"], ["oops"]]) {
      assert.deepEqual(await runProgram(args, { file }), {
        status: 0,
        stdout: "object\n",
        stderr: "",
      });
    }
  });

  it("prints no commands of the Redis client, for any value of DEBUG", async () => {
    // A port without a listener: the client still reports its attempts.
    const port = await freePort();
    const config = {
      redis: `redis://127.0.0.1:${port}`,
      keys: "redis",
      providers: { a: { upstream: "openai" } },
    };
    writeFileSync(join(folder.path, "gateway.json"), JSON.stringify(config));
    const { stderr } = await runProgram(["keys", "list"], {
      ...{ file: ONE_FILE, cwd: folder.path },
      env: { DEBUG: "ioredis:*", SALLYPORT_CONFIG: "gateway.json" },
    });
    assert.notEqual(stderr, "");
    assert.doesNotMatch(stderr, /ioredis:/);
  });

  it("prints its version and its help, also through a symlink", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    const link = join(folder.path, "sallyport.mjs");
    symlinkSync(ONE_FILE, link);
    for (const file of [ONE_FILE, link]) {
      assert.deepEqual(await runProgram(["--version"], { file }), {
        status: 0,
        stdout: `${version}\n`,
        stderr: "",
      });
      const help = await runProgram(["--help"], { file });
      assert.equal(help.status, 0);
      assert.match(help.stdout, /^ {2}serve .*\n {2}demo .*\n {2}check /m);
      const bare = await runProgram([], { file });
      assert.equal(bare.status, 2);
    }
  });

  it.unless(
    runsTypeScript ? undefined : "this Node can't run TypeScript",
    "does what the sources do",
    async () => {
      const env = { SALLYPORT_PROVIDER_A: "openai", SALLYPORT_KEYS: "0123456789abcdef" };
      for (const args of [["--version"], ["--help"], ["check"], ["oops"]]) {
        assert.deepEqual(
          await runProgram(args, { env, file: SOURCE }),
          await runProgram(args, { env }),
        );
      }
    },
  );

  it("has a schema for editors", () => {
    const schema = JSON.parse(readFileSync("dist/gateway.schema.json", "utf8"));
    assert.equal(schema.type, "object");
    assert.equal(schema.additionalProperties, false);
    assert.deepEqual(Object.keys(schema.properties), [
      "$schema",
      "listen",
      "providers",
      "egress",
      "keys",
      "teams",
      "identity",
      "limits",
      "cors",
      "admin",
      "redis",
      "instance",
      "prices",
      "currency",
      "usage",
      "attribution",
      "runs",
      "alerts",
      "metrics",
      "log",
      "drain",
    ]);
    assert.deepEqual(schema.required, ["providers"]);
    assert.ok(schema.properties.providers.additionalProperties.properties.upstream.anyOf);
  });

  it("has a schema for editors that defines the price of a model once, and checks all prices", () => {
    const text = readFileSync("dist/gateway.schema.json", "utf8");
    assert.equal(text.split("Another name of `cacheRead`").length - 1, 1);
    const isValid = new Ajv({ strict: false }).compile(JSON.parse(text));
    const provider = { hosts: ["localhost"], upstream: "openai" };
    const toConfigs = (price: unknown) => [
      { providers: { a: provider }, prices: { "gpt-*": price } },
      { providers: { a: { ...provider, prices: { "gpt-*": price } } } },
    ];
    const row = { when: { tier: "flex" }, rates: { input: "0.5" } };
    for (const config of toConfigs({ input: 1, cacheWriteLong: "2", rows: [row] })) {
      assert.ok(isValid(config), JSON.stringify(isValid.errors));
    }
    for (const wrong of [{ inputs: 1 }, { input: 1, rows: [{ ...row, rates: { inputs: 1 } }] }]) {
      for (const config of toConfigs(wrong)) assert.ok(!isValid(config), JSON.stringify(config));
    }
  });
});
