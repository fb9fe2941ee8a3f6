/** Pages in browsers: preflights, and the headers that a page needs to read an answer. */
// runtimes: all, workers
import assert from "node:assert/strict";
import { afterEach, describe } from "@std/testing/bdd";
import { ERRORS } from "../../src/errors/codes.ts";
import { it } from "../support/cases.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest } from "../support/gateway.ts";
import { COMPLETION, type Provider, startProvider, stream } from "../support/provider.ts";
import {
  callRaw,
  openRaw,
  parseAnswer,
  type RawAnswer,
  type RawCall,
  toRawRequest,
} from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";

const PAGE = "https://app.example.com";
const STRANGER = "https://evil.example";
const ORIGINS = [
  PAGE,
  "http://localhost:*",
  "http://[::1]:5173",
  "chrome-extension://abcdefghijklmnop",
];
const CORS = { origins: ORIGINS };
const OWN_KEY = "own-key-of-a-team";
const REQUESTED = "authorization,content-type,gateway-auth,x-stainless-lang";

describe("pages in browsers", () => {
  let provider: Provider;
  let under: UnderTest;
  const start = async (config: Record<string, unknown> = { cors: CORS }) => {
    // The answer of a provider that has its own CORS settings.
    provider = await startProvider((response, { body, path }) => {
      const isStream = body.includes('"stream":true');
      response.writeHead(path.endsWith("/models") ? 500 : 200, {
        "content-type": isStream ? "text/event-stream" : "application/json",
        "x-ratelimit-remaining-tokens": "99",
        "access-control-allow-origin": STRANGER,
        "access-control-allow-credentials": "true",
        "access-control-expose-headers": "x-secret",
      });
      response.end(isStream ? stream("Hello") : COMPLETION);
    });
    under = await startUnderTest({ upstreams: { a: provider.url }, config });
  };
  afterEach(async () => {
    await under.close();
    await provider.close();
  });

  const call = (change: RawCall = {}, origin: string | undefined = PAGE): Promise<RawAnswer> =>
    callRaw(under.a, {
      body: GOOD_BODY,
      ...change,
      headers: { ...under.headers, origin, ...change.headers },
    });
  const preflightOf = (
    origin: string | readonly string[] | undefined,
    headers: RawCall["headers"] = {},
  ): RawCall => ({
    method: "OPTIONS",
    headers: {
      origin,
      "access-control-request-method": "POST",
      "access-control-request-headers": REQUESTED,
      "content-length": undefined,
      ...headers,
    },
  });
  const preflight = (
    origin: string | readonly string[] | undefined = PAGE,
    headers: RawCall["headers"] = {},
  ) => callRaw(under.a, preflightOf(origin, headers));
  const corsNamesOf = ({ headers }: RawAnswer) =>
    Object.keys(headers).filter((name) => name.startsWith("access-control-")).sort();

  /** Checks that the page can read the answer and each header that the gateway added. */
  function assertReadable({ headers, status }: RawAnswer, origin = PAGE): void {
    assert.equal(headers["access-control-allow-origin"], origin, String(status));
    assert.equal(headers.vary, origin === "*" ? undefined : "origin");
    assert.equal(headers["access-control-allow-credentials"], undefined);
    const exposed = headers["access-control-expose-headers"]?.split(", ") ?? [];
    for (const name of ["x-request-id", "server-timing"]) assert.ok(exposed.includes(name), name);
    const told =
      /^(?:x-|ratelimit|retry-after|sallyport-|openai-|server-timing|www-authenticate|allow$)/;
    const hidden = Object.keys(headers).filter((name) =>
      told.test(name) && !exposed.includes(name)
    );
    assert.deepEqual(hidden, []);
    assert.ok(!exposed.includes("x-secret"));
  }

  it("keep the provider's `Vary`, with `Origin` added", async () => {
    for (
      const [theirs, expected] of [
        ["accept", "accept, origin"],
        ["accept,Origin", "accept,Origin"],
        ["*", "*"],
        [undefined, "origin"],
      ] as const
    ) {
      provider = await startProvider((response) => {
        if (theirs !== undefined) response.setHeader("vary", theirs);
        response.end(COMPLETION);
      });
      const settings = { headers: { answer: ["vary"] } };
      under = await startUnderTest({
        upstreams: { a: provider.url },
        provider: settings,
        config: { cors: CORS },
      });
      for (const origin of [PAGE, STRANGER]) {
        assert.equal((await call({}, origin)).headers.vary, expected, `${theirs}`);
      }
      await under.close();
      await provider.close();
    }
    await start();
  });

  function assertUnreadable(answer: RawAnswer): void {
    assert.deepEqual(corsNamesOf(answer), []);
  }

  it("of an allowed origin can send any header: a preflight needs no key, and is not an exchange", async () => {
    await start();
    const { status, headers, body } = await preflight();
    assert.equal(status, 204);
    assert.equal(body, "");
    assert.equal(headers["access-control-allow-origin"], PAGE);
    assert.equal(headers["access-control-allow-methods"], "GET, HEAD, POST, PUT, PATCH, DELETE");
    assert.equal(
      headers["access-control-allow-headers"],
      "authorization, content-type, gateway-auth, x-stainless-lang",
    );
    assert.equal(headers["access-control-max-age"], "600");
    assert.equal(
      headers.vary,
      "origin, access-control-request-method, access-control-request-headers",
    );
    assert.equal(headers["access-control-allow-credentials"], undefined);
    await call();
    await under.settled();
    assert.deepEqual(under.records.map(({ operation }) => operation), ["chat.completions"]);
    assert.equal(provider.calls.length, 1);
  });

  it("are allowed by exact origin, at any port, or all", async () => {
    await start();
    const allowed = async (origin: string) =>
      (await preflight(origin)).headers["access-control-allow-origin"];
    for (
      const origin of [
        ...ORIGINS.filter((each) => !each.endsWith("*")),
        "http://localhost",
        "http://localhost:3000",
      ]
    ) {
      assert.equal(await allowed(origin), origin);
    }
    for (
      const origin of [
        STRANGER,
        "null",
        "*",
        "http://localhost:*",
        "http://app.example.com",
        "https://app.example.com:8443",
        "https://app.example.com.evil.example",
        "https://APP.example.com",
        "http://[::1]:5174",
        "http://localhost.evil.example:3000",
        "http://localhost:3000/x",
        "http://localhost:",
      ]
    ) assert.equal(await allowed(origin), undefined, origin);
  });

  it("of any origin can call if all origins are allowed", async () => {
    await start({ cors: { origins: ["*"], maxAge: "1500ms" } });
    const { status, headers } = await preflight(STRANGER);
    assert.equal(status, 204);
    assert.equal(headers["access-control-allow-origin"], "*");
    assert.equal(headers["access-control-max-age"], "1");
    assertReadable(await call({}, "null"), "*");
    assertReadable(await call({}, undefined), "*");
  });

  it("of another origin are refused: the preflight refuses, and answers have no CORS headers", async () => {
    await start();
    for (const origin of [STRANGER, "null", [PAGE, PAGE], [PAGE, STRANGER]]) {
      const refused = await preflight(origin);
      const { status, message, type } = ERRORS.origin_not_allowed;
      assert.equal(refused.status, status);
      assert.deepEqual(JSON.parse(refused.body).error, {
        message,
        type,
        param: "Origin",
        code: "origin_not_allowed",
      });
      assert.equal(refused.headers["sallyport-error"], "origin_not_allowed");
      assert.match(refused.headers.vary ?? "", /^origin,/);
      assertUnreadable(refused);
    }
    // The caller can be a program. Then only its keys count.
    for (const origin of [STRANGER, undefined]) {
      const answered = await call({ headers: { origin } });
      assert.equal(answered.status, 200);
      assert.equal(answered.headers.vary, "origin");
      assertUnreadable(answered);
    }
    await under.settled(2);
    assert.equal(under.records.length, 2);
  });

  it("learn nothing from a preflight: its answer is the same for any host, path, method and key", async () => {
    await start();
    const withoutDate = ({ headers: { date: _, ...headers }, ...rest }: RawAnswer) => ({
      ...rest,
      headers,
    });
    const usual = withoutDate(await preflight());
    const others: RawCall[] = [
      preflightOf(PAGE, { host: "nobody.example" }),
      { ...preflightOf(PAGE), path: "/v1/nothing" },
      { ...preflightOf(PAGE), path: "/" },
      preflightOf(PAGE, { "access-control-request-method": "DELETE" }),
      preflightOf(PAGE, { "gateway-auth": "Bearer a-wrong-key-of-some-length" }),
      preflightOf(PAGE, { "gateway-auth": `Bearer ${under.key}`, authorization: "Bearer sk-1" }),
    ];
    for (const other of others) assert.deepEqual(withoutDate(await callRaw(under.a, other)), usual);
    assertReadable(await call({ headers: { host: "nobody.example" } }));
    assert.equal((await under.settled()).code, "unknown_host");
  });

  it("can read every answer: the provider's, plain and streamed, and each refusal of the gateway", async () => {
    await start({
      cors: CORS,
      keys: [{ id: "team", key: OWN_KEY, models: ["test-*"], limits: { requests: "2/h" } }],
    });
    const gatewayAuth = { "gateway-auth": `Bearer ${OWN_KEY}` };
    const plain = await call({ headers: gatewayAuth });
    assert.equal(plain.status, 200);
    assert.equal(plain.body, COMPLETION);
    const streamed = await call({ headers: gatewayAuth, body: STREAM_BODY });
    assert.equal(streamed.status, 200);
    assert.equal(streamed.body, stream("Hello"));
    const exposed = plain.headers["access-control-expose-headers"]?.split(", ") ?? [];
    for (
      const name of [
        "ratelimit",
        "ratelimit-policy",
        "x-ratelimit-remaining-tokens",
        "content-type",
      ]
    ) {
      assert.ok(exposed.includes(name), name);
    }
    const refusals: Readonly<Record<string, RawCall>> = {
      rate_limit_exceeded: { headers: gatewayAuth },
      missing_gateway_key: { headers: { "gateway-auth": undefined } },
      invalid_gateway_key: {},
      missing_upstream_key: { headers: { ...gatewayAuth, authorization: undefined } },
      not_found: { path: "/v1/nothing" },
      method_not_allowed: { method: "DELETE", body: "" },
      unknown_host: { headers: { host: "nobody.example" } },
    };
    const answers = [plain, streamed];
    for (const [code, change] of Object.entries(refusals)) {
      const refused = await call(change);
      assert.equal(refused.headers["sallyport-error"], code);
      assert.equal(JSON.parse(refused.body).error.code, code);
      answers.push(refused);
    }
    for (const answer of answers) assertReadable(answer);
    assert.ok(answers[2]?.headers["access-control-expose-headers"]?.includes("retry-after"));
  });

  it("can read an error of the provider, and a refusal of their body", async () => {
    await start();
    const failed = await call({
      method: "GET",
      path: "/v1/models",
      body: "",
      headers: { "content-type": undefined, "content-length": undefined },
    });
    assert.equal(failed.status, 500);
    assertReadable(failed);
    for (const body of ["{", '{"model":"m"}']) {
      const refused = await call({ body });
      assert.equal(refused.status, 400);
      assertReadable(refused);
    }
  });

  it("get a preflight answer from an overloaded gateway, and can read the refusal", async () => {
    await start({ cors: CORS, limits: { exchanges: 1 } });
    const held = openRaw(
      under.a,
      toRawRequest(under.a, { headers: { ...under.headers, "content-length": "100" }, body: "{" }),
    );
    await until(() => under.gateway.openExchanges === 1, "the one exchange is open");
    assert.equal((await preflight()).status, 204);
    const refused = await call();
    assert.equal(refused.headers["sallyport-error"], "gateway_overloaded");
    assertReadable(refused);
    held.socket.destroy();
    await under.settled(2);
  });

  it("send preflight and call on one connection, over http and over https", async () => {
    await start();
    const { socket, received } = openRaw(
      under.a,
      toRawRequest(under.a, preflightOf(PAGE, { connection: "keep-alive", "content-length": "0" })),
    );
    await until(() => received().includes("\r\n\r\n"), "an answer");
    assert.equal(parseAnswer(received()).status, 204);
    const first = received().length;
    socket.write(
      toRawRequest(under.a, { headers: { ...under.headers, origin: PAGE }, body: GOOD_BODY }),
      "latin1",
    );
    await until(() => received().slice(first).includes(COMPLETION), "a second answer");
    assertReadable(parseAnswer(received().slice(first)));
    socket.destroy();
    const { headers, status } = await fetch(`${under.b}/v1/chat/completions`, {
      method: "OPTIONS",
      headers: { origin: PAGE, "access-control-request-method": "POST" },
    });
    assert.deepEqual([status, headers.get("access-control-allow-origin")], [204, PAGE]);
  });

  it("ignore an OPTIONS request that is not a preflight; a malformed preflight allows no header", async () => {
    await start();
    for (const headers of [{ "access-control-request-method": undefined }, { origin: undefined }]) {
      const refused = await preflight(PAGE, headers);
      assert.equal(refused.status, 405);
      assert.equal(refused.headers["sallyport-error"], "method_not_allowed");
    }
    await under.settled(2);
    for (const requested of ["a b", "x-ok, x(bad)", ",", "", "x-ok,,x-ok", "x-\u00e4"]) {
      const { status, headers } = await preflight(PAGE, {
        "access-control-request-headers": requested,
      });
      assert.equal(status, 204);
      assert.equal(headers["access-control-allow-headers"], undefined, requested);
    }
    const twice = await preflight(PAGE, {
      "access-control-request-headers": ["x-one", "x-two,x-three"],
    });
    assert.equal(twice.headers["access-control-allow-headers"], "x-one, x-two, x-three");
    const none = await preflight(PAGE, { "access-control-request-headers": undefined });
    assert.equal(none.headers["access-control-allow-headers"], undefined);
    const large = await callRaw(under.a, {
      ...preflightOf(PAGE, { "content-length": "200000" }),
      body: "x".repeat(200_000),
    });
    assert.equal(large.status, 204);
    assert.equal(under.records.length, 2);
  });

  it("change nothing if cors is off: OPTIONS is an ordinary method, and no answer has CORS headers", async () => {
    await start({});
    const refused = await preflight();
    assert.equal(refused.status, 405);
    assert.equal(refused.headers.allow, "POST, GET, HEAD");
    const unknown = await callRaw(under.a, { ...preflightOf(PAGE), path: "/v1/nothing" });
    assert.equal(unknown.status, 404);
    const plain = await call();
    assert.equal(plain.status, 200);
    for (const answer of [refused, unknown, plain]) {
      assertUnreadable(answer);
      assert.equal(answer.headers.vary, undefined);
    }
    await under.settled(3);
  });
});
