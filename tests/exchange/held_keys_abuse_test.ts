/** Held keys under abuse: callers that try to see one or to use it wrongly, and bad sources. */
import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { setImmediate } from "node:timers";
import { gzipSync } from "node:zlib";
import { afterEach, beforeEach, describe, it } from "@std/testing/bdd";
import { STORE_DEADLINE_MS } from "../../src/exchange/deadline.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { HeldKeyReader } from "../../src/upstream/held_keys.ts";
import { GOOD_BODY, startUnderTest, type UnderTest } from "../support/gateway.ts";
import { type Answering, answerPlain, type Provider, startProvider } from "../support/provider.ts";
import { callRaw, type RawAnswer } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const KEY = "key-that-is-allowed-to";
const [HELD, NEXT] = ["held-canary-1", "held-canary-2"];
const MODEL_CALL = "/v1/models/gemini-3:generateContent";

describe("a held key under abuse", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let answering: Answering;
  /** Time that has passed in addition to the time of the system. Milliseconds. */
  let passedMs: number;
  beforeEach(async () => {
    answering = answerPlain;
    passedMs = 0;
    provider = await startProvider((response, call) => answering(response, call));
  });
  afterEach(async () => {
    await under?.close();
    under = undefined;
    await provider.close();
  });

  /** A shorter deadline, but not as short as a pause between two readings (100 ms). */
  const clock: Clock = {
    ...systemClock,
    monotonic: () => systemClock.monotonic() + passedMs,
    timer: (ms, fire, options) =>
      systemClock.timer(ms === STORE_DEADLINE_MS ? ms / 10 : ms, fire, options),
  };
  const COMMAND = { upstreamKey: { exec: ["unused"], refresh: "1h" } };
  async function start(
    readHeldKey: HeldKeyReader = () => HELD,
    settings: Record<string, unknown> = {},
  ): Promise<UnderTest> {
    return under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: { upstreamKey: { file: "unused", refresh: "1h" }, ...settings },
      config: { keys: [{ id: "me", key: KEY, heldKeys: true, operations: ["all"] }] },
      parts: { readHeldKey, clock },
    });
  }
  function call(
    { a }: UnderTest,
    path = "/v1/chat/completions",
    headers: Record<string, string> = {},
  ): Promise<RawAnswer> {
    const sent = { "gateway-auth": `Bearer ${KEY}`, "content-type": "application/json" };
    return callRaw(a, { path, body: GOOD_BODY, headers: { ...sent, ...headers } });
  }
  const codeOf = ({ status, body }: RawAnswer) =>
    status === 200 ? "ok" : `${status} ${JSON.parse(body).error.code}`;
  const sent = () => provider.calls.map(({ headers }) => String(headers.authorization).slice(7));
  /** Makes the provider accept some keys only. */
  const accept = (...keys: readonly string[]) => {
    answering = (response, { headers }) => {
      const isAccepted = keys.some((key) => headers.authorization === `Bearer ${key}`);
      response.writeHead(isAccepted ? 200 : 401, { "content-type": "application/json" });
      response.end('{"error":{"code":"invalid_api_key"}}');
    };
  };

  it("makes no client secret: with one, a caller calls the provider directly", async () => {
    const gateway = await start(undefined, { operations: ["all"] });
    const paths = [
      "/v1/realtime/client_secrets",
      "/v1/realtime/sessions",
      "/v1/realtime/transcription_sessions",
      "/v1/chatkit/sessions",
    ];
    for (const path of paths) {
      assert.equal(codeOf(await call(gateway, path)), "403 operation_not_allowed", path);
    }
    assert.equal(provider.calls.length, 0);
  });

  it("is used for calls of models, not for other paths that end like one", async () => {
    const gateway = await start(undefined, { operations: ["all"] });
    const refused = [
      "/v1/organization/admin_api_keys/models/x:generateContent",
      "/v1/keys/models/x:generateContent",
      "/v1/keys/model/x/invoke",
      "/v1/models/x:setIamPolicy",
      "/v1/projects/p/locations/l/models/x:copy",
    ];
    for (const path of refused) {
      assert.equal(codeOf(await call(gateway, path)), "403 operation_not_allowed", path);
    }
    const allowed = [
      MODEL_CALL,
      "/v1/models/embedding-1:batchEmbedContents",
      "/v1/projects/p/locations/l/publishers/google/models/gemini-3:streamGenerateContent",
      "/v1/model/claude/converse-stream",
    ];
    for (const path of allowed) assert.equal(codeOf(await call(gateway, path)), "ok", path);
    assert.equal(provider.calls.length, allowed.length);
  });

  it("is not used next to a key that the caller sends in another place", async () => {
    const gateway = await start();
    for (const name of ["x-api-key", "api-key", "x-goog-api-key"]) {
      const answer = await call(gateway, undefined, { [name]: "sk-own-of-the-caller" });
      assert.equal(codeOf(answer), "401 invalid_upstream_auth", name);
      assert.match(answer.body, /or no key at all to use the gateway's/);
    }
    for (
      const query of [
        "?key=sk-own",
        "?alt=sse&KEY=sk-own",
        "?%6bey=1",
        "?api_key=1",
        "?a;access_token=1",
        "?oauth_token=1",
        "?bearer_token=1",
        "?%24httpHeaders=Authorization:1",
        "?subscription-key=1",
      ]
    ) {
      const answer = await call(gateway, `/v1/chat/completions${query}`);
      assert.equal(codeOf(answer), "401 invalid_upstream_auth", query);
    }
    assert.equal(codeOf(await call(gateway, "/v1/chat/completions?monkey=1")), "ok");
    assert.equal(provider.calls.length, 1);
  });

  it("is sent to no other host, and no other account pays, by headers of the caller", async () => {
    const chosen = {
      "helicone-target-url": "https://evil.example/v1",
      "helicone-openai-api-base": "https://evil.example/v1",
      "helicone-fallbacks": "[]",
      "cf-aig-custom-host": "evil.example",
      "x-portkey-custom-host": "evil.example",
      "openai-organization": "org-other",
      "openai-project": "proj_other",
      "x-openai-account-id": "other",
      "anthropic-workspace-id": "wrkspc_other",
      "chatgpt-account-id": "other",
      "hf-bill-to": "other",
      "x-hf-bill-to": "other",
      "x-goog-user-project": "other",
      "x-dashscope-workspace": "other",
    };
    const kept = { "openai-beta": "assistants=v2", "x-session-id": "1", "anthropic-version": "1" };
    const namesOfLast = () => Object.keys(provider.calls.at(-1)?.headers ?? {});
    const isChosen = (name: string) => Object.hasOwn(chosen, name);
    const headers = { pass: ["*"], set: { "openai-project": "proj_of_operator" } };
    for (const settings of [{}, { headers }]) {
      const gateway = await start(undefined, settings);
      assert.equal(codeOf(await call(gateway, undefined, { ...chosen, ...kept })), "ok");
      const set = "headers" in settings ? ["openai-project"] : [];
      assert.deepEqual(namesOfLast().filter(isChosen), set);
      assert.ok(Object.keys(kept).every((name) => namesOfLast().includes(name)));
      const own = { authorization: "Bearer sk-own-of-the-caller" };
      await call(gateway, undefined, { ...chosen, ...own });
      assert.ok(namesOfLast().filter(isChosen).length >= 12, "its own key crosses with them");
      await gateway.close();
    }
    under = undefined;
  });

  it("is removed from answers that repeat it, and their other bytes stay", async () => {
    const gateway = await start();
    const hidden = "*".repeat(HELD.length);
    for (const status of [200, 401, 500]) {
      answering = (response, { headers }) => {
        const key = String(headers.authorization);
        const body = Buffer.from(`{"error":"Incorrect key: ${key}","other":"${key}"}`);
        response.writeHead(status, {
          "content-type": "application/json",
          "x-request-id": key,
          "openai-organization": "kept",
          "x-ratelimit-echo": `a ${key}`,
          "content-length": body.length,
        });
        response.end(body);
      };
      const answer = await call(gateway);
      assert.equal(
        answer.body,
        `{"error":"Incorrect key: Bearer ${hidden}","other":"Bearer ${hidden}"}`,
      );
      assert.equal(answer.status, status);
      assert.equal(answer.headers["openai-organization"], "kept");
      assert.equal(JSON.stringify(answer.headers).includes("canary"), false);
    }
  });

  it("is removed from streams, long and packed answers, also if it is divided", async () => {
    const gateway = await start();
    const hidden = "*".repeat(HELD.length);
    const long = "held-canary-".repeat(20_000);
    const pieces = [`data: hel${HELD.slice(0, 4)}`, HELD.slice(4, 9), `${HELD.slice(9)} held-`];
    answering = async (response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      for (const piece of pieces) {
        response.write(piece);
        await new Promise((resolve) => setImmediate(resolve));
      }
      response.end("\n\ndata: [DONE]\n\nheld");
    };
    const stream = await call(gateway);
    assert.match(stream.body, new RegExp(`hel\\*{${HELD.length}} held-`));
    assert.ok(stream.body.includes("[DONE]\n\nheld"), stream.body);
    for (const isPacked of [false, true]) {
      answering = (response) => {
        const body = Buffer.from(`{"a":"${long}${HELD}","b":"${HELD}"}`);
        response.writeHead(200, {
          "content-type": "application/json",
          ...(isPacked && { "content-encoding": "gzip" }),
        });
        response.end(isPacked ? gzipSync(body) : body);
      };
      const { body } = await call(gateway);
      const whole = body.replace(/(?:^|\r\n)[0-9a-f]+\r\n/g, ""); // of chunks
      assert.equal(whole.includes(HELD), false);
      assert.ok(whole.includes(`${hidden}","b":"${hidden}"}`));
      assert.equal(whole.split("held-canary-").length - 1, 20_000);
    }
  });

  it("is read again while calls are refused, however many there are", async () => {
    let key = HELD;
    const gateway = await start(() => key, COMMAND);
    accept(NEXT);
    assert.equal((await call(gateway)).status, 401);
    for (let calls = 0; calls < 3; calls++) {
      passedMs += 1600;
      assert.equal((await call(gateway)).status, 401);
    }
    key = NEXT;
    passedMs += 1600; // 6.4 s after the first refusal
    assert.equal((await call(gateway)).status, 200);
  });

  it("is read again for a call after a refused one, if its source is a file", async () => {
    let key = HELD;
    let readings = 0;
    const gateway = await start(() => {
      readings++;
      return key;
    });
    accept(NEXT);
    assert.equal((await call(gateway)).status, 401);
    key = NEXT;
    const answers = await Promise.all(Array.from({ length: 8 }, () => call(gateway)));
    assert.deepEqual(answers.map(({ status }) => status), Array(8).fill(200));
    assert.equal(readings, 3, "they share a reading");
  });

  it("is read again if it was replaced during a reading", async () => {
    let key = HELD;
    let release = (): void => {};
    let readings = 0;
    const gateway = await start(async () => {
      const read = key;
      if (++readings === 2) await new Promise<void>((resolve) => release = resolve);
      return read;
    });
    await call(gateway);
    passedMs += 3_700_000;
    await call(gateway); // begins a reading of the old key
    key = NEXT;
    accept(NEXT);
    const calls = Array.from({ length: 4 }, () => call(gateway));
    await until(() => provider.calls.length === 6, "the calls are refused");
    release();
    for (const answer of await Promise.all(calls)) assert.equal(answer.status, 200);
    assert.equal(readings, 3);
  });

  it("that differs at each reading is not read for each refused call", async () => {
    let readings = 0;
    const gateway = await start(() => `held-canary-${++readings}`, COMMAND);
    accept();
    for (let calls = 0; calls < 5; calls++) assert.equal((await call(gateway)).status, 401);
    assert.equal(readings, 2);
    assert.deepEqual(sent().slice(0, 3), [HELD, NEXT, NEXT]);
  });

  it("whose source is silent refuses calls in time", async () => {
    const gateway = await start(() => new Promise(() => {}));
    assert.equal(codeOf(await call(gateway)), "503 upstream_key_unavailable");
    assert.equal(provider.calls.length, 0);
    const { error } = await gateway.settled();
    assert.match(String(error), /Cannot read a held key: no answer within 10 s/);
  });

  it("whose source is silent is the payer of a call whose caller leaves", async () => {
    let readings = 0;
    const gateway = await start(() => (readings++, new Promise(() => {})));
    const leaving = new AbortController();
    const left = fetch(`${gateway.a}/v1/chat/completions`, {
      method: "POST",
      headers: { "gateway-auth": `Bearer ${KEY}`, "content-type": "application/json" },
      body: GOOD_BODY,
      signal: leaving.signal,
    }).catch(() => {});
    await until(() => readings === 1, "the key is read");
    leaving.abort();
    await left;
    const { outcome, usesHeldKey } = await gateway.settled();
    assert.deepEqual([outcome, usesHeldKey], ["client_closed", true]);
  });

  it("whose source is silent passes on a refusal of the provider in time", async () => {
    let readings = 0;
    const gateway = await start(() => ++readings === 1 ? HELD : new Promise(() => {}), COMMAND);
    accept(NEXT);
    const answers = await Promise.all([call(gateway), call(gateway)]);
    assert.deepEqual(answers.map(codeOf), Array(2).fill("401 invalid_api_key"));
    assert.equal(readings, 2);
  });
});
