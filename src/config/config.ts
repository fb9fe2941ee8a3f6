/**
 * The configuration of a gateway: its schema, its defaults, and the conversion of durations and
 * sizes to numbers.
 *
 * @module
 */
import * as v from "valibot";
import { type AlertsConfig, AlertsSchema } from "./alerts.ts";
import { type AttributionConfig, type AttributionInput, AttributionSchema } from "./attribution.ts";
import { type CorsConfig, type CorsInput, CorsSchema } from "./cors.ts";
import { findMisfits } from "./cross_checks.ts";
import { EgressSchema, type EgressSettings, withEgress } from "./egress.ts";
import { type LimitsConfig, type LimitsInput, LimitsSchema } from "./gateway_limits.ts";
import { type IdentityConfig, type IdentityInput, IdentitySchema } from "./identity.ts";
import { InstanceSchema } from "./instance.ts";
import { describeIssue, expandUnion, toIssuePath } from "./issue.ts";
import type { KeyInput } from "./key.ts";
import { ConfigError, type ConfigIssue } from "./config_error.ts";
import {
  describeKeyStore,
  type FileKeysInput,
  type KeysConfig,
  KeysSchema,
  type RedisKeysInput,
} from "./keys.ts";
import {
  type AdminConfig,
  type AdminInput,
  AdminSchema,
  type ListenConfig,
  type ListenInput,
  ListenSchema,
} from "./listeners.ts";
import { MetricsSchema } from "./metrics.ts";
import { CurrencySchema, type Prices, PricesSchema } from "./prices.ts";
import type { ProviderConfig, ProviderInput } from "./provider.ts";
import { ProvidersSchema } from "./providers.ts";
import { type RedisConfig, type RedisInput, RedisSchema } from "./redis.ts";
import { type RunsConfig, type RunsInput, RunsSchema } from "./runs.ts";
import { about, anyDuration, duration, strictObject } from "./schema.ts";
import { type TeamConfig, type TeamInput, TeamsSchema } from "./team.ts";
import { UsageSchema } from "./usage.ts";

export { ConfigError, type ConfigIssue } from "./config_error.ts";
export type {
  FileKeysConfig,
  FileKeysInput,
  KeysConfig,
  RedisKeysConfig,
  RedisKeysInput,
  StoredKeysConfig,
} from "./keys.ts";

/** A whole configuration, checked. */
export interface Config {
  /** Addresses on which callers are accepted; at least one. */
  readonly listen: readonly ListenConfig[];
  /** Providers by name; at least one. */
  readonly providers: Readonly<Record<string, ProviderConfig>>;
  /** Location of gateway keys. */
  readonly keys: KeysConfig;
  /** Teams by name, to which keys belong. */
  readonly teams: Readonly<Record<string, TeamConfig>>;
  /** Issuers of identity tokens, which are accepted instead of gateway keys. Default: none. */
  readonly identity?: readonly IdentityConfig[] | undefined;
  /** Limits on callers' use of the gateway itself. */
  readonly limits: LimitsConfig;
  /** Origins whose pages can call from a browser. Without them, pages cannot read any answer. */
  readonly cors?: CorsConfig | undefined;
  /**
   * The listener for operators, if any: health, metrics, and (only with a token) keys, usage and
   * the console.
   */
  readonly admin?: AdminConfig | undefined;
  /** The Redis or Valkey that several gateways share. */
  readonly redis?: RedisConfig | undefined;
  /** Name of this gateway among these. Default: the name of its host and its first port. */
  readonly instance?: string | undefined;
  /** Prices of models without a price at their provider. */
  readonly prices: Prices;
  /** Currency of all prices, such as `USD`. */
  readonly currency: string;
  /** Milliseconds for which each hour and each day of usage is kept. */
  readonly usage: { readonly hoursMs: number; readonly daysMs: number };
  /** Headers that name the user, the session and other origins of a call. */
  readonly attribution: AttributionConfig;
  /** Budgets for the runs of agents. */
  readonly runs: RunsConfig;
  /** Receiver of messages about budgets. Default: none. */
  readonly alerts?: AlertsConfig | undefined;
  /** Metrics in addition to the common ones: the most keys with their own metrics. */
  readonly metrics: { readonly maxKeys: number };
  /**
   * The access log on standard output; `auto` is readable text at a terminal, else JSON lines.
   * `debug` is JSON with the names of withheld headers.
   */
  readonly log: "auto" | "json" | "debug" | "pretty" | "off";
  /** Times of a graceful shutdown. */
  readonly drain: {
    /** Time in which it still accepts requests while it is already not ready. Milliseconds. */
    readonly delayMs: number;
    /** Time in which open exchanges can then finish. Milliseconds. */
    readonly limitMs: number;
  };
}

/** A configuration as written in `gateway.jsonc`. */
export interface ConfigInput {
  /**
   * For editors: the address of `gateway.schema.json`, such as
   * `./node_modules/sallyport/dist/gateway.schema.json`.
   */
  readonly $schema?: string | undefined;
  /** Addresses on which callers are accepted; default: port 8787 of this machine. */
  readonly listen?: readonly ListenInput[] | undefined;
  /** Providers by name; at least one. */
  readonly providers: Readonly<Record<string, ProviderInput>>;
  /**
   * Egress to all providers: proxy, authorities, client certificate. Default: a direct connection.
   */
  readonly egress?: EgressSettings | undefined;
  /** Location of gateway keys. Default: none. */
  readonly keys?:
    | readonly KeyInput[]
    | FileKeysInput
    | "redis"
    | RedisKeysInput
    | undefined;
  /** Teams by name, to which keys belong. Default: none. */
  readonly teams?: Readonly<Record<string, TeamInput>> | undefined;
  /** Issuers of identity tokens, which are accepted instead of gateway keys. Default: none. */
  readonly identity?: readonly IdentityInput[] | undefined;
  /** Limits on callers' use of the gateway itself. */
  readonly limits?: LimitsInput | undefined;
  /** Origins whose pages can call from a browser. Default: none. */
  readonly cors?: CorsInput | undefined;
  /** The listener for operators. Default: none. */
  readonly admin?: AdminInput | undefined;
  /** The Redis or Valkey that several gateways share: its URL, or its settings. */
  readonly redis?: RedisInput | undefined;
  /** Name of this gateway among these. Default: the name of its host and its first port. */
  readonly instance?: string | undefined;
  /** Prices of models without a price at their provider. */
  readonly prices?: Prices | undefined;
  /** Currency of all prices. Default: `USD`. */
  readonly currency?: string | undefined;
  /** Times for which usage is kept, such as `{ "hours": "8d", "days": "400d" }`. */
  readonly usage?:
    | { readonly hours?: string | undefined; readonly days?: string | undefined }
    | undefined;
  /**
   * Headers that name the user, the session and other origins of a call, such as
   * `{ "user": "x-openwebui-user-id" }`. Default: none.
   */
  readonly attribution?: AttributionInput | undefined;
  /**
   * Budgets for the runs of agents, such as
   * `{ "headers": ["x-claude-code-session-id"], "budget": "5 USD" }`.
   */
  readonly runs?: RunsInput | undefined;
  /** Receiver of messages about budgets that are nearly or fully used. Default: none. */
  readonly alerts?: AlertsConfig | undefined;
  /** Metrics in addition to the common ones, such as `{ "byKey": true }`. */
  readonly metrics?: { readonly byKey?: boolean | number | undefined } | undefined;
  /** The access log on standard output. Default: `auto`. */
  readonly log?: Config["log"] | undefined;
  /** Times of a graceful shutdown, such as `{ "delay": "5s", "limit": "10m" }`. */
  readonly drain?:
    | { readonly delay?: string | undefined; readonly limit?: string | undefined }
    | undefined;
}

const DEFAULT_DRAIN_DELAY_MS = 5000;
/** @internal The schema of `gateway.jsonc`. Unknown keys are mistakes. */
export const ConfigSchema: v.GenericSchema<ConfigInput, Config> = v.pipe(
  strictObject({
    $schema: v.optional(
      about(v.string("expected a string"), "For editors: the address of gateway.schema.json"),
    ),
    listen: v.optional(
      v.pipe(
        v.array(ListenSchema, "expected an array"),
        v.nonEmpty("expected at least one address"),
      ),
      [{ port: 8787 }],
    ),
    providers: ProvidersSchema,
    egress: v.optional(
      about(
        EgressSchema,
        "How the gateway connects to providers: proxy, trusted authorities, client certificate. `egress` of a provider overrides it",
      ),
    ),
    keys: v.optional(
      about(KeysSchema, 'Gateway keys: an array, `{ "file": "gateway-keys.json" }` or `"redis"`'),
      [],
    ),
    teams: v.optional(about(TeamsSchema, "Teams by name. The keys of a team share its limits"), {}),
    identity: v.optional(IdentitySchema),
    limits: v.optional(LimitsSchema, {}),
    cors: v.optional(CorsSchema),
    admin: v.optional(
      about(AdminSchema, "The listener for operators: health, metrics, keys, usage, the console"),
    ),
    redis: v.optional(
      about(
        RedisSchema,
        "A URL or an object: shares limits, usage and, if configured, keys",
      ),
    ),
    instance: v.optional(InstanceSchema),
    prices: v.optional(
      about(
        PricesSchema,
        "Prices by the name of the model, for all providers",
      ),
      {},
    ),
    currency: v.optional(about(CurrencySchema, "Currency of all prices"), "USD"),
    usage: v.optional(UsageSchema, {}),
    attribution: v.optional(AttributionSchema, {}),
    runs: v.optional(RunsSchema, {}),
    alerts: v.optional(AlertsSchema),
    metrics: v.optional(MetricsSchema, {}),
    log: v.optional(
      about(
        v.picklist(
          ["auto", "json", "debug", "pretty", "off"],
          'expected "auto", "json", "debug", "pretty" or "off"',
        ),
        "The access log on standard output. `json` prints JSON. `debug` adds the names of withheld " +
          "headers. `auto` and `pretty` print text at a terminal, and JSON elsewhere. `off`: none",
      ),
      "auto",
    ),
    drain: v.optional(
      strictObject({
        delay: about(
          v.optional(anyDuration),
          "After SIGTERM, calls are still served for this time, while `/readyz` answers 503. " +
            "Left out: 5s with admin, else 0s",
        ),
        limit: about(duration("10m"), "After `delay`, open exchanges have this time to finish"),
      }, "expected an object"),
      {},
    ),
  }, "expected an object"),
  v.transform((input) => {
    const { $schema: _, egress, drain, ...config } = input;
    // Without an admin listener no load balancer checks readiness, so the gateway does not wait.
    const defaultDelayMs = config.admin === undefined ? 0 : DEFAULT_DRAIN_DELAY_MS;
    return {
      ...config,
      providers: withEgress(config.providers, egress),
      drain: { delayMs: drain.delay ?? defaultDelayMs, limitMs: drain.limit },
    };
  }),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const { keys, redis } = dataset.value;
    if (describeKeyStore(keys).needsRedis && redis === undefined) {
      addIssue({ message: 'keys: expected "redis" to be configured too' });
    }
    for (const { path, message } of findMisfits(dataset.value)) {
      addIssue({ message, path: toIssuePath(dataset.value, path) });
    }
  }),
);

/** Lists teams and providers whose names valibot ignores, because objects inherit or expect them. */
function listIgnored(input: unknown): ConfigIssue[] {
  return ["teams", "providers"].flatMap((setting) =>
    ["constructor", "prototype"]
      .filter((name) => Object.hasOwn(Object(Object(input)[setting]), name))
      .map((name) => ({ path: `${setting}.${name}`, message: "expected another name" }))
  );
}

/**
 * Checks a configuration of unknown form, such as the content of `gateway.jsonc`.
 *
 * @throws {ConfigError} With every mistake at once
 */
export function checkConfig(input: unknown): Config {
  const result = v.safeParse(ConfigSchema, input);
  const ignored = listIgnored(input);
  if (result.success && ignored.length === 0) return result.output;
  const found = (result.issues ?? []).flatMap(expandUnion).map((issue) => {
    const { path, message } = describeIssue(issue);
    return { path: path || "config", message };
  });
  const issues = [...ignored, ...found];
  // The first mistake of a setting explains the others.
  const isFirst = ({ path }: ConfigIssue, index: number) =>
    issues.findIndex((earlier) => earlier.path === path) === index;
  throw new ConfigError(issues.filter(isFirst));
}

/**
 * Checks a configuration and fills in defaults.
 *
 * @param input The configuration in the form of `gateway.jsonc`
 * @returns The whole configuration
 * @throws {ConfigError} With every mistake at once
 *
 * @example A minimal configuration
 * ```ts
 * import { parseConfig } from "sallyport";
 *
 * const config = parseConfig({
 *   providers: { a: { upstream: "openai" } },
 *   keys: [{ id: "me", key: "a-key-of-your-own" }],
 * });
 * ```
 */
export function parseConfig(input: ConfigInput): Config {
  return checkConfig(input);
}
