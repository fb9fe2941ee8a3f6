/** Every error of the table, and how a call to the gateway provokes it. */
import type { AdminErrorCode } from "../../src/errors/admin_errors.ts";
import type { ErrorCode } from "../../src/errors/codes.ts";
import { GatewayError } from "../../src/errors/gateway_error.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import type { RunRegistry } from "../../src/runs/run_registry.ts";
import { createDurableExchanges } from "../../src/steps/durable/setup.ts";
import { urlOfNobody } from "./free_port.ts";
import {
  GOOD_BODY,
  startUnderTest,
  STREAM_BODY,
  type UnderTest,
  type UnderTestOptions,
} from "./gateway.ts";
import { type Answering, answerPlain, chunk, startProvider } from "./provider.ts";
import { ObservedRecordings } from "./recordings.ts";
import {
  callRaw,
  openRaw,
  type RawAnswer,
  type RawCall,
  startBlackHole,
  startTcpPeer,
  toRawRequest,
} from "./tcp_peer.ts";
import { until } from "./until.ts";

/** How a code is provoked: differences of the call, an upstream, a gateway. */
export interface Case {
  readonly call?: (under: UnderTest) => RawCall;
  readonly upstream?: () => Promise<{ url: string; close(): Promise<void> }>;
  readonly options?: Partial<UnderTestOptions>;
  readonly before?: (under: UnderTest) => unknown;
  /** The parameter, if the place that throws names a more exact one than the table. */
  readonly param?: string;
  /** True if the time for a retry depends on the clock. */
  readonly waits?: true;
  /** The reason why it cannot be provoked in a Worker. */
  readonly notOnWorkers?: string;
}

const change = (headers: RawCall["headers"]) => (): RawCall => ({ headers });
const send = (body: string) => (): RawCall => ({ body });
const answering = (answer: Answering) => () => startProvider(answer);
/** Cleanups, run in reverse order. */
const closing: (() => Promise<void>)[] = [];
const refusing = async () => ({ url: await urlOfNobody(), close: () => Promise.resolve() });
/** A body that tests with marks leave as it is, because it names a user. */
const REPEATED = GOOD_BODY.replace(/\}$/, ',"user":"one"}');
/** The key of the cases that need a separate key. */
export const OWN_KEY = "own-key-of-a-team";
const restricted = (rules: Record<string, unknown>): Case => ({
  options: { config: { keys: [{ id: "team", key: OWN_KEY, ...rules }] } },
  call: change({ "gateway-auth": `Bearer ${OWN_KEY}` }),
});
/** The second call exceeds the limit. */
const limited = (limits: Record<string, unknown>): Case => ({
  ...restricted({ limits }),
  waits: true,
  async before(under) {
    const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN_KEY}` };
    await callRaw(under.a, { headers, body: GOOD_BODY });
    await under.settled();
  },
});
const DURABLE: Case = { options: { provider: { durable: {} } } };
const partsOf = (store: ObservedRecordings) => ({
  durable: createDurableExchanges(store, systemClock),
});
const refusingRuns = (code: ErrorCode): RunRegistry => ({
  admit: () => Promise.reject(new GatewayError(code)),
  correct() {},
  list: () => Promise.resolve([]),
  stop: () => Promise.resolve(false),
});
/** Starts a stream with one event, then runs the function. */
const begun = (then: (end: () => void, destroy: () => void) => void): Case => ({
  call: send(STREAM_BODY),
  upstream: answering((response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk("Hel"), () => then(() => response.end(), () => response.destroy()));
  }),
});

/** Errors of a listener before there is a request, see `tests/faults/listener_test.ts`. */
export type ListenerCode = "invalid_http" | "headers_too_large" | "headers_timeout";

/** The error of a preflight, which is not an exchange, see `tests/exchange/cors_test.ts`. */
export type PreflightCode = "origin_not_allowed";

/** All other errors for callers; the errors of the admin listener are in `tests/admin/`. */
export const CASES: Readonly<
  Record<Exclude<ErrorCode, ListenerCode | PreflightCode | AdminErrorCode>, Case>
> = {
  invalid_host: {
    call: change({ host: "user@a.localhost" }),
    notOnWorkers: "workerd or the edge reads the bytes first",
  },
  unknown_host: { call: change({ host: "nobody.example" }) },
  not_found: { call: () => ({ path: "/v1/nothing" }) },
  ambiguous_path: { call: () => ({ path: "/v1/chat/completions;x" }) },
  operation_not_allowed: { call: () => ({ method: "GET", path: "/v1/files", body: "" }) },
  websocket_not_supported: {
    call: () => ({
      method: "GET",
      path: "/v1/realtime?model=m",
      body: "",
      headers: {
        connection: "upgrade",
        upgrade: "websocket",
        "content-length": undefined,
        "content-type": undefined,
      },
    }),
  },
  method_not_allowed: { call: () => ({ method: "DELETE", body: "" }) },
  missing_gateway_key: { call: change({ "gateway-auth": undefined }) },
  invalid_gateway_auth: {
    call: ({ key }) => ({ headers: { "gateway-auth": [`Bearer ${key}`, `Bearer ${key}`] } }),
  },
  invalid_gateway_key: { call: change({ "gateway-auth": "Bearer not-a-key-of-this-gateway" }) },
  gateway_key_in_authorization: {
    call: ({ key }) => ({ headers: { authorization: `Bearer ${key}` } }),
  },
  missing_upstream_key: { call: change({ authorization: undefined }) },
  invalid_upstream_auth: { call: change({ authorization: "Basic dXNlcjpwYXNz" }) },
  gateway_key_misplaced: {
    call: ({ key }) => ({ body: JSON.stringify({ ...JSON.parse(GOOD_BODY), user: `me ${key}` }) }),
    param: "user",
  },
  provider_key_in_gateway_auth: {
    call: change({ "gateway-auth": "Bearer sk-proj-0123456789abcdef" }),
  },
  rate_limit_exceeded: limited({ requests: "1/h" }),
  budget_exceeded: limited({ budget: "1/month" }),
  request_exceeds_limit: {
    ...restricted({}),
    options: {
      provider: { maxOutput: 4096 },
      config: { keys: [{ id: "team", key: OWN_KEY, limits: { tokens: "1k/h", mode: "strict" } }] },
    },
  },
  model_not_priced: {
    ...restricted({}),
    options: {
      config: {
        prices: { "another-model": { input: 1, output: 1 } },
        keys: [{ id: "team", key: OWN_KEY, limits: { budget: "5 USD/month" } }],
      },
    },
  },
  operation_not_metered: {
    options: {
      provider: { operations: ["default", "files"] },
      config: { keys: [{ id: "team", key: OWN_KEY, limits: { tokens: "1M/day" } }] },
    },
    call: () => ({
      path: "/v1/files",
      headers: { "gateway-auth": `Bearer ${OWN_KEY}` },
    }),
  },
  run_budget_exceeded: {
    before: (under) =>
      callRaw(under.a, {
        headers: { ...under.headers, "gateway-run": "one; calls=1" },
        body: GOOD_BODY,
      }),
    call: change({ "gateway-run": "one" }),
  },
  run_stopped: {
    options: {
      parts: {
        runs: refusingRuns("run_stopped"),
      },
    },
    call: change({ "gateway-run": "one" }),
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  run_repeats: {
    options: { config: { runs: { repeats: 1, onRepeat: "refuse" } } },
    before: (under) =>
      callRaw(under.a, { headers: { ...under.headers, "gateway-run": "one" }, body: REPEATED }),
    call: () => ({ headers: { "gateway-run": "one" }, body: REPEATED }),
  },
  invalid_run: { call: change({ "gateway-run": "7b; calls=1" }) },
  too_many_runs: {
    options: { config: { runs: { maxPerKey: 1 } } },
    before: (under) =>
      callRaw(under.a, { headers: { ...under.headers, "gateway-run": "one" }, body: GOOD_BODY }),
    call: change({ "gateway-run": "other" }),
  },
  runs_unavailable: {
    options: { parts: { runs: refusingRuns("runs_unavailable") } },
    call: change({ "gateway-run": "one" }),
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  key_not_understood: {
    options: {
      config: { prices: { "*": { input: 1 } } },
      parts: {
        keys: {
          find: (digest) => ({
            id: "team",
            digest,
            limits: { spend: { limit: 1, period: "month", currency: "EUR" } },
          }),
        },
      },
    },
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  team_not_configured: {
    options: {
      parts: { keys: { find: (digest) => ({ id: "team", digest, team: "not-configured" }) } },
    },
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  concurrency_limit_exceeded: {
    options: { config: { keys: [{ id: "team", key: OWN_KEY, limits: { concurrency: 1 } }] } },
    upstream: () => startTcpPeer(() => {}),
    async before(under) {
      const headers = { ...under.headers, "gateway-auth": `Bearer ${OWN_KEY}` };
      const { socket } = openRaw(under.a, toRawRequest(under.a, { headers, body: GOOD_BODY }));
      closing.push(() => Promise.resolve(void socket.destroy()));
      await until(() => under.gateway.openExchanges === 1, "the one exchange is open");
    },
    call: change({ "gateway-auth": `Bearer ${OWN_KEY}` }),
  },
  provider_not_allowed: restricted({ providers: ["b"] }),
  model_not_allowed: restricted({ models: ["gpt-*"] }),
  invalid_json: { call: send('{"model":') },
  invalid_body: {
    call: send('{"model":"m","messages":[{"role":7,"content":"x"}]}'),
    param: "messages[0].role",
  },
  body_timeout: {
    options: { config: { limits: { bodyTime: "200ms" } } },
    call: () => ({ headers: { "content-length": "100" }, body: "{" }),
  },
  body_too_large: { options: { config: { limits: { body: "20B" } } } },
  unsupported_media_type: { call: change({ "content-type": "text/plain" }) },
  unsupported_content_encoding: { call: change({ "content-encoding": "compress" }) },
  invalid_content_encoding: { call: change({ "content-encoding": "gzip" }) },
  upstream_unreachable: { upstream: refusing },
  upstream_bad_response: {
    upstream: answering((response) =>
      response.writeHead(307, { location: "http://127.0.0.1:1/" }).end()
    ),
  },
  upstream_unsupported_encoding: {
    upstream: answering((response) =>
      response.writeHead(200, { "content-encoding": "compress" }).end("{}")
    ),
  },
  upstream_connect_timeout: {
    upstream: startBlackHole,
    options: { provider: { deadlines: { connect: "300ms" } } },
    notOnWorkers: "fetch in a Worker does not report whether it connected",
  },
  upstream_first_byte_timeout: {
    upstream: () => startTcpPeer(() => {}),
    options: { provider: { deadlines: { firstByte: "300ms" } } },
  },
  upstream_timeout: {
    upstream: () => startTcpPeer(() => {}),
    options: {
      provider: { deadlines: { total: "300ms" } },
    },
  },
  upstream_loop: {
    call: change({ via: Array.from({ length: 8 }, () => "1.1 sallyport-0123abcd").join(", ") }),
  },
  gateway_overloaded: {
    options: { config: { limits: { exchanges: 1 } } },
    upstream: () => startTcpPeer(() => {}),
    async before(under) {
      const { socket } = openRaw(
        under.a,
        toRawRequest(under.a, { headers: under.headers, body: GOOD_BODY }),
      );
      closing.push(() => Promise.resolve(void socket.destroy()));
      await until(() => under.gateway.openExchanges === 1, "the one exchange is open");
    },
  },
  gateway_draining: {
    before: ({ gateway }) => gateway.close(),
    notOnWorkers: "the platform ends a Worker by itself",
  },
  key_store_unavailable: {
    options: {
      parts: { keys: { find: () => Promise.reject(new GatewayError("key_store_unavailable")) } },
    },
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  upstream_key_unavailable: {
    options: {
      config: { keys: [{ id: "team", key: OWN_KEY, heldKeys: true }] },
      provider: { upstreamKey: { env: "ABSENT" } },
      parts: { readHeldKey: () => Promise.reject(new Error("not set")) },
    },
    call: change({ "gateway-auth": `Bearer ${OWN_KEY}`, "authorization": undefined }),
    notOnWorkers: "a Worker accepts no parts from a test",
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
    notOnWorkers: "a Worker accepts no parts from a test",
  },
  upstream_first_event_timeout: {
    call: send(STREAM_BODY),
    upstream: answering((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.flushHeaders();
      const timer = setInterval(() => response.write(": queued\n\n"), 20);
      response.on("close", () => clearInterval(timer));
    }),
    options: { provider: { deadlines: { firstEvent: "300ms" } } },
  },
  upstream_stream_truncated: begun((end) => end()),
  upstream_idle_timeout: {
    ...begun(() => {}),
    options: { provider: { deadlines: { idle: "200ms" } } },
  },
  upstream_disconnected: begun((_end, destroy) => destroy()),
  invalid_idempotency_key: { ...DURABLE, call: change({ "idempotency-key": "a key" }) },
  idempotency_key_reused: {
    ...DURABLE,
    before: (under) =>
      callRaw(under.a, {
        headers: { ...under.headers, "idempotency-key": "one" },
        body: GOOD_BODY,
      }),
    call: () => ({ headers: { "idempotency-key": "one" }, body: STREAM_BODY }),
  },
  exchange_not_found: {
    ...DURABLE,
    call: () => ({ method: "GET", path: "/v1/exchanges/nothing", body: "" }),
  },
  exchange_expired: ((store) => ({
    options: { provider: { durable: { keep: "1ms" } }, parts: partsOf(store) },
    async before({ a, headers }) {
      await callRaw(a, { headers: { ...headers, "idempotency-key": "one" }, body: GOOD_BODY });
      await until(
        async () => (await store.find(store.ids[0] ?? ""))?.state === "expired",
        "the recording expires",
      );
    },
    call: () => ({ method: "GET", path: `/v1/exchanges/${store.ids[0]}`, body: "" }),
    notOnWorkers: "a Worker accepts no parts from a test",
  }))(new ObservedRecordings()),
  invalid_offset: {
    ...DURABLE,
    call: () => ({ method: "GET", path: "/v1/exchanges/nothing?offset=x", body: "" }),
  },
  invalid_read: {
    ...DURABLE,
    call: () => ({ method: "GET", path: "/v1/exchanges/nothing?live=x", body: "" }),
  },
  exchange_broken: ((store) => ({
    options: { provider: { durable: {} }, parts: partsOf(store) },
    upstream: answering((response) => {
      response.writeHead(200, { "content-type": "application/octet-stream" });
      response.write("Hel");
      void until(
        async () => (await store.find(store.ids[0] ?? ""))?.head !== undefined,
        "the answer",
      )
        .then(() => response.destroy());
    }),
    async before({ a, headers }) {
      await callRaw(a, { headers: { ...headers, "sallyport-durable": "?1" }, body: GOOD_BODY })
        .catch(() => {});
      await until(
        async () => (await store.find(store.ids[0] ?? ""))?.state === "broken",
        "the end",
      );
    },
    call: () => ({ method: "GET", path: `/v1/exchanges/${store.ids[0]}?offset=now`, body: "" }),
    notOnWorkers: "a Worker accepts no parts from a test",
  }))(new ObservedRecordings()),
  recordings_unavailable: {
    options: { provider: { durable: {} }, config: { limits: { recordings: "1KB" } } },
    call: change({ "sallyport-durable": "?1" }),
  },
  exchange_stopped: ((store) => ({
    options: { provider: { durable: {} }, parts: partsOf(store) },
    upstream: answering((response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(chunk("Hel"));
      const hasBegun = async () => (await store.find(store.ids[0] ?? ""))?.head !== undefined;
      void until(hasBegun, "the answer").then(() => store.stop(store.ids[0] ?? ""));
    }),
    call: () => ({ headers: { "sallyport-durable": "?1" }, body: STREAM_BODY }),
    notOnWorkers: "a Worker accepts no parts from a test",
  }))(new ObservedRecordings()),
  exchange_lost: ((store) => ({
    options: { provider: { durable: {} }, parts: partsOf(store) },
    before: (under) => store.beginAndDie(under),
    call: () => ({ method: "GET", path: `/v1/exchanges/${store.ids[0]}`, body: "" }),
    notOnWorkers: "a Worker accepts no parts from a test",
  }))(new ObservedRecordings()),
};

/** Errors that occur after a stream has begun: as an event, after the status of the stream. */
export const IN_STREAM: readonly (keyof typeof CASES)[] = [
  "upstream_first_event_timeout",
  "upstream_stream_truncated",
  "upstream_idle_timeout",
  "upstream_disconnected",
  "exchange_stopped",
  "exchange_lost",
];

/** Stops everything that was started. */
export async function endProvoked(): Promise<void> {
  for (const close of closing.splice(0).reverse()) await close();
}

/** The result of a provoked error. */
export interface Provoked {
  readonly answer: RawAnswer;
  readonly record: ExchangeRecord;
  readonly under: UnderTest;
}

/**
 * Provokes an error.
 *
 * @param how Its case
 * @param change Further changes of the call
 */
export async function provoke(
  { call, upstream, options, before }: Case,
  change: (call: RawCall) => RawCall = (call) => call,
): Promise<Provoked> {
  const provider = await (upstream ?? (() => startProvider(answerPlain)))();
  closing.push(provider.close);
  const under = await startUnderTest({ ...options, upstreams: { a: provider.url } });
  closing.push(under.close);
  await before?.(under);
  const earlier = under.records.length;
  const chosen = call?.(under) ?? {};
  const answer = await callRaw(
    under.a,
    change({ body: GOOD_BODY, ...chosen, headers: { ...under.headers, ...chosen.headers } }),
  );
  return { answer, record: await under.settled(earlier + 1), under };
}
