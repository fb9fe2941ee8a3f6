/** Headers that cross the gateway in each direction, and the effects of an odd upstream. */
// runtimes: all, workers
import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import { afterEach, describe } from "@std/testing/bdd";
import { systemClock } from "../../src/exchange/clock.ts";
import { runtimeParts } from "../../src/serve/compose.ts";
import type { Transport } from "../../src/upstream/transport.ts";
import { it } from "../support/cases.ts";
import {
  type Answering,
  COMPLETION,
  type Provider,
  startProvider,
  stream,
} from "../support/provider.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { isWorkers } from "../support/runtimes.ts";
import { callRaw, startTcpPeer } from "../support/tcp_peer.ts";

describe("headers", () => {
  let provider: Pick<Provider, "url" | "close">;
  let calls: Provider["calls"] = [];
  let under: UnderTest;
  const start = async (
    answering: Answering,
    settings: Record<string, unknown> = {},
    config = {},
  ) => {
    const started = await startProvider(answering);
    ({ calls } = started);
    provider = started;
    under = await startUnderTest({ upstreams: { a: provider.url }, provider: settings, config });
  };
  const call = (headers: Record<string, string> = {}, body = GOOD_BODY) =>
    callRaw(under.a, { headers: { ...under.headers, ...headers }, body });
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  it("of the caller are forwarded only if they are listed", async () => {
    await start((response) => response.end(COMPLETION));
    await call({
      "openai-organization": "org-1",
      "x-stainless-retry-count": "1",
      "http-referer": "https://app.example",
      "idempotency-key": "k-1",
      "user-agent": "OpenAI/JS 6.49.0",
      "cookie": "session=1",
      "forwarded": "for=1.2.3.4",
      "x-forwarded-host": "evil.example",
      "gateway-extra": "1",
      "proxy-authorization": "Basic x",
      "x-secret": "1",
      "connection": "close, x-stainless-lang",
      "te": "trailers",
      "accept-encoding": "gzip, br",
    });
    const headers: Readonly<Record<string, unknown>> = calls[0]?.headers ?? {};
    assert.equal(headers["openai-organization"], "org-1");
    assert.equal(headers["x-stainless-retry-count"], "1");
    assert.equal(headers["http-referer"], "https://app.example");
    assert.equal(headers["idempotency-key"], "k-1");
    assert.equal(headers["user-agent"], "OpenAI/JS 6.49.0");
    assert.equal(headers["accept-encoding"], "identity");
    const rest = Object.keys(headers).filter((name) =>
      /cookie|forward|gateway|proxy|secret|^te$/.test(name)
    );
    assert.deepEqual(rest, []);
    if (!isWorkers) assert.equal(headers["x-stainless-lang"], undefined, "Connection named it");
  });

  it("of families that providers define pass in both directions", async () => {
    const up = {
      "anthropic-version": "2023-06-01",
      "anthropic-beta": "a,b",
      "x-openrouter-title": "app",
      "x-stainless-poll-helper": "true",
      "x-dashscope-async": "enable",
      "openai-safety-identifier": "user-1",
      "x-grok-conv-id": "c-1",
      "chatgpt-account-id": "account-1",
      "helicone-property-app": "x",
    };
    const back = {
      "x-groq-region": "fra",
      "cf-ray": "8abc-FRA",
      "azureml-model-session": "d1",
      "request-id": "req_1",
      "anthropic-ratelimit-requests-limit": "50",
      "content-disposition": 'attachment; filename="a.jsonl"',
    };
    await start((response) =>
      void response.writeHead(200, { "content-type": "application/json", ...back }).end(COMPLETION)
    );
    const { headers } = await call({ ...up, "x-api-key": "k", "x-goog-api-key": "k" });
    const sent: Readonly<Record<string, unknown>> = calls[0]?.headers ?? {};
    for (const [name, value] of Object.entries(up)) assert.equal(sent[name], value, name);
    for (const [name, value] of Object.entries(back)) assert.equal(headers[name], value, name);
  });

  it("of coding agents pass in both directions by family, without credentials", async () => {
    const families = (
      "x-claude-code-session-id x-claude-code-agent-id x-claude-1p-request-class x-app " +
      "x-codex-turn-state x-codex-turn-metadata x-codex-not-known-yet originator thread-id " +
      "session-id x-session-affinity x-session-not-known-yet x-openai-subagent " +
      "x-opencode-session x-models-etag x-reasoning-included"
    ).split(" ");
    const withheld = (
      "x-openai-api-key x-codex-authorization x-claude-code-token x-session-cookie " +
      "x-opencode-secret x-openwebui-user-email x-openwebui-chat-id x-apple"
    ).split(" ");
    const all = Object.fromEntries([...families, ...withheld].map((name) => [name, `of ${name}`]));
    await start((response) =>
      void response.writeHead(200, { "content-type": "application/json", ...all }).end(COMPLETION)
    );
    const { headers } = await call(all);
    const sent: Readonly<Record<string, unknown>> = calls[0]?.headers ?? {};
    for (const name of families) {
      assert.deepEqual([sent[name], headers[name]], [`of ${name}`, `of ${name}`], name);
    }
    for (const name of withheld) {
      assert.deepEqual([sent[name], headers[name]], [undefined, undefined], name);
    }
  });

  it("pass as the provider's configuration says, and can be set by it", async () => {
    const answer = {
      "content-type": "application/json",
      "x-their-a": "1",
      "x-other": "2",
      "set-cookie": "a=1",
    };
    await start((response) => void response.writeHead(200, answer).end(COMPLETION), {
      headers: {
        pass: ["X-My-*"],
        answer: ["x-their-*"],
        set: { "X-Team": "blue", "user-agent": "ours" },
      },
    });
    const { headers } = await call({
      "x-my-a": "1",
      "x-mine": "2",
      "x-team": "red",
      "user-agent": "theirs",
    });
    const sent: Readonly<Record<string, unknown>> = calls[0]?.headers ?? {};
    assert.deepEqual(
      ["x-my-a", "x-mine", "x-team", "user-agent"].map((name) => sent[name]),
      ["1", undefined, "blue", "ours"],
    );
    assert.deepEqual(
      ["x-their-a", "x-other", "set-cookie"].map((name) => headers[name]),
      ["1", undefined, undefined],
    );
  });

  it("on the barred list never pass, even if the configuration lets everything pass", async () => {
    const secret = "a-secret-of-one-side";
    const answer = { "content-type": "application/json", "x-any": "1" };
    const barred = [
      "set-cookie",
      "access-control-allow-origin",
      "alt-svc",
      "location",
      "sallyport-error",
      "server-timing",
    ];
    await start(
      (response) =>
        void response.writeHead(200, {
          ...answer,
          ...Object.fromEntries(barred.map((name) => [name, secret])),
          ...(!isWorkers && { "connection": "close, x-nominated", "x-nominated": secret }),
        })
          .end(COMPLETION),
      { headers: { pass: ["*"], answer: ["*"] } },
    );
    const dropped = (
      "cookie forwarded x-forwarded-for x-real-ip true-client-ip cf-connecting-ip gateway-extra proxy-authorization " +
      "x-api-key api-key x-goog-api-key x-http-method-override x-nominated te"
    ).split(" ");
    const { headers } = await call({
      ...Object.fromEntries(dropped.map((name) => [name, secret])),
      "x-any": "1",
      "connection": isWorkers ? "close" : "close, x-nominated",
      ...(isWorkers && { "x-nominated": "" }),
    });
    const sent: Readonly<Record<string, unknown>> = calls[0]?.headers ?? {};
    assert.equal(sent["x-any"], "1");
    const crossed = Object.entries(sent).filter(([, value]) => String(value).includes(secret));
    assert.deepEqual(crossed.map(([name]) => name), []);
    assert.ok(!JSON.stringify(sent).includes(under.key));
    assert.equal(headers["x-any"], "1");
    const answered = Object.entries(headers).filter(([, value]) => String(value).includes(secret));
    assert.deepEqual(answered.map(([name]) => name), []);
    assert.equal(headers["cache-control"], "no-store");
  });

  it("with a gateway key in them do not pass", async () => {
    await start((response) => response.end(COMPLETION), { headers: { pass: ["x-my-*"] } });
    const wrong = ["x-title", "helicone-auth", "x-my-key", "user-agent"];
    const { status } = await call(
      Object.fromEntries(wrong.map((name) => [name, `Bearer ${under.key}`])),
    );
    assert.equal(status, 200);
    assert.equal(calls.length, 1);
    assert.ok(!JSON.stringify(calls[0]?.headers).includes(under.key));
  });

  it("that were withheld are named in the debug log, without their values", async () => {
    const value = "a-value-that-nobody-tells";
    const answer = {
      "content-type": "application/json",
      "x-odd-answer": value,
      "set-cookie": value,
    };
    await start(
      (response) => void response.writeHead(200, answer).end(COMPLETION),
      { headers: { pass: ["x-my-*"] } },
      { log: "debug" },
    );
    await call({
      "x-odd-request": value,
      "cookie": value,
      "x-my-a": value,
      "openai-project": "p",
      "x-api-key": value,
    });
    const { withheld } = await under.settled();
    for (const name of ["x-odd-request", "cookie", "x-api-key"]) {
      assert.ok(withheld?.request?.includes(name), name);
    }
    for (const name of ["x-odd-answer", "set-cookie"]) {
      assert.ok(withheld?.response?.includes(name), name);
    }
    const crossing = [
      "x-my-a",
      "openai-project",
      "content-type",
      "authorization",
      "gateway-auth",
      "host",
      "connection",
    ];
    const wrong = [...withheld?.request ?? [], ...withheld?.response ?? []].filter((name) =>
      crossing.includes(name)
    );
    assert.deepEqual(wrong, []);
    const told = await under.told();
    assert.match(told, /"withheld":\{"request":\[[^\]]*"x-odd-request"/);
    assert.ok(!told.includes(value));
    await call({}, "{}");
    assert.equal((await under.settled(2)).withheld, undefined, "nothing was sent");
  });

  it("that were withheld are not named in the log if their name contains the caller's key", async () => {
    const key = "an-Own-Key-of-a-team";
    await start((response) => response.end(COMPLETION), {}, {
      log: "debug",
      keys: [{ id: "own", key }],
    });
    assert.equal(
      (await call({ "gateway-auth": `Bearer ${key}`, [`x-odd-${key}`]: "1", "x-odd-request": "1" }))
        .status,
      200,
    );
    assert.ok((await under.settled()).withheld?.request?.includes("x-odd-request"));
    assert.ok(!(await under.told()).toLowerCase().includes(key.toLowerCase()));
  });

  it("that were withheld are not named unless debugging is on", async () => {
    await start((response) => response.end(COMPLETION));
    await call({ "x-odd-request": "1" });
    assert.equal((await under.settled()).withheld, undefined);
    assert.doesNotMatch(await under.told(), /withheld|x-odd-request/);
  });

  it("of the provider are returned only if they are listed", async () => {
    await start((response) => {
      response.writeHead(200, {
        "content-type": "application/json",
        "x-request-id": "req_upstream",
        "x-ratelimit-remaining-tokens": "99",
        "openai-processing-ms": "12",
        "set-cookie": ["__cf_bm=1", "b=2"],
        "server": "cloudflare",
        "strict-transport-security": "max-age=1",
        "access-control-allow-origin": "*",
        "www-authenticate": "Bearer",
        "alt-svc": "h3",
      });
      response.end(COMPLETION);
    });
    const { headers } = await call();
    assert.equal(headers["x-upstream-request-id"], "req_upstream");
    assert.equal(headers["x-request-id"], (await under.settled()).id);
    assert.equal(headers["x-ratelimit-remaining-tokens"], "99");
    assert.equal(headers["openai-processing-ms"], "12");
    assert.equal(headers["cache-control"], "no-store");
    assert.equal(headers["x-content-type-options"], "nosniff");
    for (
      const name of [
        "set-cookie",
        "strict-transport-security",
        "access-control-allow-origin",
        "www-authenticate",
        "alt-svc",
      ]
    ) {
      assert.equal(headers[name], undefined, name);
    }
    assert.notEqual(headers.server, "cloudflare");
  });

  it.notOn(
    "workers",
    "a Worker accepts no parts from a test",
    "tell in Server-Timing what the gateway took and what the provider, until the answer's header",
    async () => {
      const clock = { ...systemClock, monotonic: () => monotonicMs };
      let monotonicMs = 1000;
      const transport: Transport = {
        send: (upstreamCall) => {
          monotonicMs += 200.126;
          return runtimeParts().transport.send(upstreamCall);
        },
      };
      provider = await startProvider((response) => {
        response.writeHead(200, {
          "content-type": "text/event-stream",
          "server-timing": "gateway;dur=1, db;dur=9",
        });
        response.end(stream("Hello"));
      });
      let isLate = false;
      const digest = (text: string) => {
        monotonicMs += isLate ? 3 : 1.5;
        return runtimeParts().digest(text);
      };
      under = await startUnderTest({
        upstreams: { a: provider.url },
        parts: { clock, transport, digest },
      });
      const timing = async (sent: string, headers: Record<string, string> = {}) =>
        (await call(headers, sent)).headers["server-timing"];
      assert.equal(await timing(STREAM_BODY), "gateway;dur=1.5, upstream;dur=200.13");
      isLate = true;
      assert.equal(await timing(STREAM_BODY), "gateway;dur=3, upstream;dur=200.13");
      assert.equal(await timing("{}"), "gateway;dur=3");
      assert.equal(await timing(GOOD_BODY, { "gateway-auth": "Basic wrong" }), "gateway;dur=0");
    },
  );

  it("of a gzip answer are removed with the coding, plain and streamed [unasked coding]", async () => {
    await start((response, { body }) => {
      const isStream = body.toString().includes('"stream":true');
      response.writeHead(200, {
        "content-type": isStream ? "text/event-stream" : "application/json",
        "content-encoding": "gzip",
      });
      response.end(gzipSync(isStream ? stream("Hello") : COMPLETION));
    });
    for (
      const [sent, expected] of [[GOOD_BODY, COMPLETION], [STREAM_BODY, stream("Hello")]] as const
    ) {
      const { status, headers, body } = await call({}, sent);
      assert.equal(status, 200);
      assert.equal(headers["content-encoding"], undefined);
      assert.equal(body, expected);
    }
  });

  it("with an unknown coding make the answer unusable, and the error names the coding [unasked coding] [packed answers]", async () => {
    let coding = "gzip, gzip";
    await start((response) => {
      response.writeHead(200, { "content-type": "application/json", "content-encoding": coding });
      response.end(gzipSync(gzipSync(COMPLETION)));
    });
    const refused = async () => {
      const { status, headers, body } = await call();
      assert.equal(status, 502);
      assert.equal(headers["x-should-retry"], "false", "the call was answered, and is billed");
      const { error } = JSON.parse(body);
      assert.equal(error.code, "upstream_unsupported_encoding");
      return error.message;
    };
    assert.match(await refused(), /: gzip, gzip$/);
    coding = "compress";
    assert.match(await refused(), /: compress$/);
    coding = "sk-a-secret-that-came-back-in-the-wrong-place";
    assert.match(await refused(), /not supported here$/);
  });

  it("of a redirect are neither followed nor returned [redirect]", async () => {
    const elsewhere = await startProvider();
    await start((response) =>
      response.writeHead(307, { location: `${elsewhere.url}/chat/completions` }).end()
    );
    const { status, headers, body } = await call();
    assert.equal(status, 502);
    assert.equal(headers.location, undefined);
    assert.match(body, /upstream_bad_response/);
    assert.equal(elsewhere.calls.length, 0);
    await elsewhere.close();
  });

  it("that are not HTTP answer 502 and do not affect other calls [unreadable HTTP]", async () => {
    // A Worker's `fetch` does not distinguish an unreadable answer from an unreachable host.
    const unreadable = isWorkers ? "upstream_unreachable" : "upstream_bad_response";
    const answers: [bytes: string, code: string][] = [
      ["garbage\r\n\r\n", unreadable],
      ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc", unreadable],
      [`HTTP/1.1 200 OK\r\nX-Large: ${"x".repeat(200_000)}\r\n\r\n`, unreadable],
      ["HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n", "upstream_bad_response"],
      ["", "upstream_unreachable"],
    ];
    let next = 0;
    provider = await startTcpPeer((socket) => {
      socket.end(answers[next++]?.[0] ?? "");
    });
    under = await startUnderTest({ upstreams: { a: provider.url } });
    for (const [index, [, code]] of answers.entries()) {
      const { status, headers } = await call();
      assert.equal(status, 502, `answer ${index}`);
      assert.equal(headers["sallyport-error"], code, `answer ${index}`);
      assert.equal(headers["x-large"], undefined);
    }
  });
});
