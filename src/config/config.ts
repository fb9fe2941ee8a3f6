/**
 * The configuration of a gateway: its schema, its defaults, and the one place where durations and sizes become numbers.
 *
 * @module
 */
import * as v from "valibot";
import { type KeyConfig, KeySchema } from "./key.ts";
import { CurrencySchema, type Prices, PricesSchema } from "./prices.ts";
import { type ProviderConfig, ProvidersSchema } from "./provider.ts";
import { about, anyDuration, duration, nonEmpty, size } from "./schema.ts";

/** One address to listen on. */
export interface ListenConfig {
  /** Name or address of an interface. */
  readonly hostname: string;
  /** 0 takes any free one. */
  readonly port: number;
  /** Paths of PEM files; with them the listener speaks https. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

/** Where gateway keys are: here, in a file that `sallyport keys` writes, or in Redis. */
export type KeysConfig = KeyConfig[] | { readonly file: string } | "redis";

/** A whole configuration, checked. */
export interface Config {
  /** Addresses on which callers are accepted; at least one. */
  readonly listen: readonly ListenConfig[];
  /** Providers by name; at least one. */
  readonly providers: Readonly<Record<string, ProviderConfig>>;
  /** Where gateway keys are. */
  readonly keys: KeysConfig;
  /** Limits on what callers may use of the gateway itself. */
  readonly limits: LimitsConfig;
  /** The listener for operators, if any: health, metrics, and (only with a token) keys, usage and the console. */
  readonly admin?:
    | { readonly hostname: string; readonly port: number; readonly token?: string | undefined }
    | undefined;
  /** URL of the Redis or Valkey that several gateways share. */
  readonly redis?: string | undefined;
  /** Prices of models, for those that have no price at their provider. */
  readonly prices: Prices;
  /** Currency of all prices, such as `USD`. */
  readonly currency: string;
  /** The access log on standard output; `auto` is for people at a terminal, else JSON lines. */
  readonly log: "auto" | "json" | "pretty" | "off";
  /** Times of a graceful shutdown. */
  readonly drain: {
    /** Milliseconds in which it still accepts while readiness already says no. */
    readonly delayMs: number;
    /** Milliseconds in which open exchanges may then finish. */
    readonly limitMs: number;
  };
}

/** Limits on what callers may use of the gateway itself. */
export interface LimitsConfig {
  /** Maximum size of a caller's body. Bytes. */
  readonly maxBodyBytes: number;
  /** Milliseconds for a caller's body to arrive. */
  readonly bodyTimeMs: number;
  /** Maximum size of all bodies that are held at once. Bytes. */
  readonly maxBodiesBytes: number;
  /** Maximum number of exchanges that are open at once. */
  readonly maxExchanges: number;
  /** Milliseconds for which a caller may leave its answer unread. */
  readonly writeStallMs: number;
}

/** One mistake in a configuration. */
export interface ConfigIssue {
  /** Path of the setting, such as `providers.a.upstream`. */
  readonly path: string;
  /** Text for people: the expected value, and what to do. Never contains a value that may be secret. */
  readonly message: string;
  /** The file and line, or the variable, that the setting comes from. */
  readonly source?: string | undefined;
}

/** All mistakes of a configuration at once. */
export class ConfigError extends Error {
  /** Name of the error, which identifies it even where two copies of this module are loaded. */
  override readonly name = "ConfigError";
  /** The mistakes, at least one. */
  readonly issues: readonly ConfigIssue[];

  /**
   * Its message names all of them, a line each.
   *
   * @param issues The mistakes, at least one
   */
  constructor(issues: readonly ConfigIssue[]) {
    super(
      issues.map(({ path, message, source }) => `${path}: ${message}${source === undefined ? "" : ` (${source})`}`)
        .join("\n"),
    );
    this.issues = issues;
  }
}

const DEFAULT_DRAIN_DELAY_MS = 5000;
const portForm = "expected a whole number from 0 to 65535";
const port = v.pipe(
  v.number(portForm),
  v.integer(portForm),
  v.minValue(0, portForm),
  v.maxValue(65535, portForm),
  v.description("0 takes any free one"),
);
const hostname = v.optional(about(nonEmpty, "Name or address of an interface"), "127.0.0.1");

const limits = v.pipe(
  v.strictObject({
    body: about(size("32MB"), "A caller's body at most"),
    bodyTime: about(duration("60s"), "For a caller's body to arrive"),
    bodies: about(size("512MB"), "All bodies that are held at once; over it, or over a key's share, requests get 503"),
    exchanges: v.optional(
      v.pipe(
        v.number("expected a whole number"),
        v.integer("expected a whole number"),
        v.minValue(1, "expected at least 1"),
        v.description("All exchanges that are open at once; over them new requests get 503"),
      ),
      10_000,
    ),
    writeStall: about(duration("2m"), "How long a caller may leave its answer unread"),
  }, "expected an object"),
  v.forward(v.check(({ body, bodies }) => body <= bodies, "expected at most bodies"), ["body"]),
  v.transform(({ body, bodyTime, bodies, exchanges, writeStall }) => ({
    maxBodyBytes: body,
    bodyTimeMs: bodyTime,
    maxBodiesBytes: bodies,
    maxExchanges: exchanges,
    writeStallMs: writeStall,
  })),
);

const listen = v.strictObject({
  hostname,
  port,
  tls: v.optional(about(
    v.strictObject({
      cert: about(nonEmpty, "PEM file of the certificate, relative to the configuration"),
      key: about(nonEmpty, "PEM file of its private key, relative to the configuration"),
    }, "expected an object with cert and key"),
    "With it the listener speaks https",
  )),
}, "expected an object");

const keysForm = 'expected an array of keys, { "file": "gateway-keys.json" } or "redis"';
const keys = v.union([
  v.pipe(
    v.array(KeySchema),
    v.check((keys) => new Set(keys.map(({ id }) => id)).size === keys.length, "expected each id once"),
  ),
  v.strictObject({ file: about(nonEmpty, "Where `sallyport keys` keeps them, relative to the configuration") }),
  v.literal("redis"),
], keysForm);

const admin = v.strictObject({
  hostname,
  port,
  token: v.optional(v.pipe(
    v.string("expected a string"),
    v.regex(/^[\x21-\x7e]{16,512}$/, "expected 16 to 512 visible ASCII characters"),
    v.description("What operators show; needed beyond this machine, and for keys, usage and the console"),
  )),
}, "expected an object with a port");

const redisForm = 'expected a URL such as "redis://127.0.0.1:6379" or "rediss://…"';
const redis = v.pipe(
  v.string(redisForm),
  v.check((text) => URL.canParse(text) && /^rediss?:$/.test(new URL(text).protocol), redisForm),
);

/** @internal The schema of `gateway.jsonc`. Unknown keys are mistakes. */
export const ConfigSchema: v.GenericSchema<unknown, Config> = v.pipe(
  v.strictObject({
    $schema: v.optional(about(v.string("expected a string"), "For editors: dist/gateway.schema.json")),
    listen: v.optional(
      v.pipe(v.array(listen, "expected an array"), v.nonEmpty("expected at least one address")),
      [{ port: 8787 }],
    ),
    providers: ProvidersSchema,
    keys: v.optional(about(keys, 'Gateway keys: an array, `{ "file": "gateway-keys.json" }` or `"redis"`'), []),
    limits: v.optional(limits, {}),
    admin: v.optional(about(admin, "The listener for operators: health, metrics, keys, usage, the console")),
    redis: v.optional(
      about(redis, "`redis://` or `rediss://`: limits, usage, and keys if they are to be there, shared"),
    ),
    prices: v.optional(about(PricesSchema, "What a million tokens cost, by the model's name, for all providers"), {}),
    currency: v.optional(about(CurrencySchema, "What all prices are in"), "USD"),
    log: v.optional(
      about(
        v.picklist(["auto", "json", "pretty", "off"], 'expected "auto", "json", "pretty" or "off"'),
        "The access log on standard output; pretty and auto are for a terminal: into a pipe they are json",
      ),
      "auto",
    ),
    drain: v.optional(
      v.strictObject({
        delay: about(
          v.optional(anyDuration),
          "After SIGTERM: served while not ready. Left out: 5s with admin, else 0s",
        ),
        limit: about(duration("10m"), "Then: time for open exchanges to finish"),
      }, "expected an object"),
      {},
    ),
  }, "expected an object"),
  v.transform(({ $schema: _, drain: { delay, limit }, ...config }) => ({
    ...config,
    // Without an admin listener nobody asks whether the gateway is ready: waiting would serve nobody.
    drain: { delayMs: delay ?? (config.admin === undefined ? 0 : DEFAULT_DRAIN_DELAY_MS), limitMs: limit },
  })),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    const { providers, keys, redis } = dataset.value;
    if (keys === "redis" && redis === undefined) addIssue({ message: 'keys: expected "redis" to be configured too' });
    for (const [index, { providers: names = [] }] of (Array.isArray(keys) ? keys : []).entries()) {
      for (const [place, name] of names.entries()) {
        if (Object.hasOwn(providers, name)) continue;
        const message = `expected one of the configured providers: ${Object.keys(providers).join(", ")}`;
        addIssue({ message, path: toPath(dataset.value, ["keys", index, "providers", place]) });
      }
    }
  }),
);

/** A path as valibot gives it to its issues. */
function toPath(input: unknown, keys: readonly (string | number)[]): [v.IssuePathItem, ...v.IssuePathItem[]] {
  return keys.map((key) => ({ type: "unknown", origin: "value", input, key, value: undefined })) as never;
}

/** Returns, for a setting with several forms, the mistakes inside the form that was meant, if that one is clear. */
function deepest(issue: v.BaseIssue<unknown>): v.BaseIssue<unknown>[] {
  const isList = Array.isArray(issue.input);
  const inner = (issue.issues ?? []).filter(({ path }) =>
    path !== undefined && Number.isInteger(path[0].key) === isList
  );
  if (issue.type !== "union" || inner.length === 0) return [issue];
  return inner.map((sub) => ({ ...sub, path: [...issue.path ?? [], ...sub.path ?? []] as never }));
}

/**
 * Checks a configuration and fills in what was left out.
 *
 * @param input What `gateway.jsonc` holds
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
export function parseConfig(input: unknown): Config {
  const result = v.safeParse(ConfigSchema, input);
  if (result.success) return result.output;
  const issues = result.issues.flatMap(deepest).map((issue) => {
    const path = (issue.path ?? []).map(({ key }) => typeof key === "number" ? `[${key}]` : `.${String(key)}`)
      .join("").slice(1);
    const isUnknown = issue.type === "strict_object" && issue.expected === "never";
    const isMissing = issue.input === undefined && issue.received === "undefined";
    return {
      path: path || "config",
      message: isUnknown ? "unknown setting" : isMissing ? "expected to be there" : issue.message,
    };
  });
  // The first mistake of a setting explains the others.
  throw new ConfigError(
    issues.filter(({ path }, index) => issues.findIndex((earlier) => earlier.path === path) === index),
  );
}
