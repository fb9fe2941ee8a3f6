/**
 * A request on its way through the steps, and the parts of the gateway that they use.
 *
 * | type      | from step    | has in addition                                       |
 * | --------- | ------------ | ----------------------------------------------------- |
 * | `Arrival` | 1, arrive    | the request, its exchange, the gateway                |
 * | `Flow`    | 3, identify  | the operation, provider, key, limits and run          |
 * | `Call`    | 5, read      | the body and its facts (`call.ts`), next to a `Flow`  |
 *
 * @module
 */
import type { Config } from "../config/config.ts";
import type { DurableConfig } from "../config/durable.ts";
import type { KeyConfig } from "../config/key.ts";
import type { ProviderConfig } from "../config/provider.ts";
import type { RunRules } from "../config/runs.ts";
import type { ContextEnds, Dialect } from "../dialects/dialect.ts";
import type { DurableExchanges } from "../durable/durable_exchanges.ts";
import type { Clock } from "../exchange/clock.ts";
import type { Exchange } from "../exchange/exchange.ts";
import type { ExchangeObserver, Tracer } from "../exchange/observer.ts";
import type { OpenExchanges } from "../exchange/open_exchanges.ts";
import type { GatewayRequest, Unpack } from "../http/message.ts";
import type { BodyMemory } from "../inbound/body.ts";
import type { Credentials } from "../inbound/credentials.ts";
import type { HostTable } from "../inbound/host.ts";
import type { CallerTokens } from "../keys/identity/verifier.ts";
import type { Digest } from "../keys/key_format.ts";
import type { KeyResolver } from "../keys/key_resolver.ts";
import type { KeyStore } from "../keys/key_store.ts";
import type { TeamDirectory } from "../keys/team_directory.ts";
import type { Lease, Limiter, LimitSubject } from "../limits/limiter.ts";
import type { ResolvedOperation } from "../operations/router.ts";
import type { ForwardParts } from "../upstream/forward.ts";
import type { HeldKey, HeldKeys } from "../upstream/held_keys.ts";
import type { HeaderRules } from "../upstream/headers.ts";
import type { Accounting } from "./accounting.ts";
import type { RunRegistry, StatedRun } from "../runs/run_registry.ts";
import type { AttributionRules } from "./attribution.ts";
import type { LaterUsage } from "./later_usage.ts";
import type { BudgetNotes } from "./budget_alerts.ts";

/** A provider, and the parts that calls to it use. */
export interface Provider extends Omit<ProviderConfig, "transport">, ForwardParts {
  /** Its name in the config. */
  readonly name: string;
  /** True if the gateway has other providers too. */
  readonly hasOthers: boolean;
  /**
   * The provider as a subject of limits: one entry if it has limits for all keys together, else
   * none.
   */
  readonly subjects: readonly LimitSubject[];
  /** The headers that are forwarded, in both directions. */
  readonly headerRules: HeaderRules;
  /** True if it is Azure, which bills some refusals. */
  readonly isAzure: boolean;
  /** Where prices of its models can change. */
  readonly contextEnds: ContextEnds;
  /** Unpacks the bodies of its callers. */
  readonly unpack: Unpack;
}

/** The parts of a gateway that its steps use. */
export interface StepParts {
  readonly resolveProvider: HostTable<Provider>;
  readonly keys: KeyStore | KeyResolver;
  /** Verifies identity tokens; `undefined` if none are accepted. */
  readonly identity: CallerTokens | undefined;
  /** Returns whether a text that will leave the gateway contains a credential for the gateway. */
  readonly holdsKey: (text: string) => boolean;
  readonly digest: Digest;
  readonly teams: TeamDirectory;
  /** Provider keys that the gateway holds. */
  readonly heldKeys: HeldKeys;
  readonly limiter: Limiter;
  readonly accounting: Accounting;
  readonly laterUsage: LaterUsage;
  /** Watch of the budgets; `undefined` if none is configured. */
  readonly budgetNotes: BudgetNotes | undefined;
  /** Durable exchanges; `undefined` if no call can be recorded. */
  readonly durable: DurableExchanges | undefined;
  /** Headers that attribute a call; empty if none is configured. */
  readonly attribution: AttributionRules;
  readonly runs: RunRegistry;
  readonly runRules: RunRules;
  readonly observers: readonly ExchangeObserver["settled"][];
  readonly tracer: Tracer | undefined;
  readonly clock: Clock;
  readonly limits: Config["limits"];
  readonly bodies: BodyMemory;
  readonly openExchanges: OpenExchanges;
  /** True if an observer wants the names of headers that were withheld. */
  readonly listsWithheld: boolean;
  /**
   * Refuses a request if the gateway is closing, or has too many open exchanges.
   *
   * @throws {GatewayError} `gateway_draining`, `gateway_overloaded`
   */
  assertWelcome(): void;
}

/** A request that has arrived. Its caller and its operation are not known yet. */
export interface Arrival {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: StepParts;
  /**
   * Dialect of an error; `OPAQUE` before the operation is known, and for operations without a
   * dialect.
   */
  dialect: Dialect;
}

/** The request of a caller for a recording. */
export interface WantedRecording {
  readonly settings: DurableConfig;
  /** Key with which a retry finds its answer; `undefined` if the caller sent none. */
  readonly idempotencyKey: string | undefined;
  /** True if a client library retries the request; `undefined` if that does not matter. */
  readonly isRetry: boolean | undefined;
  /** True if the caller itself asks for it. All other calls can run without a recording. */
  readonly isNeeded: boolean;
}

/** A request with its caller, its operation and its limits. */
export interface Flow {
  readonly request: GatewayRequest;
  readonly exchange: Exchange;
  readonly gateway: StepParts;
  readonly provider: Provider;
  readonly operation: ResolvedOperation;
  readonly key: KeyConfig;
  /** The gateway key in plain text. */
  readonly presentedKey: string;
  /** Headers with the key at the provider; empty for a held key that is not read yet. */
  credentials: Credentials;
  /** The key of the gateway that the call uses; `undefined` if the caller sends its own. */
  readonly heldKey: HeldKey | undefined;
  /** The subjects whose limits count it: its key, the key's team and the provider. */
  readonly subjects: readonly LimitSubject[];
  /** The run that it belongs to; `undefined` for most calls. */
  readonly run: StatedRun | undefined;
  /** True if tokens or money must be reserved, which needs the body. */
  readonly needsReservation: boolean;
  /** `undefined` for a call that is not recorded. */
  readonly wantedRecording: WantedRecording | undefined;
  /**
   * The lease that was acquired before the body was read, see `admission.ts`; `undefined` without
   * one, and after it was undone. `countsAll` is true if it counts all limits, so that no second one
   * follows.
   */
  firstLease: { readonly lease: Lease; readonly countsAll: boolean } | undefined;
}
