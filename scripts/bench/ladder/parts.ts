/** The parts of the gateway that the rungs use, as `gateway.ts` makes them. */
import { createHash } from "node:crypto";
import { setImmediate } from "node:timers/promises";
import { parseConfig } from "../../../src/config/config.ts";
import { systemClock as clock } from "../../../src/exchange/clock.ts";
import { OpenExchanges } from "../../../src/exchange/open_exchanges.ts";
import type { ExchangeRecord } from "../../../src/exchange/record.ts";
import { createGateway, type Gateway } from "../../../src/gateway.ts";
import { BodyMemory } from "../../../src/inbound/body.ts";
import { createHostTable } from "../../../src/inbound/host.ts";
import { holdsGatewayKey } from "../../../src/keys/key_format.ts";
import { createInlineKeyStore } from "../../../src/keys/key_store_memory.ts";
import { TeamDirectory } from "../../../src/keys/team_directory.ts";
import { MemoryLimiter } from "../../../src/limits/memory_limiter.ts";
import { AccessLog } from "../../../src/observe/access_log.ts";
import { MetricRegistry } from "../../../src/observe/metrics/metric_registry.ts";
import { Metrics } from "../../../src/observe/metrics/metrics.ts";
import { ObserverBatch } from "../../../src/observe/observer_batch.ts";
import { MemoryRuns } from "../../../src/runs/memory_runs.ts";
import { createAccounting } from "../../../src/steps/accounting.ts";
import type { AwaitedCall } from "../../../src/steps/awaited_call.ts";
import type { Provider, StepParts } from "../../../src/steps/flow.ts";
import { LaterUsage } from "../../../src/steps/later_usage.ts";
import { createHeaderRules } from "../../../src/upstream/headers.ts";
import { HeldKeys } from "../../../src/upstream/held_keys.ts";
import { createHttp1Transport } from "../../../src/upstream/http1/client.ts";
import { Replicas } from "../../../src/upstream/replicas.ts";
import type { Transport } from "../../../src/upstream/transport.ts";
import { toUnpack } from "../../../src/upstream/unpack.ts";
import { MemoryAwaitedCalls } from "../../../src/usage/awaited_calls.ts";
import { UsageMeter } from "../../../src/usage/meter.ts";
import { MemoryUsage } from "../../../src/usage/usage_memory.ts";
import { dialIn, KEY, type Kind } from "./stand_in.ts";

const CONFIG = parseConfig({
  providers: { a: { hosts: ["*"], upstream: "http://127.0.0.1:9/v1" } },
  keys: [{ id: "me", key: KEY, limits: { requests: "1G/h", tokens: "1000G/h" } }],
});
const digest = (text: string): string => createHash("sha256").update(text).digest("hex");

function fail(): never {
  throw new Error("The configuration has no provider or no keys");
}

/** Creates the log, the metrics and the usage. The log is written nowhere. */
function createObservers(): ObserverBatch {
  const usage = new UsageMeter({
    store: new MemoryUsage(new Set(), Date.now),
    clock,
    rest: setImmediate,
    listed: new Set(),
  });
  const log = new AccessLog("json", (_text, done) => done(null), clock);
  return new ObserverBatch([usage, new Metrics(new MetricRegistry()), log], clock);
}

function toProvider(transport: Transport): Provider {
  const [[name, provider] = fail()] = Object.entries(CONFIG.providers);
  return {
    ...provider,
    name,
    hasOthers: false,
    subjects: [],
    replicas: new Replicas(provider.upstreams),
    transport,
    unpack: toUnpack(transport),
    clock,
    headerRules: createHeaderRules(provider.headers),
    isAzure: false,
    contextEnds: () => [],
  };
}

/** Parts for the rungs of one kind of calls. */
export interface LadderParts {
  readonly provider: Provider;
  readonly unobserved: StepParts;
  readonly observed: StepParts;
  /** The gateway of the product. */
  readonly gateway: Gateway;
  /** Passes all records to the observers. They would otherwise wait for a timer. */
  flush(): void;
}

export function createParts(kind: Kind): LadderParts {
  const transport = createHttp1Transport(dialIn(kind));
  const provider = toProvider(transport);
  const accounting = createAccounting(CONFIG);
  const limiter = new MemoryLimiter(clock);
  const runs = new MemoryRuns(clock);
  const calls = new MemoryAwaitedCalls<AwaitedCall>(clock);
  const observer = createObservers();
  const unobserved: StepParts = {
    resolveProvider: createHostTable([["*", provider]]),
    keys: createInlineKeyStore(Array.isArray(CONFIG.keys) ? CONFIG.keys : fail(), digest),
    identity: undefined,
    holdsKey: holdsGatewayKey,
    digest,
    teams: new TeamDirectory(CONFIG.teams),
    heldKeys: new HeldKeys(CONFIG, () => "", clock),
    limiter,
    accounting,
    laterUsage: new LaterUsage({ calls, accounting, limiter, runs, clock, restated() {} }),
    budgetNotes: undefined,
    durable: undefined,
    attribution: [],
    runs,
    runRules: { ...CONFIG.runs, currency: CONFIG.currency },
    observers: [],
    tracer: undefined,
    clock,
    limits: CONFIG.limits,
    bodies: new BodyMemory(CONFIG.limits.maxBodiesBytes),
    openExchanges: new OpenExchanges(),
    listsWithheld: false,
    assertWelcome() {},
  };
  const settled = (record: ExchangeRecord) => observer.settled(record);
  const observed = { ...unobserved, observers: [settled] };
  const observers = [observer];
  const gateway = createGateway(CONFIG, { transport, digest, limiter, observers, clock });
  return { provider, unobserved, observed, gateway, flush: () => observer.flush() };
}
