/**
 * Sallyport: a gateway in front of model providers. It checks two credentials, forwards calls,
 * streams answers and accounts for usage.
 *
 * The library is a plain `Request -> Response` handler. The same file is the command line when it
 * is run as a program.
 *
 * @example
 * ```ts
 * import { createGateway, parseConfig } from "sallyport";
 *
 * const gateway = createGateway(parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * }));
 * Deno.serve(gateway.fetch);
 * ```
 *
 * @module
 */
export {
  type Config,
  ConfigError,
  type ConfigInput,
  type ConfigIssue,
  type FileKeysConfig,
  type FileKeysInput,
  type KeysConfig,
  parseConfig,
  type RedisKeysConfig,
  type RedisKeysInput,
  type StoredKeysConfig,
} from "./src/config/config.ts";
export type {
  AttributionConfig,
  AttributionInput,
  AttributionPreset,
  Sources,
} from "./src/config/attribution.ts";
export type { Attribution, Dimension } from "./src/config/dimensions.ts";
export type { CorsConfig, CorsInput } from "./src/config/cors.ts";
export type { DurableConfig, DurableInput } from "./src/config/durable.ts";
export type { EgressConfig, EgressInput, EgressSettings } from "./src/config/egress.ts";
export type { LimitsConfig, LimitsInput } from "./src/config/gateway_limits.ts";
export type { HeadersConfig, HeadersInput } from "./src/config/headers.ts";
export type { HeldKeyInput, HeldKeySource } from "./src/config/held_key.ts";
export type {
  ClaimInput,
  ClaimRule,
  IdentityConfig,
  IdentityInput,
  KeySetInput,
  MappedClaim,
  OperatorsConfig,
  TokenAlgorithm,
  WrittenRequire,
  WrittenRule,
} from "./src/config/identity.ts";
export type { SecretSource, SignInConfig, SignInInput } from "./src/config/sign_in.ts";
export type { KeyConfig, KeyInput } from "./src/config/key.ts";
export type { OperationGroup, WrittenGroup } from "./src/config/operation_groups.ts";
export type { LimitMode, LimitSet, WrittenLimits } from "./src/config/limit_set.ts";
export type { AdminConfig, AdminInput, ListenConfig, ListenInput } from "./src/config/listeners.ts";
export type { ProviderConfig, ProviderInput } from "./src/config/provider.ts";
export type { ProviderCharges, TimeoutCharge } from "./src/config/provider_charges.ts";
export type { DeadlinesConfig, DeadlinesInput } from "./src/config/deadlines.ts";
export type { OnRepeat, RunsConfig, RunsInput } from "./src/config/runs.ts";
export type { ShapeName } from "./src/config/shape.ts";
export type {
  Decimal,
  FactorWhen,
  HoursOfDays,
  Price,
  PriceFactor,
  PriceRow,
  Prices,
  Rates,
  RowWhen,
} from "./src/config/prices.ts";
export type { TeamConfig, TeamInput } from "./src/config/team.ts";
export type { AlertsConfig } from "./src/config/alerts.ts";
export type { Budget, Money, MoneyBudget, Rate } from "./src/config/units.ts";
export type {
  RedisConfig,
  RedisInput,
  RedisTlsConfig,
  SentinelConfig,
} from "./src/config/redis.ts";
export type { AdminErrorCode } from "./src/errors/admin_errors.ts";
export type { ErrorSpec } from "./src/errors/error_spec.ts";
export { type ErrorCode, ERRORS } from "./src/errors/codes.ts";
export { GatewayError } from "./src/errors/gateway_error.ts";
export {
  type Concern,
  concernOf,
  type EndFacts,
  type FailureCause,
  type Outcome,
  type TokenFault,
} from "./src/errors/outcomes.ts";
export type {
  AnyBody,
  ByteSink,
  ByteSource,
  GatewayRequest,
  GatewayResponse,
  PushedBody,
  Unpack,
} from "./src/http/message.ts";
export type { DurableErrorCode } from "./src/errors/durable_errors.ts";
export type { RequestErrorCode } from "./src/errors/request_errors.ts";
export type { UpstreamErrorCode } from "./src/errors/upstream_errors.ts";
export type { Clock } from "./src/exchange/clock.ts";
export type {
  BillingClass,
  ClassAmounts,
  InputClass,
  OutputClass,
  Tariff,
  TokenUsage,
  UnitClass,
  UsagePart,
} from "./src/exchange/billing.ts";
export type { ExchangeFacts, ExchangeRecord } from "./src/exchange/record.ts";
export type {
  ExchangeObserver,
  ExchangeTrace,
  RestatedCall,
  TracedCall,
  TracedExchange,
  Tracer,
} from "./src/exchange/observer.ts";
export type { Handler } from "./src/http/web.ts";
export { createGateway, type Gateway, type GatewayParts } from "./src/gateway.ts";
export type { HeldKeyReader } from "./src/upstream/held_keys.ts";
export type { Digest } from "./src/keys/key_format.ts";
export type { ResolvedKey } from "./src/config/key.ts";
export type { RevocableToken } from "./src/keys/identity/revocations.ts";
export type { KeyResolver } from "./src/keys/key_resolver.ts";
export type { GatewayKey, KeyStore, LaterPart } from "./src/keys/key_store.ts";
export type { LimitName } from "./src/config/limit_kinds.ts";
export type {
  Amounts,
  Correction,
  Lease,
  Limiter,
  LimitStatus,
  LimitSubject,
  Reservation,
} from "./src/limits/limiter.ts";
export type {
  RunBody,
  RunBounds,
  RunCall,
  RunCorrection,
  RunLease,
  RunLimits,
  RunRegistry,
  RunReservation,
  RunStatus,
  StatedRun,
} from "./src/runs/run_registry.ts";
export type { ReplicaReport } from "./src/upstream/replicas.ts";
export type {
  Abortable,
  HeldBody,
  Transport,
  UpstreamCall,
  UpstreamResponse,
} from "./src/upstream/transport.ts";

// No await here: CommonJS cannot `require` a module with top-level await.
if (import.meta.main) import("./src/cli/main.ts").then(({ main }) => main());
