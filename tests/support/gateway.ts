/** Starts the gateway of this runtime, with its real listeners, on free loopback ports. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import process from "node:process";
import { generateGatewayKey } from "../../src/keys/key_format.ts";
import { createSelfSignedCertificate } from "../../src/cli/demo/certificate.ts";
import { type Config, parseConfig } from "../../src/config/config.ts";
import { type Clock, systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import type { Gateway, GatewayParts } from "../../src/gateway.ts";
import { AccessLog } from "../../src/observe/access_log.ts";
import { MetricRegistry } from "../../src/observe/metrics/metric_registry.ts";
import { Metrics } from "../../src/observe/metrics/metrics.ts";
import { addProcessMetrics } from "../../src/serve/process_metrics.ts";
import { composeGateway, resolveServe, type ServerName } from "../../src/serve/compose.ts";
import { closeListeners, openListener } from "../../src/serve/lifecycle.ts";
import { freePort } from "./free_port.ts";
import { isWorkers } from "./runtimes.ts";
import { until } from "./until.ts";

/** Options of a test. */
export interface UnderTestOptions {
  /** Base URLs of the two providers. */
  readonly upstreams: { readonly a: string; readonly b?: string };
  /** Additional settings for both providers, such as `deadlines`. */
  readonly provider?: Record<string, unknown>;
  /** Additional settings at the top of the configuration. */
  readonly config?: Record<string, unknown>;
  /** The server that listens; the runtime's default if left out. */
  readonly server?: ServerName;
  /** The deadline of a header and of a TLS handshake, in milliseconds. */
  readonly headersMs?: number;
  /** Parts to use instead of the runtime's. */
  readonly parts?: Partial<GatewayParts>;
}

/** A gateway that listens. */
export interface UnderTest {
  readonly gateway: Gateway;
  /** Addresses without `/v1`: host a over http, host b over https. */
  readonly a: string;
  readonly b: string;
  /** A gateway key that is valid at both hosts. */
  readonly key: string;
  /** Headers of a good call to host a. */
  readonly headers: Record<string, string>;
  /** Finished exchanges, in the order of their ends. */
  readonly records: ExchangeRecord[];
  /** Everything that operators can read: both forms of the log, both forms of the metrics. */
  told(): Promise<string>;
  /** Waits until a number of exchanges have finished, and returns the last one. */
  settled(count?: number): Promise<ExchangeRecord>;
  /**
   * Closes everything. Fails if an exchange was still open, or if a key or a prompt was disclosed.
   */
  close(): Promise<void>;
}

/** The prompt of every good body. */
export const PROMPT = "Hi, canary-of-a-prompt";
/** The caller's key at provider a. */
export const UPSTREAM_KEY = "sk-upstream-key-of-the-caller";
/** A body that passes every check. */
export const GOOD_BODY: string = JSON.stringify({
  model: "test-1",
  messages: [{ role: "user", content: PROMPT }],
});
/** The same body, with a request for a stream. */
export const STREAM_BODY: string = JSON.stringify({
  model: "test-1",
  messages: [{ role: "user", content: PROMPT }],
  stream: true,
});

/**
 * The certificate that `npm test` makes every runtime trust. Without `npm test` it is a new one.
 */
export function testIdentity(): { cert: string; key: string } {
  const directory = process.env.SALLYPORT_TEST_TLS;
  if (directory === undefined) return createSelfSignedCertificate(["localhost", "127.0.0.1"]);
  return {
    cert: readFileSync(`${directory}/cert.pem`, "utf8"),
    key: readFileSync(`${directory}/key.pem`, "utf8"),
  };
}

/** The observers that operators use, and their output. @param log The setting of that name */
function createWitness(log: Config["log"]) {
  const quiet: Clock = { ...systemClock, timer: () => () => {} };
  const told: string[] = [];
  const logs = ([log === "debug" ? log : "json", "pretty"] as const).map((format) =>
    new AccessLog(format, (text, done) => {
      told.push(text);
      done(null);
    }, quiet)
  );
  const registry = new MetricRegistry();
  addProcessMetrics(registry, quiet);
  const metrics = new Metrics(registry);
  return {
    observers: [...logs, metrics],
    told(): Promise<string> {
      for (const log of logs) log.flush();
      return Promise.resolve(
        [...told, metrics.toText("text"), metrics.toText("openmetrics")].join("\n"),
      );
    },
  };
}

/** A Worker does not report its state while it runs. Its open calls are counted from outside. */
function hiddenGateway(countOpen: () => number): Gateway {
  const unknown = () => assert.fail("not to be known of a Worker: make the case by it.notOn");
  return {
    fetch: unknown,
    handle: unknown,
    close: unknown,
    drain: unknown,
    get isReady() {
      return unknown();
    },
    get openExchanges() {
      return countOpen();
    },
    get openStreams() {
      return unknown();
    },
    get replicas() {
      return unknown();
    },
  };
}

/** Starts the same in workerd. Records are read from its log. */
async function startWorkerUnderTest(
  { upstreams, provider = {}, config = {}, parts }: UnderTestOptions,
) {
  assert.equal(parts, undefined, "a Worker takes no parts: make the case by it.notOn");
  const { startWorkerd } = await import("./workerd.ts");
  const key = generateGatewayKey();
  const [port, tlsPort] = [await freePort(), await freePort()];
  const whole = {
    providers: {
      a: { hosts: ["a.localhost", `127.0.0.1:${port}`], upstream: upstreams.a, ...provider },
      b: {
        hosts: ["b.localhost", `127.0.0.1:${tlsPort}`],
        upstream: upstreams.b ?? upstreams.a,
        ...provider,
      },
    },
    keys: [{ id: "tester", key }],
    ...config,
  };
  const ownKeys = (whole.keys as { key?: string }[]).flatMap(({ key: own }) => own ?? []);
  const { output, close } = await startWorkerd({
    config: JSON.stringify(whole),
    port,
    tlsPort,
    tls: testIdentity(),
  });
  return toUnderTest({
    gateway: hiddenGateway(() => output.begun - output.records.length),
    a: `http://127.0.0.1:${port}`,
    b: `https://127.0.0.1:${tlsPort}`,
    key,
    records: output.records,
    told: () => Promise.resolve(output.told),
    close,
    ownKeys,
  });
}

/** Starts a gateway with both hosts. */
export async function startUnderTest(options: UnderTestOptions): Promise<UnderTest> {
  if (isWorkers) return await startWorkerUnderTest(options);
  const { upstreams, provider = {}, config = {}, parts = {}, server, headersMs } = options;
  const records: ExchangeRecord[] = [];
  const key = generateGatewayKey();
  // The hosts need ports, which are known only once the listeners are open.
  const built: { gateway?: Gateway } = {};
  const ready = (): Gateway => built.gateway ?? assert.fail("not ready");
  const late: Gateway = {
    fetch: (request) => ready().fetch(request),
    handle: (request) => ready().handle(request),
    close: (limitMs) => ready().close(limitMs),
    drain: () => ready().drain(),
    get isReady() {
      return ready().isReady;
    },
    get openExchanges() {
      return ready().openExchanges;
    },
    get openStreams() {
      return ready().openStreams;
    },
    get replicas() {
      return ready().replicas;
    },
  };
  const bodyTimeMs = 60_000;
  const serve = await resolveServe(server);
  const address = { hostname: "127.0.0.1", port: 0, bodyTimeMs, headersMs };
  const identity = testIdentity();
  const listeners = [
    await openListener(late, serve, address, "a"),
    await openListener(late, serve, { ...address, tls: identity }, "b"),
  ];
  const [a = "", b = ""] = listeners.map(({ url }) => url);
  const parse = () =>
    parseConfig({
      providers: {
        a: { hosts: ["a.localhost", new URL(a).host], upstream: upstreams.a, ...provider },
        b: {
          hosts: ["b.localhost", new URL(b).host],
          upstream: upstreams.b ?? upstreams.a,
          ...provider,
        },
      },
      keys: [{ id: "tester", key }],
      ...config,
    });
  let parsed: Config;
  try {
    parsed = parse();
  } catch (error) {
    for (const listener of listeners) await listener.stop();
    throw error;
  }
  const observer = { settled: (record: ExchangeRecord) => void records.push(record) };
  const witness = createWitness(parsed.log);
  const observers = [...parts.observers ?? [], observer, ...witness.observers];
  const { writeStallMs } = parsed.limits;
  listeners[0]?.adjust?.({ ...address, writeStallMs });
  listeners[1]?.adjust?.({ ...address, writeStallMs, tls: identity });
  const gateway = built.gateway = composeGateway(parsed, { ...parts, observers });
  const ownKeys = Array.isArray(parsed.keys)
    ? parsed.keys.flatMap(({ key: own }) => own ?? [])
    : [];
  return toUnderTest({
    gateway,
    a,
    b,
    key,
    records,
    told: witness.told,
    async close() {
      await closeListeners(late, listeners, { delayMs: 0, limitMs: 2000 });
      const left = records.filter(({ outcome, status }) => outcome === "drained" && status !== 503);
      assert.deepEqual(left, [], "an exchange was still open at the end of the test");
    },
    ownKeys,
  });
}

/** The parts that are the same on every runtime. */
function toUnderTest(
  { ownKeys, close, ...rest }: Omit<UnderTest, "headers" | "settled"> & {
    readonly ownKeys: readonly string[];
  },
): UnderTest {
  const { key, records, told } = rest;
  return {
    ...rest,
    headers: {
      "authorization": `Bearer ${UPSTREAM_KEY}`,
      "gateway-auth": `Bearer ${key}`,
      "content-type": "application/json",
    },
    async settled(count = 1) {
      await until(() => records.length >= count, `${count} settled exchanges`);
      return records.at(-1) ?? assert.fail("no exchange");
    },
    async close() {
      await close();
      const all = await told();
      for (const secret of [PROMPT, UPSTREAM_KEY, key, ...ownKeys]) {
        assert.ok(!all.includes(secret), "a secret is told");
      }
    },
  };
}
