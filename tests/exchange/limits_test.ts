/** Limits in requests to the gateway: counts, charges, refusals and reports. */
// runtimes: bun, node, workers
import assert from "node:assert/strict";
import { afterEach, beforeEach, describe } from "@std/testing/bdd";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { createInlineKeyStore } from "../../src/keys/key_store_memory.ts";
import { runtimeParts } from "../../src/serve/compose.ts";
import { it } from "../support/cases.ts";
import { chunk, type Provider, startProvider, stream } from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { callRaw, openRaw, type RawCall, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const OWN = "own-key-of-a-team";
const usageChunk = (usage: unknown, more = {}) =>
  `data: ${JSON.stringify({ choices: [], usage, ...more })}\n\n`;
const DONE = "data: [DONE]\n\n";
const whole = (content: string, usage: unknown) =>
  JSON.stringify({ choices: [{ index: 0, message: { content }, finish_reason: "stop" }], usage });
const tokens = (total: unknown) => ({
  prompt_tokens: 3,
  completion_tokens: 4,
  total_tokens: total,
});

/** A call that costs no tokens, so that its answer shows the remaining amounts. */
const MODELS: RawCall = { method: "GET", path: "/v1/models", body: "" };

describe("limits", () => {
  let provider: Provider;
  let under: UnderTest | undefined;
  let answer: { type: string; body: string };
  beforeEach(async () => {
    answer = { type: "application/json", body: whole("Hello", tokens(7)) };
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": answer.type }).end(answer.body);
    });
  });
  afterEach(async () => {
    await under?.close();
    await provider.close();
  });

  const start = async (
    limits: unknown,
    config: Record<string, unknown> = {},
    forProvider?: unknown,
  ) =>
    under = await startUnderTest({
      upstreams: { a: provider.url },
      provider: forProvider === undefined ? {} : { limits: forProvider },
      config: {
        keys: [{ id: "team", key: OWN, limits }, { id: "other", key: `${OWN}-2` }],
        ...config,
      },
    });
  const call = (gateway: UnderTest, more: RawCall = {}) =>
    callRaw(gateway.a, {
      body: GOOD_BODY,
      ...more,
      headers: { ...gateway.headers, "gateway-auth": `Bearer ${OWN}`, ...more.headers },
    });
  const codeOf = ({ status, body }: { status: number; body: string }) =>
    status === 200 ? "ok" : JSON.parse(body).error.code;

  it("accepts exactly as many requests as the window allows, and states when the next one begins", async () => {
    const gateway = await start({ requests: "3/h" });
    const answers = await Promise.all(Array.from({ length: 8 }, () => call(gateway)));
    assert.deepEqual(answers.map(codeOf).sort(), [
      ...Array(3).fill("ok"),
      ...Array(5).fill("rate_limit_exceeded"),
    ]);
    assert.equal(provider.calls.length, 3);
    const refused = answers.find(({ status }) => status === 429);
    assert.ok(refused);
    assert.equal(refused.headers["ratelimit-policy"], '"requests";q=3;w=3600');
    assert.match(refused.headers.ratelimit ?? "", /^"requests";r=0;t=3(?:600|5\d\d)$/);
    const [seconds, ms] = [refused.headers["retry-after"], refused.headers["retry-after-ms"]].map(
      Number,
    );
    assert.ok(
      seconds !== undefined && ms !== undefined && seconds > 3500 && seconds <= 3600 &&
        seconds * 1000 >= ms,
    );
    assert.match(JSON.parse(refused.body).error.message, /3\/h requests for this gateway key/);
    assert.equal(refused.headers["x-should-retry"], "true");
  });

  it("reports the remaining amounts with every answer, and keeps the provider's own headers", async () => {
    const gateway = await start({
      requests: "10/min",
      tokens: "1k/day",
      concurrency: 5,
      budget: "5k/month",
    });
    await call(gateway);
    const { headers } = await call(gateway, { body: GOOD_BODY.replace("{", '{"max_tokens":100,') });
    // 100 tokens of answer are reserved, plus the input tokens that were stated for a similar body.
    assert.match(
      headers.ratelimit ?? "",
      /^"requests";r=8;t=\d+, "tokens";r=8[5-9]\d;t=\d+, "budget";r=48[5-9]\d;t=\d+, "concurrency";r=4$/,
    );
    const after = await call(gateway, MODELS);
    assert.match(
      after.headers.ratelimit ?? "",
      /^"requests";r=7;t=\d+, "tokens";r=986;t=\d+, "budget";r=4986;t=\d+, "concurrency";r=4$/,
    );
    assert.equal(
      headers["ratelimit-policy"],
      '"requests";q=10;w=60, "tokens";q=1000;qu="tokens";w=86400, "budget";q=5000;qu="tokens", ' +
        '"concurrency";q=5;qu="concurrent-requests"',
    );
    const other = await call(gateway, { headers: { "gateway-auth": `Bearer ${OWN}-2` } });
    assert.equal(other.headers.ratelimit, undefined);
  });

  const STATED: Readonly<Record<string, [type: string, body: string, total: number | undefined]>> =
    {
      "a plain answer": ["application/json", whole("Hello", tokens(7)), 7],
      "a plain answer of two parts only": [
        "application/json",
        whole("x", { prompt_tokens: 2, completion_tokens: 3 }),
        5,
      ],
      "a plain answer of 300 kB": ["application/json", whole("x".repeat(300_000), tokens(9)), 9],
      "a text that looks like it": [
        "application/json",
        whole('"usage":{"total_tokens":99}', undefined),
        undefined,
      ],
      "a long text that looks like it": [
        "application/json",
        whole(`${"x".repeat(200_000)}"usage":{"total_tokens":99}`, undefined),
        undefined,
      ],
      "a stream": [
        "text/event-stream",
        `${stream("Hi").replace(DONE, "")}${usageChunk(tokens(11))}${DONE}`,
        11,
      ],
      "a stream that states it at every chunk": [
        "text/event-stream",
        `${usageChunk(tokens(11))}${usageChunk(tokens(12))}${chunk(null, "stop")}${
          usageChunk(tokens(13))
        }${DONE}`,
        13,
      ],
      "a stream with null": [
        "text/event-stream",
        `${usageChunk(null)}${chunk(null, "stop")}${DONE}`,
        undefined,
      ],
      "a stream of Groq's": [
        "text/event-stream",
        `${chunk(null, "stop")}${usageChunk(undefined, { x_groq: { usage: tokens(12) } })}${DONE}`,
        12,
      ],
      "numbers that can't be": [
        "application/json",
        whole("x", { total_tokens: -5, prompt_tokens: 1e300 }),
        undefined,
      ],
      "no JSON": ["application/json", "nonsense", undefined],
    };
  for (const [name, [type, body, total]] of Object.entries(STATED)) {
    it(`charges the usage that the provider states in ${name}: ${total ?? "nothing, so an estimate"}`, async () => {
      const gateway = await start({ budget: "1k/day" });
      answer = { type, body };
      await call(gateway, { body: type === "application/json" ? GOOD_BODY : STREAM_BODY });
      const { usage, isEstimated } = await gateway.settled();
      assert.equal(isEstimated, total === undefined ? true : undefined);
      if (total !== undefined) assert.equal(usage?.total, total);
      const { headers } = await call(gateway, MODELS);
      assert.match(
        headers.ratelimit ?? "",
        new RegExp(`"budget";r=${Math.max(0, 1000 - (usage?.total ?? 0))};t=`),
      );
    });
  }

  const BACKGROUND: Readonly<Record<string, [type: string, body: string]>> = {
    "is still to be made": [
      "application/json",
      '{"object":"response","status":"queued","output":[],"usage":null}',
    ],
    "breaks off": [
      "text/event-stream",
      'event: response.created\ndata: {"type":"response.created","sequence_number":0,"response":{"status":"queued"}}\n\n',
    ],
  };
  for (const [name, [type, body]] of Object.entries(BACKGROUND)) {
    it(`charges the expected usage of a background response that ${name}: the provider continues with it`, async () => {
      const gateway = await start({ budget: "1k/day" });
      answer = { type, body };
      const stream = type === "text/event-stream";
      const asked = {
        model: "test-1",
        input: "Hi",
        background: true,
        max_output_tokens: 300,
        stream,
      };
      await call(gateway, { path: "/v1/responses", body: JSON.stringify(asked) });
      const { usage, isEstimated } = await gateway.settled();
      assert.deepEqual([isEstimated, usage?.output], [true, 300]);
      const { headers } = await call(gateway, MODELS);
      assert.match(
        headers.ratelimit ?? "",
        new RegExp(`"budget";r=${1000 - (usage?.total ?? 0)};t=`),
      );
    });
  }

  it("refuses calls that need more tokens than the window has, and no calls before that", async () => {
    const gateway = await start({ tokens: "300/h" });
    const asking = (max: number) => ({ body: GOOD_BODY.replace("{", `{"max_tokens":${max},`) });
    const codes: string[] = [];
    for (const max of [200, 200, 1000, 200]) {
      codes.push(codeOf(await call(gateway, asking(max))));
      await gateway.settled(codes.length);
    }
    assert.deepEqual(codes, ["ok", "ok", "rate_limit_exceeded", "ok"]);
    assert.equal(gateway.records[2]?.limit, "tokens");
    assert.equal(provider.calls.length, 3);
  });

  it("counts an exchange as concurrent as long as it is open, however it ends", async () => {
    const gateway = await start({ concurrency: 2 });
    await provider.close();
    provider = await startProvider((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("Hel"));
    }, Number(new URL(provider.url).port));
    const headers = { ...gateway.headers, "gateway-auth": `Bearer ${OWN}` };
    for (let round = 1; round <= 3; round++) {
      const held = [1, 2].map(() =>
        openRaw(gateway.a, toRawRequest(gateway.a, { headers, body: STREAM_BODY }))
      );
      await until(() => gateway.gateway.openExchanges === 2, "both places are taken");
      assert.equal(
        codeOf(await call(gateway, { body: STREAM_BODY })),
        "concurrency_limit_exceeded",
      );
      // Workerd forgets an exchange whose caller left at the very moment when its answer began.
      await until(
        () => held.every(({ received }) => received().includes("Hel")),
        "both streams have begun",
      );
      for (const { socket } of held) socket.destroy();
      await until(() => gateway.gateway.openExchanges === 0, "both places are free");
    }
  });

  const BEFORE: Readonly<Record<string, Record<string, string>>> = {
    "with a budget": {},
    "with an idempotency key": { "idempotency-key": "one" },
    "of a library that tries again": { "x-stainless-retry-count": "1" },
  };
  for (const [name, sent] of Object.entries(BEFORE)) {
    it(`reserves requests and concurrency before the body of a call ${name}`, async () => {
      const durable = { retries: true };
      const limits = { requests: "3/h", concurrency: 2, budget: "1M/day" };
      const gateway = await start(limits, { keys: [{ id: "team", key: OWN, limits, durable }] });
      const headers = {
        ...gateway.headers,
        ...sent,
        "gateway-auth": `Bearer ${OWN}`,
        "content-length": "900",
      };
      const upload = () => openRaw(gateway.a, toRawRequest(gateway.a, { headers, body: "{" }));
      const first = upload();
      const second = upload();
      await until(() => gateway.gateway.openExchanges === 2, "both bodies begin");
      const atOnce = upload();
      await until(
        () => atOnce.received().includes("concurrency_limit_exceeded"),
        "it is refused without its body",
      );
      for (const { socket } of [first, atOnce]) socket.destroy();
      await until(() => gateway.gateway.openExchanges === 1, "there is a place again");
      const third = upload();
      await until(() => gateway.gateway.openExchanges === 2, "its body begins");
      const fourth = upload();
      await until(
        () => fourth.received().includes("rate_limit_exceeded"),
        "all requests are counted",
      );
      for (const { socket } of [second, third, fourth]) socket.destroy();
      assert.equal(provider.calls.length, 0);
    });
  }

  const SHARED: Readonly<Record<string, [path: string, limits: Record<string, unknown>]>> = {
    "of a chat": ["/v1/chat/completions", { requests: "5/h", concurrency: 2 }],
    "of a chat, with a budget": ["/v1/chat/completions", {
      requests: "5/h",
      concurrency: 2,
      budget: "1M/day",
    }],
    "of a moderation": ["/v1/moderations", { requests: "5/h", concurrency: 2 }],
  };
  for (const [name, [path, shared]] of Object.entries(SHARED)) {
    it(`lets bodies ${name} that do not arrive use no limits of others`, async () => {
      const keys = [{ id: "slow", key: OWN, team: "both" }, {
        id: "other",
        key: `${OWN}-2`,
        team: "both",
      }];
      const gateway = await start(undefined, { keys, teams: { both: { limits: shared } } }, shared);
      const headers = {
        ...gateway.headers,
        ...{
          "gateway-auth": `Bearer ${OWN}`,
          "content-length": "900",
          "content-type": "application/json",
        },
      };
      const slow = [1, 2, 3].map(() =>
        openRaw(gateway.a, toRawRequest(gateway.a, { path, headers, body: "{" }))
      );
      await until(() => gateway.gateway.openExchanges === 3, "the bodies begin");
      const other = { headers: { "gateway-auth": `Bearer ${OWN}-2` } };
      const answered = await call(gateway, other);
      assert.equal(codeOf(answered), "ok");
      for (const { socket } of slow) socket.destroy();
      await until(() => gateway.gateway.openExchanges === 0, "the bodies are given up");
      const rest = (await call(gateway, other)).headers.ratelimit ?? "";
      for (const owner of ["team", "provider"]) {
        assert.match(rest, new RegExp(`"${owner}-requests";r=3;`));
        assert.match(rest, new RegExp(`"${owner}-concurrency";r=1`));
      }
    });
  }

  it("returns the request and the concurrency slot if tokens are refused, and reports all limits", async () => {
    const gateway = await start({ requests: "3/h", tokens: "300/h", concurrency: 1 }, {}, {
      requests: "9/h",
    });
    const asking = (max: number) =>
      call(gateway, { body: GOOD_BODY.replace("{", `{"max_tokens":${max},`) });
    assert.equal(codeOf(await asking(200)), "ok");
    await gateway.settled(1);
    const refused = await asking(1000);
    assert.equal(codeOf(refused), "rate_limit_exceeded");
    assert.match(refused.headers["ratelimit-policy"] ?? "", /"requests".*"tokens".*"concurrency"/);
    await gateway.settled(2);
    const left = await call(gateway);
    assert.equal(codeOf(left), "ok");
    assert.match(
      left.headers.ratelimit ?? "",
      /^"requests";r=1;t=\d+, "tokens";r=2\d\d;t=\d+, "concurrency";r=0, "provider-requests";r=7;t=\d+$/,
    );
  });

  it("shares a provider's limits between all keys, and uses none of a key's own when those are reached", async () => {
    const gateway = await start({ requests: "5/h" }, {}, { requests: "2/h" });
    const other = { headers: { "gateway-auth": `Bearer ${OWN}-2` } };
    assert.deepEqual([codeOf(await call(gateway)), codeOf(await call(gateway, other))], [
      "ok",
      "ok",
    ]);
    const refused = await call(gateway);
    assert.equal(codeOf(refused), "rate_limit_exceeded");
    assert.match(JSON.parse(refused.body).error.message, /2\/h requests for this provider/);
    assert.match(refused.headers.ratelimit ?? "", /"requests";r=4;t=\d+, "provider-requests";r=0/);
    assert.deepEqual(gateway.records.map(({ limit }) => limit), [
      undefined,
      undefined,
      "provider-requests",
    ]);
  });

  it("counts without refusing in observe mode, and records the refusals it would have made", async () => {
    const gateway = await start({ requests: "1/h", mode: "observe" });
    assert.equal(codeOf(await call(gateway)), "ok");
    const second = await call(gateway);
    assert.deepEqual([codeOf(second), second.headers.ratelimit?.slice(0, 15)], [
      "ok",
      '"requests";r=0;',
    ]);
    assert.deepEqual(gateway.records.map(({ observedLimit }) => observedLimit), [
      undefined,
      "requests",
    ]);
  });

  it("uses nothing for calls that are refused earlier", async () => {
    const gateway = await start({ requests: "1/h" });
    assert.equal(
      codeOf(await call(gateway, { headers: { authorization: undefined } })),
      "missing_upstream_key",
    );
    assert.equal(codeOf(await call(gateway, { path: "/v1/nothing" })), "not_found");
    assert.equal(codeOf(await call(gateway)), "ok");
  });

  it("stops a gateway key in the URL, the user or Authorization, and an upstream key in its place", async () => {
    const gateway = await start(undefined);
    const key = generateGatewayKey();
    const body = (fields: Record<string, unknown>) =>
      JSON.stringify({ ...JSON.parse(GOOD_BODY), ...fields });
    const codes = [
      await call(gateway, { path: `/v1/chat/completions?key=${key}` }),
      await call(gateway, { body: body({ user: key }) }),
      await call(gateway, { body: body({ safety_identifier: `team ${key}` }) }),
      await call(gateway, { headers: { authorization: `Bearer ${key}` } }),
      await call(gateway, { headers: { authorization: `Bearer x${key}` } }),
      await call(gateway, { headers: { "gateway-auth": "Bearer sk-proj-0123456789abcdef" } }),
      await call(gateway, { headers: { "gateway-auth": "Bearer gsk_0123456789abcdef" } }),
    ];
    assert.deepEqual(codes.map(codeOf), [
      ...Array(3).fill("gateway_key_misplaced"),
      ...Array(2).fill("gateway_key_in_authorization"),
      ...Array(2).fill("provider_key_in_gateway_auth"),
    ]);
    assert.equal(provider.calls.length, 0);
    for (const { body } of codes) {
      assert.ok(!body.includes(key) && !body.includes("0123456789abcdef"));
    }
    assert.equal(codeOf(await call(gateway, { body: body({ user: "gk_ of the team" }) })), "ok");
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "takes both secrets of a key while a rotation overlaps, and none of a disabled or revoked one",
    async () => {
      const { digest } = runtimeParts();
      const shown = [
        "new-secret-of-a-team",
        "old-secret-of-a-team",
        "late-secret-of-team",
        "gone-secret-of-team",
        "off-secret-of-a-team",
      ];
      const [fresh = "", old = "", late = "", gone = "", off = ""] = shown.map(digest);
      const keys = createInlineKeyStore([
        { id: "one", digest: fresh, previous: { digest: old, expiresAt: Date.now() + 60_000 } },
        {
          id: "two",
          digest: digest("x".repeat(20)),
          previous: { digest: late, expiresAt: Date.now() - 1 },
        },
        { id: "three", digest: gone, revokedAt: 1 },
        { id: "four", digest: off, disabled: true },
      ], digest);
      const gateway = under = await startUnderTest({
        upstreams: { a: provider.url },
        parts: { keys },
      });
      const codes = [];
      for (const key of shown) {
        codes.push(codeOf(await call(gateway, { headers: { "gateway-auth": `Bearer ${key}` } })));
      }
      assert.deepEqual(codes, ["ok", "ok", ...Array(3).fill("invalid_gateway_key")]);
      assert.deepEqual(gateway.records.slice(0, 2).map(({ keyId }) => keyId), ["one", "one"]);
    },
  );
});
