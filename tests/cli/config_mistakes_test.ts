/** Common mistakes in a configuration, and the exact message of each. */
// runtimes: once
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { runCommand } from "../support/command.ts";
import { makeFolder, runProgram } from "../support/program.ts";

const KEYS = [{ id: "me", key: "a-gateway-key-of-mine" }];
const OPENAI = { upstream: "openai" };
const GOOD = { providers: { a: OPENAI }, keys: KEYS };
const withUpstream = (upstream: unknown) => ({ ...GOOD, providers: { a: { upstream } } });
const withBudget = (budget: unknown) => ({
  ...GOOD,
  prices: { "*": { input: 1, output: 1 } },
  keys: [{ ...KEYS[0], limits: { budget } }],
});
const withRequests = (requests: string) => ({
  ...GOOD,
  keys: [{ ...KEYS[0], limits: { requests } }],
});
const KNOWN =
  'expected an http or https URL, or the short name of a known provider such as "openai"';

const SOURCES = 'expected { "file": … }, { "env": … } or { "exec": […] }, never a key itself';
const withHeldKey = (upstreamKey: unknown) => ({
  ...GOOD,
  providers: { a: { ...OPENAI, upstreamKey } },
});

/** Configurations with one mistake each, and the message without the line. */
const MISTAKES: Readonly<Record<string, readonly [config: unknown, says: string]>> = {
  "a mistyped setting": [{ ...GOOD, alert: {} }, "alert: unknown setting. Did you mean alerts?"],
  "a mistyped setting of a provider": [
    { ...GOOD, providers: { a: { ...OPENAI, keepalive: "5s" } } },
    "providers.a.keepalive: unknown setting. Did you mean keepAlive?",
  ],
  "a mistyped limit": [
    { ...GOOD, keys: [{ ...KEYS[0], limits: { request: "5/s" } }] },
    "keys[0].limits.request: unknown setting. Did you mean requests?",
  ],
  "a setting like no other": [{ ...GOOD, speed: 1 }, "speed: unknown setting"],
  "a key of a provider": [
    { ...GOOD, providers: { a: { ...OPENAI, apiKey: "sk-1" } } },
    "providers.a.apiKey: unknown setting. " +
    "Callers send their own provider key with each call. " +
    "To let the gateway hold a key for them, set upstreamKey",
  ],
  "two sources of a held key": [
    withHeldKey({ file: "secret", env: "SECRET" }),
    `providers.a.upstreamKey: ${SOURCES}, one of them`,
  ],
  "no source of a held key": [
    withHeldKey({ refresh: "5m" }),
    `providers.a.upstreamKey: ${SOURCES}, one of them`,
  ],
  "a time for a held key in a variable": [
    withHeldKey({ env: "SECRET", refresh: "5m" }),
    "providers.a.upstreamKey: expected refresh only with file or exec: a variable does not change",
  ],
  "the name of the upstream in client libraries": [
    { ...GOOD, providers: { a: { ...OPENAI, baseURL: "https://a.example/v1" } } },
    "providers.a.baseURL: unknown setting. Did you mean upstream?",
  ],
  "one host for two providers": [
    {
      ...GOOD,
      providers: {
        a: { ...OPENAI, hosts: ["x.example", "y.example"] },
        b: { ...OPENAI, hosts: ["Y.example"] },
      },
    },
    "providers.b.hosts[0]: expected each address at one provider only: " +
    "providers.a.hosts[1] is the same",
  ],
  "an upstream without a scheme": [
    withUpstream("api.openai.com/v1"),
    "providers.a.upstream: expected a URL with its scheme: " +
    "put https:// before the host, or http:// for a local one",
  ],
  "a local upstream without a scheme": [
    withUpstream("localhost:11434/v1"),
    "providers.a.upstream: expected a URL with its scheme: " +
    "put https:// before the host, or http:// for a local one",
  ],
  "azure as an upstream": [
    withUpstream("azure"),
    "providers.a.upstream: expected the URL of an Azure resource: " +
    '"https://NAME.openai.azure.com/openai/v1"',
  ],
  "a mistyped provider": [
    withUpstream("opnai"),
    `providers.a.upstream: ${KNOWN}. Did you mean openai?`,
  ],
  "an unknown provider": [withUpstream("bedrock"), `providers.a.upstream: ${KNOWN}`],
  "OpenAI without its path": [
    withUpstream("https://api.openai.com"),
    "providers.a.upstream: expected the whole base URL, with its path: " +
    '"https://api.openai.com/v1"',
  ],
  "Azure without its path": [
    withUpstream(["https://mine.openai.azure.com/"]),
    "providers.a.upstream[0]: expected the path of the interface after the host: /openai/v1",
  ],
  "a shape with the path of its clients in the upstream": [
    {
      ...GOOD,
      providers: { a: { shape: "gemini", upstream: "https://llm.example.com/v1beta/" } },
    },
    "providers.a.upstream: expected the URL before the path that clients send, " +
    'such as "https://generativelanguage.googleapis.com", with "shape": "gemini"',
  ],
  "a short name with the path of its clients": [
    { ...GOOD, providers: { a: { shape: "ollama", upstream: ["ollama"] } } },
    "providers.a.upstream[0]: expected the URL before the path that clients send, " +
    'such as "http://127.0.0.1:11434", with "shape": "ollama"',
  ],
  "recordings at a shape without them": [
    {
      ...GOOD,
      providers: {
        a: { shape: "azure", upstream: "https://mine.openai.azure.com", durable: {} },
      },
    },
    'providers.a.durable: expected no such setting with "shape": "azure"',
  ],
  "a placeholder for a variable": [
    { ...GOOD, keys: [{ id: "me", key: "${MY_GATEWAY_KEY}" }] },
    "keys[0].key: expected the value itself, because ${…} is not replaced here. " +
    "Leave it out, and set the environment variable SALLYPORT_KEYS",
  ],
  "a placeholder in a provider": [
    { ...GOOD, providers: { "my-own": { upstream: "${UPSTREAM}" } } },
    "providers.my-own.upstream: expected the value itself, because ${…} is not replaced here. " +
    "Leave it out, and set the environment variable SALLYPORT_PROVIDER_MY_OWN",
  ],
  "a currency by its sign": [
    withBudget("$50/month"),
    'keys[0].limits.budget: expected money such as "50 USD/month": ' +
    "the code of a currency after the amount, such as USD, instead of $",
  ],
  "a currency in small letters": [
    withBudget("50 usd/month"),
    'keys[0].limits.budget: expected money such as "50 USD/month": ' +
    "an amount, one space, and three capital letters",
  ],
  "a budget without a period": [
    withBudget("50 USD"),
    "keys[0].limits.budget: expected a budget with its period, such as " +
    '"5M/month", "1M/week" or "50 USD/day"',
  ],
  "a budget for a year": [
    withBudget("50 USD/year"),
    'keys[0].limits.budget: expected a budget by day, week or month, such as "5M/month" or ' +
    '"50 USD/month": there are no other periods',
  ],
  "a budget for a year, in a list": [
    withBudget(["5M/month", "50 USD/year"]),
    'keys[0].limits.budget[1]: expected a budget by day, week or month, such as "5M/month" or ' +
    '"50 USD/month": there are no other periods',
  ],
  "a rate by the minute": [
    withRequests("600/minute"),
    'keys[0].limits.requests: expected a rate such as "600/min", "100k/h" or "5/10s": ' +
    'the period is written "/min"',
  ],
  "a rate in rpm": [
    withRequests("600rpm"),
    'keys[0].limits.requests: expected a rate such as "600/min", "100k/h" or "5/10s": ' +
    'the period is written "/min"',
  ],
  "a rate by the fortnight": [
    withRequests("600/fortnight"),
    'keys[0].limits.requests: expected a rate such as "600/min", "100k/h" or "5/10s": ' +
    "the periods are s, min, h and day",
  ],
  "operators on the port of callers": [
    { ...GOOD, listen: [{ port: 8787 }], admin: { port: 8787 } },
    "admin.port: expected another port than listen[0]: " +
    "callers and operators need separate ones",
  ],
  "operators on the port of all interfaces": [
    { ...GOOD, listen: [{ port: 1 }, { hostname: "0.0.0.0", port: 8787 }], admin: { port: 8787 } },
    "admin.port: expected another port than listen[1]: " +
    "callers and operators need separate ones",
  ],
  "two listeners on one port": [
    { ...GOOD, listen: [{ port: 8787 }, { port: 8787 }] },
    "listen[1].port: expected another port than listen[0]: both cannot listen at once",
  ],
};

describe("a mistake in the configuration", () => {
  let folder: ReturnType<typeof makeFolder>;
  beforeEach(() => void (folder = makeFolder()));
  afterEach(() => folder.remove());
  const write = (text: string, name = "gateway.jsonc") => {
    const file = join(folder.path, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };
  const check = async (env: Record<string, string> = {}) => {
    const { status, stdout, stderr } = await runCommand(["check"], { cwd: folder.path, env });
    assert.deepEqual([status, stdout], [2, ""], stderr);
    return stderr;
  };

  for (const [name, [config, says]] of Object.entries(MISTAKES)) {
    it(`is explained: ${name}`, async () => {
      const file = write(JSON.stringify(config));
      assert.equal(await check(), `sallyport: ${says} (${file}:1)\n`);
    });
  }

  it("is not seen in configurations that can work", async () => {
    const configs = [
      withUpstream("https://api.deepseek.com"),
      withUpstream("http://127.0.0.1:11434"),
      withUpstream("https://models.corp.example"),
      withUpstream("https://API.openai.com/v2/"),
      { ...GOOD, listen: [{ port: 0 }, { port: 0 }], admin: { port: 0 } },
      {
        ...GOOD,
        listen: [{ hostname: "::1", port: 1 }],
        admin: { hostname: "127.0.0.1", port: 1 },
      },
      { ...GOOD, keys: [{ ...KEYS[0], metadata: { note: "costs $5, or ${amount} in all" } }] },
    ];
    for (const config of configs) {
      write(JSON.stringify(config));
      const { status, stderr } = await runCommand(["check"], { cwd: folder.path });
      assert.equal(status, 0, stderr);
    }
  });

  it("a variable overrides a placeholder in the file", async () => {
    write(JSON.stringify({ ...GOOD, admin: { port: 1, token: "${ADMIN_TOKEN}" } }));
    assert.match(await check(), /^sallyport: admin\.token: .* SALLYPORT_ADMIN_TOKEN \(/);
    const env = { SALLYPORT_ADMIN_TOKEN: "a-token-of-an-operator" };
    const { status, stderr } = await runCommand(["check"], { cwd: folder.path, env });
    assert.equal(status, 0, stderr);
  });

  it("in the name of a variable is explained", async () => {
    write(JSON.stringify(GOOD));
    assert.equal(
      await check({ SALLYPORT_LIMIT_BODY: "1MB" }),
      "sallyport: SALLYPORT_LIMIT_BODY: unknown variable. Did you mean SALLYPORT_LIMITS_BODY? " +
        "(environment)\n",
    );
    assert.equal(
      await check({ SALLYPORT_UPSTREAM_A: "openai" }),
      "sallyport: SALLYPORT_UPSTREAM_A: unknown variable (environment)\n",
    );
    assert.equal(
      await check({ SALLYPORT_HOST_A: "a.example" }),
      "sallyport: SALLYPORT_HOST_A: unknown variable. Did you mean SALLYPORT_HOSTS_A? " +
        "(environment)\n",
    );
  });

  it("such as no file at all names the next step", async () => {
    assert.equal(
      await check(),
      "sallyport: config: there is no gateway.jsonc in this folder, and no variable with " +
        "SALLYPORT_: write the file with sallyport init, or name one with --config\n",
    );
    const file = join(folder.path, "none.jsonc");
    assert.equal(
      await check({ SALLYPORT_CONFIG: file }),
      "sallyport: config: cannot read the file (ENOENT): write it with sallyport init, " +
        `or name another one with --config (${file})\n`,
    );
  });

  it("such as a key file that is no JSON names the next step", async () => {
    write(JSON.stringify({ ...GOOD, keys: { file: "keys.json" } }));
    const file = write("keys: me", "keys.json");
    assert.equal(
      await check(),
      "sallyport: keys.file: expected JSON: correct it, or restore the file from a copy " +
        `(${file})\n`,
    );
  });

  it("stops serve with the same message as check", async () => {
    for (const name of ["azure as an upstream", "operators on the port of callers"]) {
      write(JSON.stringify(MISTAKES[name]?.[0]));
      const served = await runProgram(["serve"], { cwd: folder.path });
      assert.deepEqual([served.status, served.stdout], [2, ""]);
      assert.equal(served.stderr, await check());
    }
  });

  it("such as a port in use names the next step", async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, "127.0.0.1", () => resolve()));
    const { port } = taken.address() as AddressInfo;
    write(JSON.stringify({ ...GOOD, listen: [{ port }] }));
    const { status, stderr } = await runProgram(["serve"], { cwd: folder.path });
    taken.close();
    assert.equal(status, 2);
    assert.equal(
      stderr,
      `sallyport: listen[0]: cannot listen on http://127.0.0.1:${port}: EADDRINUSE. ` +
        "Stop the program that uses the port, or set another port\n",
    );
  });
});
