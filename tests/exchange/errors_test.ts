/** Every error of the table, provoked through the front door: status, the four keys, the headers. */
import assert from "node:assert/strict";
import { afterEach, describe, it } from "@std/testing/bdd";
import { type ErrorCode, ERRORS, GatewayError } from "../../src/errors.ts";
import { type Answering, answerPlain, chunk, startProvider } from "../support/provider.ts";
import { callRaw, openRaw, type RawCall, startBlackHole, startTcpPeer, toRawRequest } from "../support/tcp_peer.ts";
import { until } from "../support/until.ts";
import { GOOD_BODY, startUnderTest, STREAM_BODY, type UnderTest, type UnderTestOptions } from "../support/gateway.ts";

/** How a code is provoked: a call that differs from a good one, an upstream, a gateway. */
interface Case {
  readonly call?: (under: UnderTest) => RawCall;
  readonly upstream?: () => Promise<{ url: string; close(): Promise<void> }>;
  readonly options?: Partial<UnderTestOptions>;
  readonly before?: (under: UnderTest) => unknown;
  /** Differs from the table where the place that throws knows better. */
  readonly param?: string;
  /** When to try again depends on the clock. */
  readonly waits?: true;
}

const change = (headers: RawCall["headers"]) => (): RawCall => ({ headers });
const send = (body: string) => (): RawCall => ({ body });
const answering = (answer: Answering) => () => startProvider(answer);
/** What was started, and how to end it: last started, first ended. */
const closing: (() => Promise<void>)[] = [];
const refusing = async () => {
  const gone = await startTcpPeer(() => {});
  await gone.close();
  return { url: gone.url, close: () => Promise.resolve() };
};
const own = "own-key-of-a-team";
const restricted = (rules: Record<string, unknown>): Case => ({
  options: { config: { keys: [{ id: "team", key: own, ...rules }] } },
  call: change({ "gateway-auth": `Bearer ${own}` }),
});
/** The second call is one too many. */
const limited = (limits: Record<string, unknown>): Case => ({
  ...restricted({ limits }),
  waits: true,
  async before(under) {
    const headers = { ...under.headers, "gateway-auth": `Bearer ${own}` };
    await callRaw(under.a, { headers, body: GOOD_BODY });
    await under.settled();
  },
});
/** Begins a stream with one event, then does something. */
const begun = (then: (end: () => void, destroy: () => void) => void): Case => ({
  call: send(STREAM_BODY),
  upstream: answering((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk("Hel"));
    // Bun drops what has just arrived when the connection breaks right behind it.
    then(() => response.end(), () => setTimeout(() => response.destroy(), 50));
  }),
});

const CASES: Readonly<Record<ErrorCode, Case>> = {
  invalid_host: { call: change({ host: "user@a.localhost" }) },
  unknown_host: { call: change({ host: "nobody.example" }) },
  not_found: { call: () => ({ path: "/v1/embeddings" }) },
  method_not_allowed: { call: () => ({ method: "DELETE", body: "" }) },
  missing_gateway_key: { call: change({ "gateway-auth": undefined }) },
  invalid_gateway_auth: { call: ({ key }) => ({ headers: { "gateway-auth": [`Bearer ${key}`, `Bearer ${key}`] } }) },
  invalid_gateway_key: { call: change({ "gateway-auth": "Bearer not-a-key-of-this-gateway" }) },
  gateway_key_in_authorization: { call: ({ key }) => ({ headers: { authorization: `Bearer ${key}` } }) },
  missing_upstream_key: { call: change({ authorization: undefined }) },
  invalid_upstream_auth: { call: change({ authorization: "Basic dXNlcjpwYXNz" }) },
  gateway_key_misplaced: {
    call: ({ key }) => ({ body: JSON.stringify({ ...JSON.parse(GOOD_BODY), user: `me ${key}` }) }),
    param: "user",
  },
  provider_key_in_gateway_auth: { call: change({ "gateway-auth": "Bearer sk-proj-0123456789abcdef" }) },
  rate_limit_exceeded: limited({ requests: "1/h" }),
  budget_exceeded: limited({ budget: "1/month" }),
  concurrency_limit_exceeded: {
    options: { config: { keys: [{ id: "team", key: own, limits: { concurrency: 1 } }] } },
    upstream: () => startTcpPeer(() => {}),
    async before(under) {
      const headers = { ...under.headers, "gateway-auth": `Bearer ${own}` };
      const { socket } = openRaw(under.a, toRawRequest(under.a, { headers, body: GOOD_BODY }));
      closing.push(() => Promise.resolve(void socket.destroy()));
      await until(() => under.gateway.openExchanges === 1, "the one exchange is open");
    },
    call: change({ "gateway-auth": `Bearer ${own}` }),
  },
  provider_not_allowed: restricted({ providers: ["b"] }),
  model_not_allowed: restricted({ models: ["gpt-*"] }),
  invalid_json: { call: send('{"model":') },
  invalid_body: { call: send('{"model":"m","messages":[{"role":7,"content":"x"}]}'), param: "messages[0].role" },
  body_timeout: {
    options: { config: { limits: { bodyTime: "200ms" } } },
    call: () => ({ headers: { "content-length": "100" }, body: "{" }),
  },
  body_too_large: { options: { config: { limits: { body: "20B" } } } },
  unsupported_media_type: { call: change({ "content-type": "text/plain" }) },
  unsupported_content_encoding: { call: change({ "content-encoding": "gzip" }) },
  upstream_unreachable: { upstream: refusing },
  upstream_bad_response: {
    upstream: answering((response) => response.writeHead(307, { location: "http://127.0.0.1:1/" }).end()),
  },
  upstream_connect_timeout: { upstream: startBlackHole, options: { provider: { deadlines: { connect: "300ms" } } } },
  upstream_first_byte_timeout: {
    upstream: () => startTcpPeer(() => {}),
    options: { provider: { deadlines: { connect: "200ms", firstByte: "300ms" } } },
  },
  upstream_timeout: {
    upstream: () => startTcpPeer(() => {}),
    options: { provider: { deadlines: { connect: "200ms", firstByte: "300ms", idle: "300ms", total: "300ms" } } },
  },
  upstream_unavailable: {
    upstream: refusing,
    async before(under) {
      for (let call = 0; call < 5; call++) await callRaw(under.a, { headers: under.headers, body: GOOD_BODY });
    },
  },
  upstream_loop: { call: change({ via: Array.from({ length: 8 }, () => "1.1 sallyport-0123abcd").join(", ") }) },
  gateway_overloaded: {
    options: { config: { limits: { exchanges: 1 } } },
    upstream: () => startTcpPeer(() => {}),
    async before(under) {
      const { socket } = openRaw(under.a, toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }));
      closing.push(() => Promise.resolve(void socket.destroy()));
      await until(() => under.gateway.openExchanges === 1, "the one exchange is open");
    },
  },
  gateway_draining: { before: ({ gateway }) => gateway.close() },
  key_store_unavailable: {
    options: { parts: { keys: { find: () => Promise.reject(new GatewayError("key_store_unavailable")) } } },
  },
  internal_error: {
    options: {
      parts: {
        keys: {
          find() {
            throw new Error("a secret that must not be told");
          },
        },
      },
    },
  },
  upstream_stream_truncated: begun((end) => end()),
  upstream_idle_timeout: { ...begun(() => {}), options: { provider: { deadlines: { idle: "200ms" } } } },
  upstream_disconnected: begun((_end, destroy) => destroy()),
};

/** They come when a stream has begun: as an event under the status of the stream. */
const IN_STREAM: readonly ErrorCode[] = ["upstream_stream_truncated", "upstream_idle_timeout", "upstream_disconnected"];

const ROWS: Partial<Record<ErrorCode, string>> = {
  upstream_disconnected: "row 6: ",
  upstream_idle_timeout: "row 7: ",
  upstream_stream_truncated: "row 9: ",
};

/** `Server-Timing` of an answer for which nobody was called, and of one for which somebody was. */
const TIMED = /^gateway;dur=\d+(?:\.\d\d?)?$/;
const TIMED_WITH_UPSTREAM = /^gateway;dur=\d+(?:\.\d\d?)?, upstream;dur=\d+(?:\.\d\d?)?$/;

describe("errors", () => {
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });

  async function provoke({ call, upstream, options, before }: Case) {
    const provider = await (upstream ?? (() => startProvider(answerPlain)))();
    closing.push(provider.close);
    const under = await startUnderTest({ ...options, upstreams: { a: provider.url } });
    closing.push(under.close);
    await before?.(under);
    const earlier = under.records.length;
    const chosen = call?.(under) ?? {};
    const answer = await callRaw(under.a, {
      body: GOOD_BODY,
      ...chosen,
      headers: { ...under.headers, ...chosen.headers },
    });
    return { answer, record: await under.settled(earlier + 1) };
  }

  for (const [code, how] of Object.entries(CASES) as [ErrorCode, Case][]) {
    const { status, type, param, shouldRetry, outcome, retryAfterS } = ERRORS[code];
    if (IN_STREAM.includes(code)) continue;

    it(`${code} answers ${status}`, async () => {
      const { answer: { headers, body, status: answered }, record } = await provoke(how);
      assert.equal(answered, status);
      const { error } = JSON.parse(body);
      assert.deepEqual(Object.keys(error), ["message", "type", "param", "code"]);
      assert.equal(error.code, code);
      assert.equal(error.type, type);
      assert.equal(error.param, how.param ?? param);
      assert.ok(error.message.startsWith(ERRORS[code].message));
      assert.doesNotMatch(body, /secret|127\.0\.0\.1|\.ts:\d/);
      assert.equal(headers["content-type"], "application/json");
      assert.equal(headers["cache-control"], "no-store");
      assert.equal(headers["sallyport-error"], code);
      assert.equal(headers["x-should-retry"], String(shouldRetry));
      assert.equal(headers["x-request-id"], record.id);
      const hasCalled = record.replica !== undefined;
      assert.match(headers["server-timing"] ?? "", hasCalled ? TIMED_WITH_UPSTREAM : TIMED);
      const waitMs = how.waits === true ? Number(headers["retry-after-ms"]) : retryAfterS && retryAfterS * 1000;
      assert.ok(waitMs === undefined || waitMs > 0);
      assert.equal(headers["retry-after"], waitMs && String(Math.ceil(waitMs / 1000)));
      assert.equal(headers["retry-after-ms"], waitMs && String(waitMs));
      const isGatewayKey = status === 401 && param === "Gateway-Auth";
      assert.equal(headers["www-authenticate"], isGatewayKey ? 'Bearer realm="gateway"' : undefined);
      assert.equal(headers.allow, status === 405 ? "POST" : undefined);
      assert.equal(record.outcome, outcome);
      assert.equal(record.code, code);
      assert.equal(record.status, status);
    });
  }

  for (const code of IN_STREAM) {
    it(`${ROWS[code] ?? ""}${code} ends a stream that has begun with an error event and without [DONE]`, async () => {
      const { answer, record } = await provoke(CASES[code]);
      assert.equal(answer.status, 200);
      const [first, event, ...rest] = answer.body.split("\n\n");
      assert.equal(`${first}\n\n`, chunk("Hel"));
      assert.deepEqual(JSON.parse(event?.replace(/^data: /, "") ?? ""), {
        error: { message: ERRORS[code].message, type: "upstream_error", param: null, code },
      });
      assert.deepEqual(rest, [""]);
      assert.equal(record.outcome, ERRORS[code].outcome);
      assert.equal(record.code, code);
    });
  }
});
