/**
 * The gateway: a configuration and parts become something that answers requests. `pipeline.ts`
 * has the way of a request.
 *
 * @module
 */
import { sha256 } from "@noble/hashes/sha2.js";
import { bytesToHex, utf8ToBytes } from "@noble/hashes/utils.js";
import { Accounting } from "./steps/accounting.ts";
import { createBudgetNotes } from "./steps/budget_alerts.ts";
import { embedIdentity } from "./steps/token_verifier_setup.ts";
import type { RevocableToken } from "./keys/identity/revocations.ts";
import type { CallerTokens } from "./keys/identity/verifier.ts";
import { type Digest, holdsGatewayKey } from "./keys/key_format.ts";
import type { KeyStore } from "./keys/key_store.ts";
import { createInlineKeyStore } from "./keys/key_store_memory.ts";
import type { Limiter } from "./limits/limiter.ts";
import type { BudgetWatch } from "./limits/budget_watch.ts";
import { MemoryLimiter } from "./limits/memory_limiter.ts";
import type { KeyResolver } from "./keys/key_resolver.ts";
import { type Config, ConfigError } from "./config/config.ts";
import type { ProviderConfig } from "./config/provider.ts";
import { GatewayError } from "./errors/gateway_error.ts";
import { type Clock, systemClock } from "./exchange/clock.ts";
import type { ExchangeObserver, Tracer } from "./exchange/observer.ts";
import { type Handler, toHandler } from "./http/web.ts";
import { BodyMemory } from "./inbound/body.ts";
import { withCors } from "./inbound/cors.ts";
import { createHostTable } from "./inbound/host.ts";
import { ExchangePlaces, OpenExchanges } from "./exchange/open_exchanges.ts";
import { embedDurable } from "./steps/durable/setup.ts";
import type { DurableExchanges } from "./durable/durable_exchanges.ts";
import { handleRequest } from "./pipeline.ts";
import type { Pipeline, Provider } from "./steps/flow.ts";
import { createHeaderRules } from "./upstream/headers.ts";
import { type ReplicaReport, Replicas } from "./upstream/replicas.ts";
import { createFetchTransport, type Transport } from "./upstream/transport.ts";

/** The parts that differ by runtime or engine. The default of each works anywhere. */
export interface GatewayParts {
  /**
   * Source of gateway keys: a store, or a function that resolves one; by default the keys of the
   * config, in memory.
   */
  readonly keys: KeyStore | KeyResolver;
  /**
   * Tells whether an identity token is revoked, from memory: it is asked at each request. By
   * default none is.
   */
  readonly isRevoked?: ((token: RevocableToken) => boolean) | undefined;
  /** @internal Verifies identity tokens, and outlives this gateway; by default its own. */
  readonly identity?: CallerTokens | undefined;
  /**
   * The limiter, which counts the use of keys and providers; by default one in the memory of this
   * process.
   */
  readonly limiter: Limiter;
  /** The transport, which makes the calls to providers; by default the global `fetch`. */
  readonly transport: Transport;
  /**
   * Transports of single providers, by name, instead of `transport`. A provider with `egress` needs
   * one.
   */
  readonly transports?: Readonly<Record<string, Transport>> | undefined;
  /** The SHA-256 function; by default one in JavaScript. */
  readonly digest: Digest;
  /** Observers, which receive the records of settled exchanges. */
  readonly observers: readonly ExchangeObserver[];
  /** The tracer, which follows exchanges and their calls; by default none. */
  readonly tracer?: Tracer | undefined;
  /** Source of times and timers. */
  readonly clock: Clock;
  /**
   * @internal Transport of all calls, whatever the providers' settings say: of a gateway that must
   * not call out.
   */
  readonly onlyTransport?: Transport | undefined;
  /**
   * @internal Watch of budgets, which outlives a configuration, and the report of messages that are
   * lost.
   */
  readonly budgets?:
    | { readonly watch: BudgetWatch; readonly report: (text: string) => void }
    | undefined;
  /**
   * @internal Durable exchanges, which outlive a configuration; in this process's memory by
   * default; with `null` none.
   */
  readonly durable?: DurableExchanges | null | undefined;
  /** @internal What is counted for all configurations of the same process together. */
  readonly shared?: SharedLoad | undefined;
}

/**
 * @internal The load of gateways that follow one another: the limits of each count the open
 * exchanges of all.
 */
export interface SharedLoad {
  /** Places for the open exchanges of all. */
  readonly exchanges: ExchangePlaces;
  /** Memory for the bodies of all. */
  readonly bodies: BodyMemory;
}

/** A gateway, ready to be mounted. */
export interface Gateway extends Handler {
  /** True while new requests are welcome, as a load balancer asks. */
  readonly isReady: boolean;
  /** The number of open exchanges. */
  readonly openExchanges: number;
  /** The number of open exchanges that are streams. */
  readonly openStreams: number;
  /** State of the replicas of all providers. */
  readonly replicas: readonly ({ readonly provider: string } & ReplicaReport)[];
  /**
   * Sets `isReady` to false and goes on serving, so that load balancers have time to turn
   * elsewhere.
   */
  drain(): void;
  /**
   * Refuses new requests, lets open exchanges finish, and after the limit ends the rest with
   * `gateway_draining`.
   *
   * @param limitMs How long open exchanges may take, milliseconds; the config's `drain.limit` if
   * left out
   */
  close(limitMs?: number): Promise<void>;
}

/** @internal SHA-256 in JavaScript, for where there is no other. */
export function portableDigest(text: string): string {
  return bytesToHex(sha256(utf8ToBytes(text)));
}

/**
 * Makes the store for keys in the configuration. `assemble` makes all others: the core knows no
 * file and no engine.
 */
function inlineKeys({ keys }: Config, digest: Digest): KeyStore {
  if (Array.isArray(keys)) return createInlineKeyStore(keys, digest);
  throw new ConfigError([{
    path: "keys",
    message: "expected an array of keys, or a key store among the parts",
  }]);
}

/** Returns the parts that know whose a key or an identity token is. */
function toKeyParts(
  config: Config,
  { keys, identity: given, isRevoked }: Partial<GatewayParts>,
  parts: { digest: Digest; clock: Clock },
): Pick<Pipeline, "keys" | "identity" | "holdsKey" | "digest"> {
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

/** Transports, for all providers and for single ones. */
type Transports = Pick<GatewayParts, "transport" | "transports" | "onlyTransport">;

/** Returns the transport of a provider. No setting of its way out is passed over in silence. */
function toTransport(name: string, provider: ProviderConfig, parts: Transports): Transport {
  const { transport, transports, onlyTransport } = parts;
  if (onlyTransport !== undefined) return onlyTransport;
  if (provider.transport === "fetch") return createFetchTransport();
  const own = transports?.[name];
  if (own === undefined && provider.egress !== undefined) {
    const message = "expected no such setting: this gateway calls by fetch, which knows none of it";
    throw new ConfigError([{ path: `providers.${name}.egress`, message }]);
  }
  return own ?? transport;
}

/** Returns the providers of a configuration, each with the parts that its calls use. */
function toProviders(
  { providers }: Config,
  { clock, ...transports }: Transports & { clock: Clock },
): Provider[] {
  const all = Object.entries(providers);
  return all.map(([name, provider]) => ({
    name,
    hasOthers: all.length > 1,
    ...provider,
    replicas: new Replicas(provider.upstreams),
    transport: toTransport(name, provider, transports),
    clock,
    headerRules: createHeaderRules(provider.headers),
    subjects: provider.limits === undefined
      ? []
      : [{ name: `provider:${name}`, limits: provider.limits }],
  }));
}

/** Returns the durable exchanges, if any call can be recorded. */
function toDurable(
  config: Config,
  { durable, keys }: Partial<GatewayParts>,
  clock: Clock,
): Pipeline["durable"] {
  return durable === null
    ? undefined
    : durable ?? embedDurable({ ...config, keys: keys ?? config.keys }, clock);
}

/** Returns the state of a provider's replicas. */
function reportReplicas({ name, replicas }: Provider, clock: Clock): Gateway["replicas"] {
  return replicas.report(clock.monotonic()).map((each) => ({ provider: name, ...each }));
}

/** Makes the table that finds a provider by the address that a caller used. */
function toHostTable(providers: readonly Provider[]): Pipeline["resolveProvider"] {
  return createHostTable(
    providers.flatMap((provider) =>
      provider.hosts.map((host): [string, Provider] => [host, provider])
    ),
  );
}

/** Returns the accounting of a configuration: the prices of a provider come first. */
function toAccounting({ providers, prices, currency }: Config): Accounting {
  return new Accounting((name) => [providers[name]?.prices, prices], currency);
}

/** Parts of one gateway that it makes itself. */
interface OwnParts extends Pick<Pipeline, "clock" | "open" | "assertWelcome"> {
  readonly providers: readonly Provider[];
}

/** Returns the parts that the steps of a request use. */
function toPipeline(config: Config, overrides: Partial<GatewayParts>, own: OwnParts): Pipeline {
  const { clock, open, providers } = own;
  const { digest = portableDigest, limiter = new MemoryLimiter(clock), observers = [] } = overrides;
  const { alerts, limits } = config;
  return {
    resolveProvider: toHostTable(providers),
    ...toKeyParts(config, overrides, { digest, clock }),
    limiter,
    accounting: toAccounting(config),
    teams: config.teams,
    durable: toDurable(config, overrides, clock),
    budgets: createBudgetNotes({ alerts, ...overrides.budgets, limiter, digest, clock }),
    observers: observers.map((observer) => (record) => observer.settled(record)),
    tracer: overrides.tracer,
    clock,
    limits,
    bodies: overrides.shared?.bodies ?? new BodyMemory(limits.maxBodiesBytes),
    open,
    listsWithheld: observers.some(({ wantsWithheld }) => wantsWithheld),
    assertWelcome: own.assertWelcome,
  };
}

/**
 * Makes a gateway.
 *
 * @param config A checked configuration, see `parseConfig`
 * @param overrides Parts to use instead of the ones that work anywhere
 * @returns The gateway
 *
 * @example Mount it in anything that speaks fetch
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
  const providers = toProviders(config, { ...overrides, transport, clock });
  const { maxExchanges } = config.limits;
  const open = new OpenExchanges(shared?.exchanges ?? new ExchangePlaces(maxExchanges));
  let isReady = true;
  let isClosing = false;
  const assertWelcome = () => {
    if (isClosing) throw new GatewayError("gateway_draining");
    if (open.places.isOverfull) throw new GatewayError("gateway_overloaded");
  };
  const pipeline = toPipeline(config, overrides, { clock, open, assertWelcome, providers });
  const handle: Handler["handle"] = (request) => handleRequest(request, pipeline);
  return {
    ...toHandler(config.cors === undefined ? handle : withCors(handle, config.cors)),
    get isReady() {
      return isReady;
    },
    get openExchanges() {
      return open.size;
    },
    get openStreams() {
      return Array.from(open).filter(({ facts }) => facts.stream === true).length;
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
        () => open.abort(new GatewayError("gateway_draining")),
      );
      await open.whenEmpty();
      cancelTimer();
      pipeline.identity?.close();
    },
  };
}
