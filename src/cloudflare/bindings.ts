/**
 * What a Worker is given, its settings among it, and the parts of a gateway that come of that.
 *
 * @module
 */
import { type LimitSubject, MemoryLimiter } from "../limits/memory_limiter.ts";
import { LeasedLimiter, type RemoteBook } from "../limits/remote_limiter.ts";
import { type Config, ConfigError, type ConfigIssue, parseConfig } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import type { GatewayParts } from "../gateway.ts";
import { type Json, layVariable, PREFIX } from "../config/environment.ts";
import { KvKeyStore, type KvNamespace } from "./keys_kv.ts";

/** What of a namespace of Durable Objects is used. */
export interface ObjectNamespace {
  /** @returns The object of this name, for the request that is being handled */
  getByName(name: string): unknown;
}

/** What of a Durable Object's state is used: its storage has to be SQLite. */
export interface ObjectState {
  readonly storage: {
    readonly kv: {
      get<T>(name: string): T | undefined;
      put(name: string, value: unknown): void;
      delete(name: string): boolean;
      list<T>(): Iterable<[string, T]>;
    };
    /** @param at Milliseconds since 1970 */
    setAlarm(at: number): Promise<void>;
  };
}

/** What a Worker is given: bindings, variables and secrets. Further ones are left alone. */
export interface Bindings {
  /** Gateway keys; without it those of the configuration. */
  readonly KEYS?: KvNamespace;
  /** `SallyportLimits`: counts limits. */
  readonly LIMITS?: ObjectNamespace;
  /** What `gateway.jsonc` holds, as an object or as JSON. The other `SALLYPORT_` variables are laid over it. */
  readonly SALLYPORT_CONFIG?: unknown;
  readonly [name: string]: unknown;
}

/** A Worker has 128 MB for everything (Cloudflare, "Limits"); a body is held as bytes, as text and parsed. */
const DEFAULT_LIMITS = { body: "8MB", bodies: "32MB" };
const NO_USAGE = "a Worker has no reports of usage: leave it out";
/** Settings of a process that listens, and what is there instead. */
const ABSENT: Readonly<Record<string, string>> = {
  listen: "a Worker has routes: set them in the configuration of wrangler",
  admin: "a Worker has no second listener: leave it out",
  redis: "limits are in the Durable Object LIMITS and keys in the KV namespace KEYS: leave it out",
  drain: "the platform ends a Worker: leave it out",
  prices: NO_USAGE,
  currency: NO_USAGE,
};

function readInput(given: unknown): Json {
  const input = typeof given === "string" ? JSON.parse(given) : structuredClone(given);
  if (typeof input === "object" && input !== null && !Array.isArray(input)) return input;
  throw new SyntaxError();
}

/** Lays the variables over the settings. @returns Which variable set which path */
function layVariables(input: Json, env: Bindings, issues: ConfigIssue[]): Map<string, string> {
  const sources = new Map<string, string>();
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith(PREFIX) || name === "SALLYPORT_CONFIG" || value === "") continue;
    const path = typeof value === "string" ? layVariable(input, name, value) : undefined;
    if (path === undefined) {
      const message = typeof value === "string" ? "unknown variable" : "expected a text";
      issues.push({ path: name, message, source: "bindings" });
    } else sources.set(path, name);
  }
  return sources;
}

/** Mistakes that only a Worker can make. */
function findForeign(input: Json, { KEYS }: Bindings): ConfigIssue[] {
  const issues: ConfigIssue[] = Object.entries(ABSENT).filter(([name]) => input[name] !== undefined)
    .map(([path, message]) => ({ path, message }));
  for (const [name, provider] of Object.entries(input.providers ?? {})) {
    if (provider?.prices !== undefined) issues.push({ path: `providers.${name}.prices`, message: NO_USAGE });
  }
  if (KEYS !== undefined && input.keys !== undefined) {
    issues.push({ path: "keys", message: "expected either keys in the configuration or the KV namespace KEYS" });
  } else if (input.keys !== undefined && !Array.isArray(input.keys)) {
    issues.push({
      path: "keys",
      message: "expected an array of keys: those of a file belong into the KV namespace KEYS",
    });
  }
  return issues;
}

/** Whether anything is limited beyond one isolate: keys in KV may have any limits. */
function needsCounting({ keys, providers }: Config, { KEYS }: Bindings): boolean {
  const inline = Array.isArray(keys) ? keys : [];
  return KEYS !== undefined || [...inline, ...Object.values(providers)].some(({ limits }) => limits !== undefined);
}

/**
 * The configuration of a Worker.
 *
 * @param env What the Worker is given
 * @returns The configuration
 * @throws {ConfigError} With every mistake at once
 */
export function readConfig(env: Bindings): Config {
  let input: Json;
  try {
    input = readInput(env.SALLYPORT_CONFIG ?? {});
  } catch {
    const message = "expected the configuration as an object, or as its JSON";
    throw new ConfigError([{ path: "SALLYPORT_CONFIG", message }]);
  }
  const issues: ConfigIssue[] = [];
  const sources = layVariables(input, env, issues);
  issues.push(...findForeign(input, env));
  if (typeof input.limits === "object" || input.limits === undefined) {
    input.limits = { ...DEFAULT_LIMITS, ...input.limits as Json | undefined };
  }
  let config: Config | undefined;
  try {
    config = parseConfig(input);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const foreign = new Set(issues.map(({ path }) => path));
    issues.push(...error.issues.filter(({ path }) => !foreign.has(path)));
  }
  if (config !== undefined && env.LIMITS === undefined && needsCounting(config, env)) {
    issues.push({
      path: "LIMITS",
      message: "expected a binding to the Durable Object SallyportLimits: something is limited",
    });
  }
  if (config !== undefined && issues.length === 0) return config;
  throw new ConfigError(issues.map((issue) => {
    const [, source = issue.source] = Array.from(sources).find(([prefix]) => issue.path.startsWith(prefix)) ?? [];
    return { ...issue, source };
  }));
}

/**
 * Keys and limits.
 *
 * @param env What the Worker is given
 * @param config Its configuration
 * @param beside Its clock, and who is given what has to be done although its exchange is over
 * @returns Parts of a gateway
 */
export function createParts(
  env: Bindings,
  config: Config,
  beside: { readonly clock: Clock; readonly keepAlive: (work: Promise<unknown>) => void },
): Partial<GatewayParts> {
  const { KEYS, LIMITS } = env;
  // A provider's limits are for all keys together: then one object counts all. Else each key has one of its own.
  const isOne = Object.values(config.providers).some(({ limits }) => limits !== undefined);
  const bookOf = (namespace: ObjectNamespace, [subject]: readonly LimitSubject[]): RemoteBook =>
    namespace.getByName(isOne ? "all" : subject?.name ?? "all") as RemoteBook;
  return {
    ...(KEYS !== undefined && { keys: new KvKeyStore(KEYS) }),
    limiter: LIMITS === undefined
      ? new MemoryLimiter(beside.clock)
      : new LeasedLimiter({ ...beside, bookOf: (subjects) => bookOf(LIMITS, subjects) }),
  };
}
