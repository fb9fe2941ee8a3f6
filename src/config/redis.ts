/**
 * The setting for the Redis or Valkey that several gateways share: one server, a Cluster, or the
 * primary that Sentinels name.
 *
 * @module
 */
import * as v from "valibot";
import { HOST } from "./address.ts";
import { about, anyDuration, nonEmpty, strictObject } from "./schema.ts";

/** The Sentinels that name the primary. */
export interface SentinelConfig {
  /** The Sentinels' name of the primary and its replicas. */
  readonly name: string;
  /** Addresses of Sentinels, such as `10.0.0.1:26379`; at least one. */
  readonly nodes: readonly string[];
  /** User of the Sentinels' own ACL. */
  readonly username?: string | undefined;
  /** Password of the Sentinels. */
  readonly password?: string | undefined;
}

/** Paths of PEM files for TLS. */
export interface RedisTlsConfig {
  /** Certificates of the authorities to trust, instead of the runtime's own. */
  readonly ca?: string | undefined;
  /** The client certificate of this gateway. */
  readonly cert?: string | undefined;
  /** The private key of that certificate. */
  readonly key?: string | undefined;
}

/** The connection to Redis, with exactly one of `url`, `cluster` and `sentinel`. */
export interface RedisConfig {
  /** URL of one server, or of a proxy for one. */
  readonly url?: string | undefined;
  /** URLs of some nodes of a Cluster. The others are discovered. */
  readonly cluster?: readonly string[] | undefined;
  /** Sentinels that name the primary. */
  readonly sentinel?: SentinelConfig | undefined;
  /** User of the servers' ACL, if the URL names none. */
  readonly username?: string | undefined;
  /** Password of the servers, if the URL has none. */
  readonly password?: string | undefined;
  /** Files for TLS, for `rediss://` and for Sentinels, which then use TLS like the servers. */
  readonly tls?: RedisTlsConfig | undefined;
  /**
   * Assumed number of gateways until it is known from Redis, if none is remembered. Default: 10.
   */
  readonly gateways?: number | undefined;
  /** Deadline of a call, after which Redis counts as slow. Milliseconds. */
  readonly timeoutMs: number;
}

/** The connection to Redis in the configuration. A text is a URL. */
export type RedisInput =
  | string
  | (Omit<RedisConfig, "timeoutMs"> & { readonly timeout?: string | undefined });

/** A parsed URL of Redis. */
export interface RedisAddress {
  readonly host?: string | undefined;
  readonly port?: number | undefined;
  /** Path of a Unix socket, instead of host and port. */
  readonly path?: string | undefined;
  readonly isTls: boolean;
  readonly username?: string | undefined;
  readonly password?: string | undefined;
  readonly database?: number | undefined;
}

/** Redis's own default ports. */
const REDIS_PORT = 6379;
const SENTINEL_PORT = 26379;
/** Default deadline of a call. A server nearby needs less than a millisecond. */
const DEFAULT_TIMEOUT = "50ms";
/** Longest deadline, for which a caller waits if Redis fails. Milliseconds. */
const MAX_TIMEOUT_MS = 5000;

const URL_FORM =
  'expected a URL such as "redis://127.0.0.1:6379", "rediss://…" or "unix:///run/redis.sock"';

/** Parses a URL of Redis. @returns The address, or a description of the fault */
export function readRedisUrl(text: string): RedisAddress | string {
  const protocol = /^(rediss?|(?:redis\+)?unix):\/\//.exec(text)?.[1];
  if (protocol === undefined || !URL.canParse(text)) return URL_FORM;
  const parsed = new URL(text);
  const { hostname, port, username, password, pathname, search, searchParams, hash } = parsed;
  if (hash !== "") return "expected no fragment: # is written %23 in a password";
  if (protocol.endsWith("unix")) {
    if (hostname !== "" || pathname.length < 2) {
      return 'expected three slashes before the path of a socket, as in "unix:///run/redis.sock"';
    }
    const database = searchParams.get("db") ?? "0";
    if (/^(?:\?db=\d+)?$/.test(search)) {
      return { path: decode(pathname), isTls: false, database: Number(database) };
    }
    return 'expected no query but the number of a database, as in "unix:///run/redis.sock?db=2"';
  }
  if (hostname === "") return URL_FORM;
  if (search !== "") {
    return "expected no query: set these settings by their own names, next to url";
  }
  const database = /^\/?(\d*)$/.exec(pathname)?.[1];
  if (database === undefined) {
    return 'expected the number of a database after the host, as in "redis://127.0.0.1/2"';
  }
  const user = { username: decode(username), password: decode(password) };
  if (Object.values(user).includes(undefined)) {
    return "expected a percent-encoded user and password: % is written %25";
  }
  return {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? REDIS_PORT : Number(port),
    isTls: protocol === "rediss",
    username: user.username || undefined,
    password: user.password || undefined,
    database: Number(database),
  };
}

/** Decodes a part of a URL; `undefined` if that fails. */
function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Parses the address of a Sentinel. */
export function readSentinelNode(text: string): { readonly host: string; readonly port: number } {
  const { hostname, port } = new URL(`redis://${text}`);
  return {
    host: hostname.replace(/^\[|\]$/g, ""),
    port: port === "" ? SENTINEL_PORT : Number(port),
  };
}

const url = v.pipe(
  v.string(URL_FORM),
  v.check(
    (text) => typeof readRedisUrl(text) !== "string",
    ({ input }) => String(readRedisUrl(input)),
  ),
);

const NODE_FORM = 'expected an address such as "10.0.0.1:26379"';
const node = v.pipe(
  v.string(NODE_FORM),
  v.check((text) => HOST.test(text.toLowerCase()) && URL.canParse(`redis://${text}`), NODE_FORM),
);

const [username, password] = [
  v.optional(about(nonEmpty, "ACL user of the servers, if the URL names none")),
  v.optional(about(nonEmpty, "Password of the servers, if the URL has none")),
];
const sentinel = strictObject({
  name: about(
    nonEmpty,
    "Name of the primary and its replicas in the configuration of the Sentinels, such as `mymaster`",
  ),
  nodes: about(
    v.pipe(
      v.array(node, "expected an array of addresses"),
      v.nonEmpty("expected at least one address"),
    ),
    "Addresses of some Sentinels. The gateway finds all others through them",
  ),
  username: v.optional(about(nonEmpty, "ACL user of the Sentinels")),
  password: v.optional(about(nonEmpty, "Password of the Sentinels")),
}, "expected an object with name and nodes");

const tls = strictObject({
  ca: v.optional(
    about(nonEmpty, "PEM file of the authorities to trust, instead of the runtime's own"),
  ),
  cert: v.optional(about(nonEmpty, "PEM file of the client certificate of this gateway")),
  key: v.optional(about(nonEmpty, "PEM file of the private key of `cert`")),
}, "expected an object with ca, or with cert and key");

const timeout = about(
  v.optional(
    v.pipe(
      anyDuration,
      v.minValue(1, "expected a duration above zero"),
      v.maxValue(MAX_TIMEOUT_MS, "expected at most 5s"),
    ),
    DEFAULT_TIMEOUT,
  ),
  "The longest wait for an answer of Redis, at most 5s. Set it to at least twice the round trip time",
);

const COUNT_FORM = "expected a whole number above 0";

type Mistake = readonly [path: readonly (string | number)[], message: string];

/** Finds mistakes in combinations of settings. */
function* findMistakes(config: Omit<RedisConfig, "timeoutMs">): Generator<Mistake> {
  const { url, cluster, tls } = config;
  const addresses = [url, ...cluster ?? []].filter((each) => each !== undefined)
    .map(readRedisUrl).filter((address) => typeof address === "object");
  for (const name of ["username", "password"] as const) {
    if (config[name] !== undefined && addresses.some((address) => address[name] !== undefined)) {
      yield [[name], `expected it once: ${name} is in the URL too`];
    }
  }
  if (tls !== undefined && addresses.some(({ isTls }) => !isTls)) {
    yield [["tls"], 'expected "rediss://" in each URL'];
  }
  if (tls?.cert !== undefined && tls.key === undefined) {
    yield [["tls", "key"], "expected together with cert"];
  }
  if (tls?.key !== undefined && tls.cert === undefined) {
    yield [["tls", "cert"], "expected together with key"];
  }
  if (cluster === undefined) return;
  for (const [index, { path, username, password, database = 0, isTls }] of addresses.entries()) {
    if (path !== undefined) {
      yield [["cluster", index], "expected host and port: a Cluster has no Unix sockets"];
    }
    if (database !== 0) {
      yield [["cluster", index], "expected no database: a Cluster has only 0"];
    }
    if (username !== undefined || password !== undefined) {
      yield [
        ["cluster", index],
        "expected no password: set username and password next to cluster, for all nodes",
      ];
    }
    if (isTls !== addresses[0]?.isTls) {
      yield [["cluster", index], 'expected "rediss://" in all URLs, or in none'];
    }
  }
}

const settings = v.pipe(
  strictObject({
    url: v.optional(
      about(
        url,
        "`redis://`, `rediss://` or `unix://`: URL of one server, or of a proxy in front of several",
      ),
    ),
    cluster: v.optional(about(
      v.pipe(v.array(url, "expected an array of URLs"), v.nonEmpty("expected at least one URL")),
      "URLs of some nodes of a Redis Cluster. The gateway finds all others through them",
    )),
    sentinel: v.optional(
      about(sentinel, "Redis Sentinels. The gateway asks them which server is the primary"),
    ),
    username,
    password,
    tls: v.optional(
      about(
        tls,
        "Files for TLS with `rediss://`. With Sentinels, this setting turns on TLS for Sentinels and servers",
      ),
    ),
    gateways: v.optional(about(
      v.pipe(v.number(COUNT_FORM), v.integer(COUNT_FORM), v.minValue(1, COUNT_FORM)),
      "Number of gateway processes that share limits, for a gateway that starts while Redis is " +
        "unavailable and has not saved the number before. Left out: 10",
    )),
    timeout,
  }, URL_FORM),
  v.partialCheck(
    [["url"], ["cluster"], ["sentinel"]],
    ({ url, cluster, sentinel }) =>
      [url, cluster, sentinel].filter((each) => each !== undefined).length === 1,
    "expected one of url, cluster and sentinel",
  ),
  v.rawCheck(({ dataset, addIssue }) => {
    if (!dataset.typed) return;
    for (const [keys, message] of findMistakes(dataset.value)) {
      const path = keys.map((key) => ({
        type: "unknown",
        origin: "value",
        input: dataset.value,
        key,
        value: null,
      }));
      addIssue({ message, path: path as never });
    }
  }),
  v.transform(({ timeout, ...rest }): RedisConfig => ({ ...rest, timeoutMs: timeout })),
);

/** @internal The schema of the connection to Redis. */
export const RedisSchema: v.GenericSchema<RedisInput, RedisConfig> = v.pipe(
  v.union([url, settings], URL_FORM),
  v.transform((given) => typeof given === "string" ? v.parse(settings, { url: given }) : given),
);
