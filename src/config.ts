/**
 * What an operator may set: the schema, its defaults, and the one place where durations and sizes become numbers.
 *
 * @module
 */
import * as v from "valibot";
import { type KeyConfig, KeySchema, type LimitSet, LimitSetSchema } from "./key_config.ts";
import { PRESETS } from "./presets.ts";
import { parseDuration, parseSize } from "./units.ts";

/** One address to listen on. */
export interface ListenConfig {
  /** Name or address of an interface. */
  readonly hostname: string;
  /** 0 takes any free one. */
  readonly port: number;
  /** Paths of PEM files; with them the listener speaks https. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

/** One provider. */
export interface ProviderConfig {
  /** `host`, `host:port`, `*.suffix` or `*`, in lower case. */
  readonly hosts: readonly string[];
  /** Base URLs of equal replicas, without a slash at their ends; at least one. */
  readonly upstreams: readonly string[];
  /** Who decides on the order of messages. */
  readonly messages: "ordered" | "any";
  /** Milliseconds. */
  readonly deadlines: {
    readonly connectMs: number;
    readonly firstByteMs: number;
    readonly idleMs: number;
    readonly totalMs: number;
  };
  /** After so many milliseconds of quiet a stream is sent a comment; 0 for never. */
  readonly keepAliveMs: number;
  /** What all keys together may take of it. */
  readonly limits?: LimitSet | undefined;
}

/** Where gateway keys are: here, in a file that `sallyport keys` writes, or in Redis. */
export type KeysConfig = KeyConfig[] | { readonly file: string } | "redis";

/** A whole configuration, checked. */
export interface Config {
  readonly listen: readonly ListenConfig[];
  readonly providers: Readonly<Record<string, ProviderConfig>>;
  readonly keys: KeysConfig;
  readonly limits: LimitsConfig;
  /** Where health, readiness and keys are asked for, if anywhere; keys only with a token. */
  readonly admin?:
    | { readonly hostname: string; readonly port: number; readonly token?: string | undefined }
    | undefined;
  /** URL of the Redis or Valkey that several gateways share. */
  readonly redis?: string | undefined;
  /** The access log on standard output; `auto` is for people at a terminal, else JSON lines. */
  readonly log: "auto" | "json" | "pretty" | "off";
  /** How a gateway leaves. */
  readonly drain: {
    /** Milliseconds in which it still accepts while readiness already says no. */
    readonly delayMs: number;
    /** Milliseconds in which open exchanges may then finish. */
    readonly limitMs: number;
  };
}

/** What callers may take of the gateway itself. */
export interface LimitsConfig {
  /** Bytes of a caller's body at most. */
  readonly maxBodyBytes: number;
  /** Milliseconds for a caller's body to arrive. */
  readonly bodyTimeMs: number;
  /** Bytes of all bodies that are held at once. */
  readonly maxBodiesBytes: number;
  /** Exchanges that are open at once. */
  readonly maxExchanges: number;
  /** Milliseconds for which a caller may leave its answer unread. */
  readonly writeStallMs: number;
}

/** One mistake in a configuration. */
export interface ConfigIssue {
  /** Such as `providers.a.upstream`. */
  readonly path: string;
  /** What was expected there, and what to do. Never a value that may be secret. */
  readonly message: string;
  /** The file and line, or the variable, that says so. */
  readonly source?: string | undefined;
}

/** All mistakes of a configuration at once. */
export class ConfigError extends Error {
  override readonly name = "ConfigError";
  /** The mistakes, at least one. */
  readonly issues: readonly ConfigIssue[];

  /** @param issues The mistakes, at least one */
  constructor(issues: readonly ConfigIssue[]) {
    super(
      issues.map(({ path, message, source }) => `${path}: ${message}${source === undefined ? "" : ` (${source})`}`)
        .join("\n"),
    );
    this.issues = issues;
  }
}

const durationForm = 'expected a duration with its unit, such as "5s", "2m" or "500ms"';
const anyDuration = v.pipe(
  v.string(durationForm),
  v.transform(parseDuration),
  v.number(durationForm),
  v.maxValue(24 * 3_600_000, "expected at most 24h"),
);
const duration = (fallback: string) =>
  v.optional(v.pipe(anyDuration, v.minValue(1, "expected a duration above zero")), fallback);

const sizeForm = 'expected a size with its unit, such as "32MB"';
const size = (fallback: string) =>
  v.optional(
    v.pipe(
      v.string(sizeForm),
      v.transform(parseSize),
      v.number(sizeForm),
      v.minValue(1, "expected a size above zero"),
      v.maxValue(1024 ** 3, "expected at most 1GB"),
    ),
    fallback,
  );

/**
 * The grammar of `host[:port]` in lower case (RFC 9110 §7.2): a name in letters, digits, ".", "-" and "_", or an IPv6
 * address in brackets.
 */
export const HOST: RegExp =
  /^(?<hostname>[a-z0-9_](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\])\.?(?::(?<port>[0-9]{1,5}))?$/;
/** Whether a text can match a Host: spelled as the table looks it up, the port within its range. */
function isHostPattern(pattern: string): boolean {
  if (pattern === "*") return true;
  const isSuffix = pattern.startsWith("*.");
  const { hostname, port } = HOST.exec(isSuffix ? pattern.slice(2) : pattern)?.groups ?? {};
  if (hostname === undefined || (isSuffix && hostname.startsWith("["))) return false;
  if (isSuffix) return pattern === `*.${hostname}`;
  return pattern === (port === undefined ? hostname : `${hostname}:${Number(port)}`) && Number(port ?? 0) <= 65535;
}

const DEFAULT_DRAIN_DELAY_MS = 5000;
const NAME = /^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?$/;

const nonEmpty = v.pipe(v.string("expected a string"), v.nonEmpty("expected a non-empty string"));

const upstreamForm = `expected an http or https URL, or one of ${Object.keys(PRESETS).join(", ")}`;
const upstream = v.pipe(
  nonEmpty,
  v.transform((text) => ((Object.hasOwn(PRESETS, text) ? PRESETS[text] : undefined) ?? text).replace(/\/+$/, "")),
  v.check(
    (text) => URL.canParse(text) && /^https?:$/.test(new URL(text).protocol),
    upstreamForm,
  ),
  v.check((text) => {
    if (!URL.canParse(text)) return true;
    const { username, password, search, hash } = new URL(text);
    return username + password + search + hash === "" && !/[\s?#]/.test(text);
  }, "expected a URL without credentials, query and fragment"),
);

const deadlines = v.pipe(
  v.strictObject({
    connect: duration("5s"),
    firstByte: duration("5m"),
    idle: duration("2m"),
    total: duration("30m"),
  }, "expected an object"),
  v.forward(v.check(({ connect, firstByte }) => connect <= firstByte, "expected at most firstByte"), ["connect"]),
  v.forward(v.check(({ firstByte, total }) => firstByte <= total, "expected at most total"), ["firstByte"]),
  v.forward(v.check(({ idle, total }) => idle <= total, "expected at most total"), ["idle"]),
  v.transform(({ connect, firstByte, idle, total }) => ({
    connectMs: connect,
    firstByteMs: firstByte,
    idleMs: idle,
    totalMs: total,
  })),
);

const provider = v.strictObject({
  hosts: v.optional(v.pipe(
    v.array(
      v.pipe(
        v.string("expected a string"),
        v.toLowerCase(),
        v.check(
          isHostPattern,
          'expected "host", "host:port", "*.suffix" or "*"',
        ),
      ),
      "expected an array of hosts",
    ),
    v.nonEmpty("expected at least one host"),
  )),
  upstream: v.union(
    [
      upstream,
      v.pipe(
        v.array(upstream, upstreamForm),
        v.nonEmpty("expected at least one upstream"),
        v.check((urls) => new Set(urls).size === urls.length, "expected each upstream once"),
      ),
    ],
    upstreamForm,
  ),
  keepAlive: v.optional(
    v.union([v.pipe(v.literal("off"), v.transform(() => 0)), duration("15s")], `${durationForm}, or "off"`),
    "15s",
  ),
  messages: v.optional(v.picklist(["ordered", "any"], 'expected "ordered" or "any"'), "ordered"),
  deadlines: v.optional(deadlines, {}),
  limits: v.optional(LimitSetSchema),
}, "expected an object");

const portForm = "expected a whole number from 0 to 65535";
const port = v.pipe(v.number(portForm), v.integer(portForm), v.minValue(0, portForm), v.maxValue(65535, portForm));
const hostname = v.optional(nonEmpty, "127.0.0.1");

const limits = v.pipe(
  v.strictObject({
    body: size("32MB"),
    bodyTime: duration("60s"),
    bodies: size("512MB"),
    exchanges: v.optional(
      v.pipe(
        v.number("expected a whole number"),
        v.integer("expected a whole number"),
        v.minValue(1, "expected at least 1"),
      ),
      10_000,
    ),
    writeStall: duration("2m"),
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
  tls: v.optional(v.strictObject({ cert: nonEmpty, key: nonEmpty }, "expected an object with cert and key")),
}, "expected an object");

const keysForm = 'expected an array of keys, { "file": "gateway-keys.json" } or "redis"';
const keys = v.union([
  v.pipe(
    v.array(KeySchema),
    v.check((keys) => new Set(keys.map(({ id }) => id)).size === keys.length, "expected each id once"),
  ),
  v.strictObject({ file: nonEmpty }),
  v.literal("redis"),
], keysForm);

const admin = v.strictObject({
  hostname,
  port,
  token: v.optional(v.pipe(
    v.string("expected a string"),
    v.regex(/^[\x21-\x7e]{16,512}$/, "expected 16 to 512 visible ASCII characters"),
  )),
}, "expected an object with a port");

const redisForm = 'expected a URL such as "redis://127.0.0.1:6379" or "rediss://…"';
const redis = v.pipe(
  v.string(redisForm),
  v.check((text) => URL.canParse(text) && /^rediss?:$/.test(new URL(text).protocol), redisForm),
);

/** A provider's own host on a laptop; the only provider answers for any host. */
function defaultHosts(name: string, isOnly: boolean): string[] {
  return isOnly ? ["*"] : [`${name}.localhost`];
}

type ParsedProvider = v.InferOutput<typeof provider>;

function providersOf(parsed: Readonly<Record<string, ParsedProvider>>): Record<string, ProviderConfig> {
  const entries = Object.entries(parsed);
  return Object.fromEntries(entries.map(([name, { hosts, upstream, keepAlive, ...entry }]) => [name, {
    ...entry,
    hosts: hosts ?? defaultHosts(name, entries.length === 1),
    upstreams: [upstream].flat(),
    keepAliveMs: keepAlive,
  }]));
}

function sharedHost(providers: Readonly<Record<string, ProviderConfig>>): string | undefined {
  const hosts = Object.values(providers).flatMap((entry) => [...new Set(entry.hosts)]);
  return hosts.find((host, index) => hosts.indexOf(host) !== index);
}

const noProvider = 'expected at least one provider, such as { "a": { "upstream": "openai" } }';

/** The schema of `gateway.jsonc`. Unknown keys are mistakes. */
export const ConfigSchema: v.GenericSchema<unknown, Config> = v.pipe(
  v.strictObject({
    $schema: v.optional(v.string("expected a string")),
    listen: v.optional(
      v.pipe(v.array(listen, "expected an array"), v.nonEmpty("expected at least one address")),
      [{ port: 8787 }],
    ),
    providers: v.pipe(
      v.record(v.pipe(v.string(), v.regex(NAME, "expected letters, digits and -")), provider, noProvider),
      v.check((entries) => Object.keys(entries).length > 0, noProvider),
      v.transform(providersOf),
      v.check((entries) => sharedHost(entries) === undefined, "expected each host at one provider only"),
    ),
    keys: v.optional(keys, []),
    limits: v.optional(limits, {}),
    admin: v.optional(admin),
    redis: v.optional(redis),
    log: v.optional(
      v.picklist(["auto", "json", "pretty", "off"], 'expected "auto", "json", "pretty" or "off"'),
      "auto",
    ),
    drain: v.optional(
      v.strictObject({ delay: v.optional(anyDuration), limit: duration("10m") }, "expected an object"),
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

/** Of a setting with several forms: the mistakes inside the form that was meant, where one can be told. */
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
 * @example The least there is
 * ```ts
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
