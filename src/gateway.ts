/**
 * The gateway: made of a configuration and parts, it answers requests. `pipeline.ts` has the steps
 * of a request.
 *
 * @module
 */
import type { ReportEvent } from "./exchange/reported_event.ts";
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { createAccounting } from "./steps/accounting.ts";
import { toAttributionRules } from "./steps/attribution.ts";
import type { AwaitedCall } from "./steps/awaited_call.ts";
import { LaterUsage } from "./steps/later_usage.ts";
import { type AwaitedCalls, MemoryAwaitedCalls } from "./usage/awaited_calls.ts";
import { MemoryRuns } from "./runs/memory_runs.ts";
import type { RunRegistry } from "./runs/run_registry.ts";
import { createBudgetNotes } from "./steps/budget_alerts.ts";
import { embedIdentity } from "./steps/token_verifier_setup.ts";
import type { RevocableToken } from "./keys/identity/revocations.ts";
import type { CallerTokens } from "./keys/identity/verifier.ts";
import { type Digest, holdsGatewayKey } from "./keys/key_format.ts";
import type { KeyStore } from "./keys/key_store.ts";
import { createInlineKeyStore } from "./keys/key_store_memory.ts";
import { TeamDirectory } from "./keys/team_directory.ts";
import type { Limiter } from "./limits/limiter.ts";
import type { BudgetWatch } from "./limits/budget_watch.ts";
import { MemoryLimiter } from "./limits/memory_limiter.ts";
import type { KeyResolver } from "./keys/key_resolver.ts";
import { type Config, ConfigError } from "./config/config.ts";
import { contextEndsOf } from "./config/context_ends.ts";
import { isAtAzure } from "./config/shape.ts";
import type { PriceBook } from "./config/price_book.ts";
import type { ProviderConfig } from "./config/provider.ts";
import { GatewayError } from "./errors/gateway_error.ts";
import { type Clock, systemClock } from "./exchange/clock.ts";
import type { ExchangeObserver, RestatedCall, Tracer } from "./exchange/observer.ts";
import { type Handler, toHandler } from "./http/web.ts";
import { BodyMemory } from "./inbound/body.ts";
import { withCors } from "./inbound/cors.ts";
import { createHostTable, type HostEntry } from "./inbound/host.ts";
import { ExchangeSlots, OpenExchanges } from "./exchange/open_exchanges.ts";
import { embedDurable } from "./steps/durable/setup.ts";
import type { DurableExchanges } from "./durable/durable_exchanges.ts";
import { handleRequest } from "./pipeline.ts";
import type { Provider, StepParts } from "./steps/flow.ts";
import { createHeaderRules } from "./upstream/headers.ts";
import { type HeldKeyReader, HeldKeys, listHeldKeys } from "./upstream/held_keys.ts";
import { type ReplicaReport, Replicas } from "./upstream/replicas.ts";
import { createFetchTransport, type Transport } from "./upstream/transport.ts";
import { toUnpack } from "./upstream/unpack.ts";

/** The parts that differ by runtime or engine. Their defaults work everywhere. */
export interface GatewayParts {
  /**
   * Source of gateway keys: a store, or a function that resolves a key. Default: the keys of the
   * config, in memory.
   */
  readonly keys: KeyStore | KeyResolver;
  /**
   * Returns whether an identity token is revoked. Runs at each request, so it must answer from
   * memory. Default: no token is revoked.
   */
  readonly isRevoked?: ((token: RevocableToken) => boolean) | undefined;
  /**
   * @internal Verifies identity tokens. Outlives this gateway. Default: a verifier of this gateway
   * alone.
   */
  readonly identity?: CallerTokens | undefined;
  /**
   * The limiter, which counts the use of keys and providers. Default: a limiter in the memory of
   * this process.
   */
  readonly limiter: Limiter;
  /**
   * The registry of runs, which counts and stops the runs of agents. Default: a registry in the
   * memory of this process.
   */
  readonly runs: RunRegistry;
  /** The transport, which makes the calls to providers. Default: the global `fetch`. */
  readonly transport: Transport;
  /**
   * Transports of single providers, by name, instead of `transport`. A provider with `egress` needs
   * one.
   */
  readonly transports?: Readonly<Record<string, Transport>> | undefined;
  /**
   * Reads provider keys that the gateway holds. A configuration with such keys needs it. Default:
   * none.
   */
  readonly readHeldKey?: HeldKeyReader | undefined;
  /** The SHA-256 function. Default: an implementation in JavaScript. */
  readonly digest: Digest;
  /** Observers, which receive the records of settled exchanges. */
  readonly observers: readonly ExchangeObserver[];
  /** The tracer, which follows exchanges and their calls. Default: none. */
  readonly tracer?: Tracer | undefined;
  /** Source of times and timers. */
  readonly clock: Clock;
  /**
   * @internal Transport of all calls, regardless of the providers' settings. For a gateway that
   * must not make network calls.
   */
  readonly onlyTransport?: Transport | undefined;
  /**
   * @internal Watch of budgets, which outlives a configuration, and the report of alerts that could
   * not be delivered.
   */
  readonly budgets?:
    | { readonly watch: BudgetWatch; readonly report: ReportEvent }
    | undefined;
  /**
   * @internal Durable exchanges, which outlive a configuration. Default: in the memory of this
   * process. `null`: none.
   */
  readonly durable?: DurableExchanges | null | undefined;
  /**
   * @internal Calls whose usage is stated later. They outlive a configuration. Default: in the
   * memory of this process.
   */
  readonly awaitedCalls?: AwaitedCalls<AwaitedCall> | undefined;
  /** @internal The teams of keys. Default: the teams of the configuration. */
  readonly teams?: TeamDirectory | undefined;
  /** @internal The load that all configurations of this process share. */
  readonly shared?: SharedLoad | undefined;
}

/**
 * @internal The load of gateways that replace one another at a reload: the limits of each count the
 * open exchanges of all.
 */
export interface SharedLoad {
  /** Slots for the open exchanges of all gateways. */
  readonly exchanges: ExchangeSlots;
  /** Memory for the bodies of all gateways. */
  readonly bodies: BodyMemory;
}

/** A gateway, ready to be mounted. */
export interface Gateway extends Handler {
  /** True while new requests are accepted. For the readiness check of a load balancer. */
  readonly isReady: boolean;
  /** The number of open exchanges. */
  readonly openExchanges: number;
  /** The number of open exchanges that are streams. */
  readonly openStreams: number;
  /** State of the replicas of all providers. */
  readonly replicas: readonly ({ readonly provider: string } & ReplicaReport)[];
  /**
   * Sets `isReady` to false and continues to serve, so that load balancers have time to choose
   * other instances.
   */
  drain(): void;
  /**
   * Refuses new requests and lets open exchanges finish. After the limit, it ends the rest with
   * `gateway_draining`.
   *
   * @param limitMs The longest time to wait for open exchanges, in milliseconds. Default:
   * `drain.limit` of the config
   */
  close(limitMs?: number): Promise<void>;
}

/** @internal SHA-256 in JavaScript, for runtimes without another implementation. */
export function portableDigest(text: string): string {
  return bytesToHex(sha256(utf8ToBytes(text)));
}

/**
 * Makes the store for keys in the configuration. `assemble` makes all other stores, because the
 * core uses no files and no engine.
 */
function inlineKeys({ keys }: Config, digest: Digest): KeyStore {
  if (Array.isArray(keys)) return createInlineKeyStore(keys, digest);
  throw new ConfigError([{
    path: "keys",
    message: "expected an array of keys, or a key store among the parts",
  }]);
}

/** Returns the parts that resolve keys and identity tokens. */
function toKeyParts(
  config: Config,
  { keys, identity: given, isRevoked }: Partial<GatewayParts>,
  parts: { digest: Digest; clock: Clock },
): Pick<StepParts, "keys" | "identity" | "holdsKey" | "digest"> {
  const identity = given ?? embedIdentity(config, { ...parts, isRevoked });
  return {
    digest: parts.digest,
    keys: keys ?? inlineKeys(config, parts.digest),
    identity,
    holdsKey: identity === undefined
      ? holdsGatewayKey
      : (text) => holdsGatewayKey(text) || identity.isHeldIn(text),
  };
}

/** Returns the function that reads held keys. Throws if there are some, and no such function. */
function toHeldKeyReader(config: Config, { readHeldKey }: Partial<GatewayParts>): HeldKeyReader {
  if (readHeldKey !== undefined) return readHeldKey;
  const sources = listHeldKeys(config);
  if (sources.length === 0) return () => "";
  const message = "expected no held key: this gateway has no function that reads it";
  throw new ConfigError(sources.map(({ path }) => ({ path, message })));
}

/** Transports, for all providers and for single ones. */
type Transports = Pick<GatewayParts, "transport" | "transports" | "onlyTransport">;

/**
 * Returns the transport of a provider. Throws if a setting such as `egress` has no transport, unless
 * one transport replaces all.
 */
function toTransport(name: string, provider: ProviderConfig, parts: Transports): Transport {
  const { transport, transports, onlyTransport } = parts;
  if (provider.transport === "fetch") return createFetchTransport();
  const own = transports?.[name];
  const lacksEgress = own === undefined && provider.egress !== undefined;
  if (lacksEgress && onlyTransport === undefined) {
    const message = "expected no such setting: this gateway calls by fetch, which knows none of it";
    throw new ConfigError([{ path: `providers.${name}.egress`, message }]);
  }
  return own ?? transport;
}

/** Returns the providers of a configuration, each with the parts that its calls use. */
function toProviders(
  { providers }: Config,
  { clock, ...transports }: Transports & { clock: Clock },
  book: PriceBook,
): Provider[] {
  const all = Object.entries(providers);
  return all.map(([name, provider]) => {
    const own = toTransport(name, provider, transports);
    return {
      name,
      hasOthers: all.length > 1,
      ...provider,
      replicas: new Replicas(provider.upstreams),
      transport: transports.onlyTransport ?? own,
      // Bodies are read as if the provider were called.
      unpack: toUnpack(own),
      clock,
      headerRules: createHeaderRules(provider.headers),
      isAzure: isAtAzure(provider),
      contextEnds: (model) => contextEndsOf(book.find({ provider: name, model })),
      subjects: provider.limits === undefined
        ? []
        : [{ name: `provider:${name}`, limits: provider.limits }],
    };
  });
}

/** Returns the durable exchanges, if any call can be recorded. */
function toDurable(
  config: Config,
  { durable, keys }: Partial<GatewayParts>,
  clock: Clock,
): StepParts["durable"] {
  return durable === null
    ? undefined
    : durable ?? embedDurable({ ...config, keys: keys ?? config.keys }, clock);
}

/** Returns the state of a provider's replicas. */
function reportReplicas({ name, replicas }: Provider, clock: Clock): Gateway["replicas"] {
  return replicas.report(clock.monotonic()).map((each) => ({ provider: name, ...each }));
}

/** Makes the table that finds a provider by the address that a caller used. */
function toHostTable(providers: readonly Provider[]): StepParts["resolveProvider"] {
  return createHostTable(
    providers.flatMap((provider) =>
      provider.hosts.map((host): HostEntry<Provider> => [
        host,
        provider,
        provider.shape === "v1" ? undefined : "anyPath",
      ])
    ),
  );
}

/** Parts that a gateway makes for itself. */
interface OwnParts
  extends Pick<StepParts, "accounting" | "clock" | "openExchanges" | "assertWelcome"> {
  readonly providers: readonly Provider[];
}

/** Returns the parts that the steps of a request use. */
function toStepParts(config: Config, overrides: Partial<GatewayParts>, own: OwnParts): StepParts {
  const { accounting, clock, openExchanges, providers } = own;
  const { runs = new MemoryRuns(clock) } = overrides;
  const { digest = portableDigest, limiter = new MemoryLimiter(clock), observers = [] } = overrides;
  const { alerts, limits } = config;
  const calls = overrides.awaitedCalls ?? new MemoryAwaitedCalls<AwaitedCall>(clock);
  const restated = (call: RestatedCall) => {
    for (const observer of observers) observer.restated?.(call);
  };
  return {
    resolveProvider: toHostTable(providers),
    ...toKeyParts(config, overrides, { digest, clock }),
    limiter,
    accounting,
    laterUsage: new LaterUsage({ calls, accounting, limiter, runs, clock, restated }),
    teams: overrides.teams ?? new TeamDirectory(config.teams),
    heldKeys: new HeldKeys(config, toHeldKeyReader(config, overrides), clock),
    durable: toDurable(config, overrides, clock),
    budgetNotes: createBudgetNotes({ alerts, ...overrides.budgets, limiter, digest, clock }),
    attribution: toAttributionRules(config.attribution.sources),
    runs,
    runRules: { ...config.runs, currency: config.currency },
    observers: observers.map((observer) => (record) => observer.settled(record)),
    tracer: overrides.tracer,
    clock,
    limits,
    bodies: overrides.shared?.bodies ?? new BodyMemory(limits.maxBodiesBytes),
    openExchanges,
    listsWithheld: observers.some(({ wantsWithheld }) => wantsWithheld),
    assertWelcome: own.assertWelcome,
  };
}

/**
 * Makes a gateway.
 *
 * @param config A checked configuration, see `parseConfig`
 * @param overrides Parts to use instead of the defaults
 * @returns The gateway
 *
 * @example Mount it in any fetch-style server
 * ```ts
 * import { createGateway, parseConfig } from "sallyport";
 *
 * const gateway = createGateway(parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * }));
 * export default { fetch: gateway.fetch };
 * ```
 */
export function createGateway(config: Config, overrides: Partial<GatewayParts> = {}): Gateway {
  const { clock = systemClock, transport = createFetchTransport(), shared } = overrides;
  const accounting = createAccounting(config);
  const providers = toProviders(config, { ...overrides, transport, clock }, accounting.book);
  const { maxExchanges } = config.limits;
  const openExchanges = new OpenExchanges(shared?.exchanges ?? new ExchangeSlots(maxExchanges));
  let isReady = true;
  let isClosing = false;
  const assertWelcome = () => {
    if (isClosing) throw new GatewayError("gateway_draining");
    if (openExchanges.slots.isOverfull) throw new GatewayError("gateway_overloaded");
  };
  const own = { accounting, clock, openExchanges, assertWelcome, providers };
  const stepParts = toStepParts(config, overrides, own);
  const handle: Handler["handle"] = (request) => handleRequest(request, stepParts);
  return {
    ...toHandler(config.cors === undefined ? handle : withCors(handle, config.cors)),
    get isReady() {
      return isReady;
    },
    get openExchanges() {
      return openExchanges.size;
    },
    get openStreams() {
      return Array.from(openExchanges).filter(({ facts }) => facts.stream === true).length;
    },
    get replicas() {
      return providers.flatMap((provider) => reportReplicas(provider, clock));
    },
    drain() {
      isReady = false;
    },
    async close(limitMs = config.drain.limitMs) {
      isReady = false;
      isClosing = true;
      const cancelTimer = clock.timer(
        limitMs,
        () => openExchanges.abort(new GatewayError("gateway_draining")),
      );
      await openExchanges.whenEmpty();
      cancelTimer();
      stepParts.identity?.close();
    },
  };
}
