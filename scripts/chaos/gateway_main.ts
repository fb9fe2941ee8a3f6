/**
 * A gateway as a separate process, with its real listeners, that reports its state to its parent
 * process.
 *
 * The first line on stdin is a {@link Setup}; after that `stats` is answered with {@link Stats},
 * and `close` ends the process gracefully. Every answer is one line of JSON on stdout.
 */
import process from "node:process";
import { createInterface } from "node:readline";
import { MemoryLimiter } from "../../src/limits/memory_limiter.ts";
import { type Config, parseConfig } from "../../src/config/config.ts";
import type { ProviderInput } from "../../src/config/provider.ts";
import type { DurableExchanges } from "../../src/durable/durable_exchanges.ts";
import { RedisRecordings } from "../../src/durable/redis/recording_store.ts";
import type { GatewayRequest } from "../../src/http/message.ts";
import { systemClock } from "../../src/exchange/clock.ts";
import type { ExchangeRecord } from "../../src/exchange/record.ts";
import type { ExchangeObserver } from "../../src/exchange/observer.ts";
import type { Gateway } from "../../src/gateway.ts";
import { composeGateway, resolveServe } from "../../src/serve/compose.ts";
import {
  closeListeners,
  containCrashes,
  disablePretenuring,
  openListener,
} from "../../src/serve/lifecycle.ts";
import type { TlsIdentity } from "../../src/serve/listener.ts";
import { createDurableExchanges, embedDurable } from "../../src/steps/durable/setup.ts";
import { RedisClient } from "../../src/storage/redis_client.ts";

/** The configuration to start with. Each provider has a separate listener and host. */
export interface Setup {
  /** Settings of each provider, without `hosts`. */
  readonly providers: Readonly<Record<string, ProviderInput>>;
  readonly key: string;
  /** A second gateway key. */
  readonly otherKey?: string;
  readonly limits: Readonly<Record<string, unknown>>;
  readonly bodyTimeMs: number;
  /** With it there is one more listener, `tls`, which accepts TLS. */
  readonly tls?: TlsIdentity;
  /** True if each settled exchange is reported, which costs time. */
  readonly tellsSettled: boolean;
  /** Redis for recordings of durable exchanges; without it, they are in memory. */
  readonly redis?: string;
}

/** The reported fields of a settled exchange. */
export type Settled = Pick<
  ExchangeRecord,
  "id" | "outcome" | "status" | "code" | "provider" | "retries"
>;

/** The state of the gateway, after a garbage collection. */
export interface Stats {
  /** Requests that reached the handler, and exchanges that were settled. */
  readonly begun: number;
  readonly settled: number;
  /** Open exchanges, according to the gateway's own counter. */
  readonly open: number;
  /** Leases of the key's limit of concurrency that are in use. */
  readonly leases: number;
  /** Durable exchanges that run, and the bytes of all recordings in memory. */
  readonly recordings: { readonly running: number; readonly bytes: number };
  /** Resident memory in bytes. */
  readonly rss: number;
  readonly heap: number;
  readonly external: number;
}

/** One line of the output. */
export type Message =
  | { readonly type: "ready"; readonly urls: Readonly<Record<string, string>> }
  | { readonly type: "settled"; readonly record: Settled }
  | { readonly type: "stats"; readonly stats: Stats }
  | { readonly type: "crash"; readonly text: string };

/** Limits that are never reached, but are counted. */
const MANY = 1_000_000;
const KEY_LIMITS = { requests: "1G/h", tokens: "1G/h", concurrency: MANY };

declare const Bun: { gc(isForced: boolean): void } | undefined;
declare const gc: (() => void) | undefined;

/**
 * Collects twice, one turn of the event loop apart: the second collection frees the objects that
 * finalisers released.
 */
async function collectGarbage(): Promise<void> {
  for (let round = 0; round < 2; round++) {
    if (typeof Bun !== "undefined") Bun.gc(true);
    else if (typeof gc !== "undefined") gc();
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function tell(message: Message): void {
  process.stdout.write(JSON.stringify(message) + "\n");
}

/** Opens the store of durable exchanges, if a call can be recorded. */
async function openRecordings(
  config: Config,
  redis: string | undefined,
): Promise<DurableExchanges | undefined> {
  if (redis === undefined) return embedDurable(config, systemClock);
  const client = new RedisClient(redis, systemClock, (text) => tell({ type: "crash", text }));
  await client.ready();
  const maxBytes = () => config.limits.maxRecordingsBytes;
  return createDurableExchanges(
    new RedisRecordings({ client, clock: systemClock, maxBytes }),
    systemClock,
  );
}

async function start(
  { providers, key, otherKey, limits, bodyTimeMs, tls, tellsSettled, redis }: Setup,
) {
  const counts = { begun: 0, settled: 0 };
  // The hosts need ports, which are known only once the listeners are open.
  const built: { gateway?: Gateway } = {};
  const ready = (): Gateway => {
    if (built.gateway === undefined) throw new Error("Cannot answer: the gateway is not built yet");
    return built.gateway;
  };
  const handler = {
    fetch(request: Request) {
      counts.begun++;
      return ready().fetch(request);
    },
    handle(request: GatewayRequest) {
      counts.begun++;
      return ready().handle(request);
    },
  };
  const names = [...Object.keys(providers), ...(tls === undefined ? [] : ["tls"])];
  const serve = await resolveServe();
  const hostname = "127.0.0.1";
  const open = (name: string) => {
    const address = { hostname, port: 0, bodyTimeMs, tls: name === "tls" ? tls : undefined };
    return openListener(handler, serve, address, hostname);
  };
  const opened = await Promise.all(
    names.map(async (name) => ({ name, listener: await open(name) })),
  );
  const listeners = opened.map(({ listener }) => listener);
  const urls = Object.fromEntries(opened.map(({ name, listener }) => [name, listener.url]));
  const config = parseConfig({
    providers: Object.fromEntries(
      Object.entries(providers).map(([name, settings]) => [name, {
        hosts: [new URL(String(urls[name])).host],
        ...settings,
      }]),
    ),
    keys: [
      { id: "caller", key, limits: KEY_LIMITS },
      ...(otherKey === undefined ? [] : [{ id: "other", key: otherKey }]),
    ],
    limits,
  });
  const observer: ExchangeObserver = {
    settled({ id, outcome, status, code, provider, retries }) {
      counts.settled++;
      if (!tellsSettled) return;
      const rest = { ...(code && { code }), ...(provider && { provider }) };
      tell({ type: "settled", record: { id, outcome, status, retries, ...rest } });
    },
  };
  const limiter = new MemoryLimiter(systemClock);
  const durable = await openRecordings(config, redis);
  const gateway = built.gateway = composeGateway(config, {
    limiter,
    observers: [observer],
    durable,
  });
  const countLeases = () => {
    const statuses = limiter.statuses([{ name: "key:caller", limits: { concurrency: MANY } }]);
    return statuses.reduce((sum, { used }) => sum + used, 0);
  };
  const countRecordings = () => ({
    running: durable?.running ?? 0,
    bytes: durable?.store.bytes ?? 0,
  });
  return { gateway, listeners, counts, urls, countLeases, countRecordings };
}

disablePretenuring(); // as `serve` does
containCrashes((text) => tell({ type: "crash", text }));
const lines = createInterface({ input: process.stdin });
let running: Awaited<ReturnType<typeof start>> | undefined;
lines.on("line", async (line) => {
  if (running === undefined) {
    running = await start(JSON.parse(line));
    tell({ type: "ready", urls: running.urls });
  } else if (line === "stats") {
    await collectGarbage();
    const { rss, heapUsed, external } = process.memoryUsage();
    tell({
      type: "stats",
      stats: {
        ...running.counts,
        open: running.gateway.openExchanges,
        leases: running.countLeases(),
        recordings: running.countRecordings(),
        rss,
        heap: heapUsed,
        external,
      },
    });
  } else {
    await closeListeners(running.gateway, running.listeners, { delayMs: 0, limitMs: 2000 });
    process.exit(0);
  }
});
// The parent process has ended.
lines.on("close", () => process.exit(0));
