/**
 * The bindings of a Worker, its configuration, and the parts of a gateway that are created from
 * them.
 *
 * @module
 */
import type { ReportEvent } from "../exchange/reported_event.ts";
import { NO_RESERVATION } from "../limits/limiter.ts";
import { MemoryLimiter } from "../limits/memory_limiter.ts";
import { RemoteLimiter, type SendToLimiter } from "../limits/remote_limiter.ts";
import { GatewayError } from "../errors/gateway_error.ts";
import { checkConfig, type Config, ConfigError, type ConfigIssue } from "../config/config.ts";
import { mayRecord } from "../config/durable.ts";
import type { DurableExchanges } from "../durable/durable_exchanges.ts";
import { RECORDING_LEASE_MS, tagOf } from "../durable/recording_store.ts";
import type { RecordingMessage } from "../durable/recording_server.ts";
import { RemoteRecordings, type SendToRecordings } from "../durable/recording_store_remote.ts";
import { RemoteRuns, type SendToRuns } from "../runs/remote_runs.ts";
import type { RunRegistry } from "../runs/run_registry.ts";
import type { RunMessage } from "../runs/run_server.ts";
import type { Clock } from "../exchange/clock.ts";
import type { GatewayParts } from "../gateway.ts";
import { describeUnknownVariable, type Json, layVariable, PREFIX } from "../config/environment.ts";
import type { GatewayKey } from "../keys/key_store.ts";
import { createDurableExchanges } from "../steps/durable/setup.ts";
import { type HeldKeyReader, listHeldKeys } from "../upstream/held_keys.ts";
import { KvKeyStore, type KvNamespace } from "./keys_kv.ts";

/** The used part of a namespace of Durable Objects. */
export interface ObjectNamespace {
  /** Returns the object of this name, for the current request. */
  getByName(name: string): unknown;
}

/** The used part of a Durable Object's storage. It must be SQLite. */
export interface ObjectStorage {
  readonly kv: {
    get<T>(name: string): T | undefined;
    put(name: string, value: unknown): void;
    delete(name: string): boolean;
    /** Lists values in the order of their names. */
    list<T>(options?: { readonly prefix?: string }): Iterable<[string, T]>;
  };
  /** Sets the alarm. @param at Milliseconds since 1970 */
  setAlarm(at: number): Promise<void>;
  /** Deletes all values, the alarm, and the storage itself. */
  deleteAll(): Promise<void>;
}

/** The used part of a Durable Object's state. */
export interface ObjectState {
  readonly storage: ObjectStorage;
}

/** The environment of a Worker: bindings, variables and secrets. Other ones are ignored. */
export interface Bindings {
  /** Namespace of the gateway keys. Default: the keys of the configuration. */
  readonly KEYS?: KvNamespace;
  /** Namespace of the Durable Object `SallyportLimits`, which counts limits. */
  readonly LIMITS?: ObjectNamespace;
  /**
   * Namespace of the Durable Object `SallyportRecordings`, which stores recordings of durable
   * exchanges.
   */
  readonly RECORDINGS?: ObjectNamespace;
  /**
   * The content of `gateway.jsonc`, as an object or as JSON. The other `SALLYPORT_` variables
   * override it.
   */
  readonly SALLYPORT_CONFIG?: unknown;
  readonly [name: string]: unknown;
}

/**
 * Default sizes of one body, of all bodies together, and of the recordings of one Durable Object. A
 * Worker has 128 MB of memory (Cloudflare, "Limits"), and a body is in memory as bytes, as text and
 * parsed. Several objects can share an isolate.
 */
const DEFAULT_LIMITS = { body: "8MB", bodies: "32MB", recordings: "16MB" };
/** Settings that a Worker does not have, with alternatives. */
const ABSENT: Readonly<Record<string, string>> = {
  listen: "a Worker has routes: set them in the configuration of wrangler",
  admin: "a Worker has no second listener: leave it out. ops/workers/admin.js lists runs",
  redis: "limits are in the Durable Object LIMITS and keys in the KV namespace KEYS: leave it out",
  drain: "the platform ends a Worker: leave it out",
  alerts: "a Worker sends no messages about budgets: leave it out",
};

/** Reads a copy of the configuration, unchecked. @throws {ConfigError} If it is no object */
export function readInput({ SALLYPORT_CONFIG: given = {} }: Bindings): Json {
  try {
    const input = typeof given === "string" ? JSON.parse(given) : structuredClone(given);
    if (typeof input === "object" && input !== null && !Array.isArray(input)) return input;
  } catch {
    // The error can quote a secret.
  }
  const message = "expected the configuration as an object, or as its JSON";
  throw new ConfigError([{ path: "SALLYPORT_CONFIG", message }]);
}

/** Overrides the settings with the variables. Returns the variable of each overridden path. */
export function layVariables(
  input: Json,
  env: Bindings,
  issues: ConfigIssue[],
): Map<string, string> {
  const sources = new Map<string, string>();
  for (const [name, value] of Object.entries(env)) {
    if (!name.startsWith(PREFIX) || name === "SALLYPORT_CONFIG" || value === "") continue;
    const path = typeof value === "string" ? layVariable(input, name, value) : undefined;
    if (path === undefined) {
      const { providers } = input;
      const names = typeof providers === "object" && providers !== null ? providers : {};
      const message = typeof value === "string"
        ? describeUnknownVariable(name, Object.keys(names))
        : "expected a text";
      issues.push({ path: name, message, source: "bindings" });
    } else sources.set(path, name);
  }
  return sources;
}

/** Finds mistakes that are possible only in a Worker. */
function findForeign(input: Json, { KEYS }: Bindings): ConfigIssue[] {
  const issues: ConfigIssue[] = Object.entries(ABSENT).filter(([name]) => input[name] !== undefined)
    .map(([path, message]) => ({ path, message }));
  if (KEYS !== undefined && input.keys !== undefined) {
    issues.push({
      path: "keys",
      message: "expected either keys in the configuration or the KV namespace KEYS",
    });
  } else if (input.keys !== undefined && !Array.isArray(input.keys)) {
    issues.push({
      path: "keys",
      message: "expected an array of keys: keys of a file belong into the KV namespace KEYS",
    });
  }
  return issues;
}

/** True if limits must be counted across isolates. Keys in KV can always have limits. */
function needsCounting(config: Config, { KEYS }: Bindings): boolean {
  if (KEYS !== undefined) return true;
  const { keys, teams, providers, identity = [] } = config;
  const owners = [
    ...(Array.isArray(keys) ? keys : []),
    ...Object.values(teams),
    ...Object.values(providers),
  ];
  const { headers, budget, calls, repeats } = config.runs;
  const limits = [budget, calls, repeats];
  if (headers.length > 0 || limits.some((limit) => limit !== undefined)) return true;
  const hasPlans = identity.some(({ plans }) => Object.keys(plans).length > 0);
  return hasPlans || owners.some(({ limits }) => limits !== undefined);
}

/**
 * Finds settings of durable exchanges. They need a store for their recordings, because an isolate
 * can end at any time.
 */
function findDurable({ providers, keys }: Config): ConfigIssue[] {
  const owners = [
    ...Object.entries(providers).map(([name, each]) => ({ path: `providers.${name}`, each })),
    ...(Array.isArray(keys) ? keys : []).map((each, at) => ({ path: `keys.${at}`, each })),
  ];
  const recorded = owners.filter(({ each }) => typeof each.durable === "object");
  const message = "expected a binding RECORDINGS to the Durable Object SallyportRecordings: " +
    "add it, or leave this out";
  return recorded.map(({ path }) => ({ path: `${path}.durable`, message }));
}

/** Finds held keys with a source that a Worker does not have. */
function findForeignKeys(config: Config): ConfigIssue[] {
  const message = 'expected { "env": … }: a Worker has no files and no commands, but secrets';
  return listHeldKeys(config).filter(({ source }) => !("env" in source)).map(({ path }) => ({
    path,
    message,
  }));
}

/** Makes the function that reads held keys from the Worker's secrets. It reports a missing one once. */
export function createHeldKeyReader(env: Bindings, report: ReportEvent): HeldKeyReader {
  const reported = new Set<string>();
  return (source) => {
    const name = "env" in source ? source.env : "";
    const { [name]: value } = env;
    if (typeof value === "string" && value !== "") return value;
    const message = `Cannot read a held key: the Worker has no secret ${name}`;
    if (!reported.has(name)) {
      report(message, { event: "held_key_failed", source: `the secret ${name}` });
    }
    reported.add(name);
    throw new Error(message);
  };
}

/**
 * Reads the configuration of a Worker.
 *
 * @throws {ConfigError} With all mistakes
 */
export function readConfig(env: Bindings): Config {
  const input = readInput(env);
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
  if (config !== undefined && env.RECORDINGS === undefined) issues.push(...findDurable(config));
  if (config !== undefined) issues.push(...findForeignKeys(config));
  if (config !== undefined && issues.length === 0) return config;
  const all = Array.from(sources);
  throw new ConfigError(issues.map((issue) => {
    const [, source = issue.source] = all.find(([path]) => issue.path.startsWith(path)) ?? [];
    return { ...issue, source };
  }));
}

/** Parts of the runtime that a Worker's gateway uses. */
export interface WorkerRuntime {
  readonly clock: Clock;
  /** Receives work that must finish even if its exchange has ended. */
  readonly keepAlive: (work: Promise<unknown>) => void;
  /** Reports a mistake to operators. */
  readonly report: ReportEvent;
}

/**
 * Longest wait for a Durable Object. An object that was never called can start on another
 * continent. Milliseconds.
 */
const OBJECT_MS = 2000;

/** Waits for the answer of a Durable Object. @throws {Error} If it takes longer */
async function inTime<Answer>(answer: Promise<Answer>, ms: number, clock: Clock): Promise<Answer> {
  let cancel = (): void => {};
  const tooLate = new Promise<never>((_, reject) => {
    cancel = clock.timer(
      ms,
      () => reject(new Error("Cannot go on: the Durable Object does not answer")),
    );
  });
  return await Promise.race([answer, tooLate]).finally(() => cancel());
}

/**
 * Creates the function that sends messages to Durable Objects.
 *
 * @param objectOf Returns the object that counts a subject, together with all subjects that are
 * counted with it
 * @returns Sends a message. Rejects if the answer takes longer than {@link OBJECT_MS}
 */
export function createSend(
  objectOf: (subject: string) => { handle: SendToLimiter },
  { clock, keepAlive }: Pick<WorkerRuntime, "clock" | "keepAlive">,
): SendToLimiter {
  return async (message) => {
    // The last subject is shared by the most keys: a provider, or a team, or the key itself.
    const { lastSubject } = message.type === "status" ? NO_RESERVATION : message.reservation;
    const shared = lastSubject ?? message.subjects.at(-1)?.name ?? "all";
    const answer = Promise.resolve(objectOf(shared).handle(message));
    keepAlive(answer.catch(() => {}));
    return await inTime(answer, OBJECT_MS, clock);
  };
}

/**
 * The longest time for which a writer collects bytes for an entry. Each entry is a billed call to
 * an object. Milliseconds.
 */
const GATHER_MS = 100;

/** The longest time that the recordings can delay the answer to a message. Milliseconds. */
function waitOf(message: RecordingMessage): number {
  if ("waitMs" in message) return message.waitMs;
  return message.type === "attend" ? RECORDING_LEASE_MS : 0;
}

/**
 * Creates the durable exchanges of a Worker. A request must not use objects of another request, so
 * each reads the recording, even if the same isolate writes it.
 */
function createDurable(
  namespace: ObjectNamespace,
  { clock, keepAlive }: WorkerRuntime,
): DurableExchanges {
  const send: SendToRecordings = async (message) => {
    if (message.type === "list") return {}; // it is not possible to ask all objects
    const id = message.type === "claim" ? message.claim.id : message.id;
    const object = namespace.getByName(tagOf(id)) as { handle: SendToRecordings };
    return await inTime(object.handle(message), OBJECT_MS + waitOf(message), clock);
  };
  const store = new RemoteRecordings({ send, clock, gatherMs: GATHER_MS, keepAlive });
  return createDurableExchanges(store, clock, { isLocal: false });
}

/**
 * Returns a function that reports, once, a key whose calls should be recorded although no store for
 * recordings is bound.
 */
function createKeyCheck({ report }: WorkerRuntime): (key: GatewayKey) => void {
  let isReported = false;
  return ({ id, durable }) => {
    if (typeof durable !== "object" || isReported) return;
    isReported = true;
    report(
      `key ${id} has durable, but there is no binding RECORDINGS: no call is recorded. ` +
        "Add it, or leave durable out",
      { event: "configuration_warning", key: id },
    );
  };
}

/** Returns the id of the gateway key that a message is about. Its runs are in one object. */
function keyOf(message: RunMessage): string {
  if (message.type === "admit") return message.call.keyId;
  if (message.type === "correct") return message.correction.keyId;
  return message.keyId ?? "";
}

/** Creates the registry of runs of a Worker. Each gateway key has an object that counts its runs. */
export function createRuns(
  namespace: ObjectNamespace | undefined,
  { clock, keepAlive }: Pick<WorkerRuntime, "clock" | "keepAlive">,
): RunRegistry {
  const send: SendToRuns = async (message) => {
    if (namespace === undefined) {
      throw new GatewayError("invalid_run", {
        detail: "this gateway counts no runs: its operator has to bind LIMITS",
      });
    }
    if (message.type === "list" && message.keyId === undefined) {
      throw new GatewayError("invalid_query", {
        param: "key",
        detail: "key: expected the id of a gateway key, because each has a separate Durable Object",
      });
    }
    const object = namespace.getByName(`runs:${keyOf(message)}`) as { handleRuns: SendToRuns };
    const waitMs = message.type === "watch" ? message.waitMs : 0;
    const answer = Promise.resolve(object.handleRuns(message));
    keepAlive(answer.catch(() => {}));
    return await inTime(answer, OBJECT_MS + waitMs, clock);
  };
  return new RemoteRuns(send, clock, keepAlive);
}

/** Creates the key store, the limiter, the registry of runs and the durable exchanges of a Worker. */
export function createParts(
  env: Bindings,
  config: Config,
  runtime: WorkerRuntime,
): Partial<GatewayParts> {
  const { KEYS, LIMITS, RECORDINGS } = env;
  // A provider's limits apply to all keys together, so one object then counts everything. Otherwise
  // an object counts a team with its keys, or a key without a team. A decision is therefore one
  // call, counts are not divided, and a refusal never has to undo other counts.
  const isOne = Object.values(config.providers).some(({ limits }) => limits !== undefined);
  const toSend = (namespace: ObjectNamespace) =>
    createSend(
      (subject) => namespace.getByName(isOne ? "all" : subject) as { handle: SendToLimiter },
      runtime,
    );
  return {
    ...(KEYS !== undefined && {
      keys: new KvKeyStore(KEYS, RECORDINGS === undefined ? createKeyCheck(runtime) : undefined),
    }),
    // Not in memory: a request must not use objects of another request.
    durable: RECORDINGS === undefined || !mayRecord({ ...config, keys: KEYS ?? config.keys })
      ? null
      : createDurable(RECORDINGS, runtime),
    runs: createRuns(LIMITS, runtime),
    limiter: LIMITS === undefined
      ? new MemoryLimiter(runtime.clock)
      : new RemoteLimiter(toSend(LIMITS), runtime.clock),
  };
}
