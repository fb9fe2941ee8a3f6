/**
 * `sallyport explain`: it predicts the behaviour of a real gateway for the same bytes. It calls no
 * provider, counts nothing and prints no secret.
 */
// runtimes: bun, node
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { findAdvice, type Refusal } from "../../src/admin/refusal_advice.ts";
import { readWrittenRequest, toGatewayRequest } from "../../src/cli/explain/written_request.ts";
import { parseConfig } from "../../src/config/config.ts";
import { readAll } from "../../src/http/read_all.ts";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { isElsewhere, it } from "../support/cases.ts";
import { freePort } from "../support/free_port.ts";
import { GOOD_BODY, PROMPT, STREAM_BODY } from "../support/gateway.ts";
import { runCommand } from "../support/command.ts";
import {
  cleanEnvironment,
  endPrograms,
  makeFolder,
  ONE_FILE,
  startProgram,
} from "../support/program.ts";
import { type Provider, startProvider } from "../support/provider.ts";
import { REDIS_TIMEOUT, startRedis, withRedis } from "../support/redis.ts";
import { runtime } from "../support/runtimes.ts";
import { callRaw, openRaw } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const TOKEN = "an-admin-token-of-32-characters!";
const KEY = "a-gateway-key-canary";
const UPSTREAM_KEY = "sk-canary-upstream";
const HELD = "held-canary-of-the-gateway";
const SECRETS = [KEY, UPSTREAM_KEY, PROMPT, "canary"];
const CHAT = "POST /v1/chat/completions HTTP/1.1";

/** The lines of a file, and the bytes of the call. */
interface Lines {
  readonly first?: string;
  readonly headers?: Readonly<Record<string, string | undefined>>;
  readonly body?: string;
}

const GOOD_HEADERS = {
  "Host": "a.localhost",
  "Authorization": `Bearer ${UPSTREAM_KEY}`,
  "Gateway-Auth": `Bearer ${KEY}`,
  "Content-Type": "application/json",
};

const toLowerCase = (headers: Readonly<Record<string, string>>): Record<string, string> =>
  Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));

function write({ first = CHAT, headers = {}, body = GOOD_BODY }: Lines, end = "\r\n"): string {
  const all = { ...GOOD_HEADERS, ...headers };
  const lines = Object.entries(all).filter(([, value]) => value !== undefined).map((
    [name, value],
  ) => `${name}: ${value}`);
  const length = body === "" ? [] : [`Content-Length: ${Buffer.byteLength(body)}`];
  return [first, ...lines, ...length, "Connection: close", "", body].join(end);
}

describe("sallyport explain", () => {
  let folder: ReturnType<typeof makeFolder>;
  let provider: Provider;
  const closing: (() => unknown)[] = [];
  beforeEach(async () => {
    folder = makeFolder();
    provider = await startProvider();
  });
  afterEach(async () => {
    await endPrograms();
    for (const close of closing.splice(0).reverse()) await close();
    await provider.close();
    folder.remove();
  });

  /** Writes a configuration with free ports. */
  async function configure(
    more: Record<string, unknown> = {},
    ofA: Record<string, unknown> = {},
  ): Promise<void> {
    const config = {
      listen: [{ port: await freePort() }],
      admin: { port: await freePort(), token: TOKEN },
      providers: {
        a: { hosts: ["a.localhost"], upstream: [provider.url, "http://127.0.0.1:9/v1"], ...ofA },
        b: { hosts: ["b.localhost"], upstream: "groq" },
      },
      keys: [{ id: "me", name: "my laptop", key: KEY, providers: ["a"], models: ["test-*"] }],
      drain: { delay: "0s" },
      ...more,
    };
    writeFileSync(join(folder.path, "gateway.jsonc"), JSON.stringify(config));
  }
  async function serve(): Promise<string> {
    const program = startProgram(["serve", "--log", "off"], { cwd: folder.path });
    await program.waitFor(/admin on (http:\S+)/);
    return await program.waitFor(/listening on (http:\S+)/);
  }
  /** Runs the command, and looks for secrets in its output. */
  async function run(request: string, ...args: string[]) {
    writeFileSync(join(folder.path, "request"), request);
    const ran = await runCommand(["explain", "request", ...args], { cwd: folder.path });
    for (const secret of SECRETS) {
      assert.ok(!`${ran.stdout}${ran.stderr}`.includes(secret), `${secret} is told`);
    }
    return ran;
  }
  async function explain(request: string) {
    const { status, stdout, stderr } = await run(request, "--json");
    assert.ok(stdout.startsWith("{"), stderr);
    const explanation = JSON.parse(stdout);
    assert.equal(status, explanation.outcome === "refused" ? 1 : 0);
    return explanation;
  }

  it("reads the file or the variable of a held key, and refuses the call if it cannot", async () => {
    const request = write({ headers: { Authorization: undefined } });
    const keys = [{ id: "me", key: KEY, heldKeys: true }];
    const source = join(folder.path, "secret");
    const use = (upstreamKey: object) => configure({ keys }, { upstreamKey });
    for (const missing of [{ file: source }, { env: "ABSENT_VARIABLE" }]) {
      await use(missing);
      const { outcome, refusal } = await explain(request);
      assert.deepEqual([outcome, refusal?.status, refusal?.code], [
        "refused",
        503,
        "upstream_key_unavailable",
      ]);
    }
    assert.match((await run(request)).stderr, /variable ABSENT_VARIABLE is not set/);
    writeFileSync(source, HELD, { mode: 0o600 });
    for (const readable of [{ file: source }, { exec: ["/absent/command"] }]) {
      await use(readable);
      const { outcome, usesHeldKey, call } = await explain(request);
      assert.deepEqual([outcome, usesHeldKey], ["forwarded", true]);
      assert.ok(!JSON.stringify(call).includes(HELD));
    }
  });

  it("shows the call that a gateway would make, and makes none itself", async () => {
    const set = { "x-org": "canary-of-the-operator" };
    await configure({}, {
      headers: { pass: ["x-mine"], set },
      deadlines: { firstByte: "40s" },
      transport: "fetch",
    });
    const request = write({
      first: `${CHAT.replace(" HTTP", "?beta=canary HTTP")}`,
      headers: { "X-Mine": "kept", "Cookie": "canary=1", "X-Stainless-Timeout": "9" },
      body: STREAM_BODY,
    });
    const { key, call, limits, limitsFrom, replicas, ...rest } = await explain(request);
    assert.equal(provider.calls.length, 0);
    assert.deepEqual(rest, {
      outcome: "forwarded",
      provider: "a",
      operation: "chat.completions",
      model: "test-1",
      stream: true,
      withheld: ["cookie"],
    });
    assert.deepEqual(key, { id: "me", name: "my laptop" });
    assert.deepEqual([limits, limitsFrom], [undefined, undefined]);
    assert.deepEqual(replicas, [provider.url, "http://127.0.0.1:9/v1"]);
    assert.equal(call.url, `${provider.url}/chat/completions?beta=(masked)`);
    assert.equal(call.bodyBytes, STREAM_BODY.length);
    assert.deepEqual([call.deadlines.firstByteMs, call.deadlines.totalMs], [10_000, 1_800_000]);
    assert.deepEqual([call.headers.authorization, call.headers["x-org"]], [
      "Bearer (masked)",
      "(masked)",
    ]);

    const url = await serve();
    await openRaw(url, request).closed;
    const [arrived] = provider.calls;
    const {
      host: _,
      connection: _c,
      "content-length": _l,
      via: _v,
      "sec-fetch-mode": _s,
      ...headers
    } = arrived?.headers ??
      assert.fail("it was not called");
    assert.equal(headers.authorization, `Bearer ${UPSTREAM_KEY}`);
    const { via, ...told } = call.headers;
    assert.match(via, /^1\.1 sallyport-/);
    assert.deepEqual(
      { ...headers, "authorization": "Bearer (masked)", "x-org": "(masked)" },
      {
        ...told,
        ...(headers["accept-language"] !== undefined &&
          { "accept-language": headers["accept-language"] }),
      },
    );
  });

  it("shows the attribution of a call, and the header of each value", async () => {
    const attribution = { user: ["x-staff", "x-user"], client: "user-agent family", agent: "x-a" };
    await configure({ attribution });
    const headers = {
      "X-User": "ann",
      "User-Agent": "claude-cli/2.1",
      "X-A": `is ${UPSTREAM_KEY}`,
    };
    const explained = await explain(write({ headers }));
    assert.deepEqual(explained.attribution, {
      user: { value: "ann", source: "x-user" },
      agent: { value: "(secret)", source: "x-a" },
      client: { value: "claude-code", source: "user-agent family" },
    });
    const { stdout } = await run(write({ headers }));
    assert.match(stdout, /^attribution +user “ann” from x-user\n +agent “\(secret\)” from x-a\n/m);
    assert.equal((await explain(write({}))).attribution, undefined);
  });

  it.once("shows the gateway's answer for every refusal, and the fix", async () => {
    const operations = ["chat", "models"];
    await configure({ limits: { body: "2KB", bodyTime: "2s" } }, { operations });
    const other = generateGatewayKey();
    const cases: [lines: Lines, code: string, fix: RegExp][] = [
      [{ headers: { Host: "c.localhost" } }, "unknown_host", /a\.localhost, b\.localhost/],
      [{ headers: { Host: "a b" } }, "invalid_host", /plain host/],
      [{ first: "POST /v2/chat/completions HTTP/1.1" }, "not_found", /base URL/],
      [{ first: "PUT /v1/chat/completions HTTP/1.1" }, "method_not_allowed", /the message says/],
      [{ headers: { "Gateway-Auth": undefined } }, "missing_gateway_key", /Gateway-Auth/],
      [{ headers: { "Gateway-Auth": "canary" } }, "invalid_gateway_auth", /the message/],
      [
        { headers: { "Gateway-Auth": `Bearer ${KEY}s` } },
        "invalid_gateway_key",
        /no key has this secret/,
      ],
      [
        { headers: { "Gateway-Auth": `Bearer ${other.slice(0, -1)}` } },
        "invalid_gateway_key",
        /mistyped or cut/,
      ],
      [{ headers: { "Authorization": undefined } }, "missing_upstream_key", /the message/],
      [
        { headers: { "Authorization": `Bearer ${other}` } },
        "gateway_key_in_authorization",
        /the message/,
      ],
      [
        { headers: { Host: "b.localhost" } },
        "provider_not_allowed",
        /keys update me --providers a,b$/,
      ],
      [
        { body: GOOD_BODY.replace("test-1", "gpt-5") },
        "model_not_allowed",
        /test-\*: sallyport keys update me --models/,
      ],
      [
        { first: "POST /v1/embeddings HTTP/1.1" },
        "operation_not_allowed",
        /providers\.a\.operations/,
      ],
      [{ body: `{"${PROMPT}` }, "invalid_json", /the message/],
      [{ body: '{"model":"test-1"}' }, "invalid_body", /the message/],
      [{ body: GOOD_BODY.replace("Hi", "x".repeat(3000)) }, "body_too_large", /limits\.body/],
      [{ headers: { "Content-Type": "text/plain" } }, "unsupported_media_type", /the message/],
    ];
    const url = await serve();
    for (const [lines, code, fix] of cases) {
      const request = write(lines);
      const { outcome, refusal, call } = await explain(request);
      assert.deepEqual([outcome, refusal.code, call], ["refused", code, undefined]);
      const answer = await openRaw(url, request).closed;
      assert.match(answer, new RegExp(`^HTTP/1\\.1 ${refusal.status} `), code);
      assert.equal(/^sallyport-error: (\S+)/mi.exec(answer)?.[1], code);
      assert.ok(answer.includes(JSON.stringify(refusal.message)), `${code}: ${refusal.message}`);
      assert.match(refusal.fix, fix, code);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("shows how an operator serves a call that a limit cannot count", async () => {
    const limits = { tokens: "5k/h", mode: "strict" };
    const keys = [{ id: "me", key: KEY, providers: ["a"], limits }];
    await configure({ keys }, { operations: ["all"], maxOutput: 100 });
    const content = [{ type: "image_url", image_url: { url: "https://a.example/b.png" } }];
    const body = JSON.stringify({
      model: "test-1",
      max_tokens: 10,
      messages: [{ role: "user", content }],
    });
    const { refusal: unbounded } = await explain(write({ body }));
    assert.equal(unbounded.code, "request_exceeds_limit");
    assert.match(unbounded.fix, /into the body, .*"mode": "enforce"$/);
    const batch = write({ first: "POST /v1/batches HTTP/1.1", body: '{"input_file_id":"file-1"}' });
    const { refusal: uncounted } = await explain(batch);
    assert.equal(uncounted.code, "operation_not_metered");
    assert.match(uncounted.fix, /providers\.a\.callPrices$/);
  });

  const LIMITS = { requests: "2/h", tokens: "5k/h" };
  const limited = {
    keys: [{ id: "me", key: KEY, team: "search", limits: LIMITS }],
    teams: { search: { limits: { budget: "1 USD/month" } } },
    prices: { "test-*": { input: 1, output: 2 } },
  };
  const send = async (url: string) =>
    (await callRaw(url, {
      path: "/v1/chat/completions",
      headers: toLowerCase(GOOD_HEADERS),
      body: GOOD_BODY,
    })).status;
  const useOf = ({ limits }: { limits: { subject: string; name: string; used: number }[] }) =>
    Object.fromEntries(limits.map(({ subject, name, used }) => [`${subject} ${name}`, used]));

  it.once("shows the limits of the running gateway and the use by a request, without using them", async () => {
    let told = 0;
    const hook = createServer((_request, response) => {
      told++;
      response.end();
    });
    await new Promise<void>((resolve) => hook.listen(0, "127.0.0.1", resolve));
    closing.push(() => hook.close());
    const alerts = {
      url: `http://127.0.0.1:${(hook.address() as AddressInfo).port}/`,
      secret: `whsec_${"A".repeat(32)}`,
    };
    await configure({ ...limited, alerts });
    const before = await explain(write({}));
    assert.equal(before.limitsFrom, "nowhere");
    const url = await serve();
    for (let count = 0; count < 3; count++) {
      const explanation = await explain(write({}));
      assert.equal(explanation.limitsFrom, "gateway");
      assert.deepEqual(useOf(explanation), {
        "key:me requests": 0,
        "key:me tokens": 0,
        "team:search spend": 0,
      });
    }
    const { limits, reservation } = before;
    const [requests, tokens, spend] = limits;
    assert.deepEqual([requests.limit, requests.takes], [2, 1]);
    assert.deepEqual([tokens.limit, tokens.takes], [5000, reservation.tokens]);
    assert.deepEqual([spend.limit, spend.takes, spend.currency], [1, reservation.spend, "USD"]);
    assert.ok(reservation.tokens > 1000 && reservation.spend > 0.002);

    assert.deepEqual([await send(url), await send(url)], [200, 200]);
    const { outcome, refusal, ...after } = await explain(write({}));
    assert.deepEqual([outcome, refusal.status, refusal.code], [
      "refused",
      429,
      "rate_limit_exceeded",
    ]);
    assert.match(refusal.fix, /raise it/);
    const used = useOf(after);
    assert.equal(used["key:me requests"], 2);
    assert.ok((used["key:me tokens"] ?? 0) > 0 && (used["team:search spend"] ?? 0) > 0);
    assert.equal(await send(url), 429);
    assert.deepEqual(useOf(await explain(write({}))), used);
    assert.equal(provider.calls.length, 2);
    assert.equal(told, 0);
  });

  it.once("says that a limit in observe mode lets the request pass", async () => {
    await configure({
      keys: [{ id: "me", key: KEY, limits: { tokens: "10/h", mode: "observe" } }],
    });
    const explanation = await explain(write({}));
    assert.deepEqual([explanation.outcome, explanation.observedLimit], ["forwarded", undefined]);
    const url = await serve();
    assert.equal(await send(url), 200);
    await until(
      async () => (await explain(write({}))).observedLimit === "tokens",
      "the limit is reached",
    );
    assert.match(
      (await run(write({}))).stdout,
      /\nobserved +tokens is reached, and only observed\n/,
    );
  });

  const { it: onRedis } = isElsewhere ? { it: () => {} } : withRedis;
  onRedis("asks Redis, where there is one, for keys and for the use of limits", async () => {
    const redis = await startRedis();
    closing.push(() => redis.stop());
    await configure({ ...limited, redis: { url: redis.url, timeout: REDIS_TIMEOUT } });
    const url = await serve();
    assert.equal(await send(url), 200);
    for (let count = 0; count < 2; count++) {
      const explanation = await explain(write({}));
      assert.deepEqual([explanation.outcome, explanation.limitsFrom], ["forwarded", "redis"]);
      assert.equal(useOf(explanation)["key:me requests"], 1);
    }
    assert.equal(await send(url), 200);
    assert.equal(await send(url), 429);
  });

  it.once("prints one fact per line", async () => {
    await configure(limited);
    const { status, stdout } = await run(write({ headers: { "Cookie": "canary=1" } }));
    assert.equal(status, 0);
    for (
      const line of [
        /^provider +a$/,
        /^upstream +http:\/\/127\.0\.0\.1:\d+\/v1$/,
        /^ +http:\/\/127\.0\.0\.1:9\/v1$/,
        /^key +me, team search$/,
        /^limits +key:me requests: 0 of 2 used, this needs 1, resets in (?:1h|\d+m \d+s)$/,
        /^ +team:search budget: 0 of 1 USD used, this needs 0\.002\d+, resets in \d+/,
        /^reserved +1,\d+ tokens, 0\.002\d+ USD: an estimate, settled by the answer$/,
        /^headers +authorization: Bearer \(masked\)$/,
        /^deadlines +connect 5s, first byte 10m, first event 10m, idle 2m, total 30m$/,
        /^withheld +cookie$/,
        /^forwarded +/,
      ]
    ) assert.ok(stdout.split("\n").some((each) => line.test(each)), `${line} in ${stdout}`);
    const refused = await run(write({ headers: { Host: "nowhere" } }));
    assert.equal(refused.status, 1);
    assert.match(
      refused.stdout,
      /^refused +421 unknown_host\n +Cannot route the request.*\nto do +call one of these/,
    );
  });

  it.once("says that a preflight is answered by the gateway itself", async () => {
    await configure({ cors: { origins: ["https://a.example"] } });
    const preflight = (origin: string) =>
      write({
        first: "OPTIONS /v1/chat/completions HTTP/1.1",
        headers: { Origin: origin, "Access-Control-Request-Method": "POST" },
        body: "",
      });
    assert.deepEqual(await explain(preflight("https://a.example")), { outcome: "answered" });
    const { refusal } = await explain(preflight("https://b.example"));
    assert.deepEqual([refusal.status, refusal.code], [403, "origin_not_allowed"]);
    assert.match(refusal.fix, /cors\.origins/);
  });

  it("reads standard input", async () => {
    await configure();
    const ran = runtime === "deno" ? ["run", "-A", ONE_FILE] : [ONE_FILE];
    writeFileSync(join(folder.path, "request"), write({}, "\n"));
    // Through a pipe whose writer starts late, and from a file.
    for (const line of ['(sleep 0.2; cat request) | "$0" "$@"', 'exec "$0" "$@" < request']) {
      const { stdout, stderr } = await promisify(execFile)(
        "sh",
        ["-c", line, process.execPath, ...ran, "explain", "-", "--json"],
        { cwd: folder.path, env: cleanEnvironment() },
      );
      assert.equal(stderr, "", line);
      assert.equal(JSON.parse(stdout).outcome, "forwarded");
    }
  });

  it.once("names missing arguments", async () => {
    await configure();
    const none = await runCommand(["explain"], { cwd: folder.path });
    assert.match(none.stderr, /explain expects a file with a request, or - for standard input/);
    const absent = await runCommand(["explain", "absent"], { cwd: folder.path });
    assert.deepEqual([absent.status, absent.stderr], [
      2,
      "sallyport: cannot read absent (ENOENT). See sallyport explain --help\n",
    ]);
    for (
      const wrong of [
        "",
        "Hello",
        "{}",
        '{"method":"GET","url":"/v1/models","headers":[null]}',
        '{"method":"GET","url":"/v1/models","headers":[{"name":{},"value":5}]}',
        "curl -d x",
        `${CHAT}\nno field\n\n`,
        `${CHAT}\nTransfer-Encoding: chunked\n\n0\n\n`,
      ]
    ) {
      const { status, stderr } = await run(wrong);
      assert.equal(status, 2, wrong);
      assert.match(
        stderr,
        /^sallyport: cannot read the request: .*raw HTTP, an entry of a HAR file/,
      );
    }
  });
});

describe("requests in files", () => {
  const read = (text: string) => {
    const { method, url, headers, body } = toGatewayRequest(readWrittenRequest(Buffer.from(text)));
    const names: Record<string, string> = {};
    headers.forEach((value, name) => names[name] = value);
    return { method, url, headers: names, hasBody: body !== null };
  };
  const textOf = async (text: string) => {
    const { body } = toGatewayRequest(readWrittenRequest(Buffer.from(text)));
    return body === null ? "" : Buffer.from(await readAll(body)).toString();
  };
  const expected = {
    method: "POST",
    url: "/v1/x?q=1",
    headers: {
      "host": "h:1",
      "x-a": "1, 2",
      "content-type": "application/json",
      "content-length": "9",
    },
    hasBody: true,
  };
  const BODY = '{"a":"é"}'.replace("é", "e");
  const FORMS: Readonly<Record<string, string>> = {
    "raw HTTP":
      `POST /v1/x?q=1 HTTP/1.1\r\nHost: h:1\r\nX-A: 1\r\nx-a:2\r\nContent-Type: application/json\r\n` +
      `Content-Length: 99\r\n\r\n${BODY}`,
    "raw HTTP with bare line feeds":
      `POST /v1/x?q=1\nHost: h:1\nX-A: 1, 2\nContent-Type: application/json\n\n${BODY}`,
    "an entry of a HAR": JSON.stringify({
      request: {
        method: "POST",
        url: "https://h:1/v1/x?q=1",
        headers: [
          { name: ":authority", value: "h:1" },
          { name: "X-A", value: "1" },
          { name: "x-a", value: "2" },
          { name: "Content-Type", value: "application/json" },
        ],
        postData: { text: BODY },
      },
    }),
    "a command of curl":
      `curl 'http://h:1/v1/x?q=1' \\\n  -H 'X-A: 1' --header="x-a: 2" -s --compressed \\\n` +
      `  -H "Content-Type: application/json" --data-raw $'{"a":\\u0022e"}'`,
    "another one": `curl --json '{"a":"e"}' -m 5 -HX-A:1 -H x-a:2 h:1/v1/x?q=1`,
    "a whole HAR": "",
  };
  for (const [name, text] of Object.entries(FORMS)) {
    it.once(`are read from ${name}`, async () => {
      const given = text === "" ? `{"log":{"entries":[${FORMS["an entry of a HAR"]}]}}` : text;
      const found = read(given);
      assert.deepEqual(found, expected);
      assert.equal(await textOf(given), BODY);
    });
  }

  it.once("are a GET without a body, and a form if curl would send one", () => {
    assert.deepEqual(read("curl https://h/v1/models"), {
      method: "GET",
      url: "/v1/models",
      headers: { host: "h" },
      hasBody: false,
    });
    assert.equal(
      read("curl h -d a=1 -d b=2").headers["content-type"],
      "application/x-www-form-urlencoded",
    );
    for (const wrong of ["curl h -d @file", "curl h -F a=b", "curl -u me:x h", "curl"]) {
      assert.throws(() => read(wrong), /cannot read the request/);
    }
  });
});

describe("advice on refusals", () => {
  it.once("shows the operator the state of a key, which callers never see", () => {
    const facts = (key: Partial<NonNullable<Refusal["key"]>>): Refusal => ({
      config: parseConfig({ providers: { a: { upstream: "openai" } } }),
      provider: "a",
      isLookedUp: true,
      key: { id: "x", ...key },
    });
    const states: [Partial<NonNullable<Refusal["key"]>>, RegExp][] = [
      [{ revokedAt: 1 }, /the key is revoked/],
      [{ disabled: true }, /sallyport keys enable x/],
      [{ expiresAt: 1 }, /sallyport keys update x --expires/],
      [{}, /ended when the key was rotated/],
    ];
    for (const [key, says] of states) {
      assert.match(findAdvice("invalid_gateway_key", facts(key)), says);
    }
  });
});
