/**
 * Settings as variables of the environment, on a machine and on Workers alike. Names no runtime.
 *
 * @module
 */

/** Prefix of every variable. */
export const PREFIX = "SALLYPORT_";
/** Prefixes of the variables that end in a provider's name, and the setting of each. */
const PROVIDER_SETTINGS: Readonly<Record<string, string>> = {
  SALLYPORT_PROVIDER_: "upstream",
  SALLYPORT_HOSTS_: "hosts",
  SALLYPORT_MESSAGES_: "messages",
  SALLYPORT_DEADLINES_: "deadlines",
  SALLYPORT_KEEP_ALIVE_: "keepAlive",
  SALLYPORT_SHARED_LIMITS_: "limits",
  SALLYPORT_PRICES_: "prices",
};
/** Prefixes of the variables that end in a provider's name. */
export const PROVIDER_VARIABLES: readonly string[] = Object.keys(PROVIDER_SETTINGS);
/** Variables that set a single value, and the section and name of its setting. */
const SIMPLE_VARIABLES: Readonly<Record<string, readonly [section: string, setting: string]>> = {
  SALLYPORT_LIMITS_BODY: ["limits", "body"],
  SALLYPORT_LIMITS_BODY_TIME: ["limits", "bodyTime"],
  SALLYPORT_LIMITS_BODIES: ["limits", "bodies"],
  SALLYPORT_LIMITS_EXCHANGES: ["limits", "exchanges"],
  SALLYPORT_LIMITS_WRITE_STALL: ["limits", "writeStall"],
  SALLYPORT_DRAIN_DELAY: ["drain", "delay"],
  SALLYPORT_DRAIN_LIMIT: ["drain", "limit"],
};

/** Variables that do not belong to one provider. */
export const FIXED_VARIABLES: readonly string[] = [
  "SALLYPORT_CONFIG",
  "SALLYPORT_LISTEN",
  "SALLYPORT_ADMIN",
  "SALLYPORT_ADMIN_TOKEN",
  "SALLYPORT_KEYS",
  "SALLYPORT_KEYS_FILE",
  "SALLYPORT_REDIS",
  "SALLYPORT_LOG",
  "SALLYPORT_PRICES",
  "SALLYPORT_CURRENCY",
  ...Object.keys(SIMPLE_VARIABLES),
];

/** Settings as they are written. */
export type Json = Record<string, unknown>;

function splitList(text: string): string[] {
  return text.split(",").map((item) => item.trim()).filter((item) => item !== "");
}

/** Reads an address: `127.0.0.1:8787`, `http://…` or `https://127.0.0.1:8788?cert=b.crt&key=b.key`. */
function toListen(text: string): Json {
  const full = /^https?:/.test(text) ? text : `http://${text}`;
  if (!URL.canParse(full)) return { port: text };
  const url = new URL(full);
  const port = Number(/:(\d+)(?:[/?]|$)/.exec(full.replace(/^https?:/, ""))?.[1] ?? NaN);
  const { cert, key } = Object.fromEntries(url.searchParams);
  return {
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    port: Number.isNaN(port) ? text : port,
    ...(url.protocol === "https:" && { tls: { cert, key } }),
  };
}

/** Reads keys: plain ones in a comma-separated list, `redis`, or the whole `keys` setting as JSON. */
function toKeys(text: string): unknown {
  if (text === "redis") return text;
  if (!text.startsWith("[")) return splitList(text).map((key, index) => ({ id: `key-${index + 1}`, key }));
  return toJson(text);
}

/** Parses JSON. Invalid JSON becomes a text, which no schema accepts as an object or an array. */
function toJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return "no JSON";
  }
}

/**
 * Applies one variable to the settings.
 *
 * @param input The settings, changed in place
 * @param name Name of the variable
 * @param value Its text
 * @returns The path of the setting; `undefined` for an unknown variable
 */
export function layVariable(input: Json, name: string, value: string): string | undefined {
  const simple = Object.hasOwn(SIMPLE_VARIABLES, name) ? SIMPLE_VARIABLES[name] : undefined;
  if (simple !== undefined) {
    const [section, setting] = simple;
    ((input[section] ??= {}) as Json)[setting] = setting === "exchanges" ? Number(value) : value;
    return simple.join(".");
  }
  switch (name) {
    case "SALLYPORT_LISTEN":
      input.listen = splitList(value).map(toListen);
      return "listen";
    case "SALLYPORT_KEYS":
      input.keys = toKeys(value);
      return "keys";
    case "SALLYPORT_KEYS_FILE":
      input.keys = { file: value };
      return "keys";
    case "SALLYPORT_LOG":
      input.log = value;
      return "log";
    case "SALLYPORT_REDIS":
      input.redis = value;
      return "redis";
    case "SALLYPORT_PRICES":
      input.prices = toJson(value);
      return "prices";
    case "SALLYPORT_CURRENCY":
      input.currency = value;
      return "currency";
    case "SALLYPORT_ADMIN":
      input.admin = { ...input.admin as Json | undefined, ...toListen(value) };
      return "admin";
    case "SALLYPORT_ADMIN_TOKEN":
      input.admin = { ...input.admin as Json | undefined, token: value };
      return "admin.token";
  }
  const stem = PROVIDER_VARIABLES.find((candidate) => name.startsWith(candidate));
  if (stem === undefined || name === stem) return undefined;
  const id = name.slice(stem.length).toLowerCase().replaceAll("_", "-");
  const provider = (((input.providers ??= {}) as Json)[id] ??= {}) as Json;
  const setting = PROVIDER_SETTINGS[stem] ?? "";
  if (setting === "hosts") provider.hosts = splitList(value);
  else if (setting === "upstream") provider.upstream = splitList(value);
  else if (setting === "prices") provider.prices = toJson(value);
  else if (setting === "deadlines" || setting === "limits") {
    const pairs = splitList(value).map((pair) => pair.split("=").map((side) => side.trim()));
    const given = pairs.map(([name, text]) => [name, name === "concurrency" ? Number(text) : text]);
    provider[setting] = { ...provider[setting] as Json | undefined, ...Object.fromEntries(given) };
  } else provider[setting] = value;
  return `providers.${id}.${setting}`;
}
