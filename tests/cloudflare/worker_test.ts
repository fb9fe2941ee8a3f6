/**
 * The Cloudflare Worker in workerd: its settings, keys in KV, limits in a Durable Object, and its
 * imports.
 */
// runtimes: workers
import assert from "node:assert/strict";
import { copyFileSync, globSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { afterAll, afterEach, beforeAll, beforeEach, describe, it } from "@std/testing/bdd";
import { build } from "esbuild";
import { parse } from "jsonc-parser";
import { WORKER } from "../../scripts/bundle.ts";
import { GOOD_BODY, STREAM_BODY } from "../support/gateway.ts";
import { makeFolder, runProgram } from "../support/program.ts";
import {
  type Answering,
  answerPlain,
  chunk,
  COMPLETION,
  type Provider,
  startProvider,
} from "../support/provider.ts";
import { callRaw, openRaw, type RawConnection, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import {
  namespaceOf,
  startWorker,
  type TestWorker,
  type WorkerOptions,
} from "../support/worker.ts";
import { COMPATIBILITY_DATE } from "../support/workerd.ts";

const KEY = "0123456789-secret-key";
const OTHER = "9876543210-secret-key";
const FORMS: Readonly<Record<string, string>> = {
  "content-type": "application/json",
  authorization: "Bearer sk-1",
};

describe("a Worker", () => {
  let provider: Provider;
  let answering: Answering = answerPlain;
  let folder: ReturnType<typeof makeFolder>;
  const closing: (() => Promise<void>)[] = [];
  beforeAll(async () => {
    provider = await startProvider((response, call) => answering(response, call));
  });
  afterAll(() => provider.close());
  beforeEach(() => {
    folder = makeFolder();
    answering = answerPlain;
  });
  afterEach(async () => {
    for (const close of closing.splice(0)) await close();
    folder.remove();
  });
  const start = async (
    variables: Record<string, unknown>,
    options: Partial<WorkerOptions> = {},
  ) => {
    const worker = await startWorker({ variables, ...options });
    closing.push(() => worker.close());
    return worker;
  };
  const configWith = (more: Record<string, unknown>, ofProvider: Record<string, unknown> = {}) => ({
    SALLYPORT_CONFIG: {
      providers: { a: { hosts: ["*"], upstream: provider.url, ...ofProvider } },
      ...more,
    },
  });
  const headersOf = (key: string) => ({ ...FORMS, "gateway-auth": `Bearer ${key}` });
  const call = (worker: TestWorker, key = KEY) =>
    callRaw(worker.url, { headers: headersOf(key), body: GOOD_BODY });
  const open = (worker: TestWorker, key = KEY): RawConnection =>
    openRaw(worker.url, toRawRequest(worker.url, { headers: headersOf(key), body: STREAM_BODY }));
  const neverEnding: Answering = (response) => {
    response.writeHead(200, { "content-type": "text/event-stream" }).write(chunk("a"));
  };

  it("reads its settings only from variables, and logs one line for an exchange without a secret", async () => {
    const worker = await start({
      SALLYPORT_PROVIDER_A: provider.url,
      SALLYPORT_HOSTS_A: "*",
      SALLYPORT_KEYS: KEY,
      SOMETHING_ELSE: "left alone",
    }, { hasLimits: false });
    assert.equal((await call(worker)).body, COMPLETION);
    await until(() => worker.records.length === 1, "a line in the log");
    const { provider: name, keyId, outcome } = worker.records[0] ?? assert.fail();
    assert.deepEqual([name, keyId, outcome], ["a", "key-1", "ok"]);
    assert.ok(!worker.told().includes(KEY) && !worker.told().includes("sk-1"));
  });

  it("names each mistake in its settings without its value", async () => {
    const worker = await start({
      SALLYPORT_CONFIG: {
        providers: { a: { upstream: "nonsense" } },
        admin: { port: 1 },
        listen: [{ port: 1 }],
      },
      SALLYPORT_NOBODY: KEY,
      SALLYPORT_LIMITS_BODY: "lots",
    });
    const { status, body } = await call(worker);
    assert.equal(status, 500);
    assert.match(body, /internal_error/);
    await until(() => worker.told().includes("SALLYPORT_LIMITS_BODY"), "the mistakes");
    for (
      const said of [
        "admin: ",
        "listen: ",
        "SALLYPORT_NOBODY: unknown variable",
        "providers.a.upstream: ",
      ]
    ) {
      assert.ok(worker.told().includes(said), `${said} in ${worker.told()}`);
    }
    assert.ok(!worker.told().includes(KEY));
  });

  it("refuses to serve without the flag that reports when a caller leaves, or without an object for limits", async () => {
    const flagless = await start(configWith({ keys: [{ id: "me", key: KEY }] }), { flags: [] });
    assert.equal((await call(flagless)).status, 500);
    await until(() => flagless.told().includes("enable_request_signal"), "the flag's name");
    const limited = configWith({ keys: [{ id: "me", key: KEY, limits: { requests: "1/min" } }] });
    const countless = await start(limited, { hasLimits: false });
    assert.equal((await call(countless)).status, 500);
    await until(() => countless.told().includes("LIMITS: expected"), "the binding's name");
    const repeating = await start(configWith({ runs: { repeats: 3 } }), { hasLimits: false });
    assert.equal((await call(repeating)).status, 500);
    await until(() => repeating.told().includes("LIMITS: expected"), "the binding's name");
  });

  it("uses keys in KV, uploaded from the file of keys: created, rotated and revoked", async () => {
    writeFileSync(
      join(folder.path, "gateway.json"),
      '{"providers":{"a":{"upstream":"openai"}},"keys":{"file":"k.json"}}',
    );
    copyFileSync("ops/workers/kv_keys.js", join(folder.path, "kv_keys.mjs"));
    const keys = async (...args: string[]) => {
      const { status, stdout } = await runProgram([
        "keys",
        ...args,
        "--json",
        "--config",
        "gateway.json",
      ], {
        cwd: folder.path,
      });
      assert.equal(status, 0, stdout);
      return JSON.parse(stdout);
    };
    const worker = await start(configWith({}), { keys: {} });
    const namespace = await namespaceOf(worker.miniflare);
    const listed: { name: string }[] = [];
    const sync = async () => {
      writeFileSync(join(folder.path, "listed.json"), JSON.stringify(listed));
      execFileSync(process.execPath, ["kv_keys.mjs", "k.json", "listed.json"], {
        cwd: folder.path,
      });
      const read = (name: string) => JSON.parse(readFileSync(join(folder.path, name), "utf8"));
      for (const { key, value } of read("put.json")) {
        await namespace.put(key, value);
        listed.push({ name: key });
      }
      for (const name of read("delete.json")) await namespace.delete(name);
    };
    const { id, key } = await keys("create", "--requests", "100/min");
    await sync();
    const { status, headers } = await call(worker, key);
    assert.equal(status, 200);
    assert.match(headers.ratelimit ?? "", /"requests";r=99/);
    assert.equal((await call(worker, OTHER)).status, 401);
    const second = (await keys("rotate", id, "--overlap", "0s")).key;
    const third = (await keys("rotate", id, "--overlap", "1h")).key;
    await sync();
    assert.deepEqual(
      await Promise.all([key, third].map(async (each) => (await call(worker, each)).status)),
      [
        401,
        200,
      ],
    );
    assert.equal((await call(worker, second)).status, 200, "the overlap");
    await keys("revoke", id);
    await sync();
    assert.equal((await call(worker, third)).status, 401);
  });

  it("answers 503 if an entry in KV is damaged", async () => {
    const digest = execFileSync("sha256sum", { input: KEY, encoding: "utf8" }).slice(0, 64);
    const worker = await start(configWith({}), { keys: { [digest]: '{"id":"half' } });
    const { status, body } = await call(worker);
    assert.equal(status, 503);
    assert.match(body, /key_store_unavailable/);
  });

  it("records calls of keys in KV, and without a store refuses them and reports that once", async () => {
    const digest = createHash("sha256").update(KEY).digest("hex");
    const keys = { [digest]: JSON.stringify({ id: "mine", digest, durable: { keep: "1m" } }) };
    const ask = (worker: TestWorker, more: Record<string, string> = { "idempotency-key": "one" }) =>
      callRaw(worker.url, { headers: { ...headersOf(KEY), ...more }, body: GOOD_BODY });
    const placeless = await start(configWith({}), { keys, hasRecordings: false });
    for (const more of [{ "idempotency-key": "one" }, { "sallyport-durable": "?1" }]) {
      const { status, headers } = await ask(placeless, more);
      assert.deepEqual([status, headers["sallyport-error"]], [503, "recordings_unavailable"]);
    }
    const before = provider.calls.length;
    assert.equal((await ask(placeless, {})).status, 200);
    assert.equal(provider.calls.length, before + 1);
    await until(
      () => placeless.told().includes("key mine has durable, but there is no binding RECORDINGS"),
      "why",
    );
    assert.equal(placeless.told().split("no binding RECORDINGS").length, 2, "once");
    const recording = await start(configWith({}), { keys });
    const first = await ask(recording);
    assert.match(first.headers.location ?? "", /^\/v1\/exchanges\//);
    await until(
      async () => (await ask(recording)).headers["idempotency-replayed"] === "true",
      "its end is recorded",
    );
    assert.equal(provider.calls.length, before + 2);
    const written = configWith({ keys: [{ id: "me", key: KEY, durable: {} }] });
    const refused = await start(written, { hasRecordings: false });
    assert.equal((await ask(refused)).status, 500);
    await until(
      () => refused.told().includes("keys.0.durable: expected a binding RECORDINGS"),
      "where the mistake is",
    );
  });

  it("reports a held key that is missing, or that the provider refuses, once until it works", async () => {
    const held = { maxOutput: 1, upstreamKey: { env: "HELD" } };
    const variables = configWith(
      { log: "off", keys: [{ id: "me", key: KEY, heldKeys: true }] },
      held,
    );
    const headers = { "content-type": "application/json", "gateway-auth": `Bearer ${KEY}` };
    const ask = async (worker: TestWorker) =>
      (await callRaw(worker.url, { headers, body: GOOD_BODY })).status;
    const keyless = await start(variables);
    for (let calls = 0; calls < 2; calls++) assert.equal(await ask(keyless), 503);
    await until(() => keyless.told().includes("the Worker has no secret HELD"), "it is reported");
    const worker = await start({ ...variables, HELD: "held-1" });
    for (const status of [401, 401, 200, 401]) {
      answering = (response) => response.writeHead(status).end("{}");
      assert.equal(await ask(worker), status);
    }
    const reports = () => worker.told().split("providers.a.upstreamKey: the provider refuses");
    await until(() => reports().length === 3, "both refusals are reported");
    assert.ok(!worker.told().includes("held-1"));
    assert.equal(keyless.told().split("no secret HELD").length, 2, "once");
  });

  it("counts limits in a Durable Object: a provider's limits count all keys together, and survive a restart", async () => {
    const both = [{ id: "one", key: KEY, limits: { budget: "1M/day" } }, { id: "two", key: OTHER }];
    const variables = configWith({ keys: both }, { limits: { requests: "3/h" } });
    const persist = join(folder.path, "objects");
    const first = await startWorker({ variables, persist });
    for (const key of [KEY, OTHER, OTHER]) assert.equal((await call(first, key)).status, 200);
    await until(
      async () => /"budget";r=999998/.test((await call(first)).headers.ratelimit ?? ""),
      "what was used is charged",
    );
    const { status, body, headers } = await call(first, OTHER);
    assert.equal(status, 429);
    assert.match(body, /rate_limit_exceeded/);
    assert.match(headers.ratelimit ?? "", /"provider-requests";r=0/);
    await first.close();
    const second = await start(variables, { persist });
    assert.equal((await call(second, OTHER)).status, 429);
  });

  it("counts concurrency in a Durable Object: a slot is in use while its exchange is open, and free when the caller has left", async () => {
    answering = neverEnding;
    const worker = await start(
      configWith({ keys: [{ id: "me", key: KEY, limits: { concurrency: 2 } }] }),
    );
    const callers = [open(worker), open(worker)];
    await until(
      () => callers.every((caller) => caller.received().includes("data: ")),
      "both streams begin",
    );
    assert.match((await call(worker)).body, /concurrency_limit_exceeded/);
    callers[0]?.socket.resetAndDestroy();
    answering = answerPlain;
    await until(async () => (await call(worker)).status === 200, "a place is free");
    callers[1]?.socket.resetAndDestroy();
  });

  it("serves many concurrent exchanges, none of which affects another", async () => {
    const worker = await start(
      configWith({ keys: [{ id: "me", key: KEY }] }, {
        deadlines: { connect: "1s", firstByte: "8s", idle: "8s" },
      }),
    );
    answering = (response, { body }) => {
      const kind = Number(/"model":"(\d)/.exec(body.toString())?.[1]);
      if (kind === 0) return; // the first byte never arrives
      // Is silent, or its caller leaves.
      if (kind === 1) return neverEnding(response, { body } as never);
      return answerPlain(response);
    };
    const answers = await Promise.all(Array.from({ length: 60 }, async (_, number) => {
      const body = STREAM_BODY.replace("test-1", String(number % 4));
      if (number % 4 !== 3) {
        return (await callRaw(worker.url, { headers: headersOf(KEY), body })).body;
      }
      const caller = openRaw(
        worker.url,
        toRawRequest(worker.url, { headers: headersOf(KEY), body }),
      );
      setTimeout(() => caller.socket.resetAndDestroy(), number);
      return await caller.closed;
    }));
    for (const [number, answer] of answers.entries()) {
      if (number % 4 === 0) assert.match(answer, /upstream_first_byte_timeout/);
      if (number % 4 === 1) assert.match(answer, /upstream_idle_timeout/);
      if (number % 4 === 2) assert.equal(answer, COMPLETION);
    }
    await until(() => worker.records.length >= 45, "what was answered is settled");
  });
});

describe("the Worker's program", () => {
  it("imports only the platform's own modules, and names no other runtime", async () => {
    const { metafile, outputFiles } = await build({
      ...WORKER,
      write: false,
      outfile: "workers.js",
      metafile: true,
    });
    const imports = Object.values(metafile.outputs).flatMap((output) =>
      output.imports.map(({ path }) => path)
    );
    assert.deepEqual(Array.from(new Set(imports)), ["cloudflare:workers"]);
    const reached = Object.values(metafile.inputs).flatMap((input) =>
      input.imports.map(({ path }) => path)
    );
    assert.deepEqual(reached.filter((path) => path.startsWith("node:")), []);
    const [{ text } = assert.fail()] = outputFiles;
    assert.doesNotMatch(
      text,
      /\bprocess\.(?:env|versions|stdout)|\bBuffer\.|\brequire\(|\bDeno\.|\bBun\./,
    );
    assert.equal(text, readFileSync("dist/workers.js", "utf8"));
  });

  it("is deployed as the sample says, which works unchanged", async () => {
    const sample = parse(readFileSync("ops/workers/wrangler.jsonc", "utf8"));
    assert.equal(sample.compatibility_date, COMPATIBILITY_DATE);
    const { contents, exports } = {
      contents: readFileSync(join("ops/workers", sample.main), "utf8"),
      exports: JSON.parse(readFileSync("package.json", "utf8")).exports,
    };
    assert.equal(resolve(exports["./workers"].default), resolve("dist/workers.js"));
    const worker = await startWorker({
      main: contents.replace("sallyport/workers", "./workers.js"),
      variables: sample.vars,
      keys: {},
      flags: sample.compatibility_flags,
    });
    const headers = { ...FORMS, "gateway-auth": `Bearer ${KEY}`, host: "a.example.com" };
    const { status, body } = await callRaw(worker.url, { headers, body: GOOD_BODY });
    await worker.close();
    assert.equal(status, 401, worker.told());
    assert.match(body, /invalid_gateway_key/);
  });

  it("skips some cases of the other runtimes, only for the reasons in docs/workers.md", () => {
    const texts = globSync("tests/**/*.ts").map((file) => readFileSync(file, "utf8"));
    const given = texts.flatMap((text) =>
      Array.from(
        text.matchAll(/(?:notOn\(\s*"workers",|notOnWorkers:)\s*"([^"]+)"/g),
        ([, reason = ""]) => reason,
      )
    );
    const page = readFileSync("docs/workers.md", "utf8").replace(/\s+/g, " ");
    const told = Array.from(page.matchAll(/- \*\*([^*]+)\*\*:/g), ([, reason = ""]) => reason);
    assert.deepEqual(Array.from(new Set(given)).sort(), told.sort());
  });
});
