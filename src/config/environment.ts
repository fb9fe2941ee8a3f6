/**
 * Settings in environment variables, both on machines and on Workers. Independent of the runtime.
 *
 * @module
 */
import { readDurableText } from "./durable.ts";
import { isNamedStore } from "./keys.ts";
import { findNearest } from "./nearest.ts";

/** Prefix of every variable. */
export const PREFIX = "SALLYPORT_";

/** Unparsed settings. */
export type Json = Record<string, unknown>;

/** A variable and its setting. */
export interface Variable {
  /** Name of the variable. If it ends in `_`, the name of a provider follows. */
  readonly name: string;
  /** Path of the setting. `NAME` is the placeholder for that provider. */
  readonly path: string;
  /**
   * Converts the text. If left out, the text is used unchanged. `before` is the current value of
   * the setting.
   */
  readonly read?: (text: string, before: unknown) => unknown;
}

/** All variables with a setting. */
export const VARIABLES: readonly Variable[] = [
  { name: "SALLYPORT_LISTEN", path: "listen", read: (text) => splitList(text).map(toListen) },
  { name: "SALLYPORT_PROVIDER_", path: "providers.NAME.upstream", read: splitList },
  { name: "SALLYPORT_HOSTS_", path: "providers.NAME.hosts", read: splitList },
  { name: "SALLYPORT_MESSAGES_", path: "providers.NAME.messages" },
  { name: "SALLYPORT_DEADLINES_", path: "providers.NAME.deadlines", read: addPairs },
  { name: "SALLYPORT_KEEP_ALIVE_", path: "providers.NAME.keepAlive" },
  { name: "SALLYPORT_OPERATIONS_", path: "providers.NAME.operations", read: splitList },
  { name: "SALLYPORT_TRANSPORT_", path: "providers.NAME.transport" },
  { name: "SALLYPORT_CREDENTIAL_", path: "providers.NAME.credential" },
  { name: "SALLYPORT_COMBINED_KEY_", path: "providers.NAME.combinedKey", read: toBoolean },
  { name: "SALLYPORT_STREAM_USAGE_", path: "providers.NAME.usage" },
  { name: "SALLYPORT_HEADERS_", path: "providers.NAME.headers", read: toJson },
  {
    name: "SALLYPORT_DURABLE_",
    path: "providers.NAME.durable",
    read: (text, before) => {
      const read = readDurableText(text);
      return read && { ...toObject(before), ...read };
    },
  },
  { name: "SALLYPORT_SHARED_LIMITS_", path: "providers.NAME.limits", read: addPairs },
  { name: "SALLYPORT_MAX_OUTPUT_", path: "providers.NAME.maxOutput", read: Number },
  { name: "SALLYPORT_MAX_INPUT_", path: "providers.NAME.maxInput", read: Number },
  { name: "SALLYPORT_PRICES_", path: "providers.NAME.prices", read: toJson },
  { name: "SALLYPORT_REGION_", path: "providers.NAME.region" },
  { name: "SALLYPORT_STATES_COST_", path: "providers.NAME.statesCost", read: toBoolean },
  { name: "SALLYPORT_TIERS_", path: "providers.NAME.tiers", read: splitList },
  { name: "SALLYPORT_MAX_CALLS_", path: "providers.NAME.maxCalls", read: Number },
  { name: "SALLYPORT_CALL_PRICES_", path: "providers.NAME.callPrices", read: toJson },
  { name: "SALLYPORT_CHARGE_TIMEOUTS_", path: "providers.NAME.chargeTimeouts" },
  { name: "SALLYPORT_EGRESS_PROXY_", path: "providers.NAME.egress.proxy" },
  { name: "SALLYPORT_EGRESS_CREDENTIALS_", path: "providers.NAME.egress.credentials" },
  {
    name: "SALLYPORT_EGRESS_FROM_ENVIRONMENT_",
    path: "providers.NAME.egress.fromEnvironment",
    read: toBoolean,
  },
  { name: "SALLYPORT_EGRESS_CA_ONLY_", path: "providers.NAME.egress.caOnly", read: toBoolean },
  { name: "SALLYPORT_EGRESS_CA_", path: "providers.NAME.egress.ca", read: splitList },
  { name: "SALLYPORT_EGRESS_CERT_", path: "providers.NAME.egress.cert" },
  { name: "SALLYPORT_EGRESS_KEY_", path: "providers.NAME.egress.key" },
  { name: "SALLYPORT_EGRESS_PROXY", path: "egress.proxy" },
  { name: "SALLYPORT_EGRESS_CREDENTIALS", path: "egress.credentials" },
  { name: "SALLYPORT_EGRESS_FROM_ENVIRONMENT", path: "egress.fromEnvironment", read: toBoolean },
  { name: "SALLYPORT_EGRESS_CA_ONLY", path: "egress.caOnly", read: toBoolean },
  { name: "SALLYPORT_EGRESS_CA", path: "egress.ca", read: splitList },
  { name: "SALLYPORT_EGRESS_CERT", path: "egress.cert" },
  { name: "SALLYPORT_EGRESS_KEY", path: "egress.key" },
  { name: "SALLYPORT_KEYS", path: "keys", read: toKeys },
  { name: "SALLYPORT_KEYS_FILE", path: "keys.file" },
  { name: "SALLYPORT_KEYS_SNAPSHOT", path: "keys.snapshot" },
  { name: "SALLYPORT_TEAMS", path: "teams", read: toJson },
  { name: "SALLYPORT_IDENTITY", path: "identity", read: toJson },
  { name: "SALLYPORT_LIMITS_BODY", path: "limits.body" },
  { name: "SALLYPORT_LIMITS_BODY_TIME", path: "limits.bodyTime" },
  { name: "SALLYPORT_LIMITS_BODIES", path: "limits.bodies" },
  { name: "SALLYPORT_LIMITS_RECORDINGS", path: "limits.recordings" },
  { name: "SALLYPORT_LIMITS_EXCHANGES", path: "limits.exchanges", read: Number },
  { name: "SALLYPORT_LIMITS_WRITE_STALL", path: "limits.writeStall" },
  { name: "SALLYPORT_CORS_ORIGINS", path: "cors.origins", read: splitList },
  { name: "SALLYPORT_CORS_MAX_AGE", path: "cors.maxAge" },
  {
    name: "SALLYPORT_ADMIN",
    path: "admin",
    read: (text, before) => ({ ...toObject(before), ...toListen(text) }),
  },
  { name: "SALLYPORT_ADMIN_TOKEN", path: "admin.token" },
  { name: "SALLYPORT_REDIS", path: "redis", read: toRedis },
  { name: "SALLYPORT_REDIS_CLUSTER", path: "redis.cluster", read: splitList },
  { name: "SALLYPORT_REDIS_SENTINEL", path: "redis.sentinel.nodes", read: splitList },
  { name: "SALLYPORT_REDIS_SENTINEL_NAME", path: "redis.sentinel.name" },
  { name: "SALLYPORT_REDIS_SENTINEL_USERNAME", path: "redis.sentinel.username" },
  { name: "SALLYPORT_REDIS_SENTINEL_PASSWORD", path: "redis.sentinel.password" },
  { name: "SALLYPORT_REDIS_USERNAME", path: "redis.username" },
  { name: "SALLYPORT_REDIS_PASSWORD", path: "redis.password" },
  { name: "SALLYPORT_REDIS_TLS_CA", path: "redis.tls.ca" },
  { name: "SALLYPORT_REDIS_TLS_CERT", path: "redis.tls.cert" },
  { name: "SALLYPORT_REDIS_TLS_KEY", path: "redis.tls.key" },
  { name: "SALLYPORT_REDIS_GATEWAYS", path: "redis.gateways", read: Number },
  { name: "SALLYPORT_REDIS_TIMEOUT", path: "redis.timeout" },
  { name: "SALLYPORT_INSTANCE", path: "instance" },
  { name: "SALLYPORT_PRICES", path: "prices", read: toJson },
  { name: "SALLYPORT_CURRENCY", path: "currency" },
  { name: "SALLYPORT_USAGE_HOURS", path: "usage.hours" },
  { name: "SALLYPORT_USAGE_DAYS", path: "usage.days" },
  { name: "SALLYPORT_ATTRIBUTION", path: "attribution", read: toJson },
  { name: "SALLYPORT_RUNS", path: "runs", read: toJson },
  { name: "SALLYPORT_ALERTS_URL", path: "alerts.url" },
  { name: "SALLYPORT_ALERTS_SECRET", path: "alerts.secret" },
  {
    name: "SALLYPORT_METRICS_BY_KEY",
    path: "metrics.byKey",
    read: (text) => Number(text) || toBoolean(text),
  },
  { name: "SALLYPORT_LOG", path: "log" },
  { name: "SALLYPORT_DRAIN_DELAY", path: "drain.delay" },
  { name: "SALLYPORT_DRAIN_LIMIT", path: "drain.limit" },
];

/**
 * Returns an object unchanged, and an empty object for any other value, because a variable has
 * precedence over it. The name of a store of keys is short for an object.
 */
function toObject(value: unknown): Json {
  if (isNamedStore(value)) return { store: value };
  if (typeof value !== "object" || value === null) return {};
  return Array.isArray(value) ? {} : value as Json;
}

function splitList(text: string): string[] {
  return text.split(",").map((item) => item.trim()).filter((item) => item !== "");
}

/**
 * Reads an address: `127.0.0.1:8787`, `http://…` or `https://127.0.0.1:8788?cert=b.crt&key=b.key`.
 */
function toListen(text: string): Json {
  const full = /^https?:/.test(text) ? text : `http://${text}`;
  if (!URL.canParse(full)) return { port: text };
  const url = new URL(full);
  // `url.port` is empty for the usual port of the scheme.
  const [, port] = /:(\d+)(?:[/?]|$)/.exec(full.replace(/^https?:/, "")) ?? [];
  const { cert, key } = Object.fromEntries(url.searchParams);
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: port === undefined ? text : Number(port),
    ...(url.protocol === "https:" && { tls: { cert, key } }),
  };
}

/**
 * Reads keys: plain ones in a comma-separated list, the name of a store, or the whole `keys` setting as JSON.
 */
function toKeys(text: string): unknown {
  if (isNamedStore(text)) return text;
  if (!text.startsWith("[")) {
    return splitList(text).map((key, index) => ({ id: `key-${index + 1}`, key }));
  }
  return toJson(text);
}

/**
 * Reads the URL of Redis, which replaces another URL, a Cluster or Sentinels. The other settings
 * stay.
 */
function toRedis(text: string, before: unknown): unknown {
  const { url: _, cluster: _cluster, sentinel: _sentinel, ...others } = toObject(before);
  return { ...others, url: text };
}

/** Reads `true` and `false`. Other text stays text, which no schema accepts as a boolean. */
function toBoolean(text: string): unknown {
  if (text === "true") return true;
  return text === "false" ? false : text;
}

/** Parses JSON. Invalid JSON stays text, which no schema accepts as an object or an array. */
function toJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return "no JSON";
  }
}

/**
 * Reads `name=value,name=value`, and adds the pairs to the existing ones. A repeated name has a
 * list of values.
 */
function addPairs(text: string, before: unknown): Json {
  const given: Json = {};
  for (const pair of splitList(text)) {
    const [name = "", value] = pair.split("=").map((side) => side.trim());
    const read = name === "concurrency" ? Number(value) : value;
    given[name] = Object.hasOwn(given, name) ? [given[name], read].flat() : read;
  }
  return { ...toObject(before), ...given };
}

/**
 * Lists the names of the variables for a configuration.
 *
 * @param providers Names of its providers
 */
export function listVariableNames(providers: readonly string[]): string[] {
  const suffixes = providers.map((name) => name.toUpperCase().replaceAll("-", "_"));
  return VARIABLES.flatMap(({ name }) =>
    name.endsWith("_") ? suffixes.map((suffix) => name + suffix) : [name]
  );
}

/**
 * Describes a variable that no setting has.
 *
 * @param providers Names of the providers that the file has
 * @returns The message, with the nearest known name
 */
export function describeUnknownVariable(name: string, providers: readonly string[]): string {
  const suffix = name.slice(name.lastIndexOf("_") + 1).toLowerCase();
  const known = listVariableNames([...providers, suffix]).map((each) => each.slice(PREFIX.length));
  const nearest = findNearest(name.slice(PREFIX.length), known);
  return nearest === undefined
    ? "unknown variable"
    : `unknown variable. Did you mean ${PREFIX}${nearest}?`;
}

/** Finds the variable of a setting. @param path Keys and indexes of the setting */
export function findVariable(path: readonly (string | number)[]): string | undefined {
  const [, provider = ""] = path;
  let found: Variable | undefined;
  let foundLength = 0;
  for (const variable of VARIABLES) {
    const steps = variable.path.split(".");
    const isOf = steps.every((step, index) => step === "NAME" || step === path[index]);
    if (!isOf || steps.length <= foundLength) continue;
    found = variable;
    foundLength = steps.length;
  }
  if (found === undefined || !found.name.endsWith("_")) return found?.name;
  return found.name + String(provider).toUpperCase().replaceAll("-", "_");
}

/**
 * Applies one variable to the settings.
 *
 * @param input The settings, changed in place
 * @returns The path of the setting; `undefined` for an unknown variable
 */
export function layVariable(input: Json, name: string, value: string): string | undefined {
  const variable = VARIABLES.find((each) => each.name === name) ??
    VARIABLES.find((each) => each.name.endsWith("_") && name.startsWith(each.name));
  if (variable === undefined) return undefined;
  const provider = name.slice(variable.name.length).toLowerCase().replaceAll("_", "-");
  if (variable.name.endsWith("_") && provider === "") return undefined;
  const path = variable.path.split(".").map((step) => step === "NAME" ? provider : step);
  const setting = path.at(-1) as string; // a path has at least one step
  if (variable.path.startsWith("redis.") && typeof input.redis === "string") {
    input.redis = { url: input.redis };
  }
  let place = input;
  for (const step of path.slice(0, -1)) {
    const inner = toObject(place[step]);
    place[step] = inner;
    place = inner;
  }
  place[setting] = variable.read === undefined ? value : variable.read(value, place[setting]);
  return path.join(".");
}
