/**
 * The bindings of a Worker, the configuration in them, and the parts of a gateway that are made of them.
 *
 * @module
 */
import { MemoryLimiter } from "../limits/memory_limiter.ts";
import { RemoteLimiter, type SendToLimiter } from "../limits/remote_limiter.ts";
import { checkConfig, type Config, ConfigError, type ConfigIssue } from "../config/config.ts";
import type { Clock } from "../exchange/clock.ts";
import type { GatewayParts } from "../gateway.ts";
import { type Json, layVariable, PREFIX } from "../config/environment.ts";
import { KvKeyStore, type KvNamespace } from "./keys_kv.ts";

/** The part of a namespace of Durable Objects that is used. */
export interface ObjectNamespace {
  /** @returns The object of this name, for the request that is being handled */
  getByName(name: string): unknown;
}

/** The part of a Durable Object's state that is used. Its storage has to be SQLite. */
export interface ObjectState {
  readonly storage: {
    readonly kv: {
      get<T>(name: string): T | undefined;
      put(name: string, value: unknown): void;
      delete(name: string): boolean;
      list<T>(): Iterable<[string, T]>;
    };
    /** Sets the alarm. @param at Milliseconds since 1970 */
    setAlarm(at: number): Promise<void>;
  };
}

/** The environment of a Worker: bindings, variables and secrets. Others than these are ignored. */
export interface Bindings {
  /** Namespace of the gateway keys; if left out, the keys of the configuration are used. */
  readonly KEYS?: KvNamespace;
  /** Namespace of the Durable Object `SallyportLimits`, which counts limits. */
  readonly LIMITS?: ObjectNamespace;
  /** The content of `gateway.jsonc`, as an object or as JSON. The other `SALLYPORT_` variables override it. */
  readonly SALLYPORT_CONFIG?: unknown;
  readonly [name: string]: unknown;
}

/**
 * Default sizes of one body and of all bodies together. A Worker has 128 MB of memory (Cloudflare, "Limits"), and a
 * body is held as bytes, as text and parsed.
 */
const DEFAULT_LIMITS = { body: "8MB", bodies: "32MB" };
/** Settings that a Worker does not have, and what to do instead. */
const ABSENT: Readonly<Record<string, string>> = {
  listen: "a Worker has routes: set them in the configuration of wrangler",
  admin: "a Worker has no second listener: leave it out",
  redis: "limits are in the Durable Object LIMITS and keys in the KV namespace KEYS: leave it out",
  drain: "the platform ends a Worker: leave it out",
  alerts: "a Worker sends no messages about budgets: leave it out",
};

function readInput(given: unknown): Json {
  const input = typeof given === "string" ? JSON.parse(given) : structuredClone(given);
  if (typeof input === "object" && input !== null && !Array.isArray(input)) return input;
  throw new SyntaxError();
}

/** Overrides the settings by the variables. @returns The variable for each path that was set */
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

/** Finds mistakes that are possible in a Worker only. */
function findForeign(input: Json, { KEYS }: Bindings): ConfigIssue[] {
  const issues: ConfigIssue[] = Object.entries(ABSENT).filter(([name]) => input[name] !== undefined)
    .map(([path, message]) => ({ path, message }));
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

/** Returns whether limits have to be counted across isolates. Keys in KV always may have limits. */
function needsCounting({ keys, teams, providers, identity = [] }: Config, { KEYS }: Bindings): boolean {
  const owners = [...(Array.isArray(keys) ? keys : []), ...Object.values(teams), ...Object.values(providers)];
  return KEYS !== undefined || identity.some(({ plans }) => Object.keys(plans).length > 0) ||
    owners.some(({ limits }) => limits !== undefined);
}

/**
 * Reads the configuration of a Worker.
 *
 * @param env The environment of the Worker
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
    config = checkConfig(input);
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

/** Parts of the runtime that a Worker's limiter uses. */
export interface WorkerRuntime {
  readonly clock: Clock;
  /** Takes work that has to be finished even when its exchange is over. */
  readonly keepAlive: (work: Promise<unknown>) => void;
}

/**
 * Longest wait for a Durable Object: one that was never called before may start on another continent. Milliseconds.
 */
const OBJECT_MS = 2000;

/**
 * Creates the function that sends messages to Durable Objects.
 *
 * @param objectOf Returns the object that counts a subject, and all that are counted together with it
 * @param runtime The clock, and `keepAlive`
 * @returns Sends a message; rejects if the answer takes longer than {@link OBJECT_MS}
 */
export function createSend(
  objectOf: (subject: string) => { handle: SendToLimiter },
  { clock, keepAlive }: WorkerRuntime,
): SendToLimiter {
  return async (message) => {
    // The last subject is the one that most keys share: a provider, or a team, or the key itself.
    const shared = message.subjects.at(-1);
    const answer = Promise.resolve(objectOf(shared?.name ?? "all").handle(message));
    keepAlive(answer.catch(() => {}));
    let cancel = (): void => {};
    const tooLate = new Promise<never>((_, reject) => {
      cancel = clock.timer(OBJECT_MS, () => reject(new Error("Cannot count: the Durable Object does not answer")));
    });
    return await Promise.race([answer, tooLate]).finally(() => cancel());
  };
}

/**
 * Creates the key store and the limiter of a Worker.
 *
 * @param env The environment of the Worker
 * @param config Its configuration
 * @param runtime The clock, and `keepAlive`
 * @returns Parts of a gateway
 */
export function createParts(env: Bindings, config: Config, runtime: WorkerRuntime): Partial<GatewayParts> {
  const { KEYS, LIMITS } = env;
  // A provider's limits are for all keys together: then one object counts all. Else one counts a team with its keys, or
  // a key without a team. So a decision is one call, nobody's counts are divided, and a refusal has nothing to give back.
  const isOne = Object.values(config.providers).some(({ limits }) => limits !== undefined);
  const toSend = (namespace: ObjectNamespace) =>
    createSend((subject) => namespace.getByName(isOne ? "all" : subject) as { handle: SendToLimiter }, runtime);
  return {
    ...(KEYS !== undefined && { keys: new KvKeyStore(KEYS) }),
    limiter: LIMITS === undefined ? new MemoryLimiter(runtime.clock) : new RemoteLimiter(toSend(LIMITS), runtime.clock),
  };
}
